"""Environment variables that hide devices or change what devices say of themselves: dated data
(`data/device-variables.toml`), and which of it a row may not set. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pydantic import TypeAdapter

from warpfront.system.packaged import packaged_toml

_EFFECTS = {
    "hides": "hides devices of whichever machine runs the image",
    "fakes": "has something that is no device answer for one",
    "code": "has other code run than what the image holds for its targets",
}
_ON_A_MACHINE = "take it out of `environment:`; who runs the image sets it there (`docker run -e`)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceVariable:
    """A variable, by a pattern of its name, and what values outside `allowed` do to devices."""

    name: str
    vendors: tuple[str, ...]
    kind: Literal["arch", "hides", "fakes", "code"]
    source: str
    dated: str
    allowed: str = ""


@cache
def device_variables() -> tuple[DeviceVariable, ...]:
    """Return all that this version of warpfront was released with."""
    rows = packaged_toml("device-variables.toml")["variable"]
    return TypeAdapter(tuple[DeviceVariable, ...]).validate_python(rows)


def device_fault(
    name: str, value: str, *, vendor: str, targets: tuple[str, ...]
) -> tuple[str, str]:
    """Return why an image for `targets` must not set `name` to `value`, and what to do; twice ""
    where it may.
    """
    for device_variable in device_variables():
        if vendor not in device_variable.vendors or not re.fullmatch(device_variable.name, name):
            continue
        if device_variable.kind == "arch":
            return _arch_fault(_arch_of(value, targets, vendor=vendor), targets)
        if not (device_variable.allowed and re.fullmatch(device_variable.allowed, value)):
            return _EFFECTS[device_variable.kind], _ON_A_MACHINE
    return "", ""


def _arch_fault(arch: str, targets: tuple[str, ...]) -> tuple[str, str]:
    unlike = [target for target in targets if target != arch]
    if not unlike:
        return "", ""
    why = (
        f"every device says that it is {arch}, and the row is for {', '.join(unlike)} too, whose "
        "code it then does not find"
    )
    if arch in targets:
        return why, f"give {arch} a row of its own"
    return why.replace(" too", ""), f"take it out of `environment:`, or say `targets: {arch}`"


def _arch_of(value: str, targets: tuple[str, ...], *, vendor: str) -> str:
    """Return the target that a value names (`9.4.2` is gfx942, `9.0` sm_90), or the value."""
    numbers = [int(part) for part in value.split(".") if part.isdecimal()]
    if vendor == "amd" and len(numbers) == 3:
        major, minor, stepping = numbers
        return f"gfx{major}{minor:x}{stepping:x}"
    if vendor == "nvidia" and len(numbers) == 2:
        return f"sm_{numbers[0]}{numbers[1]}"
    bare = value.replace("_", "")
    return next(
        (target for target in targets if target.replace("_", "") == bare), value or "nothing"
    )
