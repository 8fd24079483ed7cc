"""Two serving benchmarks: what has to be equal, and the ratio of each figure. Pure.

A figure of a rate counts inverted, so that over 1 always means that B is slower. One run has no
interval: only several runs a side tell whether two stacks differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from statistics import median

from warpfront.bench import statistics
from warpfront.bench.logs.facts import KERNEL
from warpfront.bench.records import (
    CaseRatio,
    Comparison,
    ComparisonOutcome,
    Difference,
    Interval,
    Run,
    Side,
)

METRIC = "serving"
FEWEST_RUNS = 3
_RATES = ("output_throughput", "total_throughput", "request_throughput")
_TIMES = tuple(
    f"{name}_{what}"
    for name in ("ttft", "tpot", "itl", "e2e")
    for what in ("mean", "median", "p99")
)
_LENGTHS = {"input_length": "input_tokens", "output_length": "output_tokens"}
_EQUAL = ("model", "scenario", "request_rate", "concurrency", *_LENGTHS)
ALLOWABLE = _EQUAL
_AS_LONG = 0.02
"""How far mean lengths of requests may be apart: sampled answers differ a little."""
_UNKNOWN = "unknown"


def serving_differences(
    a: Sequence[Run], b: Sequence[Run], allowed: Iterable[str]
) -> tuple[Difference, ...]:
    """Return what differs or is unknown, and so refuses; then what is only shown."""
    names = set(allowed)
    found = []
    kernels = all(is_of_kernels(run) for run in (*a, *b))
    for name in () if kernels else _EQUAL:
        one, other = ({_value(run, name) for run in side} for side in (a, b))
        if name in {"scenario", "concurrency"} and one == other == {None}:
            continue
        if name == "model" and None in one | other:
            found.append(Difference(name=name, a=_UNKNOWN, b=_UNKNOWN))
        elif None in one | other or not _agree(name, one | other):
            texts = (", ".join(sorted(map(_worded, values))) for values in (one, other))
            first, second = texts
            found.append(
                Difference(name=name, a=first, b=second, refused=True, allowed=name in names)
            )
    for name in ("framework", "framework_version", "vendor", "device_name", "devices"):
        texts = (", ".join(sorted({str(getattr(run, name)) for run in side})) for side in (a, b))
        first, second = (text.replace("None", _UNKNOWN) for text in texts)
        if first != second:
            found.append(Difference(name=name, a=first, b=second))
    return tuple(found)


def is_of_kernels(run: Run) -> bool:
    """Whether the figures are of a profiler's summary of kernels."""
    return any(name.startswith(KERNEL) for name in run.serving)


def _value(run: Run, name: str) -> str | float | None:
    if name in _LENGTHS:
        tokens, requests = run.serving.get(_LENGTHS[name]), run.serving.get("requests")
        return tokens / requests if tokens and requests else None
    if name == "concurrency":
        return run.serving.get(name)
    text = getattr(run, name)
    try:
        return float(text) if name == "request_rate" and text is not None else text
    except ValueError:
        return str(text)


def _agree(name: str, values: Iterable[str | float | None]) -> bool:
    numbers = [value for value in values if isinstance(value, float)]
    if name in _LENGTHS and numbers:
        return max(numbers) <= min(numbers) * (1 + _AS_LONG)
    return len(set(values)) == 1


def _worded(value: str | float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.6g}" if isinstance(value, float) else value


def side_of(name: str, runs: Sequence[Run]) -> Side:
    """A side with its output tokens per second."""
    rates = [run.serving["output_throughput"] for run in runs if "output_throughput" in run.serving]
    return Side(
        name=name,
        sources=tuple(run.source.path for run in runs),
        runs=len(runs),
        samples=sum(int(run.serving.get("requests", 0)) for run in runs),
        median=median(rates) if rates else None,
    )


def measured_serving(asked: Comparison, a: Sequence[Run], b: Sequence[Run]) -> Comparison:
    """Return the ratio of every figure that all runs have; verdict by the output's throughput."""
    cases = []
    several = min(len(a), len(b)) >= FEWEST_RUNS
    kernels = (name for name in a[0].serving if name.startswith(KERNEL))
    for name in (*_RATES, *_TIMES, *kernels):
        one, other = ([run.serving.get(name) for run in side] for side in (a, b))
        if all(one) and all(other):
            cases.append(_ratio(name, [v for v in one if v], [v for v in other if v]))
    if not cases:
        return dataclasses.replace(asked, reasons=("no figure that both have",))
    first = cases[0].ratio
    found = dataclasses.replace(asked, times=first, cases=tuple(cases))
    if not several:
        reason = f"{len(a)} and {len(b)} runs; {FEWEST_RUNS} a side give an interval"
        return dataclasses.replace(found, verdict=ComparisonOutcome.UNDETERMINED, reasons=(reason,))
    stands = statistics.holm([case.p_value for case in cases])
    cases = [
        dataclasses.replace(case, changed=stand and abs(case.ratio.value - 1) > asked.noise)
        for case, stand in zip(cases, stands, strict=True)
    ]
    changed = any(case.changed for case in cases)
    outcome = ComparisonOutcome.DIFFERENCE if changed else ComparisonOutcome.NO_DIFFERENCE
    resampled = f"{len(a)} runs against {len(b)} runs"
    return dataclasses.replace(found, verdict=outcome, cases=tuple(cases), resampled=resampled)


def _ratio(name: str, a: list[float], b: list[float]) -> CaseRatio:
    """B's time over A's; of a rate, A's over B's."""
    if name in _RATES:
        a, b = ([1 / value for value in side] for side in (a, b))
    value = median(b) / median(a)
    if min(len(a), len(b)) < FEWEST_RUNS:
        nothing = Interval(value=value, low=value, high=value)
        return CaseRatio(id=name, ratio=nothing, p_value=1.0, changed=False)
    sides = [[one] for one in a], [[one] for one in b]
    ratio = statistics.ratio_interval(*sides)
    freedom = len(a) + len(b) - 2
    p_value = statistics.p_value(value, statistics.resampled_ratios(*sides), freedom=freedom)
    return CaseRatio(id=name, ratio=ratio, p_value=p_value, changed=False)
