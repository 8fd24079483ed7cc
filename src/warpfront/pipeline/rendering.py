"""render: the build context of every cell, written where `build` and people find it."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.images.builders import builders
from warpfront.images.built import RenderedImage
from warpfront.images.preparing import render_cells
from warpfront.matrix.cell import Selection
from warpfront.matrix.selection import selected_with_parents
from warpfront.pipeline.locking import LockTools, lock_cells, split_locks
from warpfront.pipeline.workspace import Workspace
from warpfront.step_results import Blocked, Failed
from warpfront.system.progress import Watch
from warpfront.wheels.site import site_when_needed


def render(
    workspace: Workspace, selection: Selection, watch: Watch, *, locked: bool = False
) -> Mapping[str, RenderedImage | Blocked | Failed]:
    """Render the build contexts of the selected cells and their
    parents into build/<cell>/context/.
    """
    matrix, requirements = workspace.matrix, workspace.requirements
    folders, material = workspace.folders, workspace.material
    site, cells = site_when_needed(), selected_with_parents(matrix.cells, selection)
    build_in = builders(matrix, material, folders, site=site, watch=watch)
    lock_tools = LockTools(folders=folders, builder_of=build_in, site=site)
    results = lock_cells(cells, requirements, lock_tools, watch, locked=locked)
    locks, bad = split_locks(results)
    rendered = render_cells([cell for cell in cells if cell.id in locks], locks, material)
    for cell_id, image in rendered.items():
        if isinstance(image, RenderedImage):
            folders.store.write_context(cell_id, image.context)
        folders.store.save(cell_id, "render", image)
    return {**bad, **rendered}
