"""check: scan, compile, preflight and try of one project, in one report. Edge."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from warpfront.errors import InputError, WarpfrontError
from warpfront.matrix.cell import Selection
from warpfront.pipeline.workspace import Workspace
from warpfront.step_results import Blocked, Failed
from warpfront.system.progress import Watch
from warpfront.system.texts import counted
from warpfront_port.commands.scanning import ScanRequest, scan, verdict_of
from warpfront_port.commands.syntax_passes import with_compiler
from warpfront_port.finding_forms import Scan, noun_of, verdict_text
from warpfront_port.scan.verdict import Verdict, VerdictAnswer


class Answer(StrEnum):
    """The result of a part, the worst first. `NOTHING`: there was nothing to determine."""

    FAILS = "does not hold"
    UNDETERMINED = "not determined"
    HOLDS = "holds"
    NOTHING = "nothing to determine"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPart:
    """A part of the report: `line` is its answer in words, `text` its details.

    `Answer.NOTHING` is a part that did not run because it had no input.
    """

    name: str
    answer: Answer
    line: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectCheck:
    """The report: its first line, then every part."""

    verdict: Verdict
    parts: tuple[CheckPart, ...]

    @property
    def answer(self) -> Answer:
        """Return the worst answer of all parts."""
        return min((part.answer for part in self.parts), key=list(Answer).index)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return the lines of all parts that have the worst answer."""
        worst = (part for part in self.parts if part.answer is self.answer)
        return tuple(f"{part.name}: {part.line}" for part in worst)

    @property
    def line(self) -> str:
        """Return the scan's verdict, or the answer of another part that is worse."""
        is_worse = self.answer in {Answer.FAILS, Answer.UNDETERMINED}
        if self.verdict.answer is not VerdictAnswer.RUNS or not is_worse:
            return self.verdict.line
        target, _, verdict = self.verdict.line.partition(": ")
        return f"{target}: {self.answer}: {'; '.join(self.reasons)} (scan: {verdict})"


def check_project(
    request: ScanRequest,
    cells: Selection,
    argv: tuple[str, ...],
    workspace: Workspace | None,
    watch: Watch,
) -> ProjectCheck:
    """Return the report on a project. A part that cannot run is undetermined, with the reason.

    `cells` are the cells of preflight and try; `argv` is a program to try, if any.
    """
    compiled = partial(with_compiler, request=request, workspace=workspace, watch=watch)
    scanned, new = scan(request, watch, compiled)
    verdict = verdict_of(scanned, new)
    answers = {VerdictAnswer.RUNS: Answer.HOLDS, VerdictAnswer.UNDETERMINED: Answer.UNDETERMINED}
    answer = answers.get(verdict.answer, Answer.FAILS)
    line = verdict.line.partition(": ")[2]
    parts = (
        CheckPart(name="scan", answer=answer, line=line, text=verdict_text(verdict, scanned)),
        _compile_part(scanned),
        _part("preflight", lambda: _preflight(request, cells, workspace, watch)),
        _part("try", lambda: _try(request.repo, argv, cells, workspace, watch)),
    )
    return ProjectCheck(verdict=verdict, parts=parts)


def _compile_part(scanned: Scan) -> CheckPart:
    units = len(scanned.project.units)
    if not units:
        return CheckPart(name="compile", answer=Answer.NOTHING, line="no CUDA sources")
    line = f"{len(scanned.compiled)} of {counted(units, noun_of(scanned.project))} compiled"
    line += f" by {scanned.compiler}" if scanned.compiler else ": no HIP compiler was used"
    if refused := {finding.path for finding in scanned.findings if finding.rule == "CC701"}:
        line = f"{line}: errors in {len(refused)}"
        return CheckPart(name="compile", answer=Answer.FAILS, line=line)
    answer = Answer.HOLDS if len(scanned.compiled) == units else Answer.UNDETERMINED
    return CheckPart(name="compile", answer=answer, line=line)


def _part(name: str, run: Callable[[], CheckPart]) -> CheckPart:
    try:
        return run()
    except WarpfrontError as error:
        answer = Answer.NOTHING if isinstance(error, InputError) else Answer.UNDETERMINED
        return CheckPart(name=name, answer=answer, line=str(error).splitlines()[0])


def _preflight(
    request: ScanRequest, cells: Selection, workspace: Workspace | None, watch: Watch
) -> CheckPart:
    from warpfront_port.commands.preflighting import preflight  # noqa: PLC0415 - loads the resolver
    from warpfront_port.preflight.findings import preflight_text  # noqa: PLC0415 - see above

    part = partial(CheckPart, name="preflight")
    if workspace is None:
        return part(answer=Answer.NOTHING, line="no matrix.yaml here")
    if not any(request.target.name in cell.targets for cell in workspace.matrix.cells):
        line = f"no cell of matrix.yaml serves {request.target.name}"
        return part(answer=Answer.NOTHING, line=line)
    result = preflight(workspace, cells, watch, repo=request.repo, offline=True)
    part = partial(part, text=preflight_text(result))
    if result.count:
        line = f"{counted(result.count, 'requirement')} would replace torch"
        return part(answer=Answer.FAILS, line=line)
    if result.unknown:
        return part(answer=Answer.UNDETERMINED, line="; ".join(result.unknown[:2]))
    return part(answer=Answer.HOLDS, line="torch stays as it is")


def _try(
    repo: Path, argv: tuple[str, ...], cells: Selection, workspace: Workspace | None, watch: Watch
) -> CheckPart:
    from warpfront_port.commands.trial_runs import TrialRequest, try_project  # noqa: PLC0415 - loads the resolver
    from warpfront_port.trying.trial import trial_text  # noqa: PLC0415 - see above

    part = partial(CheckPart, name="try")
    if not argv:
        return part(answer=Answer.NOTHING, line="no program was named: `-- python train.py`")
    if workspace is None:
        return part(answer=Answer.UNDETERMINED, line="no matrix.yaml here")
    cells = dataclasses.replace(cells, image=cells.image or "torch")
    trial = try_project(workspace, cells, watch, TrialRequest(repo=repo, argv=argv))
    if isinstance(trial, Blocked | Failed):
        return part(answer=Answer.UNDETERMINED, line=str(trial.reason))
    part = partial(part, text=trial_text(trial, name="app"))
    if trial.works:
        return part(answer=Answer.HOLDS, line="it runs")
    lacks = ", ".join(trial.lacking) or "it failed, and no missing module is why"
    return part(answer=Answer.FAILS, line=f"lacks {lacks}")


def check_text(check: ProjectCheck) -> str:
    """Return the report for a terminal: its answer, a line for each part, then the details."""
    lines = [check.line]
    lines += [f"{part.name:<9} {part.answer:<20} {part.line}" for part in check.parts]
    for part in check.parts:
        details = part.text.splitlines()[1 if part.name == "scan" else 0 :]
        lines += ["", f"== {part.name}", *details] if details else []
    return "\n".join(lines) + "\n"
