"""Upload of a blob into a repository: whole or in pieces, resumed after a cut, begun anew where
that cannot be; and the way of one into a file, there only when its digest is right. Edge.

A registry without chunked uploads gets the blob at once; a piece that is too large makes later
ones smaller. After a failure the registry's own count of bytes is read; the number of sent
bytes proves nothing.
"""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit, urlunsplit

import requests

from warpfront.errors import RegistryError, StoreError
from warpfront.release.registry.authorization import Scopes
from warpfront.release.registry.contract import BlobSource
from warpfront.release.registry.http import Exchange, Request
from warpfront.system.registry_errors import TransientError, by_status, wrong
from warpfront.system.store import file_aside
from warpfront.system.whole_heads import read_count

# In one request without asking how far it came: what is sent again after a cut costs little.
WHOLE_BYTES = 16 * 2**20
PIECE_BYTES = 64 * 2**20
_SMALLEST_PIECE_BYTES = 2**20
_OCTETS = {"Content-Type": "application/octet-stream"}
# "I have nothing" and "I have one byte" are the same Range, and one byte is never sent alone.
_HAS = re.compile(r"(?:bytes=)?0-(\d{1,18})")
# A piece that is answered with one of these is not wanted as a piece, or not there.
_NO_PIECES = frozenset({400, 404, 405, 416, 501})

OnBytes = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceSizes:
    """Blobs up to `whole_bytes` are sent in one request, larger ones in pieces."""

    whole_bytes: int = WHOLE_BYTES
    piece_bytes: int = PIECE_BYTES


