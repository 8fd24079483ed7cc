"""build: images in the engine, reusing every one that already has the content."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.images.baking import Built, build_cells
from warpfront.images.builders import builders
from warpfront.images.engine import connect
from warpfront.images.tools import CellInputs, Tools
from warpfront.matrix.cell import Selection
from warpfront.matrix.selection import selected_with_parents
from warpfront.pipeline.locking import LockTools, lock_cells, split_locks
from warpfront.pipeline.workspace import Workspace
from warpfront.system.process import environment
from warpfront.system.progress import Watch
from warpfront.wheels.site import site_when_needed


def build(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    locked: bool = False,
    layers: bool = False,
) -> Mapping[str, Built]:
    """Images for the selected cells and their parents, built or reused. `layers`: put
    together of layers that each wheel has once for all images, where the engine takes them.
    """
    matrix, requirements = workspace.matrix, workspace.requirements
    folders, material = workspace.folders, workspace.material
    site, chain = site_when_needed(), selected_with_parents(matrix.cells, selection)
    build_in = builders(matrix, material, folders, site=site, watch=watch)
    lock_tools = LockTools(folders=folders, builder_of=build_in, site=site)
    with folders.store.exclusive(watch.say):
        results = lock_cells(chain, requirements, lock_tools, watch, locked=locked)
        locks, bad = split_locks(results)
        for cell_id, result in bad.items():
            folders.store.save(cell_id, "build", result)
        cells = [cell for cell in chain if cell.id in locks]
        if not cells:
            return bad
        engine = connect(environment())
        inputs = CellInputs(cells=tuple(cells), locks=locks, matrix=matrix, material=material)
        tools = Tools(engine=engine, folders=folders, site=site)
        built = build_cells(inputs, tools, watch, layers=layers)
    return {**bad, **built}
