"""Blocks of cases in rotated order, and their repetitions: each is warmed up, and each repetition
timed by itself, by a `Clock` that knows the device. Peaks of devices. No torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, TypeVar

from warpfront_checks.bench.options import BenchEffort
from warpfront_checks.documents import packaged

Peak = Mapping[str, object]


def peak_table() -> dict[str, Any]:
    return packaged("bench/peaks.json")


def peak_of(arch: str, name: str, memory_bytes: int, dtype: str) -> dict[str, object] | None:
    """Return the peak for a record. `dtype` is torch's name, or `tf32` for float32 by that
    arithmetic; another, as of a copy's bytes, gives only the memory's rate.
    """
    for row in peak_table()["rows"]:
        least, most = row["memory_gib"]
        if row["arch"] == arch and name in row["names"] and least <= memory_bytes / 2**30 <= most:
            return {
                "flop_per_second": row["flop_per_second"].get(dtype),
                "bytes_per_second": row["bytes_per_second"],
                "dense": True,
                "source": f"{row['source']} ({peak_table()['as_of']})",
            }
    return None


_T = TypeVar("_T")
BLOCKS = 5
# Of the budget, what warming up may take at most, and how still the last medians have to be.
WARM_SHARE = 0.25
WARM_WINDOW = 5
WARM_MOVE = 0.01
WARM_LEAST = 3
REPETITIONS_LEAST = 20
# The most in one block: a record of a short operation would be megabytes.
REPETITIONS_MOST = 100
# After inputs were made anew for a later block: not timed.
RECALLED = 2

Work = Callable[[], object]


class Clock:
    """The host's clock, around the work and a synchronisation. `spoil` runs before each repetition,
    outside of what is timed.
    """

    def __init__(self, synchronise: Work, spoil: Work | None) -> None:
        self._synchronise, self._spoil = synchronise, spoil

    def first(self, work: Work) -> float:
        """Return host seconds: of the very first call, loading, searching, compiling."""
        self._synchronise()
        start = time.perf_counter_ns()
        work()
        self._synchronise()
        # What the clock cannot tell from nothing took its finest tick.
        return max(1, time.perf_counter_ns() - start) / 1e9

    def times(self, work: Work, repetitions: int) -> list[float]:
        """Return seconds on the device, of each repetition."""
        times = []
        for _ in range(repetitions):
            if self._spoil:
                self._spoil()
            times.append(self.first(work))
        return times


def warm_up(clock: Clock, work: Work, budget: BenchEffort) -> tuple[float, list[float], bool]:
    """Until the median of the last five repetitions is within 1 % of that of the five before, or a
    quarter of the budget is spent; at least three. Return the host seconds of the first call, the
    times of the repetitions, and whether they settled before time ran out.
    """
    first = clock.first(work)
    if budget.warmup:
        return first, clock.times(work, budget.warmup), True
    times: list[float] = []
    while len(times) < WARM_LEAST or sum(times) < WARM_SHARE * budget.seconds:
        times += clock.times(work, 1)
        if len(times) >= 2 * WARM_WINDOW:
            before = median(times[-2 * WARM_WINDOW : -WARM_WINDOW])
            if abs(median(times[-WARM_WINDOW:]) - before) < WARM_MOVE * before:
                return first, times, True
    return first, times, False


def repetitions_of_a_block(budget: BenchEffort, seconds: float) -> int:
    """Return the repetitions of `seconds` in a fifth of the budget, or a fifth of the count."""
    if budget.iterations:
        return math.ceil(budget.iterations / BLOCKS)
    fitting = math.ceil(budget.seconds / BLOCKS / seconds) if seconds > 0 else REPETITIONS_MOST
    return min(REPETITIONS_MOST, max(REPETITIONS_LEAST // BLOCKS, fitting))


def rotated(cases: Sequence[_T], block: int) -> Iterator[_T]:
    """Return a block's cases, begun a fifth further on, so that drift affects others."""
    start = block * len(cases) // BLOCKS
    yield from cases[start:]
    yield from cases[:start]
