"""The arms of `#if` chains as regions of a file, with the sides that reach each. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from warpfront_port.scan.cuda.conditions import Macros, MacroTable, named, truth
from warpfront_port.scan.cuda.lexer import Directive
from warpfront_port.scan.findings import SIDES, Side

Reach = frozenset[Side]
EVERYWHERE: Final[Reach] = frozenset(SIDES)

# Conditions nested deeper than any compiler must take are not followed.
_MAX_NESTING = 256


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
    starts: tuple[int, ...]

    def at(self, offset: int) -> Region:
        return self.regions[bisect_right(self.starts, offset) - 1]


@dataclass(slots=True, kw_only=True)
class _Frame:
    """An open chain. `taken` records for each side whether an earlier arm applied."""

    outside: Region
    taken: dict[Side, bool | None]
    assumed: dict[str, str]
    arms: list[Arm] = field(default_factory=list)


def read_reaches(directives: Sequence[Directive], table: MacroTable) -> Reaches:
    """Return the regions that these directives make.

    A stray `#else` or `#endif` changes nothing, an unclosed `#if` runs to the end.
    """
    macros = Macros(table=table)
    regions = [Region(start=0, reach=EVERYWHERE, arms=())]
    chains: list[ConditionChain] = []
    frames: list[_Frame] = []
    for index, directive in enumerate(directives):
        region_before = regions[-1]
        if directive.name in ("if", "ifdef", "ifndef"):
            frames.append(_opened(directives, index, region_before))
        if directive.name in _ARMS and frames:
            regions.append(_next_arm(directives, index, frames[-1], macros))
        elif directive.name == "endif" and frames:
            frame = frames.pop()
            chains.append(
                ConditionChain(arms=tuple(frame.arms), reach=frame.outside.reach, end=directive.end)
            )
            regions.append(
                Region(start=directive.end, reach=frame.outside.reach, arms=frame.outside.arms)
            )
        elif directive.name in ("define", "undef"):
            _learn(directive, region_before, macros)
    return Reaches(
        regions=tuple(regions),
        chains=tuple(chains),
        starts=tuple(region.start for region in regions),
    )


_ARMS = frozenset({"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else"})


def condition_of(directive: Directive) -> str:
    """Return the condition of the arm that a directive opens."""
    name = directive.body.split(maxsplit=1)[0] if directive.body else ""
    if directive.name in ("ifdef", "elifdef"):
        return f"defined({name})"
    if directive.name in ("ifndef", "elifndef"):
        return f"!defined({name})"
    return "1" if directive.name == "else" else directive.body


def _opened(directives: Sequence[Directive], index: int, outside: Region) -> _Frame:
    """Return the arm that a directive opens.

    A test of hipcc's own macro together with __CUDACC__ implies that the file expects __CUDACC__ to
    be unset there. An include guard's macro is unset on every side, whatever its name.
    """
    assumed = {}
    if "__CUDACC__" in directives[index].body:
        chain = frozenset().union(*(named(condition_of(arm)) for arm in _chain(directives, index)))
        if chain & {"__HIPCC__", "__HIP__", "__HIP_PLATFORM_AMD__"}:
            assumed["__CUDACC__"] = "tells"
    if is_guard(directives, index):
        assumed[directives[index].body] = "guard"
    return _Frame(outside=outside, taken=dict.fromkeys(SIDES, False), assumed=assumed)


def _chain(directives: Sequence[Directive], index: int) -> Iterator[Directive]:
    """Yield the directives of the chain that opens at `index`, without nested chains."""
    depth = 0
    for directive in directives[index : index + _MAX_NESTING]:
        if directive.name in ("if", "ifdef", "ifndef"):
            depth += 1
        if depth == 1 and directive.name in _ARMS:
            yield directive
        if directive.name == "endif":
            depth -= 1
            if depth == 0:
                return


def is_guard(directives: Sequence[Directive], index: int) -> bool:
    """Return true if `#ifndef X` is followed by `#define X` with nothing after it."""
    after = directives[index + 1] if index + 1 < len(directives) else None
    return (
        directives[index].name == "ifndef"
        and after is not None
        and after.name == "define"
        and after.body == directives[index].body
    )


def _next_arm(directives: Sequence[Directive], index: int, frame: _Frame, macros: Macros) -> Region:
    directive = directives[index]
    condition = condition_of(directive)
    reach: set[Side] = set()
    undecided: set[Side] = set()
    for side in SIDES:
        macros.assumed = {
            name: "set" if (why, side) == ("tells", "nvidia") else "unset"
            for name, why in frame.assumed.items()
        }
        holds = truth(condition, side, macros)
        if side in frame.outside.reach and holds is not False and frame.taken[side] is not True:
            reach.add(side)
            undecided |= {side} if holds is None or frame.taken[side] is None else set()
        if frame.taken[side] is not True:
            frame.taken[side] = True if holds else frame.taken[side] if holds is False else None
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
    name, _, body = directive.body.partition(" ")
    if "(" in name or not name or not region.reach:
        return
    possible = frozenset().union(*(arm.open for arm in region.arms))
    if directive.name == "undef":
        macros.undefine(name, region.reach, possible)
        return
    default = bool(region.arms) and condition_of(region.arms[-1].directive) in (
        f"!defined({name})",
        f"!defined {name}",
    )
    macros.define(name, body.strip(), region.reach, possible, default=default)
