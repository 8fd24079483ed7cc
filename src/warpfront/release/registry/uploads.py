"""Upload of a blob into a repository: whole or in pieces, resumed after a cut, begun anew where
that cannot be; and the way of one into a file, there only when its digest is right. Edge.

A registry without chunked uploads gets the blob at once; a piece that is too large makes later
ones smaller. After a failure the registry's own count of bytes is read; the number of sent
bytes proves nothing.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from urllib.parse import urlsplit, urlunsplit

import requests

from warpfront.errors import RegistryError, StoreError
from warpfront.release.registry.authorization import push
from warpfront.release.registry.contract import Blob
from warpfront.release.registry.http import Attempts, Exchange, Request
from warpfront.system.http_answers import TransientError, by_status, read_count, wrong
from warpfront.system.store import file_aside

_SMALLEST_PIECE_BYTES = 2**20
_OCTETS = {"Content-Type": "application/octet-stream"}
# "I have nothing" and "I have one byte" are the same Range, and one byte is never sent alone.
_HAS = re.compile(r"(?:bytes=)?0-(\d{1,18})")
# A piece that is answered with one of these is not wanted as a piece, or not there.
_NO_PIECES = frozenset({400, 404, 405, 416, 501})


@dataclass(slots=True, kw_only=True)
class Upload:
    """A blob on its way. `location` is that of an upload that has been begun, "" for none; the
    registry has `offset` bytes of it, and once had the `furthest`. `refused` are the kinds of
    requests that were refused, each of which begins anew once.
    """

    exchange: Exchange
    repository: str
    source: Blob
    location: str = ""
    sent_bytes: int = 0
    offset: int = 0
    furthest: int = 0
    piece_bytes: int = field(init=False)
    whole: bool = field(init=False)
    tries: int = 0
    refused: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.piece_bytes = self.exchange.patience.piece_bytes
        self.whole = self.source.size_bytes <= self.exchange.patience.whole_bytes

    def send(self) -> None:
        """Send the blob, and return when the registry has it. Raises `RegistryError`."""
        Attempts(self.exchange.patience).run(self._send, lambda: self.furthest)

    def _send(self) -> None:
        self.tries += 1
        if self.tries > 1:
            url = f"/v2/{self.repository}/blobs/{self.source.digest}"
            if self._once("HEAD", url, {200, 404})[0].status_code == 200:
                return  # only the answer of the upload was lost
            if self.location and not self.whole:
                self._ask_how_far()
            else:
                self.location = ""
        if not self.location:
            self._begin()
        while not self.whole and self.offset < self.source.size_bytes:
            self._send_piece()
            self.furthest = max(self.furthest, self.offset)
        self._close()

    def _ask_how_far(self) -> None:
        answer, _ = self._once("GET", self.location, {200, 202, 204, *_NO_PIECES})
        has = _has(answer)
        if answer.status_code >= 400 or has is None or has > self.source.size_bytes:
            self.location = ""  # it has forgotten, or does not say: begin anew
            return
        self.offset = has
        if answer.headers.get("Location"):
            self._follow(answer)

    def _begin(self) -> None:
        self.offset = 0
        url = f"/v2/{self.repository}/blobs/uploads/"
        answer, _ = self._once("POST", url, {202}, body=b"")
        self._follow(answer)
        least = read_count(answer.headers.get("OCI-Chunk-Min-Length", ""))
        self.piece_bytes = max(self.piece_bytes, least or 0)

    def _send_piece(self) -> None:
        count = min(self.piece_bytes, self.source.size_bytes - self.offset)
        span = {"Content-Range": f"{self.offset}-{self.offset + count - 1}"}
        accepted = {202, 204, 413, *_NO_PIECES}
        answer, failure = self._once("PATCH", self.location, accepted, span, self._piece(count))
        if failure is not None:
            # Send a refused piece in smaller ones, all at once, or from the start.
            if answer.status_code == 413:
                if count <= _SMALLEST_PIECE_BYTES:
                    raise failure
                self.piece_bytes = max(count // 4, _SMALLEST_PIECE_BYTES)
                self._ask_how_far()
            elif not self.offset or "piece" in self.refused:
                self.whole = True
            else:
                self._begin_anew("piece", failure)
            if not self.location or self.whole:
                self._begin()
            return
        self._follow(answer)
        has = _has(answer)
        if has is not None and not self.offset < has <= self.offset + count:
            self.location = ""
            raise TransientError(self._wrong(f"it says that it has {has} bytes"))
        self.offset = has if has is not None else self.offset + count

    def _close(self) -> None:
        """Send the last request: with the digest, and all bytes where they were not sent yet."""
        parts, digest = urlsplit(self.location), self.source.digest
        joint = "&" if parts.query else ""
        url = urlunsplit(parts._replace(query=f"{parts.query}{joint}digest={digest}"))
        body = self._piece(self.source.size_bytes) if self.whole else b""
        answer, failure = self._once("PUT", url, {201, 204, 400, 404, 416}, {}, body)
        if failure is not None:  # damaged on the way, or in the registry
            self._begin_anew("close", failure)
        stored = answer.headers.get("Docker-Content-Digest", digest)
        if stored != digest:
            raise self._wrong(f"it says that it stored {stored:.80}")

    def _begin_anew(self, request: str, failure: RegistryError) -> NoReturn:
        """Have the blob sent from its start after this failure, once for each kind of request."""
        self.location = ""
        if request in self.refused:
            raise failure
        self.refused.add(request)
        raise TransientError(failure)

    def _piece(self, count: int) -> Callable[[], Any]:
        """Return the bytes of one request, opened anew for each try of it."""
        offset = 0 if self.whole else self.offset
        return lambda: _Piece(self, offset, count)

    def _once(
        self,
        method: str,
        url: str,
        accepted: set[int],
        headers: dict[str, str] | None = None,
        body: Callable[[], Any] | bytes | None = None,
    ) -> tuple[requests.Response, RegistryError | None]:
        """Return an answer, and the error of one that is accepted to be dealt with here."""
        headers = {} if headers is None else {**_OCTETS, **headers}
        more = (method == "PUT") * self.source.size_bytes / self.exchange.patience.settled_bytes
        scopes = (push(self.repository),)
        ask = Request(method, url, self._step, scopes, accepted, headers, body, more)
        if self.tries > 1:  # a registry may hang up after each answer
            self.exchange.close()
        answer = self.exchange.once(ask)
        content, status = self.exchange.finish(answer), answer.status_code
        if status < 400:
            return answer, None
        failure = by_status(self.exchange.host, self._step, status, answer.headers, content)
        return answer, failure.error if isinstance(failure, TransientError) else failure

    def _follow(self, answer: requests.Response) -> None:
        self.location = self.exchange.next_address(answer, self._step)

    @property
    def _step(self) -> str:
        return f"upload of {self.source.digest} to {self.repository}"

    def _wrong(self, reason: str) -> RegistryError:
        return wrong(self.exchange.host, self._step, reason)


class _Piece:
    """A part of a blob as a file that requests can send: it knows its length, and counts."""

    def __init__(self, upload: Upload, offset: int, count: int) -> None:
        self._upload, self._file = upload, upload.source.open()
        self._left, self._length = count, count
        self._file.seek(offset)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[bytes]:
        while piece := self.read(io.DEFAULT_BUFFER_SIZE):
            yield piece

    def read(self, count: int) -> bytes:
        if not self._left:
            return b""
        piece = self._file.read(min(count, self._left))
        if not piece:
            digest = self._upload.source.digest
            raise StoreError(f"{digest}: its file has become shorter while it was sent")
        self._left -= len(piece)
        self._upload.sent_bytes += len(piece)
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


def save(exchange: Exchange, ask: Request, digest: str, size_bytes: int, destination: Path) -> None:
    """Save a blob to a file. `ask` is the request for all of it. No more is read than the
    `size_bytes` of its descriptor. Raises `RegistryError`; `StoreError` for an unwritable file.
    """
    have, hashed = 0, sha256()

    def take(file: BinaryIO) -> None:
        """Read one request's bytes, from where the last one broke off."""
        nonlocal have, hashed
        span = {"Range": f"bytes={have}-"} if have else {}
        answer = exchange.once(replace(ask, headers={**ask.headers, **span}))
        start = _FROM.fullmatch(answer.headers.get("Content-Range", ""))
        continues = start is not None and int(start.group(1)) == have
        if answer.status_code == 416 or (answer.status_code == 206 and not continues):
            exchange.finish(answer)
            answer = exchange.once(ask)
        if answer.status_code != 206:
            file.seek(0)
            file.truncate()
            have, hashed = 0, sha256()
        for piece in exchange.pieces(answer, ask.step):
            have += len(piece)
            if have > size_bytes:
                answer.close()
                raise wrong(exchange.host, ask.step, "it sends more than it said it would")
            hashed.update(piece)
            file.write(piece)

    with file_aside(destination) as aside:
        with aside.open("wb") as file:
            Attempts(exchange.patience).run(lambda: take(file), lambda: have)
        if (found := f"sha256:{hashed.hexdigest()}") != digest:
            raise wrong(exchange.host, ask.step, f"it sent {found}")
