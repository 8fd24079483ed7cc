"""The comparison of two sides by one metric: the ratio with its interval. Pure.

There is no winner: a ratio whose interval includes 1, or that lies within the declared noise, is no
difference. Ratios are B's time over A's: A is the baseline, B the new side.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from random import Random
from statistics import fmean, median
from typing import Any

from warpfront.bench import statistics
from warpfront.bench.comparability import (
    KERNELS,
    SERVING,
    differences,
    losses_at_equal_tokens,
    training_findings,
)
from warpfront.bench.logs.facts import KERNEL
from warpfront.bench.records import (
    Bench,
    CaseRatio,
    Comparison,
    ComparisonOutcome,
    Difference,
    Interval,
    Metric,
    Remark,
    Run,
    Side,
)
from warpfront.bench.settling import FEWEST_STEPS, summary_of, times_of
from warpfront.system.texts import counted

NOISE = 0.01
# One process differs from the next by more than its repetitions do: three equal runs on an H100 by
# up to 2.7 % in 5 of 48 cases.
NOISE_OF_OPERATIONS = 0.03
FEWEST_RUNS = 3
_SEED = 20250102
_POWER = "power_limit_watts"
_RATES = ("output_throughput", "total_throughput", "request_throughput")
_TIMES = tuple(
    f"{name}_{statistic}"
    for name in ("ttft", "tpot", "itl", "e2e")
    for statistic in ("mean", "median", "p90", "p99")
)

Groups = list[list[float]]
NamedRuns = tuple[str, Sequence[Run]]
"""A side of a comparison: its name, and one run or several."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonTerms:
    """The terms of a comparison.

    `metric` None is one that both sides have, `noise` None the usual one of runs or of operations.
    `same_training` refuses sides whose losses differ, or of which one has none.
    """

    metric: Metric | None = None
    allowed: tuple[str, ...] = ()
    noise: float | None = None
    max_slower: float | None = None
    same_training: bool = False
    paired: bool = False


def metric_for(a: Sequence[Run], b: Sequence[Run]) -> Metric:
    """Return the metric that both sides can be compared by. A step is a unit only where it is
    the same work on as many devices.
    """
    runs = (*a, *b)
    is_benchmark = all(run.benchmark and run.run_seconds for run in runs)
    if is_benchmark and min(len(a), len(b)) >= FEWEST_RUNS:
        return Metric.TIME_TO_TRAIN
    alike = len({(run.global_batch, run.devices) for run in runs}) == 1
    order = [Metric.TOKENS_PER_SECOND, Metric.SAMPLES_PER_SECOND, Metric.STEP_SECONDS]
    if alike:
        order.insert(0, Metric.STEP_SECONDS)
    usable = (metric for metric in order if all(times_of(run, metric) for run in runs))
    return next(usable, Metric.STEP_SECONDS)


def compare_runs(a: NamedRuns, b: NamedRuns, terms: ComparisonTerms) -> Comparison:
    """Compare two sides of one or more runs each, with their names."""
    if any(run.serving for run in (*a[1], *b[1])):
        return _compare_serving(a, b, terms)
    metric = terms.metric or metric_for(a[1], b[1])
    groups = tuple([times_of(run, metric) for run in side] for _, side in (a, b))
    sides = (_side(*a, groups[0], metric), _side(*b, groups[1], metric))
    unlike = differences(a[1], b[1], metric, terms.allowed)
    losses = losses_at_equal_tokens(a[1], b[1])
    unequal, scores = tuple(training_findings(a[1], b[1], losses)), []
    if metric is Metric.TIME_TO_TRAIN and min(len(a[1]), len(b[1])) >= FEWEST_RUNS:
        # MLPerf's own score next to the median: the mean without the best and the worst run.
        each = [sorted(run.run_seconds or 0.0 for run in side)[1:-1] for _, side in (a, b)]
        a_score, b_score = (fmean(seconds) / 60 for seconds in each)
        message = f"by MLPerf's own scoring, A {a_score:.2f} and B {b_score:.2f} minutes"
        scores.append(Remark(level="note", message=message))
    remarks = (_side_findings(*each) for each in zip("AB", (a[1], b[1]), sides, strict=True))
    findings = (*unequal, *chain.from_iterable(remarks), *scores)
    comparison = _refused(metric, sides, unlike, terms, NOISE, losses=losses, findings=findings)
    if terms.same_training:
        messages = (finding.message for finding in unequal)
        comparison = dataclasses.replace(comparison, reasons=(*comparison.reasons, *messages))
    if comparison.reasons:
        return comparison
    return _measured(comparison, *groups, paired=terms.paired)


