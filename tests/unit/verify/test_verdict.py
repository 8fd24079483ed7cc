from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpfront.verify.results import CheckResult, Outcome, Verification
from warpfront.verify.verdict import (
    count_outcomes,
    outcome_of,
    read_session,
    read_verification,
    verification_document,
    worst_of,
)
from warpfront_checks.results import OUTCOMES, Recorder, failed


def check(name: str = "torch imports", outcome: str = "passed") -> dict[str, Any]:
    return {"name": name, "outcome": outcome, "reason": "", "seconds": 0.1, "details": {}}


def results(*checks: dict[str, Any], session: str = "load", **change: Any) -> dict[str, Any]:
    document = {
        "schema": 1,
        "session": session,
        "target": "cpu",
        "environment": {"torch": "2.13.0+cpu"},
        "planned": [one["name"] for one in checks],
        "unclaimed": [],
        "checks": list(checks),
        "finished": True,
        "seconds": 1.0,
    }
    return {**document, **change}


def verify(nox_report: object = None, ended: str = "", **files: object) -> Verification:
    about = Verification(
        cell_id="demo",
        target="cpu",
        where="image",
        image_id="sha256:1",
        content_hash="2",
        seconds=2.0,
    )
    return read_verification(about, files, ended=ended, nox_report=nox_report)


def nox(**sessions: str) -> dict[str, object]:
    return {"sessions": [{"name": name, "result": result} for name, result in sessions.items()]}


def test_what_images_write_is_what_we_read() -> None:
    assert set(OUTCOMES) == set(Outcome)


def test_everything_passed_is_passed() -> None:
    verification = verify(
        load=results(check()), numerics=results(check("mlp float32"), session="numerics")
    )
    assert outcome_of(verification) is Outcome.PASSED
    assert verification.sessions == ("load", "numerics")
    assert verification.environment["torch"] == "2.13.0+cpu"


@pytest.mark.timeout(20)
def test_a_file_of_many_checks_is_read_in_time() -> None:
    """A container may write 16 MiB of them."""
    every = [check(f"check {number}") for number in range(60_000)]
    others = [f"other {number}" for number in range(60_000)]
    assert len(verify(load=results(*every, planned=others)).checks) == 180_000


@pytest.mark.parametrize(
    ("outcomes", "worst"),
    [
        ([], "error"),
        (["passed"], "passed"),
        (["passed", "skipped"], "skipped"),
        (["skipped", "undetermined"], "undetermined"),
        (["undetermined", "emulated"], "emulated"),
        (["emulated", "unavailable"], "unavailable"),
        (["unavailable", "failed"], "failed"),
        (["failed", "error"], "error"),
    ],
)
def test_the_worst_outcome_decides(outcomes: list[str], worst: str) -> None:
    assert worst_of(Outcome(outcome) for outcome in outcomes) == worst


def test_a_missing_file_is_an_error_that_says_how_the_process_ended() -> None:
    verification = verify(load=results(check()), numerics=None, ended="killed for memory")
    assert outcome_of(verification) is Outcome.ERROR
    assert verification.checks[-1].reason == "the session left no results file: killed for memory"


def test_a_planned_check_without_result_is_an_error() -> None:
    document = results(check(), planned=["torch imports", "arch list"], finished=False)
    found = {one.name: one for one in verify(load=document, ended="exit 139").checks}
    assert found["torch imports"].outcome is Outcome.PASSED
    assert found["arch list"].outcome is Outcome.ERROR
    assert "exit 139" in found["arch list"].reason


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d | {"schema": 2},
        lambda d: d | {"session": "numerics"},
        lambda d: d | {"target": "sm_90"},
        lambda d: d | {"planned": None},
        lambda d: d | {"planned": [1]},
        lambda d: d | {"checks": [{"name": "x"}]},
        lambda d: d | {"checks": [check(outcome="fine")]},
        lambda d: d | {"checks": [check() | {"seconds": True}]},
        lambda d: d | {"finished": False},
        lambda d: d | {"planned": [], "checks": []},
        lambda d: d | {"planned": []},
        lambda d: d | {"checks": [check(), check()]},
        lambda _: "not JSON: half a file",
        lambda _: [],
    ],
)
def test_a_spoilt_results_file_is_an_error(spoil: Callable[[dict[str, Any]], Any]) -> None:
    assert outcome_of(verify(load=spoil(results(check())))) is Outcome.ERROR


