"""The value of an `#if` on NVIDIA, on AMD and on neither, as far as that can be known. Pure.

A macro is known from `macros.toml` or from a `#define` of the file itself. Any other macro may be
set or unset, so both arms are reached.
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

import tree_sitter
import tree_sitter_cuda
from tree_sitter import Node

from warpfront_port.scan.findings import SIDES, DocumentInputs, Side

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


@cache
def parser() -> tree_sitter.Parser:
    """Return the parser of C++ with CUDA's keywords, also used for conditions of `#if`."""
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


@dataclass(frozen=True, slots=True, kw_only=True)
class MacroTable:
    """The macros known before a file is read: by name, then by the first fitting pattern."""

    names: Mapping[str, Mapping[Side, DocumentInputs]]
    patterns: tuple[tuple[re.Pattern[str], Mapping[Side, DocumentInputs]], ...]

    def beside(self, names: Mapping[str, Mapping[Side, DocumentInputs]]) -> MacroTable:
        """Return this table with the macros of a tree, which take precedence."""
        if not names:
            return self
        return MacroTable(names=ChainMap(dict(names), dict(self.names)), patterns=self.patterns)

    def known(self, name: str, side: Side) -> DocumentInputs:
        row = self.names.get(name)
        if row is None:
            row = next((row for pattern, row in self.patterns if pattern.search(name)), {})
        return row.get(side)


@cache
def macro_table() -> MacroTable:
    """Return the rows of `macros.toml`."""
    text = resources.files("warpfront_port.scan.cuda").joinpath("macros.toml").read_text("utf-8")
    data = tomllib.loads(text)
    return MacroTable(
        names={name: _sides(row) for row in data["macro"] for name in row["names"]},
        patterns=tuple((re.compile(row["matches"]), _sides(row)) for row in data["pattern"]),
    )


def _sides(row: Mapping[str, DocumentInputs]) -> Mapping[Side, DocumentInputs]:
    return {side: row[side] for side in SIDES if side in row}


@dataclass(slots=True, kw_only=True)
class Macros:
    """The table, and the macros that the file has defined so far. `assumed` overrides both."""

    table: MacroTable
    defined: dict[Side, dict[str, DocumentInputs]] = field(
        default_factory=lambda: {side: {} for side in SIDES}
    )
    assumed: Mapping[str, DocumentInputs] = field(default_factory=dict)

    def known(self, name: str, side: Side) -> DocumentInputs:
        if name in self.assumed:
            return self.assumed[name]
        if name in self.defined[side]:
            return self.defined[side][name]
        return self.table.known(name, side)

    def define(
        self,
        name: str,
        body: str,
        sides: frozenset[Side],
        possible: frozenset[Side] = frozenset(),
        *,
        default: bool = False,
    ) -> None:
        """Record a `#define` that `sides` reach; those of `possible` may or may not.

        `default` is one in `#ifndef name`: the macro is set, and the build may choose its value. On
        the other sides the macro is unset, unless the table or an earlier line defines it.
        """
        for side in SIDES:
            if side in sides and side in possible:
                self.defined[side][name] = "open" if default else None
            elif side in sides:
                self.defined[side][name] = _known(body, side, self)
            elif self.known(name, side) is None:
                self.defined[side].setdefault(name, "unset")

    def undefine(
        self, name: str, sides: frozenset[Side], possible: frozenset[Side] = frozenset()
    ) -> None:
        for side in sides:
            self.defined[side][name] = None if side in possible else "unset"


def _known(body: str, side: Side, macros: Macros) -> DocumentInputs:
    """Return the value of a macro from the body of its `#define`."""
    value = evaluated(body[:_MAX_BODY], _operand(side, macros)) if body else NONZERO
    if value is None:
        return "open"
    return "set" if value == NONZERO else value


def integer(literal: str) -> int | None:
    """Return the value of an integer literal, with or without suffix; None of anything else."""
    match = _INTEGER.fullmatch(literal.replace("'", ""))
    if match is None or match.lastgroup is None:
        return None
    return int(match[match.lastgroup], _BASES[match.lastgroup])


def truth(condition: str, side: Side, macros: Macros) -> bool | None:
    """Return the truth of an `#if` condition on a side; None where it is open."""
    return as_truth(evaluated(condition, _operand(side, macros)))


