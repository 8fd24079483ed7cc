"""Metadata of a remote wheel, without the wheel, and of a torch stack: of its locked wheels, or of
their release on an index. Edge.

A wheel is a zip file, whose directory is at its end: a few ranges over HTTP give its METADATA.
"""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from packaging.version import Version

from warpfront.errors import WheelError
from warpfront.wheels.core_metadata import Distribution, FileName, metadata_text, requires_of
from warpfront.wheels.lock.values import LockedWheel
from warpfront.wheels.sources import Link, NoAnswer, Site, files_of, local_path, probe
from warpfront.wheels.store.wheelhouse import (
    LONGEST_METADATA_BYTES,
    UNREADABLE,
    Wheelhouse,
    read_wheel_metadata,
)

if TYPE_CHECKING:
    from warpfront.wheels.transport import Transport

T = TypeVar("T")
_BUFFER_BYTES = 1 << 16


def read_small_members(
    source: str, transport: Transport, names: Collection[str]
) -> Mapping[str, str] | None:
    """Return the texts of these files of the dist-info of the wheel at a path or URL, if it has
    them and they have a usual length; None where its server gives no ranges, or no wheel.
    """

    def members(archive: zipfile.ZipFile) -> dict[str, str]:
        texts = {}
        for member in archive.infolist():
            folder, _, name = member.filename.partition("/")
            is_wanted = folder.endswith(".dist-info") and name in names
            if is_wanted and member.file_size <= LONGEST_METADATA_BYTES:
                texts[name] = archive.read(member).decode("utf-8", "replace")
        return texts

    return _read_archive(source, transport, members)


def read_file_names(source: str, transport: Transport) -> frozenset[str] | None:
    """Return the names of a wheel's files, from its directory; None as above."""
    return _read_archive(source, transport, lambda archive: frozenset(archive.namelist()))


def _read_archive(
    source: str, transport: Transport, read: Callable[[zipfile.ZipFile], T]
) -> T | None:
    """Return what `read` reads from a wheel, by ranges over HTTP; None as above."""
    path = local_path(source)
    size = transport.size_bytes(source) if path is None else 0
    if isinstance(size, NoAnswer):
        return None
    try:
        with zipfile.ZipFile(path or _Remote(source, size, transport)) as archive:
            return read(archive)
    except UNREADABLE:
        return None


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
        count = max(remaining if size < 0 else min(size, remaining), 0)
        if count > LONGEST_METADATA_BYTES:
            raise OSError(f"{self.url}: its directory is too long")
        offset = self.position - self.start
        if count and not 0 <= offset <= len(self.piece) - count:  # not in the cached piece
            first = max(0, min(self.position, self.size_bytes - _BUFFER_BYTES))
            last = min(self.size_bytes, max(self.position + count, first + _BUFFER_BYTES)) - 1
            self.piece, self.start = self._fetched(first, last), first
            offset = self.position - first
        data = self.piece[offset : offset + count] if count else b""
        self.position += len(data)
        return data

    def _fetched(self, first: int, last: int) -> bytes:
        """Return a range: no longer than requested, and within a time limit."""
        answer = self.transport.open(self.url, {"Range": f"bytes={first}-{last}"})
        if isinstance(answer, NoAnswer):
            raise OSError(str(answer))
        if answer.status_code != 206:
            answer.close()
            raise OSError(f"{self.url}: no ranges")
        size_bytes, body = last - first + 1, bytearray()
        until, take = self.transport.deadline(size_bytes), body.extend
        failure = self.transport.receive(
            self.url, answer, take, until=until, limit_bytes=size_bytes
        )
        if failure is not None:
            raise OSError(str(failure))
        return bytes(body)


@dataclass(frozen=True, slots=True, kw_only=True)
class StackFiles:
    """Sources of a torch stack's metadata: the wheelhouse, the stack's own index, the site's
    sources. Offline, only files of this machine are read. Results are cached for all stacks.
    """

    site: Site
    wheelhouse: Wheelhouse
    offline: bool = False
    pages: dict[tuple[str, str], tuple[tuple[FileName, Link], ...]] = field(default_factory=dict)
    requirements: dict[str, tuple[str, ...] | None] = field(default_factory=dict)

    def read(
        self, pins: Mapping[str, str], wheels: tuple[LockedWheel, ...], index_url: str
    ) -> Iterator[tuple[Distribution, bool]]:
        """Yield those of `pins` (name -> version) whose metadata is found, and whether it is the
        version's own: another build of its release has other libraries and the same needs. `wheels`
        are the locked ones; `index_url` is the stack's index, "" for none.
        """
        locked = {wheel.name: wheel for wheel in wheels}

        def readings(name: str, version: str) -> Iterator[tuple[str, tuple[str, ...] | None]]:
            """Yield the version itself, then its release, each with what its wheels demand."""
            wheel = locked.get(name)
            if wheel is not None and (path := self.wheelhouse.path(wheel)).is_file():
                yield version, _requires(str(path), transport)
            sources = list(self.site.sources)
            if index_url and not self.offline and not probe(self.site, index_url, name):
                sources.insert(len(self.site.find_links), (index_url, False))
            offered: list[tuple[FileName, Link]] = []
            for source, flat in sources:
                if self.offline and local_path(source) is None:
                    continue
                if (source, name) not in self.pages:
                    self.pages[source, name] = tuple(files_of(source, name, transport, flat=flat))
                offered += self.pages[source, name]
            release = Version(version)
            for candidate in dict.fromkeys((version, release.public, release.base_version)):
                for file, link in offered:
                    if file.tags and str(file.version) == candidate:
                        if link.url not in self.requirements:
                            self.requirements[link.url] = _requires(link.url, transport)
                        yield candidate, self.requirements[link.url]

        with self.site.transport() as transport:
            for name, version in pins.items():
                for of, requires in readings(name, version):
                    if requires is not None:
                        package = Distribution(name=name, version=version, requires=requires)
                        yield package, of == version
                        break


def write_environment(folder: Path, distributions: Iterable[Distribution]) -> None:
    """Write the metadata of these distributions, so that installers take them as installed."""
    for package in distributions:
        info = folder / f"{package.name.replace('-', '_')}-{package.version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(metadata_text(package), "utf-8")
        (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n", "utf-8")
        (info / "RECORD").write_text("", "utf-8")
        (info / "INSTALLER").write_text("uv\n", "utf-8")


def _requires(source: str, transport: Transport) -> tuple[str, ...] | None:
    """Return what a wheel demands; None where its METADATA cannot be read, or where a local file is
    no wheel of its name, which no installer would take.
    """
    if path := local_path(source):
        with contextlib.suppress(WheelError):
            return read_wheel_metadata(path).requires
        return None
    texts = read_small_members(source, transport, ("METADATA",))
    return requires_of(texts["METADATA"]) if texts else None
