"""Metadata of a remote wheel, without the wheel. Edge.

A wheel is a zip file, whose directory is at its end: a few ranges over HTTP give its METADATA.
"""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warpfront.wheels.core_metadata import requires_of
from warpfront.wheels.sources import NoAnswer
from warpfront.wheels.store.wheelhouse import LONGEST_METADATA_BYTES, UNREADABLE

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
