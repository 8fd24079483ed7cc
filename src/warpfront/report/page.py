"""The report as one page that needs no network: a grid of states, with what is known of each. Pure.

Everything that a check, a package or a matrix may have written is escaped by Jinja2; the script
fills in texts, never markup.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import jinja2

from warpfront.matrix.cell import Cell
from warpfront.release.tag_contents import TagPage, difference
from warpfront.report.history import HEIGHT, WIDTH, PastRun, Trend, flips
from warpfront.report.rows import NOT_RUN, ReportRow
from warpfront.system.packaged import packaged_text
from warpfront.system.texts import counted, readable_size

MOST_LISTED = 200
"""Failures that are written out below the grid."""
MOST_TRENDS = 200
MOST_FOLDERS = 20
MOST_SUMMED = 5
"""Tags, causes and changes of the summary."""
STATES: Mapping[str, str] = {
    "failed": "✕",
    "error": "!",
    "blocked": "■",
    "unavailable": "◇",
    "emulated": "≈",
    "undetermined": "◌",
    "skipped": "○",
    "missing": "?",
    "quick": "◐",
    "passed": "✓",
}
"""Each state with its shape, worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A cell on one target, as the page shows it."""

    number: int
    cell: Cell
    row: ReportRow
    log: str = ""

    @property
    def state(self) -> str:
        return state_of(self.row)

    @property
    def why(self) -> str:
        """Return why a row is no pass: the reason of a step, or the step that has not been run."""
        if self.row.reason or self.state != "missing":
            return self.row.reason
        if self.row.build != NOT_RUN:
            return f"{self.row.build}, and never verified with this content"
        lock = "its lock is fresh" if self.row.lock == "fresh" else f"its lock: {self.row.lock}"
        return f"never built; {lock}"


def state_of(row: ReportRow) -> str:
    """Return the state of a row. Only a whole verification that passed is `passed`."""
    if row.build in {"failed", "blocked"}:
        return row.build
    if row.verify == "passed" and "quick" in row.check_options.replace(",", " ").split():
        return "quick"
    return "missing" if row.verify == NOT_RUN else row.verify


def page_html(
    rows: Iterable[tuple[Cell, ReportRow]],
    *,
    title: str,
    made: str,
    past: Iterable[PastRun] = (),
    logs: Mapping[str, str] | None = None,
    trends: Iterable[Trend] = (),
    published: Iterable[TagPage] = (),
) -> str:
    """Return the page. `made` is its time and revision; `past` are earlier runs, oldest first;
    `logs` are addresses by cell id, relative to the page; `trends` are times over nights;
    `published` are tags with their contents and those of the tag before.
    """
    log_addresses = logs or {}
    entries = tuple(
        Tile(number=number, cell=cell, row=row, log=log_addresses.get(cell.id, ""))
        for number, (cell, row) in enumerate(rows)
    )
    rank = list(STATES)
    wrong = sorted(
        (entry for entry in entries if entry.state not in {"quick", "passed"}),
        key=lambda entry: rank.index(entry.state),
    )
    counts = Counter(entry.state for entry in entries)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"counted": counted, "size": readable_size}
    runs, trends = tuple(past), tuple(trends)
    changed = defaultdict(list)
    for trend in trends:
        if trend.change is not None:
            changed[trend.cell_id, trend.target].append(f"{trend.name}: {trend.said}")
    return environment.from_string(packaged_text("page", "page.html.j2")).render(
        title=title,
        made=made,
        style=packaged_text("page", "page.css"),
        script=packaged_text("page", "page.js"),
        states=STATES,
        counts={state: counts[state] for state in rank if counts[state]},
        total=len(entries),
        summary=_summary(entries, wrong, runs),
        wrong=wrong,
        most=MOST_LISTED,
        most_summed=MOST_SUMMED,
        vendors=_vendors(entries),
        trends=trends,
        most_trends=MOST_TRENDS,
        trend_size=(WIDTH, HEIGHT),
        published=[
            (page, difference(page.before, page.now) if page.before else None) for page in published
        ],
        most_folders=MOST_FOLDERS,
        entries=[
            _facts(entry, runs, changed[entry.row.cell_id, entry.row.target]) for entry in entries
        ],
    )


def _summary(
    entries: tuple[Tile, ...], wrong: Iterable[Tile], runs: tuple[PastRun, ...]
) -> dict[str, object]:
    """Return what is stuck and what changed. `stuck` has causes with their numbers of rows,
    `changed` a row with its state before and now, `new` the number of rows that the run before
    lacks. `since` is the time of that run, or empty.
    """
    states = {key: row.state for key, row in runs[-1].by_place.items()} if runs else {}
    keys = {(entry.row.cell_id, entry.row.target): entry.state for entry in entries}
    changed = (
        (f"{cell_id} on {target}", states[cell_id, target], now)
        for (cell_id, target), now in keys.items()
        if states.get((cell_id, target), now) != now
    )
    return {
        "stuck": Counter(tile.why or tile.state for tile in wrong).most_common(),
        "changed": list(changed),
        "new": sum(key not in states for key in keys),
        "since": runs[-1].made if runs else "",
    }


def _vendors(entries: tuple[Tile, ...]) -> list[dict[str, object]]:
    """Return each vendor's part of the grid: cells of a line differ in image and target only."""
    grids: dict[str, dict[tuple[str, str, str], list[Tile]]] = {}
    for entry in entries:
        cell = entry.cell
        key = (str(cell.toolkit or "-"), cell.torch, cell.python)
        grids.setdefault(cell.vendor, {}).setdefault(key, []).append(entry)
    return [
        {
            "name": vendor,
            "tiles": (tiles := [tile for line in lines.values() for tile in line]),
            "targets": [*dict.fromkeys(tile.row.target for tile in tiles)],
            "lines": [
                {"toolkit": toolkit, "torch": torch, "python": python, "tiles": line}
                for (toolkit, torch, python), line in lines.items()
            ],
        }
        for vendor, lines in grids.items()
    ]


def _facts(entry: Tile, past: tuple[PastRun, ...], slower: list[str]) -> dict[str, object]:
    """Return what a click shows; the script sets it as text."""
    row, cell = entry.row, entry.cell
    # Earlier runs of the same cell and target, the newest first.
    key = (row.cell_id, row.target)
    rows = ((run.made, run.by_place.get(key)) for run in reversed(past))
    states = [(made, past_row.state) for made, past_row in rows if past_row]
    lines = [f"{moment} {STATES.get(state, '?')} {state}" for moment, state in states[:20]]
    before = [*flips(past, key), *lines]
    facts = {
        "state": entry.state,
        "why": entry.why,
        "kind": row.kind,
        "repeat": row.repeat,
        "vendor": cell.vendor,
        "toolkit": str(cell.toolkit or ""),
        "torch": cell.torch,
        "python": cell.python,
        "target": row.target,
        "image": cell.image,
        "lock": row.lock,
        "build": f"{row.build}{_seconds(row.build_seconds)}",
        "verify": f"{row.verify}{_seconds(row.verify_seconds)}",
        "checks": f"{row.checks_passed} of {row.checks} passed" if row.checks else "",
        "size": readable_size(row.size_bytes),
        "speed": "\n".join(slower[:20]),
        "before": "\n".join(before),
    }
    return {"title": f"{row.cell_id} on {row.target}", "facts": facts, "link": entry.log}


def _seconds(seconds: float | None) -> str:
    return f" in {seconds:.0f} s" if seconds else ""
