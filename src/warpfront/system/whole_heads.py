"""HTTP connections whose answers have to begin within the time-out, whole. Edge.

A read time-out is about the next byte: who sends one of the head, or of what ends a body, now and
then is never late.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import math
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class WholeHeads(HTTPAdapter):
    """requests' own, but the head of an answer is cut off where it is not whole in time. `options`
    are more of urllib3's own.
    """

    def __init__(self, options: Mapping[str, Any] | None = None, **arguments: Any) -> None:
        self._options = options or {}
        super().__init__(**arguments)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **{**options, **self._options})
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **{**options, **self._options})
        manager.pool_classes_by_scheme = _POOLS
        return manager


class _WatchedHead:
    def getresponse(self: Any) -> Any:
        if not isinstance(self.timeout, int | float):  # without a time-out nothing is late
            return super().getresponse()  # type: ignore[misc] # of the connection's class
        line = _Line(self.sock, self.timeout)
        self.response_class = lambda _, **options: http.client.HTTPResponse(line, **options)  # type: ignore[arg-type]
        try:
            # A little later than the socket's own time-out, the better witness of plain silence.
            with _deadline(line, line.seconds * 1.1, "the head of the answer"):
                response = super().getresponse()  # type: ignore[misc] # of the connection's class
        finally:
            del self.response_class  # a tunnel through a proxy is opened with the plain one
        setattr(response, _LINE, line)
        return response


def _watched_pool(pool: Any) -> type:
    """Return a pool whose connections are watched."""
    connection = type("WatchedConnection", (_WatchedHead, pool.ConnectionCls), {})
    return type("WatchedPool", (pool,), {"ConnectionCls": connection})


_PIECE_BYTES = 1 << 18
_LINE = "warpfront_line"
_POOLS = {
    "http": _watched_pool(HTTPConnectionPool),
    "https": _watched_pool(HTTPSConnectionPool),
}


class _Line(io.RawIOBase):
    """The bytes of a socket. Each read has `seconds`, and all of them have to end by `until`."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self._sock, self._bytes = sock, sock.makefile("rb", buffering=0)
        self.seconds, self.until = seconds, math.inf

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        remaining = self.until - time.monotonic()
        if remaining >= self.seconds:
            return self._bytes.readinto(buffer)
        if remaining <= 0:
            raise TimeoutError
        self._sock.settimeout(remaining)
        try:
            return self._bytes.readinto(buffer)
        finally:
            self._sock.settimeout(self.seconds)

    def close(self) -> None:
        self._bytes.close()
        super().close()


def received(answer: requests.Response, seconds: float) -> Iterator[bytes]:
    """Yield the body as it comes, in pieces of any size, each within `seconds`; then close the
    answer. Bytes before a cut are not lost: `iter_content` waits for whole chunks and drops an
    unfinished one. Raise as requests does.
    """

    def read() -> bytes:
        return bytes(answer.raw.read1(_PIECE_BYTES, decode_content=False))

    try:
        while piece := read_within(answer.raw, seconds, read):
            yield piece
    except (TimeoutError, urllib3.exceptions.ReadTimeoutError) as error:
        raise requests.ReadTimeout(error) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise requests.exceptions.ChunkedEncodingError(error) from error
    finally:
        answer.close()


def read_within(response: Any, seconds: float, read: Callable[[], bytes]) -> bytes:
    """Return the next piece of a body. What ends one (trailers) may go on for ever."""
    line = getattr(response, _LINE, None)
    if line is None:
        return read()
    with _deadline(line, seconds, "a piece of the answer"):
        return read()


@contextlib.contextmanager
def _deadline(line: _Line, seconds: float, part: str) -> Iterator[None]:
    """Raise `TimeoutError` where the line has not read a part in time."""
    line.until = time.monotonic() + seconds
    try:
        yield
    except Exception as error:
        if time.monotonic() < line.until:
            raise
        raise TimeoutError(f"{part} did not come whole") from error
    finally:
        line.until = math.inf


def read_count(text: str) -> int | None:
    """Return a number in a header, if it is one of ASCII digits; more than 18 are cut."""
    return int(text[:18]) if text.isascii() and text.isdigit() else None
