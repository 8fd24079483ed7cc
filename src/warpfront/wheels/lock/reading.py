"""States of locks, read without resolving or writing; and locks compared with METADATA of fetched
wheels before a build. Path.

A lock is resolved from an index's metadata. The wheel's own METADATA is read here, for any source
or cache of its bytes, so that a lock needs no copy of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.errors import LockError, StoreError, WheelError
from warpfront.matrix.cell import Cell
from warpfront.matrix.selection import with_parents
from warpfront.step_results import Blocked, Failed, attempt
from warpfront.system.foreign import inside_root
from warpfront.system.store import read_text
from warpfront.wheels.core_metadata import (
    Distribution,
    accepts_python,
    readable_requirement,
    requirement_name,
)
from warpfront.wheels.lock.pylock import lock_inputs, read_lock, staleness
from warpfront.wheels.lock.values import NEVER_BUILT, LockInputs, LockState, WheelLock
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.resolve.demands import asked_for, roots_of
from warpfront.wheels.store.archives import folder_sha256
from warpfront.wheels.store.patching import why_unfit
from warpfront.wheels.store.wheelhouse import Wheelhouse, read_wheel_metadata
from warpfront_checks.guard.names import triton_shims


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
            state = (
                read
                if isinstance(read, LockState)
                else LockState(lock=None, reason=f"unreadable: {read.reason}")
            )
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


def check_wheels(chain: tuple[Cell, ...], lock: WheelLock, wheelhouse: Wheelhouse) -> None:
    """Raise `WheelError` with both texts for each difference between the lock of the last cell of
    `chain` (parents first) and its wheels. Wheels of a parent with a built image may be absent;
    demands that only they could make are then not judged.
    """
    metadata: dict[str, Distribution] = {
        canonicalize_name(wheel.name): read_wheel_metadata(path)
        for wheel in lock.wheels
        if (path := wheelhouse.path(wheel)).is_file()
    }
    problems = []
    for wheel in lock.wheels:
        name, inside = wheel.filename, metadata.get(canonicalize_name(wheel.name))
        if inside is None:
            continue
        if Version(inside.version) != Version(wheel.version):
            problems.append(f"{name}: the lock says {wheel.version}, its METADATA {inside.version}")
        if not accepts_python(inside, lock.python):
            problems.append(
                f"{name}: the lock is for Python {lock.python}, its METADATA says "
                f"Requires-Python: {inside.requires_python}"
            )
    problems += _wrong_demands(chain, lock, metadata)
    if problems:
        lines = "".join(f"\n    {problem}" for problem in problems)
        raise WheelError(
            f"{lock.cell_id}: its wheels are not what its lock was resolved from{lines}",
            hint="the index says something else of a wheel than the wheel itself: lock again from "
            "another source, and do not use that index until you know why",
        )


def _wrong_demands(
    chain: tuple[Cell, ...], lock: WheelLock, metadata: Mapping[str, Distribution]
) -> Iterator[str]:
    """Demands that the lock does not meet, and locked wheels that nothing demands."""
    locked: dict[str, str] = {canonicalize_name(wheel.name): wheel.version for wheel in lock.wheels}
    shims = {shim.name: Version(shim.version).public for shim in triton_shims(locked)}
    requires = {name: entry.requires for name, entry in metadata.items()}
    asked_from = partial(asked_for, requires, python=lock.python, machine=chain[-1].machine)
    demands = asked_from(roots_of(chain, lock.wheels))
    # Where the stack is pinned, uv puts the pin in the place of a demand, without its extras.
    stack = {canonicalize_name(pin.name) for cell in chain for pin in cell.stack}
    plain = asked_from(sorted(stack))
    relaxed = {
        (canonicalize_name(entry.package), canonicalize_name(Requirement(text).name))
        for entry in lock.relaxed
        for text in entry.unmet
    }
    for asker, demand, text in demands:
        version = locked.get(demand) or shims.get(demand)
        met = version and Requirement(text).specifier.contains(version, prereleases=True)
        by_extra = asker in stack and (asker, demand, text) not in plain
        if not (met or by_extra or (asker, demand) in relaxed):
            holds = f"{demand} {version}" if version else f"no {demand}"
            whose = f"{asker} {locked[asker]}: its METADATA" if asker in locked else "the image"
            yield f"{whose} demands {text}, the lock holds {holds}"
    if metadata.keys() == locked.keys():
        demanded = {demand for _, demand, _ in demands}
        # Only a lenient resolver can read some demands.
        texts = (text for entry in metadata.values() for text in entry.requires)
        demanded |= {requirement_name(text) for text in texts if readable_requirement(text) is None}
        for name in sorted(locked.keys() - demanded):
            yield f"{name} {locked[name]}: the lock holds it, and no wheel's METADATA demands it"
