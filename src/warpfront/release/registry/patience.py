"""Limits of registry requests: waits, the number of tries, and how slow an answer may be. Edge.

A read time-out is about the next byte: a registry that sends one now and then is never late. So a
minimum rate of a body is required; `system.whole_heads` limits the head of an answer.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import requests
import urllib3

from warpfront.system.registry_errors import TransientError
from warpfront.system.whole_heads import WholeHeads, read_within

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

    def run(self, act: Callable[[], T], progress: Callable[[], int] = lambda: 0) -> T:
        """Return what `act` returns, tried again after each `TransientError`. Raise its error when
        the tries are over. After progress a failure is a first one; time already waited counts.
        """
        furthest = 0
        while True:
            try:
                return act()
            except TransientError as passing:
                if progress() > furthest:
                    furthest, self._failed = progress(), 0
                if not self.again(passing.after_seconds, passing.cost):
                    raise passing.error from None


_PIECE_BYTES = 1 << 20
_SENT_AT_ONCE_BYTES = 1 << 18


class TooSlow(requests.Timeout):
    """Bytes come, but not in a number that would ever make a whole."""


class Adapter(WholeHeads):
    """Its connections send in larger pieces, and believe these certificate authorities, too."""

    def __init__(self, authorities: tuple[Path, ...] = ()) -> None:
        self._authorities = authorities
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **{**options, **self._options()})

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        return super().proxy_manager_for(proxy, **{**options, **self._options()})

    def _options(self) -> dict[str, Any]:
        if not self._authorities:
            return {"blocksize": _SENT_AT_ONCE_BYTES}
        context = ssl.create_default_context()
        for file in self._authorities:
            context.load_verify_locations(file)
        return {"blocksize": _SENT_AT_ONCE_BYTES, "ssl_context": context}


def received(answer: requests.Response, patience: Patience, pace: Pace) -> Iterator[bytes]:
    """Yield the body as it arrives. Raises as requests does, and `TooSlow`."""
    since, count = pace.clock(), 0

    def read() -> bytes:
        return bytes(answer.raw.read1(_PIECE_BYTES, decode_content=False))

    try:
        while piece := read_within(answer.raw, patience.window_seconds * 1.1, read):
            count += len(piece)
            yield piece
            now = pace.clock()
            if now - since > patience.window_seconds:
                if count < patience.window_bytes:
                    raise TooSlow(f"{count} bytes in {now - since:.0f} s")
                since, count = now, 0
    except urllib3.exceptions.ReadTimeoutError as error:
        raise requests.ReadTimeout(error) from error
    except TimeoutError as error:
        raise TooSlow(str(error)) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        if isinstance(error, requests.RequestException):
            raise
        raise requests.exceptions.ChunkedEncodingError(error) from error
    finally:
        answer.close()
