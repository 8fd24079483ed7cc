"""A record of the catalogue: an operation, with everything that a case of it may vary."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from warpfront_checks.cases.known_defects import KnownDefect

# Numbers for which every result is exact: of sums of products, and of operations without sums.
# The first, which shows most, is drawn half of the time.
SUMS = ("wide", "few", "small")
MOVES = ("wide", "non-finite", "small", "equal")
ROUNDED = ("normal", "quarters", "zeros")
NUMBERS = 200_000
WORK = 400_000
HALVES = ("float16", "bfloat16")
# The largest size of rounded results in 16 bits: some kernels add up in the dtype itself.
HALF_SIZE = 127
# Cases of a seed, those of operations whose kernels are chosen by several sizes, and those of
# operations that share one kernel of many functions. Up to three cases share an oracle.
CASES, MANY_CASES, FEW_CASES = 48, 98, 29


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation. `code` is an expression of the arguments a, b, c ..., with `{name}` for
    each option and for the size of each axis. `shapes` has a word for the size of each axis,
    arguments between commas. `@n` before a shape draws indices below the size n, `&n` ones of 32
    bits too, `?` booleans, `%` orders of the last axis, `!` numbers that have no gradient.

    `definition` is the expression of the reference (default: `code`), where the call's own kernels
    have no independent oracle. Alternatives of other ranks are parted by `|`; `code` fits all.

    `domain` is an expression of sizes, options, and the `shape` of `a`: no case outside of it is
    drawn. It is for calls whose right result depends on rounding, or that have none.

    Long sums of a record that `cancels` may be small by cancellation. Products and places in images
    do not: that a rounding moves one is in its `roundings`.

    `usual` and `most` are sizes: an axis's size while another varies, and its largest. Results are
    exact, or off by `roundings` of the largest number and of `least` (`half_roundings` in 16 bits,
    whose sums are float32's). `fit` maps drawn numbers into the domain of the call. `kinds` are
    dtypes besides the floating ones, or instead of them where `floats` is False. `halves` is False
    where rounding in 16 bits decides a result, or the only kind of device on which 16 bits are
    claimed; there `half_size` is the largest size, and no gradient is judged where `half_backward`
    is False. `doubles` is False where torch computes float64 with constants of float32. Operands of
    an operation that `promotes` may differ in dtype; those in `absent` may be None, alone or
    together. `unseen` are kinds of device on which right kernels have not passed its cases since
    its numbers or bound changed: it is not claimed there, though its topic is.
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
    cancels: bool = True
    least: float = 0.0
    fit: str = "{x}"
    backward: bool = True
    halves: bool | str = True
    half_size: int = HALF_SIZE
    half_backward: bool = True
    floats: bool = True
    kinds: Sequence[str] = ()
    doubles: bool = True
    strided: bool = True
    absent: Sequence[str] = ()
    promotes: bool = False
    work: int = WORK
    numbers: int = NUMBERS
    cases: int = CASES
    defects: tuple[KnownDefect, ...] = ()
    unseen: Sequence[str] = ()

    def arguments(self, rank: int = 0) -> tuple[tuple[str, list[str]], ...]:
        """Return the mark and the axes of each argument, in one of the alternatives."""
        return _arguments(self.shapes.split("|")[rank])

    @cached_property
    def destinations(self) -> tuple[str, ...]:
        """Return where results may go, "" for new memory. aten declares which functions take `out`
        and which have a method that changes `a`; what it generates itself Python does not have.
        Without torch, where cases are printed and not run, each may be.
        """
        call = _call_of_operands(self.code)
        if call is None:
            return ("",)
        name, arguments, keywords = call
        overloads = _overloads(name)
        if overloads is None:
            return ("", "in place", "out")
        import torch  # noqa: PLC0415 - it is there

        out = any(
            torch.Tag.generated not in each.tags
            and _takes_out(each._schema.arguments, len(arguments), keywords)
            for each in overloads
        )
        method = arguments[0] == "a" and hasattr(torch.Tensor, f"{name}_")
        return ("", *["in place"] * method, *["out"] * out)

    @cached_property
    def takes_dtype(self) -> bool:
        """Return whether the call may name its result's dtype, by aten; without torch each may."""
        call = _call_of_operands(self.code)
        if call is None or "dtype" in call[2]:
            return False
        overloads = _overloads(call[0])
        return overloads is None or any(
            argument.name == "dtype" for each in overloads for argument in each._schema.arguments
        )

    def dtypes_on(self, kind: str, dtypes: Sequence[str]) -> tuple[str, ...]:
        """Return those of a device's floating dtypes that are claimed on its kind."""
        narrow = self.halves in {True, kind}
        return tuple(name for name in dtypes if narrow or name not in HALVES)

    def least_of(self, name: str) -> int:
        """Return the least length of a size: one that is usually less than all is free of them."""
        return 1 if self.usual.get(name, self.least_size) < self.least_size else self.least_size

    @property
    def ranks(self) -> int:
        return self.shapes.count("|") + 1

    def sizes(self, rank: int | None = None) -> list[str]:
        """Return the names of all sizes, each once; of one alternative, or of all."""
        ranks = range(self.ranks) if rank is None else [rank]
        operands = [argument for rank in ranks for argument in self.arguments(rank)]
        words = [word for mark, axes in operands for word in (mark.strip("@&?%!"), *axes)]
        return list(dict.fromkeys(name for name in words if name and not name.isdigit()))


@cache
def _arguments(shapes: str) -> tuple[tuple[str, list[str]], ...]:
    arguments = []
    for shape in shapes.split(","):
        first, *rest = shape.split() or [""]
        if first[:1] in {"@", "&"}:
            arguments.append((first, rest))
        elif first[:1] in {"?", "%", "!"}:
            arguments.append((first[0], [*filter(None, [first[1:]]), *rest]))
        else:
            arguments.append(("", [first, *rest] if first else []))
    return tuple(arguments)


# The text of an operand, or the beginning of a list of some.
OPERANDS = {"a", "b", "c", "a,", "b,"}
NAMESPACES = {"torch": "", "torch.linalg": "linalg_", "torch._C._nn": ""}


def _call_of_operands(code: str) -> tuple[str, list[str], list[str]] | None:
    """Return aten's name of the function whose call an expression is, its arguments and the names
    of its keywords; None where no argument is an operand itself.
    """
    try:
        call = ast.parse(code, mode="eval").body
    except SyntaxError:
        return None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
        return None
    prefix = NAMESPACES.get(ast.unparse(call.func.value))
    texts = [ast.unparse(argument) for argument in call.args]
    if prefix is None or not any(text.strip("[]")[:2] in OPERANDS for text in texts):
        return None
    return prefix + call.func.attr, texts, [str(keyword.arg) for keyword in call.keywords]


def _overloads(name: str) -> list[Any] | None:
    """Return aten's overloads of a function, or None without torch."""
    try:
        import torch  # noqa: PLC0415 - the catalogue is read without it
    except ImportError:
        return None
    packet = getattr(torch.ops.aten, name, None)
    return [getattr(packet, each) for each in packet.overloads()] if packet else []


def _takes_out(schema: Sequence[Any], positional: int, keywords: Sequence[str]) -> bool:
    """Return whether a schema has `out` besides such arguments, and needs no other."""
    inputs = [each for each in schema if not each.is_out]
    ordered = [each.name for each in inputs if not each.kwarg_only]
    passed = {*ordered[:positional], *keywords}
    needed = {each.name for each in inputs if not each.has_default_value()}
    fits = positional <= len(ordered) and needed <= passed <= {each.name for each in inputs}
    return len(inputs) < len(schema) and fits
