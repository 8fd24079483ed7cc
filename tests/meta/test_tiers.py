"""What runs when: sweeps are asked for, and leave what they came to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
pytest_plugins = ["pytester"]

SWEPT = """
import pytest

def test_always():
    pass

@pytest.mark.exhaustive
@pytest.mark.parametrize("wrong", [False, True])
def test_swept(wrong):
    assert not wrong

@pytest.mark.exhaustive
def test_without_its_fixture(nothing):
    pass
"""


@pytest.fixture
def results(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the sweeps of a suite with this one's rules are written."""
    path = pytester.path / "sweeps.json"
    monkeypatch.setattr("sweeps.RESULTS", path)
    pytester.makeconftest((TESTS / "conftest.py").read_text(encoding="utf-8"))
    pytester.makeini("[pytest]\nmarkers =\n    exhaustive: a sweep\n")
    pytester.makepyfile(test_it=SWEPT)
    return path


def test_a_test_that_starts_programs_is_in_a_file_that_says_so(
    pytester: pytest.Pytester, results: Path
) -> None:
    """Another would be in no tier."""
    pytester.makepyfile(marks="import pytest\n\nSTARTS = pytest.mark.process\n")
    pytester.makepyfile(test_it="from marks import STARTS\n\n@STARTS\ndef test_it(): pass\n")
    pytester.syspathinsert()
    ended = pytester.runpytest_inprocess("-W", "ignore")
    ended.stderr.fnmatch_lines("*test_it.py: its marker `process` is not in its text")
    assert not results.exists()
    tiers = (TESTS.parent / "scripts" / "test").read_text(encoding="utf-8")
    assert "grep -rl --include='test_*.py' 'mark\\.process'" in tiers


def test_sweeps_do_not_run_by_themselves(pytester: pytest.Pytester, results: Path) -> None:
    pytester.runpytest_inprocess().assert_outcomes(passed=1, deselected=3)
    assert not results.exists()


def test_sweeps_that_are_asked_for_leave_their_outcomes_beside_older_ones(
    pytester: pytest.Pytester, results: Path
) -> None:
    before = {"test_it.py::test_swept[False]": {"failed": 1}, "other": {"passed": 3}}
    results.write_text(json.dumps(before))
    asked = pytester.runpytest_inprocess("--exhaustive")
    asked.assert_outcomes(passed=2, failed=1, errors=1)
    assert json.loads(results.read_text()) == {
        "other": {"passed": 3},
        "test_it.py::test_swept": {"passed": 1},
        "test_it.py::test_swept[True]": {"failed": 1},
        "test_it.py::test_without_its_fixture": {"failed": 1},
    }


def test_pytests_that_share_files_run_each_of_them_once(
    pytester: pytest.Pytester, results: Path, tmp_path: Path
) -> None:
    """The file that another takes is the last of its folder, which is torn down all the same."""
    shared = f"--share={tmp_path}"
    pytester.mkdir("folder")
    files = {"folder/test_a": "def test_one(): pass", "folder/test_b": "def test_two(): pass"}
    pytester.makepyfile(**files)
    pytester.runpytest_inprocess(shared, "folder/test_b.py").assert_outcomes(passed=1)
    left = pytester.runpytest_inprocess(shared, "folder", "test_it.py")
    left.assert_outcomes(passed=2, deselected=3)
    ended = pytester.runpytest_inprocess(shared)
    ended.assert_outcomes(deselected=3)
    assert ended.ret == 0
    assert not results.exists()
