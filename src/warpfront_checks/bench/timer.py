"""The duration of an operation: warmed up, in blocks, each repetition by itself. No torch.

A `Clock` knows the device; the decisions of this module need none, and are tested with fake clocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol, TypeVar

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


class Clock(Protocol):
    """A device's clock."""

    def first(self, work: Work) -> float:
        """Return host seconds of the very first call: loading, searching, compiling."""
        ...

    def times(self, work: Work, repetitions: int) -> Sequence[float]:
        """Return seconds on the device, of each repetition."""
        ...


@dataclass(frozen=True)
class Budget:
    """The limit of one case. `iterations` and `warmup` above 0 count, in place of `seconds`."""

    seconds: float = 0.5
    iterations: int = 0
    warmup: int = 0


@dataclass(frozen=True)
class Warmed:
    """The times of a case before it counted. `settled` is False if time ran out first."""

    first_seconds: float
    seconds: float
    repetitions: int
    settled: bool


def warm_up(clock: Clock, work: Work, budget: Budget) -> Warmed:
    """Until the median of the last five repetitions is within 1 % of that of the five before, or a
    quarter of the budget is spent; at least three.
    """
    first = clock.first(work)
    if budget.warmup:
        times = list(clock.times(work, budget.warmup))
        return Warmed(first, median(times), len(times), settled=True)
    times = []
    while not (settled := _is_still(times)):
        if len(times) >= WARM_LEAST and sum(times) >= WARM_SHARE * budget.seconds:
            break
        times += clock.times(work, 1)
    return Warmed(first, median(times[-WARM_WINDOW:]), len(times), settled)


def _is_still(durations: Sequence[float]) -> bool:
    if len(durations) < 2 * WARM_WINDOW:
        return False
    before = median(durations[-2 * WARM_WINDOW : -WARM_WINDOW])
    last = median(durations[-WARM_WINDOW:])
    return abs(last - before) < WARM_MOVE * before


def repetitions_of_a_block(budget: Budget, seconds: float) -> int:
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
