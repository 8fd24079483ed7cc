"""Retry limits of registry requests: waits and number of tries. Edge."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from warpfront.system.registry_errors import TransientError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits for one verb. A body brings `window_bytes` in every `window_seconds`, or is given up;
    an answer's head is whole in `answer_seconds`, and the end of an upload may take a second more
    for each `settled_bytes` of it. `tries` are those that brought nothing forward; one that ended
    in silence counts as several, for it took its time.
    """

    connect_seconds: float = 10.0
    answer_seconds: float = 45.0
    settled_bytes: int = 20 * 2**20
    window_seconds: float = 60.0
    window_bytes: int = 64 * 2**10
    tries: int = 7
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 30.0
    waits_seconds: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The clock, and what is done with it; tests bring their own."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random


class Attempts:
    """The tries of one verb: how many remain, and how long they may still wait in total."""

    def __init__(self, patience: Patience, pace: Pace) -> None:
        self._patience, self._pace = patience, pace
        self._failed, self._waited_seconds = 0, 0.0

    def again(self, after_seconds: float, cost: int = 1) -> bool:
        """Wait, and return whether there is another try. The wait is anything up to a bound
        that doubles (full jitter). It is no less than the registry's own delay, up to our longest.
        """
        patience = self._patience
        self._failed += cost
        remaining_seconds = patience.waits_seconds - self._waited_seconds
        if self._failed >= patience.tries or remaining_seconds <= 0:
            return False
        bound = patience.first_wait_seconds * 2 ** (self._failed - 1)
        wait = self._pace.chance() * min(bound, patience.longest_wait_seconds)
        wait = min(max(wait, min(after_seconds, patience.longest_wait_seconds)), remaining_seconds)
        self._waited_seconds += wait
        self._pace.sleep(wait)
        return True

    def run(self, act: Callable[[], T]) -> T:
        """Return what `act` returns, tried again after each `TransientError`. Raise its error when
        the tries are over.
        """
        while True:
            try:
                return act()
            except TransientError as passing:
                if not self.again(passing.after_seconds, passing.cost):
                    raise passing.error from None

    def got_on(self) -> None:
        """Record progress: the next failure is a first one. Time already waited still counts."""
        self._failed = 0
