"""Images in place of a local build. adopt: an image of a cell of this matrix by its
digest, from another builder; it is then verified like a local image. One of no cell is checked for
its own claims; its results are below build/external/, apart from any cell's.

Candidates are built images on their way to the machines that verify and publish them: by digest, in
the registry, under a name that is not announced; or as files, for runs that send nothing to a
registry. What is verified is the image that was built, or nothing is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tarfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from warpfront.ci.flow import HANDOVER, IMAGES
from warpfront.errors import EngineError, InputError, RegistryError, RegistryFault
from warpfront.images.baking import Built
from warpfront.images.built import CREATED, REVISION, BuiltImage, ResolvedBase
from warpfront.images.engine.protocol import Engine, StoredImage, connect
from warpfront.images.labels import BASE_SOURCE, CELL, CONTENT_HASH, LOCK
from warpfront.images.preparing import Tools, targets_of
from warpfront.matrix.cell import BaseSource, Cell, Selection
from warpfront.matrix.reading import Matrix
from warpfront.pipeline.verifying import (
    CheckPlan,
    VerifiableImage,
    Verified,
    check_plan,
    toolbox_for,
    verify_images,
)
from warpfront.pipeline.workspace import Workspace
from warpfront.release.ledger import CANDIDATE_PREFIX
from warpfront.release.publication import held_image
from warpfront.release.publish_context import connected, run_name
from warpfront.release.registry.architectures import part_for
from warpfront.release.registry.contract import Registry, attached_payload
from warpfront.release.statements.predicates import BuildRecord, read_provenance_statement
from warpfront.release.statements.statement import StatementError
from warpfront.release.tags import expected_words, names_of
from warpfront.report.rows import CellFacts, ReportRow, report_rows
from warpfront.step_results import Blocked, Failed, failed_by
from warpfront.system.http_answers import wrong
from warpfront.system.progress import Watch
from warpfront.system.provenance import now
from warpfront.system.references import Reference, read_reference
from warpfront.system.store import Store, storing
from warpfront.verify.containers import not_verified
from warpfront.verify.image_claims import claimed_cell, claimed_versions, claims_of
from warpfront.verify.results import Verification
from warpfront.verify.run_options import RunOptions
from warpfront.wheels.lock.reading import fresh_locks
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.store.wheelhouse import sha256_of
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


NAME = "build-candidate"
"""Its file in build/<cell>/, which goes where the build's own goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A built image: its `reference` by digest in a registry, or the `job` whose archive has it and
    the archive's `sha256`. `identities` are the ids by which engines know exactly this image: one
    names its config, another its manifest.
    """

    cell_id: str
    identities: tuple[str, ...] = ()
    reference: str = ""
    job: str = ""
    sha256: str = ""


def kept_candidate(cell_id: str, store: Store) -> Candidate | None:
    candidate: Candidate | None = store.load(cell_id, NAME, (Candidate,))
    return candidate


def send_candidates(
    results: Sequence[object], workspace: Workspace, repository: str, watch: Watch
) -> Sequence[object]:
    """Each image that was built, to `repository`; or, where that content is published already, the
    published image in its place. One that does not get there is a failure of its cell, by the
    registry's own words.
    """
    tools = Tools(engine=connect(), folders=workspace.folders)
    with connected(repository.partition("/")[0]) as registry:
        return [
            published_already(result, workspace.matrix, tools, registry, watch)
            or _sent(result, repository, tools, registry, watch)
            if isinstance(result, BuiltImage)
            else result
            for result in results
        ]


def published_already(
    built: BuiltImage, matrix: Matrix, tools: Tools, registry: Registry, watch: Watch
) -> BuiltImage | None:
    """Return the published image with the same content as the candidate, if a channel's tag is
    on one. A second build differs in its commit and date, and would get another digest. Every
    account that may push can put this content's label on any image: its layers and settings have to
    match the build.
    """
    cell = next((cell for cell in matrix.cells if cell.id == built.cell_id), None)
    store, engine = tools.folders.store, tools.engine
    for channel in matrix.channels if cell else ():
        assert cell is not None
        names = names_of(cell, channel, expected_words(cell))
        host, _, path = names.repository.partition("/")
        if host != registry.host:
            continue
        for tag in dict.fromkeys((*names.aliases, *names.tags)):
            try:
                published = held_image(registry, path, tag)
            except RegistryError as error:
                if error.fault is not RegistryFault.WRONG:
                    raise
                continue  # an index of several images
            if published is None or published.labels.get(CONTENT_HASH) != built.content_hash:
                continue
            reference = f"{names.repository}@{published.digest}"
            watch.say(f"{cell.id}: this content is published: {reference}")
            image = pull(read_reference(reference), engine, watch)
            local_image = engine.image(built.image_id)
            labels = local_image.labels if local_image else {}
            varying = {name for name, _ in image.labels.items() ^ labels.items()}
            substance = local_image.substance if local_image else ""
            # A second build differs in its commit and date alone.
            if not substance or image.substance != substance or not varying <= {CREATED, REVISION}:
                watch.say(f"{cell.id}: not so: its layers, settings or labels are others")
                continue
            identities = tuple(sorted(published.identities))
            candidate = Candidate(cell_id=cell.id, reference=reference, identities=identities)
            store.save(cell.id, NAME, candidate)
            return take_in(cell, image, store, engine, seconds=built.seconds)
    return None


def _sent(
    built: BuiltImage, repository: str, tools: Tools, registry: Registry, watch: Watch
) -> BuiltImage | Failed:
    try:
        candidate = send(built, repository, tools.engine, registry, watch)
        tools.folders.store.save(built.cell_id, NAME, candidate)
    except RegistryError as error:
        return failed_by(error, built.cell_id, "build")
    return built


def send(
    built: BuiltImage, repository: str, engine: Engine, registry: Registry, watch: Watch
) -> Candidate:
    """Push the image, under a tag of this moment, by which it is removed when it is old, and of
    its content; and the digest that the registry has it by now.
    """
    image = built.reference.rpartition("/")[2].partition(":")[0]
    moment = run_name(now()).partition("-")[0]
    name, tag = f"{repository}/{image}", f"{CANDIDATE_PREFIX}{moment}-{built.content_hash[:24]}"
    engine.tag(built.image_id, f"{name}:{tag}")
    try:
        engine.push(f"{name}:{tag}", partial(watch.advance, f"push {tag}"))
    finally:
        engine.remove(f"{name}:{tag}")
    registry_image = held_image(registry, name.partition("/")[2], tag)
    if registry_image is None or built.image_id not in registry_image.identities:
        reason = f"{name}:{tag} was pushed, and is not what is there"
        hint = "another run pushes there; build again"
        raise wrong(registry.host, "candidate", reason, hint)
    return Candidate(
        cell_id=built.cell_id,
        reference=f"{name}@{registry_image.digest}",
        identities=tuple(sorted(registry_image.identities)),
    )


_ARCHIVE = "images.tar.gz"


def leave_images(
    cells: Iterable[str], results: Iterable[object], job: str, folders: Folders
) -> None:
    """Write the images of `cells` that were built to images/, which the job `job` hands over: other
    jobs verify them, and no registry gets them.
    """
    ids = set(cells)
    built = [image for image in results if isinstance(image, BuiltImage) and image.cell_id in ids]
    if not built:
        return
    archive = folders.root / IMAGES / f"{IMAGES}-{job}" / _ARCHIVE
    with storing(archive):
        archive.parent.mkdir(parents=True, exist_ok=True)
    connect().save([image.reference for image in built], archive)
    digest, facts = sha256_of(archive), identities(archive)
    for image in built:
        names = tuple(sorted({image.image_id, *facts.get(image.reference, ())}))
        value = Candidate(cell_id=image.cell_id, job=job, sha256=digest, identities=names)
        folders.store.save(image.cell_id, NAME, value)


def take_image(cell: Cell, folders: Folders, watch: Watch) -> Built | None:
    """Return the built image in this machine's engine: the present one, or else the candidate, from
    its registry or from an artifact. Its ids and labels have to be those of the build. Return None
    without a build artifact: `verify` then reports that itself.
    """
    store = folders.store
    handed: Built | None = store.load(cell.id, "build", (BuiltImage, Blocked, Failed))
    if not isinstance(handed, BuiltImage):
        return handed
    engine = connect()
    candidate = kept_candidate(cell.id, store) or Candidate(cell_id=cell.id)
    names = {handed.image_id, *candidate.identities}
    image, reason = _present(names, engine), ""
    if image is None and candidate.reference:
        image = pull(read_reference(candidate.reference), engine, watch)
    elif image is None and candidate.job:
        reason = _unpack(candidate, folders.root, engine)
        image = _present(names, engine)
    if image is None:
        reason = reason or f"the image {handed.image_id} that was built is not here"
    elif image.id not in names:
        reason = f"{image.id} is here, and {handed.image_id} was built"
    elif (cell.id, handed.content_hash) != tuple(map(image.labels.get, (CELL, CONTENT_HASH))):
        reason = f"{image.id} is not of {cell.id}, content {handed.content_hash[:12]}"
    if image is None or reason:
        return not_verified(cell, reason, "run the job that builds it again, then this one")
    built = take_in(cell, image, store, engine, seconds=handed.seconds)
    log, builder, invocation = handed.log, handed.builder, handed.invocation
    return dataclasses.replace(built, log=log, builder=builder, invocation=invocation)


def _unpack(candidate: Candidate, root: Path, engine: Engine) -> str:
    """Load the archive of a job into the engine. Return why that failed, "" if it is done."""
    # With or without a folder of the artifact's name around it.
    place = f"{IMAGES}-{candidate.job}/{_ARCHIVE}"
    folders = (root / HANDOVER, root / IMAGES)
    paths = (path for f in folders for path in (*f.glob(place), *f.glob(f"*/{place}")))
    archive = next(paths, None)
    if archive is None:
        return f"no artifact {IMAGES}-{candidate.job}, which has its image"
    if sha256_of(archive) != candidate.sha256:
        return f"{archive} is not the file that {candidate.job} left"
    engine.load(archive)
    return ""


def _present(names: Iterable[str], engine: Engine) -> StoredImage | None:
    images = (engine.image(name) for name in names)
    return next((image for image in images if image is not None), None)


def identities(archive: Path) -> dict[str, set[str]]:
    """Return the archive's own ids of each image, by reference: docker's manifest.json names the
    configuration by its digest, and index.json the manifest.
    """
    documents: dict[str, object] = {}
    with tarfile.open(archive, "r|gz") as tar:
        for member in tar:
            if member.name in {"manifest.json", "index.json"}:
                stream = tar.extractfile(member)
                documents[member.name] = json.load(stream) if stream else None
    listed, index = documents.get("manifest.json"), documents.get("index.json")
    if not isinstance(listed, list):
        raise EngineError(f"{archive}: the engine saved no image")
    ids: dict[str, set[str]] = {}
    for entry in listed:
        config = f"sha256:{Path(entry['Config']).name.removesuffix('.json')}"
        for reference in entry.get("RepoTags") or ():
            ids.setdefault(reference, set()).add(config)
    for entry in index.get("manifests", ()) if isinstance(index, dict) else ():
        reference = entry.get("annotations", {}).get("io.containerd.image.name", "")
        if reference in ids:
            ids[reference].add(entry["digest"])
    return ids
