"""Text that a user reads where the guard made pip or uv refuse: demands, versions, a way out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .channels import constraint_lines, needs, requirement
from .going_back import GO_ON, STOPS_AT, Releases
from .policy import Policy, normalized
from .requires_dist import UnreadableError, meets, read_requirement

# "needs-torch 1.0 depends on torch>=2.9" (pip), "needs-torch==1.0 depends on torch>=2.9" (uv).
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_RANGE = r"[<>=!~][^\s,]*(?:,[<>=!~][^\s,]*)*"
_WANTED = (
    rf"(?P<wanted>{_NAME})(?P<extras>\[[^\]]*\])? ?"
    r"(?P<how>[<>=!~][^\s,;]*(?:(?:,| and) ?[<>=!~][^\s,;]*)*)?"
)
_BY_PACKAGE = re.compile(
    rf"(?<!your )(?<![<>=!~,.\w-])(?P<who>{_NAME}(?:\[[^\]]*\])?)"
    rf"(?:(?:==| )(?P<version>[0-9][^\s,]*)|{_RANGE})? depends? on {_WANTED}"
)
_BY_USER = re.compile(
    rf"(?:The user requested|you require|your project depends on) (?!\(constraint\)){_WANTED}"
    r"(?P<file> ?[0-9][^\s]*(?= \(from ))?"
)
_NOT_FOUND = re.compile(
    rf"satisfies the requirement {_WANTED} \(from (?:(?!versions)(?P<who>{_NAME}))?"
)
_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Demand:
    """A requirement and its origin: `requirer` is a package with its version, "" for the user;
    `name` is normalized; `text` is the requirement as written.
    """

    requirer: str
    name: str
    text: str

    @property
    def package(self) -> str:
        """The name of the requiring package, as `relax` takes it; "" for the user."""
        return self.requirer.partition(" ")[0].partition("[")[0]


def read_demands(
    text: str, policy: Policy, overrides: Mapping[str, str] | None = None
) -> list[Demand]:
    """Return the demands on guarded names in the output of pip or uv, in order, once each.
    Both wrap lines.

    uv shows a demand as it is after our constraint has narrowed it. For a name outside the image
    the shown text is the demand. For a name in the image it is met, and is only in the same
    sentence. uv likewise shows every demand on an overridden name as the override. That demand is
    of the override's file (`overrides`, name -> requirement and file), not of the package.
    """
    text = " ".join(text.split())
    guarded = {**policy.pinned(), **policy.forbidden(), **policy.needed()}
    demands: dict[Demand, None] = {}
    for pattern in (_BY_PACKAGE, _BY_USER, _NOT_FOUND):
        for match in pattern.finditer(text):
            name = normalized(match["wanted"])
            bounds = re.sub(r"(?:,| and) ?(?=[<>=!~])", ",", match["how"] or "").rstrip(".")
            file = (match.groupdict().get("file") or "").strip()
            bare = f"{match['wanted']}{match['extras'] or ''}{bounds}"
            demand = f"{bare} {file}" if file else bare
            if _is_ours(demand, policy):
                demand = "" if name in policy.protected else match["wanted"]
            if name in policy.needed() and _overlap(demand, policy.needed()[name]):
                demand = ""
            if not (name in guarded and demand):
                continue
            overridden = (overrides or {}).get(name)
            asker = (match.groupdict().get(part) for part in ("who", "version"))
            requirer = "" if overridden else " ".join(filter(None, asker))
            demands[Demand(requirer=requirer, name=name, text=overridden or demand)] = None
    return list(demands)


def _is_ours(demand: str, policy: Policy) -> bool:
    """Return whether a constraint or an override of this image made this of a demand."""
    ours = {line.replace("===", "==") for line in constraint_lines(policy)}
    return demand.replace("===", "==") in ours


def _overlap(demand: str, needed: str) -> bool:
    """Return whether a version meets both, tried with those named and their successors."""
    try:
        requirement = read_requirement(demand)
        need = read_requirement(f"{requirement.name}{needed}")
    except UnreadableError:
        return True
    named = [bound.rstrip(".*") for _, bound in (*requirement.specifiers, *need.specifiers)]
    versions = [*named, *(f"{bound}.1" for bound in named), "0"]
    return any(requirement.accepts(version) and need.accepts(version) for version in versions)


def explanation(text: str, policy: Policy, overrides: Mapping[str, str] | None = None) -> str:
    """Return lines for the user, "" where `text` has nothing to do with the guard."""
    demands = read_demands(text, policy, overrides)
    lines = [line for demand in demands[:_SHOWN] for line in _explained(demand, policy)]
    return _said(lines or list(_held(text, policy)))


def going_back(releases: Releases, name: str, number: str) -> str:
    """Return lines about a release in the place of newer ones without the stack; else ""."""
    newer, policy = releases.gone_back(name, number), releases.policy
    if not newer:
        return ""
    newest = newer[0]
    distribution = normalized(re.split(r"[^A-Za-z0-9._-]", newest.wants)[0])
    text = distribution if _is_ours(newest.wants, policy) else newest.wants
    demand = Demand(requirer=f"{name} {newest.version}", name=distribution, text=text)
    first, *advice = _explained(demand, policy)
    count = "it" if len(newer) == 1 else f"{len(newer)} releases of {name}"
    return _said([first, f"  {name} {number} is what is taken in the place of {count}.", *advice])


def stopped(releases: Releases, name: str, number: str) -> str:
    """Return the same where it has to stop; "" where few were passed over, or it is meant."""
    if len(releases.gone_back(name, number)) < STOPS_AT or os.environ.get(GO_ON):
        return ""
    advice = f"To have an older {name} all the same, name its version, or set {GO_ON}=1"
    return going_back(releases, name, number) + _said([f"stopped before it is fetched. {advice}"])


def unusable(releases: Releases, installs: Mapping[str, str]) -> str:
    """Return lines about distributions of an install (name -> version) that the stack
    cannot work with; "" for none. A constraint enforces it for pip; uv takes no range
    together with hashes.
    """
    lines: list[str] = []
    for line in needs(releases.policy):
        need = read_requirement(line)
        number = installs.get(need.name)
        if number is not None and not meets(line, number, unknown=False):
            requirer = releases.asker_of(need)
            demand = Demand(requirer=requirer, name=need.name, text=f"{need.name}=={number}")
            lines += _explained(demand, releases.policy)
    return _said(lines)


def _said(lines: Iterable[str]) -> str:
    return "".join(f"warpfront guard: {line}\n" for line in dict.fromkeys(lines))


def _held(text: str, policy: Policy) -> Iterator[str]:
    """Explain a refusal in which no demand for another version appears, and ours is in the way
    all the same: a file, an address, a reinstall, an isolated build.
    """
    text = " ".join(text.split()).replace("===", "==")
    for name, version in policy.protected.items():
        pin = re.escape(f"{name}=={version}")
        if name in policy.pinned() and re.search(rf"(?:no version of|and) {pin}(?!\w)", text):
            yield f"this image holds {name} {version}, which stays: it is neither replaced nor"
            yield "  installed again, and what is built against it takes --no-build-isolation"
            return


def _explained(demand: Demand, policy: Policy) -> Iterator[str]:
    asker = demand.requirer or "the command"
    if demand.name in policy.forbidden():
        why = policy.sentinels[demand.name].replace(".", " ")
        yield f"{asker} wants {demand.text}, which must not come into this image: {why}."
        offers = f"take what {demand.package} offers for other machines, an extra or a version"
        yield f"  to do without: {offers if demand.package else f'leave {demand.text} out'}"
    elif demand.name in policy.companions:
        pin = requirement(demand.name, policy.companions[demand.name])
        yield f"{asker} wants {demand.text}; with this image's {policy.holds()} goes {pin} alone."
        if policy.index:
            yield f"  to have it: pip install --index-url {policy.index} '{pin}'"
            yield "  and then the same command again"
            return
        yield f"  to have it: offer {pin} to pip or uv"
    elif demand.name in policy.needed():
        need = demand.name + policy.needed()[demand.name]
        yield f"{asker} wants {demand.text}; this image's {policy.holds()} needs {need}."
        yield f"  to keep it working: {_keeping(demand)}"
    else:
        version = policy.pinned()[demand.name]
        if " " not in demand.text and meets(demand.text, version, unknown=False):
            yield from _met(demand, version, policy)
            return
        yield f"{asker} wants {demand.text}; this image holds {demand.name} {version}, which stays."
        yield f"  to keep the image's: {_keeping(demand)}"
    relax = f"warpfront-guard relax {demand.package or demand.name} --reason TEXT"
    beside = f"have {demand.package} beside it all the same"
    yield f"  to {beside if demand.package else 'give up its protection'}: {relax}"


def _met(demand: Demand, version: str, policy: Policy) -> Iterator[str]:
    """The image's own would do, and a second one is looked for where there is none: with --target
    and --prefix, in another environment, to install it again.
    """
    asker = demand.requirer or "the command"
    yield (
        f"{asker} wants {demand.text}, which the image's {demand.name} {version} meets; it would be"
        " installed a second time, and no index that was asked has it."
    )
    yield "  to use the image's: the same command with --no-deps, and then what `pip check` misses"
    if policy.index:
        yield f"  to have a second one: the same command with --extra-index-url {policy.index}"


def _keeping(demand: Demand) -> str:
    if demand.package:
        return f"take a version of {demand.package} that accepts it"
    return f"leave {demand.text} out, or name no version of it"
