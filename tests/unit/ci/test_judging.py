"""The one check that counts: green only if every selected cell passed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from builders import a_report_row

from warpfront.bench.night_standing import NightStanding
from warpfront.ci.judging import judge
from warpfront.ci.schedule import Omitted, Schedule, Work
from warpfront.errors import BuildFailedError, NotVerifiedError, SlowerError, UnavailableError

CELL, TARGET = "cell", "sm_90"
PLANNED = Schedule(
    scope="nightly",
    channel="",
    build={"ubuntu": (Work(name="build-cell", cells=(CELL,)),)},
    verify={
        "h100": (Work(name="verify-cell", cells=(CELL,), target=TARGET, after=("build-cell",)),)
    },
)
PASSED = a_report_row(cell_id=CELL, target=TARGET)


def error_of(*rows: Any, planned: Schedule | None = PLANNED, **forge: Any) -> object:
    facts: dict[str, Any] = {"plan_ended": "success", "ended": ("success",), **forge}
    return judge(planned, rows, **facts).error


def test_green_is_when_everything_planned_has_passed() -> None:
    assert error_of(PASSED) is None
    assert error_of(PASSED, plan_ended="", ended=()) is None
    assert error_of(PASSED, ended=("success", "skipped")) is None


@pytest.mark.parametrize("verify", ["failed", "error", "skipped", "unavailable", "-"])
def test_whatever_is_no_pass_is_red(verify: str) -> None:
    error = error_of(dataclasses.replace(PASSED, verify=verify))
    assert isinstance(error, NotVerifiedError)


@pytest.mark.parametrize("build", ["failed", "blocked", "-"])
def test_what_was_not_built_is_red(build: str) -> None:
    error = error_of(dataclasses.replace(PASSED, build=build, reason="no network"))
    assert isinstance(error, BuildFailedError)
    assert "no network" in error.message


def test_a_result_that_is_missing_is_red() -> None:
    assert isinstance(error_of(), BuildFailedError)
    other = dataclasses.replace(PASSED, target="sm_80")
    assert isinstance(error_of(other), NotVerifiedError)


@pytest.mark.parametrize("ended", ["failure", "cancelled", ""])
def test_a_plan_that_did_not_succeed_is_red(ended: str) -> None:
    assert error_of(planned=None, plan_ended=ended) is not None
    if ended:
        assert error_of(PASSED, plan_ended=ended) is not None


@pytest.mark.parametrize("ended", ["failure", "cancelled"])
def test_a_job_that_ended_badly_and_left_no_reason_is_red(ended: str) -> None:
    assert isinstance(error_of(PASSED, ended=("success", ended)), NotVerifiedError)


def test_unavailable_is_listed_and_never_green() -> None:
    missing = (Omitted(cell_id="cell", target="sm_80", reason="no runner of the table has sm_80"),)
    planned = dataclasses.replace(PLANNED, unavailable=missing)
    found = judge(planned, [PASSED], plan_ended="success", ended=())
    assert isinstance(found.error, UnavailableError)
    assert found.unavailable == ("cell on sm_80: no runner of the table has sm_80",)
    assert found.passed == 1


def test_what_failed_comes_before_what_is_unavailable() -> None:
    missing = (Omitted(cell_id="cell", target="sm_80", reason="x"),)
    planned = dataclasses.replace(PLANNED, unavailable=missing)
    assert isinstance(error_of(planned=planned), BuildFailedError)


def test_what_a_night_found_slower_is_red_by_its_name_and_missing_timings_are_too() -> None:
    work = Work(name="bench-x", cells=(CELL,), target=TARGET)
    night = dataclasses.replace(PLANNED, bench={"h100": (work,)})
    fine = NightStanding(cell_id=CELL, target=TARGET, release="sha256:1")
    assert error_of(PASSED, planned=night, standings=(fine,)) is None
    slow = dataclasses.replace(fine, slower=("mm 1.1 (1.06..1.2)",))
    error = error_of(PASSED, planned=night, standings=(slow,), ended=("failure",))
    assert isinstance(error, SlowerError)
    assert f"{CELL} on {TARGET}: slower than the last release: mm 1.1" in error.message
    missing = error_of(PASSED, planned=night)
    assert isinstance(missing, SlowerError)
    assert "not timed" in missing.message
    assert isinstance(error_of(planned=night, standings=(slow,)), BuildFailedError)


def test_an_empty_plan_is_green() -> None:
    empty = Schedule(scope="pull_request", channel="", build={}, verify={}, unchanged=("cell",))
    assert error_of(planned=empty, ended=("success", "skipped", "skipped")) is None
