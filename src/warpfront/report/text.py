"""The report and the plan as people read them: rich tables for the terminal, Markdown
for summaries. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO

from rich.console import Console
from rich.text import Text

from warpfront.images.plan import Action, PlannedCell
from warpfront.report.rows import ReportRow
from warpfront.system.texts import fitted, markdown_text, readable_size, wrapped
from warpfront_checks.guard.visible import visible

_COLOURS = {
    **dict.fromkeys(("passed", "built", "reused", "reuse", "fresh"), "green"),
    "build": "cyan",
    **dict.fromkeys(("failed", "error"), "red"),
    **dict.fromkeys(("blocked", "unavailable", "emulated", "undetermined", "skipped"), "yellow"),
}


def plain_console(file: IO[str] | None = None) -> Console:
    """Return a console for plain texts: markup and names of emoji in them stay text."""
    return Console(file=file, highlight=False, markup=False, emoji=False)


def plan_lines(planned: Iterable[PlannedCell], width: int) -> Iterator[Text]:
    """Yield the plan of `build`: a line for each cell with its whole id, and the reason below."""
    for cell in planned:
        action = Text(f"{cell.action.value:<8} ", style=_COLOURS.get(cell.action.value, ""))
        yield action.append(visible(cell.cell_id), "default")
        why = cell.reason if not cell.hint else f"{cell.reason} ({cell.hint})"
        if cell.action is Action.BUILD and cell.download_bytes is not None:
            download, added = map(readable_size, (cell.download_bytes, cell.estimated_bytes))
            why = f"{why}; downloads {download}, adds about {added}"
        yield from _below(why, width, 9)


def report_lines(rows: tuple[ReportRow, ...], width: int) -> Iterator[Text]:
    """Yield each cell and target with its results: in columns, else the facts below the id."""
    head, *blocks = fitted(_HEAD, [*map(_facts, rows)], width, aligned={"size", "checks"})
    yield from (Text(line, "bold") for line in head)
    for row, lines in zip(rows, blocks, strict=True):
        yield from map(_painted, lines)
        repeat = row.repeat and f"repeat: {row.repeat}"
        if why := "\n".join(filter(None, (row.reason, repeat))):
            yield from _below(why, width, 4)


def _below(text: str, width: int, indent: int) -> Iterator[Text]:
    """Yield a text below a line of a list, as `columns.wrapped` wraps it."""
    return (Text(visible(line), "dim") for line in wrapped(text, width, indent))


_HEAD = ("cell", "target", "lock", "build", "size", "verify", "checks", "published")


def _facts(row: ReportRow) -> tuple[str, ...]:
    options = f", {row.check_options}" if row.check_options else ""
    return (
        row.cell_id,
        row.target,
        row.lock + (f", relaxed: {' '.join(row.relaxed)}" if row.relaxed else ""),
        f"{row.build}{_seconds(row.build_seconds)}",
        readable_size(row.size_bytes),
        f"{row.verify}{_seconds(row.verify_seconds)}{options}",
        f"{row.checks_passed}/{row.checks}" if row.checks else "",
        row.published,
    )


def _painted(line: str) -> Text:
    """Return a line with the colours of its outcomes."""
    text = Text(visible(line))
    for word, style in _COLOURS.items():
        text.highlight_regex(rf"(?<= ){word}(?![\w-])", style)
    return text


def report_markdown(rows: Iterable[ReportRow]) -> str:
    """The same as a Markdown table, for step summaries and release notes."""
    lines = [
        "| cell | target | lock | build | size | verify | checks | published | why not |",
        "|---|---|---|---|---:|---|---:|---|---|",
    ]
    for row in rows:
        cells = (
            *_facts(row),
            f"{row.reason} ({row.kind}; {row.repeat})" if row.kind else row.reason,
        )
        lines.append("| " + " | ".join(map(markdown_text, cells)) + " |")
    return "\n".join(lines) + "\n"


def _seconds(seconds: float | None) -> str:
    return f" {seconds:.0f} s" if seconds else ""
