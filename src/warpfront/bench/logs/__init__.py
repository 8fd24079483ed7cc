"""Logs of others' trainings: one reader a format, and which of them a log is for. Pure.

A new format is a file beside these and its line in `FORMATS`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from warpfront.bench.logs.facts import Format, NextRun
from warpfront.bench.logs.fields import cleaned
from warpfront.bench.logs.gathering import Gathering
from warpfront.bench.logs.madengine import MADENGINE
from warpfront.bench.logs.megatron import MEGATRON
from warpfront.bench.logs.mllog import MLLOG
from warpfront.bench.logs.nemo import NEMO
from warpfront.bench.logs.primus import PRIMUS
from warpfront.bench.logs.tensorprimat import TENSORPRIMAT
from warpfront.bench.logs.torchtitan import TORCHTITAN
from warpfront.bench.records import Finding, Run, Source

FORMATS: Mapping[str, Format] = {
    one.name: one for one in (PRIMUS, MEGATRON, NEMO, TORCHTITAN, MLLOG, TENSORPRIMAT, MADENGINE)
}
ENOUGH_LINES = 200
_KEPT = 120
_NEAR = re.compile(r"iteration|step|elapsed|tokens|loss", re.IGNORECASE)
_MOST_NEAR = 3


@dataclass(slots=True)
class Choice:
    """Which format a log is of, decided by the lines that only one format has."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, tuple[int, str]] = field(default_factory=dict)
    near: list[tuple[int, str]] = field(default_factory=list)

    def look(self, number: int, line: str) -> bool:
        """Look at a line; whether more are needed."""
        line = cleaned(line)
        for name, one in FORMATS.items():
            if not one.is_document and one.marks(line):
                self._count(name, number, line.strip()[:_KEPT])
                break  # Megatron's mark asks less than Primus's, which stands before it
        else:
            if not self.counts and len(self.near) < _MOST_NEAR and _NEAR.search(line):
                self.near.append((number, line.strip()[:_KEPT]))
        return self.counts.total() < ENOUGH_LINES

    def look_at_document(self, text: str) -> None:
        for name, one in FORMATS.items():
            if one.is_document and one.marks(text):
                self._count(name, 1, "its own names stand in it")

    def _count(self, name: str, number: int, what: str) -> None:
        self.counts[name] += 1
        self.first.setdefault(name, (number, what))

    def made(self) -> tuple[Format, str] | None:
        """The format, and why; None where no line was any's."""
        if not self.counts:
            return None
        name = max(FORMATS, key=lambda name: self.counts[name])
        number, line = self.first[name]
        others = [f"{count} {other}'s" for other, count in self.counts.items() if other != name]
        also = f" (and {', '.join(others)})" if others else ""
        return FORMATS[name], f"{self.counts[name]} of {name}'s lines{also}, line {number}: {line}"


class Reading:
    """One log, line by line, to its runs. A document comes as one text."""

    def __init__(self, chosen: Format, path: str) -> None:
        self._format = chosen
        self._reader = chosen.reader(path)
        self._runs = [Gathering(averages=chosen.averages)]
        self.lines = 0

    def feed(self, number: int, text: str, *, whole: bool = True) -> None:
        """A line; of one that ends nowhere, the last word may be half of one."""
        self.lines = number
        if not whole and not self._format.closes and not self._format.is_document:
            text = text.rstrip().rpartition(" ")[0]
            self._runs[-1].add(Finding(level="note", message="a line without an end"), number)
        for fact in self._reader.read(text if self._format.is_document else cleaned(text)):
            if isinstance(fact, NextRun) and self._runs[-1].has_steps:
                self._runs.append(Gathering(averages=self._format.averages))
            self._runs[-1].add(fact, number)

    def runs(self, source: Source, given: Mapping[str, object]) -> tuple[Run, ...]:
        """Those that have steps, or at least a duration."""
        found = (one for one in self._runs if one.has_steps)
        return tuple(one.run(source, lines=self.lines, given=given) for one in found)
