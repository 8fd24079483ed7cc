"""Words, commands and conditions of shell, makefiles, CMake and lists of settings. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Self

from warpfront_port.scan.findings import SIDES, Gate, Match, Side
from warpfront_port.scan.words import NAMES_AMD

_AMD = re.compile(
    r"(?i)(?:^|_|\b)(?:USE_|ENABLE_|WITH_|BUILD_|GPU_)?(?:ROCM|HIP|AMD(?!64)|HIPCC)|gfx\d|/dev/kfd"
)
_NVIDIA = re.compile(
    r"(?i)CUDA(?!_VISIBLE)|NVIDIA|NVCC|cu(?:DNN|BLAS|FFT|RAND|SOLVER|SPARSE)|\bcu\d"
)
FALSE = frozenset({"FALSE", "OFF", "NO", "N", "0"})
# `device: cuda:0` is torch's name, which means AMD's devices too; an address names an owner.
_OTHERS = re.compile(r"(?i:device)\w*\W{1,8}cuda(?::\d+)?\b|\b(?:github|nvidia)\.\w+/\S*")
# A line that does nothing: a comment, the name of a CMake project, a text to show.
_IDLE = re.compile(r"\s*(?:dnl\b|//|--|/?\*|#(?!\[)|(?:project|message)\s*\()")


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A word or value. `text` is without quotes; offsets are into the whole text."""

    text: str
    start: int
    end: int
    sides: frozenset[Side] = frozenset(SIDES)
    gate: Gate = Gate.OPEN

    @classmethod
    def found(cls, match: re.Match[str], group: str | int = 0, offset: int = 0) -> Self:
        """Return the word that a group of a match is, in a text at `offset` of its file."""
        start, end = match.span(group)
        return cls(text=match[group], start=start + offset, end=end + offset)

    def match(self, rule: str, excerpt: str = "", shift: int = 0) -> Match:
        """Return the match of a rule here."""
        return Match(
            rule=rule,
            start=self.start,
            end=self.end,
            excerpt=excerpt or self.text,
            shift=shift,
            sides=self.sides,
            gate=self.gate,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A simple command: its name, its words with the name's or without, and assignments before.

    `conditions` are those of the arms around it, the outermost first, in CMake: `NOT X` for the
    last arm after `X`.
    """

    name: str
    words: tuple[Word, ...]
    start: int
    sides: frozenset[Side] = frozenset(SIDES)
    assignments: tuple[Word, ...] = ()
    conditions: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)

    def is_under(self, names: AbstractSet[str]) -> bool:
        """Return true if an arm around the command needs one of `names` to be true."""
        needed = (c.split(" AND ") for c in self.conditions if " OR " not in c)
        return any(part.strip("${}") in names for parts in needed for part in parts)


@dataclass(slots=True, kw_only=True)
class _Arm:
    sides: frozenset[Side] = frozenset(SIDES)
    left: frozenset[Side] = frozenset(SIDES)
    condition: str = ""


@dataclass(slots=True)
class Arms:
    """The open conditions at a place of a build or script, the outermost first."""

    _open: list[_Arm] = field(default_factory=list)

    @property
    def sides(self) -> frozenset[Side]:
        """Return the sides that reach this place."""
        return frozenset(SIDES).intersection(*(arm.sides for arm in self._open))

    @property
    def conditions(self) -> tuple[str, ...]:
        """Return the conditions of the arms around this place."""
        return tuple(arm.condition for arm in self._open if arm.condition)

    def open(self, condition: str = "", *, negated: bool = False) -> None:
        """Open a condition."""
        self._open.append(_Arm())
        self.next(condition, negated=negated)

    def next(self, condition: str = "", *, negated: bool = False) -> None:
        """Go to the next arm of the innermost condition; without a condition, to its last."""
        if not self._open:
            return
        arm = self._open[-1]
        arm.condition = condition or f"NOT {arm.condition}"
        sides = sides_of(condition)
        reached = arm.left if sides is None else frozenset(SIDES) - sides if negated else sides
        arm.sides = arm.left & reached
        if sides is not None and " OR " not in condition and " AND " not in condition:
            arm.left -= reached

    def close(self) -> None:
        """Close the innermost condition."""
        self._open[-1:] = []


def sides_of(condition: str) -> frozenset[Side] | None:
    """Return the sides on which a condition is true, None for one that tells none apart."""
    amd, nvidia = _AMD.search(condition), _NVIDIA.search(condition)
    if condition in FALSE:
        return frozenset()
    if bool(amd) is bool(nvidia):
        return None
    return AMDS if amd else CUDAS


CUDAS: frozenset[Side] = frozenset({"nvidia"})
AMDS: frozenset[Side] = frozenset({"amd"})


def of_cuda_alone(text: str, matches: Iterable[Match] = ()) -> Iterator[Match]:
    """Yield the lines of a build or program that name CUDA, where its file names nothing of AMD's:
    an arm for HIP begins next to one of them. Lines of `matches` are skipped.
    """
    if _NVIDIA.search(text) is None or NAMES_AMD.search(text) is not None:
        return
    met = {text.rfind("\n", 0, match.start) + 1 for match in matches}
    for whole in re.finditer(r"[^\n]+", text):
        start, line = whole.start(), whole[0].partition(" #")[0].rstrip()
        if start in met or _NVIDIA.search(line) is None or _IDLE.match(line):
            continue
        if sides_of(_OTHERS.sub("", line)) == CUDAS:
            last = start + len(line)
            yield Match(rule="CU124", start=start, end=last, excerpt="CUDA, and none for HIP")
