"""The versions of a distribution that each source of a site offers, and which it hides. Edge.

A resolution finds no candidate for a name where no source has it, or none has such a version, or
the first source that has the name hides the versions of the others.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.errors import without_secrets
from warpfront.wheels.core_metadata import NAME, read_file_name
from warpfront.wheels.lock.values import LockInputs, index_rule, stack_names
from warpfront.wheels.metadata import read_file_names
from warpfront.wheels.sources import (
    FLAT_PAGE,
    FLAT_WAY_OUT,
    Link,
    NoAnswer,
    Reach,
    Site,
    files_of,
    links,
    probe,
)
from warpfront_checks.stack import descriptions

if TYPE_CHECKING:
    from warpfront.wheels.transport import Transport


Offered = Mapping[str, Collection[Version]]
"""The versions of one distribution by source, in the order in which uv tries the sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """Why uv takes no version of a name. `hidden` are the source and the newest version that an
    earlier source hides, if that is why.
    """

    text: str
    hidden: tuple[str, Version] | None = None


def absence_of(demand: SpecifierSet, offered: Offered) -> Absence | None:
    """Return why uv takes no version of these that meets `demand`; None where it takes one. Only
    sources that have the name count, also with no version that the cell could install.
    """
    newest = {url: max(versions, key=_rank, default=None) for url, versions in offered.items()}
    if not newest:
        return Absence(text="there is no package of that name")
    first = next(iter(newest))
    for source, versions in offered.items():
        if (version := max(demand.filter(versions), default=None)) is None:
            continue
        if source == first:
            return None
        text = (
            f"{source} has {version}, and {first} hides it, which comes first and has "
            f"{newest[first] or 'no wheel for this cell'}: a name comes from the first source that "
            "has it, whatever the others have (docs/security.md)"
        )
        return Absence(text=text, hidden=(source, version))
    has = ", ".join(
        f"{source} has {f'{version} at most' if version else 'no wheel for this cell'}"
        for source, version in newest.items()
    )
    return Absence(text=f"no source has such a version: {has}")


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
    name: str, module: str, below: Version, accepted: SpecifierSet, transport: Transport
) -> OlderRelease | None:
    """Return the newest `accepted` release before `below` whose wheel has `module` (a dotted
    name), by the directories of the wheels; None where none has it. A module that was removed is
    taken not to come back, so that few wheels are looked into.
    """
    offered: dict[Version, tuple[Link, str]] = {}
    for source, flat in transport.site.sources:
        for file, link in files_of(source, name, transport, flat=flat):
            is_older = file.version < below and not file.version.is_prerelease
            if is_older and file.tags and accepted.contains(file.version):
                offered.setdefault(file.version, (link, without_secrets(source)))
    versions = sorted(offered)

    path = module.replace(".", "/")

    def has(version: Version) -> bool:
        return any(
            name.startswith(f"{path}/")
            or (name.startswith(f"{path}.") and name.endswith((".py", ".so")))
            for name in read_file_names(offered[version][0].url, transport) or ()
        )

    # Back from the newest in growing steps to one that has it, then between the two.
    without, index, step = len(versions), len(versions) - 1, 1
    while index >= 0 and not has(versions[index]):
        without, index, step = index, index - step, step * 2
    if index < 0:
        return None
    after = bisect_left(versions, 1, index + 1, without, key=lambda v: not has(v))
    version = versions[after - 1]
    link, source = offered[version]
    first = versions[after] if after < len(versions) else below
    return OlderRelease(version=version, below=first, link=link, source=source)


_ROW = "name another `torch:` or `index:` for the row in matrix.yaml"
# A name begins its word: a search from each of its characters would take their square.
_NAME = rf"(?<!\S)({NAME})"
_RANGE = r"((?:(?:===?|~=|!=|<=?|>=?)[A-Za-z0-9.*+!_-]*[A-Za-z0-9*],?)+)"
# uv's words for a name without a candidate.
_ABSENT = re.compile(
    rf"{_NAME} was not found in the|there (?:is|are) no versions? of {_NAME}|only {_NAME}[<>=!~]"
    rf"|only the following versions of {_NAME}|{_NAME}{_RANGE}? (?:has|have) no (?:usable )?wheels"
)
_DEMAND = re.compile(rf"(?:depends? on|no versions? of) {_NAME}(?:\[[^\]]*\])?{_RANGE}?(?=[\s,]|$)")


def explain_absences(
    explanation: str, inputs: LockInputs, site: Site, reach: Reach, tags: Iterable[Tag]
) -> tuple[tuple[str, ...], str]:
    """Return the reason for each name without a candidate in uv's explanation, and the remedies;
    nothing if the requirements only exclude each other.
    """
    text = " ".join(explanation.split())
    absent = (next(filter(None, match.groups())) for match in _ABSENT.finditer(text))
    left_out = [without_secrets(f"{url} ({why})") for url, why in reach.silent.items()]
    unasked = f"; not asked: {', '.join(left_out)}" if left_out else ""
    usable, lines, hints = frozenset(tags), dict[str, None](), dict[str, None]()
    for name in dict.fromkeys(map(canonicalize_name, absent)):
        where = index_rule(name, inputs)
        named = ((where.url, False),) if where else ()
        is_alone = where is not None and where.alone
        # In the order of a resolution, each with whether it is flat.
        sources = named if is_alone else tuple(dict.fromkeys((*named, *reach.sources)))
        for line, hint in _reasons(name, _demands(text, name), sources, usable, site):
            lines[f"{line}{unasked}"] = None
            hints[_ROW if name in stack_names(inputs) else hint] = None
    return tuple(lines), "; ".join(hints)


