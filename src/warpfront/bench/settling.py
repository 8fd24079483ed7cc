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
    rate = getattr(step, metric) if metric.is_rate else None
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
    """Return the settled times, weighted; of a whole run, its own time."""
    if metric is Metric.TIME_TO_TRAIN:
        return [run.run_seconds] if run.run_seconds else []
    return weighted(settled_steps(run, metric), metric)


def weighted(steps: Sequence[Step], metric: Metric) -> list[float]:
    """Return the times; a mean of more steps than most counts more often."""
    usual = mode(step.steps for step in steps) if steps else 1
    values = []
    for step in steps:
        times = min(round(step.steps / usual), _MOST_REPEATS)
        values += [value_of(step, metric)] * times
    return [value for value in values if value is not None]


def _values(steps: Iterable[Step], metric: Metric) -> list[float]:
    return [value for step in steps if (value := value_of(step, metric)) is not None]


def metric_of(run: Run) -> Metric:
    """Return the metric of a run's steps: seconds, where its log has them."""
    metrics = (Metric.STEP_SECONDS, Metric.TOKENS_PER_SECOND, Metric.SAMPLES_PER_SECOND)
    usable = (metric for metric in metrics if _values(run.steps, metric))
    return next(usable, Metric.STEP_SECONDS)


def is_timed(run: Run) -> bool:
    """Return whether any line of a run has a time or a rate."""
    return bool(_values(run.steps, metric_of(run)))


def levels_of(run: Run, metric: Metric) -> tuple[Level, ...]:
    """Return the levels of each segment, without its first few steps."""
    levels: list[Level] = []
    for steps in segments_of(run, metric):
        values = _values(steps, metric)
        first = _begun(values)
        changes = (first + index for index in change_points(values[first:], fewest=WINDOW))
        for start, stop in pairwise([first, *changes, len(steps)]):
            if stop > start:
                level = Level(
                    segment=steps[start].segment,
                    first_step=steps[start].step - steps[start].steps + 1,
                    last_step=steps[stop - 1].step,
                    steps=sum(step.steps for step in steps[start:stop]),
                    median=median(values[start:stop]),
                )
                levels.append(level)
    return tuple(levels)


def _begun(values: Sequence[float]) -> int:
    """Return the first index after compilation and autotuning, which take far longer."""
    if len(values) < 2 * FEWEST_STEPS:
        return settled_from(values)
    usual, leading = median(values), 0
    slow = (index for index in range(len(values) // 2) if values[index] > SLOW * usual)
    last = max(slow, default=-1)
    while leading <= last and values[leading] > (1 + NEAR_ONE) * usual:
        leading += 1
    return leading


def summary_of(run: Run) -> Summary:
    """Return a run in figures; those that its steps do not give are None."""
    metric = metric_of(run)
    settled = settled_steps(run, metric)
    seconds = weighted(settled, Metric.STEP_SECONDS)
    levels = levels_of(run, metric)
    total = sum(step.steps for step in run.steps)
    counted = sum(step.steps for step in settled)
    times = _values(settled, metric)
    # Steps of profilers, checkpoints and evaluations stay, and are no part of a median.
    limit = SLOW * median(times) if times else 0.0
    flops = [flop for step in settled if (flop := step.flop_per_second_per_device) is not None]
    last = max((step.step for step in run.steps), default=0)
    mean = run.run_seconds / last if run.run_seconds and last and not seconds else None
    return Summary(
        settled_from=settled[0].step if settled else None,
        settled_steps=counted,
        dropped_steps=total - counted,
        slow_steps=sum(time > limit for time in times),
        median_seconds=median_interval(seconds) if seconds else None,
        mean_seconds=mean,
        p95_seconds=quantile(sorted(seconds), 0.95) if seconds else None,
        variation=variation(seconds),
        tokens_per_second_per_device=_rate(settled, Metric.TOKENS_PER_SECOND),
        samples_per_second=_rate(settled, Metric.SAMPLES_PER_SECOND),
        flop_per_second_per_device=median(flops) if flops else None,
        peak_memory_bytes=max((step.memory_bytes or 0 for step in run.steps), default=0) or None,
        last_loss=next((step.loss for step in reversed(run.steps) if step.loss is not None), None),
        levels=levels,
        findings=tuple(_findings(run, len(settled), variation(times), levels)),
    )


def _rate(steps: Sequence[Step], metric: Metric) -> float | None:
    values = weighted(steps, metric)
    return 1 / median(values) if values else None


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
