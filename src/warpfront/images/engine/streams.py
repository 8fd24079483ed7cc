"""Streams of an engine: lines of a container's bytes, and events of a push or a pull. Edge.

Errors are events of a stream that ends normally. A registry that hangs sends 20 events a second
and never ends.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from warpfront.errors import RegistryError, RegistryFault
from warpfront.images.engine.protocol import Progress
from warpfront.system.packaged import packaged_toml

LONGEST_LINE = 16_384
STALL_SECONDS = 90
_WAITING = re.compile(r"Waiting|Preparing|Retrying in|Unavailable")
_MOVING = ("Pushing", "Downloading", "Pushed")
_ERRORS = packaged_toml("daemon-errors.toml")["registry"]


@dataclass(kw_only=True)
class Transfer:
    """A push or pull, event by event. `moved_bytes` is the engine's own count of the wire; a
    layer that was mounted or already there counts nothing.
    """

    verb: str
    reference: str
    on_progress: Progress
    stall_seconds: float = STALL_SECONDS
    clock: Callable[[], float] = time.monotonic
    _layers: dict[str, tuple[int, int]] = field(default_factory=dict)
    _last: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def moved_bytes(self) -> int:
        return sum(moved for moved, _ in self._layers.values())

    def follow(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Read the stream. Raise `RegistryError` for an error event, and if no byte moves."""
        moved = self.clock()
        for event in events:
            detail = event.get("errorDetail")
            error = detail.get("message") if isinstance(detail, Mapping) else ""
            if message := str(error or event.get("error") or "").strip():
                raise self.fault(message)
            layer, status = str(event.get("id", "")), str(event.get("status", ""))
            sizes = event.get("progressDetail") or {}
            current, total = int(sizes.get("current") or 0), int(sizes.get("total") or 0)
            is_waiting = bool(_WAITING.match(status))
            if status.startswith(_MOVING) and current and not is_waiting:
                self._layers[layer] = (current, max(total, current))
                every = sum(each for _, each in self._layers.values())
                self.on_progress(self.moved_bytes, every + 1)
            # Bytes move where an event differs from the last one of its layer.
            if not is_waiting and self._last.get(layer) != (status, current):
                self._last[layer] = (status, current)
                moved = self.clock()
            elif self.clock() - moved > self.stall_seconds:
                hint = "is the registry hanging? a rerun goes on where this one was"
                message = f"no byte moved for {self.stall_seconds:g} s"
                raise self._error(message, RegistryFault.SLOW, hint)
        total = self.moved_bytes
        self.on_progress(total, total)

    def fault(self, message: str) -> RegistryError:
        """Return the engine's error, of its stream or before there was one."""
        row = next(row for row in _ERRORS if re.search(row["words"], message, re.IGNORECASE))
        return self._error(message, RegistryFault(row["fault"]), row["hint"])

    def _error(self, message: str, fault: RegistryFault, hint: str) -> RegistryError:
        host = self.reference.partition("/")[0]
        self.on_progress(0, 0)
        step = f"{self.verb} {self.reference}"
        return RegistryError(message, registry=host, step=step, fault=fault, hint=hint)


class LineSplitter:
    """A splitter of arbitrary chunks into whole lines, with memory bounded by the longest line.

    Bytes that are not UTF-8 become U+FFFD. A line beyond `LONGEST_LINE` characters is cut, with the
    number of missing ones. `\r` progress bars stay within their line.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._begun, self._length = "", 0

    def feed(self, chunk: bytes, *, final: bool = False) -> list[str]:
        """Return the lines that `chunk` completes; with `final` also the unfinished last one."""
        *ends, rest = self._decoder.decode(chunk, final=final).split("\n")
        lines = []
        for end in ends:
            self._add(end)
            lines.append(self._line())
        self._add(rest)
        if final and self._length:
            lines.append(self._line())
        return lines

    def _add(self, text: str) -> None:
        self._begun += text[: LONGEST_LINE - len(self._begun)]
        self._length += len(text)

    def _line(self) -> str:
        line, cut = self._begun.removesuffix("\r"), self._length - len(self._begun)
        self._begun, self._length = "", 0
        return f"{line}... ({cut} more characters)" if cut else line
