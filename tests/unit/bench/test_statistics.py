"""Intervals that hold what they claim, changes that are there, and none that are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from statistics import median

import pytest
from series import noisy

from warpfront.bench.records import Interval
from warpfront.bench.statistics import (
    BLOCK,
    change_points,
    geometric_mean,
    holm,
    median_interval,
    p_value,
    quantile,
    ratio_interval,
    resamplings_for,
    students_tail,
)

NOISE = 0.03
Groups = Sequence[Sequence[float]]


def test_a_quantile_lies_on_the_line_between_its_neighbours() -> None:
    assert [quantile([1.0, 2.0, 4.0], share) for share in (0.0, 0.25, 0.5, 1.0)] == [1, 1.5, 2, 4]


def test_the_same_times_give_the_same_interval() -> None:
    a, b = noisy(60, 1, noise=NOISE), noisy(60, 2, noise=NOISE)
    assert ratio_interval([a], [b]) == ratio_interval([a], [b])
    assert ratio_interval([a], [a]).value == 1


def test_an_interval_holds_the_ratio_in_most_of_many_samples() -> None:
    held = sum(
        ratio_interval(
            [noisy(80, 2 * n, noise=NOISE, phi=0.3)],
            [noisy(80, 2 * n + 1, 1.05, noise=NOISE, phi=0.3)],
        ).holds(1.05)
        for n in range(5)
    )
    assert held >= 4


def test_equal_runs_of_few_steps_are_seldom_told_apart() -> None:
    """Without widening, every fourth of these pairs is."""
    told = sum(
        not ratio_interval([noisy(20, 2 * n)], [noisy(20, 2 * n + 1)]).holds(1.0) for n in range(16)
    )
    assert told <= 1


def test_correlated_steps_widen_an_interval_that_ignores_blocks() -> None:
    values = noisy(200, 3, noise=NOISE, phi=0.9)
    alone = median_interval(Random(0).sample(values, len(values)))
    blocks = median_interval(values)
    assert blocks.high - blocks.low > 1.3 * (alone.high - alone.low)


def test_runs_are_resampled_where_there_are_several() -> None:
    """The steps of each run are exact: what varies is the runs."""
    a = [[level] * 50 for level in (1.0, 1.1, 0.9, 1.05, 0.95)]
    interval = ratio_interval(a, a)
    assert interval.low < 0.95
    assert interval.high > 1.05
    assert ratio_interval([a[0]], [a[0]]) == Interval(value=1, low=1, high=1)


def test_long_runs_are_resampled_less_often_and_never_too_seldom() -> None:
    assert [resamplings_for(n) for n in (1, 100, 10_000, 10**7)] == [2000, 2000, 300, 300]


def test_ratios_of_several_cases_have_a_geometric_mean() -> None:
    joined = geometric_mean([[2.0, 2.0], [0.5, 0.5]], [2.0, 0.5])
    assert (joined.value, joined.low, joined.high) == pytest.approx((1, 1, 1))


def test_holm_lets_stand_what_stands_among_all_that_are_asked() -> None:
    assert holm([0.04, 0.001, 0.03]) == [False, True, False]
    assert holm([0.04]) == [True]
    assert holm([]) == []


def test_a_p_value_is_small_where_every_resampling_agrees() -> None:
    far = [1.1 * (1 + 0.001 * (n % 7)) for n in range(999)]
    assert p_value(1.1, far, freedom=8) < 1e-6
    assert p_value(1.1, [1.1] * 999, freedom=8) < 1e-6
    assert p_value(1.0, [1.1, 0.9] * 500, freedom=8) == 1.0
    assert p_value(1.1, [*far, *[0.99] * 9], freedom=8) >= 0.019


@pytest.mark.parametrize(
    ("t", "freedom", "chance"),
    [(12.706, 1, 0.05), (4.303, 2, 0.05), (2.571, 5, 0.05), (5.041, 8, 0.001), (1.984, 100, 0.05)],
)
def test_students_tail_is_that_of_the_tables(t: float, freedom: int, chance: float) -> None:
    assert students_tail(t, freedom) == pytest.approx(chance, rel=1e-3)


@pytest.mark.parametrize(
    ("count", "at", "factor"), [(40, 25, 1.1), (200, 60, 0.95), (500, 157, 0.93)]
)
def test_a_change_of_level_is_found_where_it_is(count: int, at: int, factor: float) -> None:
    before = noisy(at, 4)
    after = noisy(count - at, 5, factor)
    (found,) = change_points(before + after)
    assert abs(found - at) <= 3


def test_several_levels_are_several() -> None:
    levels = ((1.0, 40), (1.2, 30), (0.9, 50))
    values = [v for level, n in levels for v in noisy(n, n, level)]
    assert [round(one, -1) for one in change_points(values)] == [40, 70]


def test_single_slow_steps_are_no_level() -> None:
    values = noisy(100, 6)
    values[20] = values[50] = values[90] = 5.0
    assert change_points(values) == []


@pytest.mark.parametrize("phi", [0.0, 0.6])
def test_where_nothing_changes_a_change_is_seldom_seen(phi: float) -> None:
    alarms = sum(bool(change_points(noisy(60, n, noise=NOISE, phi=phi))) for n in range(20))
    assert alarms <= 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [20, 60, 200, 500])
@pytest.mark.parametrize("phi", [0.0, 0.3, 0.6])
def test_of_a_hundred_series_without_a_change_at_most_five_give_one(phi: float, count: int) -> None:
    series = (noisy(count, n, noise=NOISE, phi=phi) for n in range(100))
    assert sum(bool(change_points(one, fewest=5)) for one in series) <= 5


def false_alarm_rate(run: Sequence[float], differs: Callable[[Groups, Groups], bool]) -> float:
    """How often `differs` sees a difference between halves of one run, its blocks dealt out at
    random (A/A).
    """
    random, splits, alarms = Random(1), 5, 0
    dealt = [run[at : at + BLOCK] for at in range(0, len(run), BLOCK)]
    for _ in range(splits):
        random.shuffle(dealt)
        halves = dealt[: len(dealt) // 2], dealt[len(dealt) // 2 :]
        a, b = ([[v for one in half for v in one]] for half in halves)
        alarms += differs(a, b)
    return alarms / splits


def test_halves_of_the_same_seldom_differ() -> None:
    def differs(a: Groups, b: Groups) -> bool:
        interval = ratio_interval(a, b)
        return not interval.holds(1.0) and abs(interval.value - 1) > 0.01

    run = noisy(120, 7, noise=NOISE)
    assert false_alarm_rate(run, differs) <= 0.2
    assert false_alarm_rate(run, lambda a, b: median(a[0]) != median(b[0])) > 0.9
    assert not differs([[1.0]] * 3, [[1.0]] * 3)
