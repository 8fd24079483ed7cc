"""verify an image of no cell of this matrix: pulled by its digest, and checked for what it says of
itself. What comes of it is kept below build/strangers/, where no cell's own results are.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping

from warpfront.commands.adopting import part_here, pull, take_in
from warpfront.errors import RegistryError
from warpfront.images.engine import Engine, connect
from warpfront.model import Blocked, Failed, Selection, Verification
from warpfront.pipeline.verifying import RunOptions, Verified, Verifying, toolbox_for
from warpfront.pipeline.workspace import AskSite, Folders, Workspace, site_when_needed
from warpfront.release.registry.attaching import attached_payload
from warpfront.release.registry.contract import Registry
from warpfront.release.registry.references import Reference
from warpfront.release.statements.provenance_statement import Making, read_provenance_statement
from warpfront.release.statements.statement import StatementError
from warpfront.report.rows import CellFacts, ReportRow, report_rows
from warpfront.system.process import environment, run
from warpfront.system.progress import Watch
from warpfront.system.store import Store
from warpfront.verify.claimed_cell import claimed_cell, claimed_versions, claims_of
from warpfront_checks.check_options import SESSIONS, CheckOptions

FOLDER = "strangers"


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
    """The checks inside an image that nobody here knows, on each target that it says it serves, or
    on the selected one; and the same as a report. Raises `InputError` for one that says nothing.
    """
    folders = workspace.folders
    own = Store(folders.store.folder / FOLDER)
    from warpfront.release.registry import client  # noqa: PLC0415 - its HTTP is slow to load

    engine = connect(environment())
    named = part_here(reference, engine)
    with client.connect(named.host, environment(), run) as registry:
        making = attached_making(registry, named)
    watch.say(f"{reference}: of no cell here; its guard is its own project's to check")
    if making is None:
        watch.say(f"{reference}: no provenance is attached: only its labels say what it should be")
    return verify_claimed(
        named,
        making,
        dataclasses.replace(folders, store=own),
        engine=engine,
        site=site_when_needed(),
        target=selection.target,
        sessions=(*SESSIONS, *(("selftest",) if selftest else ())),
        effort=effort or CheckOptions(),
        watch=watch,
        options=options,
    )


def attached_making(registry: Registry, named: Reference) -> Making | None:
    """How the image says it was made: the last statement that is attached to it and holds. It may
    be anybody's: what it claims is looked for inside.
    """
    found = None
    for one in registry.referrers(named.repository, named.digest):
        if one.annotations.get("dev.warpfront.statement") == "provenance":
            try:
                payload = attached_payload(registry, named.repository, one.digest)
                found = read_provenance_statement(payload, digest=named.digest)
            except (StatementError, RegistryError):
                continue
    return found


def verify_claimed(
    named: Reference,
    making: Making | None,
    folders: Folders,
    *,
    engine: Engine,
    site: AskSite,
    target: str,
    sessions: tuple[str, ...],
    effort: CheckOptions,
    watch: Watch,
    options: RunOptions | None = None,
) -> tuple[tuple[Verified, ...], tuple[ReportRow, ...]]:
    engine.reap()
    began, image = time.monotonic(), pull(named, engine, watch)
    asked = dict(making.asked) if making else {}
    cell = claimed_cell(image.labels, asked, machine=engine.machine)
    built = take_in(cell, image, folders.store, engine, seconds=time.monotonic() - began)
    uris = tuple(one.uri for one in making.dependencies) if making else ()
    toolbox = toolbox_for(cell, folders, site, watch)
    results: list[Verified] = []
    for one in [target] if target in cell.targets else cell.targets:
        if isinstance(toolbox, Blocked | Failed):
            results.append(toolbox)
            continue
        verifying = Verifying(
            cell=cell,
            claims=claims_of(cell, claimed_versions(uris), target=one),
            built=built,
            folders=folders,
            toolbox=toolbox,
            sessions=sessions,
            effort=effort,
            options=options or RunOptions(),
        )
        results.append(verifying.run(engine, engine.host_devices(), watch))
    verifications: Mapping[str, Verification] = {
        one.target: one for one in results if isinstance(one, Verification)
    }
    facts = CellFacts(cell=cell, lock="not here", build=built, verifications=verifications)
    return tuple(results), report_rows((facts,), target=target)
