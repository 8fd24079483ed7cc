"""A log, line by line, to the runs in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.bench.logs.assembling import RunAssembler
from warpfront.bench.logs.facts import Format, NextRun
from warpfront.bench.logs.fields import cleaned
from warpfront.bench.records import RecordSource, Remark, Run


class Reading:
    """A reading of one log into its runs, line by line. A document comes as one text."""

    def __init__(self, chosen: Format, path: str) -> None:
        self._format = chosen
        self._reader = chosen.reader(path)
        self._runs = [RunAssembler(averages=chosen.averages)]
        self.lines = 0

    def feed(self, number: int, text: str, *, whole: bool = True) -> None:
        """Read a line. The last word of an unfinished line may be half a word."""
        self.lines = number
        if not whole and not self._format.closes and not self._format.is_document:
            text = text.rstrip().rpartition(" ")[0]
            self._runs[-1].add(Remark(level="note", message="a line without an end"), number)
        for fact in self._reader.read(text if self._format.is_document else cleaned(text)):
            if isinstance(fact, NextRun) and self._runs[-1].has_steps:
                self._runs.append(RunAssembler(averages=self._format.averages))
            self._runs[-1].add(fact, number)

    def runs(self, source: RecordSource, given: Mapping[str, object]) -> tuple[Run, ...]:
        """Return the runs that have steps, or at least a duration."""
        runs = (run for run in self._runs if run.has_steps)
        return tuple(run.run(source, lines=self.lines, given=given) for run in runs)
