"""Defects of torch itself, which no image is at fault for: `known_defects.json` has them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from typing import Any

from warpfront_checks.documents import Reader, packaged
from warpfront_checks.hardware.machine_reader import Machine
from warpfront_checks.hardware.values import read_features

NO_AXES: Mapping[str, object] = {}
_READER = Reader(error=ValueError, lenient=True)


@dataclass(frozen=True)
class KnownDefect:
    """A wrong result of torch's own kernels, by a public thread: of labels that match, on a device
    ("any": the CPU's result is every device's reference), in torch before a version, or (None) in
    each so far. Results name it; it fails no image.

    `cpu` is the flag of /proc/cpuinfo without which the defect is not there.
    `where` has the values of axes that the defect needs, as texts; `sizes` is an expression of the
    lengths of axes, in which one that the call does not have is 1. An `unsafe` one writes to other
    memory or ends the process: such cases are counted and not run.
    """

    thread: str
    device: str
    _: KW_ONLY
    before: tuple[int, int] | None = None
    label: str = ""
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sizes: str = ""
    cpu: str = ""
    unsafe: bool = False

    def affects(self, axes: Mapping[str, object], device: str) -> bool:
        """Return whether this torch has the defect on a device, with these values of axes."""
        import torch  # noqa: PLC0415 - the host explains cases without it

        major, minor = torch.__version__.split(".")[:2]
        older = self.before is None or (int(major), int(minor)) < self.before
        needed = all(str(axes.get(axis)) in values for axis, values in self.where.items())
        named: Any = axes.get("lengths") or {}
        lengths = defaultdict(lambda: 1, named)
        sized = not self.sizes or (lengths and eval(self.sizes, {}, lengths))  # noqa: S307
        able = not self.cpu or self.cpu in _features()
        return bool(needed and older and sized and able) and self.device in {device, "any"}


@cache
def _features() -> tuple[str, ...]:
    return read_features(Machine())


def defects_of(operation: str) -> tuple[KnownDefect, ...]:
    """Return the known defects of an operation or a row, by its name."""
    return tuple(
        _READER.record(KnownDefect, {**row, "where": where}, row["thread"])
        for row in packaged("cases/known_defects.json")["defects"]
        if re.fullmatch(row["operations"], operation)
        for where in row.get("where", [{}])
    )


def thread_of(
    defects: Sequence[KnownDefect], label: str, device: str, axes: Mapping[str, object] = NO_AXES
) -> str:
    """Return the thread of the defect that a fault with this label shows, or nothing."""
    safe = (defect for defect in defects if not defect.unsafe and defect.affects(axes, device))
    return next((defect.thread for defect in safe if re.search(defect.label, label)), "")


def preventing_thread(
    defects: Sequence[KnownDefect], device: str, axes: Mapping[str, object]
) -> str:
    """Return the thread of the defect for which a case must not run, or nothing."""
    unsafe = (defect for defect in defects if defect.unsafe)
    return next((defect.thread for defect in unsafe if defect.affects(axes, device)), "")
