"""Locks of cells, parents first: resolved, then completed by the wheels that are built. Path."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from warpfront.errors import LockError
from warpfront.images.baking import BuilderOf
from warpfront.images.wheel_builder import WheelBuilder
from warpfront.matrix.cell import ENVIRONMENT_PYTHON, Cell
from warpfront.step_results import Blocked, Failed, StepName, attempt, failed_by
from warpfront.system.progress import Watch
from warpfront.system.store import write_text
from warpfront.wheels.lock.pylock import dump_lock, gone_back, waits_for
from warpfront.wheels.lock.reading import inputs_of, read_state
from warpfront.wheels.lock.values import LockInputs, LockState, WheelLock
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.resolve.resolving import resolve_by_uv
from warpfront.wheels.sources import AskSite, site_when_needed

Locked = WheelLock | Blocked | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class LockTools:
    """Folders, package indexes, and images to build wheels in; none where nothing is built."""

    folders: Folders
    site: AskSite = field(default_factory=site_when_needed)
    builder_of: BuilderOf | None = None


def lock_cells(
    cells: Iterable[Cell],
    tools: LockTools,
    watch: Watch,
    *,
    locked: bool = False,
    refresh: bool = False,
) -> Mapping[str, Locked]:
    """Return a lock, or an error, for each of `cells` (parents first). Nothing is built: a lock
    names the wheels that are to be built, and those of its children follow when they are.
    """
    locking = _CellLocking(tools=tools, watch=watch, step="lock")
    for cell, inputs in _lockable(cells, locking.results, tools.folders):
        read = attempt(cell.id, "lock", read_state, inputs, tools.folders)
        if isinstance(read, Blocked | Failed) and not refresh:
            locking.results[cell.id] = read
            continue
        unreadable = LockState(lock=None, reason="its lock is unreadable")
        state = read if isinstance(read, LockState) else unreadable
        if state.lock is not None and not state.reason and not refresh:
            locking.results[cell.id] = state.lock
        elif locked:
            step = "build-wheels" if state.lock and state.lock.unbuilt else "lock"
            reason = f"{state.reason}, and --locked forbids to change locks"
            hint = f"warpfront {step} --only {cell.id}, and commit the result"
            repeat = f"warpfront lock --locked --only {cell.id}"
            failed = _failed(cell.id, reason, hint)
            locking.results[cell.id] = dataclasses.replace(failed, repeat=repeat)
        else:
            watch.say(f"{cell.id}: {state.reason or 'refreshing the lock'}; resolving")
            lock = locking.results[cell.id] = locking.resolved(cell, inputs)
            # A refreshed lock that has become older is seldom meant.
            if not (state.lock and isinstance(lock, WheelLock)):
                continue
            if older := gone_back(state.lock, lock):
                watch.say(
                    f"{cell.id}: older than before: {', '.join(older)}. Each name comes from the "
                    "first source of pip's configuration that has it, extra indexes before the "
                    "index, whatever the others have (docs/security.md)"
                )
    return locking.results


def complete_cells(
    cells: Iterable[Cell], locks: Mapping[str, Locked] | None, tools: LockTools, watch: Watch
) -> Mapping[str, Locked]:
    """Return complete locks: wheels that were to be built are, and cells that waited are locked.
    `locks` are the results of `lock`, None for those of an earlier run.

    Of complete locks, the wheels that no index has are built again where they are missing.
    """
    completing = _CellLocking(tools=tools, watch=watch, step="build-wheels")
    resolved_now = set()
    for cell, inputs in _lockable(cells, completing.results, tools.folders):
        lock = _locked_before(inputs, tools.folders) if locks is None else locks[cell.id]
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
    hint = f"warpfront lock --only {inputs.cell_id}"
    return _failed(inputs.cell_id, state.reason, hint)


def _lockable(
    cells: Iterable[Cell], results: dict[str, Locked], folders: Folders
) -> Iterator[tuple[Cell, LockInputs]]:
    """Yield cells with the inputs of their lock. A cell whose parent has no complete
    lock, or whose files are wrong, gets its result here.
    """
    for cell in cells:
        parent = results[cell.parent] if cell.parent else None
        if isinstance(parent, Blocked | Failed):
            word = "is blocked" if isinstance(parent, Blocked) else "has no lock"
            reason = f"its parent {cell.parent} {word}"
            results[cell.id] = dataclasses.replace(parent, cell_id=cell.id, reason=reason, hint="")
        elif parent is not None and parent.unbuilt:
            reason = f"its parent {cell.parent} is not complete: {waits_for(parent)}"
            results[cell.id] = _failed(cell.id, reason, f"warpfront build-wheels --only {cell.id}")
        else:
            inputs = attempt(cell.id, "lock", inputs_of, cell, parent, folders)
            if isinstance(inputs, LockInputs):
                yield cell, inputs
            else:
                results[cell.id] = inputs


def split_locks(
    results: Mapping[str, Locked],
) -> tuple[dict[str, WheelLock], dict[str, Blocked | Failed]]:
    """Return the locks of cells that have a complete one, and the reasons for the others."""
    locks: dict[str, WheelLock] = {}
    reasons: dict[str, Blocked | Failed] = {}
    for key, value in results.items():
        if not isinstance(value, WheelLock):
            reasons[key] = value
        elif value.unbuilt:
            hint = f"warpfront build-wheels --only {key}"
            reasons[key] = _failed(key, waits_for(value), hint)
        else:
            locks[key] = value
    return locks, reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class _CellLocking:
    """A run over cells: results so far, and resolved locks by digest of their inputs."""

    tools: LockTools
    watch: Watch
    step: StepName
    results: dict[str, Locked] = field(default_factory=dict)
    known: dict[str, WheelLock] = field(default_factory=dict)

    def resolved(self, cell: Cell, inputs: LockInputs) -> Locked:
        result = attempt(cell.id, self.step, self._resolved, cell, inputs)
        if isinstance(result, WheelLock):
            write_text(self.tools.folders.lock_path(cell.id), dump_lock(result))
        self.tools.folders.store.save(cell.id, self.step, result)
        return result

    def restored(self, cell: Cell, inputs: LockInputs, lock: WheelLock) -> Locked:
        """Return the lock, after building its wheels that neither an index nor this machine has."""
        built = {build.package for build in lock.builds}
        local = [
            wheel for wheel in lock.wheels if wheel.sdist and (wheel.source or wheel.name in built)
        ]
        missing = self.tools.folders.wheelhouse.missing(local)
        if not missing:
            return lock
        builder = self._builder(cell, inputs)

        def restore() -> WheelLock:
            for wheel in missing:
                builder.restore(wheel, lock)
            return lock

        return attempt(cell.id, self.step, restore)

    def _resolved(self, cell: Cell, inputs: LockInputs) -> WheelLock:
        if inputs.digest not in self.known:
            self.watch.step(cell.id, "resolving")
            parent = self.results.get(cell.parent or "")
            makes_wheels = inputs.sources or inputs.builds or inputs.patches or inputs.allow_builds
            self.known[inputs.digest] = resolve_by_uv(
                inputs,
                self.tools.site(),
                on_line=self.watch.say,
                wheelhouse=self.tools.folders.wheelhouse,
                parent=parent if isinstance(parent, WheelLock) else None,
                crafting=self._builder(cell, inputs) if makes_wheels else None,
            )
            self.watch.step(cell.id, "")
        return dataclasses.replace(self.known[inputs.digest], cell_id=cell.id)

    def _builder(self, cell: Cell, inputs: LockInputs) -> WheelBuilder:
        locks, _ = split_locks(self.results)
        builder_of = self.tools.builder_of
        return WheelBuilder(
            inputs=inputs,
            root=self.tools.folders.root,
            cache=self.tools.folders.cache,
            wheelhouse=self.tools.folders.wheelhouse,
            site=self.tools.site(),
            builder=partial(builder_of, cell, locks) if builder_of else None,
            on_line=self.watch.say,
            python=ENVIRONMENT_PYTHON if cell.parent else cell.base.interpreter,
        )


def _failed(cell_id: str, reason: str, hint: str) -> Failed:
    return failed_by(LockError(reason, hint=hint), cell_id, "lock")
