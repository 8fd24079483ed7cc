"""Timings as records: whose they are, what follows from them, and what compare makes of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from series import noisy

from warpfront.bench.compare import ComparisonTerms, compare_benches
from warpfront.bench.forms import (
    bench_text,
    model_flops_utilization,
    rate_of,
    share_of_peak,
    tokens_per_second,
)
from warpfront.bench.record_files import NoRecordError, bench_of
from warpfront.bench.records import (
    Bench,
    Comparison,
    ComparisonOutcome,
    Measurement,
    Peak,
    Remark,
    Training,
)

WHOSE = {
    "cell_id": "torch-cpu",
    "image_digest": "sha256:1",
    "content_hash": "h",
    "verified": "passed",
    "target": "cpu",
    "at": "2026-01-01T00:00:00+00:00",
    "tool": {"version": "1"},
}
PEAK = Peak(flop_per_second=2e12, bytes_per_second=1e12, dense=True, source="a data sheet")
OPERATIONS = ("mm", "relu", "softmax")


def a_document(**other: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"results": [], "training": [], "findings": []}
    about: dict[str, Any] = {"environment": {}, "settings": {}}
    return {"schema": 1, "kind": "Timings", "target": "cpu", **empty, **about, **other}


def measured(op: str, seed: int, *, slower: float = 1.0, **fields: Any) -> Measurement:
    """Five blocks of twenty, of a machine whose times vary by 1 %."""
    times = noisy(100, seed, 0.001 * slower)
    blocks = tuple(tuple(times[at : at + 20]) for at in range(0, 100, 20))
    about: dict[str, Any] = {
        "suite": "x",
        "op": op,
        "shape": "8",
        "dtype": "float32",
        "direction": "forward",
    }
    return Measurement(
        id=op,
        outcome="timed",
        samples_seconds=blocks,
        **{**about, **fields},
    )


def a_bench(run: int, **slower: float) -> Bench:
    results = tuple(
        measured(op, 1000 * run + at, slower=slower.get(op, 1.0))
        for at, op in enumerate(OPERATIONS)
    )
    return dataclasses.replace(bench_of(a_document(), WHOSE), results=results)


def compared(a: Bench, b: Bench) -> Comparison:
    return compare_benches(("a", a), ("b", b), ComparisonTerms())


def test_a_record_says_whose_timings_it_has() -> None:
    bench = bench_of(a_document(), WHOSE)
    assert (bench.cell_id, bench.image_digest, bench.verified) == (
        "torch-cpu",
        "sha256:1",
        "passed",
    )


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (None, "no timings"),
        ({"kind": "Bench"}, "no timings"),
        (a_document(schema=2), "schema 2"),
        (a_document(target="sm_90"), "'sm_90', not of 'cpu'"),
        (a_document(results=[{"id": "mm"}]), r"results\.0"),
    ],
)
def test_what_is_no_document_of_timings_is_refused(document: object, says: str) -> None:
    with pytest.raises(NoRecordError, match=says):
        bench_of(document, WHOSE)


def test_rates_and_shares_follow_from_the_median() -> None:
    one = measured("mm", 1, flops=10**9, bytes=10**6, peak=PEAK)
    assert rate_of(one, one.flops) == pytest.approx(1e12, rel=0.01)
    assert share_of_peak(one) == pytest.approx(0.5, rel=0.01)
    memory_bound = dataclasses.replace(one, flops=None, bytes=10**8)
    assert share_of_peak(memory_bound) == pytest.approx(0.1, rel=0.01)
    assert share_of_peak(dataclasses.replace(one, peak=None)) is None
    unknown = dataclasses.replace(PEAK, flop_per_second=None)
    assert share_of_peak(dataclasses.replace(one, peak=unknown)) is None


def test_mfu_is_of_a_device_and_null_without_a_peak() -> None:
    one = Training(
        id="decoder",
        dtype="bfloat16",
        tokens_per_step=8000,
        devices=2,
        step_seconds=(0.1, 0.1, 0.4),
        model_flops_per_token=10**7,
        peak=PEAK,
    )
    assert tokens_per_second(one) == pytest.approx(40_000)
    assert model_flops_utilization(one) == pytest.approx(0.2)
    assert model_flops_utilization(dataclasses.replace(one, peak=None)) is None


def test_the_text_shows_what_failed_and_who_disturbed() -> None:
    lost = dataclasses.replace(
        measured("mm", 1), outcome="error", samples_seconds=(), note="out of memory"
    )
    noise = Remark(level="warning", message="noisy: 2 processes use the device")
    bench = dataclasses.replace(a_bench(1), results=(lost,), findings=(noise,))
    text = bench_text(bench, width=120)
    assert "error" in text
    assert "out of memory" in text
    assert text.endswith("warning: noisy: 2 processes use the device\n")


def test_an_operation_slowed_by_five_percent_is_found_and_only_that() -> None:
    found = compared(a_bench(1), a_bench(2, softmax=1.05))
    assert found.verdict is ComparisonOutcome.DIFFERENCE
    assert [case.id for case in found.cases if case.changed] == ["softmax"]


@pytest.mark.parametrize(("one", "other"), [(1, 2), (1, 3), (2, 3)])
def test_equal_runs_are_no_difference(one: int, other: int) -> None:
    assert compared(a_bench(one), a_bench(other)).verdict is ComparisonOutcome.NO_DIFFERENCE
