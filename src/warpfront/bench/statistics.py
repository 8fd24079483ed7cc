"""Medians, intervals and changes of level, for times that depend on their neighbours. Pure.

Steps of a training are autocorrelated, so intervals come from a block bootstrap, and whether a
level changed from a permutation of blocks. The seed is fixed: same times, same answer. The standard
library is enough, and nothing has to be loaded for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from random import Random
from statistics import fmean, median, stdev

from warpfront.bench.records import Interval

BLOCK = 10
"""Steps that are resampled together."""
RESAMPLINGS = 2000
_FEWEST_RESAMPLINGS = 300
_DRAWS = 2_000_000
"""The number of values drawn for one interval: long runs are resampled less often."""
_SEED = 20250101
_POINTS = 200
_PERMUTATIONS = 199
FALSE_ALARMS = 0.01
"""The largest probability of a change by chance for it to count."""
LEAST_CHANGE = 0.02
FEWEST_TESTED = 40
"""The fewest values for a test; with fewer, only a plain change counts."""
PLAIN_CHANGE = 1.15
_NEIGHBOURS = 6
_REFINEMENTS = 3
_NORMAL = 1.959964
# The tick of a clock hides variation: equal medians do vary.
_TICK = 0.001


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, interpolated linearly."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def variation(values: Sequence[float]) -> float | None:
    """Return the standard deviation as a share of the mean."""
    return stdev(values) / fmean(values) if len(values) > 1 else None


def resamplings_for(count: int) -> int:
    return max(_FEWEST_RESAMPLINGS, min(RESAMPLINGS, _DRAWS // max(count, 1)))


def block_medians(
    values: Sequence[float], random: Random, *, block: int, times: int
) -> list[float]:
    """Return medians of `times` resamplings of blocks of neighbours, in a circle, so that each
    value is as likely as any other.
    """
    count = len(values)
    block = max(1, min(block, count // 2))
    circle = [*values, *values[:block]]
    blocks = -(-count // block)
    medians = []
    for _ in range(times):
        sample: list[float] = []
        for _ in range(blocks):
            start = int(random.random() * count)
            sample += circle[start : start + block]
        medians.append(median(sample[:count]))
    return medians


def _units(groups: Sequence[Sequence[float]]) -> tuple[Sequence[float], int]:
    """Return the values to resample and their block: one run's steps, or the medians of runs."""
    return (groups[0], BLOCK) if len(groups) == 1 else ([median(group) for group in groups], 1)


def median_of(groups: Sequence[Sequence[float]]) -> float:
    return median(_units(groups)[0])


def median_interval(values: Sequence[float]) -> Interval:
    random = Random(_SEED)  # noqa: S311 - resampling
    times = resamplings_for(len(values))
    interval = _interval(median(values), block_medians(values, random, block=BLOCK, times=times))
    return _widened(interval, [values])


