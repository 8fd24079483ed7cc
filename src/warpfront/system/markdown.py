"""Foreign text in Markdown: names, reasons and messages are words there, and nothing else. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

# What Unicode calls a control, and what changes the order of a line's characters.
_NOT_TEXT = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
# CommonMark's punctuation that begins a construct within a line; GitHub's tables add the bar. An
# underscore within a word begins none.
_MARKUP = re.compile(r"([\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_]))")


def flat(text: str) -> str:
    """Return a text as one line without control characters."""
    return _NOT_TEXT.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))


def markdown_text(text: str) -> str:
    """Return a text as one line of Markdown that reads as it is: no markup, link, image or HTML."""
    return _MARKUP.sub(r"\\\1", html.escape(flat(text), quote=False))


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, whose cells are foreign text."""
    lines = [heads, ["---"] * len(heads), *(tuple(map(markdown_text, row)) for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