def _compare_serving(a: NamedRuns, b: NamedRuns, terms: ComparisonTerms) -> Comparison:
    """Compare every figure that all runs have; verdict by the output's throughput.

    One run has no interval: only several runs a side tell whether two stacks differ.
    """
    is_kernels = all(any(name.startswith(KERNEL) for name in run.serving) for run in (*a[1], *b[1]))
    metric = KERNELS if is_kernels else SERVING
    unlike = differences(a[1], b[1], metric, terms.allowed)
    sides = (_serving_side(*a), _serving_side(*b))
    findings = tuple(
        Remark(level="warning", message=f"the model of {letter} is unknown")
        for letter, (_, runs) in (("A", a), ("B", b))
        if metric == SERVING and any(run.model is None for run in runs)
    )
    comparison = _refused(metric, sides, unlike, terms, NOISE_OF_OPERATIONS, findings=findings)
    if comparison.reasons:
        return comparison
    cases: dict[str, tuple[Groups, Groups]] = {}
    for name in (*_RATES, *_TIMES, *(name for name in a[1][0].serving if name.startswith(KERNEL))):
        before, after = ([run.serving.get(name, 0.0) for run in runs] for _, runs in (a, b))
        if all(before) and all(after):
            # Of a rate, A's over B's: over 1, B is slower.
            is_rate = name in _RATES
            before, after = ([1 / v if is_rate else v for v in side] for side in (before, after))
            cases[name] = [[value] for value in before], [[value] for value in after]
    if not cases:
        return dataclasses.replace(comparison, reasons=("no figure that both have",))
    if min(len(a[1]), len(b[1])) < FEWEST_RUNS:
        reason = f"runs: {len(a[1])} and {len(b[1])}; {FEWEST_RUNS} a side give an interval"
        ratios = [_flat_median(after) / _flat_median(before) for before, after in cases.values()]
        points = [Interval(value=ratio, low=ratio, high=ratio) for ratio in ratios]
        return dataclasses.replace(
            comparison,
            verdict=ComparisonOutcome.UNDETERMINED,
            reasons=(reason,),
            times=points[0],
            cases=tuple(
                CaseRatio(id=name, ratio=point, p_value=1.0, changed=False)
                for name, point in zip(cases, points, strict=True)
            ),
        )
    measured = _measured_cases(comparison, cases)
    differs = any(case.changed for case in measured.cases)
    return dataclasses.replace(
        measured,
        verdict=ComparisonOutcome.DIFFERENCE if differs else ComparisonOutcome.NO_DIFFERENCE,
        times=measured.cases[0].ratio,
        resampled=" against ".join(counted(len(runs), "run") for _, runs in (a, b)),
    )


def _serving_side(name: str, runs: Sequence[Run]) -> Side:
    """Return a side with its output tokens per second."""
    rates = [run.serving["output_throughput"] for run in runs if "output_throughput" in run.serving]
    return Side(
        name=name,
        sources=tuple(run.source.path for run in runs),
        runs=len(runs),
        samples=sum(int(run.serving.get("requests", 0)) for run in runs),
        median=median(rates) if rates else None,
    )


def _refused(
    metric: str,
    sides: tuple[Side, Side],
    unlike: tuple[Difference, ...],
    terms: ComparisonTerms,
    usual_noise: float,
    **known: Any,
) -> Comparison:
    """Return a comparison that nothing was measured for, with the differences that forbid it as
    reasons; none where it may be measured. `known` are further fields.
    """
    return Comparison(
        metric=metric,
        a=sides[0],
        b=sides[1],
        verdict=ComparisonOutcome.NOT_COMPARABLE,
        reasons=tuple(
            f"{difference.name}: {difference.a}"
            + (f" against {difference.b}" if difference.a != difference.b else "")
            for difference in unlike
            if difference.refused and not difference.allowed
        ),
        noise=usual_noise if terms.noise is None else terms.noise,
        limit=None if terms.max_slower is None else 1 + terms.max_slower,
        differences=unlike,
        allowed=tuple(difference.name for difference in unlike if difference.allowed),
        **known,
    )


