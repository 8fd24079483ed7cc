"""Foreign text in a job's log gives its runner no command."""

from __future__ import annotations

import io
import sys

import pytest

from warpfront.cli.job_output import JobStream, job_output, shown, without_commands
from warpfront_checks.guard.visible import terminal_of

COMMANDS = [
    ("::add-mask::x", ": :add-mask::x"),
    ("  \t::error::x", "  \t: :error::x"),
    ("a\n::set-output name=a::b", "a\n: :set-output name=a::b"),
    ("see ##[add-path]/tmp", "see ## [add-path]/tmp"),
    ("##[error]a ##[warning]b", "## [error]a ## [warning]b"),
    ("torch::Tensor a", "torch::Tensor a"),
]


@pytest.mark.parametrize(("text", "written"), COMMANDS)
def test_a_line_is_no_command(text: str, written: str) -> None:
    assert without_commands(text) == written
    stream = io.StringIO()
    JobStream(stream).write(text)
    assert stream.getvalue() == written


@pytest.mark.parametrize("text", [text for text, _ in COMMANDS])
def test_a_line_in_pieces_is_no_command(text: str) -> None:
    stream = io.StringIO()
    JobStream(stream).writelines(text)
    assert stream.getvalue() == without_commands(text)


def test_after_a_carriage_return_a_line_begins() -> None:
    stream = io.StringIO()
    JobStream(stream).write("50 %\r::error::x")
    assert stream.getvalue() == "50 %\\x0d: :error::x"


@pytest.mark.parametrize(("job", "written"), [("true", ": :error::x\n"), ("", "::error::x\n")])
def test_all_that_a_task_prints_in_a_job_is_no_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], job: str, written: str
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", job)
    with job_output(), job_output():
        print("::error::x")
        print("::error::x", file=sys.stderr)
        print("::error::own", file=terminal_of(sys.stdout))
    assert capsys.readouterr() == (f"{written}::error::own\n", written)
    assert f"{shown('::error::x')}\n" == written
