"""Unmet requirements, JSON in and out: `python -m warpfront_checks.closure`.

Requirements are evaluated only in this module, by `packaging`, which an image need not have: it is
in the toolbox with nox. So this is a process of its own. It alone has the toolbox on its path, and
it reads only the JSON. The installed distributions were read by a process that sees exactly the
image's own packages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from warpfront_checks.distributions import Conflicts

_UNREADABLE = (
    InvalidRequirement,
    InvalidVersion,
    UndefinedComparison,
    UndefinedEnvironmentName,
    # A marker of hundreds of parentheses, one in another.
    RecursionError,
)


def judge_closure(
    versions: Mapping[str, str], requirements: Mapping[str, Iterable[str]], roots: Iterable[str]
) -> Conflicts:
    """Judge everything reachable from `roots`, extras followed. Names are normalised."""
    conflicts, unread = [], []
    pending = [(canonicalize_name(root), frozenset[str]()) for root in roots]
    visited: set[tuple[str, frozenset[str]]] = set()
    while pending:
        name, extras = pending.pop()
        if (name, extras) in visited or name not in versions:
            continue
        visited.add((name, extras))
        for line in requirements.get(name, ()):
            try:
                requirement = _applying(line, extras)
                if requirement is None:
                    continue
                required = canonicalize_name(requirement.name)
                if fault := _unmet(requirement, versions.get(required)):
                    conflicts.append(f"{name} requires {line}, {fault}")
                pending.append((required, frozenset(map(canonicalize_name, requirement.extras))))
            except _UNREADABLE as error:
                unread.append(f"{name} requires {line}: cannot read {error}")
    return Conflicts(
        conflicts=tuple(dict.fromkeys(conflicts)),
        unread=tuple(dict.fromkeys(unread)),
        checked=tuple(sorted({name for name, _ in visited})),
    )


def _applying(line: str, extras: Iterable[str]) -> Requirement | None:
    """Return the requirement, if its marker applies. A URL gives no version to compare."""
    requirement = Requirement(line)
    if requirement.url:
        raise InvalidRequirement(f"the URL {requirement.url}")
    marker = requirement.marker
    holds = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))
    return requirement if holds else None


def _unmet(requirement: Requirement, version: str | None) -> str:
    if version is None:
        return "which is not installed"
    fits = requirement.specifier.contains(version, prereleases=True)
    return "" if fits else f"but {canonicalize_name(requirement.name)} is {version}"


def main() -> int:
    json.dump(asdict(judge_closure(**json.load(sys.stdin))), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
