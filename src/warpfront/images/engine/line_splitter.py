"""Lines from a container's bytes, whatever the bytes are. Edge."""

from __future__ import annotations

import codecs

LONGEST_LINE = 16_384


class LineSplitter:
    """A splitter of arbitrary chunks into whole lines, with memory bounded by the longest line.

    Bytes that are not UTF-8 become U+FFFD. A line beyond `LONGEST_LINE` characters is cut, with the
    number of missing ones. `\r` progress bars stay within their line.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._parts: list[str] = []
        self._kept = 0
        self._cut = 0

    def feed(self, chunk: bytes, *, final: bool = False) -> list[str]:
        """Return the lines that `chunk` completes; with `final` also the unfinished last one."""
        *ends, rest = self._decoder.decode(chunk, final=final).split("\n")
        lines = []
        for end in ends:
            self._add(end)
            lines.append(self._line())
        self._add(rest)
        if final and (self._kept or self._cut):
            lines.append(self._line())
        return lines

    def _add(self, text: str) -> None:
        room = LONGEST_LINE - self._kept
        head = text[:room]
        if head:
            self._parts.append(head)
        self._kept += len(head)
        self._cut += len(text) - len(head)

    def _line(self) -> str:
        line = "".join(self._parts).removesuffix("\r")
        if self._cut:
            line += f"... ({self._cut} more characters)"
        self._parts, self._kept, self._cut = [], 0, 0
        return line
