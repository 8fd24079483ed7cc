"""tools/mutate.py: its tables are about what is there, and no room is let off below the line."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PATH = "src/warpfront/images/bake.py"


@pytest.fixture(scope="module")
def mutate() -> Any:
    spec = importlib.util.spec_from_file_location("mutate", ROOT / "tools" / "mutate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutate"] = module
    spec.loader.exec_module(module)
    return module


def a_score(mutate: Any, lived: int = 0, sown: tuple[str, ...] = ()) -> Any:
    return mutate.Score(
        room=mutate.Room(path=PATH, tests=()),
        made=100,
        survivors=tuple(
            mutate.Mutant(function="f", was=f"a | {n}", becomes="b") for n in range(lived)
        ),
        sown=2,
        sown_survivors=sown,
        seconds=1.0,
        of="1234567, 2026-11-22",
    )


def test_every_room_and_every_test_of_it_is_there(mutate: Any) -> None:
    table = mutate.read_table("rooms")
    assert table["threshold"] >= 90
    for room in table["rooms"]:
        assert (ROOT / room["path"]).is_file(), room["path"]
        assert room["tests"]
        for file, _, test in (one.partition("::") for one in room["tests"]):
            assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8"), (file, test)


def test_every_sown_mutant_changes_text_that_stands_once_in_its_room(mutate: Any) -> None:
    rooms = {room["path"] for room in mutate.read_table("rooms")["rooms"]}
    for mutant in mutate.read_table("sown")["mutants"]:
        assert mutant["room"] in rooms
        text = (ROOT / mutant["room"]).read_text(encoding="utf-8")
        assert text.count(mutant["before"]) == 1, mutant["what"]
        compile(text.replace(mutant["before"], mutant["after"]), mutant["room"], "exec")
        assert mutant["after"] != mutant["before"]


def test_every_explained_survivor_has_a_room_and_a_reason(mutate: Any) -> None:
    rooms = {room["path"] for room in mutate.read_table("rooms")["rooms"]}
    for one in mutate.read_table("survivors")["survivors"]:
        assert one["room"] in rooms
        assert one["reason"]
        assert one["becomes"]


@pytest.mark.parametrize(
    ("lived", "sown", "short"),
    [(0, (), False), (10, (), False), (11, (), True), (0, ("contexts",), True)],
)
def test_a_room_is_short_below_the_line_or_where_a_sown_mutant_lives(
    mutate: Any, lived: int, sown: tuple[str, ...], *, short: bool
) -> None:
    assert mutate.is_short(a_score(mutate, lived, sown), 90) is short


def test_a_room_without_mutants_is_short(mutate: Any) -> None:
    nothing = mutate.Score(
        room=mutate.Room(path=PATH, tests=()), made=0, survivors=(), sown=0, sown_survivors=(),
        seconds=0.0, of="",
    )  # fmt: skip
    assert mutate.is_short(nothing, 90)


def test_the_page_counts_what_was_killed_and_shows_every_survivor(mutate: Any) -> None:
    score, other = (
        a_score(mutate, 2, ("contexts",)),
        mutate.Room(path="src/warpfront/a/b.py", tests=()),
    )
    page = mutate.page([score.room, other], [score], 90)
    assert "| images/bake | 100 | 98 | 2 | 0 | 98.0 | 2, 1 | 1234567, 2026-11-22 |" in page
    assert "| a/b | never run |" in page
    assert "| **together** | 100 | 98 | 2 | 0 | 98.0 | 2, 1 | |" in page
    assert "| `f` | `a \\| 1` | `b` | no reason given yet |" in page


@pytest.mark.parametrize(
    ("reason", "explains"),
    [
        ({"function": "f", "becomes": ["c", "b"]}, True),
        ({"becomes": ["b"]}, True),
        ({"function": "g", "becomes": ["b"]}, False),
        ({"function": "f", "becomes": ["c"]}, False),
        ({"function": "f", "becomes": ["bb"]}, False),
    ],
)
def test_a_reason_explains_the_mutant_that_it_names(
    mutate: Any, reason: dict[str, Any], *, explains: bool
) -> None:
    mutant = mutate.Mutant(function="f", was="a", becomes="b")
    assert mutate.explains(reason, mutant) is explains


def test_only_a_failing_test_or_a_spent_clock_is_a_kill(mutate: Any) -> None:
    survived, no_tests, segfault, interrupted = 0, 33, -11, 2
    assert not mutate.KILLED & {survived, no_tests, segfault, interrupted, None}


def test_mutmut_mutates_the_room_alone_and_runs_its_tests_alone(mutate: Any) -> None:
    room = mutate.Room(path=PATH, tests=("tests/a.py", "tests/b.py"))
    text = mutate.settings(room)
    assert f"only_mutate =\n    {PATH}\n" in text
    assert "pytest_add_cli_args_test_selection =\n    tests/a.py\n    tests/b.py\n" in text


def test_the_last_run_of_a_room_is_kept_beside_those_of_others(mutate: Any, tmp_path: Path) -> None:
    file, other = tmp_path / "scores.json", mutate.Room(path="src/warpfront/a/b.py", tests=())
    first, last = a_score(mutate, 2, ("contexts",)), a_score(mutate, 1)
    beside = dataclasses.replace(first, room=other)
    assert mutate.saved([other], file) == []
    for score in (first, beside, last):
        mutate.save(score, file)
    assert mutate.saved([first.room, other], file) == [last, beside]


def test_the_page_says_what_is_known_of_every_room(mutate: Any) -> None:
    table = mutate.read_table("rooms")
    rooms = [mutate.Room(path=one["path"], tests=tuple(one["tests"])) for one in table["rooms"]]
    right = mutate.page(rooms, mutate.saved(rooms, mutate.SCORES), table["threshold"])
    assert mutate.PAGE.read_text(encoding="utf-8") == right
