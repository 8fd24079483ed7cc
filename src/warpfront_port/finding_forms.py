"""The findings of a scan as people, code hosts and programs read them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from warpfront.model import Unread
from warpfront.report import sarif
from warpfront.system.markdown import markdown_text
from warpfront_port.scan.catalogue import Rule
from warpfront_port.scan.findings import Gate, ScanFinding, Severity

UNPARSED = "SC003"
"""The rule that reports a file whose text cannot be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a scan of a tree came to. `findings` are in the order of path and line; `unread` are the
    files and folders that nobody looked into.
    """

    target: str
    findings: tuple[ScanFinding, ...]
    unread: tuple[Unread, ...]
    files: int
    lines: int
    suppressed: int


PLACES_SHOWN = 15
ANNOTATIONS_SHOWN = 50
"""Code hosts show few annotations for a step; the rest is in the other forms."""

_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2, Severity.NONE: 3}
_GATES: Mapping[Gate, str] = {
    Gate.OWN_ARM: "in the branch for this vendor itself, line {line}",
    Gate.UNREACHED: "where CUDA's device was asked for, line {line}",
    Gate.AVAILABILITY: "only where it is available",
    Gate.WRAPPED: "a header of the project gives the name a meaning on AMD",
    Gate.TEST: "in test code",
    Gate.AUTOMATION: "in the project's own CI",
    Gate.NVIDIAS: "the file is NVIDIA's by its name",
    Gate.LEFT_OUT: "the project's build for AMD leaves the file out",
    Gate.UNPROVEN: "nothing shows that AMD comes here",
    Gate.REPEATED: "said of this folder already",
}


def counted(findings: Iterable[ScanFinding]) -> str:
    """`3 errors, 1 warning`; `no findings` for none."""
    counts = Counter(finding.severity for finding in findings)
    words = [
        f"{counts[severity]} {severity.value}{'' if counts[severity] == 1 else 's'}"
        for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE)
        if counts[severity]
    ]
    return ", ".join(words) or "no findings"


def findings_text(
    findings: Sequence[ScanFinding], rules: Mapping[str, Rule], *, everything: bool = False
) -> str:
    """Grouped by rule, the worst and most frequent first, each group with what to do. Notes are
    counted, and listed with `everything`.
    """
    lines: list[str] = []
    for rule, group in _groups(findings, rules):
        worst = min(group, key=lambda finding: _ORDER[finding.severity]).severity
        if worst is Severity.NOTE and not everything:
            continue
        lines.append(f"{worst.value} {rule.id}: {rule.title} ({len(group)})")
        shown = group if everything else group[:PLACES_SHOWN]
        lines += list(_places(shown))
        if len(shown) < len(group):
            lines.append(f"  ... and {len(group) - len(shown)} more")
        lines += [f"  why: {rule.why}", f"  fix: {rule.fix}", ""]
    return "\n".join(lines) + ("\n" if lines else "")


def _places(findings: Iterable[ScanFinding]) -> Iterator[str]:
    """One line for one fact of a file, with the further lines that it holds for."""
    facts: dict[tuple[str, str], list[ScanFinding]] = {}
    for finding in findings:
        facts.setdefault((finding.path, _said(finding)), []).append(finding)
    for (path, said), group in facts.items():
        further = ", ".join(str(finding.line) for finding in group[1:])
        also = f" (also lines {further})" if further else ""
        yield f"  {path}:{group[0].line}:{group[0].column}: {said}{also}"


def undetermined_files(scan: Scan) -> tuple[str, ...]:
    """Return `path: reason` for each file and folder that the scan could not read or parse."""
    unread = (f"{one.path}: {one.reason}" for one in scan.unread if not one.left_out)
    unparsed = (f"{one.path}: {one.message}" for one in scan.findings if one.rule == UNPARSED)
    return (*unread, *unparsed)


def files_of(count: int) -> str:
    """Return `1 file` or `3 files`."""
    return f"{count} file{'' if count == 1 else 's'}"


def scan_summary(scan: Scan, shown: Sequence[ScanFinding]) -> str:
    """What was scanned and what came of it, in a line or two."""
    accepted = len(scan.findings) - len(shown)
    unknown = len(undetermined_files(scan))
    left_out = sum(one.left_out for one in scan.unread)
    facts = [
        f"{counted(shown)} for {scan.target} in {files_of(scan.files)} ({scan.lines} lines)",
        f"{scan.suppressed} suppressed by comments" if scan.suppressed else "",
        f"{accepted} accepted by the baseline" if accepted else "",
        f"{files_of(unknown)} not determined (--json lists them)" if unknown else "",
        f"{left_out} folders left out (--json lists them)" if left_out else "",
    ]
    return "; ".join(fact for fact in facts if fact) + "\n"


def _said(finding: ScanFinding) -> str:
    gate = _GATES.get(finding.gate)
    where = f" ({gate.format(line=finding.gate_line)})" if gate is not None else ""
    return f"{finding.message}{where}"


def _groups(
    findings: Iterable[ScanFinding], rules: Mapping[str, Rule]
) -> Iterator[tuple[Rule, list[ScanFinding]]]:
    by_rule = {
        rule: sorted(group, key=lambda finding: (_ORDER[finding.severity], finding))
        for rule, group in groupby(
            sorted(findings, key=lambda finding: finding.rule), key=lambda finding: finding.rule
        )
    }
    order = sorted(
        by_rule,
        key=lambda rule: (_ORDER[by_rule[rule][0].severity], -len(by_rule[rule]), rule),
    )
    for rule in order:
        yield rules[rule], by_rule[rule]


def findings_markdown(
    findings: Sequence[ScanFinding], rules: Mapping[str, Rule], *, target: str
) -> str:
    """A summary for a pull request or a step: one row a rule."""
    lines = [
        f"### Scan for {target}: {counted(findings)}",
        "",
        "| severity | rule | what | places | first | fix |",
        "|---|---|---|---:|---|---|",
    ]
    for rule, group in _groups(findings, rules):
        first = group[0]
        cells = (
            first.severity.value,
            rule.id,
            rule.title,
            str(len(group)),
            f"{first.path}:{first.line}",
            rule.fix,
        )
        lines.append("| " + " | ".join(map(markdown_text, cells)) + " |")
    return "\n".join(lines if findings else lines[:1]) + "\n"


def annotation_lines(findings: Iterable[ScanFinding], rules: Mapping[str, Rule]) -> str:
    """GitHub's workflow commands, errors first, as
    many as it shows
    (https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands).
    """
    ordered = sorted(findings, key=lambda finding: (_ORDER[finding.severity], finding))
    kinds = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
    lines = []
    for finding in ordered[:ANNOTATIONS_SHOWN]:
        place = {
            "file": finding.path,
            "line": str(finding.line),
            "endLine": str(finding.end_line),
            "col": str(finding.column),
            "title": f"{finding.rule} {rules[finding.rule].title}",
        }
        properties = ",".join(f"{name}={_property(value)}" for name, value in place.items())
        text = _command_text(f"{finding.message}\nfix: {rules[finding.rule].fix}")
        lines.append(f"::{kinds[finding.severity]} {properties}::{text}")
    return "\n".join(lines) + ("\n" if lines else "")


def _command_text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _command_text(text).replace(":", "%3A").replace(",", "%2C")


def findings_json(
    findings: Iterable[ScanFinding], rules: Mapping[str, Rule]
) -> list[dict[str, object]]:
    """One object a finding, in their order."""
    return [
        {
            "rule": finding.rule,
            "severity": finding.severity.value,
            "path": finding.path,
            "line": finding.line,
            "column": finding.column,
            "end_line": finding.end_line,
            "end_column": finding.end_column,
            "message": finding.message,
            "gate": finding.gate.value,
            "gate_line": finding.gate_line,
            "excerpt": finding.excerpt,
            "fingerprint": finding.fingerprint,
            "phase": rules[finding.rule].phase,
            "fix": rules[finding.rule].fix,
        }
        for finding in findings
    ]


def findings_sarif(
    findings: Iterable[ScanFinding],
    rules: Mapping[str, Rule],
    *,
    unread: Iterable[str] = (),
    version: str,
) -> str:
    """SARIF 2.1.0, with the rules that occur."""
    listed = tuple(findings)
    named = sorted({finding.rule for finding in listed})
    return sarif.sarif_text(
        (_sarif_finding(finding) for finding in listed),
        rules=[_sarif_rule(rules[name]) for name in named],
        tool="warpfront-scan",
        version=version,
        unknown=unread,
    )


def _sarif_rule(rule: Rule) -> sarif.SarifRule:
    sources = "\n".join(f"- {source}" for source in rule.sources)
    return sarif.SarifRule(
        id=rule.id,
        summary=rule.title,
        help=f"{rule.why}\n\n**Fix:** {rule.fix}\n\nSources:\n{sources}\n",
    )


def _sarif_finding(finding: ScanFinding) -> sarif.SourceFinding:
    level: sarif.Level = "note"
    if finding.severity in {Severity.ERROR, Severity.WARNING}:
        level = "error" if finding.severity is Severity.ERROR else "warning"
    return sarif.SourceFinding(
        rule_id=finding.rule,
        message=_said(finding),
        path=finding.path,
        line=finding.line,
        column=finding.column,
        end_line=finding.end_line,
        end_column=finding.end_column,
        level=level,
        source=finding.excerpt,
        properties={"gate": finding.gate.value},
    )
