"""The answer of a scan: one verdict for the target, and the causes behind it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final

from warpfront.system.texts import counted
from warpfront_port.scan.catalogue import Rule
from warpfront_port.scan.findings import Consequence, Gate, ScanFinding, Severity
from warpfront_port.scan.package_rules import known_name, modules_of
from warpfront_port.scan.project import Project
from warpfront_port.scan.reach import MANIFESTS
from warpfront_port.scan.structured import kind_of

_HOURS: Final[Mapping[Consequence, tuple[float, float]]] = {
    Consequence.BUILD: (0.5, 4.0),
    Consequence.WRONG: (0.5, 4.0),
    Consequence.RUNTIME: (0.25, 2.0),
    Consequence.CHECK: (0.1, 0.5),
}
"""Hours for one cause, at least and at most: a rule of thumb, measured nowhere."""


class VerdictAnswer(StrEnum):
    """The five answers, the worst first."""

    BUILD = "will not build"
    WRONG = "may compute wrongly"
    RUNTIME = "will fail at run time"
    UNDETERMINED = "not determined"
    RUNS = "runs as it is"


_PACKAGING: Final = ("DP", "CT", "SH")
_REQUIRED = re.compile(
    r"requirement (?:\S+://\S+/(?=\w+-\S+\.whl)|\S+://[\w.]+/[\w.-]+/)?(\w+(?:[.-][A-Za-z]\w*)*)"
)
_ANSWERS: Final[Mapping[Consequence, VerdictAnswer]] = {
    Consequence.BUILD: VerdictAnswer.BUILD,
    Consequence.WRONG: VerdictAnswer.WRONG,
    Consequence.RUNTIME: VerdictAnswer.RUNTIME,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Findings with one reason. `places` are `path:line`, in order; `uses` counts all places behind
    them; `taken` are the places that show files to run on AMD already.
    """

    rule: str
    consequence: Consequence
    severity: Severity
    message: str
    fix: str
    places: tuple[str, ...]
    uses: int
    taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a port: files and causes, and hours as a range with its `basis`."""

    files: int
    causes: int
    hours: tuple[float, float]
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The number of files that count as AMD's by one place (`path:line`), and its reason."""

    files: int
    place: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer for `target`.

    `reasons` explain the undetermined parts. `compiler` names the compiler of the sources, "" for
    none. `causes` are in the order of consequences.
    """

    target: str
    answer: VerdictAnswer
    causes: tuple[Cause, ...]
    reasons: tuple[str, ...]
    project: Project
    size: Size
    taken: tuple[Taken, ...] = ()
    compiler: str = ""

    def of(self, consequence: Consequence) -> tuple[Cause, ...]:
        """Return the causes of one consequence."""
        return tuple(cause for cause in self.causes if cause.consequence is consequence)

    @property
    def line(self) -> str:
        """Return the first line of every form: the target, the answer and the number behind it."""
        deciding = next((key for key, answer in _ANSWERS.items() if answer is self.answer), None)
        if deciding is not None:
            return f"{self.target}: {self.answer}: {counted(len(self.of(deciding)), 'cause')}"
        if self.answer is VerdictAnswer.UNDETERMINED:
            more_reasons = counted(len(self.reasons) - 1, "more reason")
            more = f" (and {more_reasons})" if len(self.reasons) > 1 else ""
            return f"{self.target}: {self.answer}: {self.reasons[0]}{more}"
        checks = len(self.of(Consequence.CHECK))
        number = counted(checks, "thing") if checks else "nothing"
        return f"{self.target}: {self.answer}, {number} to check"

    def reaches(self, gate: str) -> bool:
        """Return true if the verdict fails a gate: `build`, `wrong` or `runtime`, or `any`."""
        if gate == "any":
            return self.answer in _ANSWERS.values()
        return bool(self.of(Consequence(gate)))


def judge_project(
    target: str,
    findings: Iterable[ScanFinding],
    rules: Mapping[str, Rule],
    project: Project,
    *,
    undetermined: Sequence[str] = (),
    taken: Sequence[Taken] = (),
    compiler: str = "",
) -> Verdict:
    """Return the verdict on a project from its findings.

    Errors outside of tests and examples decide; other findings above a note are things to check.
    `undetermined` are reasons why some part of the project has no verdict.
    """
    listed = [finding for finding in findings if finding.severity.level > 1]
    causes = tuple(_causes(listed, rules, project))
    hours = [round(sum(_HOURS[cause.consequence][end] for cause in causes), 1) for end in (0, 1)]
    caused = {cause.consequence for cause in causes}
    otherwise = VerdictAnswer.UNDETERMINED if undetermined else VerdictAnswer.RUNS
    return Verdict(
        target=target,
        answer=next((answer for key, answer in _ANSWERS.items() if key in caused), otherwise),
        causes=causes,
        reasons=tuple(undetermined),
        project=project,
        size=Size(
            files=len({finding.path for finding in listed}),
            causes=len(causes),
            hours=(hours[0], hours[1]),
            basis="rule of thumb, without tests of results",
        ),
        taken=tuple(taken),
        compiler=compiler,
    )


def consequence_of(finding: ScanFinding, rule: Rule, project: Project) -> Consequence:
    """Return the consequence of one finding: an error of the product decides, the rest is to check.

    The product is what the root's build reaches, without tests and examples. A manifest, image or
    script of a folder decides nothing, nor does a package that no module imports, unless the root's
    own installation builds it. A build of a folder decides where CUDA sources lie below it.
    """
    path = PurePosixPath(finding.path)
    inside = len(path.parts) > 1
    image = path.name.startswith("Dockerfile") and project.product.installs
    script = inside and kind_of(path) == "shell"
    packaging = script or (rule.id.startswith(_PACKAGING) and (inside or image))
    product = project.product.has(finding.path) and not project.product.is_aside(finding.path)
    of_cuda = rule.id == "DP303" or (rule.id == "DP304" and path.name not in MANIFESTS)
    unneeded = of_cuda and not any(map(project.product.needs, modules_of(required(finding))))
    if finding.severity is not Severity.ERROR or packaging or unneeded or not product:
        return Consequence.CHECK
    of_a_folder = rule.id.startswith("BL") and path.suffix != ".py"
    below = f"{path.parent}/" if inside else ""
    without = project.units and not any(unit.startswith(below) for unit in project.units)
    # CMake starts no makefile of a folder.
    started = not (inside and path.name == "Makefile" and "CMakeLists.txt" in project.cmake)
    decides = not of_a_folder or (started and not without)
    return rule.consequence if decides else Consequence.CHECK


def required(finding: ScanFinding) -> str:
    """Return the normal name of the distribution that a finding is about; "" for others."""
    match = _REQUIRED.match(finding.message)
    return known_name(match[1].removesuffix(".git")) if match else ""


def _causes(
    findings: Sequence[ScanFinding], rules: Mapping[str, Rule], project: Project
) -> Iterable[Cause]:
    """Return the causes in order."""
    pairs = [(f, consequence_of(f, rules[f.rule], project)) for f in findings]
    called = {f.path for f, c in pairs if f.gate is Gate.CALLED and c is Consequence.RUNTIME}
    most = project.product.is_most({*called, *project.product.of_nvidia} if called else called)
    groups: dict[tuple[Consequence, str, str], list[ScanFinding]] = {}
    for finding, consequence in pairs:
        on_call = finding.gate is Gate.CALLED and consequence is not Consequence.WRONG
        deciding = Consequence.CHECK if on_call and not most else consequence
        groups.setdefault((deciding, finding.rule, finding.cause), []).append(finding)
    listed: list[Cause] = []
    for (consequence, rule, _), group in groups.items():
        first = min(group, key=lambda entry: (-entry.severity.level, entry.path, entry.line))
        places = [f"{finding.path}:{finding.line}" for finding in (first, *group)]
        if len(group) == 1:
            places += [f"{first.path}:{line}" for line in first.uses]
        cause = Cause(
            rule=rule,
            consequence=consequence,
            severity=first.severity,
            message=first.message,
            fix=rules[rule].fix,
            places=tuple(dict.fromkeys(places)),
            uses=sum(max(len(finding.uses), 1) for finding in group),
            taken=tuple(dict.fromkeys(finding.taken for finding in group if finding.taken)),
        )
        listed.append(cause)
    order = list(Consequence)
    return sorted(
        listed,
        key=lambda cause: (
            order.index(cause.consequence),
            -cause.severity.level,
            cause.rule.startswith(_PACKAGING),
            -cause.uses,
            cause.rule,
            cause.places,
        ),
    )
