"""verify an image of no cell of this matrix: pulled by digest, and checked for its own claims.
Results are below build/external/, apart from any cell's.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from pathlib import Path

from warpfront.commands.adopting import part_here, pull, take_in
from warpfront.errors import RegistryError
from warpfront.images.engine import connect
from warpfront.images.tools import Tools
from warpfront.matrix.cell import Selection
from warpfront.pipeline.verifying import (
    CheckPlan,
    RunOptions,
    VerifiableImage,
    Verified,
    sessions_with,
    toolbox_for,
    verify_images,
)
from warpfront.pipeline.workspace import Workspace
from warpfront.release.registry.contract import Registry
from warpfront.release.registry.manifests import attached_payload
from warpfront.release.statements.provenance_statement import BuildRecord, read_provenance_statement
from warpfront.release.statements.statement import StatementError
from warpfront.report.rows import CellFacts, ReportRow, report_rows
from warpfront.step_results import Blocked, Failed
from warpfront.system.process import environment, run
from warpfront.system.progress import Watch
from warpfront.system.references import Reference
from warpfront.system.store import Store
from warpfront.verify.claimed_cell import claimed_cell, claimed_versions, claims_of
from warpfront.verify.results import Verification
from warpfront.wheels.site import site_when_needed
from warpfront_checks.check_options import CheckOptions

FOLDER = "external"


def verify_external_image(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    reference: str,
    *,
    effort: CheckOptions | None = None,
    selftest: bool = False,
    options: RunOptions | None = None,
) -> tuple[tuple[Verified, ...], tuple[ReportRow, ...]]:
    """Check an external image on each target of its labels, or on the selected one; return results
    and rows of a report. Raise `InputError` for an image without labels of ours.
    """
    folders = workspace.folders
    store = Store(folders.store.folder / FOLDER)
    from warpfront.release.registry import client  # noqa: PLC0415 - its HTTP is slow to load

    engine = connect(environment())
    named = part_here(reference, engine)
    with client.connect(named.host, environment(), run) as registry:
        making = attached_making(registry, named)
    watch.say(f"{reference}: of no cell here; its guard is its own project's to check")
    if making is None:
        watch.say(f"{reference}: no provenance is attached: only its labels say what it should be")
    tools = Tools(
        engine=engine, folders=dataclasses.replace(folders, store=store), site=site_when_needed()
    )
    plan = CheckPlan(
        target=selection.target,
        sessions=sessions_with(selftest=selftest),
        effort=effort or CheckOptions(),
        options=options or RunOptions(),
    )
    return verify_claimed(named, making, plan, tools, watch)


def attached_making(registry: Registry, named: Reference) -> BuildRecord | None:
    """Return the last valid provenance attached to the image. Anybody may have written it: the
    checks look for its claims inside.
    """
    build_record = None
    for descriptor in registry.referrers(named.repository, named.digest):
        if descriptor.annotations.get("dev.warpfront.statement") == "provenance":
            try:
                payload = attached_payload(registry, named.repository, descriptor.digest)
                build_record = read_provenance_statement(payload, digest=named.digest)
            except (StatementError, RegistryError):
                continue
    return build_record


def verify_claimed(
    named: Reference, making: BuildRecord | None, plan: CheckPlan, tools: Tools, watch: Watch
) -> tuple[tuple[Verified, ...], tuple[ReportRow, ...]]:
    """Return the results of an image by digest, and the same as rows of a report."""
    engine, store = tools.engine, tools.folders.store
    engine.reap()
    started, image = time.monotonic(), pull(named, engine, watch)
    fields = dict(making.asked) if making else {}
    cell = claimed_cell(image.labels, fields, machine=engine.machine)
    built = take_in(cell, image, store, engine, seconds=time.monotonic() - started)
    uris = tuple(dependency.uri for dependency in making.dependencies) if making else ()
    toolbox = toolbox_for(cell, tools, watch)
    results: tuple[Verified, ...] = (toolbox,) if isinstance(toolbox, Blocked | Failed) else ()
    if isinstance(toolbox, Path):
        claims_for = functools.partial(claims_of, cell, claimed_versions(uris))
        external = VerifiableImage(
            cell=cell,
            built=built,
            toolbox=toolbox,
            claims_of=lambda target: claims_for(target=target),
        )
        results = verify_images((external,), plan, tools, watch)
    verifications = {
        result.target: result for result in results if isinstance(result, Verification)
    }
    facts = CellFacts(cell=cell, lock="not here", build=built, verifications=verifications)
    return results, report_rows((facts,), target=plan.target)
