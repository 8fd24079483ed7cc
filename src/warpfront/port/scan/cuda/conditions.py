"""What an `#if` comes to on NVIDIA, on AMD and without either, as far as that can be known. Pure.

A macro is known from `macros.toml` or from a `#define` of the file itself; of everything else both
answers are possible, and so both arms are reached.
"""

from __future__ import annotations

import re
import tomllib
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from typing import Final, Literal

from warpfront.port.scan.cuda.lexer import Token, tokens
from warpfront.port.scan.findings import SIDES, Known, Side

# An open value is None; NONZERO is defined and true, but no number is known.
NONZERO: Final = "nonzero"
Value = int | None | Literal["nonzero"]

_MAX_DEPTH = 64
_MAX_BODY = 2000
_INTEGER = re.compile(
    r"(?:0[xX](?P<hex>[0-9A-Fa-f]{1,16})|0[bB](?P<bits>[01]{1,64})|(?P<octal>0[0-7]{0,22})|"
    r"(?P<decimal>[1-9]\d{0,19}))[uUlLzZ]*"
)
_BASES = {"hex": 16, "bits": 2, "octal": 8, "decimal": 10}


@dataclass(frozen=True, slots=True, kw_only=True)
class MacroTable:
    """What is known of macros before a file is read: by name, then by the first fitting pattern."""

    names: Mapping[str, Mapping[Side, Known]]
    patterns: tuple[tuple[re.Pattern[str], Mapping[Side, Known]], ...]

    def beside(self, names: Mapping[str, Mapping[Side, Known]]) -> MacroTable:
        """This table and what a tree says of macros, which comes first."""
        if not names:
            return self
        return MacroTable(names=ChainMap(dict(names), dict(self.names)), patterns=self.patterns)

    def known(self, name: str, side: Side) -> Known:
        row = self.names.get(name)
        if row is None:
            row = next((row for pattern, row in self.patterns if pattern.search(name)), {})
        return row.get(side)


@cache
def macro_table() -> MacroTable:
    """The rows of `macros.toml`."""
    text = resources.files("warpfront.port.scan.cuda").joinpath("macros.toml").read_text("utf-8")
    data = tomllib.loads(text)
    return MacroTable(
        names={name: _sides(row) for row in data["macro"] for name in row["names"]},
        patterns=tuple((re.compile(row["matches"]), _sides(row)) for row in data["pattern"]),
    )


def _sides(row: Mapping[str, Known]) -> Mapping[Side, Known]:
    return {side: row[side] for side in SIDES if side in row}


@dataclass(slots=True, kw_only=True)
class Macros:
    """The table, and what the file has defined up to a point; `assumed` overrides both."""

    table: MacroTable
    defined: dict[Side, dict[str, Known]] = field(
        default_factory=lambda: {side: {} for side in SIDES}
    )
    assumed: Mapping[str, Known] = field(default_factory=dict)

    def known(self, name: str, side: Side) -> Known:
        if name in self.assumed:
            return self.assumed[name]
        if name in self.defined[side]:
            return self.defined[side][name]
        return self.table.known(name, side)

    def define(self, name: str, body: str, sides: frozenset[Side]) -> None:
        """A `#define` that `sides` reach. The others are taken not to have the macro, unless the
        table or an earlier line says otherwise.
        """
        for side in SIDES:
            if side in sides:
                self.defined[side][name] = _known(body, side, self)
            elif self.known(name, side) is None:
                self.defined[side].setdefault(name, "unset")

    def undefine(self, name: str, sides: frozenset[Side]) -> None:
        for side in sides:
            self.defined[side][name] = "unset"


def _known(body: str, side: Side, macros: Macros) -> Known:
    """What a `#define` with this body makes of its macro."""
    value = _Evaluation(tuple(tokens(body[:_MAX_BODY])), side, macros).value() if body else NONZERO
    if value is None:
        return "open"
    return "set" if value == NONZERO else value


def integer(literal: str) -> int | None:
    """The value of an integer literal, with or without suffix; None of anything else."""
    found = _INTEGER.fullmatch(literal.replace("'", ""))
    if found is None or found.lastgroup is None:
        return None
    return int(found[found.lastgroup], _BASES[found.lastgroup])


def truth(condition: str, side: Side, macros: Macros) -> bool | None:
    """Whether the condition of an `#if` holds on a side; None where that is open."""
    return as_truth(_Evaluation(_tokens_of(condition), side, macros).value())


@lru_cache(maxsize=4096)
def _tokens_of(condition: str) -> tuple[Token, ...]:
    """Each condition is asked once a side, and many a condition is in many files."""
    return tuple(tokens(condition))


