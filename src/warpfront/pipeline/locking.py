"""lock: pin every cell's wheels. Fresh locks stay, missing and stale ones are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from warpfront.errors import LockError
from warpfront.images.builders import BuilderOf, builders
from warpfront.images.wheel_builder import WheelBuilder
from warpfront.matrix.cell import ENVIRONMENT_PYTHON, Cell, Selection
from warpfront.matrix.selection import selected_with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.step_results import Blocked, Failed
from warpfront.system.attempt import attempt
from warpfront.system.process import Run, run
from warpfront.system.progress import Line, Watch
from warpfront.system.store import write_text
from warpfront.wheels.device_packages import refuse_every_device
from warpfront.wheels.lock.pylock import dump_lock, gone_back, read_lock
from warpfront.wheels.lock.reading import inputs_of, read_state
from warpfront.wheels.lock.state import LockState
from warpfront.wheels.lock.values import LockInputs, WheelLock
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.requirements import RequirementList
from warpfront.wheels.resolve.resolution import WheelMaker
from warpfront.wheels.resolve.resolver import UvResolver
from warpfront.wheels.resolve.resolving import resolve
from warpfront.wheels.site import AskSite, site_when_needed
from warpfront.wheels.sources import Site
from warpfront.wheels.store.wheelhouse import Wheelhouse

Locked = WheelLock | Blocked | Failed


def lock(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    locked: bool = False,
    refresh: bool = False,
) -> Mapping[str, Locked]:
    """Fresh locks for the selected cells and their parents; writes images/locks/.

    `locked` refuses to make or change a lock (for CI); `refresh` makes fresh ones anew as well.
    """
    matrix, requirements = workspace.matrix, workspace.requirements
    folders, material = workspace.folders, workspace.material
    cells, site = selected_with_parents(matrix.cells, selection), site_when_needed()
    build_in = builders(matrix, material, folders, site=site, watch=watch)
    tools = LockTools(folders=folders, builder_of=build_in, site=site)
    return lock_cells(cells, requirements, tools, watch, locked=locked, refresh=refresh)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockTools:
    """Tools of locking: folders, package indexes, and images to build wheels in."""

    folders: Folders
    builder_of: BuilderOf
    site: AskSite


def lock_cells(
    cells: Iterable[Cell],
    requirements: Mapping[str, RequirementList],
    tools: LockTools,
    watch: Watch,
    *,
    locked: bool = False,
    refresh: bool = False,
) -> Mapping[str, Locked]:
    """Return a lock, or an error, for each of `cells` (parents first)."""
    folders = tools.folders
    locking = _CellLocking(tools=tools, watch=watch)
    for cell in cells:
        parent = locking.results[cell.parent] if cell.parent else None
        if isinstance(parent, Blocked | Failed):
            locking.results[cell.id] = _without_parent(cell, parent)
            continue
        inputs = inputs_of(cell, parent, requirements, folders)
        state = attempt(cell.id, "lock", read_state, inputs, folders, read=read_lock)
        if isinstance(state, Blocked | Failed):
            if not refresh:
                locking.results[cell.id] = state
                continue
            state = LockState(lock=None, reason="its lock is unreadable")
        if state.lock is not None and not state.reason and not refresh:
            locking.results[cell.id] = locking.restored(cell, inputs, state.lock)
        elif locked:
            locking.results[cell.id] = _refused(cell, state)
        else:
            watch.say(f"{cell.id}: {state.reason or 'refreshing the lock'}; resolving")
            locking.results[cell.id] = locking.made(cell, inputs)
            _say_gone_back(cell, state.lock, locking.results[cell.id], watch)
    return locking.results


def _say_gone_back(cell: Cell, before: WheelLock | None, after: Locked, watch: Watch) -> None:
    """A refreshed lock that has become older is seldom meant."""
    if before is None or not isinstance(after, WheelLock):
        return
    if older := gone_back(before, after):
        watch.say(
            f"{cell.id}: older than before: {', '.join(older)}. Each name comes from the first"
            " source of pip's configuration that has it, extra indexes before the index, whatever"
            " the others have (docs/security.md)"
        )


def split_locks(
    results: Mapping[str, Locked],
) -> tuple[dict[str, WheelLock], dict[str, Blocked | Failed]]:
    """Return the locks of cells that have one, and the reasons for the others."""
    locks = {key: value for key, value in results.items() if isinstance(value, WheelLock)}
    bad = {key: value for key, value in results.items() if not isinstance(value, WheelLock)}
    return locks, bad


def resolve_by_uv(
    inputs: LockInputs,
    site: Site,
    *,
    run: Run,
    on_line: Line,
    wheelhouse: Wheelhouse | None = None,
    parent: WheelLock | None = None,
    crafting: WheelMaker | None = None,
) -> WheelLock:
    """Return the lock for `inputs`, resolved by uv from the sources that the site can reach."""
    refuse_every_device(inputs, site)
    parent_wheels = parent.wheels if parent else ()
    resolver = UvResolver(
        inputs, site, run=run, on_line=on_line, wheelhouse=wheelhouse, held=parent_wheels
    )
    return resolve(inputs, resolver, on_line=on_line, parent=parent, crafting=crafting)


class _ParentOptions(TypedDict, total=False):
    """Arguments of `resolve` for cells with a parent or with builds."""

    parent: WheelLock
    crafting: WheelMaker


@dataclass(frozen=True, slots=True, kw_only=True)
class _CellLocking:
    """A run over cells: results so far, and resolved locks by digest of their inputs."""

    tools: LockTools
    watch: Watch
    results: dict[str, Locked] = field(default_factory=dict)
    known: dict[str, WheelLock] = field(default_factory=dict)

    def made(self, cell: Cell, inputs: LockInputs) -> Locked:
        result = attempt(cell.id, "lock", self._resolved, cell, inputs)
        if isinstance(result, WheelLock):
            write_text(self.tools.folders.lock_path(cell.id), dump_lock(result))
        self.tools.folders.store.save(cell.id, "lock", result)
        return result

    def restored(self, cell: Cell, inputs: LockInputs, lock: WheelLock) -> Locked:
        """Return the lock, after building its wheels that no index has and that
        are missing here.
        """
        built = {build.package: build for build in lock.builds}
        local = [
            wheel for wheel in lock.wheels if wheel.sdist and (wheel.source or wheel.name in built)
        ]
        missing = self.tools.folders.wheelhouse.missing(local)
        if not missing:
            return lock
        builder = self._builder(cell, inputs)

        def restore() -> WheelLock:
            sources = {str(source): source for source in inputs.sources}
            patched = {build.package: build for build in lock.patched if build.original}
            for wheel in missing:
                if wheel.name in patched:
                    builder.restore_patched(wheel, patched[wheel.name])
                    continue
                builder.restore(wheel, sources.get(wheel.source), built.get(wheel.name))
            return lock

        return attempt(cell.id, "lock", restore)

    def _resolved(self, cell: Cell, inputs: LockInputs) -> WheelLock:
        if inputs.digest not in self.known:
            self.watch.step(cell.id, "resolving")
            self.known[inputs.digest] = resolve_by_uv(
                inputs,
                self.tools.site(),
                run=run,
                on_line=self.watch.say,
                wheelhouse=self.tools.folders.wheelhouse,
                **self._crafts(cell, inputs),
            )
            self.watch.step(cell.id, "")
        return dataclasses.replace(self.known[inputs.digest], cell_id=cell.id)

    def _crafts(self, cell: Cell, inputs: LockInputs) -> _ParentOptions:
        """Return the parent's lock and the maker of a cell's own wheels."""
        more = _ParentOptions()
        parent = self.results.get(cell.parent or "")
        if isinstance(parent, WheelLock):
            more["parent"] = parent
        if inputs.sources or inputs.builds or inputs.patches or inputs.allow_builds:
            more["crafting"] = self._builder(cell, inputs)
        return more

    def _builder(self, cell: Cell, inputs: LockInputs) -> WheelBuilder:
        locks, _ = split_locks(self.results)
        return WheelBuilder(
            inputs=inputs,
            root=self.tools.folders.root,
            cache=self.tools.folders.cache,
            wheelhouse=self.tools.folders.wheelhouse,
            site=self.tools.site(),
            builder=self.tools.builder_of(cell, locks),
            on_line=self.watch.say,
            python=ENVIRONMENT_PYTHON if cell.parent else cell.base.interpreter,
        )


def _refused(cell: Cell, state: LockState) -> Failed:
    return Failed(
        cell_id=cell.id,
        step="lock",
        reason=f"{state.reason}, and --locked forbids to change locks",
        hint=f"invoke lock --only {cell.id}, and commit the result",
        exit_code=LockError.exit_code,
        repeat=f"invoke lock --locked --only {cell.id}",
    )


def _without_parent(cell: Cell, parent: Blocked | Failed) -> Blocked | Failed:
    word = "is blocked" if isinstance(parent, Blocked) else "has no lock"
    reason = f"its parent {cell.parent} {word}"
    return dataclasses.replace(parent, cell_id=cell.id, reason=reason, hint="")
