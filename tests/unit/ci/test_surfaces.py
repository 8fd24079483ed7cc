"""Summaries and annotations: worst first, cut to what is taken, and nobody's text a command."""

from __future__ import annotations

import dataclasses

from builders import a_built_image, a_check, a_verification

from warpfront.ci.judging import Judgement
from warpfront.ci.schedule import Omitted, Schedule
from warpfront.ci.summaries import (
    ANNOTATION_LIMIT,
    cut,
    error_commands,
    job_summary,
    judgement_summary,
    plan_summary,
)
from warpfront.step_results import Blocked, Failed
from warpfront.verify.results import Outcome

PASSED = a_verification()
BAD = a_verification(
    a_check(Outcome.FAILED, session="load", name="torch", reason="it | is <b>"),
    sessions=("load",),
)
FAILED = Failed(cell_id="bad", step="build", reason="pip:\n exited with `1`", exit_code=6)
BLOCKED = Blocked(cell_id="far", step="build", reason="out of reach")


def test_the_worst_comes_first_with_the_line_that_repeats_it() -> None:
    text = job_summary("build-x", [a_built_image(), PASSED, BLOCKED, BAD, FAILED], tries={"a": 3})
    lines = text.splitlines()
    assert lines[0] == "### build-x: 2 failed, 1 blocked, 1 made, 1 passed"
    assert lines[2] == "- **failed** (build) `bad`: pip: exited with \\`1\\`"
    assert lines[3] == "  repeat: `warpfront build --locked --only bad`"
    assert lines[4].startswith(f"- failed `{BAD.cell_id}`")
    assert lines[5] == "  - load/torch: it \\| is &lt;b&gt;"
    assert f"warpfront verify --only {BAD.cell_id} --target {BAD.target}" in lines[6]
    assert lines[-1] == "- a was tried 3 times"


def test_a_summary_is_cut_to_what_is_taken_and_says_how_much_more_there_is() -> None:
    text = cut((f"- line {number} é" for number in range(100)), limit_bytes=300)
    assert len(text.encode()) <= 300
    kept = text.count("- line")
    assert text.endswith(f"and {100 - kept} more\n")
    assert cut(["a", "b"], limit_bytes=300) == "a\nb\n"


def test_a_plan_lists_what_nobody_can_and_what_comes_later() -> None:
    planned = Schedule(
        scope="pull_request",
        channel="",
        build={},
        verify={},
        unavailable=(Omitted(cell_id="a", target="", reason="no | lock"),),
        later=(Omitted(cell_id="b", target="sm_90", reason="x"),),
    )
    text = plan_summary(planned)
    assert text.startswith("### pull_request: 0 to build, 0 to verify, 0 unchanged\n")
    assert "| a | - | no \\| lock |" in text
    assert "not in this scope** (1)" in text


def test_a_judgement_says_red_or_green() -> None:
    red = Judgement(failures=("a: not built (x)",), unavailable=("b: y",), passed=3)
    text = judgement_summary(red)
    assert text.startswith("### red: 1 failed, 1 unavailable, 3 passed\n")
    assert text.index("a: not built") < text.index("b: y")
    assert judgement_summary(Judgement(failures=(), unavailable=(), passed=1)).startswith("### gre")


def test_an_annotation_stands_at_the_row_of_its_cell() -> None:
    (command,) = error_commands([FAILED, PASSED], {"bad": 12})
    assert command.startswith("::error file=matrix.yaml,line=12,title=bad::")
    assert command.endswith("repeat: warpfront build --locked --only bad")


def test_a_text_of_somebodys_program_ends_no_command() -> None:
    evil = dataclasses.replace(FAILED, cell_id="a,b:c%", reason="100%\n::warning::x\r\n")
    (command,) = error_commands([evil], {})
    assert "\n" not in command
    assert "\r" not in command
    assert ",title=a%2Cb%3Ac%25::" in command
    assert "100%25 ::warning::x" in command


def test_more_than_is_shown_is_counted() -> None:
    many = [dataclasses.replace(FAILED, cell_id=f"c{number}") for number in range(30)]
    commands = error_commands(many, {})
    assert len(commands) == ANNOTATION_LIMIT
    more = 30 - ANNOTATION_LIMIT + 1
    assert commands[-1] == f"::error title=more::and {more} more, in the summary"


def test_what_nobody_checked_comes_first_also_in_a_green_run() -> None:
    later = ("gpu on sm_90: no runner of the table has sm_90",)
    green = Judgement(failures=(), unavailable=(), passed=2, listed=later)
    first, _, second, *_ = judgement_summary(green).splitlines()
    assert first == "### green: 1 NOT CHECKED, 0 failed, 0 unavailable, 2 passed"
    assert second == f"- not checked, no machine of this run has it: {later[0]}"
    red = Judgement(failures=(), unavailable=(), passed=2, pending=later, noted=("x: skipped",))
    lines = judgement_summary(red, ["states of jobs: not determined (x)"]).splitlines()
    assert lines[0] == "### red: 0 failed, 1 pending a GPU, 0 unavailable, 2 passed"
    assert lines[2:] == [
        f"- pending a GPU: {later[0]}",
        "- allowed by the channel: x: skipped",
        "- states of jobs: not determined (x)",
    ]
