"""Rules on an image's environment at run time, by vendor, toolkit, arch and torch: dated data
(`data/policies.toml`), and their selection. Pure.
"""

from __future__ import annotations

import re
from functools import cache

from packaging.specifiers import SpecifierSet
from pydantic import TypeAdapter

from warpfront.matrix.cell import RuntimePolicy, Toolkit
from warpfront.system.packaged import packaged_toml


@cache
def packaged_policies() -> tuple[RuntimePolicy, ...]:
    """Return the policies in this version of warpfront."""
    rows = packaged_toml("policies.toml")["policy"]
    return TypeAdapter(tuple[RuntimePolicy, ...]).validate_python(rows)


def policies_of(
    vendor: str, toolkit: Toolkit | None, targets: tuple[str, ...], torch: str
) -> tuple[RuntimePolicy, ...]:
    """Return the policies that apply to any target of an image."""
    return tuple(
        runtime_policy
        for runtime_policy in packaged_policies()
        if runtime_policy.vendor == vendor
        and (not runtime_policy.archs or set(runtime_policy.archs) & set(targets))
        and (
            not runtime_policy.toolkit
            or (toolkit is not None and toolkit.version in _range(runtime_policy.toolkit))
        )
        and (not runtime_policy.torch or torch in _range(runtime_policy.torch))
    )


def environment_of(policies: tuple[RuntimePolicy, ...]) -> dict[str, str]:
    return {policy.name: policy.value for policy in policies if policy.level == "set"}


def refusals(policies: tuple[RuntimePolicy, ...], name: str, value: str) -> tuple[str, ...]:
    """Why a variable must not have that value, if so."""
    return tuple(
        policy.effect
        for policy in policies
        if policy.level == "forbid" and policy.name == name and re.search(policy.value, value)
    )


def _range(text: str) -> SpecifierSet:
    return SpecifierSet(text, prereleases=True)