def _side(name: str, runs: Sequence[Run], groups: Groups, metric: Metric) -> Side:
    measured_groups = [group for group in groups if group]
    middle = statistics.median_of(measured_groups) if measured_groups else None
    if middle and metric.is_rate:
        middle = 1 / middle
    return Side(
        name=name,
        sources=tuple(run.source.path for run in runs),
        runs=len(runs),
        samples=sum(map(len, measured_groups)),
        median=middle,
        summaries=tuple(map(summary_of, runs)),
    )


def _measured(comparison: Comparison, a: Groups, b: Groups, *, paired: bool) -> Comparison:
    if not paired:
        reason = _shortness("A", a, comparison.metric) or _shortness("B", b, comparison.metric)
    elif len(a) == len(b) >= FEWEST_RUNS and all((*a, *b)):
        reason = ""
    else:
        reason = f"runs: {len(a)} and {len(b)}; pairs need {FEWEST_RUNS} of each side, settled"
    if reason:
        verdict = ComparisonOutcome.TOO_SHORT
        return dataclasses.replace(comparison, verdict=verdict, reasons=(reason,))
    if paired:  # first with first, so that changes between nights cancel
        ratios = [median(after) / median(before) for before, after in zip(a, b, strict=True)]
        times, resampled = statistics.median_interval_of_runs(ratios), counted(len(a), "pair")
    else:
        # The runs where there are enough to resample; else all steps as one run's.
        units = [g if len(g) >= FEWEST_RUNS else [list(chain.from_iterable(g))] for g in (a, b)]
        times = statistics.ratio_interval(*units)
        resampled = " against ".join(
            counted(len(groups), "run")
            if len(groups) > 1
            else f"{counted(len(groups[0]), 'step')} in blocks of {statistics.BLOCK}"
            for groups in units
        )
    verdict = verdict_of(times, comparison.noise)
    return dataclasses.replace(comparison, verdict=verdict, times=times, resampled=resampled)


def _shortness(name: str, groups: Groups, metric: str) -> str:
    """Return the reason why a side is too short; "" if it is not."""
    settled, steps = sum(map(bool, groups)), sum(map(len, groups))
    if settled < len(groups):
        return f"nothing is settled in {counted(len(groups) - settled, 'run')} of {name}"
    if settled >= FEWEST_RUNS:
        return ""
    if metric is Metric.TIME_TO_TRAIN:
        return f"{name} has {counted(settled, 'run')}, {FEWEST_RUNS} are needed"
    too_few = f"{name} has {counted(steps, 'settled step')}, {FEWEST_STEPS} are needed"
    return too_few if steps < FEWEST_STEPS else ""


def verdict_of(times: Interval, noise: float) -> ComparisonOutcome:
    if times.holds(1.0) or abs(times.value - 1) <= noise:
        return ComparisonOutcome.NO_DIFFERENCE
    return ComparisonOutcome.DIFFERENCE


def _side_findings(name: str, runs: Sequence[Run], side: Side) -> Iterable[Remark]:
    """Yield the remarks on a side's runs; of several, each with its number of runs."""
    counts: Counter[str] = Counter()
    for run, summary in zip(runs, side.summaries, strict=True):
        remarks = (*run.findings, *summary.findings)
        every = [remark for remark in remarks if remark.level != "note"]
        if len(runs) > 1:  # then runs are resampled, not steps
            every = [remark for remark in every if "too short" not in remark.message]
        messages = {remark.message for remark in every}
        counts.update(messages if len(runs) == 1 else {text.split(":")[0] for text in messages})
    for message, count in counts.items():
        several = f" ({count} of {counted(len(runs), 'run')})" if len(runs) > 1 else ""
        yield Remark(level="warning", message=f"{name}: {message}{several}")


