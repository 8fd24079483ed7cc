"""An index on loopback with the metadata of every release that a site's sources offer. Edge.

A source archive is offered as a wheel: its metadata is read from the archive, without running it,
when an installer asks for it. One resolution then sees what pip would see, in one run of uv.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Callable, Collection, Hashable, Mapping
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore, Lock, Thread
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.errors import without_secrets
from warpfront.wheels.core_metadata import requires_of
from warpfront.wheels.metadata import read_small_members
from warpfront.wheels.sources import ABSENT, Link, NoAnswer, Site, links, local_path
from warpfront.wheels.store.archives import LONGEST_ARCHIVE_BYTES, unpack_project_files
from warpfront.wheels.store.wheelhouse import save

_JSON = "application/vnd.pypi.simple.v1+json"
_KEPT_SECONDS = 3600
MOST_REQUESTS = 16
"""At a time: the connections that a transport keeps."""
_ELSEWHERE = re.compile("win|macosx|musllinux|ios|android|pyodide|emscripten")
"""Platforms of no image."""


class Demands(NamedTuple):
    """Requires-Dist of a source archive; `conditional` are names under an unknown condition."""

    requires: tuple[str, ...]
    conditional: frozenset[str] = frozenset()


ReadSource = Callable[[Path, str], Demands | None]
"""Return the demands of the project in an unpacked source archive, of this name, without running
it; None where only running it would tell.
"""


class Offer(NamedTuple):
    """A file of a release, and its source; `tags` are a wheel's, () for a source archive."""

    version: Version
    tags: tuple[str, ...]
    link: Link
    source: str


