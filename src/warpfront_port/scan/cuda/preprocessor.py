"""The arms of `#if` chains as regions of a file, with the sides that reach each. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from warpfront_port.scan.cuda.conditions import MacroRow, Macros, named
from warpfront_port.scan.cuda.lexer import Directive
from warpfront_port.scan.findings import SIDES, Side

Reach = frozenset[Side]
EVERYWHERE: Final[Reach] = frozenset(SIDES)

# Conditions nested deeper than any compiler must take are not followed.
_MAX_NESTING = 256
_OPENING = frozenset({"if", "ifdef", "ifndef"})
_ARMS = _OPENING | {"elif", "elifdef", "elifndef", "else"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """An arm of a chain: its directive, and the sides that get its lines.

    `open` are the sides that may get them, `macros` those of its condition. `tested` are the macros
    of its condition and of the arms before it.
    """

    directive: Directive
    reach: Reach
    open: Reach
    macros: frozenset[str]
    tested: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionChain:
    """A chain `#if ... #endif`: its arms in order, and the sides that reach it."""

    arms: tuple[Arm, ...]
    reach: Reach
    end: int

    @property
    def macros(self) -> frozenset[str]:
        return frozenset().union(*(arm.macros for arm in self.arms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A region from `start` to the next one: the sides that get its lines, and its arms."""

    start: int
    reach: Reach
    arms: tuple[Arm, ...]

    @property
    def tested(self) -> frozenset[str]:
        """Return the macros that decide whether these lines are compiled."""
        return frozenset().union(*(arm.tested for arm in self.arms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaches:
    """The regions of a file in order (the first starts at 0), and its chains."""

    regions: tuple[Region, ...]
    chains: tuple[ConditionChain, ...]

    def at(self, offset: int) -> Region:
        return self.regions[bisect_right(self.regions, offset, key=attrgetter("start")) - 1]


@dataclass(slots=True, kw_only=True)
class _Frame:
    """An open chain.

    `taken` records for each side whether an earlier arm applied. `guard` is the macro of an include
    guard, unset on every side whatever its name.
    """

    outside: Region
    guard: str
    taken: dict[Side, bool | None] = field(default_factory=lambda: dict.fromkeys(SIDES, False))
    arms: list[Arm] = field(default_factory=list)


def read_reaches(
    directives: Sequence[Directive], tree: Mapping[str, MacroRow] | None = None
) -> Reaches:
    """Return the regions that these directives make; `tree` are macros of its headers.

    A stray `#else` or `#endif` changes nothing, an unclosed `#if` runs to the end.
    """
    macros = Macros(tree=tree or {})
    regions = [Region(start=0, reach=EVERYWHERE, arms=())]
    chains: list[ConditionChain] = []
    frames: list[_Frame] = []
    for index, directive in enumerate(directives):
        if directive.name in _OPENING:
            guard = directive.body if is_guard(directives, index) else ""
            frames.append(_Frame(outside=regions[-1], guard=guard))
        if directive.name in _ARMS and frames:
            regions.append(_next_arm(directive, frames[-1], macros))
        elif directive.name == "endif" and frames:
            frame, end = frames.pop(), directive.end
            reach, around = frame.outside.reach, frame.outside.arms
            chains.append(ConditionChain(arms=tuple(frame.arms), reach=reach, end=end))
            regions.append(Region(start=end, reach=reach, arms=around))
        elif directive.name in ("define", "undef"):
            _learn(directive, regions[-1], macros)
    return Reaches(regions=tuple(regions), chains=tuple(chains))


def condition_of(directive: Directive) -> str:
    """Return the condition of the arm that a directive opens."""
    name = directive.body.split(maxsplit=1)[0] if directive.body else ""
    if directive.name in ("ifdef", "elifdef"):
        return f"defined({name})"
    if directive.name in ("ifndef", "elifndef"):
        return f"!defined({name})"
    return "1" if directive.name == "else" else directive.body


def is_guard(directives: Sequence[Directive], index: int) -> bool:
    """Return true if `#ifndef X` is followed by `#define X` with nothing after it."""
    guard, after = directives[index], directives[index + 1 : index + 2]
    return guard.name == "ifndef" and [(d.name, d.body) for d in after] == [("define", guard.body)]


def _next_arm(directive: Directive, frame: _Frame, macros: Macros) -> Region:
    condition = condition_of(directive)
    reach: set[Side] = set()
    undecided: set[Side] = set()
    macros.assumed = {frame.guard: "unset"}
    for side in SIDES:
        before, holds = frame.taken[side], macros.truth(condition, side)
        if before is True:
            continue
        if side in frame.outside.reach and holds is not False:
            reach.add(side)
            undecided |= {side} if holds is None or before is None else set()
        frame.taken[side] = True if holds else before if holds is False else None
    macros.assumed = {}
    tested = named(condition).union(*(arm.macros for arm in frame.arms))
    arm = Arm(
        directive=directive, reach=frozenset(reach), open=frozenset(undecided),
        macros=named(condition), tested=tested,
    )  # fmt: skip
    frame.arms.append(arm)
    arms = (*frame.outside.arms, arm) if len(frame.outside.arms) < _MAX_NESTING else ()
    return Region(start=directive.end, reach=arm.reach, arms=arms)


def _learn(directive: Directive, region: Region, macros: Macros) -> None:
    """Record a `#define` or `#undef`; a macro with parameters has no value.

    A definition in `#ifndef name` is a default: the build may choose another value. On the sides
    that it does not reach the macro is unset, unless the table or an earlier line defines it.
    """
    name, _, body = directive.body.partition(" ")
    if "(" in name or not name or not region.reach:
        return
    possible = frozenset().union(*(arm.open for arm in region.arms))
    defines = directive.name == "define"
    condition = condition_of(region.arms[-1].directive) if region.arms else ""
    default = defines and condition in (f"!defined({name})", f"!defined {name}")
    for side in SIDES:
        if side in region.reach and side in possible:
            macros.defined[name, side] = "open" if default else None
        elif side in region.reach:
            macros.defined[name, side] = macros.value(body.strip(), side) if defines else "unset"
        elif defines and macros.known(name, side) is None:
            macros.defined.setdefault((name, side), "unset")
