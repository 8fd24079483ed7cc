"""What may be published: every reason against, and every leave that a channel gives."""

from __future__ import annotations

import dataclasses
from typing import Any

import hypothesis.strategies as st
import pytest
from builders import (
    FACTS,
    FULL,
    a_cell,
    a_channel,
    a_check,
    a_verification,
    an_outcome,
    some_evidence,
)
from hypothesis import given

from warpfront.images.labels import BASE_SOURCE, CONTENT_HASH, RELAXED
from warpfront.matrix.cell import Cell
from warpfront.release.admission import Admission, Evidence, admission
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.verdict import is_sealed, sealed

NOW = "2026-11-22T12:00:00+00:00"
TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120")
CUDA = a_cell(id="nvidia", vendor="nvidia", targets=TARGETS)


def verdict(evidence: Evidence, now: str = NOW, **changes: Any) -> Admission:
    return admission(evidence, a_channel(**changes), now=now)


def edited(evidence: Evidence, **changes: Any) -> Evidence:
    """With its verifications changed by somebody who does not know of seals."""
    changed = {
        target: dataclasses.replace(one, **changes)
        for target, one in evidence.verifications.items()
    }
    return dataclasses.replace(evidence, verifications=changed)


def with_checks(*outcomes: Outcome, cell: Cell | None = None, **changes: Any) -> Evidence:
    checks = [a_check(outcome, name=f"{outcome} {place}") for place, outcome in enumerate(outcomes)]
    return some_evidence(cell, *checks, **changes)


def on(*targets: str, cell: Cell = CUDA) -> Evidence:
    """Verified on these targets only."""
    evidence = some_evidence(cell)
    kept = {name: one for name, one in evidence.verifications.items() if name in targets}
    return dataclasses.replace(evidence, verifications=kept)


def test_what_passed_lately_on_every_target_may_be_published() -> None:
    found = verdict(some_evidence(CUDA))
    assert (found.admitted, found.targets, found.noted) == (True, TARGETS, ())
    assert found.facts["torch"] == "2.13.0+cpu"


def test_a_session_that_was_not_run_was_not_passed() -> None:
    found = verdict(some_evidence(), sessions=("load", "numerics"))
    assert found.against == ("x86-64: numerics: not run",)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.ERROR])
def test_a_failure_is_against_it_whatever_the_channel_allows(outcome: Outcome) -> None:
    everything = (
        "unavailable",
        "emulated",
        "undetermined",
        "skipped",
        "quick",
        "profile",
        "relaxed",
        "bootstrap",
    )
    found = verdict(with_checks(Outcome.PASSED, outcome), targets="any", allow=everything)
    assert found.against == (f"x86-64: load/{outcome} 1: {outcome}: ",)


def test_a_failure_on_one_target_is_a_failure_of_the_image() -> None:
    evidence = on("sm_80", "sm_90")
    bad = with_checks(Outcome.FAILED, cell=CUDA).verifications["sm_90"]
    evidence = dataclasses.replace(evidence, verifications={**evidence.verifications, "sm_90": bad})
    assert verdict(evidence, targets="any").against == ("sm_90: load/failed 0: failed: ",)


def test_a_failure_counts_in_a_session_that_nobody_demands() -> None:
    checks = (a_check(), a_check(Outcome.FAILED, session="golden"))
    found = verdict(some_evidence(None, *checks))
    assert found.against == ("x86-64: golden/torch imports: failed: ",)


@pytest.mark.parametrize(
    "outcome", [Outcome.UNAVAILABLE, Outcome.EMULATED, Outcome.UNDETERMINED, Outcome.SKIPPED]
)
def test_what_did_not_run_is_let_pass_only_by_name_and_is_noted(outcome: Outcome) -> None:
    evidence = with_checks(Outcome.PASSED, outcome)
    reason = f"x86-64: load/{outcome} 1: {outcome}: "
    assert verdict(evidence).against == (reason,)
    found = verdict(evidence, allow=(outcome.value,))
    assert (found.against, found.noted) == ((), (reason,))


@pytest.mark.parametrize("outcome", [Outcome.UNAVAILABLE, Outcome.EMULATED, Outcome.UNDETERMINED])
def test_an_image_is_not_named_after_a_target_that_was_not_there(outcome: Outcome) -> None:
    evidence = with_checks(Outcome.PASSED, outcome)
    assert verdict(evidence, allow=(outcome.value,)).targets == ()


