"""Cases in blocks, in rotated order, on a given device: one that fails ends alone. No torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from warpfront_checks.bench import timer
from warpfront_checks.bench.timed_cases import TimedCase

TIMED, UNAVAILABLE, ERROR = "timed", "unavailable", "error"
Peak = Mapping[str, object]


class TimedDevice(Protocol):
    """A device, as far as timing needs it."""

    clock: timer.Clock

    def make(self, case: TimedCase) -> timer.Work:
        """Make the work of a case. Raise torch's own errors; `LookupError` if it is impossible."""
        ...

    def peak(self, dtype: str) -> Peak | None: ...

    def memory_from_here(self) -> None:
        """Forget the most memory that was ever used."""
        ...

    def memory_peak(self) -> int | None: ...

    def kernel(self, work: timer.Work) -> str | None:
        """Return the kernel that takes most of one repetition's time."""
        ...


@dataclass
class Timing:
    """One case, while it is timed."""

    case: TimedCase
    outcome: str = TIMED
    blocks: list[list[float]] = field(default_factory=list)
    first_seconds: float | None = None
    warm_seconds: float = 0.0
    memory_peak_bytes: int | None = None
    kernel: str | None = None
    notes: list[str] = field(default_factory=list)

    def add_block(self, bench: TimedDevice, budget: timer.Budget) -> None:
        """Time one block more. An error ends this case, and no other."""
        try:
            self._add_block(bench, budget)
        except LookupError as error:
            self.outcome = UNAVAILABLE
            self.notes.append(str(error))
        except Exception as error:  # noqa: BLE001 - a case that raises is a result; the rest go on
            self.outcome = ERROR
            message = str(error).strip().splitlines() or [""]
            self.notes.append(f"{type(error).__name__}: {message[0]}"[:500])

    def _add_block(self, bench: TimedDevice, budget: timer.Budget) -> None:
        work = bench.make(self.case)
        if not self.blocks:
            self._warm_up(bench, work, budget)
        else:
            bench.clock.times(work, timer.RECALLED)
        count = timer.repetitions_of_a_block(budget, self.warm_seconds)
        self.blocks.append(list(bench.clock.times(work, count)))
        if len(self.blocks) == timer.BLOCKS:
            self.kernel = bench.kernel(work)

    def _warm_up(self, bench: TimedDevice, work: timer.Work, budget: timer.Budget) -> None:
        bench.memory_from_here()
        warmed = timer.warm_up(bench.clock, work, budget)
        self.memory_peak_bytes = bench.memory_peak()
        self.first_seconds, self.warm_seconds = warmed.first_seconds, warmed.seconds
        if not warmed.settled:
            self.notes.append(f"not still after {warmed.repetitions} repetitions of warming up")

    def document(self, peak: Peak | None) -> dict[str, Any]:
        """Return the case for a record. One that failed later has no times: half are none."""
        case, was_timed = self.case, self.outcome == TIMED
        return {
            "id": case.id,
            "suite": case.suite,
            "op": case.op,
            "shape": case.shape,
            "dtype": case.dtype,
            "direction": case.direction,
            "outcome": self.outcome,
            "samples_seconds": self.blocks if was_timed else [],
            "first_seconds": self.first_seconds,
            "flops": case.flops,
            "bytes": case.bytes,
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
    cases: Sequence[TimedCase], bench: TimedDevice, budget: timer.Budget, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Time every case in every block; return documents in the order of the table."""
    timings = {case.id: Timing(case) for case in cases}
    for block in range(timer.BLOCKS):
        for case in timer.rotated(cases, block):
            timing = timings[case.id]
            if timing.outcome == TIMED:
                timing.add_block(bench, budget)
                if timing.outcome != TIMED or block == timer.BLOCKS - 1:
                    say(timing.line())
    return [
        timing.document(None if timing.case.suite == "memory" else bench.peak(timing.case.dtype))
        for timing in timings.values()
    ]


PEAKS = Path(__file__).with_name("peaks.json")


@cache
def peak_table() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(PEAKS.read_text(encoding="utf-8"))
    return document


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
