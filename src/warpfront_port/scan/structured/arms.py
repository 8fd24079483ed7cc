"""Arms of a build file's conditions, and the sides that reach them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from warpfront_port.scan.findings import SIDES, Side

_AMD = re.compile(r"(?i)(?:^|_|\b)(?:USE_|ENABLE_|WITH_|BUILD_|GPU_)?(?:ROCM|HIP|AMD(?!64)|HIPCC)")
_NVIDIA = re.compile(r"(?i)CUDA|NVIDIA|NVCC|CUDNN")
_HIP_ON_NVIDIA = re.compile(r"(?i)HIP_PLATFORM\W*\s+(?:STREQUAL|MATCHES)\s+\W*(?:nvcc|nvidia)")
_FALSE = frozenset({"FALSE", "OFF", "NO", "N", "0"})


@dataclass(slots=True, kw_only=True)
class _Arm:
    sides: frozenset[Side] = frozenset(SIDES)
    left: frozenset[Side] = frozenset(SIDES)


@dataclass(slots=True)
class Arms:
    """The open conditions at a place of a build file, the outermost first."""

    _open: list[_Arm] = field(default_factory=list)

    @property
    def sides(self) -> frozenset[Side]:
        """Return the sides that reach this place."""
        return frozenset(SIDES).intersection(*(arm.sides for arm in self._open))

    @property
    def conditional(self) -> bool:
        """Return true inside any condition."""
        return bool(self._open)

    def open(self, condition: str, *, negated: bool = False) -> None:
        """Open a condition."""
        self._open.append(_Arm())
        self.next(condition, negated=negated)

    def next(self, condition: str = "", *, negated: bool = False) -> None:
        """Go to the next arm of the innermost condition; without a condition, to its last."""
        if self._open and condition:
            _narrow(self._open[-1], condition, negated=negated)
        elif self._open:
            self._open[-1].sides = self._open[-1].left

    def close(self) -> None:
        """Close the innermost condition."""
        self._open[-1:] = []


def _narrow(arm: _Arm, condition: str, *, negated: bool) -> None:
    """Set the sides that reach the arm with this condition, and those that reach later arms."""
    both = " OR " in condition or " AND " in condition
    sides: frozenset[Side] | None = None
    if _HIP_ON_NVIDIA.search(condition):
        condition = "NVIDIA"
    if condition in _FALSE:
        sides = frozenset()
    elif _AMD.search(condition) and not _NVIDIA.search(condition):
        sides = frozenset({"amd"})
    elif _NVIDIA.search(condition) and not _AMD.search(condition):
        sides = frozenset({"nvidia"})
    if sides is None:
        arm.sides = arm.left
        return
    reached = frozenset(SIDES) - sides if negated else sides
    arm.sides = arm.left & reached
    if not both:
        arm.left = arm.left - reached
