"""The action for each cell and its reason, from facts of the pipeline. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from warpfront.images.built import RenderedImage
from warpfront.matrix.cell import Cell
from warpfront.step_results import Blocked
from warpfront.system.digests import digest_of
from warpfront.wheels.lock.state import LockState

# A CUDA stack with byte code measured 1.9 times the size of its wheels, the much smaller CPU stack
# 4.6 times (docs/performance.md): between the two, and on the safe side where it is gigabytes.
UNPACKED_RATIO = 2.3


class Action(StrEnum):
    """The action of `invoke build` for a cell."""

    BUILD = "build"
    REUSE = "reuse"
    BLOCKED = "blocked"


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


def _why_build(state: LockState, *, known: bool) -> str:
    if state.reason:
        return state.reason
    return "no image with this content hash" if known else "no engine to ask for existing images"
