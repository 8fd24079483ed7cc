"""The findings of a preflight, and its rules: what each kind of finding means. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from warpfront.report.sarif import Level, SarifRule
from warpfront_port.preflight.declared import DeclaredRequirement

_URI = "https://github.com/warpfront/warpfront/blob/main/docs/preflight.md"

MOVED = "torch-moved"
MOVED_BY_DEPENDENCY = "torch-moved-by-dependency"
NEEDS = "torch-needs"
FOREIGN = "foreign-library"
COMPANION = "companion-build"
TRITON = "triton-replaced"
INDEX = "torch-index"
OTHER_ABI = "built-for-another-torch"
ISOLATED = "isolated-build"
CONDA = "conda-torch"

_TEXTS = tomllib.loads(
    resources.files("warpfront_port").joinpath("data", "preflight.toml").read_text("utf-8")
)
RULES: tuple[SarifRule, ...] = tuple(
    SarifRule(id=name, **rule, help_uri=f"{_URI}#{name}") for name, rule in _TEXTS.items()
)
LEVELS: dict[str, Level] = {rule.id: rule.level for rule in RULES}
DECIDING = frozenset({MOVED, MOVED_BY_DEPENDENCY, NEEDS, FOREIGN, TRITON})
"""The rules for an installation that replaces or breaks a cell's torch."""


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
