"""build: images in the engine, reusing every one that already has the content."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.images.baking import Built, build_cells
from warpfront.images.cell_locks import Locked, split_locks
from warpfront.images.engine.protocol import connect
from warpfront.images.preparing import CellInputs, Tools
from warpfront.matrix.cell import Selection
from warpfront.matrix.selection import selected_with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.system.progress import Watch
from warpfront.system.store import exclusive


def build(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    locks: Mapping[str, Locked],
    layers: bool = False,
) -> Mapping[str, Built]:
    """Images for the selected cells and their parents, built or reused. `layers`: put
    together of layers that each wheel has once for all images, where the engine takes them.

    `locks` are the results of the steps before.
    """
    matrix, folders, material = workspace.matrix, workspace.folders, workspace.material
    chain = selected_with_parents(matrix.cells, selection)
    complete, bad = split_locks(locks)
    with exclusive(folders.store.folder, watch.say):
        for cell_id, result in bad.items():
            folders.store.save(cell_id, "build", result)
        cells = tuple(cell for cell in chain if cell.id in complete)
        if not cells:
            return bad
        inputs = CellInputs(cells=cells, locks=complete, matrix=matrix, material=material)
        tools = Tools(engine=connect(), folders=folders)
        built = build_cells(inputs, tools, watch, layers=layers)
    return {**bad, **built}
