"""The target of a scan, and the classes of devices it belongs to. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warpfront.errors import NothingSelectedError, UndeterminedError
from warpfront.matrix.products import target_of_product
from warpfront.matrix.vendors import VENDORS

_GFX = re.compile(r"gfx(?P<generation>9|1[0-2])[0-9a-f]{2}\Z")
_GAUDI = re.compile(r"(?:gaudi[0-9]?|hpu)\Z")
_RELEASES = ("rocm5", "rocm6", "rocm7")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTarget:
    """A target by the `name` of the request (`gfx942`).

    `classes` run from the narrowest to the widest (`gfx942`, `gfx9`, `wave64`, `rocm`). The first
    with a severity in a rule decides.
    """

    name: str
    classes: tuple[str, ...]

    @property
    def is_rocm(self) -> bool:
        return "rocm" in self.classes

    @property
    def release(self) -> str:
        """Return the release of ROCm of the target, or the newest with rules: `rocm7`."""
        return next((name for name in self.classes if name in _RELEASES), _RELEASES[-1])


def read_target(name: str, toolkit: str = "") -> ScanTarget:
    """Return the target that `name` means: `gfx942`, `gaudi3`, `hpu`, `cpu`.

    `toolkit` is its version of ROCm, where that is known. Raises `NothingSelectedError` for
    `sm_90`, which the code was written for, and for an unknown target. Raises `UndeterminedError`
    for a vendor's target without rules.
    """
    gfx = _GFX.match(name)
    if gfx is not None:
        generation = f"gfx{gfx['generation']}"
        lanes = "wave64" if generation == "gfx9" else "wave32"
        release = f"rocm{toolkit.removeprefix('rocm').partition('.')[0]}" if toolkit else ""
        if release not in ("", *_RELEASES):
            raise NothingSelectedError(
                f"no rules for ROCm {toolkit!r}",
                hint="--toolkit is a version of ROCm: 5.7, 6.4, 7.0",
            )
        classes = (name, generation, lanes, *filter(None, [release]), "rocm")
        return ScanTarget(name=name, classes=classes)
    if _GAUDI.match(name):
        return ScanTarget(name=name, classes=tuple(dict.fromkeys((name, "hpu"))))
    if name == "cpu":
        return ScanTarget(name=name, classes=("cpu",))
    if product := target_of_product(name):
        raise NothingSelectedError(f"no target {name!r}", hint=f"{name} is {product}")
    hint = "scan for gfx942, gfx950, gfx90a, gfx1100 ..., gaudi3 or hpu, or cpu"
    vendor = next((vendor.name for vendor in VENDORS.values() if vendor.accepts_target(name)), "")
    if vendor and vendor != "nvidia":
        raise UndeterminedError(
            f"not determined: no rules for {vendor} targets ({name})", hint=hint
        )
    raise NothingSelectedError(f"no rules for target {name!r}", hint=hint)


def has_rules(name: str) -> bool:
    """Return true if any rule applies to a target. The code was written for `sm_90`: none does."""
    return name == "cpu" or bool(_GFX.match(name) or _GAUDI.match(name))
