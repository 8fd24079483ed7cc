"""The steps of a run that count: the settled ones, their levels, and a run's summary of them. Pure.

"Drop the first step" is wrong: autotuning, compilation and allocators take from none to hundreds. A
run settles at the first step of the first window of five whose median lies within 5 % of the median
of the last half. That step itself has to lie within 15 % of it, and not follow a slow one, whose
work may still run on in it. After a restart a run settles again. A change of level is shown, and
never dropped unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from statistics import median, mode

from warpfront.bench.records import Level, Metric, Remark, Run, Step, Summary
from warpfront.bench.statistics import change_points, median_interval, quantile, variation

FEWEST_STEPS = 10
WINDOW = 5
NEAR, NEAR_ONE = 0.05, 0.15
SLOW = 1.5
NOISY = 0.25
_MOST_REPEATS = 100


def settled_from(values: Sequence[float]) -> int:
    """Return the index of the first settled value; their number where none is."""
    if not values:
        return 0
    level = median(values[len(values) // 2 :])
    for start in range(len(values) - WINDOW + 1):
        window = median(values[start : start + WINDOW])
        is_near = abs(window / level - 1) <= NEAR and abs(values[start] / level - 1) <= NEAR_ONE
        if is_near and (not start or values[start - 1] <= SLOW * level):
            return start
    return len(values)


def value_of(step: Step, metric: Metric) -> float | None:
    """Return the step's time by a metric; of a rate, its inverse, so that more is always slower."""
    if metric is Metric.STEP_SECONDS:
        return step.seconds
    rate = None
    if metric is Metric.TOKENS_PER_SECOND:
        rate = step.tokens_per_second_per_device
    elif metric is Metric.SAMPLES_PER_SECOND:
        rate = step.samples_per_second
    return 1 / rate if rate else None


def segments_of(run: Run, metric: Metric) -> list[list[Step]]:
    """Return the steps that have a time, between restarts."""
    timed = (step for step in run.steps if value_of(step, metric) is not None)
    return [list(steps) for _, steps in groupby(timed, key=lambda step: step.segment)]


def settled_steps(run: Run, metric: Metric) -> list[Step]:
    """Return the steps of every segment after it has settled.

    Segments that are too short to judge contribute none, unless the run has only one.
    """
    segments = segments_of(run, metric)
    settled: list[Step] = []
    for steps in segments:
        if len(steps) >= FEWEST_STEPS or len(segments) == 1:
            settled += steps[settled_from(_values(steps, metric)) :]
    return settled


def times_of(run: Run, metric: Metric) -> list[float]:
    """Return the settled times, weighted."""
    return weighted(settled_steps(run, metric), metric)


def weighted(steps: Sequence[Step], metric: Metric) -> list[float]:
    """Return the times; a mean of more steps than most counts more often."""
    usual = mode(step.steps for step in steps) if steps else 1
    return [
        value
        for step in steps
        if (value := value_of(step, metric)) is not None
        for _ in range(min(round(step.steps / usual), _MOST_REPEATS))
    ]


def _values(steps: Iterable[Step], metric: Metric) -> list[float]:
    return [value for step in steps if (value := value_of(step, metric)) is not None]


def metric_of(run: Run) -> Metric:
    """Return the metric of a run's steps: seconds, where its log has them."""
    for metric in (Metric.STEP_SECONDS, Metric.TOKENS_PER_SECOND, Metric.SAMPLES_PER_SECOND):
        if any(value_of(step, metric) is not None for step in run.steps):
            return metric
    return Metric.STEP_SECONDS


def is_timed(run: Run) -> bool:
    """Return whether any line of a run has a time or a rate."""
    return any(value_of(step, metric_of(run)) is not None for step in run.steps)


def levels_of(run: Run, metric: Metric) -> tuple[Level, ...]:
    """Return the levels of each segment, without its first few steps."""
    levels: list[Level] = []
    for steps in segments_of(run, metric):
        values = _values(steps, metric)
        first = _begun(values)
        marks = [
            first,
            *(first + index for index in change_points(values[first:], fewest=WINDOW)),
            len(steps),
        ]
        for start, stop in pairwise(marks):
            if stop > start:
                levels.append(_level(steps[start:stop], median(values[start:stop])))
    return tuple(levels)


