"""Earlier runs, one line of JSON each, in a file that only grows; and times over many nights as
lines that a page draws without a script. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from warpfront.report.rows import ReportRow
from warpfront.system.texts import counted
from warpfront.verify.results import Outcome, Verification

SCHEMA = 1
RUNS_READ = 50
"""The newest, which is what a page shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """An earlier run: (cell, target) -> state, content hash, and names of checks that failed."""

    made: str
    revision: str
    states: Mapping[tuple[str, str], str]
    digests: Mapping[tuple[str, str], str] = field(default_factory=dict)
    wrong: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)


def history_line(
    states: Iterable[tuple[ReportRow, str]],
    *,
    made: str,
    revision: str,
    found: Mapping[tuple[str, str], Verification] | None = None,
) -> str:
    """Return a run as the line to append."""
    rows = []
    for row, state in states:
        facts: dict[str, object] = {
            "cell": row.cell_id,
            "target": row.target,
            "state": state,
            "size_bytes": row.size_bytes,
            "build_seconds": row.build_seconds,
            "verify_seconds": row.verify_seconds,
        }
        if verification := (found or {}).get((row.cell_id, row.target)):
            wrong = (c for c in verification.checks if c.outcome is not Outcome.PASSED)
            names = sorted(f"{check.session}: {check.name}" for check in wrong)
            facts |= {"digest": verification.content_hash, "wrong": names}
        rows.append(facts)
    run = {"schema": SCHEMA, "made": made, "revision": revision, "rows": rows}
    return json.dumps(run, separators=(",", ":"), sort_keys=True) + "\n"


def flips(runs: Iterable[PastRun], key: tuple[str, str]) -> tuple[str, ...]:
    """Checks of one cell and target that passed and did not, though the image was the same."""
    by_digest: dict[str, list[frozenset[str]]] = {}
    for run in runs:
        if run.digests.get(key):
            by_digest.setdefault(run.digests[key], []).append(run.wrong.get(key, frozenset()))
    lines = (
        f"{name} flips on {digest[:12]}"
        f" ({sum(name in run for run in each)} of {counted(len(each), 'run')})"
        for digest, each in by_digest.items()
        for name in sorted(frozenset.union(*each) - frozenset.intersection(*each))
    )
    return tuple(lines)


def read_history(text: str) -> tuple[tuple[PastRun, ...], int]:
    """Return the newest runs, oldest first, and how many lines were none: a file that was
    appended to when a disk was full is read as far as it goes.
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
    rows = [((str(row["cell"]), str(row["target"])), row) for row in run["rows"]]
    checked = [(key, row) for key, row in rows if row.get("digest")]
    return PastRun(
        made=str(run["made"]),
        revision=str(run["revision"]),
        states={key: str(row["state"]) for key, row in rows},
        digests={key: str(row["digest"]) for key, row in checked},
        wrong={key: frozenset(map(str, row["wrong"])) for key, row in checked},
    )


WIDTH, HEIGHT = 240, 48
_LEAST_SPAN = 0.1
"""A line that only trembles looks as if it did: less than this, up and down, fills no picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A series: `times` of nights `at`, relative to the usual time. `change` is the first night
    of a lasting change or None; `said` describes it.
    """

    cell_id: str
    target: str
    name: str
    place: str
    at: tuple[str, ...]
    times: tuple[float, ...]
    change: int | None
    said: str

    @property
    def line(self) -> str:
        """Return `points` of an SVG line: the slower, the higher."""
        points = enumerate(self.times)
        return " ".join(f"{self._x(index):.1f},{self._y(time):.1f}" for index, time in points)

    @property
    def levels(self) -> tuple[tuple[str, str, str], ...]:
        """(from, to, height): the median before a change and after it."""
        edges = (0, *((self.change,) if self.change is not None else ()), len(self.times))
        return tuple(
            (
                f"{self._x(begin):.1f}",
                f"{self._x(end - 1):.1f}",
                f"{self._y(median(self.times[begin:end])):.1f}",
            )
            for begin, end in pairwise(edges)
        )

    @property
    def change_x(self) -> str:
        return f"{self._x(self.change - 0.5):.1f}" if self.change is not None else ""

    def _x(self, night: float) -> float:
        return WIDTH * night / max(1, len(self.times) - 1)

    def _y(self, time: float) -> float:
        low, high = min(self.times), max(self.times)
        middle, span = (low + high) / 2, max(high - low, _LEAST_SPAN)
        return HEIGHT * (0.5 - 0.9 * (time - middle) / span)
