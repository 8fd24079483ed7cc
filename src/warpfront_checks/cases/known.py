"""Defects of torch itself, which no image is at fault for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class KnownDefect:
    """A wrong result of torch's own kernels, by a public thread: of labels that match, on a device,
    in torch before a version, or (None) in each so far. Results name it; it fails no image.

    `where` has the values of axes that the defect needs. An `unsafe` one writes to other memory or
    ends the process: such cases are counted and not run.
    """

    thread: str
    device: str
    before: tuple[int, int] | None = None
    label: str = ""
    where: Mapping[str, Sequence[object]] = field(default_factory=dict)
    unsafe: bool = False

    def covers(
        self,
        label: str,
        device: str,
        version: tuple[int, int],
        axes: Mapping[str, object] | None = None,
    ) -> bool:
        """Return whether a fault is this defect."""
        matched = re.search(self.label, label) is not None
        return not self.unsafe and matched and self._affects(axes or {}, device, version)

    def prevents(self, axes: Mapping[str, object], device: str, version: tuple[int, int]) -> bool:
        """Return whether a case with these values of axes must not run."""
        return self.unsafe and self._affects(axes, device, version)

    def _affects(self, axes: Mapping[str, object], device: str, version: tuple[int, int]) -> bool:
        needed = all(axes.get(axis) in values for axis, values in self.where.items())
        return needed and device == self.device and (self.before is None or version < self.before)
