"""A project: its cells, channels, and options of CI. Words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The images as a whole, in matrix.yaml; ends in OCI labels. CI publishes from `branch`, the
    default branch of `source`, and from tags that begin with `release_tags`.
    """

    name: str
    source: str
    licenses: str
    repository: str
    branch: str = "main"
    release_tags: str = "v"


NotifyWay = Literal["issue", "webhook"]
"""How people learn of a red run that no pull request started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CiOptions:
    """`ci:` of matrix.yaml. `unchecked` is what a pull request is whose changed cells have targets
    that no machine of its scope has: `red`, or green with those `listed` first. `queue_hours` is
    how long a job waits for a machine of one's own.
    """

    unchecked: Literal["red", "listed"] = "red"
    notify: tuple[NotifyWay, ...] = ("issue",)
    queue_hours: int = 6


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

    `tags` are templates of tags that never move, `aliases` of tags that do. `repository` is "" for
    the project's. `sessions` have to pass on `all` targets of a cell, or on `any`, at most
    `max_age_hours` ago; `allow` are the accepted exceptions.
    """

    name: str
    repository: str
    tags: tuple[str, ...]
    aliases: tuple[Alias, ...]
    sessions: tuple[str, ...]
    targets: Literal["all", "any"]
    max_age_hours: int
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
