"""States of locks, read without resolving or writing. Path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warpfront.errors import LockError, StoreError
from warpfront.matrix.cell import Cell
from warpfront.matrix.selection import with_parents
from warpfront.step_results import Blocked, Failed, attempt
from warpfront.system.foreign import inside_root
from warpfront.system.store import read_text
from warpfront.wheels.lock.pylock import lock_inputs, read_lock, staleness
from warpfront.wheels.lock.values import NEVER_BUILT, LockInputs, LockState, WheelLock
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.store.archives import folder_sha256
from warpfront.wheels.store.patching import why_unfit


def read_locks(cells: Iterable[Cell], folders: Folders) -> Mapping[str, LockState]:
    """Return the state of each cell's lock (parents first)."""
    states: dict[str, LockState] = {}
    for cell in cells:
        parent = states[cell.parent] if cell.parent else None
        is_fresh = parent is None or not (parent.lock is None or parent.reason)
        lock = parent.lock if parent and is_fresh else None
        inputs = attempt(cell.id, "lock", inputs_of, cell, lock, folders)
        if isinstance(inputs, Blocked | Failed):
            state = LockState(lock=None, reason=inputs.reason, fault=inputs)
        elif not is_fresh:
            state = LockState(lock=None, reason=f"its parent {cell.parent} has no fresh lock")
        else:
            read = attempt(cell.id, "lock", read_state, inputs, folders)
            if isinstance(read, Blocked | Failed):
                state = LockState(lock=None, reason=f"unreadable: {read.reason}")
            else:
                state = read
        states[cell.id] = state
    return states


def read_state(inputs: LockInputs, folders: Folders) -> LockState:
    """Return the committed lock of a cell, and whether it still fits the matrix."""
    path = folders.lock_path(inputs.cell_id)
    if not inside_root(path, folders.root):
        raise LockError(
            f"{path.relative_to(folders.root)}: a link that leads out of the project",
            hint=f"remove it, then: warpfront lock --only {inputs.cell_id}",
        )
    try:
        text = read_text(path, missing_ok=True)
    except StoreError as error:  # of this cell alone
        raise LockError(error.message, hint=error.hint) from error
    if text is None:
        return LockState(lock=None, reason=NEVER_BUILT)
    lock = read_lock(text, path=str(path.relative_to(folders.root)))
    return LockState(lock=lock, reason=staleness(lock, inputs))


def inputs_of(cell: Cell, parent: WheelLock | None, folders: Folders) -> LockInputs:
    """Return what the cell's lock depends on, its source folders read. Raise `LockError`."""
    requirement_list = cell.listed
    if requirement_list.problem:
        raise LockError(requirement_list.problem, hint=requirement_list.hint)
    sources = {
        source.location: folder_sha256(folders.root / source.location)
        for source in requirement_list.sources
        if source.kind == "folder"
    }
    unfit = tuple(filter(None, (why_unfit(folders.root, patch) for patch in cell.patches)))
    return lock_inputs(cell, requirement_list, parent, folders=sources, unfit=unfit)


def fresh_locks(
    cells: Iterable[Cell], every: Iterable[Cell], folders: Folders
) -> dict[str, WheelLock]:
    """Return the fresh locks of some of all cells, and of the cells that they extend."""
    return usable_locks(read_locks(with_parents(cells, every), folders))


def usable_locks(states: Mapping[str, LockState]) -> dict[str, WheelLock]:
    """Return the fresh locks by cell id."""
    return {
        cell_id: state.lock
        for cell_id, state in states.items()
        if state.lock is not None and not state.reason
    }