def test_a_verification_without_sessions_is_an_error() -> None:
    assert outcome_of(verify()) is Outcome.ERROR


def test_a_session_without_checks_is_an_error() -> None:
    bare = Verification(
        cell_id="c",
        target="cpu",
        where="here",
        image_id="",
        content_hash="",
        sessions=("load", "numerics"),
        checks=(read_session(results(check()), session="load", target="cpu")),
        seconds=0.0,
    )
    assert outcome_of(bare) is Outcome.ERROR


def test_nox_and_the_file_must_agree() -> None:
    good, bad = results(check()), results(check(outcome="failed"))
    assert outcome_of(verify(nox(load="success"), load=good)) is Outcome.PASSED
    assert outcome_of(verify(nox(load="failed"), load=bad)) is Outcome.FAILED
    assert outcome_of(verify(nox(load="failed"), load=good)) is Outcome.ERROR
    assert outcome_of(verify(nox(load="success"), load=bad)) is Outcome.ERROR
    assert outcome_of(verify(nox(numerics="success"), load=good)) is Outcome.ERROR
    assert outcome_of(verify("broken", load=good)) is Outcome.ERROR


def test_what_was_not_claimed_is_kept() -> None:
    unclaimed = [{"name": "versions", "reason": "no lock"}]
    verification = verify(load=results(check(), unclaimed=unclaimed))
    assert verification.environment["unclaimed in load"] == unclaimed


def test_outcomes_are_counted() -> None:
    counts = count_outcomes(verify(load=results(check(), check("b", "unavailable"))).checks)
    assert (counts[Outcome.PASSED], counts[Outcome.UNAVAILABLE], counts[Outcome.ERROR]) == (1, 1, 0)


texts = st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
seconds = st.floats(0, 1e6)
checks = st.builds(
    CheckResult,
    session=texts,
    name=texts,
    outcome=st.sampled_from(Outcome),
    reason=texts,
    seconds=seconds,
    details=objects,
)
verifications = st.builds(
    Verification,
    cell_id=texts,
    target=texts,
    where=st.sampled_from(["image", "here"]),
    image_id=texts,
    content_hash=texts,
    sessions=st.lists(texts, max_size=3).map(tuple),
    checks=st.lists(checks, max_size=4).map(tuple),
    seconds=seconds,
    environment=objects,
)


@given(verifications)
def test_a_verification_is_json_that_says_its_outcome(verification: Verification) -> None:
    document = json.loads(json.dumps(verification_document(verification)))
    assert document["outcome"] == outcome_of(verification).value
    assert len(document["checks"]) == len(verification.checks)


@given(values)
def test_any_json_is_read_or_refused_but_never_passes(value: object) -> None:
    assert (
        worst_of(c.outcome for c in read_session(value, session="load", target="cpu"))
        is Outcome.ERROR
    )


def test_what_a_session_writes_inside_is_read_here_as_it_was_meant(tmp_path: Path) -> None:
    recorder = Recorder(session="load", target="sm_90", folder=tmp_path)
    found = failed("another torch", found="2.13.0")
    recorder.run({"torch is the claimed one": lambda: found})
    recorder.finish()
    document = json.loads(recorder.path.read_text())
    (check,) = read_session(document, session="load", target="sm_90")
    assert (check.name, check.outcome) == ("torch is the claimed one", Outcome.FAILED)
    assert (check.reason, check.details) == ("another torch", {"found": "2.13.0"})
