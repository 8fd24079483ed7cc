"""Size budgets: images larger than matrix.yaml allows. Path."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from warpfront.errors import BuildFailedError, StoreError, WheelError
from warpfront.images.built import BuiltImage
from warpfront.images.size_breakdown import SizeBreakdown, largest, weights_of
from warpfront.matrix.cell import Cell
from warpfront.step_results import Failed
from warpfront.system.sizes import readable_size
from warpfront.system.store import Store
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.store.unpacked import stays, unpacked_files
from warpfront.wheels.store.wheelhouse import Wheelhouse

_NAME = "weights"


def within_budget(
    cell: Cell, built: BuiltImage, lock: WheelLock, store: Store, wheelhouse: Wheelhouse
) -> BuiltImage | Failed:
    """Return the image if it is within its budget, else a failure with what grew since the last
    one that was.
    """
    if cell.budget_bytes is None:
        return built
    now = _weights(lock, wheelhouse, stays(cell.slim))
    if built.size_bytes <= cell.budget_bytes:
        if now is not None:
            store.save(cell.id, _NAME, now)
        return built
    before: SizeBreakdown | None = None
    with contextlib.suppress(StoreError):  # of another version: then the largest parts are listed
        before = store.load(cell.id, _NAME, (SizeBreakdown,))
    size, budget = readable_size(built.size_bytes), readable_size(cell.budget_bytes)
    return Failed(
        cell_id=cell.id,
        step="build",
        reason=f"its layers take {size}, and its budget is {budget}{_lines(now, before)}",
        hint=f"take something out, or raise `images: {cell.image}: budget:` in matrix.yaml",
        log=built.log,
        exit_code=BuildFailedError.exit_code,
    )


def _weights(
    lock: WheelLock, wheelhouse: Wheelhouse, stays_in: Callable[[str], bool]
) -> SizeBreakdown | None:
    """Return sizes by package; None without its wheels: a reused image needs none."""
    try:
        return weights_of(
            {
                f"{wheel.name}=={wheel.version}": {
                    path: int(measured[0])
                    for path, measured in unpacked_files(wheelhouse, wheel).items()
                    if stays_in(path)
                }
                for wheel in lock.wheels
            }
        )
    except WheelError:
        return None


def _lines(now: SizeBreakdown | None, before: SizeBreakdown | None) -> str:
    if now is None:
        return ""
    rows = (
        f"\n    {name}: {readable_size(size)}" + (f", {readable_size(more)} more" if before else "")
        for name, size, more in largest(now, before)
    )
    return "".join(rows) or "\n    its wheels are as they were"
