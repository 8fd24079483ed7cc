"""check: one report of scan, compile, preflight and try."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from warpfront.errors import InputError, LockError
from warpfront.matrix.cell import Selection
from warpfront_port.commands import project_check
from warpfront_port.commands.project_check import Answer, check_project, check_text
from warpfront_port.commands.scanning import ScanRequest
from warpfront_port.scan.targets import read_target

OPEN = Answer.UNDETERMINED


class Silent:
    """A watch that shows nothing."""

    def say(self, text: str) -> None:
        pass

    def step(self, cell_id: str, text: str) -> None:
        pass

    def line(self, cell_id: str, text: str) -> None:
        pass

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None:
        pass


def checked(root: Path, **files: str) -> project_check.ProjectCheck:
    for name, text in files.items():
        (root / name.replace("__", ".")).write_text(text)
    request = ScanRequest(repo=root, target=read_target("gfx942"), compiler="none")
    return check_project(request, Selection(target="gfx942"), (), None, Silent())


def test_a_project_of_python_holds_and_what_did_not_run_says_so(tmp_path: Path) -> None:
    report = checked(tmp_path, a__py="import torch\n")
    assert report.answer is Answer.HOLDS
    lines = check_text(report).splitlines()
    assert lines[0] == "gfx942: runs as it is, nothing to check"
    answers = {part.name: part.answer for part in report.parts}
    assert answers == {
        "scan": Answer.HOLDS,
        "compile": Answer.NOTHING,
        "preflight": Answer.NOTHING,
        "try": Answer.NOTHING,
    }


def test_sources_that_nothing_compiled_make_the_report_not_determined(tmp_path: Path) -> None:
    report = checked(tmp_path, k__cu="__global__ void k() {}\n")
    assert report.answer is Answer.UNDETERMINED
    assert any(reason.startswith("compile: 0 of 1") for reason in report.reasons)


def test_the_first_line_is_no_pass_where_a_part_is_not_determined(tmp_path: Path) -> None:
    """The scan calls it AMD's by its own condition, and nothing compiled it."""
    kernel = "#if defined(USE_ROCM)\n#define WAVE 64\n#else\n#define WAVE 32\n#endif\n"
    report = checked(tmp_path, k__cu=f"{kernel}__global__ void k() {{}}\n")
    first = check_text(report).splitlines()[0]
    assert first == (
        "gfx942: not determined: compile: 0 of 1 CUDA source compiled: no HIP compiler was used"
        " (scan: runs as it is, nothing to check)"
    )


def test_an_error_of_the_scan_fails_the_report(tmp_path: Path) -> None:
    report = checked(tmp_path, a__py="import pynvml\n")
    assert report.answer is Answer.FAILS
    assert report.reasons == ("scan: will fail at run time: 1 cause",)


@pytest.mark.parametrize(
    ("answers", "worst", "reasons"),
    [
        ([Answer.HOLDS, Answer.NOTHING], Answer.HOLDS, ("0: zero",)),
        (
            [Answer.UNDETERMINED, Answer.HOLDS, Answer.UNDETERMINED],
            Answer.UNDETERMINED,
            ("0: zero", "2: two"),
        ),
        ([OPEN, Answer.FAILS, Answer.HOLDS], Answer.FAILS, ("1: one",)),
    ],
)
def test_the_worst_answer_counts_with_the_lines_of_all_its_parts(
    tmp_path: Path, answers: list[Answer], worst: Answer, reasons: tuple[str, ...]
) -> None:
    words = ("zero", "one", "two")
    parts = tuple(
        project_check.CheckPart(name=str(number), answer=answer, line=words[number])
        for number, answer in enumerate(answers)
    )
    report = dataclasses.replace(checked(tmp_path, a__py=""), parts=parts)
    assert (report.answer, report.reasons) == (worst, reasons)


@pytest.mark.parametrize(
    ("error", "answer"),
    [(InputError("no file", hint=""), Answer.NOTHING), (LockError("offline"), Answer.UNDETERMINED)],
)
def test_a_part_that_cannot_run_never_holds(error: Exception, answer: Answer) -> None:
    def fails() -> project_check.CheckPart:
        raise error

    part = project_check._part("preflight", fails)
    assert part.answer is answer
