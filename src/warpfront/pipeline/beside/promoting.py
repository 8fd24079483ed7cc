"""promote: images of one channel into another, by their digests: nothing is built or verified anew,
and what the other channel demands has to be met by what is attached to them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from warpfront.matrix.selection import select
from warpfront.model import Cell, Selection
from warpfront.pipeline.within.carried import CarriedImages
from warpfront.pipeline.within.evidence import demanded_channel
from warpfront.pipeline.within.shop import Published, open_shop, path_of, publish_cells
from warpfront.pipeline.workspace import Workspace
from warpfront.release.registry.copying import Repository
from warpfront.release.registry.layout import LayoutRegistry
from warpfront.system.progress import Watch


def promote(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    source: str,
    channel: str,
    to: str = "",
    key: str = "",
    trust: str = "",
    dry_run: bool = False,
) -> Mapping[str, Published]:
    """The selected cells' images of the channel `source` to the tags of `channel`. Where `source`
    is a folder, from the layouts in it: that is how a disk is unloaded. `trust` is the public key
    of who proved them, if that is not the one that signs here.
    """
    matrix, store = workspace.matrix, workspace.folders.store
    project, chosen = matrix.project, demanded_channel(matrix.channels, channel, to)
    from_disk = Path(source).is_dir()
    known = chosen if from_disk else demanded_channel(matrix.channels, source, to)
    cells = {cell.id: cell for cell in select(matrix.cells, selection)}
    with open_shop(
        chosen, project, store, watch, engine=None, key=key, dry_run=dry_run, trust=trust
    ) as shop:

        def place_of(cell: Cell) -> Repository:
            if from_disk:
                layout = LayoutRegistry(folder=Path(source, cell.image))
                return Repository(registry=layout, repository=cell.image)
            return Repository(
                registry=shop.registry, repository=path_of(known, project.repository, cell)
            )

        carried = CarriedImages(place_of=place_of, channel=known)
        carrying = dataclasses.replace(
            shop,
            documents=carried.documents,
            bring=carried.bring(shop.registry, cells),
            action="promote",
        )
        return publish_cells(
            cells.values(), matrix.cells, chosen, carrying, find=carried.find, dry_run=dry_run
        )
