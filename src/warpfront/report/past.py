"""Earlier runs, one line of JSON each, in a file that only grows. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from warpfront.report.rows import ReportRow

SCHEMA = 1
RUNS_READ = 50
"""The newest, which is what a page shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """What an earlier run came to: (cell, target) -> state."""

    made: str
    revision: str
    states: Mapping[tuple[str, str], str]


def history_line(states: Iterable[tuple[ReportRow, str]], *, made: str, revision: str) -> str:
    """One run, as the line to append."""
    rows = [
        {
            "cell": row.cell_id,
            "target": row.target,
            "state": state,
            "size_bytes": row.size_bytes,
            "build_seconds": row.build_seconds,
            "verify_seconds": row.verify_seconds,
        }
        for row, state in states
    ]
    run = {"schema": SCHEMA, "made": made, "revision": revision, "rows": rows}
    return json.dumps(run, separators=(",", ":"), sort_keys=True) + "\n"


def read_history(text: str) -> tuple[tuple[PastRun, ...], int]:
    """The newest runs, oldest first, and how many lines were none: a file that was appended to
    when a disk was full is read as far as it goes.
    """
    runs: list[PastRun] = []
    unread = 0
    for line in text.splitlines()[-RUNS_READ:]:
        try:
            runs.append(_read_run(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            unread += 1
    return tuple(runs), unread


def _read_run(run: Mapping[str, object]) -> PastRun:
    if run["schema"] != SCHEMA or not isinstance(run["rows"], list):
        raise ValueError("a run of another schema")
    states = {(str(row["cell"]), str(row["target"])): str(row["state"]) for row in run["rows"]}
    return PastRun(made=str(run["made"]), revision=str(run["revision"]), states=states)
