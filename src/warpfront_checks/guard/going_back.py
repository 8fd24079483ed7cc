"""The silent go-back of a resolver. If the newest release of a package does not go with the
stack, pip and uv look for an older one, find one from years ago, and succeed. The guard reports it,
and stops it past a few releases, before gigabytes are fetched for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from .policy import Policy, normalized
from .requires_dist import Requirement, UnreadableError, read_requirement, sort_key

# Releases of one package that do not go with the stack, one after another, before it is stopped:
# one step back is what a resolver is for.
STOPS_AT = 3
GO_ON = "WARPFRONT_GUARD_OLDER"
_SELECTED = re.compile(r"DEBUG Selecting: (?P<name>\S+?)==(?P<version>\S+) \[", re.MULTILINE)
_DEPENDS = re.compile(
    r"DEBUG Adding transitive dependency for (?P<who>\S+?)==(?P<version>[^\s:]+): (?P<what>.+)$"
)
_INSTALLS = re.compile(r"^ \+ (?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)", re.MULTILINE)
# uv writes `==1.2` as `>=1.2, <1.2+`, and markers in braces.
_EQUAL = re.compile(r">=(?P<version>[^\s,]+), <(?P=version)\+")


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release that a resolver looked at; `wants` is what the stack does not meet, if any."""

    name: str
    version: str
    wants: str = ""
    demands: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Releases:
    """The releases that a resolver looked at, in its order."""

    policy: Policy
    seen: dict[str, dict[str, Release]] = field(default_factory=dict)

    def add(self, name: str, number: str, demands: Iterable[str]) -> Release:
        demands = tuple(demands)
        wants = next((one for one in demands if not goes_with(one, self.policy)), "")
        release = Release(name=normalized(name), version=number, wants=wants, demands=demands)
        return self.seen.setdefault(release.name, {}).setdefault(number, release)

    def blocked(self, name: str) -> list[Release]:
        """Return the releases of a package that do not go with the stack, the newest first."""
        found = [one for one in self.seen.get(normalized(name), {}).values() if one.wants]
        return sorted(found, key=lambda one: _order(one.version), reverse=True)

    def gone_back(self, name: str, number: str) -> list[Release]:
        """Return the refused releases newer than this one, which is considered because of them."""
        ours = _order(number)
        return [one for one in self.blocked(name) if _order(one.version) > ours]

    def asker_of(self, need: Requirement) -> str:
        """Return a considered release that names other versions of a need than installed."""
        for one in (one for of_name in self.seen.values() for one in of_name.values()):
            for line in one.demands:
                wanted = _named(line, need.name)
                if wanted and wanted.specifiers and wanted.specifiers != need.specifiers:
                    return f"{one.name} {one.version}"
        return ""


def _named(line: str, name: str) -> Requirement | None:
    try:
        wanted = read_requirement(line)
    except UnreadableError:
        return None
    return wanted if wanted.name == name else None


def goes_with(line: str, policy: Policy) -> bool:
    """Return whether a package's requirements can be met with the stack as it is."""
    try:
        wanted = read_requirement(line)
        if not wanted.applies():
            return True
        return _is_met(wanted, policy)
    except UnreadableError:
        return True


def _is_met(wanted: Requirement, policy: Policy) -> bool:
    if wanted.name in policy.forbidden():
        return False
    is_need = wanted.name in policy.needed()
    held = policy.pinned().get(wanted.name) or (_version(wanted.name) if is_need else None)
    if held is None:
        return True
    there = wanted.name not in policy.companions or _version(wanted.name) == held
    return there and wanted.accepts(held)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _order(number: str) -> tuple[object, ...]:
    try:
        return sort_key(number)
    except UnreadableError:
        return ()


def may_go_on(environment: Mapping[str, str] = os.environ) -> bool:
    return bool(environment.get(GO_ON))


def read_uv_log(text: str, policy: Policy) -> tuple[Releases, dict[str, str]]:
    """Return the releases that uv's debugging log names, and the version chosen of each package."""
    demands: dict[tuple[str, str], list[str]] = {}
    chosen: dict[str, str] = {}
    for line in text.splitlines():
        if found := _SELECTED.search(line):
            chosen[found["name"]] = found["version"]
            demands.setdefault((found["name"], found["version"]), [])
        elif found := _DEPENDS.search(line):
            key = (found["who"].partition("[")[0], found["version"])
            demands.setdefault(key, []).append(_as_requirement(found["what"]))
    releases = Releases(policy=policy)
    for (name, number), asked in demands.items():
        releases.add(name, number, asked)
    return releases, chosen


def read_installs(text: str) -> dict[str, str]:
    """Return name -> version of the packages that uv would install, by its dry run."""
    return {normalized(found["name"]): found["version"] for found in _INSTALLS.finditer(text)}


def _as_requirement(what: str) -> str:
    """Return the text as a requirement; "" for alternatives (`|`), which no package of ours has."""
    what = _EQUAL.sub(r"==\g<version>", re.sub(r"\{[^}]*\}", "", what)).strip()
    return what.removesuffix("*") if "|" not in what else ""
