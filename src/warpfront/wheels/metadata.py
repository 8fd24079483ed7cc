"""Metadata of a remote wheel, without the wheel, and of a torch stack: of its locked wheels, or of
their release on an index. Edge.

A wheel is a zip file, whose directory is at its end: a few ranges over HTTP give its METADATA.
"""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from warpfront.errors import WheelError
from warpfront.wheels.core_metadata import FileName, metadata_text, requires_of
from warpfront.wheels.lock.values import Distribution, LockedWheel
from warpfront.wheels.sources import Link, NoAnswer, Site, files_of, local_path, probe
from warpfront.wheels.store.wheelhouse import (
    LONGEST_METADATA_BYTES,
    UNREADABLE,
    Wheelhouse,
    read_wheel_metadata,
)

if TYPE_CHECKING:
    from warpfront.wheels.transport import Transport

_BUFFER_BYTES = 1 << 16


def read_remote_requires(url: str, transport: Transport) -> tuple[str, ...] | None:
    """Return `Requires-Dist` of the wheel at `url`; None where its server gives no ranges,
    or no wheel.
    """
    members = read_small_members(url, transport, ("METADATA",)) or {}
    return requires_of(members["METADATA"]) if "METADATA" in members else None


def read_small_members(
    source: str | Path, transport: Transport, names: Collection[str]
) -> Mapping[str, str] | None:
    """Return the texts of these files of a wheel's dist-info, if it has them and they have a
    usual length; None where its server gives no ranges, or no wheel.
    """
    file = _opened(source, transport)
    if file is None:
        return None
    try:
        with zipfile.ZipFile(file) as archive:
            return {
                member.filename.rpartition("/")[2]: archive.read(member).decode("utf-8", "replace")
                for member in archive.infolist()
                if _is_of_info(member.filename, names)
                and member.file_size <= LONGEST_METADATA_BYTES
            }
    except UNREADABLE:
        return None


def read_file_names(source: str | Path, transport: Transport) -> frozenset[str] | None:
    """Return the names of a wheel's files, from its directory; None as above."""
    file = _opened(source, transport)
    if file is None:
        return None
    try:
        with zipfile.ZipFile(file) as archive:
            return frozenset(archive.namelist())
    except UNREADABLE:
        return None


def _opened(source: str | Path, transport: Transport) -> Path | _Remote | None:
    """Return a wheel to be read by ranges; None where its server does not say how long it is."""
    if isinstance(source, Path):
        return source
    size = transport.size_bytes(source)
    return None if isinstance(size, NoAnswer) else _Remote(source, size, transport)


def _is_of_info(member: str, names: Collection[str]) -> bool:
    folder, _, name = member.partition("/")
    return folder.endswith(".dist-info") and name in names


