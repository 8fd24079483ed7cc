"""What a person sees while something runs, on a terminal and on a pipe, narrow and wide."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from builders import a_built_image, a_cell
from rich.console import Console

from warpfront.cli.display import Display
from warpfront.cli.tasks.showing import print_plan, print_report
from warpfront.errors import keep_secret
from warpfront.images.plan import Action, PlannedCell
from warpfront.report.rows import CellFacts, report_rows
from warpfront.step_results import Failed

LONG = "nvidia-cuda130-sm80_sm90_sm100_sm120-py311-torch2141-devel"
SHORT = "cpu-x86_64-py311-torch2130-torch"
RUN = "3 of 9: RUN /tools/uv venv --no-config --offline --no-cache --python python3.11 /opt/venv"
WHEEL = "torch-2.14.1-cp311-cp311-manylinux_2_28_x86_64.whl"
HIDDEN, BACK = "\x1b[?25l", "\x1b[?25h"  # the cursor
WIDTHS = pytest.mark.parametrize("width", [80, 120])
Golden = Callable[[str, str], None]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@dataclass
class Clock:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


def watched(display: Display, clock: Clock) -> None:
    """A minute of a build: two cells, a download of which a part was there, and what ended."""
    display.step(LONG, RUN)
    display.step(SHORT, "1 of 9: FROM docker.io/library/python:3.11-slim-bookworm")
    display.line(LONG, "Resolved 31 packages in 12ms\n")
    display.line(LONG, "\x1b[2K\x1b[32mInstalling\x1b[0m 3/31\rInstalling 14/31\n")
    display.advance(WHEEL, 100_000_000, 900_000_000)
    display.advance("small.whl", 1_000, 9_000)
    display.advance("small.whl", 9_000, 9_000)
    display.step(LONG, RUN)
    display.line(LONG, "Installing 14/31")
    display.line("nobody", "whose line is this")
    clock.seconds = 20.0
    display.advance(WHEEL, 300_000_000, 900_000_000)
    clock.seconds = 61.0
    display.step(SHORT, "")
    display.advance(WHEEL, 710_000_000, 900_000_000)
    display.advance(WHEEL, 720_000_000, 900_000_000)


@WIDTHS
def test_a_terminal_shows_what_runs(
    width: int, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    clock, screen = Clock(), Console(width=width, record=True, file=io.StringIO())
    with Display(Terminal(), clock) as display:
        watched(display, clock)
        screen.print(display.panel())
    golden(f"display/terminal-{width}.txt", screen.export_text())


@WIDTHS
def test_a_pipe_gets_one_line_a_step_and_no_repeats(
    width: int, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    clock, pipe = Clock(), io.StringIO()
    with Display(pipe, clock) as display:
        watched(display, clock)
        clock.seconds = 65.0
        display.advance(WHEEL, 900_000_000, 900_000_000)
    lines = pipe.getvalue().splitlines()
    assert len(lines) == len(set(lines))
    assert max(map(len, lines)) <= width
    golden(f"display/pipe-{width}.txt", pipe.getvalue())


def test_a_transfer_that_fails_after_a_while_says_nothing_of_its_size() -> None:
    clock, pipe = Clock(), io.StringIO()
    with Display(pipe, clock) as display:
        display.advance(WHEEL, 1, 9)
        clock.seconds = 61.0
        display.advance(WHEEL, 0, 0)
    assert pipe.getvalue() == ""


def test_nothing_that_is_shown_has_a_secret_in_it(tmp_path: Path) -> None:
    secret = f"canary-of-{tmp_path.name}"
    keep_secret(secret)
    pipe = io.StringIO()
    for stream in (pipe, Terminal()):
        with Display(stream, Clock()) as display:
            display.say(f"said {secret} of https://me:hunter2@index.test/simple")
            display.step("a-cell", f"RUN use {secret}")
            display.line("a-cell", f"+ use {secret}")
            display.advance(f"https://index.test/{secret}/torch.whl", 1, 1)
            shown = Console(width=200, record=True, file=io.StringIO())
            shown.print(display.panel())
            assert secret not in shown.export_text()
        written = stream.getvalue()
        assert "said *** of https://***@index.test/simple" in written
        assert secret not in written
        assert "hunter2" not in written


def a_plan() -> list[PlannedCell]:
    unreachable = "https://download.pytorch.org/whl/cu126: its host name cannot be resolved"
    return [
        PlannedCell(
            cell_id=LONG,
            action=Action.BUILD,
            reason="no image with this content hash",
            download_bytes=3_000_000_000,
            estimated_bytes=7_100_000_000,
        ),
        PlannedCell(cell_id=SHORT, action=Action.REUSE, reason="", download_bytes=0),
        PlannedCell(
            cell_id=LONG.replace("devel", "torch"),
            action=Action.BLOCKED,
            reason=f"{unreachable}; nothing else here has torch==2.13.0+cu126",
            hint="make it reachable",
        ),
    ]


@WIDTHS
def test_tables_are_as_wide_as_columns_says(
    width: int, golden: Golden, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    cell, broken = a_cell(id=SHORT), a_cell(id=LONG, targets=("sm_80",))
    reason = "step 3 of 9: RUN uv venv: exit code: 2\n    error: No interpreter found for 3.11"
    failed = Failed(cell_id=LONG, step="build", reason=reason, exit_code=11)
    facts = [
        CellFacts(cell=cell, lock="", build=a_built_image(cell), verifications={}),
        CellFacts(cell=broken, lock="", build=failed, verifications={}),
    ]
    print_plan(Display(), a_plan())
    print_report(Display(), report_rows(facts))
    drawn = capsys.readouterr().out
    assert max(map(len, drawn.splitlines())) <= width
    assert not any(line.endswith(" ") for line in drawn.splitlines())
    golden(f"display/tables-{width}.txt", drawn)


def test_without_columns_a_pipe_is_as_wide_as_a_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "__stdout__", io.StringIO())
    print_plan(Display(), [a_plan()[2]])
    assert max(map(len, capsys.readouterr().out.splitlines())) in range(90, 121)


def begun_and_left(terminal: Terminal, *, ended_bytes: int | None) -> None:
    """A step and a transfer; Ctrl-C while they run, or after they ended."""
    with Display(terminal) as display:
        display.step(SHORT, RUN)
        display.advance(WHEEL, 1, 9)
        assert (terminal.getvalue().count(HIDDEN), terminal.getvalue().count(BACK)) == (1, 0)
        if ended_bytes is not None:
            display.advance(WHEEL, ended_bytes, ended_bytes)
            display.step(SHORT, "")
            assert terminal.getvalue().count(BACK) == 1
        raise KeyboardInterrupt


@pytest.mark.parametrize("ended_bytes", [9, 0, None], ids=["done", "failed", "Ctrl-C"])
def test_the_terminal_is_as_it_was_when_nothing_runs_any_more(
    ended_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal, before = Terminal(), threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        begun_and_left(terminal, ended_bytes=ended_bytes)
    assert (terminal.getvalue().count(HIDDEN), terminal.getvalue().count(BACK)) == (1, 1)
    for thread in threading.enumerate()[before:]:
        thread.join(60.0)
    assert threading.active_count() == before


def test_a_result_goes_to_stdout_also_while_a_terminal_is_watched(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = Terminal()
    with Display(terminal) as display:
        display.step(SHORT, RUN)
        print('{"a": 1}')
    assert capsys.readouterr().out == '{"a": 1}\n'
    assert '{"a": 1}' not in terminal.getvalue()


def test_who_draws_never_waits_for_who_speaks() -> None:
    """rich's thread holds rich's lock while it draws; ours is held by whoever speaks."""
    drawn: list[object] = []
    with Display(Terminal()) as display:
        display.step(SHORT, RUN)
        with display._lock:
            thread = threading.Thread(target=lambda: drawn.append(display.panel()))
            thread.start()
            thread.join(60.0)
            assert drawn


def test_a_program_cannot_draw_on_the_terminal() -> None:
    clock = Clock()
    with Display(io.StringIO(), clock) as display:
        display.step(SHORT, "a\x1b]0;title\x07b\x9b31mc\x08\x00d")
        display.line(SHORT, "10 %\r20 %\x1b[1A\x1b[2K")
        screen = Console(width=80, record=True, file=io.StringIO())
        screen.print(display.panel())
    assert screen.export_text().split() == ["0", "s", SHORT, r"ab\x9b31mc\x08\x00d", "20", "%"]


def test_a_pipe_hears_every_30_s_what_runs_and_what_it_last_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    clock, stream = Clock(), io.StringIO()
    with Display(stream, clock) as display:
        display.step(SHORT, "verifying on x86_64")
        display.line(SHORT, "3/9 sessions ended, 57/161 checks made; operators: add: passed")
        said = []
        for seconds in (10.0, 29.9, 30.0, 45.0, 60.0, 95.0):
            clock.seconds = seconds
            display.remind()
            said.append(stream.getvalue().count("57/161 checks made"))
        display.step(SHORT, "")
        clock.seconds = 200.0
        display.remind()

    assert said == [0, 0, 1, 1, 2, 3]
    assert (
        stream.getvalue()
        .splitlines()[1]
        .startswith(
            f"     30 s  {SHORT}: verifying on x86_64: 3/9 sessions ended, 57/161 checks made"
        )
    )
    assert len(stream.getvalue().splitlines()) == 4


def test_a_pipe_is_reminded_by_a_thread_that_ends_with_the_display(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reminded = threading.Event()
    monkeypatch.setattr("warpfront.cli.display._REMINDER_SECONDS", 0.001)
    monkeypatch.setattr(Display, "remind", lambda _display: reminded.set())
    with Display(io.StringIO()) as display:
        display.step(SHORT, "a")
        assert reminded.wait(60)
        thread = display._reminder
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()


def test_a_terminal_has_live_lines_and_no_reminders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with Display(Terminal()) as display:
        display.step(SHORT, "a")
        assert display._reminder is None
