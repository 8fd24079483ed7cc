"""Earlier runs, one line of JSON each, in a file that only grows; and times over many nights as
lines that a page draws without a script. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import Any, TypeVar

from warpfront.report.rows import ReportRow
from warpfront.system.strict_values import extended, read_as
from warpfront.system.texts import counted
from warpfront.verify.results import Outcome, Verification

SCHEMA = 1
RUNS_READ = 50
"""The newest, which is what a page shows."""
T = TypeVar("T")


def value_line(value: Any) -> str:
    """Return a dataclass as a line to append to a file of such lines."""
    return json.dumps({"schema": SCHEMA, **asdict(value)}, separators=(",", ":")) + "\n"


def read_value_lines(kind: type[T], lines: Iterable[str]) -> tuple[list[T], int]:
    """Return the values of lines, and the number of unreadable ones: cut by a full disk, or
    written by another version.
    """
    values, unread = list[T](), 0
    for line in filter(str.strip, lines):
        try:
            fields = json.loads(line)
            if fields.pop("schema") != SCHEMA:
                raise ValueError("a line of another schema")  # noqa: TRY301 - as any other
            values.append(read_as(kind, fields))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            unread += 1
    return values, unread


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRow:
    """A cell on a target in an earlier run. If it was verified, `digest` is its content hash, and
    `wrong` are the checks that did not pass.
    """

    cell: str
    target: str
    state: str
    size_bytes: int | None = None
    build_seconds: float | None = None
    verify_seconds: float | None = None
    digest: str = ""
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PastRun:
    """An earlier run."""

    made: str
    revision: str
    rows: tuple[PastRow, ...]

    @cached_property
    def by_place(self) -> Mapping[tuple[str, str], PastRow]:
        """Return the rows by cell and target."""
        return {(row.cell, row.target): row for row in self.rows}


def history_line(
    states: Iterable[tuple[ReportRow, str]],
    *,
    made: str,
    revision: str,
    verifications: Mapping[tuple[str, str], Verification] | None = None,
) -> str:
    """Return a run as the line to append."""
    rows = []
    for row, state in states:
        facts: dict[str, Any] = {"cell": row.cell_id, "state": state}
        if verification := (verifications or {}).get((row.cell_id, row.target)):
            wrong = (c for c in verification.checks if c.outcome is not Outcome.PASSED)
            names = sorted(f"{check.session}: {check.name}" for check in wrong)
            facts |= {"digest": verification.content_hash, "wrong": tuple(names)}
        rows.append(extended(PastRow, row, **facts))
    return value_line(PastRun(made=made, revision=revision, rows=tuple(rows)))


def flips(runs: Iterable[PastRun], key: tuple[str, str]) -> tuple[str, ...]:
    """Checks of one cell and target that passed and did not, though the image was the same."""
    by_digest: dict[str, list[frozenset[str]]] = {}
    for row in (run.by_place.get(key) for run in runs):
        if row and row.digest:
            by_digest.setdefault(row.digest, []).append(frozenset(row.wrong))
    lines = (
        f"{name} flips on {digest[:12]}"
        f" ({sum(name in run for run in each)} of {counted(len(each), 'run')})"
        for digest, each in by_digest.items()
        for name in sorted(frozenset.union(*each) - frozenset.intersection(*each))
    )
    return tuple(lines)


def read_history(text: str) -> tuple[tuple[PastRun, ...], int]:
    """Return the newest runs, oldest first, and how many lines were none."""
    runs, unread = read_value_lines(PastRun, text.splitlines()[-RUNS_READ:])
    return tuple(runs), unread


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
