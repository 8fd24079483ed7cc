"""A record of the catalogue: an operation, with everything that a case of it may vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from warpfront_checks.cases.known import KnownDefect

# Numbers for which every result is exact: of sums of products, and of operations without sums.
# The first, which shows most, is drawn half of the time.
SUMS = ("wide", "few", "small")
MOVES = ("wide", "non-finite", "small", "equal")
ROUNDED = ("normal", "quarters", "zeros")
NUMBERS = 200_000
WORK = 400_000
# Cases of a seed, those of operations whose kernels are chosen by several sizes, and those of
# operations that share one kernel of many functions.
CASES, MANY_CASES, FEW_CASES = 20, 54, 12


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation. `code` is an expression of the arguments a, b, c ..., with `{name}` for
    each option and for the size of each axis. `shapes` has a word for the size of each axis,
    arguments between commas. `@n` before a shape draws indices below the size n, `?` booleans, `%`
    orders of the last axis, `!` numbers that have no gradient.

    `definition` is the expression of the reference (default: `code`), where the call's own kernels
    have no independent oracle. Alternatives of other ranks are parted by `|`; `code` fits all.

    `domain` is an expression of sizes, options, and the `shape` of `a`: no case outside of it is
    drawn. It is for calls whose right result depends on rounding, or that have none.

    `usual` and `most` are sizes: an axis's size while another varies, and its largest. Results are
    exact, or off by `roundings` of the largest number and of `least` (`half_roundings` in 16 bits,
    whose sums are float32's). `fit` maps drawn numbers
    into the domain of the call. `kinds` are dtypes besides the floating ones, or instead of them
    where `floats` is False. `changes` means that the call may change `a`. `halves` is False
    where rounding in 16 bits decides a result, `doubles` where torch computes float64 with
    constants of float32. `unseen` are kinds of device on which right kernels have not passed its
    cases since its numbers or bound changed: it is not claimed there, though its topic is.
    """

    name: str
    code: str
    definition: str = ""
    shapes: str = "m n"
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    usual: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    least_size: int = 1
    domain: str = ""
    values: Sequence[str] = SUMS
    exact: bool = True
    ulps: float = 1.0
    roundings: float = 0.0
    walk: float = 0.0
    half_roundings: float = 0.0
    least: float = 0.0
    fit: str = "{x}"
    backward: bool = True
    halves: bool = True
    floats: bool = True
    kinds: Sequence[str] = ()
    doubles: bool = True
    strided: bool = True
    changes: bool = False
    out: bool = False
    in_place: bool = False
    work: int = WORK
    numbers: int = NUMBERS
    cases: int = CASES
    known: tuple[KnownDefect, ...] = ()
    unseen: Sequence[str] = ()

    def arguments(self, rank: int = 0) -> tuple[tuple[str, list[str]], ...]:
        """Return the mark and the axes of each argument, in one of the alternatives."""
        return _arguments(self.shapes.split("|")[rank])

    @property
    def ranks(self) -> int:
        return self.shapes.count("|") + 1

    def sizes(self, rank: int | None = None) -> list[str]:
        """Return the names of all sizes, each once; of one alternative, or of all."""
        ranks = range(self.ranks) if rank is None else [rank]
        operands = [argument for rank in ranks for argument in self.arguments(rank)]
        words = [word for mark, axes in operands for word in (mark.strip("@?%!"), *axes)]
        return list(dict.fromkeys(name for name in words if name and not name.isdigit()))


@cache
def _arguments(shapes: str) -> tuple[tuple[str, list[str]], ...]:
    arguments = []
    for shape in shapes.split(","):
        first, *rest = shape.split() or [""]
        if first[:1] == "@":
            arguments.append((first, rest))
        elif first[:1] in {"?", "%", "!"}:
            arguments.append((first[0], [*filter(None, [first[1:]]), *rest]))
        else:
            arguments.append(("", [first, *rest] if first else []))
    return tuple(arguments)
