"""What a session leaves of itself, at every moment: the file, the lines, and the words for what was
raised.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from warpfront_checks import results
from warpfront_checks.results import (
    CheckFinding,
    Checks,
    Recorder,
    failed,
    finding_from,
    judged,
    passed,
    unavailable,
    write_json,
)


class OutOfMemoryError(RuntimeError):
    """As torch calls a device's."""


def raising(error: Exception) -> CheckFinding:
    raise error


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Each look at the clock comes 1.23456 s after the one before."""
    clock = itertools.count(100.0, 1.23456)
    monkeypatch.setattr(results, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    return Recorder(session="load", target="sm_90", folder=tmp_path)


def test_a_finding_is_its_outcome_its_reason_and_its_values() -> None:
    assert vars(passed()) == {"outcome": "passed", "reason": "", "details": {}}
    for make, outcome in ((passed, "passed"), (failed, "failed"), (unavailable, "unavailable")):
        found = vars(make("because", seen=1))
        assert found == {"outcome": outcome, "reason": "because", "details": {"seen": 1}}


@pytest.mark.parametrize(
    ("faults", "said"),
    [((), "passed: as it should be"), (("a",), "failed: a"), (("a", "b"), "failed: a (and 1 more)"),
     (("a", "b", "c"), "failed: a (and 2 more)")],
)  # fmt: skip
def test_what_is_judged_fails_by_its_first_fault_and_keeps_its_values(
    faults: tuple[str, ...], said: str
) -> None:
    found = judged(faults, "as it should be", seen=1)
    assert (f"{found.outcome}: {found.reason}", found.details) == (said, {"seen": 1})
    assert judged(()).reason == ""


def test_the_file_says_what_is_planned_before_anything_ran(recorder: Recorder) -> None:
    recorder.note_unclaimed("gpus", "no device is claimed")
    recorder.plan(["one", "two"])
    recorder.plan(["two", "three"])
    assert recorder.planned == ("one", "two", "three")
    assert json.loads(recorder.path.read_text()) == {
        "schema": 1,
        "session": "load",
        "target": "sm_90",
        "environment": {},
        "planned": ["one", "two", "three"],
        "unclaimed": [{"name": "gpus", "reason": "no device is claimed"}],
        "checks": [],
        "finished": False,
        "seconds": 2.4691,
    }


def test_the_file_is_true_after_every_check_and_each_has_its_line(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def look() -> CheckFinding:
        seen.append(json.loads(recorder.path.read_text()))
        return passed(values=2)

    recorder.environment["torch"] = "2.13.0"
    checks: Checks = {
        "wrong": lambda: failed("two is not one"),
        "raises": lambda: raising(ValueError("no")),
        "looks": look,
    }
    recorder.run(checks)
    (before,) = seen
    assert [one["name"] for one in before["checks"]] == ["wrong", "raises"]
    assert (before["finished"], before["environment"]) == (False, {"torch": "2.13.0"})
    kept = json.loads(recorder.path.read_text())
    assert (kept["finished"], kept["unclaimed"]) == (False, [])
    assert kept["checks"][0] == {
        "name": "wrong",
        "outcome": "failed",
        "reason": "two is not one",
        "seconds": 1.2346,
        "details": {},
    }
    assert kept["checks"][1]["details"]["exception"] == "ValueError"
    assert kept["checks"][2]["details"] == {"values": 2}
    lines = capsys.readouterr().out.splitlines(keepends=True)
    assert lines[0] == "load: wrong: failed (1.23 s): two is not one\n"
    assert lines[1].startswith("load: raises: error (1.23 s): ValueError at test_checks_results.py")
    assert lines[2:] == ["load: looks: passed (1.23 s)\n"]
    assert recorder.found[2] == ("looks", "passed")
    assert recorder.finish() is False
    assert json.loads(recorder.path.read_text())["finished"] is True


def test_a_reason_in_the_place_of_a_function_is_not_claimed(recorder: Recorder) -> None:
    recorder.run({"gpus": "no device is claimed", "one": passed})
    assert (recorder.planned, recorder.found) == (("one",), (("one", "passed"),))
    kept = json.loads(recorder.path.read_text())["unclaimed"]
    assert kept == [{"name": "gpus", "reason": "no device is claimed"}]
    assert recorder.finish() is True


def test_only_all_that_was_planned_and_passed_is_a_pass(recorder: Recorder) -> None:
    assert recorder.finish() is False
    recorder.run({"one": passed})
    assert recorder.finish() is True
    recorder.plan(["another"])
    assert recorder.finish() is False
    recorder.run({"another": lambda: unavailable("no device")})
    assert recorder.finish() is False


@pytest.mark.parametrize("tamper", [Path.unlink, lambda path: path.write_text("{}")])
def test_a_file_that_was_not_as_it_was_left_is_no_pass_even_when_it_is_again(
    recorder: Recorder, tamper: Callable[[Path], object]
) -> None:
    assert recorder.is_ours()
    recorder.run({"one": passed})
    left = recorder.path.read_bytes()
    assert recorder.is_ours()
    tamper(recorder.path)
    assert not recorder.is_ours()
    recorder.path.write_bytes(left)
    assert not recorder.is_ours()
    assert recorder.finish() is False


def test_what_was_raised_is_told_by_its_type_its_words_and_the_line_that_raised_it() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        raising(ZeroDivisionError("  by nothing\n"))
    line = raising.__code__.co_firstlineno + 1
    found = finding_from(caught.value)
    assert vars(found) == {
        "outcome": "error",
        "reason": f"ZeroDivisionError at test_checks_results.py:{line}: by nothing",
        "details": {
            "exception": "ZeroDivisionError",
            "message": "by nothing",
            "line": f"test_checks_results.py:{line}",
        },
    }
    assert finding_from(KeyError("x" * 3000)).details["message"] == "'" + "x" * 1999
    full = {
        OutOfMemoryError("tried to allocate 2 GiB"): "OutOfMemoryError",
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"): "RuntimeError",
    }
    for error, name in full.items():
        assert finding_from(error).reason == f"out of memory: {name} at unknown: {error}"


def test_the_line_is_that_of_the_innermost_of_all_that_were_called() -> None:
    names: dict[str, Callable[[], None]] = {}
    for name, text in {
        "outer": "def outer(): middle()",
        "middle": "\ndef middle(): inner()",
        "inner": "\n\ndef inner(): raise KeyError",
    }.items():
        exec(compile(text, f"/somewhere/{name}.py", "exec"), names)
    with pytest.raises(KeyError) as caught:
        names["outer"]()
    assert finding_from(caught.value).details["line"] == "inner.py:3"


def test_a_file_is_written_aside_the_same_each_time_and_holds_no_number_that_is_none(
    tmp_path: Path,
) -> None:
    path = tmp_path / "it.json"
    write_json(path, {"b": Path("é"), "a": [1]})
    assert path.read_bytes() == b'{\n "a": [\n  1\n ],\n "b": "\\u00e9"\n}\n'
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, {"a": float("nan")})
    assert [one.name for one in tmp_path.iterdir()] == ["it.json"]
