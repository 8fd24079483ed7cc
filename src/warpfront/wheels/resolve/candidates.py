"""The versions of a distribution that each source of a site offers, and which it hides. Edge."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from warpfront.errors import without_secrets
from warpfront.wheels.metadata import read_file_names
from warpfront.wheels.sources import Link, Site, files_of, local_path

if TYPE_CHECKING:
    from warpfront.wheels.transport import Transport


Offered = Mapping[str, Collection[Version]]
"""The versions of one distribution by source, in the order in which uv tries the sources."""


def why_hidden(requirement: Requirement, offered: Offered) -> str:
    """Return why uv does not see the versions that meet `requirement`: an earlier source has the
    name, in other versions. "" where uv and pip see the same.
    """
    first = ""
    for source, versions in offered.items() if requirement.specifier else ():
        fitting = sorted(requirement.specifier.filter(versions))
        if first and fitting:
            hidden = f"{requirement.name} {fitting[-1]} of {source}"
            return f"{first}, which hides {hidden} from uv (first index); pip takes it"
        if fitting:
            return ""
        if not first and versions:
            first = f"{source} has {requirement.name} up to {max(versions)}"
    return ""


def why_no_candidate(requirement: Requirement, offered: Offered) -> str:
    """Return why no source offers what meets `requirement`; "" where one does."""
    if any(any(requirement.specifier.filter(versions)) for versions in offered.values()):
        return ""
    newest = max(
        ((max(versions), source) for source, versions in offered.items() if versions), default=None
    )
    if newest is None:
        return f"no index has a package {requirement.name}"
    text = f"{requirement.name}{requirement.specifier}"
    return f"no index has {text}: the newest is {newest[0]}, at {newest[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderRelease:
    """The newest release of a distribution that has a module which its newer ones lack. `below` is
    the first of these; `link` its wheel, `source` where it is offered.
    """

    version: Version
    below: Version
    link: Link
    source: str


def release_with_module(
    name: str,
    module: str,
    below: Version,
    accepted: SpecifierSet,
    *,
    site: Site,
    transport: Transport,
) -> OlderRelease | None:
    """Return the newest `accepted` release before `below` whose wheel has `module` (a dotted
    name), by the directories of the wheels; None where none has it. A module that was removed is
    taken not to come back, so that few wheels are looked into.
    """
    offered: dict[Version, tuple[Link, str]] = {}
    for source, flat in site.sources:
        for file, link in files_of(source, name, transport, flat=flat):
            is_older = file.version < below and not file.version.is_prerelease
            if is_older and file.tags and accepted.contains(file.version):
                offered.setdefault(file.version, (link, without_secrets(source)))
    versions = sorted(offered)

    def has(version: Version) -> bool:
        link = offered[version][0]
        names = read_file_names(local_path(link.url) or link.url, transport)
        return names is not None and _has_module(names, module)

    # Back from the newest in growing steps to one that has it, then between the two.
    without, index, step = len(versions), len(versions) - 1, 1
    while index >= 0 and not has(versions[index]):
        without, index, step = index, index - step, step * 2
    if index < 0:
        return None
    low, high = index + 1, without
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if has(versions[middle]) else (low, middle)
    version = versions[low - 1]
    link, source = offered[version]
    first = versions[low] if low < len(versions) else below
    return OlderRelease(version=version, below=first, link=link, source=source)


def _has_module(names: Iterable[str], module: str) -> bool:
    path = module.replace(".", "/")
    return any(
        name.startswith(f"{path}/")
        or (name.startswith(f"{path}.") and name.endswith((".py", ".so")))
        for name in names
    )
