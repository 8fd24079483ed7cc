"""The one check that counts: green only if every selected cell passed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from builders import a_built_image, a_cell, a_channel, a_check, a_report_row, some_evidence

from warpfront.bench.nights import NightStanding
from warpfront.ci.judging import Judgement, RunEnd, demands_of, judge
from warpfront.ci.schedule import Omitted, Schedule, Work
from warpfront.errors import (
    BuildFailedError,
    NotPublishableError,
    NotVerifiedError,
    SlowerError,
    UnavailableError,
)
from warpfront.matrix.release_channels import Channel
from warpfront.release.ledger import Publication, Stage
from warpfront.step_results import Failed
from warpfront.verify.results import Outcome

NOW = "2026-11-22T12:00:00+00:00"
CELL, TARGET = "cell", "sm_90"
IMAGE = a_cell(id=CELL, vendor="nvidia", targets=(TARGET, "sm_80"))
PROVEN = some_evidence(IMAGE)
DEFAULTS: dict[str, Any] = {"now": NOW, "evidence": {CELL: PROVEN}}
PLANNED = Schedule(
    scope="nightly",
    channel="",
    build={"ubuntu": (Work(name="build-cell", cells=(CELL,)),)},
    verify={
        "h100": (Work(name="verify-cell", cells=(CELL,), target=TARGET, after=("build-cell",)),)
    },
)
PASSED = a_report_row(cell_id=CELL, target=TARGET)


def judged(
    *rows: Any,
    planned: Schedule | None = PLANNED,
    channel: Channel | None = None,
    listed: bool = False,
    **end: Any,
) -> Judgement:
    facts: dict[str, Any] = {"planned": "success", "jobs": ("success",)}
    facts |= {"evidence": {CELL: PROVEN}, **end}
    chosen = channel or a_channel()
    return judge(planned, rows, RunEnd(now=NOW, **facts), chosen, lists_unchecked=listed)


def error_of(
    *rows: Any,
    planned: Schedule | None = PLANNED,
    plan_ended: str = "success",
    ended: tuple[str, ...] = ("success",),
    **end: Any,
) -> object:
    facts = {"planned": plan_ended, "jobs": ended, **end}
    return judge(planned, rows, RunEnd(**{**DEFAULTS, **facts}), a_channel()).error


def test_green_is_when_everything_planned_has_passed() -> None:
    assert error_of(PASSED) is None
    assert error_of(PASSED, plan_ended="", ended=()) is None
    assert error_of(PASSED, ended=("success", "skipped")) is None


@pytest.mark.parametrize("verify", ["failed", "error", "skipped", "unavailable", "-"])
def test_whatever_is_no_pass_is_red(verify: str) -> None:
    outcome = Outcome(verify) if verify != "-" else Outcome.ERROR
    evidence = {CELL: some_evidence(IMAGE, a_check(outcome))}
    error = error_of(dataclasses.replace(PASSED, verify=verify), evidence=evidence)
    assert isinstance(error, NotVerifiedError)


@pytest.mark.parametrize("build", ["failed", "blocked", "-"])
def test_what_was_not_built_is_red(build: str) -> None:
    error = error_of(dataclasses.replace(PASSED, build=build, reason="no network"))
    assert isinstance(error, BuildFailedError)
    assert "no network" in error.message


def test_a_result_that_is_missing_is_red() -> None:
    assert isinstance(error_of(), BuildFailedError)
    empty = {CELL: dataclasses.replace(PROVEN, verifications={})}
    assert isinstance(error_of(PASSED, evidence=empty), NotVerifiedError)
    assert isinstance(error_of(PASSED, evidence={}), NotVerifiedError)


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
    found = judged(PASSED, planned=planned, jobs=())
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


PUBLISHING = dataclasses.replace(
    PLANNED,
    channel="release",
    publish=(Work(name="publish-cell", cells=(CELL,)),),
)
PUBLISHED = Publication(
    cell_id=CELL,
    channel="release",
    run="r",
    repository="registry.test/demo/torch",
    image_id=a_built_image(IMAGE).image_id,
    content_hash=a_built_image(IMAGE).content_hash,
    targets=(TARGET,),
    noted=(),
    tags=(),
    stage=Stage.DONE,
)


@pytest.mark.parametrize(
    ("publication", "why"),
    [
        (None, "no job left a result"),
        (
            Failed(cell_id=CELL, step="publish", reason="HTTP 500", exit_code=17, repeat="x"),
            "HTTP 500",
        ),
        (dataclasses.replace(PUBLISHED, stage=Stage.PROVEN), "it broke off at proven"),
        (dataclasses.replace(PUBLISHED, channel="nightly"), "it went to nightly"),
        (dataclasses.replace(PUBLISHED, image_id="sha256:other"), "another image"),
    ],
)
def test_what_was_not_published_is_red(publication: Any, why: str) -> None:
    """On either forge: a publication that failed was green on GitLab (audit 3, G14)."""
    assert error_of(PASSED, planned=PUBLISHING, publications={CELL: PUBLISHED}) is None
    found = judged(PASSED, planned=PUBLISHING, publications={CELL: publication})
    assert isinstance(found.error, NotPublishableError)
    assert why in found.error.message
    (fault,) = found.faults
    assert fault.repeat == f"warpfront publish --only {CELL} --channel release"


def test_each_failure_has_what_repeats_it() -> None:
    evidence = {CELL: some_evidence(IMAGE, a_check(Outcome.FAILED))}
    row = dataclasses.replace(PASSED, verify="failed", kind="verdict", repeat="warpfront verify it")
    (fault,) = judged(row, evidence=evidence).faults
    assert (fault.cell_id, fault.target, fault.kind) == (CELL, TARGET, "verdict")
    assert fault.repeat == "warpfront verify it"
    built, verified = judged(evidence={}).faults
    assert built.repeat == f"warpfront build --locked --only {CELL}"
    assert verified.repeat == f"warpfront verify --only {CELL} --target {TARGET}"


def test_the_state_of_the_verifying_job_counts_and_not_its_files_alone() -> None:
    """A job that failed, with results that passed, was green (audit 3, G14)."""
    for ended, why in (
        ({}, "the run has no job that verified it"),
        ({TARGET: "failure"}, "its job ended with failure, and its results say passed"),
        ({TARGET: "failed"}, "its job ended with failed"),
        ({TARGET: "cancelled"}, "its job ended with cancelled"),
    ):
        evidence = {CELL: dataclasses.replace(PROVEN, jobs=ended)}
        found = judged(PASSED, evidence=evidence)
        assert isinstance(found.error, NotVerifiedError)
        assert why in found.error.message
    proven = dataclasses.replace(PROVEN, jobs={TARGET: "success"})
    assert judged(PASSED, evidence={CELL: proven}).error is None


def test_a_job_that_failed_for_what_the_channel_allows_is_green_with_that_listed() -> None:
    checks = (a_check(), a_check(Outcome.SKIPPED, name="another"))
    skipped = dataclasses.replace(some_evidence(IMAGE, *checks), jobs={TARGET: "failed"})
    row = dataclasses.replace(PASSED, verify="skipped")
    found = judged(row, evidence={CELL: skipped}, channel=a_channel(allow=("skipped",)))
    assert found.error is None
    assert found.noted == (f"{CELL}: {TARGET}: load/another: skipped: ",)
    assert isinstance(judged(row, evidence={CELL: skipped}).error, NotVerifiedError)


def test_a_target_that_a_machine_was_planned_for_is_never_excused() -> None:
    """`any` and `unavailable` are about what is published, not about what a run planned."""
    gone = some_evidence(IMAGE, a_check(Outcome.UNAVAILABLE))
    lax = a_channel(targets="any", allow=("unavailable",))
    row = dataclasses.replace(PASSED, verify="unavailable")
    assert judged(row, evidence={CELL: gone}, channel=lax).error is not None
    empty = dataclasses.replace(PROVEN, verifications={})
    assert judged(PASSED, evidence={CELL: empty}, channel=lax).error is not None


def test_a_change_that_no_machine_of_a_pull_request_checks_is_pending_or_listed_first() -> None:
    """Red by default: a green check that nothing stands behind is taken for one that does."""
    later = (Omitted(cell_id=CELL, target="sm_80", reason="no runner of the table has sm_80"),)
    planned = dataclasses.replace(PLANNED, scope="pull_request", later=later)
    found = judged(PASSED, planned=planned)
    assert isinstance(found.error, UnavailableError)
    assert found.error.message.startswith("pending a GPU: 1 changed")
    assert "the label `gpu`" in found.error.hint
    listed = judged(PASSED, planned=planned, listed=True)
    assert (listed.error, listed.listed) == (None, found.pending)


def test_a_run_that_publishes_nothing_is_judged_by_what_the_night_will_demand() -> None:
    nightly = a_channel(name="nightly", allow=("skipped",), sessions=("load", "numerics"))
    found = demands_of("pull_request", "", (nightly,))
    assert found.sessions == ("load", "numerics")
    assert set(found.allow) == {"skipped", "bootstrap", "relaxed"}
    assert demands_of("release", "release", (nightly, a_channel())) == a_channel()
    alone = demands_of("pull_request", "", ())
    assert set(alone.allow) == {"bootstrap", "relaxed"}
    assert {"load", "numerics"} <= set(alone.sessions)
