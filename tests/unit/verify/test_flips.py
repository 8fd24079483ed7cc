"""Several verifications of one digest: what does not come to the same each time is a finding."""

from __future__ import annotations

import dataclasses

import pytest

from warpfront.verify.results import CheckResult, Outcome, Verification
from warpfront.verify.verdict import outcome_of, together


def a_run(run: str, **outcomes: str) -> Verification:
    checks = tuple(
        CheckResult(
            session="numerics",
            name=name,
            outcome=Outcome(outcome),
            reason="" if outcome == "passed" else f"{name} of {run}",
            seconds=1.0,
            details={"faults": [run]},
        )
        for name, outcome in outcomes.items()
    )
    return Verification(
        cell_id="cpu",
        target="cpu",
        where="image",
        image_id="sha256:1",
        content_hash="aa",
        sessions=("numerics",),
        checks=checks,
        seconds=2.0,
        environment={"check_options": {"run": run}},
    )


def test_runs_that_agree_are_what_each_of_them_is() -> None:
    found = together([a_run("a", mlp="passed"), a_run("b", mlp="passed")])
    assert outcome_of(found) is Outcome.PASSED
    assert found.seconds == 4.0
    assert found.environment["again"] == {
        "times": 2,
        "outcomes": ["passed", "passed"],
        "flips": [],
    }
    failed = together([a_run("a", mlp="failed"), a_run("b", mlp="failed")])
    assert failed.checks[0].reason == "mlp of b"
    assert "outcomes" not in failed.checks[0].details


@pytest.mark.parametrize("other", ["failed", "error", "unavailable", "skipped"])
def test_a_check_that_flips_has_failed_and_is_named(other: str) -> None:
    runs = [a_run("a", mlp="passed", conv="passed"), a_run("b", mlp=other, conv="passed")]
    for order in (runs, runs[::-1]):
        found = together(order)
        assert outcome_of(found) is Outcome.FAILED
        (flip,) = [check for check in found.checks if check.outcome is not Outcome.PASSED]
        assert (flip.session, flip.name) == ("numerics", "mlp")
        assert flip.reason.startswith("flips on one digest (")
        assert flip.reason.endswith("mlp of b")
        # What explains it is of the run that was wrong.
        assert flip.details["faults"] == ["b"]
        assert found.environment["again"]["flips"] == ["numerics: mlp"]  # type: ignore[index]


def test_a_check_that_one_run_did_not_make_flips() -> None:
    found = together([a_run("a", mlp="passed", conv="passed"), a_run("b", mlp="passed")])
    (flip,) = [check for check in found.checks if check.outcome is not Outcome.PASSED]
    assert flip.reason == "flips on one digest (passed 1, error 1 of 2 times): it was not made"


def test_runs_of_two_digests_say_nothing_about_each_other() -> None:
    run = a_run("a", mlp="passed")
    with pytest.raises(ValueError, match="2 images"):
        together([run, dataclasses.replace(run, content_hash="bb")])
