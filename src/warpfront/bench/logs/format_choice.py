"""The choice of a log's format. Pure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from warpfront.bench.logs import FORMATS
from warpfront.bench.logs.facts import Format
from warpfront.bench.logs.fields import cleaned

ENOUGH_LINES = 200
_KEPT = 120
_NEAR = re.compile(r"iteration|step|elapsed|tokens|loss", re.IGNORECASE)
_MOST_NEAR = 3


@dataclass(slots=True)
class Choice:
    """Decided by the lines that only one format has."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, tuple[int, str]] = field(default_factory=dict)
    near: list[tuple[int, str]] = field(default_factory=list)

    def look(self, number: int, line: str) -> bool:
        """Look at a line and return whether more are needed."""
        line = cleaned(line)
        for name, log_format in FORMATS.items():
            if not log_format.is_document and log_format.marks(line):
                self._count(name, number, line.strip()[:_KEPT])
                break  # Megatron's mark is less strict than Primus's, which comes first
        else:
            if not self.counts and len(self.near) < _MOST_NEAR and _NEAR.search(line):
                self.near.append((number, line.strip()[:_KEPT]))
        return self.counts.total() < ENOUGH_LINES

    def look_at_document(self, text: str) -> None:
        for name, log_format in FORMATS.items():
            if log_format.is_document and log_format.marks(text):
                self._count(name, 1, "its own names stand in it")

    def _count(self, name: str, number: int, mark: str) -> None:
        self.counts[name] += 1
        self.first.setdefault(name, (number, mark))

    def made(self) -> tuple[Format, str] | None:
        """Return the format and the reason; None where no format has a line of the log."""
        if not self.counts:
            return None
        trainers = [name for name in self.counts if not FORMATS[name].fallback]
        formats = [name for name in FORMATS if name in (trainers or self.counts)]
        name = max(formats, key=lambda name: self.counts[name])
        number, line = self.first[name]
        other_counts = [
            f"{count} {other}'s" for other, count in self.counts.items() if other != name
        ]
        also = f" (and {', '.join(other_counts)})" if other_counts else ""
        return FORMATS[name], f"{self.counts[name]} of {name}'s lines{also}, line {number}: {line}"
