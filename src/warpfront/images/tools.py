"""Arguments of a step: cells with their locks, and the tools to work on them. Path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warpfront.images.engine import Engine
from warpfront.images.render import Material
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.reading import Matrix
from warpfront.matrix.selection import select
from warpfront.wheels.lock.reading import fresh_locks
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.sources import AskSite, site_when_needed


@dataclass(frozen=True, slots=True, kw_only=True)
class CellInputs:
    """Selected cells, parents first, with the locks that exist, by cell id.

    `matrix` has every cell of the project, `material` what its images are made from.
    """

    cells: tuple[Cell, ...]
    locks: Mapping[str, WheelLock]
    matrix: Matrix
    material: Material

    @property
    def by_id(self) -> Mapping[str, Cell]:
        """Return every cell by its id, parents included."""
        return {cell.id: cell for cell in (*self.matrix.cells, *self.cells)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The engine, the folders of a project, and its package indexes, read at the first use."""

    engine: Engine
    folders: Folders
    site: AskSite = field(default_factory=site_when_needed)


def locked_inputs(
    matrix: Matrix, material: Material, folders: Folders, selection: Selection
) -> CellInputs:
    """Return the selected cells with the fresh locks of them and of the cells below them."""
    cells = select(matrix.cells, selection)
    locks = fresh_locks(cells, matrix.cells, folders)
    return CellInputs(cells=cells, locks=locks, matrix=matrix, material=material)


def targets_of(cell: Cell, target: str) -> tuple[str, ...]:
    """Return `target` if the cell serves it, else every target of the cell."""
    return (target,) if target in cell.targets else cell.targets
