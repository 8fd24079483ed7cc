"""Matches of engines judged for one target: severities, gates, suppressions. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

from warpfront_port.scan.catalogue import Rule
from warpfront_port.scan.findings import (
    Consequence,
    Evidence,
    Gate,
    Match,
    ScanFinding,
    Severity,
    Side,
    SourceText,
)
from warpfront_port.scan.targets import ScanTarget
from warpfront_port.scan.words import is_automation, is_named_for_nvidia, is_of_use, line_starts

_SUPPRESSION = re.compile(
    r"(?:\#|//|/\*|--|;|<!--|\brem\b)[^\S\n]*"
    r"(?P<all>warpfront:[^\S\n]*ignore\[(?P<rules>[A-Z0-9, ]{1,200})\])(?P<reason>[^\n]*)"
)
_DOCUMENTATION = re.compile(r"(?i)(?:/|\A)(?:docs?|documentation)/")
_EXCERPT = 200
_WORST_LAST = attrgetter("start", "shift", "excerpt")
_SOFTENING = frozenset({Gate.AVAILABILITY, Gate.WRAPPED, Gate.TEST, Gate.LEFT_OUT, Gate.OPTION})
_TELLING = re.compile(r"-{1,2}[a-zA-Z][\w-]*(?:=\w+)?|[A-Za-z_][\w.]{2,}(?:::\w+)*")
_FOLDER = re.compile(r"https?://\S+/")
_COMMON = frozenset(
    {"import", "asm", "volatile", "if", "ifdef", "elif", "defined", "const", "int", "unsigned"}
    | {"constexpr", "static", "uint32_t", "define", "for", "__asm__", "float"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """`# warpfront: ignore[PY019, PY020] reason`, on line `line`; it speaks for `lines`."""

    start: int
    end: int
    lines: tuple[int, ...]
    rules: frozenset[str]
    reason: str

    def match(self, text: str) -> Match:
        """Return the match of a comment that suppresses nothing."""
        rule = "SC002" if self.reason else "SC001"
        return Match(rule=rule, start=self.start, end=self.end, excerpt=text[self.start : self.end])


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The findings of one file in order, and the number that its comments suppressed."""

    findings: tuple[ScanFinding, ...]
    suppressed: int


def judge(
    source: SourceText,
    rule_matches: Iterable[Match],
    target: ScanTarget,
    rules: Mapping[str, Rule],
    *,
    evidence: Evidence | None = None,
) -> Judged:
    """Return the findings for `target` from `rule_matches` of one file, each cause once.

    `evidence` shows that the file runs on AMD already. A finding that does not disprove it is one
    level lower; code that AMD's build excludes is a note.
    """
    lines = _Lines(source.text)
    proof = evidence if target.is_rocm else None
    by_place: dict[tuple[str, int, int], ScanFinding] = {}
    uses: dict[tuple[str, int, int], set[int]] = {}

    def add(rule_match: Match, evidence: Evidence | None) -> None:
        rule = rules[rule_match.rule]
        finding = _finding(source, rule_match, target, rule, lines)
        if finding is not None:
            finding = _with_evidence(finding, rule, evidence, target) if evidence else finding
            if finding.gate is Gate.TEST and rule.is_setting:
                return  # a test or an example sets it for itself
            key = (finding.rule, finding.line, finding.column if finding.rule[:2] != "DP" else 0)
            by_place[key] = finding
            if rule_match.use >= 0:
                uses.setdefault(key, set()).add(lines.place(rule_match.use)[0])

    for rule_match in sorted(rule_matches, key=_WORST_LAST):
        add(rule_match, proof)
    suppressions = tuple(read_suppressions(source.text, lines))
    suppressed = {
        key: suppression
        for key, finding in by_place.items()
        for suppression in reversed(suppressions)
        if suppression.reason
        and finding.rule in suppression.rules
        and not {finding.line, finding.end_line}.isdisjoint(suppression.lines)
    }
    for key in suppressed:
        del by_place[key]
    for suppression in suppressions:
        if suppression not in suppressed.values():
            add(suppression.match(source.text), None)
    findings = (replace(f, uses=tuple(sorted(uses.get(key, ())))) for key, f in by_place.items())
    return Judged(findings=tuple(_counted(sorted(findings), rules)), suppressed=len(suppressed))


def _counted(findings: Iterable[ScanFinding], rules: Mapping[str, Rule]) -> Iterator[ScanFinding]:
    """Yield findings in order; those that are counts once a cause, with the lines of all.

    A note needs no edit at its place, and a suspicious pattern needs one decision a file.
    """
    counts: dict[tuple[object, ...], list[ScanFinding]] = {}
    for finding in findings:
        counted = finding.severity is Severity.NOTE or rules[finding.rule].once_a_file
        place = () if counted else (finding.line, finding.column)
        key = (finding.rule, finding.cause, finding.severity, finding.gate, *place)
        counts.setdefault(key, []).append(finding)
    for first, *more in counts.values():
        lines = {line for f in (first, *more) for line in (f.line, *f.uses)}
        yield replace(first, uses=tuple(sorted(lines))) if more else first


