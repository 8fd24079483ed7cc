"""HTTP connections whose answers have to begin within the time-out, whole; and registry errors in
the words of the engineer who has to fix them. Edge.

A read time-out is about the next byte: who sends one of the head, or of what ends a body, now and
then is never late.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import math
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from email.utils import parsedate_to_datetime
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter

from warpfront.errors import RegistryError, RegistryFault

RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_LONGEST_SAID = 300
_COST_OF_SILENCE = 4
_NOT_PLAIN = re.compile(r"[^\x20-\x7e\xa0-\ud7ff]+")
# Debian's registry answers a full disk with 500, and the system's number for it in the detail.
_NO_ROOM = re.compile(r'no space left|"Err":\s?28\b|quota exceeded', re.IGNORECASE)
_LATER = "try again later; what is there already is not sent again"
_FREE = f"free space where the registry keeps its blobs, then {_LATER}"


class TransientError(Exception):
    """A failure that another try may not meet. `after_seconds` is the pause that the registry
    requests, `cost` the number of tries that this one counts for.
    """

    def __init__(self, error: RegistryError, after_seconds: float = 0.0, cost: int = 1) -> None:
        super().__init__(str(error))
        self.error, self.after_seconds, self.cost = error, after_seconds, cost


def wrong(registry: str, step: str, reason: str, hint: str = "") -> RegistryError:
    """Return the error for an answer that cannot be true."""
    hint = hint or f"do not trust what {registry} sent; ask those who run it, or what is between"
    return RegistryError(reason, registry=registry, step=step, fault=RegistryFault.WRONG, hint=hint)


def refused(registry: str, step: str, reason: str, hint: str) -> RegistryError:
    """Return the error for a failure that lasts until the configuration changes."""
    fault = RegistryFault.REFUSED
    return RegistryError(reason, registry=registry, step=step, fault=fault, hint=hint)


def by_status(
    registry: str, step: str, status: int, headers: Mapping[str, str], body: bytes
) -> RegistryError | TransientError:
    """Return the error for an unexpected HTTP status."""
    message = _said(body)
    reason = f"HTTP {status}" + (f" ({message})" if message else "")
    fault, hint = _meaning(registry, status, body)
    error = RegistryError(reason, registry=registry, step=step, fault=fault, hint=hint)
    if status in RETRIED_STATUSES and fault is not RegistryFault.FULL:
        return TransientError(error, after_seconds(headers))
    return error


def by_exception(
    registry: str, step: str, error: requests.RequestException | OSError
) -> RegistryError | TransientError:
    """Return the error for a request without a complete answer."""
    causes = tuple(causes_of(error))
    system = next((c.strerror for c in causes if isinstance(c, OSError) and c.strerror), "")
    for kind, fault, usual, hint in _REASONS:
        if any(isinstance(cause, kind) for cause in causes):
            # "No route to host" is more precise than an answer that broke off.
            words = system or usual if kind is requests.RequestException else usual
            failure = RegistryError(words, registry=registry, step=step, fault=fault, hint=hint)
            cost = _COST_OF_SILENCE if fault is RegistryFault.SLOW else 1
            return failure if kind in _LASTING else TransientError(failure, cost=cost)
    return TransientError(wrong(registry, step, type(error).__name__))


def words_of(error: requests.RequestException) -> str:
    """Return why there was no whole answer, in a few words: requests nests the cause in a sentence
    of several hundred characters.
    """
    registry_error = by_exception("", "", error)
    failure = registry_error.error if isinstance(registry_error, TransientError) else registry_error
    return failure.message.rpartition(": ")[2]


def after_seconds(headers: Mapping[str, str]) -> float:
    """Return Retry-After as seconds: a number, or a date minus the answer's own date."""
    value = headers.get("Retry-After", "")
    if (count := read_count(value)) is not None:
        return float(count)
    try:
        then, now = (parsedate_to_datetime(headers[name]) for name in ("Retry-After", "Date"))
        return max(0.0, (then - now).total_seconds())
    except (KeyError, ValueError, TypeError, OverflowError):
        return 0.0