@dataclass
class _Remote:
    """A file over HTTP, read by ranges, with one piece cached. `OSError` is a failed request."""

    url: str
    size_bytes: int
    transport: Transport
    position: int = 0
    start: int = 0
    piece: bytes = b""

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size_bytes}[whence]
        self.position = base + offset
        return self.position

    def read(self, size: int = -1, /) -> bytes:
        """Read at most the size of a zip file's directory, whatever its end record claims."""
        remaining = self.size_bytes - self.position
        count = remaining if size < 0 else min(size, remaining)
        if count > LONGEST_METADATA_BYTES:
            raise OSError(f"{self.url}: its directory is too long")
        data = self._range(self.position, count)[:count] if count > 0 else b""
        self.position += len(data)
        return data

    def _range(self, start: int, count: int) -> bytes:
        """Return at least `count` bytes from `start`, from the cached piece or a new one."""
        offset = start - self.start
        if offset < 0 or offset + count > len(self.piece):
            first = max(0, min(start, self.size_bytes - _BUFFER_BYTES))
            last = min(self.size_bytes, max(start + count, first + _BUFFER_BYTES)) - 1
            self.piece, self.start = self._fetched(first, last), first
            offset = start - first
        return self.piece[offset:]

    def _fetched(self, first: int, last: int) -> bytes:
        """Return a range: no longer than requested, and within a time limit."""
        from warpfront.wheels.transport import received  # noqa: PLC0415 - see `Site.transport`

        answer = self.transport.open(self.url, {"Range": f"bytes={first}-{last}"})
        if isinstance(answer, NoAnswer):
            raise OSError(str(answer))
        size_bytes, body = last - first + 1, bytearray()
        until = self.transport.deadline(size_bytes)
        with contextlib.closing(answer):
            if answer.status_code != 206:
                raise OSError(f"{self.url}: no ranges")
            for chunk in received(answer, self.transport.stall_seconds):
                body += chunk
                if len(body) > size_bytes or self.transport.is_over(until):
                    raise OSError(f"{self.url}: another range than was asked for, or too slowly")
        return bytes(body)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMetadata:
    """A distribution with its metadata. `is_exact` is unset where that is another build's of the
    release, which has other libraries and the same needs.
    """

    distribution: Distribution
    is_exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StackFiles:
    """Sources of a torch stack's metadata: the wheelhouse, the stack's own index, the site's
    sources. Offline, only files of this machine are read. Results are cached for all stacks.
    """

    site: Site
    wheelhouse: Wheelhouse
    offline: bool = False
    pages: dict[tuple[str, str], tuple[tuple[FileName, Link], ...]] = field(default_factory=dict)
    known: dict[str, tuple[str, ...] | None] = field(default_factory=dict)

    def read(
        self, pins: Mapping[str, str], wheels: tuple[LockedWheel, ...], index_url: str
    ) -> tuple[FoundMetadata, ...]:
        """Return those of `pins` (name -> version) whose metadata was found. `wheels` are the
        locked ones; `index_url` is the stack's index, "" for none.
        """
        locked = {wheel.name: wheel for wheel in wheels}
        files: list[FoundMetadata] = []
        with self.site.transport() as transport:
            for name, version in pins.items():
                readings = self._readings(name, version, locked.get(name), index_url, transport)
                for of, requires in readings:
                    if requires is not None:
                        package = Distribution(name=name, version=version, requires=requires)
                        files.append(FoundMetadata(distribution=package, is_exact=of == version))
                        break
        return tuple(files)

    def _readings(
        self,
        name: str,
        version: str,
        wheel: LockedWheel | None,
        index_url: str,
        transport: Transport,
    ) -> Iterator[tuple[str, tuple[str, ...] | None]]:
        """Yield the version itself, then its release, each with what its wheels demand."""
        if wheel is not None and (path := self.wheelhouse.path(wheel)).is_file():
            yield version, _read(path)
        offered = tuple(self._links(name, index_url, transport))
        release = Version(version)
        for candidate in dict.fromkeys((version, release.public, release.base_version)):
            for file, link in offered:
                if file.tags and str(file.version) == candidate:
                    yield candidate, self._of_link(link, transport)

    def _links(
        self, name: str, index_url: str, transport: Transport
    ) -> Iterator[tuple[FileName, Link]]:
        sources = list(self.site.sources)
        if index_url and not self.offline and not probe(self.site, index_url, name):
            sources.insert(len(self.site.find_links), (index_url, False))
        for source, flat in sources:
            if self.offline and local_path(source) is None:
                continue
            if (source, name) not in self.pages:
                self.pages[source, name] = tuple(files_of(source, name, transport, flat=flat))
            yield from self.pages[source, name]

    def _of_link(self, link: Link, transport: Transport) -> tuple[str, ...] | None:
        if link.url not in self.known:
            path = local_path(link.url)
            requires = _read(path) if path else read_remote_requires(link.url, transport)
            self.known[link.url] = requires
        return self.known[link.url]


def write_environment(folder: Path, distributions: Iterable[Distribution]) -> None:
    """Write the metadata of these distributions, so that installers take them as installed."""
    for package in distributions:
        info = folder / f"{package.name.replace('-', '_')}-{package.version}.dist-info"
        info.mkdir(parents=True)
        text = metadata_text(package.name, package.version, package.requires)
        (info / "METADATA").write_text(text, "utf-8")
        (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n", "utf-8")
        (info / "RECORD").write_text("", "utf-8")
        (info / "INSTALLER").write_text("uv\n", "utf-8")


def _read(wheel: Path) -> tuple[str, ...] | None:
    try:
        return read_wheel_metadata(wheel).requires
    except WheelError:
        return None