class _Memo:
    """Results by key, each computed once, whichever thread comes first."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, Lock] = {}
        self._results: dict[Hashable, Any] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._results

    def get(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        with self._locks.setdefault(key, Lock()):
            if key not in self._results:
                self._results[key] = compute()
            return self._results[key]


class MetadataIndex:
    """The index, served while the `with` block runs.

    `silent` maps a source that did not answer to the reason. `unread` are the (name, version) of
    releases whose demands are known only after a build; they are served without any. `conditional`
    maps a release ("name version") to the names that it demands under a condition.
    """

    def __init__(self, site: Site, read_source: ReadSource) -> None:
        self._site = site
        self._read_source = read_source
        self._memo = _Memo()
        self._transport = site.transport()
        self._places = BoundedSemaphore(MOST_REQUESTS)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._cache = tempfile.TemporaryDirectory(prefix="warpfront-")
        self.silent: dict[str, str] = {}
        self.unread: set[tuple[str, str]] = set()
        self.conditional: dict[str, frozenset[str]] = {}

    def __enter__(self) -> Self:
        # `shutdown` waits for the next poll.
        Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._transport.__exit__()
        self._cache.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/simple"

    @property
    def cache(self) -> Path:
        """Return a folder for uv's cache of this index."""
        return Path(self._cache.name)

    def offers(self, name: str) -> tuple[Offer, ...]:
        """Return the files of all sources, each file name once, of the first that has it."""
        name = canonicalize_name(name)
        offers: tuple[Offer, ...] = self._memo.get(("page", name), lambda: self._offers(name))
        return offers

    def versions(self, name: str) -> Mapping[str, Collection[Version]]:
        """Return the versions of `name` by source, of those that have some, in their order."""
        by_source: dict[str, set[Version]] = {source: set() for source, _ in self._site.sources}
        for offer in self.offers(name):
            by_source[offer.source].add(offer.version)
        return {without_secrets(url): versions for url, versions in by_source.items() if versions}

    def requires(self, name: str, version: str) -> tuple[str, ...]:
        """Return Requires-Dist of a release, of the file that was requested first."""
        release = Version(version)
        files = [offer for offer in self.offers(name) if offer.version == release]
        fetched = [file for file in files if ("metadata", file.link.filename) in self._memo]
        for offer in fetched or files[:1]:
            text = self.metadata(canonicalize_name(name), offer.link.filename)
            return requires_of(text) if text else ()
        return ()

    def page(self, name: str) -> str:
        """Return the project's page (PEP 691); "" where no source has it."""
        offers = self.offers(name)
        # Those with a wheel for every Python 3, which no archive has to stand in for.
        universal = {
            offer.version
            for offer in offers
            if offer.tags[1:] == ("none", "any") and "py3" in offer.tags[0]
        }
        listed = (offer for offer in offers if offer.tags or offer.version not in universal)
        files = []
        for offer in listed:
            # A source archive is listed under the name of a wheel.
            filename, attributes = offer.link.filename, dict(offer.link.attributes)
            wheel = f"{name.replace('-', '_')}-{offer.version}-py3-none-any.whl"
            link_name = filename if offer.tags else wheel
            url = f"../../files/{name}/{filename}/{link_name}"
            entry: dict[str, Any] = {"filename": link_name, "url": url, "hashes": {}}
            entry["core-metadata"] = True
            if python := attributes.get("data-requires-python"):
                entry["requires-python"] = python
            if "data-yanked" in attributes:
                entry["yanked"] = attributes["data-yanked"] or True
            files.append(entry)
        document = {"meta": {"api-version": "1.0"}, "name": name, "files": files}
        return json.dumps(document) if files else ""

    def metadata(self, name: str, filename: str) -> str:
        """Return the METADATA of a file on the project's page; "" where it cannot be read."""
        named = (offer for offer in self.offers(name) if offer.link.filename == filename)
        if (offer := next(named, None)) is None:
            return ""
        text: str = self._memo.get(("metadata", filename), lambda: self._metadata(name, offer))
        return text

    def _offers(self, name: str) -> tuple[Offer, ...]:
        offers: dict[str, Offer] = {}
        for source, is_flat in self._site.sources:
            for link in self._links(source, name, is_flat=is_flat):
                version, tags = _parsed(link.filename, name)
                if version is not None:
                    offers.setdefault(link.filename, Offer(version, tags, link, source))
        return tuple(offers.values())

    def _links(self, source: str, name: str, *, is_flat: bool) -> tuple[Link, ...]:
        if source in self.silent:
            return ()
        key = ("links", source, "" if is_flat else name)

        def read() -> tuple[Link, ...] | NoAnswer:
            with self._places:
                answer = links(source, name, self._transport, flat=is_flat, keep=_is_of_linux)
                if isinstance(answer, NoAnswer) and not (answer.lasting or answer.status in ABSENT):
                    answer = links(source, name, self._transport, flat=is_flat, keep=_is_of_linux)
                return answer

        answer = self._memo.get(key, read)
        if isinstance(answer, NoAnswer):
            if answer.is_failure:
                self.silent[source] = answer.reason
            return ()
        return tuple(answer)

    def _metadata(self, name: str, offer: Offer) -> str:
        """Return the METADATA of a wheel; of a source archive that of any wheel of its release, as
        uv takes it, or else what the archive tells.
        """
        if offer.tags:
            return self._of_wheel(offer.link)
        twins = (twin for twin in self.offers(name) if twin.tags and twin.version == offer.version)
        if (twin := next(twins, None)) and (text := self._of_wheel(twin.link)):
            return text
        demands = self._of_archive(offer.link, name)
        if demands is None:
            self.unread.add((name, str(offer.version)))
        elif demands.conditional:
            self.conditional[f"{name} {offer.version}"] = demands.conditional
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {offer.version}"]
        requires = demands.requires if demands else ()
        lines += (f"Requires-Dist: {' '.join(require.split())}" for require in requires)
        return "\n".join((*lines, ""))

    def _of_wheel(self, link: Link) -> str:
        """Return METADATA from its own file (PEP 658), by ranges, or of the wheel itself."""
        with self._places:
            if local_path(link.url) is None:
                page = self._transport.read(f"{link.url}.metadata")
                if not isinstance(page, NoAnswer) and page[2].startswith("Metadata-Version:"):
                    return page[2]
            members = read_small_members(link.url, self._transport, ("METADATA",))
            if members is None and local_path(link.url) is None:
                with tempfile.TemporaryDirectory(prefix="warpfront-") as folder:
                    path = Path(folder) / "a.whl"
                    if save(link, path, self._transport) is None:
                        members = read_small_members(str(path), self._transport, ("METADATA",))
        return (members or {}).get("METADATA", "")

    def _of_archive(self, link: Link, name: str) -> Demands | None:
        """Return what `read_source` reads from an archive; None where that is nothing."""
        if (link.size_bytes or 0) > LONGEST_ARCHIVE_BYTES:
            return None
        with self._places, tempfile.TemporaryDirectory(prefix="warpfront-") as folder:
            path, unpacked = Path(folder) / link.filename, Path(folder) / "files"
            unpacked.mkdir()
            if save(link, path, self._transport) is not None:
                return None
            project = unpack_project_files(path, unpacked)
            return self._read_source(project, name) if project is not None else None


_version = cache(Version)
_canonical = cache(canonicalize_name)


def _is_of_linux(filename: str) -> bool:
    return not (filename.endswith(".whl") and _ELSEWHERE.search(filename.rpartition("-")[2]))


def _parsed(filename: str, name: str) -> tuple[Version | None, tuple[str, ...]]:
    """Return the version and tags of a file of `name`; None for the version of any other file.

    It is parsed by hand, because pages have thousands of files.
    """
    if filename.endswith(".whl"):
        parts = filename.removesuffix(".whl").split("-")
    else:
        parts = filename.removesuffix(".zip").removesuffix(".tar.gz").rsplit("-", 1)
    if len(parts) not in {2, 5, 6} or _canonical(parts[0]) != name:
        return None, ()
    try:
        return _version(parts[1].replace("_", "-")), tuple(parts[2:])[-3:]
    except ValueError:
        return None, ()


def _handler(index: MetadataIndex) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answer `/simple/NAME/` and `/files/NAME/FILE/WHEEL.metadata`."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = [unquote(part) for part in self.path.split("?")[0].split("/")]
            kind, text = _JSON, ""
            if parts[1] == "simple":
                text = index.page(parts[2])
            elif parts[1] == "files" and parts[-1].endswith(".metadata"):
                kind = "text/plain; charset=utf-8"
                text = index.metadata(parts[2], parts[3])
            body = text.encode("utf-8", errors="replace")
            # uv drops requests whose answer it no longer needs.
            with contextlib.suppress(ConnectionError):
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", f"max-age={_KEPT_SECONDS}")
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    return Handler
