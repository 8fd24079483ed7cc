"""build-wheels: the wheels that no index has, built into the wheelhouse and into the locks."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.images.baking import Builders
from warpfront.images.cell_locks import CellLocking, Locked, failed_lock
from warpfront.matrix.cell import Selection
from warpfront.matrix.selection import selected_with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.step_results import Blocked, Failed, attempt
from warpfront.system.progress import Watch
from warpfront.system.store import exclusive
from warpfront.wheels.lock.pylock import waits_for
from warpfront.wheels.lock.reading import read_state
from warpfront.wheels.lock.values import LockInputs, LockState, WheelLock
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.sources import site_when_needed


def build_wheels(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    locks: Mapping[str, Locked] | None = None,
) -> Mapping[str, Locked]:
    """Return complete locks of the selected cells and their parents; write images/locks/.

    A wheel is built in an image of the cell's parent, which is built first if need be; the wheels
    of complete locks that no index has, where they are missing. `locks` are the results of `lock`,
    read from images/locks/ if none are given.
    """
    matrix, folders, material = workspace.matrix, workspace.folders, workspace.material
    cells, site = selected_with_parents(matrix.cells, selection), site_when_needed()
    builders = Builders(matrix=matrix, material=material, folders=folders, site=site, watch=watch)
    completing = CellLocking(
        step="build-wheels", folders=folders, watch=watch, site=site, builders=builders
    )
    resolved_now = set()
    with exclusive(folders.store.folder, watch.say):
        for cell, inputs in completing.lockable(cells):
            lock = _locked_before(inputs, folders) if locks is None else locks[cell.id]
            if cell.parent not in resolved_now and isinstance(lock, Blocked | Failed):
                completing.results[cell.id] = lock
            elif isinstance(lock, WheelLock) and not lock.unbuilt:
                completing.results[cell.id] = completing.restored(cell, inputs, lock)
            else:
                resolved_now.add(cell.id)
                completing.results[cell.id] = completing.resolved(cell, inputs)
    return completing.results


def _locked_before(inputs: LockInputs, folders: Folders) -> Locked:
    """Return the lock of an earlier run of `lock`."""
    state = attempt(inputs.cell_id, "lock", read_state, inputs, folders)
    if not isinstance(state, LockState):
        return state
    if state.lock and state.reason in {"", waits_for(state.lock)}:
        return state.lock
    return failed_lock(inputs.cell_id, state.reason, f"warpfront lock --only {inputs.cell_id}")
