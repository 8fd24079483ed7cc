"""Environment variables that hide devices or change what devices say of themselves: dated data
(`data/device-variables.toml`), and which of it a row may not set. Pure.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from pydantic import TypeAdapter

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
    text = resources.files("warpfront").joinpath("data", "device-variables.toml").read_text("utf-8")
    adapter = TypeAdapter(tuple[DeviceVariable, ...])
    return adapter.validate_python(tomllib.loads(text)["variable"])


def device_fault(
    name: str, value: str, *, vendor: str, targets: tuple[str, ...]
) -> tuple[str, str]:
    """Return why an image for `targets` must not set `name` to `value`, and what to do; twice ""
    where it may.
    """
    for one in device_variables():
        if vendor not in one.vendors or not re.fullmatch(one.name, name):
            continue
        if one.kind == "arch":
            return _arch_fault(_arch_of(value, targets, vendor=vendor), targets)
        if not (one.allowed and re.fullmatch(one.allowed, value)):
            return _EFFECTS[one.kind], _ON_A_MACHINE
    return "", ""


def _arch_fault(arch: str, targets: tuple[str, ...]) -> tuple[str, str]:
    others = [target for target in targets if target != arch]
    if not others:
        return "", ""
    why = (
        f"every device says that it is {arch}, and the row is for {', '.join(others)} too, whose "
        "code it then does not find"
    )
    if arch in targets:
        return why, f"give {arch} a row of its own"
    return why.replace(" too", ""), f"take it out of `environment:`, or say `targets: {arch}`"


def _arch_of(value: str, targets: tuple[str, ...], *, vendor: str) -> str:
    """Return the target that a value names (`9.4.2` is gfx942, `9.0` sm_90), or the value."""
    numbers = [int(one) for one in value.split(".") if one.isdecimal()]
    if vendor == "amd" and len(numbers) == 3:
        major, minor, stepping = numbers
        return f"gfx{major}{minor:x}{stepping:x}"
    if vendor == "nvidia" and len(numbers) == 2:
        return f"sm_{numbers[0]}{numbers[1]}"
    bare = value.replace("_", "")
    return next((one for one in targets if one.replace("_", "") == bare), value or "nothing")
