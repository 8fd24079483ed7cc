"""What a user reads when the guard made pip or uv refuse: who wanted what, what the image holds,
and the command that does what was probably meant.
"""

from __future__ import annotations

import atexit
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .constraints import constraint_lines, requirement
from .policy import GuardError, Policy, normalized, read_policy

# "needs-torch 1.0 depends on torch>=2.9" (pip), "needs-torch==1.0 depends on torch>=2.9" (uv).
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_WANTED = (
    rf"(?P<wanted>{_NAME})(?P<extras>\[[^\]]*\])? ?"
    r"(?P<how>[<>=!~][^\s,;]*(?:(?:,| and) ?[<>=!~][^\s,;]*)*)?"
)
_BY_PACKAGE = re.compile(
    rf"(?<!your )\b(?P<who>{_NAME}(?:\[[^\]]*\])?)"
    rf"(?:(?:==| )(?P<version>[0-9][^\s,]*)|[<>]=?[^\s,]*)? depends? on {_WANTED}"
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
    """Who asked for what: `who` is a package with its version, "" for the user; `name` is
    normalized; `text` is the requirement as asked.
    """

    who: str
    name: str
    text: str

    @property
    def package(self) -> str:
        """The name of the package that asked, as `relax` takes it; "" for the user."""
        return self.who.partition(" ")[0].partition("[")[0]


def read_demands(text: str, policy: Policy) -> list[Demand]:
    """The demands on guarded names in what pip or uv said, in order, once each. Both wrap lines.

    uv shows a demand as it is after our constraint has narrowed it. For what is not in the image
    that is the demand; for what is, it holds, and only stands in the same sentence.
    """
    text = " ".join(text.split())
    guarded = {**policy.pinned(), **policy.forbidden()}
    ours = {line.replace("===", "==") for line in constraint_lines(policy)}
    found: dict[Demand, None] = {}
    for pattern in (_BY_PACKAGE, _BY_USER, _NOT_FOUND):
        for match in pattern.finditer(text):
            name = normalized(match["wanted"])
            wanted = _wanted(match)
            if wanted.replace("===", "==") in ours:
                wanted = "" if name in policy.protected else match["wanted"]
            if name in guarded and wanted:
                found[Demand(who=_who(match), name=name, text=wanted)] = None
    return list(found)


def _wanted(match: re.Match[str]) -> str:
    how = re.sub(r"(?:,| and) ?(?=[<>=!~])", ",", match["how"] or "").rstrip(".")
    file = match.groupdict().get("file") or ""
    return f"{match['wanted']}{match['extras'] or ''}{how}{' ' if file else ''}{file.strip()}"


def _who(match: re.Match[str]) -> str:
    groups = match.groupdict()
    return " ".join(part for part in (groups.get("who"), groups.get("version")) if part)


def explanation(text: str, policy: Policy) -> str:
    """Lines for the user, "" where `text` has nothing to do with the guard."""
    demands = read_demands(text, policy)
    lines = [line for demand in demands[:_SHOWN] for line in _explained(demand, policy)]
    lines = lines or list(_held(text, policy))
    return "".join(f"warpfront guard: {line}\n" for line in dict.fromkeys(lines))


def _held(text: str, policy: Policy) -> Iterator[str]:
    """Where nobody is said to want another version, and ours is in the way all the same: a file, an
    address, a reinstall, an isolated build.
    """
    text = " ".join(text.split()).replace("===", "==")
    for name, version in policy.protected.items():
        pin = re.escape(f"{name}=={version}")
        if name in policy.pinned() and re.search(rf"(?:no version of|and) {pin}(?!\w)", text):
            yield f"this image holds {name} {version}, which stays: it is neither replaced nor"
            yield "  installed again, and what is built against it takes --no-build-isolation"
            return


def _explained(demand: Demand, policy: Policy) -> Iterator[str]:
    who = demand.who or "the command"
    if demand.name in policy.forbidden():
        why = policy.sentinels[demand.name].replace(".", " ")
        yield f"{who} wants {demand.text}, which must not come into this image: {why}."
        yield f"  to do without: {_without(demand)}"
    elif demand.name in policy.companions:
        fitting = requirement(demand.name, policy.companions[demand.name])
        yield f"{who} wants {demand.text}; with this image's {policy.holds()} goes {fitting} alone."
        if policy.index:
            yield f"  to have it: pip install --index-url {policy.index} '{fitting}'"
            return
        yield f"  to have it: offer {fitting} to pip or uv"
    else:
        held = policy.pinned()[demand.name]
        yield f"{who} wants {demand.text}; this image holds {demand.name} {held}, which stays."
        yield f"  to keep the image's: {_keeping(demand)}"
    yield _relaxing(demand)


def _without(demand: Demand) -> str:
    if demand.package:
        return f"take what {demand.package} offers for other machines, an extra or a version"
    return f"leave {demand.text} out"


def _keeping(demand: Demand) -> str:
    if demand.package:
        return f"take a version of {demand.package} that accepts it"
    return f"leave {demand.text} out, or name no version of it"


def _relaxing(demand: Demand) -> str:
    relax = f"warpfront-guard relax {demand.package or demand.name} --reason TEXT"
    if demand.package:
        return f"  to have {demand.package} beside it all the same: {relax}"
    return f"  to give up its protection: {relax}"


class _Listener(logging.Handler):
    """Keeps what pip says about conflicts; pip writes it for people, so it has no other form."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or "conflict is caused by" in str(record.msg):
            self.said.append(record.getMessage())


def listen_to_pip(folder: str | Path) -> None:
    """At the end of this pip, explain what it refused because of the guard. The handler sits above
    pip's own loggers, which it makes and sets up itself.
    """
    listener = _Listener()
    logging.getLogger("pip._internal").addHandler(listener)
    atexit.register(_explain_at_exit, listener, Path(folder))


def _explain_at_exit(listener: _Listener, folder: Path) -> None:
    if not listener.said or sys.stderr is None or sys.stderr.closed:
        return
    try:
        policy = read_policy(folder / "policy.json")
    except GuardError as error:
        sys.stderr.write(f"warpfront guard: {error}\n")
        return
    sys.stderr.write(explanation("\n".join(listener.said), policy))
