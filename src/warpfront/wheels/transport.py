"""HTTP as a site wants it, and its failures in the words of a person who has to fix them. Edge."""

from __future__ import annotations

import contextlib
import math
import ssl
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Self
from urllib.parse import urlsplit

import requests
import urllib3
from requests import RequestException
from requests.utils import get_netrc_auth, should_bypass_proxies

from warpfront.errors import without_secrets
from warpfront.system.http_answers import (
    RETRIED_STATUSES,
    WholeHeads,
    after_seconds,
    causes_of,
    read_count,
    received,
    words_of,
)
from warpfront.wheels.sources import NoAnswer, Site

_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.9"
MOST_CONNECTIONS = 16
"""Of one transport to one host that are kept for the next request."""
_REFUSAL_BYTES = 1 << 16
_PAGE_LIMIT_BYTES = 64 * 1024 * 1024
_STALLS_OF_A_PAGE = 6
"""How often the time for a few bytes makes that for a whole page."""
# A file has a quarter of an hour, and a second more for each 64 KiB of it.
_FILE_SECONDS = 900.0
_SLOWEST_BYTES_PER_SECOND = 1 << 16
_PROXIED = ("http", "https", "all")
_BYPASS = threading.Lock()  # requests changes the environment for the length of that question


class Transport:
    """HTTP as the site wants it: its proxies, certificate, credentials and trusted hosts."""

    def __init__(self, site: Site, *, connect_seconds: float, stall_seconds: float) -> None:
        self.site = site
        # A little later than the socket's own time-out.
        self._piece_seconds = stall_seconds * 1.1
        self._timeout = (connect_seconds, stall_seconds)
        self._page_seconds = _STALLS_OF_A_PAGE * stall_seconds
        self._session = requests.Session()
        self._session.trust_env = False  # the site has the environment's settings
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, WholeHeads(pool_maxsize=MOST_CONNECTIONS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._session.close()

    def open(
        self, url: str, headers: Mapping[str, str] | None = None, *, method: str = "GET"
    ) -> requests.Response | NoAnswer:
        """Return the streaming answer to `url` (200 or 206), or why there is none. One try."""
        parts = urlsplit(url)
        is_trusted = {parts.hostname, parts.netloc} & set(self.site.trusted_hosts)
        try:
            response = self._session.request(
                method,
                url,
                allow_redirects=True,
                headers={"Accept-Encoding": "identity", **(headers or {})},
                stream=True,
                timeout=self._timeout,
                verify=not is_trusted and (self.site.certificate or True),
                auth=self.site.credentials_for(url) or get_netrc_auth(url),
                proxies=self._proxies(url),
            )
        except (RequestException, ValueError) as error:  # also where it redirects to no address
            return no_answer(url, error)
        if response.status_code in {200, 206}:
            return response
        # What is read to its end keeps its connection.
        with contextlib.suppress(urllib3.exceptions.HTTPError, OSError):
            response.raw.read(_REFUSAL_BYTES)
        response.close()
        status = response.status_code
        return NoAnswer(
            url=url,
            reason=f"HTTP {status} {response.reason or ''}".strip(),
            status=status,
            lasting=status not in RETRIED_STATUSES,
            after_seconds=after_seconds(response.headers),
        )

    def read(
        self, url: str, *, enough_bytes: int = _PAGE_LIMIT_BYTES
    ) -> tuple[str, str, str] | NoAnswer:
        """Return (final URL, content type, text) of an index page, or why there is none. One
        try. Of a page longer than `enough_bytes` only the beginning, where that is below
        the usual limit.
        """
        answer = self.open(url, {"Accept": _ACCEPT})
        if isinstance(answer, NoAnswer):
            return answer
        body, until = bytearray(), monotonic() + self._page_seconds
        try:
            # As it comes: slow bytes must not hide the clock.
            for piece in received(answer, self._piece_seconds):
                body += piece
                if monotonic() > until:
                    return NoAnswer(url=url, reason=f"no whole page in {self._page_seconds:g} s")
                if len(body) > enough_bytes < _PAGE_LIMIT_BYTES:
                    break
                if len(body) > _PAGE_LIMIT_BYTES:
                    return NoAnswer(url=url, reason="its page is too long", lasting=True)
        except RequestException as error:
            return no_answer(url, error)
        kind = answer.headers.get("Content-Type", "")
        try:
            text = body.decode(answer.encoding or "utf-8", errors="replace")
        except (LookupError, ValueError):  # there is no such encoding
            text = body.decode("utf-8", errors="replace")
        return answer.url, kind, text

    def receive(
        self,
        url: str,
        answer: requests.Response,
        take: Callable[[bytes], object],
        *,
        until: float,
        limit_bytes: float = math.inf,
    ) -> NoAnswer | None:
        """Pass the body to `take` as it comes, and return why not all of it came."""
        count = 0
        try:
            with contextlib.closing(answer):  # also where `take` raises
                for piece in received(answer, self._piece_seconds):
                    take(piece)
                    count += len(piece)
                    if count > limit_bytes or monotonic() > until:
                        reason = "its bytes come too slowly, or without end"
                        return NoAnswer(url=url, reason=reason, lasting=True)
        except RequestException as error:
            return no_answer(url, error)
        return None

    def deadline(self, size_bytes: int) -> float:
        """Return when a file of this size is late."""
        return monotonic() + _FILE_SECONDS + size_bytes / _SLOWEST_BYTES_PER_SECOND

    def size_bytes(self, url: str) -> int | NoAnswer:
        """Return the length of what `url` would send, or why it is not known."""
        answer = self.open(url, method="HEAD")
        if isinstance(answer, NoAnswer):  # not every index answers HEAD
            answer = self.open(url)
        if isinstance(answer, NoAnswer):
            return answer
        answer.close()
        length = read_count(answer.headers.get("Content-Length", ""))
        if length is None:
            return NoAnswer(url=url, reason="does not say how long it is", lasting=True)
        return length

    def _proxies(self, url: str) -> dict[str, str]:
        named = self.site.proxies
        if not named:
            return {}
        with _BYPASS:
            if should_bypass_proxies(url, named.get("NO_PROXY", "")):
                return {}
        proxies = {scheme: named.get(f"{scheme.upper()}_PROXY") for scheme in _PROXIED}
        return {scheme: proxy for scheme, proxy in proxies.items() if proxy}


def no_answer(url: str, error: RequestException | ValueError) -> NoAnswer:
    """Return `error` in the words of the engineer who has to fix it."""
    if isinstance(error, ValueError):  # no address, or none of a kind that is fetched
        return NoAnswer(url=url, reason=without_secrets(str(error)), lasting=True)
    is_tls = any(isinstance(cause, ssl.SSLError) for cause in causes_of(error))
    hint = "; is its certificate authority in pip's `cert`?" if is_tls else ""
    return NoAnswer(url=url, reason=f"{words_of(error)}{hint}", lasting=is_tls)
