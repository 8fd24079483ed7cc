"""HTTP connections whose answers have to begin within the time-out, whole. Edge.

A read time-out is about the next byte: who sends one of the head now and then is never late.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
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


class _WatchedHTTP(HTTPConnection):
    def getresponse(self) -> Any:
        with _head_within(self):
            return super().getresponse()


class _WatchedHTTPS(HTTPSConnection):
    def getresponse(self) -> Any:
        with _head_within(self):
            return super().getresponse()


class _HTTPPool(HTTPConnectionPool):
    ConnectionCls = _WatchedHTTP  # type: ignore[mutable-override] # as urllib3's own do


class _HTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _WatchedHTTPS  # type: ignore[mutable-override] # as urllib3's own do


_POOLS = {"http": _HTTPPool, "https": _HTTPSPool}


@contextlib.contextmanager
def _head_within(connection: HTTPConnection) -> Iterator[None]:
    """Cut the line when the connection's time-out is over and the head is not whole."""
    sock, seconds = connection.sock, connection.timeout
    if sock is None or not isinstance(seconds, int | float):
        yield
        return
    late = threading.Event()

    def cut() -> None:
        late.set()
        with contextlib.suppress(OSError):  # of the socket below TLS, which is not ours to touch
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    # A little later than the socket's own time-out, which is the better witness of plain silence.
    timer = threading.Timer(seconds * 1.1, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if not late.is_set():
            raise
        raise TimeoutError("the head of the answer did not come whole") from error
    finally:
        timer.cancel()
    if late.is_set():  # a head that ends early reads like a short one
        raise TimeoutError("the head of the answer did not come whole")
