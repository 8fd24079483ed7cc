"""Cases in blocks, in rotated order, on a given device: one that fails ends alone. Each is warmed
up, and each repetition timed by itself, by a `Clock` that knows the device. No torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import Any, Protocol, TypeVar

from warpfront_checks.bench.timed_cases import TimedCase
from warpfront_checks.documents import packaged

TIMED, UNAVAILABLE, ERROR = "timed", "unavailable", "error"
Peak = Mapping[str, object]


class TimedDevice(Protocol):
    """A device, as far as timing needs it."""

    clock: Clock

    def make(self, case: TimedCase) -> Work:
        """Make the work of a case. Raise torch's own errors; `LookupError` if it is impossible."""

    def peak(self, dtype: str) -> Peak | None: ...

    def memory_from_here(self) -> None:
        """Forget the most memory that was ever used."""

    def memory_peak(self) -> int | None: ...

    def kernel(self, work: Work) -> str | None:
        """Return the kernel that takes most of one repetition's time."""


@dataclass
class Timing:
    """A case, while it is timed."""

    case: TimedCase
    outcome: str = TIMED
    blocks: list[list[float]] = field(default_factory=list)
    first_seconds: float | None = None
    warm_seconds: float = 0.0
    memory_peak_bytes: int | None = None
    kernel: str | None = None
    notes: list[str] = field(default_factory=list)

    def add_block(self, bench: TimedDevice, budget: Budget) -> None:
        """Time one block more. An error ends this case, and no other."""
        try:
            work = bench.make(self.case)
            if not self.blocks:
                bench.memory_from_here()
                self.first_seconds, times, settled = warm_up(bench.clock, work, budget)
                self.memory_peak_bytes = bench.memory_peak()
                self.warm_seconds = median(times if budget.warmup else times[-WARM_WINDOW:])
                if not settled:
                    self.notes.append(f"not still after {len(times)} repetitions of warming up")
            else:
                bench.clock.times(work, RECALLED)
            count = repetitions_of_a_block(budget, self.warm_seconds)
            self.blocks.append(bench.clock.times(work, count))
            if len(self.blocks) == BLOCKS:
                self.kernel = bench.kernel(work)
        except LookupError as error:
            self.outcome = UNAVAILABLE
            self.notes.append(str(error))
        except Exception as error:  # noqa: BLE001 - a case that raises is a result; the rest go on
            self.outcome = ERROR
            message = str(error).strip().splitlines() or [""]
            self.notes.append(f"{type(error).__name__}: {message[0]}"[:500])

    def document(self, peak: Peak | None) -> dict[str, Any]:
        """Return the case for a record. One that failed later has no times: half are none."""
        case = self.case
        names = ("id", "suite", "op", "shape", "dtype", "direction", "flops", "bytes")
        return {
            **{name: getattr(case, name) for name in names},
            "outcome": self.outcome,
            "samples_seconds": self.blocks if self.outcome == TIMED else [],
            "first_seconds": self.first_seconds,
            "peak": peak,
            "memory_peak_bytes": self.memory_peak_bytes,
            "kernel": self.kernel,
            "note": "; ".join(filter(None, [case.note, *self.notes])),
        }

    def line(self) -> str:
        """Return the line of progress for this case, printed while the rest are timed."""
        if self.outcome != TIMED:
            return f"{self.case.id}: {self.outcome}: {self.notes[-1]}"
        return f"{self.case.id}: {1000 * median(chain.from_iterable(self.blocks)):.4g} ms"


def time_cases(
    cases: Sequence[TimedCase], bench: TimedDevice, budget: Budget, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Time every case in every block; return documents in the order of the table."""
    timings = {case.id: Timing(case) for case in cases}
    for block in range(BLOCKS):
        for case in rotated(cases, block):
            timing = timings[case.id]
            if timing.outcome == TIMED:
                timing.add_block(bench, budget)
                if timing.outcome != TIMED or block == BLOCKS - 1:
                    say(timing.line())
    return [
        timing.document(None if timing.case.suite == "memory" else bench.peak(timing.case.dtype))
        for timing in timings.values()
    ]


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


@dataclass(frozen=True)
class Budget:
    """The limit of one case. `iterations` and `warmup` above 0 count, in place of `seconds`."""

    seconds: float = 0.5
    iterations: int = 0
    warmup: int = 0


def warm_up(clock: Clock, work: Work, budget: Budget) -> tuple[float, list[float], bool]:
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
