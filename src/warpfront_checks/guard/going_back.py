"""The silent go-back of a resolver. If the newest release of a package does not go with the
stack, pip and uv look for an older one, find one from years ago, and succeed. The guard reports it,
and stops it past a few releases, before gigabytes are fetched for it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
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
        wants = next((demand for demand in demands if not goes_with(demand, self.policy)), "")
        release = Release(name=normalized(name), version=number, wants=wants, demands=demands)
        return self.seen.setdefault(release.name, {}).setdefault(number, release)

    def gone_back(self, name: str, number: str) -> list[Release]:
        """Return the releases that do not go with the stack and are newer than this one, which is
        considered because of them; the newest first.
        """
        releases, ours = self.seen.get(normalized(name), {}).values(), _order(number)
        newer = [each for each in releases if each.wants and _order(each.version) > ours]
        return sorted(newer, key=lambda release: _order(release.version), reverse=True)

    def asker_of(self, need: Requirement) -> str:
        """Return a considered release that names other versions of a need than installed."""
        for release in (release for of_name in self.seen.values() for release in of_name.values()):
            for line in release.demands:
                with contextlib.suppress(UnreadableError):
                    named = read_requirement(line)
                    if named.name == need.name and named.specifiers not in ((), need.specifiers):
                        return f"{release.name} {release.version}"
        return ""


def goes_with(line: str, policy: Policy) -> bool:
    """Return whether a package's requirements can be met with the stack as it is."""
    try:
        need = read_requirement(line)
        if not need.applies():
            return True
        if need.name in policy.forbidden():
            return False
        is_need = need.name in policy.needed()
        pinned = policy.pinned().get(need.name) or (_version(need.name) if is_need else None)
        is_absent = need.name in policy.companions and _version(need.name) != pinned
        return pinned is None or (not is_absent and need.accepts(pinned))
    except UnreadableError:
        return True


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


def read_uv_log(text: str, policy: Policy) -> tuple[Releases, dict[str, str]]:
    """Return the releases that uv's debugging log names, and the version chosen of each package."""
    demands: dict[tuple[str, str], list[str]] = {}
    chosen: dict[str, str] = {}
    for line in text.splitlines():
        if match := _SELECTED.search(line):
            chosen[match["name"]] = match["version"]
            demands.setdefault((match["name"], match["version"]), [])
        elif match := _DEPENDS.search(line):
            key = (match["who"].partition("[")[0], match["version"])
            text = _EQUAL.sub(r"==\g<version>", re.sub(r"\{[^}]*\}", "", match["what"])).strip()
            # Alternatives (`|`) are none of any package of ours.
            demands.setdefault(key, []).append(text.removesuffix("*") if "|" not in text else "")
    releases = Releases(policy=policy)
    for (name, number), dependencies in demands.items():
        releases.add(name, number, dependencies)
    return releases, chosen


def read_installs(text: str) -> dict[str, str]:
    """Return name -> version of the packages that uv would install, by its dry run."""
    return {normalized(match["name"]): match["version"] for match in _INSTALLS.finditer(text)}
