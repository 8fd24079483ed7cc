"""Requests to one registry and their answers: addresses, logins, redirects, and limits: waits, the
number of tries, and how slow an answer may be. Edge.

A read time-out is about the next byte: a registry that sends one now and then is never late. So a
minimum rate of a body is required; `system.whole_heads` limits the head of an answer.
"""

from __future__ import annotations

import contextlib
import random
import ssl
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urljoin, urlsplit

import requests

from warpfront.errors import RegistryError
from warpfront.release.registry.authorization import (
    Authorization,
    Credentials,
    Scopes,
    address_fault,
)
from warpfront.release.registry.contract import INDEX_TYPES, MANIFEST_TYPES
from warpfront.system.http_answers import (
    TransientError,
    WholeHeads,
    by_exception,
    by_status,
    received,
    refused,
    wrong,
)
from warpfront.system.references import address_of, is_loopback

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits for one verb, and the clock. A body brings `window_bytes` in every `window_seconds`,
    or is given up; an answer's head is whole in `answer_seconds`, and the end of an upload may take
    a second more for each `settled_bytes` of it. `tries` are those that brought nothing forward;
    one that ended in silence counts as several, for it took its time. Blobs up to `whole_bytes` are
    sent in one request, without asking how far it came: what is sent again after a cut costs
    little. Larger ones are sent in pieces.
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
    whole_bytes: int = 16 * 2**20
    piece_bytes: int = 64 * 2**20
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random


class Attempts:
    """The tries of one verb: how many remain, and how long they may still wait in total."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
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
        wait = patience.chance() * min(bound, patience.longest_wait_seconds)
        wait = min(max(wait, min(after_seconds, patience.longest_wait_seconds)), remaining_seconds)
        self._waited_seconds += wait
        patience.sleep(wait)
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


_LARGE_PIECES: Mapping[str, Any] = {"blocksize": 1 << 18}
_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ERROR_LIMIT_BYTES = 64 * 2**10
_TOKEN_LIMIT_BYTES = 2**20
AUTHORITIES = Path("/etc/docker/certs.d")
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")

ACCEPT = {"Accept": ", ".join((*MANIFEST_TYPES, *INDEX_TYPES))}


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `url` may begin with its path; `step` is its purpose, in words; `accepted`
    are the statuses that are an answer. A `body` is bytes, a form, or opened anew for each try;
    `more_seconds` are added to the time limit of an answer.
    """

    method: str
    url: str
    step: str
    scopes: Scopes
    accepted: Collection[int]
    headers: Mapping[str, str] = field(default_factory=lambda: ACCEPT)
    body: Callable[[], BinaryIO] | Mapping[str, str] | bytes | None = None
    more_seconds: float = 0.0


