"""lock: every cell's wheels, pinned. Fresh locks are kept, missing and stale ones are made anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from warpfront.errors import LockError
from warpfront.lock import dump_lock, lock_inputs, read_lock, staleness
from warpfront.model import Blocked, Cell, Failed, LockInputs, WheelLock
from warpfront.pipeline.resolving import resolve
from warpfront.pipeline.workspace import AskSite, Watch, Workspace, attempt
from warpfront.plan import LockState
from warpfront.process import run
from warpfront.store import read_text, write_text

Locked = WheelLock | Blocked | Failed
Resolve = Callable[[LockInputs], WheelLock]


def lock_cells(
    workspace: Workspace,
    cells: Iterable[Cell],
    *,
    site: AskSite,
    watch: Watch,
    locked: bool = False,
    refresh: bool = False,
) -> Mapping[str, Locked]:
    """A lock, or why there is none, for each of `cells` (parents first).

    `locked` refuses to make or change a lock (for CI); `refresh` makes fresh ones anew as well.
    """
    known: dict[str, WheelLock] = {}

    def resolve_once(inputs: LockInputs) -> WheelLock:
        if inputs.digest not in known:
            watch.step(inputs.cell_id, "resolving")
            known[inputs.digest] = resolve(
                inputs, site(), run=run, on_line=watch.say, wheelhouse=workspace.wheelhouse
            )
            watch.step(inputs.cell_id, "")
        return dataclasses.replace(known[inputs.digest], cell_id=inputs.cell_id)

    results: dict[str, Locked] = {}
    for cell in cells:
        parent = results[cell.parent] if cell.parent else None
        if isinstance(parent, Blocked | Failed):
            results[cell.id] = _without_parent(cell, parent)
            continue
        inputs = _inputs(workspace, cell, parent)
        state = read_state(workspace, cell, inputs)
        if state.lock is not None and not state.reason and not refresh:
            results[cell.id] = state.lock
        elif locked:
            results[cell.id] = _refused(cell, state)
        else:
            watch.say(f"{cell.id}: {state.reason or 'refreshing the lock'}; resolving")
            results[cell.id] = _make(workspace, cell, inputs, resolve_once)
    return results


def read_locks(workspace: Workspace, cells: Iterable[Cell]) -> Mapping[str, LockState]:
    """What is known of each cell's lock, without resolving or writing anything (parents first)."""
    states: dict[str, LockState] = {}
    for cell in cells:
        parent = states[cell.parent] if cell.parent else None
        if parent is not None and (parent.lock is None or parent.reason):
            states[cell.id] = LockState(
                lock=None, reason=f"its parent {cell.parent} has no fresh lock"
            )
            continue
        inputs = _inputs(workspace, cell, parent.lock if parent else None)
        states[cell.id] = read_state(workspace, cell, inputs)
    return states


def read_state(workspace: Workspace, cell: Cell, inputs: LockInputs) -> LockState:
    """The committed lock of a cell and whether it still fits what the matrix asks for."""
    path = workspace.lock_path(cell.id)
    text = read_text(path, missing_ok=True)
    if text is None:
        return LockState(lock=None, reason="not locked yet")
    lock = read_lock(text, path=str(path.relative_to(workspace.root)))
    return LockState(lock=lock, reason=staleness(lock, inputs))


def _inputs(workspace: Workspace, cell: Cell, parent: WheelLock | None) -> LockInputs:
    text = workspace.requirements[cell.requirements_file] if cell.requirements_file else None
    return lock_inputs(cell, text, parent)


def _make(workspace: Workspace, cell: Cell, inputs: LockInputs, resolve_once: Resolve) -> Locked:
    result = attempt(cell.id, "lock", resolve_once, inputs)
    if isinstance(result, WheelLock):
        write_text(workspace.lock_path(cell.id), dump_lock(result))
    workspace.store.save(cell.id, "lock", result)
    return result


def _refused(cell: Cell, state: LockState) -> Failed:
    return Failed(
        cell_id=cell.id,
        step="lock",
        reason=f"{state.reason}, and --locked forbids to change locks",
        hint=f"invoke lock --only {cell.id}, and commit the result",
        exit_code=LockError.exit_code,
    )


def _without_parent(cell: Cell, parent: Blocked | Failed) -> Blocked | Failed:
    word = "is blocked" if isinstance(parent, Blocked) else "has no lock"
    reason = f"its parent {cell.parent} {word}"
    return dataclasses.replace(parent, cell_id=cell.id, reason=reason, hint="")
