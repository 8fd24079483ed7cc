"""What a scan is for: one target, and the classes of devices it belongs to. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warpfront.errors import NothingSelectedError

_GFX = re.compile(r"gfx(?P<generation>9|1[0-2])[0-9a-f]{2}\Z")
_GAUDI = re.compile(r"(?:gaudi[0-9]?|hpu)\Z")
CLASSES = ("rocm", "wave64", "wave32", "gfx9", "gfx10", "gfx11", "gfx12", "hpu", "cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTarget:
    """`name` as asked for (`gfx942`); `classes` from the narrowest to the widest (`gfx942`,
    `gfx9`, `wave64`, `rocm`): the first one that a rule has a severity for decides.
    """

    name: str
    classes: tuple[str, ...]

    @property
    def is_rocm(self) -> bool:
        return "rocm" in self.classes


def read_target(name: str) -> ScanTarget:
    """The target that `name` means: `gfx942`, `gaudi3`, `hpu`, `cpu`. Raises
    `NothingSelectedError`: there is nothing to find for `sm_90`, the code was written for it.
    """
    gfx = _GFX.match(name)
    if gfx is not None:
        generation = f"gfx{gfx['generation']}"
        lanes = "wave64" if generation == "gfx9" else "wave32"
        return ScanTarget(name=name, classes=(name, generation, lanes, "rocm"))
    if _GAUDI.match(name):
        return ScanTarget(name=name, classes=tuple(dict.fromkeys((name, "hpu"))))
    if name == "cpu":
        return ScanTarget(name=name, classes=("cpu",))
    raise NothingSelectedError(
        f"no rules for target {name!r}",
        hint="scan for gfx942, gfx950, gfx90a, gfx1100 ..., gaudi3 or hpu, or cpu",
    )


def has_rules(name: str) -> bool:
    """Whether there is anything to find for a target: `sm_90` is what the code was written for."""
    return name == "cpu" or bool(_GFX.match(name) or _GAUDI.match(name))
