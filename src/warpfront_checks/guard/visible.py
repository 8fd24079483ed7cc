"""Text for a terminal: what would move its cursor, change its colours, reorder or hide characters
is written out (`\\x1b`), so that text of others is seen as it is.

Every program of ours prints through `visible_output`: tasks, sessions, checks and the guard.
"""

from __future__ import annotations

import contextlib
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

# Everything but printable ASCII, line ends and tabs is looked at.
_SUSPECT = re.compile(r"[^\n\t -~]")
# Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties.txt that are letters or marks:
# they have no glyph, and their categories do not tell. The rest of that property is Cf.
_NO_GLYPH = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# Control, format, surrogate, private and unassigned characters; separators of lines, paragraphs.
_WRITTEN_OUT = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def visible(text: str) -> str:
    """Return `text` with every invisible character written out but line ends and tabs."""
    return _SUSPECT.sub(_shown, text)


def visible_json(text: str) -> str:
    """Return the same for JSON, which stays JSON. `json.dumps` escapes all non-ASCII
    characters, and control characters below the space: one remains.
    """
    return text.replace("\x7f", "\\u007f")


def _shown(match: re.Match[str]) -> str:
    character = match[0]
    if unicodedata.category(character) not in _WRITTEN_OUT and not _NO_GLYPH.match(character):
        return character
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


class VisibleStream:
    """A text stream that writes `visible` text to another, which is `terminal`."""

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def __getattr__(self, name: str) -> Any:
        if name == "terminal":  # called while it is being copied
            raise AttributeError(name)
        return getattr(self.terminal, name)

    def write(self, text: str) -> int:
        """Write a text, with escapes for characters that the terminal's encoding lacks."""
        encoding = getattr(self.terminal, "encoding", None) or "utf-8"
        encoded = visible(text).encode(encoding, "backslashreplace").decode(encoding)
        self.terminal.write(encoded)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)


@contextlib.contextmanager
def visible_output() -> Iterator[None]:
    """Within it, all that this process prints is `visible`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        stream if stream is None or isinstance(stream, VisibleStream) else VisibleStream(stream)
        for stream in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def terminal_of(stream: TextIO) -> TextIO:
    """Return the stream itself, for what draws there and has made its texts `visible`."""
    return stream.terminal if isinstance(stream, VisibleStream) else stream
