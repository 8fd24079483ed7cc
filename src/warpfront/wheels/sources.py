"""This machine's sources of wheels, their files, how to reach them, and which answer. Edge.

A source is a folder or page of links (pip's find-links) or a package index (PEP 503 pages, PEP 691
JSON), local (`file://`) or over HTTP. An unreachable one is a value (`NoAnswer`), because another
source may do. Indexes, certificate and proxies come from pip's configuration and the environment.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit
from urllib.request import url2pathname

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from warpfront.errors import StoreError, keep_secret, without_secrets
from warpfront.matrix.cell import Pin, WheelIndex
from warpfront.system import process
from warpfront.system.foreign import read_regular
from warpfront.system.process import Command, Run, run
from warpfront.system.progress import Line
from warpfront.wheels.core_metadata import FileName, read_file_name
from warpfront.wheels.lock.values import PYPI, LockInputs

if TYPE_CHECKING:
    from warpfront.wheels.transport import Transport


# What an index answers for a name that it does not have: some object stores say 403.
ABSENT = frozenset({403, 404, 410})
# Of the root of an index: PyPI's own lists every project, in 40 MB.
_FIRST_BYTES = 1 << 16
FLAT_PAGE = (
    "it answers, and is one page of wheels, not an index with a page for each project (PEP 503)"
)
FLAT_WAY_OUT = (
    "put its wheels into a folder and name that in pip's configuration (pip config set "
    "global.find-links FOLDER), or give the address of an index, whose /torch/ lists torch's files"
)
_SAID = ("data-requires-python", "data-core-metadata", "data-dist-info-metadata", "data-yanked")


Keep = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """pip's configuration and environment on this machine. URLs have no credentials.

    `credentials` maps the start of an address (`https://host/company`) to (user, password).
    `proxies` are environment variables (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`,
    `NO_PROXY`). `answers` caches the answers of indexes for one run; `patience_seconds` is
    how long one may be silent.
    """

    index_url: str = field(default=PYPI, repr=False)
    extra_index_urls: tuple[str, ...] = field(default=(), repr=False)
    find_links: tuple[str, ...] = field(default=(), repr=False)
    no_index: bool = False
    certificate: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    answers: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    patience_seconds: float = 10.0

    @property
    def indexes(self) -> tuple[str, ...]:
        """Return every index of the site, mirrors first; none with `no-index`."""
        return () if self.no_index else (*self.extra_index_urls, self.index_url)

    @property
    def sources(self) -> tuple[tuple[str, bool], ...]:
        """Return every source in uv's order, each with whether it is flat."""
        return (*((url, True) for url in self.find_links), *((url, False) for url in self.indexes))

    def credentials_for(self, url: str) -> tuple[str, str] | None:
        """Return the user and password for `url`: of the longest prefix that it is at or below."""
        fitting = [
            prefix
            for prefix in self.credentials
            if url == prefix or url.startswith(f"{prefix.rstrip('/')}/")
        ]
        return self.credentials[max(fitting, key=len)] if fitting else None

    def transport(self, *, connect_seconds: float = 8.0, stall_seconds: float = 30.0) -> Transport:
        """Return a session for HTTP. Loading `requests` takes longer than a plan without it."""
        from warpfront.wheels.transport import Transport  # noqa: PLC0415 - see above

        return Transport(self, connect_seconds=connect_seconds, stall_seconds=stall_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A file of a source. `sha256` and `size_bytes` are empty/None if the source lacks them.
    `attributes` are the index's further data, as a page writes it.
    """

    url: str
    filename: str
    sha256: str = ""
    size_bytes: int | None = None
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """The reason for an unanswered URL. `lasting`: a retry will not help; `after_seconds`: the
    server's own wait. As text it has no secrets.
    """

    url: str
    reason: str
    status: int = 0
    lasting: bool = False
    after_seconds: float = 0.0

    @property
    def is_failure(self) -> bool:
        """Return true if a source over the network gave no answer that counts."""
        return self.status not in ABSENT and local_path(self.url) is None

    def __str__(self) -> str:
        return without_secrets(f"{self.url}: {self.reason}")


def links(
    source: str, name: str, transport: Transport, *, flat: bool, keep: Keep = bool
) -> tuple[Link, ...] | NoAnswer:
    """Return the files of the distribution `name` in `source`. `flat`: a folder or page of
    links, not an index. `keep` tells by a file's name whether it is wanted.
    """
    local = local_path(source)
    if local is not None:
        return _local_links(local if flat else local / canonicalize_name(name))
    url = source if flat else f"{source.rstrip('/')}/{canonicalize_name(name)}/"
    page = transport.read(url)
    return page if isinstance(page, NoAnswer) else read_links(*page, keep=keep)


def read_address(url: str, transport: Transport) -> str | NoAnswer:
    """Return the text at a URL or a path, or why there is none."""
    local = local_path(url)
    if local is None:
        answer = transport.read(url)
        return answer if isinstance(answer, NoAnswer) else answer[2]
    try:
        return read_regular(local, follow=True).decode("utf-8", errors="replace")
    except (FileNotFoundError, StoreError) as error:
        return NoAnswer(url=url, reason=str(error), lasting=True)


def files_of(
    source: str, name: str, transport: Transport, *, flat: bool
) -> Iterator[tuple[FileName, Link]]:
    """Yield the files of a distribution in a source that answers, with their parsed names."""
    offered = links(source, name, transport, flat=flat)
    for link in () if isinstance(offered, NoAnswer) else offered:
        file = read_file_name(link.filename)
        if file is not None and file.name == canonicalize_name(name):
            yield file, link


def read_links(
    url: str, content_type: str, text: str, *, keep: Keep = bool
) -> tuple[Link, ...] | NoAnswer:
    """Return the files of a page (PEP 503, PEP 691); a remote page names none of this machine."""
    starts = ("https://", "http://") if local_path(url) is None else ("",)
    if "json" in content_type:
        try:
            files = json.loads(text)["files"]
            offered = (_json_link(url, file) for file in files if keep(file["filename"]))
            return tuple(link for link in offered if link.url.startswith(starts))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return NoAnswer(url=url, reason=f"not the JSON of a package index ({error!r})")
    page, distributions = _Anchors(), []
    try:
        page.feed(text)
        base = urljoin(url, page.base) if page.base else url
        for anchor in page.anchors:
            address, fragment = urldefrag(urljoin(base, anchor["href"]))
            filename = unquote(urlsplit(address).path.rpartition("/")[2])
            if _is_distribution(filename) and address.startswith(starts):
                kind, _, value = fragment.partition("=")
                sha256 = value if kind == "sha256" else ""
                attributes = tuple((key, anchor[key]) for key in _SAID if key in anchor)
                link = Link(url=address, filename=filename, sha256=sha256, attributes=attributes)
                distributions.append(link)
    except (ValueError, AssertionError) as error:  # also of what is no HTML
        return NoAnswer(url=url, reason=f"its page cannot be read ({error})")
    if not distributions and page.has_form:
        return NoAnswer(
            url=url, reason="not a package index but a page with a form (a login page?)"
        )
    return tuple(distributions)


def page_of(files: Iterable[Link]) -> str:
    """Return a PEP 503 page that offers these files, each at its own address."""
    lines = ["<!DOCTYPE html><html><body>"]
    for link in files:
        fragment = f"#sha256={link.sha256}" if link.sha256 else ""
        attributes = "".join(f' {key}="{escape(value)}"' for key, value in link.attributes)
        address = escape(link.url + fragment)
        lines.append(f'<a href="{address}"{attributes}>{escape(link.filename)}</a>')
    return "\n".join((*lines, "</body></html>\n"))


def probe(site: Site, index_url: str, name: str) -> str:
    """Why the index cannot serve `name` now; "" when it can. Asks once per run; a few seconds."""
    key = f"{index_url} {name}"
    if key not in site.answers:
        site.answers[key] = _probed(site, index_url, name)
    return site.answers[key]


def local_path(source: str) -> Path | None:
    """Return the path of a `file://` URL or a plain path; None for one over the network."""
    parts = urlsplit(source)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return None if "://" in source else Path(source)


def _probed(site: Site, index_url: str, name: str) -> str:
    local = local_path(index_url)
    if local is not None:
        if not local.is_dir():
            return "no such folder"
        lacks = not (local / canonicalize_name(name)).exists()
        return FLAT_PAGE if lacks and _has_wheels(_local_links(local)) else ""
    with site.transport(connect_seconds=5.0, stall_seconds=site.patience_seconds) as transport:
        answer = links(index_url, name, transport, flat=False)
        if isinstance(answer, NoAnswer) and not answer.lasting and answer.status:
            answer = links(index_url, name, transport, flat=False)
        if isinstance(answer, NoAnswer) and answer.status in ABSENT:
            page = transport.read(index_url, enough_bytes=_FIRST_BYTES)
            if not isinstance(page, NoAnswer) and _has_wheels(read_links(*page)):
                return FLAT_PAGE
    if isinstance(answer, NoAnswer):
        return answer.reason
    return "" if answer else f"its page for {name} names no files (a login page?)"


def _has_wheels(answer: tuple[Link, ...] | NoAnswer) -> bool:
    """Return true if a page that should list projects lists wheels."""
    return not isinstance(answer, NoAnswer) and any(
        link.filename.endswith(".whl") for link in answer
    )


def _local_links(path: Path) -> tuple[Link, ...] | NoAnswer:
    page = path if path.is_file() else path / "index.html"
    if page.is_file():
        return read_links(page.as_uri(), "text/html", page.read_text("utf-8", errors="replace"))
    if not path.is_dir():
        return NoAnswer(url=str(path), reason="no such folder", lasting=True)
    return tuple(
        Link(url=file.absolute().as_uri(), filename=file.name)
        for file in sorted(path.iterdir())
        if _is_distribution(file.name)
    )


def _json_link(url: str, file: Mapping[str, Any]) -> Link:
    """Return a file with PEP 691's data of it under PEP 503's names. Raise for another shape."""
    filename, size = file["filename"], file.get("size")
    sha256 = file.get("hashes", {}).get("sha256", "")
    if not (isinstance(sha256, str) and isinstance(filename, str)) or "/" in filename:
        raise ValueError(f"{filename!r} is no file with its hash")
    if size is not None and (type(size) is not int or size < 0):
        raise ValueError(f"{filename} has no size of {size!r}")
    attributes = {}
    if python := file.get("requires-python"):
        attributes["data-requires-python"] = str(python)
    if metadata := file.get("core-metadata", file.get("dist-info-metadata")):
        digest = metadata.get("sha256", "") if isinstance(metadata, Mapping) else ""
        attributes["data-core-metadata"] = f"sha256={digest}" if digest else "true"
    if yanked := file.get("yanked"):
        attributes["data-yanked"] = yanked if isinstance(yanked, str) else ""
    return Link(
        # `urljoin` takes longer than all else, and pages have thousands of files.
        url=address if (address := file["url"]).startswith("https://") else urljoin(url, address),
        filename=filename,
        sha256=sha256,
        size_bytes=size,
        attributes=tuple(attributes.items()),
    )


def _is_distribution(filename: str) -> bool:
    """Return true for a distribution, or for an index's table of variants (PEP 825, a draft)."""
    return "/" not in filename and filename.endswith((".whl", ".tar.gz", ".zip", "-variants.json"))


class _Anchors(HTMLParser):
    """The links of a PEP 503 page; `<base>` and `<form>` are noticed."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: list[dict[str, str]] = []
        self.base = ""
        self.has_form = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {key: value or "" for key, value in attrs}
        href = attributes.get("href")
        if tag == "a" and href:
            self.anchors.append(attributes)
        elif tag == "base" and href:
            self.base = href
        elif tag == "form":
            self.has_form = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The site's sources to use, in uv's order and each with whether it is flat, and why others,
    the cell's own index among them, do not answer.
    """

    sources: tuple[tuple[str, bool], ...]
    silent: Mapping[str, str]

    @property
    def indexes(self) -> tuple[str, ...]:
        """Return the indexes to use, best first: mirrors, then PyPI."""
        return tuple(url for url, flat in self.sources if not flat)


def reach_of(inputs: LockInputs, site: Site, on_line: Line) -> Reach:
    """Ask every index first, briefly: uv would give up at the first that does not answer."""
    names = [Requirement(text).name for text in (*inputs.requirements, *inputs.stack_requirements)]
    silent = _silent(site, names[0]) if names else {}
    if inputs.index and inputs.stack_requirements:
        stack = inputs.index.url
        if reason := why_not(site, stack, Requirement(inputs.stack_requirements[0]).name):
            silent[stack] = reason
    for url, reason in silent.items():
        on_line(without_secrets(f"{inputs.cell_id}: {url}: {reason}; going on without it"))
    sources = tuple((url, flat) for url, flat in site.sources if flat or url not in silent)
    return Reach(sources=sources, silent=silent)


def answering(site: Site) -> tuple[str, ...]:
    """Return the site's indexes without those that do not answer."""
    silent = _silent(site, "pip")
    return tuple(url for url in site.indexes if url not in silent)


def why_unresolvable(index: WheelIndex, stack: Iterable[Pin], site: Site) -> str:
    """Why the stack cannot be had here, with the URL; "" if its index or the site has it."""
    pins = tuple(stack)
    if not pins:
        return ""
    reason = why_not(site, index.url, pins[0].name)
    if not reason:
        return ""
    with site.transport(connect_seconds=5.0, stall_seconds=site.patience_seconds) as transport:
        lacking = [
            str(pin)
            for pin in pins
            if not any(
                file.tags and str(file.version) == pin.version
                for source, flat in site.sources
                for file, _ in files_of(source, pin.name, transport, flat=flat)
            )
        ]
    if not lacking:
        return ""
    return without_secrets(f"{index.url}: {reason}; nothing else here has {', '.join(lacking)}")


def why_not(site: Site, url: str, name: str) -> str:
    return "pip's no-index is set" if site.no_index else probe(site, url, name)


def _silent(site: Site, name: str) -> dict[str, str]:
    """Return why indexes of the site do not answer. One that lacks `name` still serves others."""
    reasons = {url: why_not(site, url, name) for url in site.indexes}
    lacks = "HTTP 404|no such folder|.*names no files"
    return {url: why for url, why in reasons.items() if why and not re.match(lacks, why)}


# A segment of a path that is no plain name: long, with letters and digits mixed.
_TOKEN = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9_.~%+-]{16,}")
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def read_site(run: Run = run) -> Site:
    """Return indexes, certificate and proxies from `pip config list` and the environment."""
    # This Python's pip, or that of PATH in an environment without one.
    pip = (sys.executable, "-m", "pip") if importlib.util.find_spec("pip") else ("pip",)
    argv = (*pip, "--disable-pip-version-check", "config", "list")
    completed = run(Command(argv=argv)).check(hint="is pip installed here?")
    values = read_pip_configuration(completed.stdout)
    environment = process.environment()
    credentials: dict[str, tuple[str, str]] = {}
    proxies = {name: _first(environment, (name, name.lower())) for name in _PROXIES}
    configured = values.get("proxy", "")
    for proxy in (configured, *proxies.values()):
        _keep_secrets_of(proxy)
    if configured:  # pip's own option wins over the environment
        proxies |= {"HTTP_PROXY": configured, "HTTPS_PROXY": configured}

    def urls(key: str) -> tuple[str, ...]:
        """Return them bare; their users and passwords go into `credentials`."""
        bare_urls = []
        for url in values.get(key, "").split():
            _keep_secrets_of(url)
            parts = urlsplit(url)
            bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
            bare_urls.append(url if parts.username is None else bare)
            if parts.username is not None:
                # Of the index's pages, and of the files in the same folder.
                above, _, last = bare.rstrip("/").rpartition("/")
                scope = above if last in {"simple", "+simple"} else bare.rstrip("/")
                credentials[scope] = (unquote(parts.username), unquote(parts.password or ""))
        return tuple(bare_urls)

    return Site(
        index_url=(urls("index-url") or (PYPI,))[0],
        extra_index_urls=urls("extra-index-url"),
        find_links=urls("find-links"),
        no_index=values.get("no-index", "").lower() in {"1", "true", "yes", "on"},
        certificate=values.get("cert") or _first(environment, _CERTIFICATES) or None,
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        proxies={name: value for name, value in proxies.items() if value},
        credentials=credentials,
    )


def read_pip_configuration(text: str) -> Mapping[str, str]:
    """Return `pip config list` as option -> value; the environment over `install` over `global`."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if equals and section in sections:
            sections[section][option] = str(ast.literal_eval(value))
    return {**sections["global"], **sections["install"], **sections[":env:"]}


def _keep_secrets_of(url: str) -> None:
    """Its password, or a token in the place of a user, in the path or in the query, as written."""
    after = url.partition("://")[2]
    credentials, separator, rest = after.rpartition("@")
    user, colon, password = credentials.partition(":")
    if separator:
        keep_secret(credentials, password if colon else user, unquote(password if colon else user))
    path, _, query = (rest if separator else after).partition("?")
    keep_secret(*(segment for segment in path.split("/")[1:] if _TOKEN.fullmatch(segment)))
    keep_secret(*(segment.partition("=")[2] for segment in query.split("&")))


def _first(environment: Mapping[str, str], names: Iterable[str]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


# Asks pip for its configuration, once, and only when something has to come from outside: the answer
# takes longer than all the rest of a build that has nothing to do.
AskSite = Callable[[], Site]


def site_when_needed() -> AskSite:
    """Return the site, read at the first call and cached for later ones."""
    return functools.cache(read_site)
