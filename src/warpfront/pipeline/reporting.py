"""report: every cell with what each step came to, read from what the steps left."""

from __future__ import annotations

from warpfront.matrix.plan import LockState, with_parents
from warpfront.matrix.selection import select
from warpfront.model import Blocked, BuiltImage, Cell, Failed, Selection, Verification
from warpfront.pipeline.within.locks import read_locks
from warpfront.pipeline.workspace import Workspace
from warpfront.report.rows import CellFacts, ReportRow, report_rows
from warpfront.system.store import Store


def report(workspace: Workspace, selection: Selection) -> tuple[ReportRow, ...]:
    """What every step left for the selected cells; reads files only."""
    matrix, requirements, folders = workspace.matrix, workspace.requirements, workspace.folders
    cells = select(matrix.cells, selection)
    states = read_locks(with_parents(cells, matrix.cells), requirements, folders)
    facts = (_facts(cell, states[cell.id], folders.store) for cell in cells)
    return report_rows(facts, target=selection.target)


def _facts(cell: Cell, state: LockState, store: Store) -> CellFacts:
    verifications = {
        target: verification
        for target in cell.targets
        if (verification := store.load(cell.id, f"verify-{target}", (Verification,)))
    }
    return CellFacts(
        cell=cell,
        lock=state.reason,
        relaxed=tuple(one.package for one in state.lock.relaxed) if state.lock else (),
        build=store.load(cell.id, "build", (BuiltImage, Blocked, Failed)),
        verifications=verifications,
    )
