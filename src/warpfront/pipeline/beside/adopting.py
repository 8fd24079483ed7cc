"""adopt an image: what somebody else built of a cell of this matrix, pulled by its digest, in the
place of what `build` would leave here, so that it is verified as our own would be.
"""

from __future__ import annotations

import time

from warpfront.errors import InputError
from warpfront.images.engine import Engine, connect
from warpfront.images.labels import BASE_SOURCE, CELL, CONTENT_HASH
from warpfront.model import BaseSource, BuiltImage, Cell, ResolvedBase
from warpfront.pipeline.workspace import Workspace
from warpfront.release.registry.references import Reference, read_reference
from warpfront.system.process import environment
from warpfront.system.progress import Watch
from warpfront.system.store import Store


def adopt(workspace: Workspace, reference: str, watch: Watch) -> Cell:
    """The cell that the image says it is of. Raises `InputError` for one of no cell here."""
    cells, store = workspace.matrix.cells, workspace.folders.store
    named = read_reference(reference)
    if not named.digest:
        raise InputError(
            f"{reference} names no digest: what is verified has to be what is meant",
            hint=f"`invoke why {reference}` says which digest it is on now",
        )
    return adopt_image(named, cells, store, connect(environment()), watch)


def adopt_image(
    named: Reference, cells: tuple[Cell, ...], store: Store, engine: Engine, watch: Watch
) -> Cell:
    """Pull, believe the labels for what they claim, and leave the image as built: the checks find
    out what is true of it.
    """
    began = time.monotonic()
    pulled = f"{named.name}@{named.digest}"

    def told(done: int, total: int) -> None:
        watch.advance(f"pull {pulled}", done, total)

    image = engine.pull(pulled, told)
    claimed = image.labels.get(CELL, "")
    cell = next((one for one in cells if one.id == claimed), None)
    if cell is None or not image.labels.get(CONTENT_HASH):
        raise InputError(
            f"{pulled} says it is of the cell {claimed!r}, which this matrix has not",
            hint="verify it in the project that it was built from: its label "
            f"org.opencontainers.image.source is {image.labels.get(_SOURCE, 'missing')}",
        )
    engine.tag(image.id, cell.local_reference)
    built = BuiltImage(
        cell_id=cell.id,
        reference=cell.local_reference,
        image_id=image.id,
        content_hash=image.labels[CONTENT_HASH],
        size_bytes=image.size_bytes,
        base=_base(cell, image.labels.get(BASE_SOURCE, "")),
        reused=True,
        seconds=round(time.monotonic() - began, 2),
        log=None,
    )
    store.save(cell.id, "build", built)
    return cell


_SOURCE = "org.opencontainers.image.source"


def _base(cell: Cell, source: str) -> ResolvedBase:
    """The base as its labels claim it; whoever demands a pulled one reads the label, too."""
    claimed = BaseSource.REGISTRY if source == BaseSource.REGISTRY else BaseSource.BOOTSTRAP
    return ResolvedBase(
        name=cell.base.name,
        source=claimed,
        reference=cell.base.pinned,
        identity=cell.base.digest,
    )