def as_truth(value: Value) -> bool | None:
    return None if value is None else value != 0


def named(condition: str) -> frozenset[str]:
    """The macros that a condition names."""
    names = (token.text for token in _tokens_of(condition) if token.kind == "name")
    return frozenset(names) - _WORDS


_WORDS = {"defined", "__has_include", "and", "or", "not"}
_PRECEDENCE: Final[Mapping[str, int]] = {
    "||": 1, "or": 1, "&&": 2, "and": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6,
    "<": 7, ">": 7, "<=": 7, ">=": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
_OF_SIGNS: Final = max(_PRECEDENCE.values())
"""What a sign is before has none of the operators; signs nest as deep as brackets may."""
_ARITHMETIC: Final[Mapping[str, Callable[[int, int], int]]] = {
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b), ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b), ">=": lambda a, b: int(a >= b),
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
}  # fmt: skip


class _Evaluation:
    """Precedence climbing over the tokens of one condition; what it does not understand is open."""

    def __init__(self, condition: tuple[Token, ...], side: Side, macros: Macros) -> None:
        self.tokens = condition
        self.side = side
        self.macros = macros
        self.at = 0
        self.depth = 0

    def value(self) -> Value:
        value = self.expression(0)
        return value if self.at == len(self.tokens) else None

    def peek(self) -> str:
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    def take(self) -> Token | None:
        if self.at >= len(self.tokens):
            return None
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, text: str) -> bool:
        if self.peek() != text:
            return False
        self.at += 1
        return True

    def expression(self, lowest: int) -> Value:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.at = len(self.tokens) + 1
            return None
        left = self.unary()
        while (precedence := _PRECEDENCE.get(self.peek(), 0)) > lowest:
            operator = self.peek()
            self.at += 1
            left = combine(operator, left, self.expression(precedence))
        if lowest == 0 and self.accept("?"):
            left = self.choice(as_truth(left))
        self.depth -= 1
        return left

    def choice(self, condition: bool | None) -> Value:  # noqa: FBT001 - the value it is about
        yes = self.expression(0)
        no = self.expression(0) if self.accept(":") else None
        if condition is None:
            return yes if yes == no else None
        return yes if condition else no

    def unary(self) -> Value:
        token = self.take()
        if token is None:
            return None
        if token.text in ("!", "not"):
            holds = as_truth(self.expression(_OF_SIGNS))
            return None if holds is None else int(not holds)
        if token.text in ("-", "+", "~"):
            value = self.expression(_OF_SIGNS)
            if not isinstance(value, int):
                return None
            return {"-": -value, "+": value, "~": ~value}[token.text]
        if token.text == "(":
            value = self.expression(0)
            return value if self.accept(")") else None
        return self.operand(token)

    def operand(self, token: Token) -> Value:
        if token.kind == "number":
            return integer(token.text)
        if token.text in ("true", "false"):
            return int(token.text == "true")
        if token.text == "defined":
            return self.defined()
        return self.macro(token.text) if token.kind == "name" else None

    def macro(self, name: str) -> Value:
        if self.accept("("):
            self.skip_arguments()
            return None
        known = self.macros.known(name, self.side)
        if known == "set":
            return NONZERO
        if known == "open":
            return None
        return 0 if known == "unset" else known

    def defined(self) -> Value:
        bracket = self.accept("(")
        token = self.take()
        if token is None or token.kind != "name" or (bracket and not self.accept(")")):
            return None
        known = self.macros.known(token.text, self.side)
        if known is None or (isinstance(known, int) and token.text in self.macros.table.names):
            return None  # a number of the table is what it compares as, should it be there
        return int(known != "unset")

    def skip_arguments(self) -> None:
        depth = 1
        while depth and (token := self.take()) is not None:
            depth += {"(": 1, ")": -1}.get(token.text, 0)


def combine(operator: str, left: Value, right: Value) -> Value:
    """`left operator right`, open where an open operand decides it."""
    if operator in ("||", "or", "&&", "and"):
        return _logic(operator in ("||", "or"), as_truth(left), as_truth(right))
    if NONZERO in (left, right) and 0 in (left, right) and operator in ("==", "!="):
        return int(operator == "!=")
    if not isinstance(left, int) or not isinstance(right, int) or operator not in _ARITHMETIC:
        return None
    return _ARITHMETIC[operator](left, right)


def _logic(either: bool, left: bool | None, right: bool | None) -> Value:  # noqa: FBT001 - truths
    if left is either or right is either:
        return int(either)
    return None if left is None or right is None else int(not either)
