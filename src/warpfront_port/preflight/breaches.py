"""The findings of a preflight. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warpfront.report.sarif import Level
from warpfront_port.preflight.declared import DeclaredRequirement


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """The fault of one requirement on one stack."""

    rule: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineBreach:
    """A requirement that some cells do not meet.

    `why` maps the title of each such stack to the reason, with the chain of packages where others
    lie between; `cells` are the cells of these stacks. `write` is the line to write instead, None
    where there is none, "" where the line is to be dropped. `group` is the extra or group that it
    belongs to, and `option` installs that group. `decides` is whether the installation in question
    replaces or breaks torch because of it.
    """

    rule: str
    level: Level
    path: str
    line: int
    end_line: int
    source: str
    text: str
    group: str
    why: Mapping[str, str]
    cells: tuple[str, ...]
    write: str | None
    option: str = ""
    decides: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The result of a preflight. `unknown` could not be judged, and are no passes; `notes` change
    nothing; `stacks` maps each title to its cells; `files` are those that were read.
    """

    files: tuple[str, ...]
    stacks: Mapping[str, tuple[str, ...]]
    findings: tuple[LineBreach, ...]
    unknown: tuple[str, ...]
    lines: int = 0
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Return the number of findings by which this installation replaces or breaks torch."""
        return sum(finding.decides for finding in self.findings)


Found = dict[tuple[DeclaredRequirement, str], dict[str, str]]
"""The breaches of several stacks by requirement and rule: the first of each stack, by its title."""
