"""The versions of a distribution that each source of a site offers, and which it hides. Edge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from warpfront.errors import without_secrets
from warpfront.wheels.sources import NoAnswer, Site, links

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
        offered = sorted(_versions(source, requirement.name, transport, flat=flat))
        fitting = list(requirement.specifier.filter(offered))
        if first and fitting:
            return (
                f"{first}, which hides {requirement.name} {fitting[-1]} of "
                f"{without_secrets(source)} from uv: it takes a name from the first index that "
                "has it; pip takes the best of all"
            )
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


def _sources(site: Site) -> list[tuple[str, bool]]:
    return [*((url, True) for url in site.find_links), *((url, False) for url in site.indexes)]


def _versions(source: str, name: str, transport: Transport, *, flat: bool) -> Iterator[Version]:
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
            yield version
