"""Needs of the sealed distributions, read from their own metadata: an install that brings a
typing-extensions that torch cannot be imported with has changed torch, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from .measuring import Installed, versions_of
from .policy import Policy, Problems
from .requires_dist import Requirement, UnreadableError, meets, read_requirement


def needs_of(installed: Installed, names: Iterable[str]) -> dict[str, str]:
    """Return name -> specifier: what `names` together accept of each that they ask for here."""
    specifiers: dict[str, set[str]] = {}
    for name in names:
        for requirement in _requirements(installed, name):
            for operator, version in requirement.specifiers:
                specifiers.setdefault(requirement.name, set()).add(operator + version)
    return {name: ",".join(sorted(specifiers[name])) for name in sorted(specifiers)}


def met_needs(policy: Policy, installed: Installed) -> dict[str, str]:
    """Return name -> installed version of the needs that it meets, to be known at an import."""
    return {
        name: version
        for name, accepted in policy.needs.items()
        for version in versions_of(installed, name)[:1]
        if meets(name + accepted, version, unknown=False)
    }


def need_problems(policy: Policy, installed: Installed, names: Iterable[str]) -> Problems:
    """Return (distribution, fault) for each that `names`, or their needs in turn, cannot work
    with. A resolver with other instructions brought it, or it was removed.
    """
    sealed = set(names)
    waiting = sorted(sealed)
    seen = set(waiting)
    for asker in waiting:  # grows
        for need in _requirements(installed, asker):
            problem = _problem(need, installed)
            if problem and need.name not in sealed and not policy.is_relaxed(need.name):
                versions = ",".join(operator + version for operator, version in need.specifiers)
                yield need.name, f"{problem}; {asker} needs {need.name}{versions}"
            if need.name not in seen:
                seen.add(need.name)
                waiting.append(need.name)


def _requirements(installed: Installed, name: str) -> Iterator[Requirement]:
    """Return what applies here without extras. Unreadable lines count as nothing, as for pip."""
    for distribution in installed.get(name, [])[:1]:
        for line in distribution.requires or ():
            with contextlib.suppress(UnreadableError):
                requirement = read_requirement(line)
                if requirement.applies():
                    yield requirement


def _problem(requirement: Requirement, installed: Installed) -> str:
    """Return the fault of a need. Of several installed versions any may be the real one: an
    installer of another kind, such as conda, overwrites the files and not the metadata.
    """
    versions = versions_of(installed, requirement.name)
    version = ""
    try:
        for version in versions:
            if not requirement.accepts(version):
                return f"{version} is installed"
    except UnreadableError:
        return f"{version} is installed, which is no version"
    return "" if versions else "not installed"
