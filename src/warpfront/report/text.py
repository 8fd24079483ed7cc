"""The report and the plan as people read them: rich tables for the terminal, Markdown
for summaries. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from warpfront.images.plan import Action, PlannedCell
from warpfront.report.rows import ReportRow
from warpfront.system.markdown import markdown_text
from warpfront.system.sizes import readable_size
from warpfront_checks.guard.visible import visible

_COLOURS = {
    "passed": "green",
    "built": "green",
    "reused": "green",
    "reuse": "green",
    "build": "cyan",
    "fresh": "green",
    "failed": "red",
    "error": "red",
    "blocked": "yellow",
    "unavailable": "yellow",
    "emulated": "yellow",
    "undetermined": "yellow",
    "skipped": "yellow",
}


def plain_console(file: IO[str] | None = None, width: int | None = None) -> Console:
    """Return a console that takes texts as they are: what looks like markup or an emoji's name in
    them is text.
    """
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


@dataclass(frozen=True, slots=True)
class Visible:
    """A renderable whose texts are `visible`: only the console's own colours remain."""

    drawn: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.drawn, options):
            yield Segment(visible(segment.text), segment.style, segment.control)


def plan_lines(planned: Iterable[PlannedCell]) -> Group:
    """Return the plan of `build`: a line for each cell with its whole id, and the reason below."""
    return Group(*(line for cell in planned for line in _plan_of(cell)))


def _plan_of(cell: PlannedCell) -> Iterator[RenderableType]:
    action = Text(f"{cell.action.value:<8} ", style=_coloured(cell.action.value).style)
    yield Text.assemble(action, cell.cell_id, no_wrap=True, overflow="ignore")
    why = cell.reason if not cell.hint else f"{cell.reason} ({cell.hint})"
    if cell.action is Action.BUILD and cell.download_bytes is not None:
        download, added = map(readable_size, (cell.download_bytes, cell.estimated_bytes))
        why = f"{why}; downloads {download}, adds about {added}"
    yield Padding(Text(why, style="dim"), (0, 0, 0, 9))


def report_table(rows: Iterable[ReportRow]) -> Table:
    """Return each cell and target with the result of each step, and tags if there are any."""
    rows = tuple(rows)
    tagged = any(row.published for row in rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    longest = max((len(row.cell_id) for row in rows), default=0)
    table.add_column("cell", min_width=longest)  # an id is never broken: people copy it
    for name in ("target", "lock", "build"):
        table.add_column(name, overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("verify")
    table.add_column("checks", justify="right", no_wrap=True)
    if tagged:
        table.add_column("published", overflow="fold")
    for row in rows:
        table.add_row(
            _explained(row.cell_id, _why(row)),
            row.target,
            _coloured(row.lock) + _relaxed(row),
            Text.assemble(_coloured(row.build), _seconds(row.build_seconds)),
            readable_size(row.size_bytes),
            Text.assemble(_coloured(row.verify), _seconds(row.verify_seconds), _options(row)),
            f"{row.checks_passed}/{row.checks}" if row.checks else "",
            *([row.published] if tagged else []),
        )
    return table


def report_markdown(rows: Iterable[ReportRow]) -> str:
    """The same as a Markdown table, for step summaries and release notes."""
    lines = [
        "| cell | target | lock | build | size | verify | checks | published | why not |",
        "|---|---|---|---|---:|---|---:|---|---|",
    ]
    for row in rows:
        cells = (
            row.cell_id,
            row.target,
            row.lock + _relaxed(row),
            f"{row.build}{_seconds(row.build_seconds)}",
            readable_size(row.size_bytes),
            f"{row.verify}{_seconds(row.verify_seconds)}{_options(row)}",
            f"{row.checks_passed}/{row.checks}" if row.checks else "",
            row.published,
            f"{row.reason} ({row.kind}; {row.repeat})" if row.kind else row.reason,
        )
        lines.append("| " + " | ".join(map(markdown_text, cells)) + " |")
    return "\n".join(lines) + "\n"


def _explained(cell_id: str, reason: str) -> RenderableType:
    """Return the cell with the reason below it: most terminals have no room for a column."""
    return Group(cell_id, Padding(Text(reason, style="dim"), (0, 0, 0, 4))) if reason else cell_id


def _why(row: ReportRow) -> str:
    """Return the reason, and below it the line that repeats it."""
    return "\n".join(part for part in (row.reason, row.repeat and f"repeat: {row.repeat}") if part)


def _seconds(seconds: float | None) -> str:
    return f" {seconds:.0f} s" if seconds else ""


def _options(row: ReportRow) -> str:
    return f", {row.check_options}" if row.check_options else ""


def _coloured(word: str) -> Text:
    return Text(word, style=_COLOURS.get(word, ""))


def _relaxed(row: ReportRow) -> str:
    """Return the packages that a lock relaxes."""
    return f", relaxed: {' '.join(row.relaxed)}" if row.relaxed else ""