def median_interval_of_runs(values: Sequence[float]) -> Interval:
    """Return the geometric mean of one figure per run, with its interval by Student's t."""
    logs = [math.log(value) for value in values]
    reach = _students_t(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    low, middle, high = (math.exp(fmean(logs) + sign * reach) for sign in (-1, 0, 1))
    return Interval(value=middle, low=low, high=high)


def ratio_interval(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> Interval:
    """Return B's median over A's; each side is runs of values."""
    interval = _interval(median_of(b) / median_of(a), resampled_ratios(a, b))
    return _widened(interval, [side[0] for side in (a, b) if len(side) == 1])


def resampled_ratios(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> list[float]:
    random = Random(_SEED)  # noqa: S311 - resampling
    times = resamplings_for(max(sum(map(len, a)), sum(map(len, b))))
    below, above = (
        block_medians(values, random, block=block, times=times)
        for values, block in map(_units, (a, b))
    )
    return [over / under for under, over in zip(below, above, strict=True)]


def _interval(value: float, resampled: Iterable[float]) -> Interval:
    ordered = sorted(resampled)
    low, high = quantile(ordered, 0.025), quantile(ordered, 0.975)
    return Interval(value=value, low=min(low, value), high=max(high, value))


def _widened(interval: Interval, runs: Sequence[Sequence[float]]) -> Interval:
    """Widen an interval that few blocks make too narrow, by Student's t.

    Without that, one pair in four of equal runs of 20 steps would differ.
    """
    counts = [max(2, len(run) // BLOCK) for run in runs]
    if not counts:
        return interval
    fewest = min(counts)
    factor = _students_t(sum(counts) - len(counts)) / _NORMAL * math.sqrt(fewest / (fewest - 1))
    value = interval.value
    return Interval(
        value=value,
        low=value * (interval.low / value) ** factor,
        high=value * (interval.high / value) ** factor,
    )


def _students_t(freedom: int) -> float:
    """Return the 97.5 % quantile, by the first terms of its expansion around the normal one."""
    z = _NORMAL
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    first, second, third = (term / freedom**power for power, term in enumerate(terms, 1))
    return float(z + first + second + third)


def geometric_mean(ratios: Sequence[Sequence[float]], values: Sequence[float]) -> Interval:
    """Return the geometric mean of several cases' ratios, from as many resamplings of each."""
    joined = [math.exp(fmean(map(math.log, sample))) for sample in zip(*ratios, strict=True)]
    return _interval(math.exp(fmean(map(math.log, values))), joined)


def p_value(value: float, ratios: Sequence[float], *, freedom: int) -> float:
    """Return the two-sided probability of such a ratio by chance.

    It is the share of resampled ratios on the other side of 1. Below the least share that
    resampling can count, it is by Student's t of their spread. Without that, no result among many
    operations would ever be rare enough.
    """
    above = sum(ratio > 1 for ratio in ratios)
    below = sum(ratio < 1 for ratio in ratios)
    counted = min(1.0, 2 * (min(above, below) + 1) / (len(ratios) + 1))
    spread = max(_TICK, stdev(map(math.log, ratios))) * math.sqrt((freedom + 2) / freedom)
    tail = students_tail(abs(math.log(value)) / spread, freedom)
    return tail if min(above, below) == 0 else max(counted, tail)


def students_tail(t: float, freedom: int) -> float:
    """Return the two-sided tail probability of `t` at `freedom` degrees of freedom, by its
    finite series (Abramowitz and Stegun 26.7.3 and 26.7.4).
    """
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= cosine**2 * k / (k + 1)
    within = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return max(0.0, 1 - within)


def holm(p_values: Sequence[float], level: float = 0.05) -> list[bool]:
    """Return which of several findings remain significant when all of them are tested at once."""
    stands = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] > level / (len(p_values) - rank):
            break
        stands[index] = True
    return stands


def change_points(values: Sequence[float], *, fewest: int = BLOCK) -> list[int]:
    """Return the lasting changes of level: indexes of the first value of each later level.

    A level has at least `fewest` values, and differs by `LEAST_CHANGE` from the one before. Of 100
    series without a change and with noise of 3 %, at most 5 give one, also where neighbours
    correlate by 0.6 (a test checks it).
    """
    return _changes(values, fewest, Random(_SEED))  # noqa: S311 - resampling


def _changes(values: Sequence[float], fewest: int, random: Random) -> list[int]:
    """Return all changes: the strongest one, between those before it and those after it."""
    index = _one_change(values, fewest, random)
    if index is None:
        return []
    later = [index + place for place in _changes(values[index:], fewest, random)]
    return [*_changes(values[:index], fewest, random), index, *later]


def _one_change(values: Sequence[float], fewest: int, random: Random) -> int | None:
    """Return the strongest change of these values, if chance does not explain it."""
    if len(values) < 2 * fewest:
        return None
    width = -(-len(values) // _POINTS)
    starts = range(0, len(values) - width + 1, width)
    points = [median(values[start : start + width]) for start in starts]
    strength, index = _strongest(ranks(points))
    place = _refined(values, min((index + 1) * width, len(values) - 1))
    if not fewest <= place <= len(values) - fewest:
        return None
    before, after = sorted(values[:place]), sorted(values[place:])
    low, high = sorted((before, after), key=median)
    if abs(median(after) / median(before) - 1) < LEAST_CHANGE:
        return None
    # Levels that are far apart and hardly overlap need no test.
    is_far = median(high) > median(low) * PLAIN_CHANGE
    if is_far and quantile(high, 0.05) > quantile(low, 0.95):
        return place
    is_tested = len(values) >= FEWEST_TESTED
    return place if is_tested and _is_no_chance(ranks(points), strength, random) else None


def ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks less their mean; equal values share theirs."""
    ordered = sorted(values)
    first = {value: index for index, value in reversed(list(enumerate(ordered)))}
    last = {value: index for index, value in enumerate(ordered)}
    middle = (len(values) - 1) / 2
    return [(first[value] + last[value]) / 2 - middle for value in values]


def _strongest(ranks: Sequence[float]) -> tuple[float, int]:
    """Return the largest sum of ranks up to a point, as in Pettitt's test, and that point."""
    sums = list(accumulate(ranks))[:-1]
    peak = max(range(len(sums)), key=lambda index: abs(sums[index])) if sums else 0
    return (abs(sums[peak]) if sums else 0.0), peak


def _is_no_chance(ranks: Sequence[float], strength: float, random: Random) -> bool:
    """Return whether shuffled neighbours reach such a strength too seldom for chance."""
    size = min(_NEIGHBOURS, max(1, len(ranks) // 12))
    blocks = [ranks[start : start + size] for start in range(0, len(ranks), size)]
    allowed = int(FALSE_ALARMS * (_PERMUTATIONS + 1))
    reached = 0
    for _ in range(_PERMUTATIONS):
        random.shuffle(blocks)
        reached += _strongest([rank for block in blocks for rank in block])[0] >= strength
        if reached >= allowed:
            return False
    return True


def _refined(values: Sequence[float], place: int) -> int:
    """Return the place where the medians of both sides leave the smallest residuals.

    Ranks detect a change, and place it within the trend that the later level still has.
    """
    for _ in range(_REFINEMENTS):
        before, after = median(values[:place]), median(values[place:])
        gains = accumulate(abs(value - before) - abs(value - after) for value in values)
        candidates = list(gains)[:-1]
        place = min(range(len(candidates)), key=candidates.__getitem__) + 1
    return place
