"""Reasons for each wheel of a lock, without an image."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.errors import BlockedError
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.selection import select, with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.step_results import Blocked, Failed
from warpfront.system.attempt import attempt
from warpfront.wheels.lock.reading import fresh_locks
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.lock.why_dependency import DependencyGraph, asked_for, roots_of
from warpfront.wheels.requirements import RequirementList
from warpfront.wheels.store.wheelhouse import Wheelhouse, read_wheel_metadata

DeclaredRequirement = tuple[tuple[str, str, str], ...]


def who_asked(
    workspace: Workspace, selection: Selection
) -> Mapping[str, DeclaredRequirement | Blocked | Failed]:
    """Return by cell (dependent or "" for the image, name, requirement), from locks and
    metadata of wheels.
    """
    matrix, requirements, folders = workspace.matrix, workspace.requirements, workspace.folders
    cells = select(matrix.cells, selection)
    locks = fresh_locks(cells, matrix.cells, requirements, folders)
    house = folders.wheelhouse
    answers: dict[str, DeclaredRequirement | Blocked | Failed] = {}
    for cell in cells:
        chain, lock = with_parents([cell], matrix.cells), locks.get(cell.id)
        answers[cell.id] = attempt(cell.id, "lock", _asked, chain, lock, requirements, house)
    return answers


def _asked(
    chain: tuple[Cell, ...],
    lock: WheelLock | None,
    requirements: Mapping[str, RequirementList],
    house: Wheelhouse,
) -> DeclaredRequirement:
    cell = chain[-1]
    if lock is None:
        raise BlockedError("it has no fresh lock", hint=f"warpfront lock --only {cell.id}")
    paths = {wheel.name: house.path(wheel) for wheel in lock.wheels}
    absent = [name for name, path in sorted(paths.items()) if not path.is_file()]
    if absent:
        raise BlockedError(
            f"what its wheels demand is not known: {', '.join(absent)} not here",
            hint=f"warpfront build --only {cell.id}",
        )
    asking = DependencyGraph(
        requires={name: read_wheel_metadata(path).requires for name, path in paths.items()},
        roots=roots_of(chain, requirements, lock.wheels),
        python=cell.python,
        machine=cell.machine,
    )
    return tuple(dependent for dependent in asked_for(asking) if dependent[1] in paths)
