"""build-wheels: the wheels that no index has, built into the wheelhouse and into the locks."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.images.baking import Builders
from warpfront.images.cell_locks import Locked, LockTools, complete_cells
from warpfront.matrix.cell import Selection
from warpfront.matrix.selection import selected_with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.system.progress import Watch
from warpfront.system.store import exclusive
from warpfront.wheels.sources import site_when_needed


def build_wheels(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    locks: Mapping[str, Locked] | None = None,
) -> Mapping[str, Locked]:
    """Return complete locks of the selected cells and their parents; write images/locks/.

    A wheel is built in an image of the cell's parent, which is built first if need be. `locks` are
    the results of `lock`, read from images/locks/ if none are given.
    """
    matrix, folders, material = workspace.matrix, workspace.folders, workspace.material
    cells, site = selected_with_parents(matrix.cells, selection), site_when_needed()
    build_in = Builders(matrix=matrix, material=material, folders=folders, site=site, watch=watch)
    tools = LockTools(folders=folders, site=site, builder_of=build_in)
    with exclusive(folders.store.folder, watch.say):
        return complete_cells(cells, locks, tools, watch)