def _begun(values: Sequence[float]) -> int:
    """Return the first index after compilation and autotuning, which are far from
    all later steps.
    """
    if len(values) < 2 * FEWEST_STEPS:
        return settled_from(values)
    usual = median(values)
    last = max(
        (index for index in range(len(values) // 2) if values[index] > SLOW * usual), default=-1
    )
    leading = 0
    while leading <= last and values[leading] > (1 + NEAR_ONE) * usual:
        leading += 1
    return leading


def _level(steps: Sequence[Step], middle: float) -> Level:
    return Level(
        segment=steps[0].segment,
        first_step=steps[0].step - steps[0].steps + 1,
        last_step=steps[-1].step,
        steps=sum(step.steps for step in steps),
        median=middle,
    )


def summary_of(run: Run) -> Summary:
    """Return a run in figures; those that its steps do not give are None."""
    metric = metric_of(run)
    settled = settled_steps(run, metric)
    seconds = weighted(settled, Metric.STEP_SECONDS)
    levels = levels_of(run, metric)
    total = sum(step.steps for step in run.steps)
    counted = sum(step.steps for step in settled)
    # Count the steps of profilers, checkpoints and evaluations: they stay, and are no part of a
    # median.
    values = _values(settled, metric)
    limit = SLOW * median(values) if values else 0.0
    slow = sum(value > limit for value in values)
    return Summary(
        settled_from=settled[0].step if settled else None,
        settled_steps=counted,
        dropped_steps=total - counted,
        slow_steps=slow,
        median_seconds=median_interval(seconds) if seconds else None,
        mean_seconds=None if seconds else _mean_seconds(run),
        p95_seconds=quantile(sorted(seconds), 0.95) if seconds else None,
        variation=variation(seconds),
        tokens_per_second_per_device=_rate(settled, Metric.TOKENS_PER_SECOND),
        samples_per_second=_rate(settled, Metric.SAMPLES_PER_SECOND),
        flop_per_second_per_device=_middle(step.flop_per_second_per_device for step in settled),
        peak_memory_bytes=max((step.memory_bytes or 0 for step in run.steps), default=0) or None,
        last_loss=next((step.loss for step in reversed(run.steps) if step.loss is not None), None),
        levels=levels,
        findings=tuple(_findings(run, len(settled), variation(_values(settled, metric)), levels)),
    )


def _mean_seconds(run: Run) -> float | None:
    """Return the time of the whole run over its last step."""
    last = max((step.step for step in run.steps), default=0)
    return run.run_seconds / last if run.run_seconds and last else None


def _rate(steps: Sequence[Step], metric: Metric) -> float | None:
    values = weighted(steps, metric)
    return 1 / median(values) if values else None


def _middle(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return median(numbers) if numbers else None


def _findings(
    run: Run, settled: int, spread: float | None, levels: Sequence[Level]
) -> Iterable[Remark]:
    if run.steps and not is_timed(run):
        yield Remark(level="warning", message="no line of a step has a time")
    elif run.steps and settled < FEWEST_STEPS:
        yield Remark(level="warning", message=f"too short: {settled} settled lines")
    if spread is not None and spread > NOISY:
        yield Remark(level="warning", message=f"noisy: settled steps vary by {spread:.1%}")
    for before, after in pairwise(levels):
        if before.segment == after.segment:
            change = f"{after.median / before.median - 1:+.1%} a step"
            message = f"a change of level: {change} from step {after.first_step} on"
            yield Remark(level="warning", message=message)
    skipped = sum(step.skipped or 0 for step in run.steps)
    if any(step.nan for step in run.steps):
        yield Remark(level="warning", message="losses that are no numbers")
    if skipped > 0.01 * sum(step.steps for step in run.steps):
        yield Remark(level="warning", message=f"{skipped} skipped steps")
