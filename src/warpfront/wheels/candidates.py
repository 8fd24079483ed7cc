"""The versions of a distribution that each source of a site offers, and which it hides. Edge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from warpfront.errors import without_secrets
from warpfront.wheels.metadata import read_file_names
from warpfront.wheels.sources import Link, NoAnswer, Site, links, local_path

if TYPE_CHECKING:
    from warpfront.wheels.transport import Transport


def why_hidden(requirement: Requirement, site: Site, transport: Transport) -> str:
    """Return why uv does not see the versions that meet `requirement`: an earlier source has the
    name, in other versions. "" where uv and pip see the same.
    """
    sources = _sources(site)
    if len(sources) < 2 or not requirement.specifier:
        return ""
    first = ""
    for source, flat in sources:
        if not first and source == sources[-1][0]:
            return ""
        offered = sorted(_versions(source, requirement.name, transport, flat=flat))
        fitting = list(requirement.specifier.filter(offered))
        if first and fitting:
            hidden = f"{requirement.name} {fitting[-1]} of {without_secrets(source)}"
            return f"{first}, which hides {hidden} from uv (first index); pip takes it"
        if not first and fitting:
            return ""
        if not first and offered:
            first = f"{without_secrets(source)} has {requirement.name} up to {offered[-1]}"
    return ""


def why_no_candidate(requirement: Requirement, site: Site, transport: Transport) -> str:
    """Return why no source offers what meets `requirement`; "" where one does."""
    newest: tuple[Version, str] | None = None
    silent: list[str] = []
    for source, flat in _sources(site):
        found = links(source, requirement.name, transport, flat=flat)
        if isinstance(found, NoAnswer) and found.status not in {0, 404}:
            silent.append(without_secrets(str(found)))
        offered = sorted(_versions(source, requirement.name, transport, flat=flat))
        if any(requirement.specifier.filter(offered)):
            return ""
        if offered and (newest is None or offered[-1] > newest[0]):
            newest = offered[-1], without_secrets(source)
    if newest is None:
        return "; ".join((f"no index has a package {requirement.name}", *silent))
    version, source = newest
    wanted = f"{requirement.name}{requirement.specifier}"
    return f"no index has {wanted}: the newest is {version}, at {source}"


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
    for source, flat in _sources(site):
        for version, link in _files(source, name, transport, flat=flat):
            is_older = version < below and not version.is_prerelease
            if is_older and link.filename.endswith(".whl") and accepted.contains(version):
                offered.setdefault(version, (link, without_secrets(source)))
    versions = sorted(offered)

    def has(version: Version) -> bool:
        link = offered[version][0]
        names = read_file_names(local_path(link.url) or link.url, transport)
        return names is not None and _has_module(names, module)

    # Back from the newest in growing steps to one that has it, then between the two.
    without, at, step = len(versions), len(versions) - 1, 1
    while at >= 0 and not has(versions[at]):
        without, at, step = at, at - step, step * 2
    if at < 0:
        return None
    low, high = at + 1, without
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


def _sources(site: Site) -> list[tuple[str, bool]]:
    return [*((url, True) for url in site.find_links), *((url, False) for url in site.indexes)]


def _versions(source: str, name: str, transport: Transport, *, flat: bool) -> Iterator[Version]:
    return (version for version, _ in _files(source, name, transport, flat=flat))


def _files(
    source: str, name: str, transport: Transport, *, flat: bool
) -> Iterator[tuple[Version, Link]]:
    found = links(source, name, transport, flat=flat)
    wanted = canonicalize_name(name)
    for link in () if isinstance(found, NoAnswer) else found:
        try:
            if link.filename.endswith(".whl"):
                own, version = parse_wheel_filename(link.filename)[:2]
            else:
                own, version = parse_sdist_filename(link.filename)
        except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
            continue
        if own == wanted:
            yield version, link
