"""The action for each cell and its reason, from facts of the pipeline. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from warpfront.matrix.selection import select
from warpfront.model import Blocked, Cell, RenderedImage, Selection, WheelLock, digest_of

# A CUDA stack with byte code measured 1.9 times the size of its wheels, the much smaller CPU stack
# 4.6 times (docs/performance.md): between the two, and on the safe side where it is gigabytes.
UNPACKED_RATIO = 2.3

NEVER_BUILT = "never built: it has no lock yet"
"""What a lock's absence says, for locks are committed: nobody has resolved the cell from a real
index.
"""


class Action(StrEnum):
    """The action of `invoke build` for a cell."""

    BUILD = "build"
    REUSE = "reuse"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockState:
    """The state of a cell's lock before resolving. `reason` is why it is not usable, else ""."""

    lock: WheelLock | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """A line of the plan. Sizes are bytes; `estimated_bytes` is the image's own layers,
    without its parent.
    """

    cell_id: str
    action: Action
    reason: str
    hint: str = ""
    download_bytes: int | None = None
    estimated_bytes: int | None = None


def content_hash(rendered: RenderedImage, *, base_identity: str, builder: str) -> str:
    """Return the identity of an image's content: rendered files, wheels, base (or the parent's
    content hash) and the installer that unpacks the wheels. 64 hex digits; an image label.
    """
    return digest_of([rendered.digest, base_identity, builder])


def plan_cell(
    cell: Cell,
    *,
    state: LockState,
    blocked: Blocked | None,
    built: bool,
    known: bool,
    added_bytes: int | None,
    missing_bytes: int | None,
) -> PlannedCell:
    """Return a cell's line. `known` is true if an engine answered for existing images."""
    if blocked is not None:
        return PlannedCell(
            cell_id=cell.id, action=Action.BLOCKED, reason=blocked.reason, hint=blocked.hint
        )
    if built:
        return PlannedCell(
            cell_id=cell.id, action=Action.REUSE, reason="an image with this content hash exists"
        )
    return PlannedCell(
        cell_id=cell.id,
        action=Action.BUILD,
        reason=_why_build(state, known=known),
        download_bytes=missing_bytes,
        estimated_bytes=None if added_bytes is None else round(added_bytes * UNPACKED_RATIO),
    )


def with_parents(selected: Iterable[Cell], cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """The selected cells and every cell they stand on, parents first, in the matrix's order."""
    by_id = {cell.id: cell for cell in cells}
    wanted: set[str] = set()
    for cell in selected:
        current: Cell | None = cell
        while current is not None and current.id not in wanted:
            wanted.add(current.id)
            current = by_id[current.parent] if current.parent else None
    return _parents_first([cell for cell in by_id.values() if cell.id in wanted], by_id)


def selected_with_parents(cells: tuple[Cell, ...], selection: Selection) -> tuple[Cell, ...]:
    """Return the selected cells and their parents, parents first."""
    return with_parents(select(cells, selection), cells)


def leaves(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """Return the cells that are no parent of others: building them builds all."""
    everything = tuple(cells)
    parents = {cell.parent for cell in everything}
    return tuple(cell for cell in everything if cell.id not in parents)


def _parents_first(cells: list[Cell], by_id: Mapping[str, Cell]) -> tuple[Cell, ...]:
    def depth(cell: Cell) -> int:
        return 0 if cell.parent is None else 1 + depth(by_id[cell.parent])

    return tuple(sorted(cells, key=depth))


def _why_build(state: LockState, *, known: bool) -> str:
    if state.reason:
        return state.reason
    return "no image with this content hash" if known else "no engine to ask for existing images"
