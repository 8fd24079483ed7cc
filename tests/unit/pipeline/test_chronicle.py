"""The history of runs on a branch: it grows, two runs at once are both in it, and the token that
writes it stands in no argument.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from warpfront.commands.paging import NIGHTS, RUNS, branch_history
from warpfront.errors import UnavailableError
from warpfront.system.process import Command, Completed, run

pytestmark = pytest.mark.process

BRANCH = "warpfront-history"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of a repository with no commit at all."""
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path / "origin")], check=True)
    made = tmp_path / "clone"
    words = ["git", "clone", "--quiet", str(tmp_path / "origin"), str(made)]
    subprocess.run(words, check=True, capture_output=True)
    return made


def kept(clone: Path, name: str = RUNS) -> str:
    words = ["git", "-C", str(clone.parent / "origin"), "show", f"{BRANCH}:{name}"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def add(clone: Path, line: str, name: str = RUNS) -> str:
    """What was there before."""
    with branch_history(BRANCH, clone, run, {}) as folder:
        before = (folder / name).read_text()
        (folder / name).write_text(before + line)
    return before


def test_it_begins_with_the_first_run_and_grows(clone: Path) -> None:
    assert add(clone, "one\n") == ""
    assert add(clone, "two\n") == "one\n"
    assert kept(clone) == "one\ntwo\n"
    with branch_history(BRANCH, clone, run, {}):
        pass  # nothing is added, nothing is pushed
    count = ["git", "-C", str(clone.parent / "origin"), "rev-list", "--count", BRANCH]
    assert subprocess.run(count, check=True, capture_output=True).stdout == b"2\n"


def test_runs_and_nights_grow_beside_each_other(clone: Path) -> None:
    add(clone, "a night\n", NIGHTS)
    add(clone, "a run\n")
    add(clone, "another night\n", NIGHTS)
    assert (kept(clone), kept(clone, NIGHTS)) == ("a run\n", "a night\nanother night\n")


def test_two_runs_that_end_at_once_are_both_in_it(clone: Path) -> None:
    add(clone, "one\n")
    with branch_history(BRANCH, clone, run, {}) as folder:
        add(clone, "another run's\n")
        (folder / RUNS).write_text((folder / RUNS).read_text() + "mine\n")
    assert kept(clone) == "one\nanother run's\nmine\n"


def test_a_push_that_loses_the_race_is_made_again_and_not_for_ever(clone: Path) -> None:
    pushes: list[Command] = []

    def refusing(times: int) -> object:
        def ran(command: Command) -> Completed:
            if command.argv[1] == "push":
                pushes.append(command)
                if len(pushes) <= times:
                    said = "! [rejected] (fetch first)"
                    return Completed(command=command, returncode=1, stdout="", stderr=said)
            return run(command)

        return ran

    with branch_history(BRANCH, clone, refusing(2), {}) as folder:  # type: ignore[arg-type]
        (folder / RUNS).write_text("one\n")
    assert (len(pushes), kept(clone)) == (3, "one\n")
    pushes.clear()
    history = branch_history(BRANCH, clone, refusing(99), {})  # type: ignore[arg-type]
    with pytest.raises(UnavailableError, match="rejected"), history as folder:
        (folder / RUNS).write_text("one\ntwo\n")
    assert (len(pushes), kept(clone)) == (5, "one\n")


def test_the_token_is_an_environment_s_and_no_argument_s(clone: Path) -> None:
    seen: list[Command] = []

    def noting(command: Command) -> Completed:
        seen.append(command)
        return run(command)

    with branch_history(BRANCH, clone, noting, {"HISTORY_TOKEN": "a canary"}) as folder:
        (folder / RUNS).write_text("one\n")
    assert all("canary" not in str(command.argv) for command in seen)
    assert all("basic" in (command.environment or {})["GIT_CONFIG_VALUE_0"] for command in seen)


def test_a_checkout_without_an_origin_is_said(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    with pytest.raises(UnavailableError, match="no history"):
        add(tmp_path, "one\n")
