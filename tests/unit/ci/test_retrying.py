"""Only infrastructure is tried again, and a verdict that changes is a finding."""

from __future__ import annotations

import dataclasses

import pytest
from builders import a_check, a_verification

from warpfront.ci.retrying import pause_seconds, with_flakiness, worth_another_try
from warpfront.errors import (
    BuildFailedError,
    EngineError,
    FailureKind,
    LockError,
    NotVerifiedError,
    StoreError,
    TimedOutError,
    WheelError,
    kind_of_exit,
)
from warpfront.step_results import Failed
from warpfront.verify.results import Outcome
from warpfront.verify.verdict import outcome_of

PASSED = a_verification(a_check(session="load"), sessions=("load",))
FAILED = dataclasses.replace(
    PASSED, checks=(a_check(Outcome.FAILED, session="load", name="sum", reason="0.1 off"),)
)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (EngineError, True),
        (WheelError, True),
        (StoreError, True),
        (LockError, False),
        (BuildFailedError, False),
        (NotVerifiedError, False),
        (TimedOutError, False),
    ],
)
def test_only_infrastructure_is_tried_again(error: type[EngineError], *, again: bool) -> None:
    failed = Failed(cell_id="a", step="build", reason="x", exit_code=error.exit_code)
    assert failed.kind is error.kind
    assert worth_another_try([PASSED, failed]) == again


def test_who_knows_better_says_so() -> None:
    full = Failed(
        cell_id="a", step="build", reason="disk", exit_code=6, kind=FailureKind.INFRASTRUCTURE
    )
    assert worth_another_try([full])


@pytest.mark.parametrize(
    ("code", "kind"), [(130, FailureKind.CANCELLED), (70, FailureKind.BUILD), (4, "resolution")]
)
def test_an_exit_code_is_of_a_kind(code: int, kind: str) -> None:
    assert kind_of_exit(code) == kind


def test_pauses_grow() -> None:
    assert [pause_seconds(tries) for tries in (1, 2)] == [10.0, 30.0]


def test_failed_and_then_passed_on_the_same_image_is_a_finding() -> None:
    judged = with_flakiness(PASSED, FAILED)
    assert outcome_of(judged) is Outcome.FAILED
    (flip,) = [check for check in judged.checks if check.name == "sum"]
    assert flip.reason.startswith("flips on one digest (failed 1, error 1 of 2 times): ")
    assert outcome_of(with_flakiness(PASSED, judged)) is Outcome.FAILED


@pytest.mark.parametrize(
    "outcome", [Outcome.SKIPPED, Outcome.UNAVAILABLE, Outcome.EMULATED, Outcome.UNDETERMINED]
)
def test_a_try_without_the_device_takes_no_failure_back(outcome: Outcome) -> None:
    """Some channels accept these outcomes."""
    later = dataclasses.replace(PASSED, checks=(*PASSED.checks, a_check(outcome, session="load")))
    assert outcome_of(with_flakiness(later, FAILED)) is Outcome.FAILED


def test_whatever_else_was_before_changes_nothing() -> None:
    other = dataclasses.replace(FAILED, content_hash="another")
    broken = dataclasses.replace(PASSED, checks=())
    elsewhere = dataclasses.replace(FAILED, target="another")
    for before in (None, PASSED, other, broken, elsewhere):
        assert with_flakiness(PASSED, before) == PASSED
    assert with_flakiness(FAILED, FAILED) == FAILED
