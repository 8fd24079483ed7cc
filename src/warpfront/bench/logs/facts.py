"""What a line of a log says: between the readers of formats and who gathers a run. Words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from warpfront.bench.records import Evaluation, MemoryKind, Remark, Step


@dataclass(frozen=True, slots=True)
class Setting:
    """One fact about the whole run, by the name of its field."""

    name: str
    value: str | int | float | bool | MemoryKind


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """A step's line, and the rank that wrote it, where it says so."""

    step: Step
    rank: str = ""


@dataclass(frozen=True, slots=True)
class NextRun:
    """What follows is about another run."""


Fact = Setting | LoggedStep | Evaluation | Remark | NextRun


class Reader(Protocol):
    """One format's reader, for one file: it may remember lines that it has seen."""

    def read(self, text: str) -> Iterable[Fact]:
        """What a line without colours says (of a document: all of it). Never raises,
        whatever the text.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How logs of one kind are known and read: `marks` says whether a line is one that only this
    format has, `averages` whether a step's figures are the mean since the line before, `closes`
    whether a line shows by itself that it is whole.
    """

    name: str
    marks: Callable[[str], bool]
    reader: Callable[[str], Reader]
    is_document: bool = False
    closes: bool = False
    averages: bool = False
