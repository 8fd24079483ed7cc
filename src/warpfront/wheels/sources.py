"""Where this machine gets wheels from: the site's sources, what they offer, and how to
reach them. Edge.

A source is a folder or page of links (pip's find-links) or a package index (PEP 503 pages, PEP 691
JSON), local (`file://`) or over HTTP. What cannot be reached is a value (`Refusal`), because
another source may do.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Self
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit, urlunsplit
from urllib.request import url2pathname

import requests
import urllib3
from packaging.utils import canonicalize_name
from requests.utils import get_netrc_auth, should_bypass_proxies

PYPI = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.9"
_PIECE_BYTES = 1 << 18
_PAGE_LIMIT_BYTES = 64 * 1024 * 1024
_RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_BYPASS = threading.Lock()  # requests changes the environment for the length of that question
_MASKED = re.compile(r"://[^/\s@]+@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What pip's own configuration and environment say of this machine. URLs carry no credentials.

    `credentials` maps `host[:port]` to (user, password). `proxies` are environment variables
    (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`). `answers` remembers what indexes
    answered, so that one run asks once; `patience_seconds` is how long one may be silent then.
    """

    index_url: str = PYPI
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    certificate: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    answers: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    patience_seconds: float = 10.0

    @property
    def indexes(self) -> tuple[str, ...]:
        """Every index of the site, the mirrors first; none with `no-index`."""
        return () if self.no_index else (*self.extra_index_urls, self.index_url)

    def with_credentials(self, url: str) -> str:
        """`url` as a program needs it that knows no credentials of ours. Never print it."""
        parts = urlsplit(url)
        pair = self.credentials.get(parts.netloc)
        if pair is None:
            return url
        user, password = (quote(text, safe="") for text in pair)
        return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.netloc}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One file that a source offers. `sha256` and `size_bytes` are empty/None where it
    does not say.
    """

    url: str
    filename: str
    sha256: str = ""
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a URL gave nothing. `lasting` = asking again will not help; `after_seconds` = when it
    asked us to.
    """

    url: str
    reason: str
    status: int = 0
    lasting: bool = False
    after_seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.url}: {self.reason}"


class Transport:
    """HTTP as the site wants it: its proxies, certificate, credentials and trusted hosts."""

    def __init__(
        self, site: Site, *, connect_seconds: float = 8.0, stall_seconds: float = 30.0
    ) -> None:
        self._site = site
        self._timeout = (connect_seconds, stall_seconds)
        self._session = requests.Session()
        self._session.trust_env = False  # the site already holds what the environment says

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._session.close()

    def open(
        self, url: str, headers: Mapping[str, str] | None = None, *, method: str = "GET"
    ) -> requests.Response | Refusal:
        """The streaming answer to `url` (status 200 or 206), or why there is none. One try."""
        try:
            response = self._session.request(
                method,
                url,
                allow_redirects=True,
                headers={"Accept-Encoding": "identity", **(headers or {})},
                stream=True,
                timeout=self._timeout,
                verify=self._verify(url),
                auth=self._site.credentials.get(urlsplit(url).netloc) or get_netrc_auth(url),
                proxies=self._proxies(url),
            )
        except requests.RequestException as error:
            return refusal(url, error)
        if response.status_code in {200, 206}:
            return response
        response.close()
        return _refused_by_status(url, response)

    def read(self, url: str) -> tuple[str, str, str] | Refusal:
        """(final URL, content type, text) of an index page, or why there is none. One try."""
        answer = self.open(url, {"Accept": _ACCEPT})
        if isinstance(answer, Refusal):
            return answer
        body = bytearray()
        try:
            for chunk in answer.iter_content(1 << 16):
                body += chunk
                if len(body) > _PAGE_LIMIT_BYTES:
                    return Refusal(url=url, reason="its page is too long", lasting=True)
        except requests.RequestException as error:
            return refusal(url, error)
        finally:
            answer.close()
        kind = answer.headers.get("Content-Type", "")
        return answer.url, kind, body.decode(answer.encoding or "utf-8", errors="replace")

    def size_bytes(self, url: str) -> int | Refusal:
        """The length of what `url` would send, or why it is not known."""
        answer = self.open(url, method="HEAD")
        if isinstance(answer, Refusal):  # not every index answers HEAD
            answer = self.open(url)
        if isinstance(answer, Refusal):
            return answer
        answer.close()
        length = answer.headers.get("Content-Length", "")
        if not length.isdigit():
            return Refusal(url=url, reason="does not say how long it is", lasting=True)
        return int(length)

    def _proxies(self, url: str) -> dict[str, str]:
        named = self._site.proxies
        if not named:
            return {}
        with _BYPASS:
            if should_bypass_proxies(url, named.get("NO_PROXY", "")):
                return {}
        every = named.get("ALL_PROXY", "")
        chosen = {
            "http": named.get("HTTP_PROXY", every),
            "https": named.get("HTTPS_PROXY", every),
        }
        return {scheme: proxy for scheme, proxy in chosen.items() if proxy}

    def _verify(self, url: str) -> bool | str:
        parts = urlsplit(url)
        if {parts.hostname, parts.netloc} & set(self._site.trusted_hosts):
            return False
        return self._site.certificate or True


def received(answer: requests.Response) -> Iterator[bytes]:
    """The body as it arrives, however small the pieces: what came before a cut is not lost.

    (`iter_content` waits for whole chunks and drops an unfinished one.) Raises as requests does.
    """
    try:
        while chunk := answer.raw.read1(_PIECE_BYTES, decode_content=False):
            yield chunk
    except urllib3.exceptions.HTTPError as error:
        raise requests.exceptions.ChunkedEncodingError(error) from error


