"""candidates: built images on their way to the machines that verify and publish them: by
digest, in the registry, under a name that is not announced; or as files, for runs that send nothing
to a registry. What is verified is the image that was built, or nothing is.
"""

from __future__ import annotations

import dataclasses
import json
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from warpfront.ci.flow import HANDOVER, IMAGES
from warpfront.commands.adopting import pull, take_in
from warpfront.errors import EngineError, RegistryError, RegistryFault
from warpfront.images.baking import Built
from warpfront.images.built import CREATED, REVISION, BuiltImage
from warpfront.images.engine.protocol import Engine, StoredImage, connect
from warpfront.images.labels import CELL, CONTENT_HASH
from warpfront.images.preparing import Tools
from warpfront.matrix.cell import Cell
from warpfront.matrix.reading import Matrix
from warpfront.pipeline.workspace import Workspace
from warpfront.release.ledger import CANDIDATE_PREFIX
from warpfront.release.publication import held_image
from warpfront.release.publish_context import connected, run_name
from warpfront.release.registry.contract import Registry
from warpfront.release.tags import expected_words, names_of
from warpfront.step_results import Blocked, Failed, failed_by
from warpfront.system.http_answers import wrong
from warpfront.system.progress import Watch
from warpfront.system.provenance import now
from warpfront.system.references import read_reference
from warpfront.system.store import Store, storing
from warpfront.verify.containers import not_verified
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.store.wheelhouse import sha256_of

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
