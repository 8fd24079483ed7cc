"""Defects of torch itself, which no image is at fault for."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class KnownDefect:
    """A wrong result of torch's own kernels, by a public thread: of labels that match, on a device,
    in torch before a version, or (None) in each so far. Results name it; it fails no image.
    """

    thread: str
    label: str
    device: str
    before: tuple[int, int] | None

    def covers(self, label: str, device: str, version: tuple[int, int]) -> bool:
        affected = device == self.device and (self.before is None or version < self.before)
        return affected and re.search(self.label, label) is not None
