"""lock: every cell's wheels, pinned. Fresh locks are kept, missing and stale ones are made anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TypedDict

from warpfront.errors import LockError
from warpfront.images.crafting import Crafter
from warpfront.matrix.plan import LockState
from warpfront.model import Blocked, Cell, Failed, LockInputs, WheelLock
from warpfront.pipeline.attempt import attempt
from warpfront.pipeline.builders import builder_of
from warpfront.pipeline.workspace import AskSite, Workspace
from warpfront.system.process import Run, run
from warpfront.system.store import read_text, write_text
from warpfront.system.watch import Line, Watch
from warpfront.wheels.archives import folder_sha256
from warpfront.wheels.lock import dump_lock, lock_inputs, read_lock, staleness
from warpfront.wheels.requirements import RequirementList
from warpfront.wheels.resolution import Crafting
from warpfront.wheels.resolver import UvResolver
from warpfront.wheels.resolving import resolve
from warpfront.wheels.sources import Site
from warpfront.wheels.wheelhouse import Wheelhouse

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
            more = _crafts(workspace, inputs, results, site=site, watch=watch)
            known[inputs.digest] = resolve_by_uv(
                inputs, site(), run=run, on_line=watch.say, wheelhouse=workspace.wheelhouse, **more
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
            results[cell.id] = _restored(
                workspace, inputs, state.lock, locks=results, site=site, watch=watch
            )
        elif locked:
            results[cell.id] = _refused(cell, state)
        else:
            watch.say(f"{cell.id}: {state.reason or 'refreshing the lock'}; resolving")
            results[cell.id] = _make(workspace, cell, inputs, resolve_once)
    return results


def resolve_by_uv(
    inputs: LockInputs,
    site: Site,
    *,
    run: Run,
    on_line: Line,
    wheelhouse: Wheelhouse | None = None,
    parent: WheelLock | None = None,
    crafting: Crafting | None = None,
) -> WheelLock:
    """The lock that answers `inputs`, found by uv from what the site can reach."""
    resolver = UvResolver(inputs, site, run=run, on_line=on_line, wheelhouse=wheelhouse)
    return resolve(inputs, resolver, on_line=on_line, parent=parent, crafting=crafting)


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
    file = cell.requirements_file
    asked = workspace.requirements[file] if file else RequirementList()
    folders = {
        source.location: folder_sha256(workspace.root / source.location)
        for source in asked.sources
        if source.kind == "folder"
    }
    return lock_inputs(cell, asked, parent, folders=folders)


class _More(TypedDict, total=False):
    """What `resolve` is given beside, where a cell needs it."""

    parent: WheelLock
    crafting: Crafting


def _restored(
    workspace: Workspace,
    inputs: LockInputs,
    lock: WheelLock,
    *,
    locks: Mapping[str, Locked],
    site: AskSite,
    watch: Watch,
) -> Locked:
    """The lock, after what no index has was built again where this machine lacks it."""
    built = {one.package: one for one in lock.builds}
    local = [one for one in lock.wheels if one.sdist and (one.source or one.name in built)]
    missing = workspace.wheelhouse.missing(local)
    if not missing:
        return lock
    crafter = _crafter(workspace, inputs, locks, site=site, watch=watch)

    def restore() -> WheelLock:
        sources = {str(source): source for source in inputs.sources}
        for wheel in missing:
            crafter.restore(wheel, sources.get(wheel.source), built.get(wheel.name))
        return lock

    return attempt(inputs.cell_id, "lock", restore)


def _crafts(
    workspace: Workspace,
    inputs: LockInputs,
    locks: Mapping[str, Locked],
    *,
    site: AskSite,
    watch: Watch,
) -> _More:
    """What is built for a cell, and what was built for its parent."""
    cell = next(one for one in workspace.matrix.cells if one.id == inputs.cell_id)
    more = _More()
    parent = locks.get(cell.parent or "")
    if isinstance(parent, WheelLock) and (
        parent.builds or any(wheel.source for wheel in parent.wheels)
    ):
        more["parent"] = parent
    if inputs.sources or inputs.builds:
        more["crafting"] = _crafter(workspace, inputs, locks, site=site, watch=watch)
    return more


def _crafter(
    workspace: Workspace,
    inputs: LockInputs,
    locks: Mapping[str, Locked],
    *,
    site: AskSite,
    watch: Watch,
) -> Crafter:
    cell = next(one for one in workspace.matrix.cells if one.id == inputs.cell_id)
    usable = {key: lock for key, lock in locks.items() if isinstance(lock, WheelLock)}
    return Crafter(
        inputs=inputs,
        root=workspace.root,
        cache=workspace.cache,
        wheelhouse=workspace.wheelhouse,
        site=site(),
        builder=builder_of(workspace, cell, usable, site=site, watch=watch),
        on_line=watch.say,
    )


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
