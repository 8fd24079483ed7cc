"""Connections that a slow registry cannot block for ever. Edge.

A read time-out is about the next byte: a registry that sends one now and then is never late. This
module requires a minimum rate of a body; `system.whole_heads` limits the head of an answer.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests
import urllib3

from warpfront.release.registry.patience import Pace, Patience
from warpfront.system.whole_heads import WholeHeads, read_within

_PIECE_BYTES = 1 << 20
_SENT_AT_ONCE_BYTES = 1 << 18


class TooSlow(requests.Timeout):
    """Bytes come, but not in a number that would ever make a whole."""


class Adapter(WholeHeads):
    """Its connections send in larger pieces, and believe these certificate authorities, too."""

    def __init__(self, authorities: tuple[Path, ...] = ()) -> None:
        self._authorities = authorities
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **{**options, **self._options()})

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        return super().proxy_manager_for(proxy, **{**options, **self._options()})

    def _options(self) -> dict[str, Any]:
        if not self._authorities:
            return {"blocksize": _SENT_AT_ONCE_BYTES}
        context = ssl.create_default_context()
        for file in self._authorities:
            context.load_verify_locations(file)
        return {"blocksize": _SENT_AT_ONCE_BYTES, "ssl_context": context}


def received(answer: requests.Response, patience: Patience, pace: Pace) -> Iterator[bytes]:
    """Yield the body as it arrives. Raises as requests does, and `TooSlow`."""
    since, count = pace.clock(), 0

    def read() -> bytes:
        return bytes(answer.raw.read1(_PIECE_BYTES, decode_content=False))

    try:
        while piece := read_within(answer.raw, patience.window_seconds * 1.1, read):
            count += len(piece)
            yield piece
            now = pace.clock()
            if now - since > patience.window_seconds:
                if count < patience.window_bytes:
                    raise TooSlow(f"{count} bytes in {now - since:.0f} s")
                since, count = now, 0
    except urllib3.exceptions.ReadTimeoutError as error:
        raise requests.ReadTimeout(error) from error
    except TimeoutError as error:
        raise TooSlow(str(error)) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        if isinstance(error, requests.RequestException):
            raise
        raise requests.exceptions.ChunkedEncodingError(error) from error
    finally:
        answer.close()
