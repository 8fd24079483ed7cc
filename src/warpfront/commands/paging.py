"""page: the report as one file that opens anywhere, and the history that it shows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from warpfront.bench.nights import night_line, night_of, read_nights, shifts_of, trends_of
from warpfront.commands.measurements import read_benches
from warpfront.errors import StoreError
from warpfront.matrix.cell import Cell
from warpfront.release.tag_contents import TagPage
from warpfront.release.tag_contents_of import PAGE
from warpfront.report.history import Trend, history_line, read_history
from warpfront.report.page import PageFiles, page_html, state_of
from warpfront.report.rows import NOT_RUN, ReportRow
from warpfront.system.progress import Watch
from warpfront.system.revision import Provenance
from warpfront.system.sizes import counted
from warpfront.system.store import Store, append_text, read_text, write_text
from warpfront.verify.results import Verification

_DATA = Path(__file__).parents[1] / "data" / "page"


def write_page(
    path: Path,
    rows: Iterable[ReportRow],
    cells: Mapping[str, Cell],
    store: Store,
    *,
    provenance: Provenance,
    history: Path | None,
    nights: Path | None = None,
    watch: Watch,
) -> None:
    """The page of `rows`, with the runs before it from `history`, to which this one is added, and
    the times of `nights`, to which go those that were taken in this one.
    """
    rows = tuple(rows)
    runs, unread = read_history(read_text(history, missing_ok=True) or "") if history else ((), 0)
    if unread:
        watch.say(f"warning: {history}: {unread} lines are no runs, and were left out")
    logs = {
        cell: os.path.relpath(log, path.parent.resolve())
        for cell in {row.cell_id for row in rows}
        if (log := store.log_path(cell).resolve()).is_file()
    }
    commit = f" of {provenance.revision[:12]}" if provenance.revision else ""
    text = page_html(
        [(cells[row.cell_id], row) for row in rows],
        _files(),
        title=f"{next(iter(cells.values())).project}: every cell",
        made=f"{counted(len(rows), 'result')}{commit}, {provenance.created}",
        past=runs,
        logs=logs,
        trends=_trends(nights, rows, store, watch) if nights else (),
        published=_tag_pages(cells, store),
    )
    write_text(path, text)
    if history:
        states = [(row, state_of(row)) for row in rows]
        heading, revision = provenance.created, provenance.revision
        verifications = _verifications(rows, store)
        append_text(
            history, history_line(states, made=heading, revision=revision, found=verifications)
        )
    watch.say(f"wrote {path}")


def _tag_pages(cells: Iterable[str], store: Store) -> Iterator[TagPage]:
    """Return the pages of `publish`; an unreadable one is skipped."""
    for cell_id in cells:
        with contextlib.suppress(StoreError):
            tag_page: TagPage | None = store.load(cell_id, PAGE, (TagPage,))
            if tag_page is not None:
                yield tag_page


def _trends(file: Path, rows: Iterable[ReportRow], store: Store, watch: Watch) -> tuple[Trend, ...]:
    """Return trends of the nights in a file and of this one."""
    earlier, unread = read_nights(read_text(file, missing_ok=True) or "")
    if unread:
        watch.say(f"warning: {file}: {unread} lines are no nights, and were left out")
    new_nights = [
        night_of(bench)
        for row in rows
        for bench in read_benches(
            store.cell_folder(row.cell_id) / f"bench-{row.target}.json", watch
        )
    ]
    keys = {(night.place, night.at) for night in earlier}
    added = [night for night in new_nights if (night.place, night.at) not in keys]
    if added:
        append_text(file, "".join(map(night_line, added)))
    nights = (*earlier, *added)
    return trends_of(nights, shifts_of(nights))


def _verifications(
    rows: Iterable[ReportRow], store: Store
) -> Mapping[tuple[str, str], Verification]:
    """Return readable verifications of a row's state; the row reports unreadable ones."""
    verifications: dict[tuple[str, str], Verification] = {}
    for row in rows:
        if row.verify == NOT_RUN:
            continue
        with contextlib.suppress(StoreError):
            verification = store.load(row.cell_id, f"verify-{row.target}", (Verification,))
            verifications.update(
                {(row.cell_id, row.target): verification} if verification is not None else {}
            )
    return verifications


def _files() -> PageFiles:
    names = ("page.html.j2", "page.css", "page.js")
    template, style, script = (read_text(_DATA / name) or "" for name in names)
    return PageFiles(template=template, style=style, script=script)