def compare_benches(
    a: tuple[str, Bench], b: tuple[str, Bench], terms: ComparisonTerms
) -> Comparison:
    """Compare the operations that both sides have; together, by the geometric mean of their ratios.

    An operation counts as changed after Holm's correction for their number.
    """
    a_cases, b_cases = (_cases(bench) for _, bench in (a, b))
    common = [name for name in a_cases if name in b_cases]
    unlike = tuple(_bench_differences(a[1], b[1], terms.allowed))
    sizes = [sum(map(len, chain.from_iterable(each.values()))) for each in (a_cases, b_cases)]
    sides = (
        Side(name=a[0], sources=(a[1].cell_id,), runs=1, samples=sizes[0], median=None),
        Side(name=b[0], sources=(b[1].cell_id,), runs=1, samples=sizes[1], median=None),
    )
    comparison = _refused(
        *("seconds_per_operation", sides, unlike, terms, NOISE_OF_OPERATIONS),
        findings=(*a[1].findings, *b[1].findings),
        only_in_a=tuple(name for name in a_cases if name not in b_cases),
        only_in_b=tuple(name for name in b_cases if name not in a_cases),
    )
    if comparison.reasons:
        return comparison
    if not common:
        return dataclasses.replace(comparison, reasons=("no operation that both have",))
    return _measured_cases(comparison, {name: (a_cases[name], b_cases[name]) for name in common})


def _measured_cases(
    comparison: Comparison, cases: Mapping[str, tuple[Groups, Groups]]
) -> Comparison:
    resampled: dict[str, list[float]] = {}
    for name, both in cases.items():
        # Of medians of resampled blocks, so that the variation between blocks counts.
        random = Random(_SEED)  # noqa: S311 - resampling
        a, b = ([sorted(block) for block in side] for side in both)  # sorted runs merge at once
        draws = statistics.resamplings_for(sum(map(len, (*a, *b))))
        pairs = (
            [_flat_median(random.choices(side, k=len(side))) for side in (b, a)]
            for _ in range(draws)
        )
        resampled[name] = [new / old for new, old in pairs]
    values = {name: _flat_median(b) / _flat_median(a) for name, (a, b) in cases.items()}
    p_values = {
        # Resampling draws blocks, and each side's own level is known from them.
        name: statistics.p_value(
            values[name], ratios, freedom=max(1, sum(map(len, cases[name])) - 2)
        )
        for name, ratios in resampled.items()
    }
    stands = statistics.holm(list(p_values.values()))
    ratios = []
    for (name, sampled), stand in zip(resampled.items(), stands, strict=True):
        ratio = statistics.geometric_mean([sampled], [values[name]])
        changed = stand and verdict_of(ratio, comparison.noise) is ComparisonOutcome.DIFFERENCE
        ratios.append(CaseRatio(id=name, ratio=ratio, p_value=p_values[name], changed=changed))
    times = statistics.geometric_mean(list(resampled.values()), list(values.values()))
    differs = any(case.changed for case in ratios)
    return dataclasses.replace(
        comparison,
        verdict=ComparisonOutcome.DIFFERENCE if differs else verdict_of(times, comparison.noise),
        times=times,
        cases=tuple(ratios),
        resampled=f"blocks of repetitions of {counted(len(ratios), 'operation')}",
    )


def _cases(bench: Bench) -> dict[str, Groups]:
    """Return times by operation, in their blocks, without operations that were not timed."""
    timed = {}
    for result in bench.results:
        if blocks := [list(block) for block in result.samples_seconds if block]:
            timed[result.id] = blocks
    size = statistics.BLOCK
    for training in bench.training:
        steps = list(training.step_seconds)
        blocks = [steps[start : start + size] for start in range(0, len(steps), size)]
        timed |= {training.id: blocks} if blocks else {}
    return timed


def _flat_median(blocks: Groups) -> float:
    return median(chain.from_iterable(blocks))


def _bench_differences(a: Bench, b: Bench, allowed: Iterable[str]) -> Iterable[Difference]:
    """Yield the differences of two benches: the method of timing has to be the same, the device
    and software are the subject of the comparison.
    """
    methods, names = sorted({*a.settings, *b.settings}), set(allowed)
    of_a, of_b = (
        [(key, bench.settings.get(key)) for key in methods]
        + [(key, getattr(bench, key)) for key in ("target", "image_digest")]
        + [(key, bench.environment.get(key)) for key in ("device_name", "torch", _POWER)]
        for bench in (a, b)
    )
    for (key, a_value), (_, b_value) in zip(of_a, of_b, strict=True):
        if a_value != b_value:
            yield Difference(
                name=key,
                a=str(a_value),
                b=str(b_value),
                refused=key in methods and key in {"cold", "precision", "tf32"},
                allowed=key in methods and key in names,
            )
