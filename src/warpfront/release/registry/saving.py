"""A blob of any size on its way into a file: gone on with after a cut, there only when its digest
is right. Edge.
"""

from __future__ import annotations

import dataclasses
import re
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from warpfront.release.registry.http import Exchange, Request
from warpfront.release.registry.uploads import OnBytes
from warpfront.system.registry_errors import TransientError, wrong
from warpfront.system.store import file_aside
from warpfront.system.whole_heads import read_count

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
                self._fill(file)
            if f"sha256:{self._found.hexdigest()}" != self._digest:
                raise wrong(
                    self._exchange.host, self._ask.step, f"it sent sha256:{self._found.hexdigest()}"
                )

    def _fill(self, file: BinaryIO) -> None:
        attempts = self._exchange.attempts()
        furthest = 0
        while True:
            try:
                self._take(file)
            except TransientError as passing:
                if self._have > furthest:
                    furthest = self._have
                    attempts.got_on()
                if not attempts.again(passing.after_seconds, passing.cost):
                    raise passing.error from None
            else:
                return

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