def _with_evidence(
    finding: ScanFinding, rule: Rule, evidence: Evidence, target: ScanTarget
) -> ScanFinding:
    """Return a finding one level lower, with the place that shows why.

    Flags and settings of a build are judged by the sides that reach them, which is better evidence;
    the sides that reach a CMake module are its includer's.
    A file that runs on AMD may run on other devices alone, or by an older compiler, and a wrong
    result shows itself nowhere: an error that the target's own class makes, such as its 64 lanes,
    is lowered by no evidence of the file's own, and a wrong result by none at all. What is only
    suspected there was tried.
    """
    if evidence.kind in ("left-out", "aside"):
        gate = Gate.LEFT_OUT if evidence.kind == "left-out" else Gate.TEST
        return replace(finding, severity=Severity.NOTE, gate=gate, taken=evidence.place)
    decides = evidence.path == finding.path or rule.consequence is Consequence.WRONG
    certain = finding.severity is Severity.ERROR and evidence.kind == "amd"
    of_the_device = rule.is_about_device(target) and certain and decides
    of_the_build = rule.id.startswith("BL") and not finding.path.endswith(".cmake")
    if finding.severity is Severity.NOTE or of_the_build or of_the_device:
        return finding
    amds = Gate.OPTIONAL if evidence.kind == "optional" else Gate.TAKEN
    gate = finding.gate if finding.gate not in (Gate.OPEN, Gate.CALLED) else amds
    lower = finding.severity.shifted(-1)
    return replace(finding, severity=lower, gate=gate, taken=evidence.place)


class _Lines:
    """Offsets to lines and columns, both 1-based."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = (*line_starts(text), len(text))

    def place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset, hi=len(self._starts) - 1)
        return line, offset - self._starts[line - 1] + 1

    def text(self, line: int) -> str:
        return " ".join(self._text[slice(*self._starts[line - 1 : line + 1])].split())[:_EXCERPT]


def _finding(
    source: SourceText, rule_match: Match, target: ScanTarget, rule: Rule, lines: _Lines
) -> ScanFinding | None:
    severity, gate = _weighed(rule_match, target, rule)
    if severity is Severity.NONE or (rule.unless_named and target.name in source.text):
        return None
    automation = is_automation(str(source.path))
    if automation and rule.id.startswith(("DP", "CT")):
        return None  # the project's CI sets up its own machine
    if automation or _is_beside(str(source.path), rule):
        severity, gate = Severity.NOTE, Gate.TEST
    line, column = lines.place(rule_match.start)
    end_line, end_column = lines.place(max(rule_match.end, rule_match.start))
    snippet = " ".join((rule_match.excerpt or lines.text(line)).split())[:_EXCERPT]
    # The places of one cause have the first distinctive word of their code in common.
    telling = _TELLING.findall(_FOLDER.sub("", snippet))
    words = (word for word in telling if word not in _COMMON)
    named = next(words, snippet[:40])
    return ScanFinding(
        path=str(source.path),
        line=line,
        column=column,
        end_line=end_line,
        end_column=end_column,
        rule=rule.id,
        severity=severity,
        message=rule.message.replace("{what}", snippet),
        gate=gate,
        gate_line=rule_match.gate_line if gate is not Gate.OPEN else 0,
        excerpt=lines.text(line) if rule_match.end > rule_match.start else snippet,
        cause=rule_match.key or (named if rule.cause_by_name else ""),
    )


def _is_beside(path: str, rule: Rule) -> bool:
    """Return true for documentation and, but for code, what is NVIDIA's or an example by name."""
    if _DOCUMENTATION.search(path) or (path.endswith(".md") and "/" in path):
        return True
    of_code = rule.engines in (("cuda",), ("scanner",)) or path.endswith((".py", ".pyi", ".ipynb"))
    return not of_code and (is_named_for_nvidia(path) or is_of_use(path))


def _weighed(rule_match: Match, target: ScanTarget, rule: Rule) -> tuple[Severity, Gate]:
    severity = rule.severity_for(target).shifted(rule_match.shift)
    if rule.structural or severity is Severity.NONE:
        return severity, Gate.OPEN
    side: Side = "amd" if target.is_rocm else "other"
    if side not in rule_match.sides:
        return Severity.NONE, Gate.UNREACHED
    own_arm = rule_match.sides == {side} and target.is_rocm and not rule.of_amd
    # The author of an arm for AMD wrote it for AMD: code that only may be wrong was a decision.
    decided = own_arm and severity is Severity.WARNING
    if rule_match.gate in _SOFTENING:
        if rule_match.gate is Gate.AVAILABILITY and rule.of_a_package:
            return Severity.NONE, rule_match.gate  # the code goes on without it
        opened = rule_match.gate is Gate.OPTION and not decided
        limit = Severity.WARNING if opened else Severity.NOTE
        return min(severity, limit, key=lambda item: item.level), rule_match.gate
    if own_arm and severity is not Severity.NOTE:
        return Severity.NOTE if decided else severity, Gate.OWN_ARM
    return severity, rule_match.gate if rule_match.gate is Gate.CALLED else Gate.OPEN


def read_suppressions(text: str, lines: _Lines | None = None) -> Iterator[Suppression]:
    """Yield the suppressing comments of a file. Alone on its line, one covers the next too."""
    if "warpfront:" not in text:
        return
    places = lines or _Lines(text)
    for match in _SUPPRESSION.finditer(text):
        line, column = places.place(match.start())
        alone = not text[match.start() - column + 1 : match.start()].strip()
        yield Suppression(
            start=match.start("all"),
            end=match.end("all"),
            lines=(line, line + 1) if alone else (line,),
            rules=frozenset(match["rules"].replace(",", " ").split()),
            reason=match["reason"].strip(" \t*/->:"),
        )
