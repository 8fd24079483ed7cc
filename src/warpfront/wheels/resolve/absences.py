"""Why a resolution found no candidate for a name: no source has it, none has such a version, or the
first source that has the name hides the versions of the others. Edge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.errors import without_secrets
from warpfront.wheels.lock.values import LockInputs
from warpfront.wheels.resolve.index_rules import index_rule, is_of_the_stack
from warpfront.wheels.resolve.reach import Reach
from warpfront.wheels.resolve.resolution import Absences
from warpfront.wheels.sources import (
    ABSENT,
    FLAT_PAGE,
    FLAT_WAY_OUT,
    Link,
    NoAnswer,
    Site,
    links,
    local_path,
    probe,
)
from warpfront.wheels.wheel_names import read_wheel_name

_ROW = "name another `torch:` or `index:` for the row in matrix.yaml"
_NAME = r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
_RANGE = r"((?:(?:===?|~=|!=|<=?|>=?)[A-Za-z0-9.*+!_-]*[A-Za-z0-9*],?)+)"
# uv's words for a name without a candidate.
_ABSENT = re.compile(
    rf"{_NAME} was not found in the|there (?:is|are) no versions? of {_NAME}|only {_NAME}[<>=!~]"
    rf"|only the following versions of {_NAME}|{_NAME}{_RANGE}? (?:has|have) no (?:usable )?wheels"
)
_DEMAND = re.compile(rf"(?:depends? on|no versions? of) {_NAME}(?:\[[^\]]*\])?{_RANGE}?(?=[\s,]|$)")


@dataclass(frozen=True, slots=True)
class _Offer:
    """Versions of a name from one source that this cell could install."""

    source: str
    versions: tuple[Version, ...]

    def best(self, specifier: SpecifierSet) -> Version | None:
        return max(specifier.filter(self.versions), default=None)

    @property
    def newest(self) -> Version | None:
        """A release before what precedes one."""
        return max(
            self.versions, key=lambda version: (not version.is_prerelease, version), default=None
        )


def explain_absences(
    explanation: str, inputs: LockInputs, site: Site, reach: Reach, tags: Iterable[Tag]
) -> Absences:
    """Return the reason and the remedy for each name without a candidate in uv's explanation;
    nothing if the requirements only exclude each other.
    """
    text = " ".join(explanation.split())
    absent = [next(filter(None, match.groups())) for match in _ABSENT.finditer(text)]
    names = dict.fromkeys(map(canonicalize_name, absent))
    usable = frozenset(tags)
    left_out = tuple(f"{url} ({why})" for url, why in reach.silent.items())
    reasons = [
        (line, _ROW if is_of_the_stack(name, inputs) else hint)
        for name in names
        for line, hint in _reasons(
            name, _demands(text, name), _sources(name, inputs, reach), usable, site
        )
    ]
    unasked = f"; not asked: {', '.join(map(without_secrets, left_out))}" if left_out else ""
    return Absences(
        lines=tuple(dict.fromkeys(f"{line}{unasked}" for line, _ in reasons)),
        hint="; ".join(dict.fromkeys(hint for _, hint in reasons)),
    )


def _demands(text: str, name: str) -> tuple[SpecifierSet, ...]:
    """Return the ranges that the explanation demands of a name; any version without one."""
    ranges = []
    for match in _DEMAND.finditer(text):
        if canonicalize_name(match[1]) == name:
            try:
                ranges.append(SpecifierSet((match[2] or "").rstrip(",")))
            except InvalidSpecifier:
                continue
    return tuple(dict.fromkeys(ranges)) or (SpecifierSet(),)


def _sources(name: str, inputs: LockInputs, reach: Reach) -> tuple[tuple[str, bool], ...]:
    """Return the sources of a name in the order of a resolution, each with whether it is flat."""
    where = index_rule(name, inputs)
    sources = ((where.url, False),) if where else ()
    if where and where.alone:
        return sources
    return tuple(dict.fromkeys((*sources, *reach.sources)))


def _reasons(
    name: str,
    demands: tuple[SpecifierSet, ...],
    sources: tuple[tuple[str, bool], ...],
    usable: frozenset[Tag],
    site: Site,
) -> Iterator[tuple[str, str]]:
    offers, failed = list[_Offer](), list[str]()
    with site.transport(connect_seconds=5.0, stall_seconds=site.patience_seconds) as transport:
        answers = [(source, links(source, name, transport, flat=flat)) for source, flat in sources]
    for source, answer in answers:
        if isinstance(answer, NoAnswer):
            if answer.status not in ABSENT and local_path(source) is None:
                failed.append(str(answer))
        elif (versions := _versions(answer, name, usable)) is not None:
            offers.append(_Offer(source, versions))
    if failed:
        yield f"{name}: not determined: {'; '.join(map(without_secrets, failed))}", "try again"
        return
    if not offers:
        yield _nowhere(name, sources, site)
        return
    first, others_left = offers[0], offers[1:]
    for demand in demands:
        if first.best(demand) is not None:
            continue
        hidden = [
            (offer, version) for offer in others_left if (version := offer.best(demand)) is not None
        ]
        yield _hidden(name, demand, first, *hidden[0]) if hidden else _unknown(name, demand, offers)


def _nowhere(name: str, sources: tuple[tuple[str, bool], ...], site: Site) -> tuple[str, str]:
    for source, flat in sources:
        if not flat and probe(site, source, name) == FLAT_PAGE:
            return f"{name}: {without_secrets(source)}: {FLAT_PAGE}", FLAT_WAY_OUT
    addresses = ", ".join(without_secrets(source) for source, _ in sources)
    return f"{name}: there is no package of that name in {addresses or 'any source'}", (
        "correct the name, or give the index that has it under `indexes:` in matrix.yaml, "
        f"with `packages: [{name}]`"
    )


def _hidden(
    name: str, point: SpecifierSet, first: _Offer, other: _Offer, version: Version
) -> tuple[str, str]:
    ours, theirs = without_secrets(first.source), without_secrets(other.source)
    newest = first.newest
    line = (
        f"{name}{point}: {theirs} has {version}, and {ours} hides it, which comes first and has "
        f"{newest or 'no wheel for this cell'}: a name comes from the first source that has it, "
        "whatever the others have (docs/security.md)"
    )
    fits = f"ask for {name}=={newest}, or " if newest else ""
    if theirs.startswith("https://"):
        write = f'`indexes: {{own-{name}: {{url: "{theirs}", packages: [{name}]}}}}`'
        return line, f"{fits}write in matrix.yaml: {write}; or bring {version} to {ours}"
    return line, f"{fits}put {theirs} before {ours} in pip's configuration"


def _unknown(name: str, specifier: SpecifierSet, offers: list[_Offer]) -> tuple[str, str]:
    has = ", ".join(
        f"{without_secrets(offer.source)} has "
        + (f"{offer.newest} at most" if offer.versions else "no wheel for this cell")
        for offer in offers
    )
    hint = "ask for a version that there is as a wheel for this cell's Python and machine"
    return f"{name}{specifier}: no source has such a version: {has}", hint


def _versions(
    offered: tuple[Link, ...], name: str, usable: frozenset[Tag]
) -> tuple[Version, ...] | None:
    """Return the versions whose wheels this cell could install; None for no file of that name."""
    versions, readable = set[Version](), False
    for link in offered:
        if not link.filename.endswith(".whl"):
            readable = readable or canonicalize_name(link.filename.rpartition("-")[0]) == name
            continue
        wheel = read_wheel_name(link.filename)
        if wheel and wheel.name == name:
            readable = True
            if not usable.isdisjoint(wheel.tags):
                versions.add(wheel.version)
    return tuple(versions) if readable else None
