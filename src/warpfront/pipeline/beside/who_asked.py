"""Who asked for each wheel of a lock, without an image."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.matrix.plan import with_parents
from warpfront.matrix.selection import select
from warpfront.model import Cell, Selection, WheelLock
from warpfront.pipeline.within.locks import read_locks, usable_locks
from warpfront.pipeline.workspace import Folders, Workspace
from warpfront.release.bill.asking import Asking, asked_for
from warpfront.release.bill.parts import roots_of
from warpfront.wheels.requirements import RequirementList
from warpfront.wheels.wheelhouse import read_requires


def who_asked(
    workspace: Workspace, selection: Selection
) -> Mapping[str, tuple[tuple[str, str, str], ...]]:
    """By cell: (asker or "" for the image, wanted, requirement), by the locks and the metadata of
    the wheels that are here.
    """
    matrix, requirements, folders = workspace.matrix, workspace.requirements, workspace.folders
    cells = select(matrix.cells, selection)
    locks = usable_locks(read_locks(with_parents(cells, matrix.cells), requirements, folders))
    return {
        cell.id: _asked(
            cell, with_parents([cell], matrix.cells), locks[cell.id], requirements, folders
        )
        for cell in cells
        if cell.id in locks
    }


def _asked(
    cell: Cell,
    chain: tuple[Cell, ...],
    lock: WheelLock,
    requirements: Mapping[str, RequirementList],
    folders: Folders,
) -> tuple[tuple[str, str, str], ...]:
    paths = {wheel.name: folders.wheelhouse.path(wheel) for wheel in lock.wheels}
    asking = Asking(
        requires={name: read_requires(path) for name, path in paths.items() if path.is_file()},
        roots=roots_of(chain, requirements),
        python=cell.python,
        machine=cell.machine,
    )
    return tuple(one for one in asked_for(asking) if one[1] in paths)
