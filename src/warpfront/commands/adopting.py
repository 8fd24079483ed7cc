"""adopt an image: pull an image of a cell of this matrix by its digest, from another builder,
in place of a local `build`. It is then verified like a local image. One of no cell is checked for
its own claims; its results are below build/external/, apart from any cell's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from functools import partial
from pathlib import Path

from warpfront.errors import InputError, RegistryError
from warpfront.images.built import BuiltImage, ResolvedBase
from warpfront.images.engine.protocol import Engine, StoredImage, connect
from warpfront.images.labels import BASE_SOURCE, CELL, CONTENT_HASH, LOCK
from warpfront.images.preparing import Tools, targets_of
from warpfront.matrix.cell import BaseSource, Cell, Selection
from warpfront.pipeline.verifying import (
    CheckPlan,
    VerifiableImage,
    Verified,
    check_plan,
    toolbox_for,
    verify_images,
)
from warpfront.pipeline.workspace import Workspace
from warpfront.release.publish_context import connected
from warpfront.release.registry.architectures import part_for
from warpfront.release.registry.contract import Registry, attached_payload
from warpfront.release.statements.predicates import BuildRecord, read_provenance_statement
from warpfront.release.statements.statement import StatementError
from warpfront.report.rows import CellFacts, ReportRow, report_rows
from warpfront.step_results import Blocked, Failed
from warpfront.system.progress import Watch
from warpfront.system.references import Reference, read_reference
from warpfront.system.store import Store
from warpfront.verify.image_claims import claimed_cell, claimed_versions, claims_of
from warpfront.verify.results import Verification
from warpfront.verify.run_options import RunOptions
from warpfront.wheels.lock.reading import fresh_locks
from warpfront.wheels.lock.values import WheelLock
from warpfront_checks.check_options import CheckOptions


def adopt(workspace: Workspace, reference: str, watch: Watch) -> Cell | None:
    """Pull an image and return the cell that its labels name. Return None for a cell that the
    matrix does not have, and for another lock: another project may have a cell of the same name.
    """
    matrix, folders = workspace.matrix, workspace.folders
    engine, started = connect(), time.monotonic()
    named = part_here(reference, engine)
    if named.digest not in reference:
        watch.say(f"{reference} is an index; of {engine.machine} it lists {named.digest}")
    image = pull(named, engine, watch)
    label = image.labels.get(CELL, "") if image.labels.get(CONTENT_HASH) else ""
    cell = next((cell for cell in matrix.cells if cell.id == label), None)
    locks = fresh_locks((cell,), matrix.cells, folders) if cell else {}
    if cell is None or not is_locked_by(locks.get(cell.id), image):
        return None
    take_in(cell, image, folders.store, engine, seconds=time.monotonic() - started)
    return cell


def is_locked_by(lock: WheelLock | None, image: StoredImage) -> bool:
    return lock is not None and image.labels.get(LOCK) == lock.digest


def read_digest(reference: str) -> Reference:
    """Return a reference by digest. Raise `InputError` for any other."""
    named = read_reference(reference)
    if not named.digest:
        message = f"{reference} names no digest: what is verified has to be what is meant"
        hint = f"`warpfront why {reference}` says which digest it is on now"
        raise InputError(message, hint=hint)
    return named


def part_here(reference: str, engine: Engine) -> Reference:
    """Return a digest's image, of an index the engine's. The registry may answer it alone."""
    named = read_digest(reference)
    with contextlib.suppress(RegistryError), connected(named.host) as registry:
        part = part_for(registry, named.repository, named.digest, engine.machine)
        return dataclasses.replace(named, digest=part)
    return named


def pull(named: Reference, engine: Engine, watch: Watch) -> StoredImage:
    """Pull the image of a digest into the engine and return it."""
    pulled = f"{named.name}@{named.digest}"
    return engine.pull(pulled, partial(watch.advance, f"pull {pulled}"))


def take_in(
    cell: Cell, image: StoredImage, store: Store, engine: Engine, *, seconds: float
) -> BuiltImage:
    """Believe the labels for what they claim, and leave the image as built: the checks find out
    what is true of it.
    """
    engine.tag(image.id, cell.local_reference)
    built = as_labelled(cell, image, seconds=seconds)
    store.save(cell.id, "build", built)
    return built


def as_labelled(cell: Cell, image: StoredImage, *, seconds: float) -> BuiltImage:
    """Return the build record of an image, from its labels."""
    # A check that requires a pulled base reads the label, too.
    pulled = image.labels.get(BASE_SOURCE) == BaseSource.REGISTRY
    source = BaseSource.REGISTRY if pulled else BaseSource.BOOTSTRAP
    name, pinned, digest = cell.base.name, cell.base.pinned, cell.base.digest
    base = ResolvedBase(name=name, source=source, reference=pinned, identity=digest)
    return BuiltImage(
        cell_id=cell.id,
        reference=cell.local_reference,
        image_id=image.id,
        content_hash=image.labels[CONTENT_HASH],
        size_bytes=image.size_bytes,
        base=base,
        reused=True,
        seconds=round(seconds, 2),
        log=None,
    )


FOLDER = "external"


def verify_external_image(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    reference: str,
    *,
    effort: CheckOptions,
    selftest: bool,
    options: RunOptions,
) -> tuple[tuple[Verified, ...], tuple[ReportRow, ...]]:
    """Check an external image on each target of its labels, or on the selected one; return results
    and rows of a report. Raise `InputError` for an image without labels of ours.
    """
    folders = workspace.folders
    engine = connect()
    named = part_here(reference, engine)
    with connected(named.host) as registry:
        making = attached_making(registry, named)
    watch.say(f"{reference}: of no cell here; its guard is its own project's to check")
    if making is None:
        watch.say(f"{reference}: no provenance is attached: only its labels say what it should be")
    store = Store(folders.store.folder / FOLDER)
    tools = Tools(engine=engine, folders=dataclasses.replace(folders, store=store))
    plan = check_plan(selection.target, effort, options, selftest=selftest)
    return verify_claimed(named, making, plan, tools, watch)


def attached_making(registry: Registry, named: Reference) -> BuildRecord | None:
    """Return the last valid provenance attached to the image. Anybody may have written it: the
    checks look for its claims inside.
    """
    build_record = None
    for descriptor in registry.referrers(named.repository, named.digest):
        if descriptor.annotations.get("dev.warpfront.statement") == "provenance":
            with contextlib.suppress(StatementError, RegistryError):
                payload = attached_payload(registry, named.repository, descriptor.digest)
                build_record = read_provenance_statement(payload, digest=named.digest)
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
        versions = claimed_versions(uris)
        images = [
            VerifiableImage(
                cell=cell,
                built=built,
                toolbox=toolbox,
                claims=claims_of(cell, versions, target=target),
            )
            for target in targets_of(cell, plan.target)
        ]
        results = verify_images(images, plan, tools, watch)
    verifications = {each.target: each for each in results if isinstance(each, Verification)}
    facts = CellFacts(cell=cell, lock="not here", build=built, verifications=verifications)
    return results, report_rows((facts,), target=plan.target)