class Exchange:
    """The line to one registry. Answers are streams: who gets one reads or closes it."""

    def __init__(
        self,
        host: str,
        environment: Mapping[str, str],
        credentials: Credentials,
        patience: Patience,
    ) -> None:
        self.host, self.patience = host, patience
        bundles = (environment[name] for name in _CERTIFICATES if environment.get(name))
        self._bundle = next(bundles, None)
        self._scheme = "" if is_loopback(host) else "https"
        self._session = requests.Session()
        self._session.trust_env = not is_loopback(host)  # no proxy leads to this machine
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, WholeHeads(_LARGE_PIECES))
        # Docker's own authorities for this registry, in addition to the usual ones or that file.
        if beside := tuple(sorted((AUTHORITIES / host).glob("*.crt"))):
            context = ssl.create_default_context()
            for file in beside:
                context.load_verify_locations(file)
            adapter = WholeHeads({**_LARGE_PIECES, "ssl_context": context})
            self._session.mount(f"https://{address_of(host)}/", adapter)
        self._authorization = Authorization(host, credentials, self._fetch_token, patience.clock)

    def close(self) -> None:
        self._session.close()

    @property
    def origin(self) -> str:
        """Return scheme and address. Only a registry on this machine may be without TLS."""
        if not self._scheme:  # by a handshake alone
            parts, seconds = urlsplit(f"//{self.host}"), self.patience.connect_seconds
            address = (parts.hostname or "", parts.port or 443)
            try:
                ssl.get_server_certificate(address, timeout=seconds)
                self._scheme = "https"
            except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError):
                self._scheme = "http"
            except OSError as error:
                raise by_exception(self.host, "first contact", error) from error
        return f"{self._scheme}://{address_of(self.host)}"

    def read(self, ask: Request, limit_bytes: int) -> tuple[requests.Response, bytes]:
        """Return the answer and its body, retried together."""

        def whole() -> tuple[requests.Response, bytes]:
            answer = self.once(ask)
            return answer, self.body(answer, ask.step, limit_bytes)

        return Attempts(self.patience).run(whole)

    def once(self, ask: Request) -> requests.Response:
        """Try once; again if the registry wants a login first. Raise `TransientError`, too, for
        a failure that may not repeat.
        """
        answer = self._sent(ask, urljoin(self.origin, ask.url))
        if answer.status_code == 401 and 401 not in ask.accepted:
            header = answer.request.headers.get("Authorization", "")
            offers = answer.raw.headers.getlist("WWW-Authenticate")
            self.finish(answer)
            is_own = self._is_own(answer.url)
            if is_own and self._authorization.challenge(offers, ask.scopes, header):
                answer = self._sent(ask, answer.url)
            if answer.status_code == 401:
                self.finish(answer)
                raise self._authorization.refusal(ask.step)
        if answer.status_code in _REDIRECTS and answer.status_code not in ask.accepted:
            answer = self._followed(ask, answer)
        if answer.status_code not in ask.accepted:
            raise self._refusal(ask.step, answer)
        return answer

    def body(self, answer: requests.Response, step: str, limit_bytes: int) -> bytes:
        """Return the whole body, if it is not too long."""
        content = bytearray()
        for piece in self.pieces(answer, step):
            content += piece
            if len(content) > limit_bytes:
                answer.close()
                raise wrong(self.host, step, f"it sends more than {limit_bytes} bytes")
        return bytes(content)

    def pieces(self, answer: requests.Response, step: str) -> Iterator[bytes]:
        """Yield the body as it comes. Raise `TransientError` where it breaks off or stalls."""
        patience, clock = self.patience, self.patience.clock
        since, count = clock(), 0
        try:
            for piece in received(answer, patience.window_seconds * 1.1):
                count += len(piece)
                yield piece
                if (now := clock()) - since > patience.window_seconds:
                    if count < patience.window_bytes:
                        slow = requests.Timeout(f"{count} bytes in {now - since:.0f} s")
                        raise by_exception(self.host, step, slow)
                    since, count = now, 0
        except requests.RequestException as error:
            raise by_exception(self.host, step, error) from error
        finally:
            answer.close()

    def next_address(self, answer: requests.Response, step: str, following: str = "") -> str:
        """Return a registry's next address, made absolute: `following`, or that of its answer. The
        request there may be large and need the login: it goes over TLS, or stays on this machine.
        """
        if not (location := following or answer.headers.get("Location", "")):
            raise wrong(self.host, step, "it does not say where to go on")
        with contextlib.suppress(ValueError):
            location = urljoin(answer.url, location)
        if fault := address_fault(location, self.host):
            raise wrong(self.host, step, f"it sends us on to {fault}")
        return location

    def _followed(self, ask: Request, answer: requests.Response) -> requests.Response:
        """Return the answer of a redirect. Only a request without a body is followed; the login
        never goes to another host.
        """
        for _ in range(_MOST_REDIRECTS):
            if answer.status_code not in _REDIRECTS:
                return answer
            self.finish(answer)
            if ask.body is not None or ask.method not in {"GET", "HEAD"}:
                raise refused(
                    self.host,
                    ask.step,
                    "it redirects what is sent to it",
                    "name the registry by the address that it redirects to",
                )
            url = self.next_address(answer, ask.step)
            answer = self._sent(ask, url)
        answer.close()
        raise wrong(self.host, ask.step, "it redirects again and again")

    def _sent(self, ask: Request, url: str) -> requests.Response:
        headers = {"User-Agent": "warpfront", "Accept-Encoding": "identity", **ask.headers}
        login = self._authorization.header(ask.scopes) if ask.scopes and self._is_own(url) else ""
        headers |= {"Authorization": login} if login else {}
        patience = self.patience
        opened: contextlib.AbstractContextManager[Any] = contextlib.nullcontext(ask.body)
        if callable(ask.body):
            opened = contextlib.closing(ask.body())
        with opened as body:
            try:
                return self._session.request(
                    ask.method,
                    url,
                    headers=headers,
                    data=body,
                    stream=True,
                    allow_redirects=False,
                    timeout=(patience.connect_seconds, patience.answer_seconds + ask.more_seconds),
                    verify=self._bundle or True,
                    # Logins are docker's: without this, requests would look for one in ~/.netrc.
                    auth=lambda request: request,
                )
            except (requests.RequestException, OSError) as error:
                self.close()  # so that the next try does not meet another one that was hung up
                raise by_exception(self.host, ask.step, error) from error
            except ValueError as error:  # requests reads where an answer leads to
                words = "it leads to an address that is none"
                raise wrong(self.host, ask.step, words) from error

    def _fetch_token(self, url: str, form: Mapping[str, str] | None, authorization: str) -> bytes:
        headers = {"Authorization": authorization} if authorization else {}
        ask = Request("POST" if form else "GET", url, "login", (), {200}, headers, form)
        answer = self._sent(ask, url)
        if answer.status_code in {400, 401, 403}:
            self.finish(answer)
            raise self._authorization.refusal(ask.step)
        if answer.status_code != 200:
            raise self._refusal(ask.step, answer)
        return self.body(answer, ask.step, _TOKEN_LIMIT_BYTES)

    def _refusal(self, step: str, answer: requests.Response) -> RegistryError | TransientError:
        body = self.finish(answer)
        return by_status(self.host, step, answer.status_code, answer.headers, body)

    def finish(self, answer: requests.Response) -> bytes:
        """Close an answer and return its start. If that was all, the connection is reused."""
        with contextlib.suppress(TransientError, RegistryError):
            return self.body(answer, "", _ERROR_LIMIT_BYTES)
        return b""

    def _is_own(self, url: str) -> bool:
        return _origin(url) == _origin(self.origin)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)
