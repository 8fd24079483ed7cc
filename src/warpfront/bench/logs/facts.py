"""Facts that a line of a log states: readers make them, a run is gathered from them. Words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from warpfront.bench.records import Evaluation, MemoryKind, Remark, Step

SERVING = "serving."
"""The prefix of settings that are figures of a serving benchmark, or of a profiler's summary."""
KERNEL = "kernel "
"""The prefix of a kernel's mean time among them."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A fact of the whole run; `firm` from a step's own line. `word` is the log's name for it."""

    name: str
    value: str | int | float | bool | MemoryKind
    firm: bool = False
    word: str = ""


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """A step's line. `rank` is the prefix that names a rank; `part` counts lines of one step; a
    line that is `redrawn` replaces the one before it of the same step.
    """

    step: Step
    rank: str = ""
    part: int | None = None
    redrawn: bool = False


@dataclass(frozen=True, slots=True)
class Unused:
    """A line or a field that looks like a measurement, and that the reader does not use."""

    name: str


@dataclass(frozen=True, slots=True)
class NextRun:
    """The facts that follow are about another run."""


Fact = Setting | LoggedStep | Evaluation | Remark | Unused | NextRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of logs: its recognition and its reader.

    `marks` is whether only this format has a line. `reader` of a file's path returns the facts of
    a line without colours (of a document: all of it), never raises, and may remember earlier
    lines. `averages` is whether a step's figures are the mean since the line before. `closes` is
    whether a line shows by itself that it is whole. A `fallback` is of a library, and is chosen
    where a log has no trainer's own lines.
    """

    name: str
    marks: Callable[[str], bool]
    reader: Callable[[str], Callable[[str], Iterable[Fact]]]
    is_document: bool = False
    closes: bool = False
    fallback: bool = False
    averages: bool = False
