"""Two serving benchmarks, or two tables of kernels: the ratio of each figure. Pure.

A figure of a rate counts inverted, so that over 1 always means that B is slower. One run has no
interval: only several runs a side tell whether two stacks differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from statistics import median

from warpfront.bench import statistics
from warpfront.bench.comparability import KERNELS, SERVING
from warpfront.bench.logs.facts import KERNEL
from warpfront.bench.records import CaseRatio, Comparison, ComparisonOutcome, Interval, Run, Side
from warpfront.system.sizes import counted

FEWEST_RUNS = 3
_RATES = ("output_throughput", "total_throughput", "request_throughput")
_TIMES = tuple(
    f"{name}_{what}"
    for name in ("ttft", "tpot", "itl", "e2e")
    for what in ("mean", "median", "p90", "p99")
)


def metric_of(runs: Iterable[Run]) -> str:
    """Return the metric of the figures: of serving, or of a profiler's summary of kernels."""
    is_kernels = all(any(name.startswith(KERNEL) for name in run.serving) for run in runs)
    return KERNELS if is_kernels else SERVING


def side_of(name: str, runs: Sequence[Run]) -> Side:
    """Return a side with its output tokens per second."""
    rates = [run.serving["output_throughput"] for run in runs if "output_throughput" in run.serving]
    return Side(
        name=name,
        sources=tuple(run.source.path for run in runs),
        runs=len(runs),
        samples=sum(int(run.serving.get("requests", 0)) for run in runs),
        median=median(rates) if rates else None,
    )


def measured_serving(terms: Comparison, a: Sequence[Run], b: Sequence[Run]) -> Comparison:
    """Return the ratio of every figure that all runs have; verdict by the output's throughput."""
    cases = []
    several = min(len(a), len(b)) >= FEWEST_RUNS
    kernels = (name for name in a[0].serving if name.startswith(KERNEL))
    for name in (*_RATES, *_TIMES, *kernels):
        before, after = ([run.serving.get(name, 0.0) for run in side] for side in (a, b))
        if all(before) and all(after):
            cases.append(_ratio(name, before, after))
    if not cases:
        return dataclasses.replace(terms, reasons=("no figure that both have",))
    first = cases[0].ratio
    measured = dataclasses.replace(terms, times=first, cases=tuple(cases))
    if not several:
        reason = f"runs: {len(a)} and {len(b)}; {FEWEST_RUNS} a side give an interval"
        return dataclasses.replace(
            measured, verdict=ComparisonOutcome.UNDETERMINED, reasons=(reason,)
        )
    stands = statistics.holm([case.p_value for case in cases])
    cases = [
        dataclasses.replace(case, changed=stand and abs(case.ratio.value - 1) > terms.noise)
        for case, stand in zip(cases, stands, strict=True)
    ]
    changed = any(case.changed for case in cases)
    outcome = ComparisonOutcome.DIFFERENCE if changed else ComparisonOutcome.NO_DIFFERENCE
    resampled = f"{counted(len(a), 'run')} against {counted(len(b), 'run')}"
    return dataclasses.replace(measured, verdict=outcome, cases=tuple(cases), resampled=resampled)


def _ratio(name: str, a: list[float], b: list[float]) -> CaseRatio:
    """Return B's time over A's; of a rate, A's over B's."""
    if name in _RATES:
        a, b = ([1 / value for value in side] for side in (a, b))
    value = median(b) / median(a)
    if min(len(a), len(b)) < FEWEST_RUNS:
        nothing = Interval(value=value, low=value, high=value)
        return CaseRatio(id=name, ratio=nothing, p_value=1.0, changed=False)
    sides = [[value] for value in a], [[value] for value in b]
    ratio = statistics.ratio_interval(*sides)
    freedom = len(a) + len(b) - 2
    p_value = statistics.p_value(value, statistics.resampled_ratios(*sides), freedom=freedom)
    return CaseRatio(id=name, ratio=ratio, p_value=p_value, changed=False)
