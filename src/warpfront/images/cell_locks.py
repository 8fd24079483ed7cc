"""Locks of cells, parents first: resolved, or restored from the wheels that they name. Path."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from warpfront.errors import LockError
from warpfront.images.baking import Builders
from warpfront.images.wheel_builder import WheelBuilder
from warpfront.matrix.cell import ENVIRONMENT_PYTHON, Cell
from warpfront.step_results import Blocked, Failed, StepName, attempt, failed_by
from warpfront.system.progress import Watch
from warpfront.system.store import write_text
from warpfront.wheels.lock.pylock import dump_lock, waits_for
from warpfront.wheels.lock.reading import inputs_of
from warpfront.wheels.lock.values import LockInputs, WheelLock
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.resolve.resolving import resolve_by_uv
from warpfront.wheels.sources import AskSite, site_when_needed

Locked = WheelLock | Blocked | Failed


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
            reasons[key] = failed_lock(key, waits_for(value), hint)
        else:
            locks[key] = value
    return locks, reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLocking:
    """A run of a step over cells: results so far, and resolved locks by digest of their inputs.
    `builders` has images to build wheels in, None where nothing is built.
    """

    step: StepName
    folders: Folders
    watch: Watch
    site: AskSite = field(default_factory=site_when_needed)
    builders: Builders | None = None
    results: dict[str, Locked] = field(default_factory=dict)
    known: dict[str, WheelLock] = field(default_factory=dict)

    def lockable(self, cells: Iterable[Cell]) -> Iterator[tuple[Cell, LockInputs]]:
        """Yield cells with the inputs of their lock. A cell whose parent has no complete
        lock, or whose files are wrong, gets its result here.
        """
        results = self.results
        for cell in cells:
            parent = results[cell.parent] if cell.parent else None
            if isinstance(parent, Blocked | Failed):
                word = "is blocked" if isinstance(parent, Blocked) else "has no lock"
                reason = f"its parent {cell.parent} {word}"
                results[cell.id] = dataclasses.replace(
                    parent, cell_id=cell.id, reason=reason, hint=""
                )
            elif parent is not None and parent.unbuilt:
                reason = f"its parent {cell.parent} is not complete: {waits_for(parent)}"
                results[cell.id] = failed_lock(
                    cell.id, reason, f"warpfront build-wheels --only {cell.id}"
                )
            else:
                inputs = attempt(cell.id, "lock", inputs_of, cell, parent, self.folders)
                if isinstance(inputs, LockInputs):
                    yield cell, inputs
                else:
                    results[cell.id] = inputs

    def resolved(self, cell: Cell, inputs: LockInputs) -> Locked:
        result = attempt(cell.id, self.step, self._resolved, cell, inputs)
        if isinstance(result, WheelLock):
            write_text(self.folders.lock_path(cell.id), dump_lock(result))
        self.folders.store.save(cell.id, self.step, result)
        return result

    def restored(self, cell: Cell, inputs: LockInputs, lock: WheelLock) -> Locked:
        """Return the lock, after building its wheels that neither an index nor this machine has."""
        built = {build.package for build in lock.builds}
        local = [
            wheel for wheel in lock.wheels if wheel.sdist and (wheel.source or wheel.name in built)
        ]
        missing = self.folders.wheelhouse.missing(local)
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
                self.site(),
                on_line=self.watch.say,
                wheelhouse=self.folders.wheelhouse,
                parent=parent if isinstance(parent, WheelLock) else None,
                crafting=self._builder(cell, inputs) if makes_wheels else None,
            )
            self.watch.step(cell.id, "")
        return dataclasses.replace(self.known[inputs.digest], cell_id=cell.id)

    def _builder(self, cell: Cell, inputs: LockInputs) -> WheelBuilder:
        locks, _ = split_locks(self.results)
        return WheelBuilder(
            inputs=inputs,
            root=self.folders.root,
            cache=self.folders.cache,
            wheelhouse=self.folders.wheelhouse,
            site=self.site(),
            builder=partial(self.builders.image, cell, locks) if self.builders else None,
            on_line=self.watch.say,
            python=ENVIRONMENT_PYTHON if cell.parent else cell.base.interpreter,
        )


def failed_lock(cell_id: str, reason: str, hint: str) -> Failed:
    """Return the failure of a cell without a lock."""
    return failed_by(LockError(reason, hint=hint), cell_id, "lock")
