"""render: the build context of every cell, written where `build` and people find it."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.images.built import RenderedImage
from warpfront.images.cell_locks import Locked, split_locks
from warpfront.images.preparing import render_cells
from warpfront.matrix.cell import Selection
from warpfront.matrix.selection import selected_with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.step_results import Blocked, Failed
from warpfront.system.progress import Watch


def render(
    workspace: Workspace,
    selection: Selection,
    _watch: Watch,
    *,
    locks: Mapping[str, Locked],
) -> Mapping[str, RenderedImage | Blocked | Failed]:
    """Render the build contexts of the selected cells and their parents into build/<cell>/context/.

    `locks` are the results of the steps before.
    """
    matrix, folders, material = workspace.matrix, workspace.folders, workspace.material
    cells = selected_with_parents(matrix.cells, selection)
    complete, bad = split_locks(locks)
    rendered = render_cells([cell for cell in cells if cell.id in complete], complete, material)
    for cell_id, image in rendered.items():
        if isinstance(image, RenderedImage):
            folders.store.write_context(cell_id, image.context)
        folders.store.save(cell_id, "render", image)
    return {**bad, **rendered}