@lru_cache(maxsize=4096)
def _read(condition: str) -> Node | None:
    """Return the expression of a condition.

    The cache pays: a condition is evaluated once a side, and many occur in many files.
    """
    text = _DEFINED.sub(r"defined(\1)", _ASKING.sub("asked()", _GREATER.sub(">0+(", condition)))
    root = parser().parse(f"x = ({text});".encode("ascii", "replace")).root_node
    whole = root.named_children[0].named_children if root.named_child_count == 1 else []
    return whole[0].child_by_field_name("right") if whole else None


_DEFINED = re.compile(r"\bdefined\b(?:\s*\(\s*(?=\w+\s*\)))?\s*(\w+)\s*\)?")
# lest `A < 1 && B > (2)` be a template
_GREATER = re.compile(r"(?<![>=-])>\s*\(")
_ASKING = re.compile(r"\b__has_\w+\s*\([^()]*\)")


def as_truth(value: Value) -> bool | None:
    return None if value is None else value != 0


def named(condition: str) -> frozenset[str]:
    """Return the macros that a condition names."""
    return frozenset(_NAME.findall(condition)) - _WORDS


_NAME = re.compile(r"(?<![\w'])[A-Za-z_]\w*")
_WORDS = {"defined", "__has_include", "and", "or", "not"}
_ARITHMETIC: Final[Mapping[str, Callable[[int, int], int | None]]] = {
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b), ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b), ">=": lambda a, b: int(a >= b),
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "/": lambda a, b: a // b if b else None,
}  # fmt: skip


def evaluated(expression: str, operand: Callable[[str], Value]) -> Value:
    """Return the value of an expression; `operand` gives that of each name and number.

    An expression that cannot be parsed is open.
    """
    return _value(_read(expression), operand, 0)


def _value(node: Node | None, operand: Callable[[str], Value], depth: int) -> Value:
    if node is None or depth > _MAX_DEPTH or node.has_error:
        return None
    text = (node.text or b"").decode()
    if node.type not in _OPERATIONS:
        return operand(text)
    parts = [_value(child, operand, depth + 1) for child in node.named_children]
    if node.type == "binary_expression":
        return combine((node.children[1].text or b"").decode(), parts[0], parts[1])
    if node.type == "unary_expression":
        return combine(*_SIGNS[(node.children[0].text or b"").decode()], parts[0])
    if node.type == "conditional_expression":
        holds = as_truth(parts[0])
        either = parts[1] if parts[1] == parts[2] else None
        return either if holds is None else parts[1 if holds else 2]
    return parts[0]


_OPERATIONS = {f"{kind}_expression" for kind in ("parenthesized", "binary", "unary", "conditional")}
_SIGNS: Final[Mapping[str, tuple[str, int]]] = {
    "!": ("==", 0), "not": ("==", 0), "-": ("-", 0), "+": ("+", 0), "~": ("^", -1),
    "compl": ("^", -1),
}  # fmt: skip


def _operand(side: Side, macros: Macros) -> Callable[[str], Value]:
    """Return the value of a number or macro, or whether one is defined; other calls are open."""

    def value(text: str) -> Value:
        if text in ("true", "false") or not (match := _OPERAND.fullmatch(text)):
            return int(text == "true") if text in ("true", "false") else integer(text)
        fact = macros.known(match[1], side)
        if match[1] == text:
            return NONZERO if fact == "set" else fact if isinstance(fact, int) else _FIXED[fact]
        if fact is None or (isinstance(fact, int) and match[1] in macros.table.names):
            return None  # the table's value is only for comparisons
        return int(fact != "unset")

    return value


_OPERAND = re.compile(r"(?:defined\()?([A-Za-z_]\w*)\)?")
_FIXED: Final[Mapping[DocumentInputs, int | None]] = {"open": None, None: None, "unset": 0}


def combine(operator: str, first: Value, second: Value) -> Value:
    """Return the value of `first operator second`, open where an open operand decides it."""
    if operator in ("||", "or", "&&", "and"):
        return _logic(operator in ("||", "or"), as_truth(first), as_truth(second))
    if NONZERO in (first, second) and 0 in (first, second) and operator in ("==", "!="):
        return int(operator == "!=")
    if not isinstance(first, int) or not isinstance(second, int) or operator not in _ARITHMETIC:
        return None
    return _ARITHMETIC[operator](first, second)


def _logic(either: bool, first: bool | None, second: bool | None) -> Value:  # noqa: FBT001 - truths
    if first is either or second is either:
        return int(either)
    return None if first is None or second is None else int(not either)
