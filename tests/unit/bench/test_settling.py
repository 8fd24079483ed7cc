"""Which steps count: start-ups of any length, restarts, levels, and runs too short to say."""

from __future__ import annotations

import pytest
from series import noisy
from training_logs import a_run, megatron_line, primus_log, read_one

from warpfront.bench.records import Metric, Step
from warpfront.bench.settling import (
    levels_of,
    settled_from,
    settled_steps,
    summary_of,
    times_of,
    weighted,
)

STEADY = [0.51, 0.486, 0.505, 0.515, 0.529, 0.508, 0.497, 0.5125]


@pytest.mark.parametrize(
    ("values", "first"),
    [
        ([1.0] * 20, 0),
        ([30.5, 15.6, 0.73, *STEADY[1:]], 3),  # 15 % of the level is not reached before
        ([78.3, 55.2, 32.2, 32.0, 32.1, 39.3, 32.0, 32.9, 33.5, 32.0, 32.0], 3),
        ([36.9, 18.0, 16.5, 18.3, 17.3, 17.8, 16.3, 11.9, *[3.2] * 40], 9),
        ([1.0, 1.0, 1.0], 3),  # no window of five: nothing is settled
        ([], 0),
    ],
)
def test_settled_begins_where_windows_are_near_the_last_half(
    values: list[float], first: int
) -> None:
    assert settled_from(values) == first


def test_dropping_the_first_step_would_be_wrong_by_a_factor() -> None:
    run = read_one(primus_log([30.5, 15.6, 0.73, *STEADY[1:]]))
    summary = summary_of(run)
    assert (summary.settled_from, summary.dropped_steps) == (4, 3)
    assert summary.median_seconds is not None
    assert summary.median_seconds.value == pytest.approx(0.508, abs=0.005)
    naive = [step.seconds or 0.0 for step in run.steps][1:]
    assert sum(naive) / len(naive) > 4 * summary.median_seconds.value


def test_fewer_than_ten_settled_lines_are_too_short() -> None:
    messages = [one.message for one in summary_of(a_run(STEADY)).findings]
    assert messages == ["too short: 8 settled lines"]


def test_a_change_of_level_is_two_segments_and_not_dropped_unseen() -> None:
    values = [22.8, *noisy(156, 1, 2.52), *noisy(343, 2, 2.355)]
    summary = summary_of(a_run(values))
    first, second = summary.levels
    assert (first.first_step, first.last_step, second.last_step) == (2, 157, 500)
    assert (first.median, second.median) == pytest.approx((2.52, 2.355), rel=0.005)
    assert any("a change of level: -6." in one.message for one in summary.findings)
    assert summary.dropped_steps > 100


def test_a_run_without_a_change_has_one_level() -> None:
    assert len(levels_of(a_run([9.0, 4.0, *noisy(60, 3, 1.0)]), Metric.STEP_SECONDS)) == 1


def test_after_a_restart_a_run_settles_again() -> None:
    first = [(n, 60_000.0 if n < 3 else 1000.0) for n in range(1, 21)]
    second = [(n, 60_000.0 if n < 13 else 1000.0) for n in range(10, 31)]
    text = "".join(f"{megatron_line(*one)}\n" for one in (*first, *second))
    run = read_one(text)
    assert max(times_of(run, Metric.STEP_SECONDS)) == 1.0
    assert {step.segment for step in settled_steps(run, Metric.STEP_SECONDS)} == {0, 1}


def test_slow_steps_stay_in_the_data_and_out_of_the_median() -> None:
    values = [*[1.0] * 30, 9.0, *[1.0] * 30]
    summary = summary_of(a_run(values))
    assert (summary.slow_steps, summary.dropped_steps) == (1, 0)
    assert summary.median_seconds is not None
    assert summary.median_seconds.value == 1.0
    assert any("noisy" in one.message for one in summary.findings)


def test_lines_that_are_means_of_more_steps_weigh_more() -> None:
    steps = [Step(step=1, seconds=5.0), *(Step(step=n, steps=10, seconds=1.0) for n in (11, 21))]
    assert weighted(steps, Metric.STEP_SECONDS) == [1.0, 1.0]
    steps = [Step(step=1, seconds=5.0), Step(step=4, steps=3, seconds=1.0)]
    assert weighted(steps, Metric.STEP_SECONDS) == [5.0, 1.0, 1.0, 1.0]


def test_a_rate_counts_as_its_inverse_so_that_more_is_slower() -> None:
    steps = [Step(step=1, tokens_per_second_per_device=50.0)]
    assert weighted(steps, Metric.TOKENS_PER_SECOND) == [0.02]
    assert weighted(steps, Metric.SAMPLES_PER_SECOND) == []


def test_losses_that_are_no_numbers_and_skipped_steps_are_said() -> None:
    lines = [
        megatron_line(
            n, 1000.0, lm_loss="nan" if n == 5 else "1.0", number_of_skipped_iterations=int(n > 15)
        )
        for n in range(1, 21)
    ]
    said = "\n".join(f.message for f in summary_of(read_one("\n".join(lines) + "\n")).findings)
    assert "losses that are no numbers" in said
    assert "5 skipped steps" in said
