"""publish: each image that a channel's demands are met for, to its tags."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.images.engine import connect
from warpfront.matrix.selection import select
from warpfront.model import Selection
from warpfront.pipeline.within.evidence import demanded_channel, local_evidence
from warpfront.pipeline.within.shop import Published, open_shop, publish_cells
from warpfront.pipeline.workspace import Workspace
from warpfront.system.process import environment
from warpfront.system.watch import Watch


def publish(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    channel: str,
    to: str = "",
    key: str = "",
    dry_run: bool = False,
) -> Mapping[str, Published]:
    """The selected images to the tags of a channel, or with `dry_run` what that would come to. `to`
    is another repository than the matrix's; `key` is what cosign signs with.
    """
    matrix, store = workspace.matrix, workspace.folders.store
    chosen = demanded_channel(matrix.channels, channel, to)
    cells = select(matrix.cells, selection)
    engine, project = connect(environment()), matrix.project.repository
    with open_shop(chosen, project, store, watch, engine=engine, key=key, dry_run=dry_run) as shop:
        return publish_cells(
            cells,
            matrix.cells,
            chosen,
            shop,
            find=lambda cell: local_evidence(cell, store, engine),
            dry_run=dry_run,
        )