def _demands(text: str, name: str) -> tuple[SpecifierSet, ...]:
    """Return the ranges that the explanation demands of a name; any version without one."""
    ranges = []
    for match in _DEMAND.finditer(text):
        if canonicalize_name(match[1]) == name:
            try:
                ranges.append(SpecifierSet((match[2] or "").rstrip(",")))
            except ValueError:
                continue
    return tuple(dict.fromkeys(ranges)) or (SpecifierSet(),)


def _reasons(
    name: str,
    demands: tuple[SpecifierSet, ...],
    sources: tuple[tuple[str, bool], ...],
    usable: frozenset[Tag],
    site: Site,
) -> Iterator[tuple[str, str]]:
    failed: list[str] = []
    # Versions that this cell could install.
    offers: dict[str, set[Version]] = {}
    with site.transport(connect_seconds=5.0, stall_seconds=site.patience_seconds) as transport:
        for source, flat in sources:
            answer = links(source, name, transport, flat=flat)
            if isinstance(answer, NoAnswer):
                failed += [str(answer)] if answer.is_failure else []
                continue
            named = [file for link in answer if (file := read_file_name(link.filename))]
            if files := [file for file in named if file.name == name]:
                versions = {file.version for file in files if not usable.isdisjoint(file.tags)}
                offers[without_secrets(source)] = versions
    if failed:
        yield f"{name}: not determined: {'; '.join(failed)}", "try again"
        return
    if not offers:
        yield _nowhere(name, sources, site)
        return
    for demand in demands:
        if (absence := absence_of(demand, offers)) is not None:
            hint = "ask for a version that there is as a wheel for this cell's Python and machine"
            if absence.hidden:
                hint = _unhidden(name, offers, *absence.hidden)
            yield f"{name}{demand}: {absence.text}", hint


def _nowhere(name: str, sources: tuple[tuple[str, bool], ...], site: Site) -> tuple[str, str]:
    for source, flat in sources:
        if not flat and probe(site, source, name) == FLAT_PAGE:
            return f"{name}: {without_secrets(source)}: {FLAT_PAGE}", FLAT_WAY_OUT
    addresses = ", ".join(without_secrets(source) for source, _ in sources)
    return f"{name}: there is no package of that name in {addresses or 'any source'}", (
        "correct the name, or give the index that has it under `indexes:` in matrix.yaml, "
        f"with `packages: [{name}]`"
    )


def _rank(version: Version) -> tuple[bool, Version]:
    """Return the key of the newest version: a release before what precedes one."""
    return not version.is_prerelease, version


def _unhidden(name: str, offers: Offered, theirs: str, version: Version) -> str:
    """Return how to take a version that the first of these sources hides."""
    ours, versions = next(iter(offers.items()))
    fits = f"ask for {name}=={max(versions, key=_rank)}, or " if versions else ""
    if theirs.startswith("https://"):
        write = f'`indexes: {{own-{name}: {{url: "{theirs}", packages: [{name}]}}}}`'
        return f"{fits}write in matrix.yaml: {write}; or bring {version} to {ours}"
    return f"{fits}put {theirs} before {ours} in pip's configuration"


# uv's words: "X==1.2 has no usable wheels", "all of: X<2 have no wheels with a matching ... tag".
_NO_WHEELS = re.compile(
    rf"{_NAME}(?:\[[^][]*\])?(?:\{{[^}}]*\}})?(?:[=<>!~]\S*)? "
    r"(?:has|have) no (?:usable )?(?:wheels|source distribution)"
)
# The only problem: the requirement itself has no wheel, in no version that fits.
_ALONE = re.compile(
    rf"Because (?:all versions of )?{_NO_WHEELS.pattern} and \S+ depends on \S+, we can conclude "
    r"that your requirements are unsatisfiable"
)


def requirers_without_wheels(explanation: str, installable: Collection[str]) -> tuple[str, ...]:
    """Return the packages, but `installable` ones, that uv could not inspect without a wheel."""
    text = " ".join(explanation.split())
    names = [canonicalize_name(match[1]) for match in _NO_WHEELS.finditer(text)]
    return tuple(dict.fromkeys(name for name in names if name not in installable))


def wheelless(explanation: str) -> str:
    """Return the package without a wheel, if that alone is why the resolution fails; else ""."""
    match = _ALONE.match(" ".join(explanation.split()))
    return canonicalize_name(match[1]) if match else ""


def refusal(name: str) -> str:
    return f"{name} has no wheel for this image: it is built against its torch, or not at all"


def way_out(name: str, vendor: str = "") -> str:
    """Return how to build it, or why a build is in vain: on `vendor`'s devices, or on another's."""
    builds = (
        f"`builds: {name}:` in an image on one with a compiler (docs/locks.md) builds it once, in "
        "a container"
    )
    if name not in descriptions.names():
        return builds
    if vendor:
        return descriptions.description(name, vendor=vendor, version="").not_for or builds
    return "; ".join((builds, *descriptions.nothing_for(name)))
