"""The index of each distribution: the rule of a resolution and of reading a lock. Words.

An index is a level of trust. Any publisher on one of them could publish any name there, so a name
of one index is never taken from another, whatever version that has: docs/security.md.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from warpfront.wheels.lock.values import LockedWheel, LockInputs

PYPI = "https://pypi.org/simple"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRule:
    """The index that a name belongs to. `alone` = it comes from there or not at all; else the
    site's indexes may have it where this one does not know the name.
    """

    url: str
    alone: bool


def index_rule(name: str, inputs: LockInputs) -> IndexRule | None:
    """Return the index of a distribution; None if any of the site's indexes will do."""
    if inputs.index is not None and (
        name in stack_names(inputs) or matches(name, inputs.protected)
    ):
        return IndexRule(url=inputs.index.url, alone=True)
    for index in inputs.own_indexes:
        if matches(name, index.packages):
            return IndexRule(url=index.url, alone=True)
    if inputs.index is not None and matches(name, inputs.libraries):
        return IndexRule(url=inputs.index.url, alone=False)
    return None


def known_names(inputs: LockInputs) -> tuple[str, ...]:
    """Return names of one index that are known before resolving."""
    patterns = (
        *inputs.protected,
        *(package for index in inputs.own_indexes for package in index.packages),
    )
    names = {*stack_names(inputs), *(pattern for pattern in patterns if "*" not in pattern)}
    return tuple(sorted(name for name in names if index_rule(name, inputs)))


def misplaced(wheels: Iterable[LockedWheel], inputs: LockInputs) -> str:
    """Return the first wheel from another index than its own, in words; "" for none."""
    shared = dict.fromkeys((*((inputs.index.url,) if inputs.index else ()), PYPI))
    for wheel in wheels:
        if wheel.source:
            continue
        if inputs.index is None and matches(wheel.name, inputs.protected):
            return f"{wheel.name} from {wheel.index}, and the base has its own"
        rule = index_rule(wheel.name, inputs)
        allowed = [rule.url] if rule and rule.alone else list(shared)
        if wheel.index not in allowed:
            return f"{wheel.name} from {wheel.index}, which belongs to {' or '.join(allowed)}"
    return ""


def stack_names(inputs: LockInputs) -> frozenset[str]:
    """Return the names that the matrix pins."""
    return frozenset(map(_name_of, inputs.stack_requirements))


@functools.cache  # called for every wheel of every lock, with a handful of requirements
def _name_of(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
