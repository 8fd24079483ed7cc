"""render: the build context of every cell, written where `build` and people find it."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.matrix.plan import selected_with_parents
from warpfront.model import Blocked, Failed, RenderedImage, Selection
from warpfront.pipeline.locking import LockTools, lock_cells, split_locks
from warpfront.pipeline.within.builders import builders
from warpfront.pipeline.within.preparing import render_cells
from warpfront.pipeline.workspace import Workspace, site_when_needed
from warpfront.system.progress import Watch


def render(
    workspace: Workspace, selection: Selection, watch: Watch, *, locked: bool = False
) -> Mapping[str, RenderedImage | Blocked | Failed]:
    """The build contexts of the selected cells and their parents; writes build/<cell>/context/."""
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
