"""The clocks of devices: events where there are some, else the host's time between idle points."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from warpfront_checks.bench.rounds import Clock, Work

# For a torch that does not report the size of the last cache: more than any known has.
_CACHE_BYTES = 256 * 2**20
_CYCLES = 10_000_000
# What takes longer to launch is no short operation, and waits for no head start.
_LONGEST_LAUNCH_SECONDS = 1e-3


def clock_of(device: str, *, cold: bool = False, ahead: bool = True) -> Clock:
    """`cold` writes over the cache before every repetition, outside of what is timed. `ahead` lets
    the host launch while the device waits; without it what the host takes counts.
    """
    spoil = _spoiler(device) if cold else None
    if device in {"cuda", "xpu"}:
        module: Any = getattr(torch, device)
        return EventClock(module, spoil, _waiting(module) if ahead else None)
    return HostClock(_synchronise(device), spoil)


class HostClock:
    """The host's clock, around the work and a synchronisation."""

    def __init__(self, synchronise: Work, spoil: Work | None) -> None:
        self._synchronise, self._spoil = synchronise, spoil

    def first(self, work: Work) -> float:
        return _host_seconds(work, self._synchronise)

    def times(self, work: Work, repetitions: int) -> list[float]:
        times = []
        for _ in range(repetitions):
            if self._spoil:
                self._spoil()
            times.append(_host_seconds(work, self._synchronise))
        return times


class EventClock(HostClock):
    """A pair of events for each repetition, and one synchronisation at the end.

    Before each, the device is made to wait for twice as long as launching takes. Else something
    shorter than its launch would take as long as the host does, which is busy with other things.
    """

    def __init__(
        self, module: Any, spoil: Work | None, wait: Callable[[float], object] | None
    ) -> None:
        super().__init__(module.synchronize, spoil)
        self._module, self._wait = module, wait

    def times(self, work: Work, repetitions: int) -> list[float]:
        event = self._module.Event
        pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(repetitions)]
        self._synchronise()
        launching = _LONGEST_LAUNCH_SECONDS
        for start, end in pairs:
            if self._spoil:
                self._spoil()
            if self._wait:
                self._wait(2 * launching)
            started = time.perf_counter()
            start.record()
            work()
            end.record()
            # The shortest: once the host is far ahead, launching waits for the device.
            launching = min(launching, time.perf_counter() - started)
        self._synchronise()
        return [start.elapsed_time(end) / 1000 for start, end in pairs]


def _waiting(module: Any) -> Callable[[float], object] | None:
    """Return a function that makes a device wait for so many seconds, None if torch cannot. It
    is a spinning kernel, counted in cycles. The cycles of a second are measured, the second time,
    when the clock is up.
    """
    sleep = getattr(module, "_sleep", None)
    if sleep is None:
        return None
    bare = EventClock(module, None, None)
    _, seconds = bare.times(lambda: sleep(_CYCLES), 2)
    return lambda duration: sleep(int(duration * _CYCLES / seconds))


def _host_seconds(work: Work, synchronise: Work) -> float:
    synchronise()
    start = time.perf_counter_ns()
    work()
    synchronise()
    # What the clock cannot tell from nothing took its finest tick.
    return max(1, time.perf_counter_ns() - start) / 1e9


def _synchronise(device: str) -> Work:
    if device == "cpu":
        return lambda: None
    module: Any = getattr(torch, device)
    synchronise: Work = module.synchronize
    return synchronise


def _spoiler(device: str) -> Work:
    size = 2 * _CACHE_BYTES
    if device == "cuda":
        cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)
        size = 2 * int(cache or _CACHE_BYTES)
    buffer = torch.empty(size, dtype=torch.uint8, device=device)
    zero: Work = buffer.zero_
    return zero