class Upload:
    """A blob. `location` is that of an upload that has been begun, "" for none."""

    def __init__(
        self,
        exchange: Exchange,
        repository: str,
        source: BlobSource,
        scopes: Scopes,
        *,
        location: str,
        sizes: PieceSizes,
        on_bytes: OnBytes,
    ) -> None:
        self._exchange, self._repository, self._source = exchange, repository, source
        self._scopes, self._on_bytes = scopes, on_bytes
        self._step = f"upload of {source.digest} to {repository}"
        self._location, self._offset, self._furthest = location, 0, 0
        self._whole = source.size_bytes <= sizes.whole_bytes
        self._piece_bytes = sizes.piece_bytes
        self._damaged = self._stumbled = self._failed = False
        self.sent_bytes = 0

    def send(self) -> None:
        """Send the blob, and return when the registry has it. Raises `RegistryError`."""
        self._exchange.attempts().run(self._send, lambda: self._furthest)

    def _send(self) -> None:
        if self._failed and self._is_there_now():
            return
        self._failed = True  # until it is there
        if not self._location:
            self._begin()
        while not self._whole and self._offset < self._source.size_bytes:
            self._send_piece()
            self._furthest = max(self._furthest, self._offset)
        self._close()

    def _is_there_now(self) -> bool:
        """Return whether the blob arrived in spite of a failure, with only the answer lost. If
        not, set where to resume.
        """
        url = f"/v2/{self._repository}/blobs/{self._source.digest}"
        answer = self._once("HEAD", url, {200, 404})
        self._exchange.finish(answer)
        if answer.status_code == 200:
            return True
        if self._location and not self._whole:
            self._ask_how_far()
        else:
            self._location = ""
        return False

    def _ask_how_far(self) -> None:
        answer = self._once("GET", self._location, {200, 202, 204, 400, 404, 405, 416, 501})
        self._exchange.finish(answer)
        has = _has(answer)
        if answer.status_code >= 400 or has is None or has > self._source.size_bytes:
            self._location = ""  # it has forgotten, or does not say: begin anew
            return
        self._offset = has
        if answer.headers.get("Location"):
            self._follow(answer)

    def _begin(self) -> None:
        self._offset = 0
        url = f"/v2/{self._repository}/blobs/uploads/"
        answer = self._once("POST", url, {202}, body=b"")
        self._exchange.finish(answer)
        self._follow(answer)
        least = read_count(answer.headers.get("OCI-Chunk-Min-Length", ""))
        self._piece_bytes = max(self._piece_bytes, least or 0)

    def _send_piece(self) -> None:
        count = min(self._piece_bytes, self._source.size_bytes - self._offset)
        span = {"Content-Range": f"{self._offset}-{self._offset + count - 1}"}
        answer = self._once(
            "PATCH", self._location, {202, 204, 413, *_NO_PIECES}, span, self._piece(count)
        )
        body = self._exchange.finish(answer)
        if answer.status_code >= 400:
            # Send a refused piece in smaller ones, all at once, or from the start.
            error = self._failure(answer, body)
            if answer.status_code == 413:
                if count <= _SMALLEST_PIECE_BYTES:
                    raise error
                self._piece_bytes = max(count // 4, _SMALLEST_PIECE_BYTES)
                self._ask_how_far()
            elif not self._offset or self._stumbled:
                self._whole = True
            else:
                self._stumbled = True  # it forgot, or takes one piece only: the next time tells
                self._location = ""
                raise TransientError(error)
            if not self._location or self._whole:
                self._begin()
            return
        self._follow(answer)
        has = _has(answer)
        if has is not None and not self._offset < has <= self._offset + count:
            self._location = ""
            raise TransientError(
                wrong(self._exchange.host, self._step, f"it says that it has {has} bytes")
            )
        self._offset = has if has is not None else self._offset + count

    def _close(self) -> None:
        """Send the last request: with the digest, and all bytes where they were not sent yet."""
        count = self._source.size_bytes if self._whole else 0
        parts = urlsplit(self._location)
        joint = "&" if parts.query else ""
        url = urlunsplit(parts._replace(query=f"{parts.query}{joint}digest={self._source.digest}"))
        answer = self._once(
            "PUT", url, {201, 204, 400, 404, 416}, {}, self._piece(count), last=True
        )
        body = self._exchange.finish(answer)
        if answer.status_code < 400:
            stored = answer.headers.get("Docker-Content-Digest", self._source.digest)
            if stored != self._source.digest:
                raise wrong(self._exchange.host, self._step, f"it says that it stored {stored:.80}")
            return
        self._location = ""
        error = self._failure(answer, body)
        if self._damaged:
            raise error
        self._damaged = True  # on the way, or in the registry: once more, from the start
        raise TransientError(error)

    def _piece(self, count: int) -> Callable[[], Any]:
        """Return the bytes of one request, opened anew for each try of it."""
        if not count:
            return lambda: b""
        offset = 0 if self._whole else self._offset

        def on_bytes(sent: int) -> None:
            self.sent_bytes += sent
            self._on_bytes(sent)

        return lambda: _Piece(self._source, offset, count, on_bytes)

    def _once(
        self,
        method: str,
        url: str,
        accepted: set[int],
        headers: dict[str, str] | None = None,
        body: Callable[[], Any] | bytes | None = None,
        *,
        last: bool = False,
    ) -> requests.Response:
        headers = {} if headers is None else {**_OCTETS, **headers}
        more = self._source.size_bytes / self._exchange.patience.settled_bytes if last else 0.0
        ask = Request(method, url, self._step, self._scopes, accepted, headers, body, more)
        return self._exchange.once(ask)

    def _follow(self, answer: requests.Response) -> None:
        self._location = self._exchange.next_address(
            answer.headers.get("Location", ""), answer.url, self._step
        )

    def _failure(self, answer: requests.Response, body: bytes) -> RegistryError:
        host = self._exchange.host
        failure = by_status(host, self._step, answer.status_code, answer.headers, body)
        return failure.error if isinstance(failure, TransientError) else failure


class _Piece:
    """A part of a blob as a file that requests can send: it knows its length, and counts."""

    def __init__(self, source: BlobSource, offset: int, count: int, on_bytes: OnBytes) -> None:
        self._file, self._left, self._length = source.open(), count, count
        self._digest, self._on_bytes = source.digest, on_bytes
        self._file.seek(offset)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[bytes]:
        while piece := self.read(io.DEFAULT_BUFFER_SIZE):
            yield piece

    def read(self, count: int = -1) -> bytes:
        if not self._left:
            return b""
        piece = self._file.read(min(count, self._left) if count >= 0 else self._left)
        if not piece:
            raise StoreError(f"{self._digest}: its file has become shorter while it was sent")
        self._left -= len(piece)
        self._on_bytes(len(piece))
        return piece

    def close(self) -> None:
        self._file.close()


def _has(answer: requests.Response) -> int | None:
    """Return how many bytes of an upload the registry reports."""
    match = _HAS.fullmatch(answer.headers.get("Range", ""))
    if match is None:
        return None
    last = int(match.group(1))
    return last + 1 if last else 0


_FROM = re.compile(r"bytes (\d{1,18})-\d+/(?:\d+|\*)")


class Saving:
    """A download to a file. `ask` is the request for all of it. `size_bytes` is its
    descriptor's size, if one is known: no more than that is read.
    """

    def __init__(
        self,
        exchange: Exchange,
        ask: Request,
        digest: str,
        size_bytes: int | None,
        on_bytes: OnBytes,
    ) -> None:
        self._exchange, self._ask, self._digest = exchange, ask, digest
        self._limit_bytes, self._on_bytes = size_bytes, on_bytes
        self._have = 0
        self._found = sha256()

    def into(self, destination: Path) -> None:
        """Raises `RegistryError`, and `StoreError` where the file cannot be written."""
        with file_aside(destination) as aside:
            with aside.open("wb") as file:
                self._exchange.attempts().run(lambda: self._take(file), lambda: self._have)
            if f"sha256:{self._found.hexdigest()}" != self._digest:
                raise wrong(
                    self._exchange.host, self._ask.step, f"it sent sha256:{self._found.hexdigest()}"
                )

    def _take(self, file: BinaryIO) -> None:
        """Read one request's bytes, from where the last one broke off."""
        span = {"Range": f"bytes={self._have}-"} if self._have else {}
        ask = dataclasses.replace(self._ask, headers={**self._ask.headers, **span})
        answer = self._exchange.once(ask)
        start = _FROM.fullmatch(answer.headers.get("Content-Range", ""))
        continues = start is not None and int(start.group(1)) == self._have
        if answer.status_code == 416 or (answer.status_code == 206 and not continues):
            self._exchange.finish(answer)
            ask = self._ask
            answer = self._exchange.once(ask)
        if answer.status_code != 206:
            file.seek(0)
            file.truncate()
            self._have, self._found = 0, sha256()
            if self._limit_bytes is None:
                self._limit_bytes = read_count(answer.headers.get("Content-Length", ""))
        for piece in self._exchange.pieces(answer, self._ask.step):
            self._have += len(piece)
            if self._limit_bytes is None or self._have > self._limit_bytes:
                answer.close()
                raise wrong(
                    self._exchange.host, self._ask.step, "it sends more than it said it would"
                )
            self._found.update(piece)
            file.write(piece)
            self._on_bytes(len(piece))
