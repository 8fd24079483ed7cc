"""Text for people: sizes and times, tables and lines that fit, and foreign text in Markdown,
where it is words and nothing else. Pure.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Collection, Iterable, Sequence

_UNIT = 1000.0


def readable_size(size_bytes: int | None) -> str:
    """Decimal units, as registries and `docker images` show them; "?" when not known."""
    if size_bytes is None:
        return "?"
    value, units = float(size_bytes), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while value >= _UNIT and unit != "TB":
        value, unit = value / _UNIT, next(units)
    return f"{value:.0f} {unit}" if unit in {"B", "kB", "MB"} else f"{value:.1f} {unit}"


def readable_seconds(seconds: float) -> str:
    """`8 s`, `3 min 05 s`, `2 h 05 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return `1 finding`, `2 findings`; `plural` is for a noun that takes more than an s."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def fitted(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, aligned: Collection[str] = ()
) -> tuple[tuple[str, ...], ...]:
    """Return the lines of the head and of each row. Columns without a value are omitted, and
    `aligned` ones end at the right. Where they are wider than `width`, there is no head, and a
    row's facts follow its first one.
    """
    columns = [place for place in range(len(head)) if any(row[place] for row in rows)]
    widths = {place: max(len(row[place]) for row in (head, *rows)) for place in columns}
    if sum(widths.values()) + 2 * (len(columns) - 1) > width:
        blocks: list[tuple[str, ...]] = [()]
        for row in rows:
            named = (f"{head[place]} {row[place]}" for place in columns[1:] if row[place])
            facts = ", ".join(map(str.strip, named))
            blocks.append((row[columns[0]], *wrapped(facts, width, 4)))
        return tuple(blocks)

    def line(row: Sequence[str]) -> str:
        texts = (
            row[place].rjust(size) if head[place] in aligned else row[place].ljust(size)
            for place, size in widths.items()
        )
        return "  ".join(texts).rstrip()

    return tuple((line(row),) for row in (head, *rows))


def wrapped(text: str, width: int, indent: int = 0) -> tuple[str, ...]:
    """Return the lines of a text, wrapped at spaces alone: ids, paths and addresses stay whole,
    because people copy them. A line that is indented stays so.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        margin = " " * (indent + len(line) - len(line.lstrip()))
        lines += textwrap.wrap(
            line.strip(),
            width,
            initial_indent=margin,
            subsequent_indent=margin,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return tuple(lines)


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
