"""lock: pin every cell's wheels. Fresh locks stay, missing and stale ones are made."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.images.cell_locks import Locked, LockTools, lock_cells
from warpfront.matrix.cell import Selection
from warpfront.matrix.selection import selected_with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.system.progress import Watch


def lock(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    locked: bool = False,
    refresh: bool = False,
) -> Mapping[str, Locked]:
    """Return fresh locks for the selected cells and their parents; write images/locks/.

    `locked` refuses to make or change a lock (for CI); `refresh` makes fresh ones anew as well.
    A wheel that has to be built is named in its lock, for `build_wheels` to build.
    """
    matrix, folders = workspace.matrix, workspace.folders
    cells = selected_with_parents(matrix.cells, selection)
    tools = LockTools(folders=folders)
    return lock_cells(cells, tools, watch, locked=locked, refresh=refresh)