@pytest.mark.parametrize("outcome", [Outcome.EMULATED, Outcome.UNDETERMINED])
def test_an_emulated_device_counts_in_a_session_that_the_channel_does_not_demand(
    outcome: Outcome,
) -> None:
    checks = (a_check(), a_check(outcome, session="golden"))
    found = verdict(some_evidence(None, *checks))
    assert found.against == (f"x86-64: golden/torch imports: {outcome}: ",)


def test_of_four_targets_the_two_that_were_verified_are_named() -> None:
    evidence = on("sm_80", "sm_120")
    found = verdict(evidence, targets="any")
    assert (found.admitted, found.targets) == (True, ("sm_80", "sm_120"))
    assert found.noted == ("sm_90: not verified", "sm_100: not verified")
    assert verdict(evidence, targets="all").against == found.noted


def test_any_target_is_not_none() -> None:
    assert not verdict(on(), targets="any").admitted


@pytest.mark.parametrize(
    ("effort", "allowance", "reason"),
    [
        ({"quick": True, "profile": "strict"}, "quick", "verified by quick checks only"),
        ({"quick": False, "profile": "loose"}, "profile", "verified by the tolerances of loose"),
        (None, None, "the verification does not say how much was checked"),
        ({"profile": "strict"}, "quick", "verified by quick checks only"),
    ],
)
def test_less_effort_is_let_pass_only_by_name(
    effort: object, allowance: str | None, reason: str
) -> None:
    evidence = some_evidence(effort=effort)
    assert verdict(evidence).against == (f"x86-64: {reason}",)
    if allowance:
        found = verdict(evidence, allow=(allowance,))
        assert (found.targets, found.noted) == (("x86-64",), (f"x86-64: {reason}",))


@pytest.mark.parametrize(
    ("labels", "allowance", "reason"),
    [
        ({BASE_SOURCE: "bootstrap"}, "bootstrap", "its base was made by a bootstrap"),
        ({BASE_SOURCE: ""}, "bootstrap", "its base was made by a bootstrap"),
        ({RELAXED: "xformers"}, "relaxed", "demands on the torch stack go unmet: xformers"),
        ({CONTENT_HASH: ""}, None, "the image has no content hash: it is none of ours"),
    ],
)
def test_what_an_image_is_made_of_is_let_pass_only_by_name(
    labels: dict[str, str], allowance: str | None, reason: str
) -> None:
    evidence = some_evidence(labels=labels)
    assert any(text.startswith(reason) for text in verdict(evidence).against)
    if allowance:
        found = verdict(evidence, allow=(allowance,))
        assert found.admitted
        assert found.noted[0].startswith(reason)


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        ("2026-11-15T11:59:59+00:00", "verified 168 h ago, 168 h at most are taken"),
        ("2026-11-22T12:06:00+00:00", "a clock is wrong"),
        ("yesterday", "does not say when"),
        ("2026-11-22T11:00:00", "does not say when"),
        ("", "does not say when"),
    ],
)
def test_an_old_verification_lets_nothing_through(ended: str, reason: str) -> None:
    evidence = some_evidence(ended=ended)
    (text,) = verdict(evidence, max_age_hours=168).against
    assert reason in text or "168 h" in text


def test_a_session_that_was_proven_before_is_as_old_as_it_is() -> None:
    """An interrupted verification was continued, and ended an hour ago."""
    for hours, admitted in (("20T11", True), ("12T11", False), ("", False)):
        before = {"load": f"2026-11-{hours}:00:00+00:00"}
        environment = {"check_options": FULL, "facts": FACTS, "proven before": before}
        evidence = some_evidence(environment=environment)
        assert verdict(evidence, max_age_hours=168).admitted is admitted


def test_a_verification_of_this_minute_on_a_clock_that_is_ahead_counts() -> None:
    assert verdict(some_evidence(ended="2026-11-22T12:04:00+00:00")).admitted


@pytest.mark.parametrize(
    "changes",
    [
        {"content_hash": "00" * 32},
        {"image_id": "sha256:" + "00" * 32},
        {"cell_id": "another"},
        {"target": "sm_80"},
        {"where": "here"},
    ],
)
def test_a_verification_of_something_else_lets_nothing_through(changes: dict[str, Any]) -> None:
    evidence = some_evidence(**changes)
    (text,) = verdict(evidence).against
    assert "verified was" in text


def test_a_verification_that_cannot_be_read_is_none() -> None:
    evidence = dataclasses.replace(some_evidence(), verifications={}, unread={"x86-64": "torn"})
    assert verdict(evidence, targets="any").against == ("x86-64: torn",)