def _meaning(registry: str, status: int, body: bytes) -> tuple[RegistryFault, str]:
    if status == 507 or (status >= 500 and _NO_ROOM.search(body.decode(errors="replace"))):
        return RegistryFault.FULL, _FREE
    if status == 413:
        return RegistryFault.FULL, f"raise the limit of {registry} or of the proxy before it"
    if status == 403:
        return RegistryFault.REFUSED, f"ask for the right, or docker login {registry} as who has it"
    if status in {408, 425, 429}:
        return RegistryFault.SLOW, _LATER
    if status >= 500:
        return RegistryFault.WRONG, f"{_LATER}; if it stays so, the registry's own log says why"
    return RegistryFault.REFUSED, "see what the registry said, and whether the name is right"


def _said(body: bytes) -> str:
    """Return the registry's own message: codes and texts, without terminal control sequences."""
    try:
        errors = json.loads(body)["errors"]
        words = "; ".join(f"{error.get('code', '')} {error.get('message', '')}" for error in errors)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return _NOT_PLAIN.sub(" ", words).strip()[:_LONGEST_SAID]


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, nearest first, in whichever attribute urllib3 has them."""
    visited: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        cause = waiting.pop(0)
        if isinstance(cause, BaseException) and id(cause) not in visited:
            visited.add(id(cause))
            yield cause
            reason = getattr(cause, "reason", None)
            waiting += [cause.__cause__, cause.__context__, reason, *cause.args]


_UNREACHABLE, _SLOW, _WRONG = RegistryFault.UNREACHABLE, RegistryFault.SLOW, RegistryFault.WRONG
_UNTRUSTED = ssl.SSLCertVerificationError
_CERTIFICATE = "have its certificate authority in REQUESTS_CA_BUNDLE or docker's certs.d"
_NETWORK = "check the name, the network and HTTPS_PROXY"
_REASONS: tuple[tuple[type[BaseException], RegistryFault, str, str], ...] = (
    (_UNTRUSTED, _UNREACHABLE, "its certificate is not trusted here", _CERTIFICATE),
    (requests.exceptions.InvalidURL, _WRONG, "an address that is none", _NETWORK),
    (requests.exceptions.ProxyError, _UNREACHABLE, "the proxy does not let us through", _NETWORK),
    (socket.gaierror, _UNREACHABLE, "its host name cannot be resolved", _NETWORK),
    (ConnectionRefusedError, _UNREACHABLE, "connection refused", "is it running?"),
    (requests.ConnectTimeout, _UNREACHABLE, "no connection in time", _NETWORK),
    (requests.Timeout, _SLOW, "no answer, or too little of one, in time", _LATER),
    (TimeoutError, _SLOW, "no bytes went or came for too long", _LATER),
    (ConnectionError, _WRONG, "the connection was cut", _LATER),
    (ssl.SSLError, _WRONG, "TLS broke off", _LATER),
    (requests.RequestException, _WRONG, "the answer broke off", _LATER),
)
_LASTING = (_UNTRUSTED, requests.exceptions.InvalidURL)


class WholeHeads(HTTPAdapter):
    """requests' own, but the head of an answer is cut off where it is not whole in time. `options`
    are more of urllib3's own.
    """

    def __init__(self, options: Mapping[str, Any] | None = None, **arguments: Any) -> None:
        self._options = options or {}
        super().__init__(**arguments)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **{**options, **self._options})

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        return super().proxy_manager_for(proxy, **{**options, **self._options})

    def get_connection_with_tls_context(self, *arguments: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*arguments, **options)
        if not issubclass(pool.ConnectionCls, _WatchedHead):
            pool.ConnectionCls = type("WatchedConnection", (_WatchedHead, pool.ConnectionCls), {})
        return pool


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


_PIECE_BYTES = 1 << 18
_LINE = "warpfront_line"


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
    line = getattr(answer.raw, _LINE, None)
    try:
        while True:
            # What ends a body (trailers) may go on for ever.
            with _deadline(line, seconds, "a piece of the answer") if line else nullcontext():
                piece = bytes(answer.raw.read1(_PIECE_BYTES, decode_content=False))
            if not piece:
                return
            yield piece
    except (TimeoutError, urllib3.exceptions.ReadTimeoutError) as error:
        raise requests.ReadTimeout(error) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise requests.exceptions.ChunkedEncodingError(error) from error
    finally:
        answer.close()


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
