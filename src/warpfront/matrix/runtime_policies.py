"""Rules on an image's environment at run time, dated data: policies by vendor, toolkit, arch and
torch (`data/policies.toml`), and variables that hide devices or change what devices say of
themselves (`data/device-variables.toml`). Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from packaging.specifiers import SpecifierSet

from warpfront.matrix.cell import RuntimePolicy, Toolkit
from warpfront.system.packaged import packaged_toml
from warpfront.system.strict_values import read_as


@cache
def packaged_policies() -> tuple[RuntimePolicy, ...]:
    """Return the policies in this version of warpfront."""
    return read_as(tuple[RuntimePolicy, ...], packaged_toml("policies.toml")["policy"])


def policies_of(
    vendor: str, toolkit: Toolkit | None, targets: tuple[str, ...], torch: str
) -> tuple[RuntimePolicy, ...]:
    """Return the policies that apply to any target of an image."""
    return tuple(
        policy
        for policy in packaged_policies()
        if policy.vendor == vendor
        and (not policy.archs or set(policy.archs) & set(targets))
        and (not policy.toolkit or (toolkit and toolkit.version in _range(policy.toolkit)))
        and (not policy.torch or torch in _range(policy.torch))
    )


def refusals(policies: tuple[RuntimePolicy, ...], name: str, value: str) -> tuple[str, ...]:
    """Why a variable must not have that value, if so."""
    forbidding = (policy for policy in policies if (policy.name, policy.level) == (name, "forbid"))
    return tuple(policy.effect for policy in forbidding if re.search(policy.value, value))


def _range(text: str) -> SpecifierSet:
    return SpecifierSet(text, prereleases=True)


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
    return read_as(tuple[DeviceVariable, ...], packaged_toml("device-variables.toml")["variable"])


def device_fault(
    name: str, value: str, *, vendor: str, targets: tuple[str, ...]
) -> tuple[str, str]:
    """Return why an image for `targets` must not set `name` so, and what to do; "" if fine."""
    for rule in device_variables():
        if vendor not in rule.vendors or not re.fullmatch(rule.name, name):
            continue
        if rule.kind == "arch":
            arch = _arch_of(value, targets, vendor=vendor)
            unlike = ", ".join(target for target in targets if target != arch)
            if not unlike:
                return "", ""
            also = " too" if arch in targets else ""
            why = f"every device says that it is {arch}, and the row is for {unlike}{also}, whose "
            hint = f"take it out of `environment:`, or say `targets: {arch}`"
            hint = f"give {arch} a row of its own" if also else hint
            return f"{why}code it then does not find", hint
        if not (rule.allowed and re.fullmatch(rule.allowed, value)):
            return _EFFECTS[rule.kind], _ON_A_MACHINE
    return "", ""


def _arch_of(value: str, targets: tuple[str, ...], *, vendor: str) -> str:
    """Return the target that a value names (`9.4.2` is gfx942, `9.0` sm_90), or the value."""
    numbers = [int(part) for part in value.split(".") if part.isdecimal()]
    if vendor == "amd" and len(numbers) == 3:
        major, minor, stepping = numbers
        return f"gfx{major}{minor:x}{stepping:x}"
    if vendor == "nvidia" and len(numbers) == 2:
        return f"sm_{numbers[0]}{numbers[1]}"
    bare = value.replace("_", "")
    fits = (target for target in targets if target.replace("_", "") == bare)
    return next(fits, value or "nothing")
