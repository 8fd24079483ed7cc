"""Connections that a slow registry cannot hold for ever. Edge.

A read time-out is about the next byte: a registry that sends one now and then is never late. Here
the head of an answer has to be whole within the time-out, and a body brings so much in so long.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from warpfront.release.registry.patience import Pace, Patience

_PIECE_BYTES = 1 << 20
_SENT_AT_ONCE_BYTES = 1 << 18


class TooSlow(requests.Timeout):
    """Bytes come, but not in a number that would ever make a whole."""


class Adapter(HTTPAdapter):
    """requests' own, but its connections are watched, send in larger pieces, and believe the
    certificate authorities of these files, too.
    """

    def __init__(self, authorities: tuple[Path, ...] = ()) -> None:
        self._authorities = authorities
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **{**options, **self._options()})
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **{**options, **self._options()})
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def _options(self) -> dict[str, Any]:
        if not self._authorities:
            return {"blocksize": _SENT_AT_ONCE_BYTES}
        context = ssl.create_default_context()
        for file in self._authorities:
            context.load_verify_locations(file)
        return {"blocksize": _SENT_AT_ONCE_BYTES, "ssl_context": context}


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


def received(answer: requests.Response, patience: Patience, pace: Pace) -> Iterator[bytes]:
    """The body as it arrives. Raises as requests does, and `TooSlow`."""
    since, count = pace.clock(), 0
    try:
        while piece := answer.raw.read1(_PIECE_BYTES, decode_content=False):
            count += len(piece)
            yield piece
            now = pace.clock()
            if now - since > patience.window_seconds:
                if count < patience.window_bytes:
                    raise TooSlow(f"{count} bytes in {now - since:.0f} s")
                since, count = now, 0
    except urllib3.exceptions.ReadTimeoutError as error:
        raise requests.ReadTimeout(error) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        if isinstance(error, requests.RequestException):
            raise
        raise requests.exceptions.ChunkedEncodingError(error) from error
    finally:
        answer.close()
