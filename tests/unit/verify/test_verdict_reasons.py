"""Results files that are not quite right: each wrong thing is one error that says what it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpfront.system.tree_files import Unreadable
from warpfront.verify.results import CheckResult, Outcome, Verification
from warpfront.verify.verdict import (
    count_outcomes,
    outcome_of,
    read_session,
    read_verification,
    verification_document,
    worst_of,
)
from warpfront_checks.results import OUTCOMES


def check(name: str = "a", outcome: str = "passed", **more: Any) -> dict[str, Any]:
    return {"name": name, "outcome": outcome, "reason": "", "seconds": 0.5, **more}


def results(*checks: object, **change: Any) -> dict[str, Any]:
    document = {
        "schema": 1,
        "session": "load",
        "target": "cpu",
        "planned": [one["name"] for one in checks if isinstance(one, dict)],
        "checks": list(checks),
        "finished": True,
    }
    return {**document, **change}


def read(document: object, ended: str = "") -> tuple[CheckResult, ...]:
    return read_session(document, session="load", target="cpu", ended=ended)


def an_error(name: str, reason: str) -> CheckResult:
    return CheckResult(session="load", name=name, outcome=Outcome.ERROR, reason=reason, seconds=0.0)


def verify(nox_report: object = None, **files: object) -> Verification:
    about = Verification(
        cell_id="demo", target="cpu", where="image", image_id="sha256:1", content_hash="2",
        seconds=2.0,
    )  # fmt: skip
    return read_verification(about, files, nox_report=nox_report)


def test_a_check_is_read_with_everything_it_says() -> None:
    written = check("a", "failed", reason="off by 2", seconds=3, details={"bound": 1})
    (found,) = read(results(written))
    assert found == CheckResult(
        session="load", name="a", outcome=Outcome.FAILED, reason="off by 2", seconds=3.0,
        details={"bound": 1},
    )  # fmt: skip
    assert isinstance(found.seconds, float)


def test_a_check_may_leave_out_its_details() -> None:
    (found,) = read(results(check()))
    assert found.details == {}


@pytest.mark.parametrize(
    "finished", ["false", "true", "yes", 1, 0, "", None, [True], {"finished": True}, False]
)
def test_only_true_itself_means_that_a_session_finished(finished: object) -> None:
    assert read(results(check(), finished=finished))[1:] == (
        an_error("end", "the session did not come to its end"),
    )


def test_a_file_that_does_not_say_whether_it_finished_did_not() -> None:
    document = results(check())
    del document["finished"]
    assert worst_of(one.outcome for one in read(document)) is Outcome.ERROR


def test_how_the_process_ended_is_told_wherever_something_is_missing() -> None:
    assert read(None, "killed") == (
        an_error("results", "the session left no results file: killed"),
    )
    assert read(None) == (an_error("results", "the session left no results file"),)
    assert read(results(planned=["a", "b"], finished=False), "killed") == (
        an_error("a", "planned, but there is no result: the session did not get to it: killed"),
        an_error("b", "planned, but there is no result: the session did not get to it: killed"),
        an_error("end", "the session did not come to its end: killed"),
    )
    assert read(results(planned=["a"])) == (
        an_error("a", "planned, but there is no result: the session did not get to it"),
    )


def test_where_nobody_says_how_the_process_ended_nothing_is_told_of_it() -> None:
    missing = an_error("results", "the session left no results file")
    assert read_session(None, session="load", target="cpu") == (missing,)
    assert verify(load=None).checks == (missing,)


def test_a_check_that_is_reported_more_than_once_is_an_error_once() -> None:
    checks = [check(), check("b"), check(), check()]
    assert read(results(*checks, planned=["a", "b"]))[4:] == (an_error("a", "reported 3 times"),)


def test_a_check_that_nobody_planned_is_an_error() -> None:
    assert read(results(check(), check("b"), planned=["a"]))[2:] == (
        an_error("b", "reported without being planned"),
    )


def test_a_session_without_a_plan_and_without_checks_proves_nothing() -> None:
    assert read(results()) == (an_error("results", "the session planned no checks"),)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "the results file must be an object"),
        ({1: 2}, "schema is None, not 1"),
        (results(schema=2), "schema is 2, not 1"),
        (results(session="numerics"), "session is 'numerics', not 'load'"),
        (results(target="sm_90"), "target is 'sm_90', not 'cpu'"),
        (results(planned=None), "planned must be a list"),
        (results(planned={"a": 1}), "planned must be a list"),
        (results(planned=[1]), "planned must be a string"),
        (results(checks="a"), "checks must be a list"),
        (results(check(), checks=[7]), "checks must be an object"),
        (results(check(), checks=[{1: 2}]), "checks must be an object"),
        (results(check("a", "fine")),
         f"outcome 'fine' is none of {', '.join(OUTCOMES)}"),
        (results(check() | {"outcome": None}), "outcome must be a string"),
        (results(check(), checks=[check() | {"name": 3}]), "name must be a string"),
        (results(check(reason=None)), "reason must be a string"),
        (results(check(seconds=True)), "seconds must be a number"),
        (results(check(seconds="1")), "seconds must be a number"),
        (results(check(details=[])), "details must be an object"),
        (results(check(details={1: 2})), "details must be an object"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_says_which_field_is_wrong(
    document: object, reason: str
) -> None:
    assert read(document) == (an_error("results", f"the results file cannot be used: {reason}"),)


def test_what_is_kept_and_cannot_be_read_is_an_error_with_the_reason() -> None:
    broken = Unreadable(reason="half of it is missing")
    assert read(broken) == (
        an_error("results", f"the results file cannot be used: {broken.reason}"),
    )
    assert verify(broken, load=results(check())).checks[1:] == (
        an_error("nox", f"nox's report cannot be used: {broken.reason}"),
    )


def test_a_verification_holds_what_it_is_of_and_every_session_in_order() -> None:
    bench = results(check("b"), session="bench", environment={"gpu": "none"})
    verification = verify(load=results(check(), environment={"torch": "2"}), bench=bench)
    assert verification == Verification(
        cell_id="demo",
        target="cpu",
        where="image",
        image_id="sha256:1",
        content_hash="2",
        sessions=("load", "bench"),
        checks=(
            CheckResult(session="load", name="a", outcome=Outcome.PASSED, reason="", seconds=0.5),
            CheckResult(session="bench", name="b", outcome=Outcome.PASSED, reason="", seconds=0.5),
        ),
        seconds=2.0,
        environment={"torch": "2", "gpu": "none"},
    )


def test_how_the_process_ended_reaches_the_checks_of_a_verification() -> None:
    about = Verification(cell_id="demo", target="cpu", where="here")
    verification = read_verification(about, {"load": None}, ended="exit 139")
    assert verification.checks == (
        an_error("results", "the session left no results file: exit 139"),
    )


@pytest.mark.parametrize(
    ("nox_report", "reason"),
    [
        ({"sessions": [{"name": "load", "result": "failed"}]},
         "nox says failed, the results file says that all passed"),
        ({"sessions": []}, "nox's report does not name this session"),
        ({"sessions": [7, {"name": "numerics", "result": "success"}]},
         "nox's report does not name this session"),
        ({"sessions": {"load": "success"}}, "nox's report does not name this session"),
        ({}, "nox's report does not name this session"),
        ("half a fi", "nox's report does not name this session"),
    ],
)  # fmt: skip
def test_nox_and_the_file_contradict_each_other_in_words(nox_report: object, reason: str) -> None:
    verification = verify(nox_report, load=results(check()))
    assert verification.checks[1:] == (an_error("nox", reason),)


def test_a_check_that_did_not_pass_contradicts_a_nox_that_succeeded() -> None:
    report = {"sessions": [7, {"name": "load", "result": "success"}]}
    for outcome in ("failed", "skipped", "unavailable"):
        verification = verify(report, load=results(check(outcome=outcome)))
        assert verification.checks[1:] == (
            an_error("nox", "nox says success, the results file says that not all passed"),
        )
    assert len(verify(report, load=results(check())).checks) == 1


@pytest.mark.parametrize(
    ("document", "environment"),
    [
        (results(check(), environment={"torch": "2"}, unclaimed=["gpu"]),
         {"torch": "2", "unclaimed in load": ["gpu"]}),
        (results(check(), environment=["torch"], unclaimed=[]), {}),
        (results(check(), unclaimed=["gpu"]), {"unclaimed in load": ["gpu"]}),
        (results(check()), {}),
        (["environment"], {}),
        (None, {}),
    ],
)  # fmt: skip
def test_what_a_session_saw_is_kept_where_it_can_be_read(
    document: object, environment: dict[str, object]
) -> None:
    assert verify(load=document).environment == environment


def test_a_verification_is_written_with_its_outcome_and_every_field() -> None:
    checks = results(check("a", "failed", reason="off", details={"bound": 1}))
    document = verification_document(verify(load=checks | {"environment": {"torch": "2"}}))
    assert json.loads(json.dumps(document)) == {
        "schema": 1,
        "outcome": "failed",
        "cell_id": "demo",
        "target": "cpu",
        "where": "image",
        "image_id": "sha256:1",
        "content_hash": "2",
        "sessions": ["load"],
        "checks": [
            {
                "session": "load",
                "name": "a",
                "outcome": "failed",
                "reason": "off",
                "seconds": 0.5,
                "details": {"bound": 1},
            }
        ],
        "seconds": 2.0,
        "environment": {"torch": "2"},
        "ended": "",
        "seal": "",
    }


def test_every_outcome_is_counted_worst_first() -> None:
    checks = read(results(check("a"), check("b"), check("c", "skipped")))
    assert list(count_outcomes(checks).items()) == [
        (Outcome.ERROR, 0),
        (Outcome.FAILED, 0),
        (Outcome.UNAVAILABLE, 0),
        (Outcome.EMULATED, 0),
        (Outcome.UNDETERMINED, 0),
        (Outcome.SKIPPED, 1),
        (Outcome.PASSED, 2),
    ]


outcomes = st.lists(st.sampled_from(Outcome), max_size=6)


@given(outcomes, outcomes)
def test_more_checks_never_make_an_outcome_better(some: list[Outcome], more: list[Outcome]) -> None:
    rank = {outcome: place for place, outcome in enumerate(count_outcomes([]))}
    if some:
        assert rank[worst_of(some + more)] <= rank[worst_of(some)]
    assert worst_of(some + more) is worst_of(more + some)


def test_passed_needs_a_check_of_every_session_that_was_planned() -> None:
    passed = verify(load=results(check()))
    assert outcome_of(passed) is Outcome.PASSED
    for sessions in ((), ("load", "numerics"), ("numerics",)):
        assert outcome_of(_with_sessions(passed, sessions)) is Outcome.ERROR


def _with_sessions(one: Verification, sessions: tuple[str, ...]) -> Verification:
    return Verification(
        cell_id=one.cell_id, target=one.target, where=one.where, image_id=one.image_id,
        content_hash=one.content_hash, sessions=sessions, checks=one.checks, seconds=one.seconds,
    )  # fmt: skip
