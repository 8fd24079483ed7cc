"""Foreign text reaches a terminal as text: through results, errors, hints, tables and JSON."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any, cast

import pytest
from builders import a_cell
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import Ended, command
from warpfront.cli.tasks.showing import finish, print_json, print_report
from warpfront.errors import InputError
from warpfront.report.rows import CellFacts, report_rows
from warpfront.step_results import Blocked
from warpfront_checks.guard.visible import VisibleStream, visible, visible_json, visible_output

HOSTILE = (
    "a\x1b]0;title\x07\x1b[2Jb\x9b31m\u202egnp.exe\u2066\u200b\x08\r\x7f\u2028\udc80"
    "[red]c[/red]:smile:"
)
SHOWN = (
    "a\\x1b]0;title\\x07\\x1b[2Jb\\x9b31m\\u202egnp.exe\\u2066\\u200b\\x08\\x0d\\x7f\\u2028\\udc80"
    "[red]c[/red]:smile:"
)
SOURCE = Path(__file__).parents[3] / "src" / "warpfront"


def test_what_hides_moves_or_reorders_is_written_out() -> None:
    assert visible(HOSTILE) == SHOWN


def test_lines_tabs_and_every_script_stay() -> None:
    text = "é 漢字 \N{ARABIC LETTER ALEF}\t\N{HEBREW LETTER ALEF} ✓ 👍\nnaïve\u0301\xa0."
    assert visible(text) == text


@given(st.text())
def test_no_text_whatever_keeps_an_invisible_character(text: str) -> None:
    shown = visible(text)

    assert {unicodedata.category(one) for one in shown if one not in "\n\t"}.isdisjoint(
        {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    )
    assert visible(shown) == shown
    assert shown.count("\n") == text.count("\n")


@given(st.text() | st.just("\x7f\x1b\u2028"))
def test_json_stays_the_same_value_in_visible_characters(text: str) -> None:
    printed = visible_json(json.dumps({text: [text]}))

    assert json.loads(printed) == {text: [text]}
    assert visible(printed) == printed


def test_what_an_encoding_lacks_is_written_out_and_no_error() -> None:
    raw = io.BytesIO()
    ascii_terminal = io.TextIOWrapper(raw, encoding="ascii")
    VisibleStream(ascii_terminal).writelines(["é", "漢"])
    ascii_terminal.flush()

    assert raw.getvalue() == b"\\xe9\\u6f22"


def test_both_streams_are_put_back_whatever_happens() -> None:
    before = sys.stdout, sys.stderr
    inner = []
    with contextlib.suppress(ValueError), visible_output(), visible_output():
        inner.append(sys.stdout)
        raise ValueError
    assert isinstance(inner[0], VisibleStream)
    assert not isinstance(inner[0].terminal, VisibleStream)
    assert (sys.stdout, sys.stderr) == before


@command("hostile")
def hostile(display: Display) -> None:
    """Print what a stranger wrote, everywhere."""
    display.say(f"said {HOSTILE}")
    print(f"printed {HOSTILE}")
    sys.stderr.write(f"warned {HOSTILE}\n")
    blocked = Blocked(cell_id="cell", step="build", reason=HOSTILE, hint=HOSTILE)
    finish(display, {"cell": blocked})


@command("raising")
def raising() -> None:
    """Raise what a stranger wrote."""
    raise InputError(f"read {HOSTILE}", hint=f"see {HOSTILE}")


@command("broken")
def broken() -> None:
    """Have a bug about it."""
    raise RuntimeError(HOSTILE)


@pytest.mark.parametrize("task", [hostile, raising, broken], ids=["printed", "error", "bug"])
def test_every_way_out_of_a_task_is_visible(task: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Ended) as ended:
        task.run({})
    # As the program prints it.
    print(ended.value.message, file=sys.stderr)
    printed = "".join(capfd.readouterr())

    assert SHOWN in printed
    assert visible(printed) == printed


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_table_has_foreign_text_as_text(
    is_terminal: bool,  # noqa: FBT001 - a case
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    stream = Stream()
    monkeypatch.setattr("sys.stdout", VisibleStream(stream))
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("TERM", "xterm")
    cell = a_cell(id=f"x{HOSTILE}")
    reason = f"because {HOSTILE}"
    blocked = Blocked(cell_id=cell.id, step="build", reason=reason, hint="")
    rows = report_rows([CellFacts(cell=cell, lock="", build=blocked, verifications={})])
    print_report(Display(), rows)
    text = stream.getvalue()

    assert text.count("gnp.exe") == 3, "the id, the reason, the line that repeats it"
    assert "[red]c[/red]:smile:" in text
    assert not {"\x07", "\x9b", "\u202e", "\u200b", "\x7f", "\u2028"} & set(text)
    assert "\x1b]" not in text
    assert "\x1b[2J" not in text
    assert ("\x1b[" in text) == is_terminal, "only our own colours are left"


def test_live_lines_have_foreign_text_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setenv("COLUMNS", "300")
    display = Display(cast("Any", VisibleStream(stream)))
    display.step("cell", "begun")
    display.line("cell", HOSTILE.partition("\r")[0])
    display.say(HOSTILE)
    drawn = Console(width=300, file=io.StringIO())
    drawn.print(display.panel())
    display.step("cell", "")
    text = stream.getvalue() + cast("io.StringIO", drawn.file).getvalue()

    assert SHOWN in text
    assert not {"\x07", "\x9b", "\u202e", "\u200b", "\x7f"} & set(text)


def test_json_on_stdout_is_json(capfd: pytest.CaptureFixture[str]) -> None:
    with visible_output():
        print_json({"reason": HOSTILE})
    printed = capfd.readouterr().out

    assert json.loads(printed) == {"reason": HOSTILE}
    assert visible(printed) == printed


@pytest.mark.process
def test_the_program_itself_prints_no_escape_of_a_strangers_file(tmp_path: Path) -> None:
    (tmp_path / "matrix.yaml").write_text("project: {name: x, registry: y}\nrows: [\x07]\n")
    named = "--only=\x1b[31mred"

    done = subprocess.run(
        [sys.executable, "-m", "warpfront", "plan", named], cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip

    assert done.returncode != 0
    assert visible(done.stdout + done.stderr) == done.stdout + done.stderr
