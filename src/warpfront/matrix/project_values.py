"""Channels of a project, and what its maintainers accept. Words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Allowance = Literal[
    "unavailable",
    "emulated",
    "undetermined",
    "skipped",
    "quick",
    "profile",
    "relaxed",
    "bootstrap",
    "unsigned",
]
"""What a channel may let pass, which is then written beside what is published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """A tag that moves: its template, and the ids of the cells that may claim it."""

    template: str
    cells: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A set of tags with its policy.

    `tags` are templates of tags that never move, `aliases` of tags that do. Images go below
    `repository`, which has its host. `sessions` have to pass on `all` targets of a cell, or on
    `any`, at most `max_age_hours` ago; `allow` are the accepted exceptions.
    """

    name: str
    sessions: tuple[str, ...]
    repository: str = ""
    tags: tuple[str, ...] = ()
    aliases: tuple[Alias, ...] = ()
    targets: Literal["all", "any"] = "all"
    max_age_hours: int = 168
    allow: tuple[Allowance, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedVulnerability:
    """A vulnerability that is accepted for a time: of one `package`, "" for any, until a day
    (YYYY-MM-DD). `line` is its place in matrix.yaml.
    """

    id: str
    package: str
    until: str
    reason: str
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """The age at which `plan` names a base, and accepted vulnerabilities."""

    base_max_age_days: int = 180
    allowed: tuple[AllowedVulnerability, ...] = ()