def test_two_verifications_that_found_different_things_prove_neither() -> None:
    evidence = some_evidence(CUDA)
    facts = {**evidence.verifications["sm_90"].environment["facts"], "torch": "2.8.0"}  # type: ignore[dict-item]
    other = some_evidence(CUDA, facts=facts).verifications["sm_90"]
    evidence = dataclasses.replace(
        evidence, verifications={**evidence.verifications, "sm_90": other}
    )
    assert verdict(evidence).against == ("sm_90: its torch is 2.8.0, elsewhere 2.13.0+cpu",)


def test_a_verification_without_facts_names_nothing() -> None:
    assert "what the image holds" in verdict(some_evidence(facts=None)).against[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"target": "sm_90"},
        {"checks": (a_check(),)},
        {"checks": (a_check(), a_check(name="one more"))},
        {"ended": NOW},
        {"seal": ""},
        {"seal": "0" * 64},
        {"content_hash": "00" * 32},
        {"sessions": ()},
        {"seconds": 9.0},
        {"environment": {}},
    ],
)
def test_an_edited_verification_lets_nothing_through(changes: dict[str, Any]) -> None:
    evidence = edited(with_checks(Outcome.FAILED), **changes)
    (text, *_) = verdict(evidence, targets="any").against
    assert text == "x86-64: the verification was changed after it was made"


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Verification)])
def test_a_seal_covers_every_field(name: str) -> None:
    made = sealed(a_verification(), ended=NOW)
    assert is_sealed(made)
    others: dict[str, Any] = {"checks": (), "sessions": (), "environment": {"x": 1}, "seconds": 0.5}
    assert not is_sealed(dataclasses.replace(made, **{name: others.get(name, "other")}))


def test_leave_for_one_kind_is_none_for_another() -> None:
    evidence = with_checks(Outcome.UNAVAILABLE, Outcome.SKIPPED)
    found = verdict(evidence, allow=("unavailable",))
    assert found.against == ("x86-64: load/skipped 1: skipped: ",)


@given(
    st.lists(st.sampled_from([*Outcome]), min_size=1, max_size=4), st.sampled_from(["all", "any"])
)
def test_without_leave_only_passes_are_published(outcomes: list[Outcome], targets: str) -> None:
    found = verdict(with_checks(*outcomes), targets=targets)
    assert found.admitted is (set(outcomes) == {Outcome.PASSED})


@pytest.mark.parametrize("word", ["wonderful", "undetermined", "PASSED", "pass", ""])
def test_an_outcome_that_is_not_known_is_refused_whatever_the_channel_allows(word: str) -> None:
    """Outcomes are an allow list: what another version writes is no pass here."""
    everything: tuple[Any, ...] = ("unavailable", "skipped", "emulated", "quick", "profile")
    unknown = a_check(name="new", outcome=an_outcome(word))
    found = admission(some_evidence(None, a_check(), unknown), a_channel(allow=everything), now=NOW)
    assert found.against == (f"x86-64: load/new: {word}: ",)


def test_an_emulated_device_is_let_pass_only_by_name_and_names_no_target() -> None:
    emulated = some_evidence(None, a_check(), a_check(name="new", outcome=an_outcome("emulated")))
    assert verdict(emulated).against == ("x86-64: load/new: emulated: ",)
    found = verdict(emulated, allow=("emulated",))
    assert (found.admitted, found.targets) == (True, ())


@pytest.mark.parametrize(
    ("ended", "outcome", "reason"),
    [
        ("success", Outcome.PASSED, ""),
        ("failure", Outcome.PASSED, "its job ended with failure, and its results say passed"),
        ("cancelled", Outcome.PASSED, "its job ended with cancelled"),
        ("cancelled", Outcome.SKIPPED, "its results say not passed"),
        ("failure", Outcome.SKIPPED, ""),
        (None, Outcome.PASSED, "the run has no job that verified it"),
    ],
)
def test_a_job_s_end_has_to_agree_with_its_results(
    ended: str | None, outcome: Outcome, reason: str
) -> None:
    jobs = {} if ended is None else {"x86-64": ended}
    evidence = dataclasses.replace(
        some_evidence(None, a_check(), a_check(outcome, name="another")), jobs=jobs
    )
    found = verdict(evidence, allow=("skipped",))
    assert found.admitted == (not reason)
    assert not reason or reason in found.against[0]
