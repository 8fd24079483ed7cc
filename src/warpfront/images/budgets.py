"""Size budgets: images larger than matrix.yaml allows, and what grew in them. Path."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from warpfront.errors import BuildFailedError, WheelError
from warpfront.images.built import BuiltImage
from warpfront.matrix.cell import Cell
from warpfront.step_results import Failed
from warpfront.system.sizes import readable_size
from warpfront.system.store import Store
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.store.unpacked import unpacked_files
from warpfront.wheels.store.wheelhouse import Wheelhouse
from warpfront_checks.guard.manifest import Measured

_NAME = "weights"
_SHOWN = 6
_DEPTH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeBreakdown:
    """Unpacked bytes by wheel (`torch==2.13.0`) and by folder of site-packages (`torch/lib`)."""

    wheels: Mapping[str, int]
    folders: Mapping[str, int]


def within_budget(
    cell: Cell, built: BuiltImage, lock: WheelLock, store: Store, wheelhouse: Wheelhouse
) -> BuiltImage | Failed:
    """Return the image if it is within its budget, else a failure with what grew in it."""
    if cell.budget_bytes is None:
        return built
    now: SizeBreakdown | None = None
    with contextlib.suppress(WheelError):  # without its wheels: a reused image needs none
        files = {
            f"{wheel.name}=={wheel.version}": unpacked_files(wheelhouse, wheel, cell.slim)
            for wheel in lock.wheels
        }
        now = breakdown_of(files)
    if built.size_bytes <= cell.budget_bytes:
        if now is not None:
            store.save(cell.id, _NAME, now)
        return built
    # None if of another version: then the largest parts are listed.
    before: SizeBreakdown | None = store.readable(cell.id, _NAME, (SizeBreakdown,))
    size, budget = readable_size(built.size_bytes), readable_size(cell.budget_bytes)
    rows = largest(now, before) if now else ()
    lines = [
        f"{name}: {readable_size(size)}" + (f", {readable_size(more)} more" if before else "")
        for name, size, more in rows
    ]
    lines += ["its wheels are as they were"] if now and not rows else []
    listed = "".join(f"\n    {line}" for line in lines)
    return Failed(
        cell_id=cell.id,
        step="build",
        reason=f"its layers take {size}, and its budget is {budget}{listed}",
        hint=f"take something out, or raise `images: {cell.image}: budget:` in matrix.yaml",
        log=built.log,
        exit_code=BuildFailedError.exit_code,
    )


def breakdown_of(files: Mapping[str, Mapping[str, Measured]]) -> SizeBreakdown:
    """Return sizes from wheel -> path below site-packages -> bytes and digest."""
    wheels, folders = Counter[str](), Counter[str]()
    for name, measured in files.items():
        for path, (size, *_) in measured.items():
            wheels[name] += int(size)
            folders["/".join(path.split("/")[:-1][:_DEPTH]) or "."] += int(size)
    return SizeBreakdown(wheels=dict(wheels), folders=dict(folders))


def largest(now: SizeBreakdown, before: SizeBreakdown | None) -> tuple[tuple[str, int, int], ...]:
    """Return (what, bytes, bytes more than before) of the wheels, then the folders, that grew the
    most; of the largest where nothing is known of before. A wheel is the same in another version.
    """
    return (
        *_ranked(now.wheels, before.wheels if before else None),
        *_ranked(now.folders, before.folders if before else None),
    )


def _ranked(now: Mapping[str, int], before: Mapping[str, int] | None) -> list[tuple[str, int, int]]:
    sizes = Counter[str]()
    for name, size in (before or {}).items():
        sizes[name.partition("==")[0]] += size
    rows = [(name, size, size - sizes[name.partition("==")[0]]) for name, size in now.items()]
    grown = [row for row in rows if row[2] > 0] if before is not None else rows
    return sorted(grown, key=lambda row: (-row[2], row[0]))[:_SHOWN]