def refusal(url: str, error: requests.RequestException) -> Refusal:
    """`error` in the words of a person who has to fix it."""
    causes = [cause for cause in _causes(error) if isinstance(cause, Exception)]
    for kind, words in _REASONS:
        if any(isinstance(cause, kind) for cause in causes):
            return Refusal(url=url, reason=words, lasting=kind in _LASTING)
    return Refusal(url=url, reason=without_secrets(str(error)) or type(error).__name__)


def links(
    source: str, name: str, transport: Transport, *, flat: bool
) -> tuple[Link, ...] | Refusal:
    """What `source` offers of the distribution `name`. `flat`: a folder or page of links,
    not an index.
    """
    local = local_path(source)
    if local is not None:
        return _local_links(local if flat else local / canonicalize_name(name))
    url = source if flat else project_url(source, name)
    page = transport.read(url)
    if isinstance(page, Refusal):
        return page
    return read_links(*page)


def read_links(url: str, content_type: str, text: str) -> tuple[Link, ...] | Refusal:
    """The files that an index page names: PEP 691 JSON, or PEP 503 HTML; `Refusal` for
    any other page.
    """
    if "json" in content_type:
        return _read_json_links(url, text)
    page = _Anchors()
    page.feed(text)
    base = urljoin(url, page.base) if page.base else url
    found = tuple(_link(base, href) for href in page.hrefs)
    files = tuple(link for link in found if _is_distribution(link.filename))
    if not files and page.has_form:
        return Refusal(url=url, reason="not a package index but a page with a form (a login page?)")
    return files


def probe(site: Site, index_url: str, name: str) -> str:
    """Why the index cannot serve `name` now, in words; "" when it can. Asks once per run;
    a few seconds.
    """
    key = f"{index_url} {name}"
    if key not in site.answers:
        site.answers[key] = _probed(site, index_url, name)
    return site.answers[key]


def project_url(index_url: str, name: str) -> str:
    return f"{index_url.rstrip('/')}/{canonicalize_name(name)}/"


def local_path(source: str) -> Path | None:
    """The path of a `file://` URL or a plain path; None for what is reached over the network."""
    parts = urlsplit(source)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return None if "://" in source else Path(source)


def without_secrets(text: str) -> str:
    """`text` with the user and password of every URL masked."""
    return _MASKED.sub("://***@", text)


def _probed(site: Site, index_url: str, name: str) -> str:
    local = local_path(index_url)
    if local is not None:
        return "" if local.is_dir() else "no such folder"
    with Transport(site, connect_seconds=5.0, stall_seconds=site.patience_seconds) as transport:
        found = links(index_url, name, transport, flat=False)
        if isinstance(found, Refusal) and not found.lasting and found.status:
            found = links(index_url, name, transport, flat=False)
    if isinstance(found, Refusal):
        return found.reason
    return "" if found else f"its page for {name} names no files (a login page?)"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and everything it came from, wherever urllib3 keeps it."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]


_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (ssl.SSLError, "TLS failed (is the site's certificate authority in pip's `cert`?)"),
    (requests.exceptions.SSLError, "TLS failed"),
    (requests.exceptions.ProxyError, "the proxy refused"),
    (socket.gaierror, "its host name cannot be resolved"),
    (ConnectionRefusedError, "connection refused"),
    (requests.Timeout, "no answer in time"),
    (TimeoutError, "no bytes for too long"),
    (ConnectionResetError, "connection reset"),
    (requests.exceptions.ChunkedEncodingError, "the answer broke off"),
    (requests.exceptions.InvalidURL, "not a URL"),
    (requests.exceptions.MissingSchema, "not a URL"),
)
_LASTING = (ssl.SSLError, requests.exceptions.SSLError, requests.exceptions.InvalidURL)


def _refused_by_status(url: str, response: requests.Response) -> Refusal:
    status = response.status_code
    after = response.headers.get("Retry-After", "")
    return Refusal(
        url=url,
        reason=f"HTTP {status} {response.reason or ''}".strip(),
        status=status,
        lasting=status not in _RETRIED_STATUSES,
        after_seconds=float(after) if after.isdigit() else 0.0,
    )


def _local_links(path: Path) -> tuple[Link, ...] | Refusal:
    page = path if path.is_file() else path / "index.html"
    if page.is_file():
        return read_links(page.as_uri(), "text/html", page.read_text("utf-8", errors="replace"))
    if not path.is_dir():
        return Refusal(url=str(path), reason="no such folder", lasting=True)
    return tuple(
        Link(url=one.absolute().as_uri(), filename=one.name)
        for one in sorted(path.iterdir())
        if _is_distribution(one.name)
    )


def _read_json_links(url: str, text: str) -> tuple[Link, ...] | Refusal:
    try:
        files = json.loads(text)["files"]
        return tuple(
            Link(
                url=urljoin(url, file["url"]),
                filename=file["filename"],
                sha256=file.get("hashes", {}).get("sha256", ""),
                size_bytes=file.get("size"),
            )
            for file in files
        )
    except (ValueError, KeyError, TypeError) as error:
        return Refusal(url=url, reason=f"not the JSON of a package index ({error!r})")


def _link(base: str, href: str) -> Link:
    url, fragment = urldefrag(urljoin(base, href))
    kind, _, value = fragment.partition("=")
    name = unquote(urlsplit(url).path.rpartition("/")[2])
    return Link(url=url, filename=name, sha256=value if kind == "sha256" else "")


def _is_distribution(filename: str) -> bool:
    return filename.endswith((".whl", ".tar.gz", ".zip"))


class _Anchors(HTMLParser):
    """The `href`s of a PEP 503 page; `<base>` and `<form>` are noticed."""

    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []
        self.base = ""
        self.has_form = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.hrefs.append(href)
        elif tag == "base" and href:
            self.base = href
        elif tag == "form":
            self.has_form = True
