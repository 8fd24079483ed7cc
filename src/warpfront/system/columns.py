"""Tables as lines of text that fit: columns, or each row's facts below its name. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence


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
