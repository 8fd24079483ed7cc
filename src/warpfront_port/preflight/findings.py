"""The findings of a preflight, its rules, and the result as text for people and as SARIF. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warpfront.report.sarif import Level, SarifRule, SourceFinding, sarif_text
from warpfront.system.packaged import packaged_toml
from warpfront.system.strict_values import extended
from warpfront.system.texts import counted
from warpfront_port.preflight.declared import DeclaredRequirement

_SOURCE_CHARACTERS = 120
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

_TEXTS = packaged_toml("preflight.toml", package="warpfront_port")
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


def preflight_text(preflight: Preflight) -> str:
    """Return the answer, then each finding with its place, line, cells, reason and the line to
    write instead. Findings that decide nothing come last.
    """
    lines: dict[bool, list[str]] = {True: [], False: []}
    for finding in preflight.findings:
        output = lines[finding.decides]
        group = f" (only with `{finding.option}`)" if finding.option else ""
        output.append(f"{finding.path}:{finding.line}: {finding.level}: {finding.rule}{group}")
        output.append(f"    {finding.source.strip()[:_SOURCE_CHARACTERS]}")
        every = sum(map(len, preflight.stacks.values()))
        for why in dict.fromkeys(finding.why.values()):
            titles = [title for title, reason in finding.why.items() if reason == why]
            cells = sum(len(preflight.stacks[title]) for title in titles)
            is_all = len(titles) == len(preflight.stacks)
            some = f"{cells} of {every} cells: {'; '.join(titles)}"
            output += (f"    {line}" for line in why.splitlines())
            output.append(f"        on {f'all {every} cells' if is_all else some}")
        if finding.write is not None:
            text = finding.write.strip()
            output.append(f"    write: {text}" if text else "    drop this line")
        output.append("")
    unknown = [f"not determined: {text}" for text in preflight.unknown]
    unknown += [""] if unknown else []
    apart = ["These change no torch, or are not installed by default:", "", *lines[False]]
    apart = apart if lines[False] else []
    notes = (f"note: {text}" for text in preflight.notes)
    parts = (_answer(preflight), "", *lines[True], *unknown, *apart, *notes)
    counts = dict.fromkeys(("error", "warning", "note"), 0)
    for finding in preflight.findings:
        counts[finding.level] += 1
    totals = ", ".join(counted(number, level) for level, number in counts.items() if number)
    cells = sum(len(cells) for cells in preflight.stacks.values())
    open_ = f", {len(preflight.unknown)} not determined" if preflight.unknown else ""
    summary = (
        f"{counted(len(preflight.files), 'file')}, {counted(preflight.lines, 'line')}, "
        f"{counted(cells, 'cell')} with {counted(len(preflight.stacks), 'torch stack')}: "
        f"{totals or 'nothing found'}{open_}"
    )
    return "\n".join((*parts, summary, ""))


def counted_breaches(count: int) -> str:
    """Return `1 requirement replaces or breaks torch`, or the same of several."""
    several = f"{count} requirements replace or break torch"
    return "1 requirement replaces or breaks torch" if count == 1 else several


def _answer(preflight: Preflight) -> str:
    """Return the first line: whether the installation replaces or breaks torch, as far as known."""
    unknown = len(preflight.unknown)
    more = f"{unknown} {'thing' if unknown == 1 else 'things'} could not be determined"
    if preflight.count:
        return counted_breaches(preflight.count) + (f"; {more}" if unknown else "")
    if unknown:
        return f"not determined: nothing was found that replaces torch, but {more}"
    if not preflight.lines:
        return "nothing to determine: these files ask for nothing"
    return "torch stays: nothing that is installed replaces or breaks it"


def preflight_sarif(preflight: Preflight) -> str:
    """Return SARIF 2.1.0. A line to write instead is a fix of that line."""
    findings: list[SourceFinding] = []
    for finding in preflight.findings:
        reasons = (f"{title}: {' '.join(why.split())}" for title, why in finding.why.items())
        findings.append(
            extended(
                SourceFinding,
                finding,
                rule_id=finding.rule,
                message=f"{finding.text}: {'; '.join(reasons)}",
                fix=finding.write if finding.end_line else None,
                properties={"cells": list(finding.cells), "group": finding.group},
            )
        )
    return sarif_text(
        findings,
        rules=RULES,
        tool="warpfront preflight",
        tool_uri="https://github.com/warpfront/warpfront",
        unknown=preflight.unknown,
    )
