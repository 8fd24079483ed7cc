"""The action for each cell and its reason, from facts of the pipeline. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from warpfront.images.built import RenderedImage
from warpfront.matrix.cell import Cell
from warpfront.step_results import Blocked, Failed
from warpfront.system.digests import digest_of
from warpfront.wheels.lock.values import LockState

# A CUDA stack with byte code measured 1.9 times the size of its wheels, the much smaller CPU stack
# 4.6 times (docs/performance.md): between the two, and on the safe side where it is gigabytes.
UNPACKED_RATIO = 2.3


class Action(StrEnum):
    """The action of `warpfront build` for a cell."""

    BUILD = "build"
    REUSE = "reuse"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """A line of the plan. `estimated_bytes` is the image's own layers, without its parent."""

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
    blocked: Blocked | Failed | None,
    built: bool,
    engine_asked: bool,
    changes: str,
    added_bytes: int | None,
    missing_bytes: int | None,
) -> PlannedCell:
    """Return a cell's line. `engine_asked` is true if an engine answered for existing images."""
    if blocked is not None:
        return PlannedCell(
            cell_id=cell.id, action=Action.BLOCKED, reason=blocked.reason, hint=blocked.hint
        )
    if built:
        return PlannedCell(
            cell_id=cell.id, action=Action.REUSE, reason="its image has this content"
        )
    unasked = "" if engine_asked else "no engine to ask for existing images"
    return PlannedCell(
        cell_id=cell.id,
        action=Action.BUILD,
        reason=state.reason or unasked or changes or "no image of this content is in the engine",
        download_bytes=missing_bytes,
        estimated_bytes=None if added_bytes is None else round(added_bytes * UNPACKED_RATIO),
    )


ContentRecord = dict[str, str]
"""The parts of an image that was built here, by name, to say later what changed."""


def changes_since(before: ContentRecord, now: ContentRecord) -> str:
    """Return `changed: wheel numpy 2.1 -> 2.2, file Dockerfile`; "" if nothing did."""
    lines = []
    for name in {**now, **before}:
        was, is_now = before.get(name, ""), now.get(name, "")
        old, new = was.partition(" ")[0], is_now.partition(" ")[0]
        if not was or not is_now:
            lines.append(f"{name} {'removed' if was else 'added'}")
        elif was != is_now:
            is_version = name.startswith("wheel ") and old != new
            lines.append(f"{name} {old} -> {new}" if is_version else name)
    # The list of requirements and the guard's files follow from the wheels.
    wheels = [line for line in lines if line.startswith("wheel ")]
    rest = [line for line in lines if not line.startswith(("wheel ", "file requirements.txt"))]
    changes = [*wheels, *(rest or lines[: not wheels])]
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return f"changed: {', '.join(changes[:_SHOWN])}{more}" if changes else ""


CONTENT = "content"  # the name of the record in the build folder
_SHOWN = 4
