"""From comparisons to what is said of a night: only what every one of them found."""

from __future__ import annotations

import dataclasses

from warpfront.bench.nights import NightStanding, standing_of
from warpfront.bench.records import CaseRatio, Comparison, ComparisonOutcome, Interval, Remark, Side

SIDE = Side(name="x", sources=(), runs=1, samples=9, median=None)


def between(low: float, high: float) -> Interval:
    return Interval(value=(low + high) / 2, low=low, high=high)


def compared(
    together: Interval, *, only_in_a: tuple[str, ...] = (), **cases: Interval
) -> Comparison:
    ratios = tuple(
        CaseRatio(id=name, ratio=ratio, p_value=0.001, changed=name != "unsure")
        for name, ratio in cases.items()
    )
    return Comparison(
        metric="seconds",
        a=SIDE,
        b=SIDE,
        verdict=ComparisonOutcome.DIFFERENCE,
        times=together,
        cases=ratios,
        only_in_a=only_in_a,
        limit=1.05,
    )


SAME = between(0.99, 1.01)
SLOW = between(1.06, 1.2)


def test_slower_is_what_changed_with_all_of_its_interval_beyond_the_limit() -> None:
    found = compared(SAME, mm=SLOW, worse=between(1.3, 1.4), near=between(1.04, 1.2), unsure=SLOW)
    assert list(found.slower) == ["worse", "mm"]
    assert list(compared(SLOW, mm=SAME).slower) == ["all operations together"]
    assert list(compared(SLOW).slower) == ["B"]
    assert dataclasses.replace(found, limit=None).slower == {}


def test_each_look_has_to_find_it() -> None:
    first, second = compared(SAME, mm=SLOW, add=SLOW), compared(SAME, mm=SAME, add=SLOW)
    standing = standing_of("cell", "sm_90", "sha256:1", [first, second])
    assert standing.slower == ("add 1.130 (1.060..1.200)",)
    lost = compared(SAME, only_in_a=("conv", "pool")), compared(SAME, only_in_a=("conv",))
    assert standing_of("cell", "sm_90", "sha256:1", lost).gone == ("conv",)


def test_what_looks_slower_on_a_busy_machine_is_said_of_the_machine() -> None:
    busy = Remark(level="warning", message="noisy: load 28.2 on 2 cores before it began")
    slow = dataclasses.replace(compared(SAME, mm=SLOW), findings=(busy,))
    wrong = standing_of("cell", "sm_90", "sha256:1", [slow]).wrong
    assert wrong.startswith("slower than the last release on a busy machine (load 28.2 on 2")
    fine = dataclasses.replace(compared(SAME), findings=(busy,))
    assert standing_of("cell", "sm_90", "sha256:1", [fine]).wrong == ""


def test_unlike_work_is_refused_with_what_differs() -> None:
    refused = dataclasses.replace(
        compared(SAME), verdict=ComparisonOutcome.NOT_COMPARABLE, reasons=("tf32: on against off",)
    )
    assert "tf32: on against off" in standing_of("cell", "sm_90", "sha256:1", [refused]).wrong


def test_what_is_said_names_a_few_and_counts_the_rest() -> None:
    many = NightStanding(cell_id="c", target="t", release="r", slower=tuple("abcdefg"))
    assert many.wrong == "slower than the last release: a, b, c, d, e, and 2 more"
    assert "beside r" in many.text
    none = NightStanding(cell_id="c", target="t")
    assert (none.wrong, none.text) == (
        "",
        "timed on t: nothing slower, no release to hold it against",
    )
