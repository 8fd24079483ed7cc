from __future__ import annotations

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from warpfront.report.junit import junit_xml
from warpfront.verify.results import CheckResult, Outcome, Verification


def verification(*checks: CheckResult) -> Verification:
    return Verification(
        cell_id="torch-cu130",
        target="sm_90",
        where="image",
        image_id="sha256:1",
        content_hash="2",
        sessions=("load", "numerics"),
        checks=checks,
        seconds=3.0,
    )


def check(outcome: Outcome, reason: str = "because", session: str = "load") -> CheckResult:
    return CheckResult(
        session=session,
        name=f"check {outcome}",
        outcome=outcome,
        reason=reason,
        seconds=0.25,
        details={"n": 1},
    )


def suites(*checks: CheckResult) -> list[ET.Element]:
    return list(ET.fromstring(junit_xml([verification(*checks)])).iter("testsuite"))


def test_each_outcome_has_its_own_element() -> None:
    cases = {case.get("name"): case for case in suites(*map(check, Outcome))[0].iter("testcase")}
    tags = {
        name: [child.tag for child in case if child.tag != "system-out"]
        for name, case in cases.items()
    }
    assert tags == {
        "check passed": [],
        "check failed": ["failure"],
        "check error": ["error"],
        "check skipped": ["skipped"],
        "check unavailable": ["skipped"],
        "check emulated": ["skipped"],
        "check undetermined": ["skipped"],
    }
    for outcome in ("unavailable", "emulated", "undetermined"):
        skipped = cases[f"check {outcome}"].find("skipped")
        assert skipped is not None
        assert (skipped.get("type"), skipped.get("message")) == (outcome, "because")


def test_the_counts_are_right_and_unavailable_is_counted_by_itself() -> None:
    suite, empty = suites(*map(check, Outcome), check(Outcome.UNAVAILABLE))
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "8", "failures": "1", "errors": "1", "skipped": "5"}
    properties = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert properties["outcome.unavailable"] == "2"
    assert properties["outcome"] == "error"
    assert empty.get("tests") == "0"


@given(st.text())
def test_any_reason_gives_xml_that_parses(reason: str) -> None:
    (failure,) = suites(check(Outcome.FAILED, reason))[0].iter("failure")
    assert failure.get("type") == "failed"


def test_control_characters_are_replaced_and_text_is_kept() -> None:
    (failure,) = suites(check(Outcome.FAILED, "a\x1b[31m<b>&\x00ü"))[0].iter("failure")
    assert failure.text == "a\N{REPLACEMENT CHARACTER}[31m<b>&\N{REPLACEMENT CHARACTER}ü"
