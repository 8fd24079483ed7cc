"""What a scan comes to, by folder, rule or step of a port, and where to begin. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from warpfront_port.scan.catalogue import Rule
from warpfront_port.scan.findings import ScanFinding, Severity
from warpfront_port.scan.phases import TITLES

View = Literal["folder", "rule", "phase"]
VIEWS: Final[tuple[View, ...]] = get_args(View)
_BOUND = frozenset({"CU103", "CU104", "CU107", "CU121", "CU122", "CU132", "CU145", "BL209"})
"""Written for NVIDIA's chips or libraries themselves: nothing to translate, but to rewrite."""
_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingShare:
    """The findings of one folder, rule or phase: `first` is where to begin, `bound` how many of its
    errors are of code that is NVIDIA's alone.
    """

    name: str
    errors: int
    warnings: int
    notes: int
    files: int
    first: str
    bound: int

    @property
    def is_nvidias(self) -> bool:
        """Whether most of what is wrong in a folder can only be left out or written anew."""
        return self.bound >= 3 and 2 * self.bound >= self.errors


def parts(
    findings: Iterable[ScanFinding], rules: Mapping[str, Rule], view: View
) -> tuple[FindingShare, ...]:
    """The findings by `view`, the worst first; phases in their order."""
    grouped: dict[str, list[ScanFinding]] = {}
    for finding in findings:
        grouped.setdefault(_name(finding, rules, view), []).append(finding)
    made = [_part(name, group) for name, group in grouped.items()]
    if view == "phase":
        return tuple(sorted(made, key=lambda part: part.name))
    return tuple(sorted(made, key=lambda part: (-part.errors, -part.warnings, part.name)))


def _name(finding: ScanFinding, rules: Mapping[str, Rule], view: View) -> str:
    if view == "folder":
        return finding.path.rpartition("/")[0] or "."
    rule = rules[finding.rule]
    if view == "rule":
        return f"{rule.id} {rule.title}"
    return f"{rule.phase} {TITLES[rule.phase]}"


def _part(name: str, group: Sequence[ScanFinding]) -> FindingShare:
    counts = Counter(finding.severity for finding in group)
    order = tuple(reversed(Severity))
    first = min(group, key=lambda finding: (order.index(finding.severity), finding))
    errors = [finding for finding in group if finding.severity is Severity.ERROR]
    return FindingShare(
        name=name,
        errors=len(errors),
        warnings=counts[Severity.WARNING],
        notes=counts[Severity.NOTE],
        files=len({finding.path for finding in group}),
        first=f"{first.path}:{first.line} ({first.rule})",
        bound=sum(finding.rule in _BOUND for finding in errors),
    )


def totals(findings: Iterable[ScanFinding]) -> dict[str, int]:
    """How many findings of each severity there are."""
    counts = Counter(finding.severity for finding in findings)
    kinds = (Severity.ERROR, Severity.WARNING, Severity.NOTE)
    return {f"{kind.value}s": counts[kind] for kind in kinds}


def view_text(
    findings: Sequence[ScanFinding],
    rules: Mapping[str, Rule],
    view: View,
    users: Mapping[str, int],
) -> str:
    """One line for each folder, rule or phase. `users` says how many files elsewhere use a folder
    that is NVIDIA's alone.
    """
    lines = [line for part in parts(findings, rules, view) for line in _lines(part, users)]
    return "\n".join(lines) + ("\n" if lines else "")


def _lines(part: FindingShare, users: Mapping[str, int]) -> Iterator[str]:
    counts = f"{part.errors:>5} errors {part.warnings:>5} warnings {part.notes:>5} notes"
    yield f"{counts} in {part.files:>4} files  {part.name}, first {part.first}"
    if part.name in users:
        yield f"{'':8}{_advice(part, users)}"


def _advice(part: FindingShare, users: Mapping[str, int]) -> str:
    return (
        f"{part.name} is NVIDIA's alone ({part.bound} of {part.errors} errors): leave it out or "
        f"rewrite it; {users[part.name]} files elsewhere use it"
    )


def nvidias_folders(findings: Iterable[ScanFinding], rules: Mapping[str, Rule]) -> tuple[str, ...]:
    """The folders that are NVIDIA's alone."""
    return tuple(part.name for part in parts(findings, rules, "folder") if part.is_nvidias)


def summary_text(
    findings: Sequence[ScanFinding], rules: Mapping[str, Rule], users: Mapping[str, int]
) -> str:
    """Where to begin, what a port costs by folder, and by step: a screen, not a list."""
    folders = parts(findings, rules, "folder")
    loud = [part for part in folders if part.errors or part.warnings]
    if not loud:
        return "nothing above a note\n"
    open_phases = [part for part in parts(findings, rules, "phase") if part.errors or part.warnings]
    lines = [f"start with phase {open_phases[0].name}: {open_phases[0].first}", "by phase"]
    lines += [f"  {_counted(part)}" for part in open_phases]
    lines.append("by folder")
    lines += [f"  {_counted(part)}" for part in loud[:_SHOWN]]
    if len(loud) > _SHOWN:
        lines.append(f"  ... and {len(loud) - _SHOWN} folders more (--by folder)")
    lines += [_advice(part, users) for part in folders if part.name in users]
    return "\n".join(lines) + "\n"


def _counted(part: FindingShare) -> str:
    return f"{part.errors:>5} errors {part.warnings:>5} warnings  {part.name}, first {part.first}"
