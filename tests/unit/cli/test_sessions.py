"""The door for checks: sessions are rows of tables, and the options of effort are read once."""

from __future__ import annotations

import argparse

import pytest
from nox import registry

from warpfront.cli.sessions import SESSION_TABLE
from warpfront.cli.tasks import namespace
from warpfront_checks.architectures.roster import (
    LIBRARY_OPTIONS,
    Library,
    read_library,
)
from warpfront_checks.check_options import (
    CHECK_SESSIONS,
    EFFORT_OPTIONS,
    SESSIONS,
    CheckOptions,
    add_options,
    drawn_seeds,
    parsed,
    profile_names,
    read_effort,
)


@pytest.mark.parametrize("name", SESSION_TABLE)
def test_a_row_is_a_session_of_nox_with_its_sentence(name: str) -> None:
    session = registry.get()[name]
    says, _ = SESSION_TABLE[name]
    assert session.func.__doc__ == says
    assert session.venv_backend == "none"
    assert session.default == (name == "verify")


def test_every_check_session_is_a_row_and_selftest_runs_only_where_asked_for() -> None:
    assert set(CHECK_SESSIONS) <= set(SESSION_TABLE)
    # `stack` is run where an image says what of a stack is tried.
    assert set(CHECK_SESSIONS) - set(SESSIONS) == {"selftest", "stack"}
    assert SESSIONS[0] == "load", "what imports torch is judged before what uses it"


def test_what_is_asked_of_a_library_is_the_same_at_every_door() -> None:
    made = argparse.ArgumentParser(exit_on_error=False)
    add_options(made, LIBRARY_OPTIONS)
    asked = Library(
        library="transformers",
        architectures=("t5",),
        kinds=("causal",),
        modes=("float32",),
        limit_seconds=600.0,
        workers=2,
    )
    assert parsed(made.parse_args(asked.arguments()), LIBRARY_OPTIONS, read_library) == asked
    plain = dict.fromkeys((option.attribute for option in LIBRARY_OPTIONS), "")
    assert read_library(**plain) == Library(library="transformers")
    for wrong, says in (
        ({"modes": "float9"}, "--modes 'float9' is none of float32"),
        ({"kinds": "a"}, "--kinds 'a' is none of causal"),
        ({"limit_seconds": "never"}, "--limit-seconds 'never' is no number"),
    ):
        with pytest.raises(ValueError, match=says):
            read_library(**{**plain, **wrong})


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(exit_on_error=False)
    add_options(made, EFFORT_OPTIONS)
    return made


@pytest.mark.parametrize(
    "effort",
    [
        CheckOptions(),
        CheckOptions(quick=True),
        CheckOptions(run="r-1", seeds=drawn_seeds("r-1", 3)),
        *(CheckOptions(profile=name, seeds=(0, 1)) for name in profile_names()),
    ],
    ids=lambda effort: " ".join(effort.arguments()),
)
def test_what_one_door_hands_on_the_next_reads_the_same(effort: CheckOptions) -> None:
    assert parsed(parser().parse_args(effort.arguments()), EFFORT_OPTIONS, read_effort) == effort


def test_a_run_draws_seeds_of_its_own_and_the_same_by_its_id() -> None:
    fresh = [
        parsed(parser().parse_args(["--seeds", "3"]), EFFORT_OPTIONS, read_effort) for _ in range(2)
    ]
    assert fresh[0].run != fresh[1].run
    assert not set(fresh[0].seeds) & set(fresh[1].seeds)
    assert min(fresh[0].seeds) >= 2**16, "no seed that a bound was set on"
    again = parser().parse_args(["--seeds", "3", "--run", fresh[0].run])
    assert parsed(again, EFFORT_OPTIONS, read_effort) == fresh[0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--seeds", "0"], "'0' is not a number from 1 on"),
        (["--seeds", "x"], "'x' is not a number from 1 on"),
        (["--profile", "loose"], "no profile 'loose'"),
        (["--run", "a b"], "'a b' is not an id"),
    ],
)
def test_a_wrong_effort_is_refused_in_the_same_words(wrong: list[str], said: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=said):
        parser().parse_args(wrong)


def test_both_doors_explain_an_effort_alike() -> None:
    helps = {option.name: option.help for option in EFFORT_OPTIONS}
    listed = {action.dest: action.help for action in parser()._actions if action.dest in helps}
    task = {one.attr_name or one.name: one.help for one in namespace["verify"].get_arguments()}
    assert listed == helps
    assert {name: task[name] for name in helps} == helps
