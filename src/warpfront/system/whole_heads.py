"""HTTP connections whose answers have to begin within the time-out, whole, and whose lines can
be cut. Edge.

A read time-out is about the next byte: who sends one of the head, or of what ends a body, now and
then is never late.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class WholeHeads(HTTPAdapter):
    """requests' own, but the head of an answer is cut off where it is not whole in time."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager


class _WatchedHead:
    def getresponse(self: Any) -> Any:
        return _watched(self, super().getresponse)  # type: ignore[misc] # of the connection's class


def _watched_pool(pool: Any) -> type:
    """Return a pool whose connections are watched."""
    connection = type("WatchedConnection", (_WatchedHead, pool.ConnectionCls), {})
    return type("WatchedPool", (pool,), {"ConnectionCls": connection})


_LINE = "warpfront_line"
_POOLS = {
    "http": _watched_pool(HTTPConnectionPool),
    "https": _watched_pool(HTTPSConnectionPool),
}


def _watched(connection: HTTPConnection, respond: Callable[[], Any]) -> Any:
    """Return the answer with its connection, which urllib3 may have released by then."""
    sock, seconds = connection.sock, connection.timeout
    if sock is None or not isinstance(seconds, int | float):
        return respond()
    response = None
    try:
        # A little later than the socket's own time-out, the better witness of plain silence.
        with _cut_after(sock, seconds * 1.1, "the head of the answer"):
            response = respond()
    except TimeoutError:
        if response is not None:  # it has the connection, too, which only its end releases
            response.close()
        raise
    setattr(response, _LINE, sock)
    return response


def read_within(response: Any, seconds: float, read: Callable[[], bytes]) -> bytes:
    """Return the next piece of a body. What ends one (trailers) may go on for ever."""
    sock = getattr(response, _LINE, None)
    if sock is None:
        return read()
    with _cut_after(sock, seconds, "a piece of the answer"):
        return read()


@contextlib.contextmanager
def _cut_after(sock: socket.socket, seconds: float, part: str) -> Iterator[None]:
    """Cut the line when the time is over and we are still here."""
    late = threading.Event()

    def cut() -> None:
        late.set()
        with contextlib.suppress(OSError):  # of the socket below TLS, which is not ours to touch
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if not late.is_set():
            raise
        raise TimeoutError(f"{part} did not come whole") from error
    finally:
        timer.cancel()
    if late.is_set():  # what ends early reads like what is short
        raise TimeoutError(f"{part} did not come whole")


def read_count(text: str) -> int | None:
    """Return a number in a header, if it is one of ASCII digits; more than 18 are cut."""
    return int(text[:18]) if text.isascii() and text.isdigit() else None
