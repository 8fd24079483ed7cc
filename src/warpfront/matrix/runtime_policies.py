"""Rules on an image's environment at run time, by vendor, toolkit, arch and torch: dated data
(`data/policies.toml`), and their selection. Pure.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources

from packaging.specifiers import SpecifierSet
from pydantic import TypeAdapter

from warpfront.matrix.cell import RuntimePolicy, Toolkit


@cache
def packaged_policies() -> tuple[RuntimePolicy, ...]:
    """Return the policies in this version of warpfront."""
    file = resources.files("warpfront").joinpath("data", "policies.toml")
    return read_policies(file.read_text(encoding="utf-8"))


def read_policies(text: str) -> tuple[RuntimePolicy, ...]:
    """Raises `ValueError` for what is no policy."""
    return TypeAdapter(tuple[RuntimePolicy, ...]).validate_python(tomllib.loads(text)["policy"])


def policies_of(
    vendor: str, toolkit: Toolkit | None, targets: tuple[str, ...], torch: str
) -> tuple[RuntimePolicy, ...]:
    """Return the policies that apply to any target of an image."""
    return tuple(
        one
        for one in packaged_policies()
        if one.vendor == vendor
        and (not one.archs or set(one.archs) & set(targets))
        and (not one.toolkit or (toolkit is not None and toolkit.version in _range(one.toolkit)))
        and (not one.torch or torch in _range(one.torch))
    )


def environment_of(policies: tuple[RuntimePolicy, ...]) -> dict[str, str]:
    return {one.name: one.value for one in policies if one.level == "set"}


def refusals(policies: tuple[RuntimePolicy, ...], name: str, value: str) -> tuple[str, ...]:
    """Why a variable must not have that value, if so."""
    return tuple(
        one.effect
        for one in policies
        if one.level == "forbid" and one.name == name and re.search(one.value, value)
    )


def _range(text: str) -> SpecifierSet:
    return SpecifierSet(text, prereleases=True)
