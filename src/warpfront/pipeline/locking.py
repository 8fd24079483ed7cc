"""lock: pin every cell's wheels. Fresh locks stay, missing and stale ones are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from warpfront.images.cell_locks import CellLocking, Locked, failed_lock
from warpfront.matrix.cell import Selection
from warpfront.matrix.selection import selected_with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.step_results import Blocked, Failed, attempt
from warpfront.system.progress import Watch
from warpfront.wheels.lock.pylock import gone_back
from warpfront.wheels.lock.reading import read_state
from warpfront.wheels.lock.values import LockState, WheelLock


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
    A wheel that has to be built is named in its lock, for `build_wheels` to build. The cells on
    one with such a wheel are locked when it is.
    """
    matrix, folders = workspace.matrix, workspace.folders
    locking = CellLocking(step="lock", folders=folders, watch=watch)
    results = locking.results
    for cell, inputs in locking.lockable(selected_with_parents(matrix.cells, selection)):
        read = attempt(cell.id, "lock", read_state, inputs, folders)
        if isinstance(read, Blocked | Failed) and not refresh:
            results[cell.id] = read
            continue
        unreadable = LockState(lock=None, reason="its lock is unreadable")
        state = read if isinstance(read, LockState) else unreadable
        if state.lock is not None and not state.reason and not refresh:
            results[cell.id] = state.lock
        elif locked:
            step = "build-wheels" if state.lock and state.lock.unbuilt else "lock"
            reason = f"{state.reason}, and --locked forbids to change locks"
            hint = f"warpfront {step} --only {cell.id}, and commit the result"
            repeat = f"warpfront lock --locked --only {cell.id}"
            failed = failed_lock(cell.id, reason, hint)
            results[cell.id] = dataclasses.replace(failed, repeat=repeat)
        else:
            watch.say(f"{cell.id}: {state.reason or 'refreshing the lock'}; resolving")
            new_lock = results[cell.id] = locking.resolved(cell, inputs)
            # A refreshed lock that has become older is seldom meant.
            if not (state.lock and isinstance(new_lock, WheelLock)):
                continue
            if older := gone_back(state.lock, new_lock):
                watch.say(
                    f"{cell.id}: older than before: {', '.join(older)}. Each name comes from the "
                    "first source of pip's configuration that has it, extra indexes before the "
                    "index, whatever the others have (docs/security.md)"
                )
    return results
