"""Images on their way from the job that built them to those that verify them, as files: for runs
that send nothing to a registry. What is verified is the image that was built, or nothing is.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from warpfront.ci.flow import IMAGES
from warpfront.commands.adopting import take_in
from warpfront.errors import EngineError, NotVerifiedError
from warpfront.images.built import BuiltImage
from warpfront.images.engine import Engine, StoredImage
from warpfront.images.labels import CELL, CONTENT_HASH
from warpfront.matrix.cell import Cell
from warpfront.step_results import Blocked, Failed
from warpfront.system.store import Store, storing

NAME = "build-image-file"
"""Its value in build/<cell>/, which goes where the build's own goes."""
_ARCHIVE = "images.tar.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """An image in an archive of several. `identities` are what engines call it: the digest of its
    configuration, and that of its manifest where the engine has a content store.
    """

    cell_id: str
    job: str
    sha256: str
    identities: tuple[str, ...]


def kept_image_file(cell_id: str, store: Store) -> ImageFile | None:
    image_file: ImageFile | None = store.load(cell_id, NAME, (ImageFile,))
    return image_file


def leave_images(
    cells: Iterable[str],
    results: Iterable[object],
    job: str,
    folder: Path,
    store: Store,
    *,
    engine: Engine,
) -> None:
    """Write the images of `cells` that were built to `folder`, which the job `job` hands over."""
    ids = set(cells)
    built = [image for image in results if isinstance(image, BuiltImage) and image.cell_id in ids]
    if not built:
        return
    archive = folder / f"{IMAGES}-{job}" / _ARCHIVE
    with storing(archive):
        archive.parent.mkdir(parents=True, exist_ok=True)
    engine.save([image.reference for image in built], archive)
    digest, facts = _sha256(archive), identities(archive)
    for image in built:
        names = {image.image_id, *facts.get(image.reference, ())}
        value = ImageFile(
            cell_id=image.cell_id, job=job, sha256=digest, identities=tuple(sorted(names))
        )
        store.save(image.cell_id, NAME, value)


def take_image(
    cell: Cell, store: Store, folders: Iterable[Path], engine: Engine
) -> BuiltImage | Blocked | Failed | None:
    """Return the built image in this machine's engine: the present one, or the one of an
    artifact. Return None without a build artifact: `verify` then reports that itself.
    """
    handed: BuiltImage | Blocked | Failed | None = store.load(
        cell.id, "build", (BuiltImage, Blocked, Failed)
    )
    if not isinstance(handed, BuiltImage):
        return handed
    file: ImageFile | None = store.load(cell.id, NAME, (ImageFile,))
    names = file.identities if file else (handed.image_id,)
    images = _held(names, engine)
    if images is None and file is not None:
        # The archive, with or without a folder of the artifact's name around it.
        place = f"{IMAGES}-{file.job}/{_ARCHIVE}"
        places = (place, f"*/{place}")
        archive = next(
            (path for folder in folders for place in places for path in folder.glob(place)), None
        )
        if archive is None:
            return _refused(cell, f"no artifact {IMAGES}-{file.job}, which has its image")
        if _sha256(archive) != file.sha256:
            return _refused(cell, f"{archive} is not the file that {file.job} left")
        engine.load(archive)
        images = _held(names, engine)
    if images is None:
        return _refused(cell, f"the image {handed.image_id} that was built is not here")
    if (images.labels.get(CELL), images.labels.get(CONTENT_HASH)) != (cell.id, handed.content_hash):
        return _refused(cell, f"{images.id} is not of content {handed.content_hash[:12]}")
    return take_in(cell, images, store, engine, seconds=handed.seconds)


def _refused(cell: Cell, reason: str) -> Failed:
    return Failed(
        cell_id=cell.id,
        step="verify",
        reason=reason,
        hint="run the job that builds it again, then this one",
        exit_code=NotVerifiedError.exit_code,
    )


def _held(names: Iterable[str], engine: Engine) -> StoredImage | None:
    images = (engine.image(name) for name in names)
    return next((image for image in images if image is not None), None)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


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
    listed = documents.get("manifest.json")
    if not isinstance(listed, list):
        raise EngineError(f"{archive}: the engine saved no image")
    ids: dict[str, set[str]] = {}
    for entry in listed:
        config = f"sha256:{Path(entry['Config']).name.removesuffix('.json')}"
        for reference in entry.get("RepoTags") or ():
            ids.setdefault(reference, set()).add(config)
    index = documents.get("index.json")
    for entry in index.get("manifests", ()) if isinstance(index, dict) else ():
        reference = entry.get("annotations", {}).get("io.containerd.image.name", "")
        if reference in ids:
            ids[reference].add(entry["digest"])
    return ids
