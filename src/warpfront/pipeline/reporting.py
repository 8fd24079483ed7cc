"""report: every cell with the result of each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from warpfront.errors import StoreError
from warpfront.images.built import BuiltImage
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.selection import select, with_parents
from warpfront.pipeline.workspace import Workspace
from warpfront.release.evidence import kept_verifications
from warpfront.release.ledger import Publication
from warpfront.report.rows import CellFacts, ReportRow, report_rows
from warpfront.step_results import Blocked, Failed, StepName
from warpfront.system.store import Store
from warpfront.system.tree_files import Unreadable
from warpfront.verify.results import Verification
from warpfront.verify.verdict import read_verification
from warpfront.wheels.lock.reading import read_locks
from warpfront.wheels.lock.values import LockState, WheelLock

T = TypeVar("T")


def report(workspace: Workspace, selection: Selection) -> tuple[ReportRow, ...]:
    """Return the results of all steps for the selected cells; reads files only."""
    matrix, folders = workspace.matrix, workspace.folders
    cells = select(matrix.cells, selection)
    chain = {cell.id: cell for cell in with_parents(cells, matrix.cells)}
    states = read_locks(chain.values(), folders)
    store, facts = folders.store, []
    for cell in cells:
        not_locked = _not_locked(cell, chain, states, store)
        facts.append(_facts(cell, states[cell.id], store, not_locked))
    return report_rows(facts, target=selection.target)


def _not_locked(
    cell: Cell, chain: Mapping[str, Cell], states: Mapping[str, LockState], store: Store
) -> Blocked | Failed | None:
    """Return the error of the last `lock`, of a cell or its nearest parent without a lock."""
    if not states[cell.id].reason:
        return None
    result = _stored(cell.id, "lock", store, WheelLock)
    if isinstance(result, Blocked | Failed):
        return result
    return _not_locked(chain[cell.parent], chain, states, store) if cell.parent else None


def _facts(
    cell: Cell, state: LockState, store: Store, not_locked: Blocked | Failed | None
) -> CellFacts:
    build = _stored(cell.id, "build", store, BuiltImage)
    verifications, unread = kept_verifications(cell, store)
    # An unreadable one is an error of this cell on this target.
    digest = getattr(build, "content_hash", "")
    for target, reason in unread.items():
        about = Verification(cell_id=cell.id, target=target, where="image", content_hash=digest)
        files = {"verify": Unreadable(reason=reason)}
        verifications[target] = read_verification(about, files)
    # A job verified nothing: its machine was not ready, or a hand-over missing.
    not_run = {
        target: failed
        for target in cell.targets
        if (failed := store.readable(cell.id, f"verify-{target}-not-run", (Failed,)))
    }
    return CellFacts(
        cell=cell,
        lock=state.reason,
        relaxed=tuple(package.package for package in state.lock.relaxed) if state.lock else (),
        build=build,
        verifications=verifications,
        publication=publication_of(cell.id, store),
        not_locked=not_locked,
        not_run=not_run,
    )


def publication_of(cell_id: str, store: Store) -> Publication | Blocked | Failed | None:
    """Return the result of `publish`, `Blocked` where that cannot be read; None for none."""
    return _stored(cell_id, "publish", store, Publication)


def _stored(
    cell_id: str, step: StepName, store: Store, kind: type[T]
) -> T | Blocked | Failed | None:
    """Return the result of a step; an unreadable one blocks this cell only."""
    try:
        result: T | Blocked | Failed | None = store.load(cell_id, step, (kind, Blocked, Failed))
    except StoreError as error:
        return Blocked(cell_id=cell_id, step=step, reason=error.message, hint=error.hint)
    return result
