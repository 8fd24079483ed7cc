"""The steps of a port, 0 to 8, from the findings: applicable ones, reasons, and open work. Pure.

The order and the first question (are there kernels?) are seed 004's. A phase that applies and has
no finding above a note is clear as far as a static scan can tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal

from warpfront_port.scan.catalogue import Rule
from warpfront_port.scan.findings import ScanFinding, Severity

State = Literal["skipped", "open", "clear"]

TITLES: Final = (
    "Environment: dependencies, base image, devices",
    "ROCm detection and flags",
    "Source translation",
    "Architecture: lanes, masks, shared memory",
    "Build system",
    "Library replacement",
    "torch.compile",
    "Graph capture",
    "Verification",
)
_KERNEL_SUFFIXES = frozenset({".cu", ".cuh", ".hip"})
_OF_KERNELS = frozenset({2, 3, 4})
_LOUD = frozenset({Severity.WARNING, Severity.ERROR})


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleShare:
    """The share of a rule in a phase: its number of findings, the first place, and the fix."""

    rule: str
    title: str
    fix: str
    errors: int
    warnings: int
    first: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A phase of the port. `why` is the reason for its state (skipped, open or clear).

    `steps` are the fixes, errors before warnings.
    """

    number: int
    title: str
    state: State
    why: str
    steps: tuple[RuleShare, ...]


def plan_port(
    findings: Iterable[ScanFinding], rules: Mapping[str, Rule], paths: Iterable[PurePosixPath]
) -> tuple[Phase, ...]:
    """Return all nine phases in order, for the tree of `paths`."""
    by_phase: dict[int, list[ScanFinding]] = {}
    for finding in findings:
        by_phase.setdefault(rules[finding.rule].phase, []).append(finding)
    kernels = sum(path.suffix in _KERNEL_SUFFIXES for path in paths)
    phases = [
        _phase(number, by_phase.get(number, []), rules, kernels) for number in range(len(TITLES))
    ]
    remaining = [str(phase.number) for phase in phases if phase.state == "open"]
    return (
        *phases[:-1],
        _verification(phases[-1], [number for number in remaining if number != "8"]),
    )


def _phase(
    number: int, findings: list[ScanFinding], rules: Mapping[str, Rule], kernels: int
) -> Phase:
    loud = [finding for finding in findings if finding.severity in _LOUD]
    steps = tuple(sorted(_steps(loud, rules), key=lambda step: (-step.errors, -step.warnings)))
    if number in _OF_KERNELS and not kernels and not loud:
        state: State = "skipped"
        why = "no .cu, .cuh or .hip file, and no CUDA text elsewhere: there is nothing to translate"
    elif loud:
        state = "open"
        errors = sum(finding.severity is Severity.ERROR for finding in loud)
        files = len({finding.path for finding in loud})
        why = f"{errors} errors and {len(loud) - errors} warnings in {files} files"
    else:
        state = "clear"
        why = f"nothing above a note; {len(findings)} notes" if findings else "nothing found"
    return Phase(number=number, title=TITLES[number], state=state, why=why, steps=steps)


def _steps(findings: list[ScanFinding], rules: Mapping[str, Rule]) -> Iterable[RuleShare]:
    for rule, count in Counter(finding.rule for finding in findings).items():
        of_rule = [finding for finding in findings if finding.rule == rule]
        errors = sum(finding.severity is Severity.ERROR for finding in of_rule)
        yield RuleShare(
            rule=rule,
            title=rules[rule].title,
            fix=rules[rule].fix,
            errors=errors,
            warnings=count - errors,
            first=f"{of_rule[0].path}:{of_rule[0].line}",
        )


def _verification(phase: Phase, remaining: list[str]) -> Phase:
    """Return the last phase, open until images pass: a scan never proves that a port works."""
    after = f"after phases {', '.join(remaining)}: " if remaining else ""
    summary = "" if phase.state == "clear" else f"{phase.why}; "
    why = f"{summary}{after}build the image and run `invoke verify` on the target"
    return Phase(number=8, title=phase.title, state="open", why=why, steps=phase.steps)


def phases_text(phases: Iterable[Phase]) -> str:
    """Return the plan as text, a phase a paragraph."""
    lines: list[str] = []
    for phase in phases:
        lines.append(f"phase {phase.number}  {phase.state:<7}  {phase.title}: {phase.why}")
        for step in phase.steps:
            count = step.errors + step.warnings
            times = "once" if count == 1 else f"{count} times"
            lines.append(f"    {step.rule} {step.title}, {times}, first {step.first}")
            lines.append(f"        {step.fix}")
    return "\n".join(lines) + "\n"
