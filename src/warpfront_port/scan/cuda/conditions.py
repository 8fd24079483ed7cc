"""The value of an `#if` on NVIDIA, on AMD and on neither, as far as that can be known. Pure.

A macro is known from `macros.toml`, from the tree's headers, or from a `#define` of the file
itself. Any other macro may be set or unset, so both arms are reached.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from typing import Final, Literal

import tree_sitter
import tree_sitter_cuda
from tree_sitter import Node

from warpfront_port.scan.findings import MacroValue, Side

Value = int | None | Literal["set"]
"""None is open; "set" is not zero, but no number is known."""
MacroRow = Mapping[Side, MacroValue]

_MAX_DEPTH = 64
_MAX_BODY = 2000
_OPERAND = re.compile(r"(?:defined\()?([A-Za-z_]\w*)\)?")
_DEFINED = re.compile(r"\bdefined\b(?:\s*\(\s*(?=\w+\s*\)))?\s*(\w+)\s*\)?")
# lest `A < 1 && B > (2)` be a template
_GREATER = re.compile(r"(?<![>=-])>\s*\(")
_ASKING = re.compile(r"\b__has_\w+\s*\([^()]*\)")
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
_SIGNS: Final[Mapping[str, tuple[str, int]]] = {
    "!": ("==", 0), "not": ("==", 0), "-": ("-", 0), "+": ("+", 0), "~": ("^", -1),
    "compl": ("^", -1),
}  # fmt: skip
_OPERATIONS = {f"{kind}_expression" for kind in ("parenthesized", "binary", "unary")}


@cache
def parser() -> tree_sitter.Parser:
    """Return the parser of C++ with CUDA's keywords, also used for conditions of `#if`."""
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


@cache
def _table() -> tuple[Mapping[str, MacroRow], tuple[tuple[re.Pattern[str], MacroRow], ...]]:
    """Return the rows of `macros.toml`: by name, and by pattern."""
    text = resources.files("warpfront_port.scan.cuda").joinpath("macros.toml").read_text("utf-8")
    data = tomllib.loads(text)
    names = {name: row for row in data["macro"] for name in row["names"]}
    return names, tuple((re.compile(row["matches"]), row) for row in data["pattern"])


@cache
def table_row(name: str) -> MacroRow:
    """Return what `macros.toml` knows of a macro: by its name, else by its first pattern."""
    names, patterns = _table()
    fitting = (row for pattern, row in patterns if pattern.search(name))
    return names[name] if name in names else next(fitting, {})


def is_named(name: str) -> bool:
    """Return true if `macros.toml` has the name itself."""
    return name in _table()[0]


@dataclass(slots=True, kw_only=True)
class Macros:
    """The macros of a tree, and those that the file defined so far. `assumed` overrides both."""

    tree: Mapping[str, MacroRow] = field(default_factory=dict)
    defined: dict[tuple[str, Side], MacroValue] = field(default_factory=dict)
    assumed: Mapping[str, MacroValue] = field(default_factory=dict)

    def known(self, name: str, side: Side) -> MacroValue:
        """Return what is known of a macro on a side, by the nearest source."""
        if name in self.assumed:
            return self.assumed[name]
        if (name, side) in self.defined:
            return self.defined[name, side]
        return (self.tree[name] if name in self.tree else table_row(name)).get(side)

    def value(self, body: str, side: Side) -> MacroValue:
        """Return the value of a macro that is defined as `body`."""
        value = evaluated(body[:_MAX_BODY], self._operand(side)) if body else "set"
        return "open" if value is None else value

    def truth(self, condition: str, side: Side) -> bool | None:
        """Return the truth of an `#if` condition on a side; None where it is open."""
        return _as_truth(evaluated(condition, self._operand(side)))

    def _operand(self, side: Side) -> Callable[[str], Value]:
        """Return what gives a number's or macro's value; any call but `defined` is open."""

        def value(text: str) -> Value:
            if text in ("true", "false") or not (match := _OPERAND.fullmatch(text)):
                return int(text == "true") if text in ("true", "false") else integer(text)
            name, fact = match[1], self.known(match[1], side)
            if name == text:
                return 0 if fact == "unset" else None if fact == "open" else fact
            if isinstance(fact, int) and (name in self.tree or is_named(name)):
                return None  # the table's value is only for comparisons
            return None if fact is None else int(fact != "unset")

        return value


def integer(literal: str) -> int | None:
    """Return the value of an integer literal, with or without suffix; None of anything else."""
    digits = literal.replace("'", "").rstrip("uUlLzZ")
    is_octal = digits.isdigit() and digits.startswith("0")
    try:
        return int(digits, 8 if is_octal else 0) if digits[:1].isdigit() else None
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def _read(condition: str) -> Node | None:
    """Return the expression of a condition.

    The cache pays: a condition is evaluated once a side, and many occur in many files.
    """
    text = _DEFINED.sub(r"defined(\1)", _ASKING.sub("asked()", _GREATER.sub(">0+(", condition)))
    root = parser().parse(f"x = ({text});".encode("ascii", "replace")).root_node
    whole = root.named_children[0].named_children if root.named_child_count == 1 else []
    return whole[0].child_by_field_name("right") if whole else None


def named(condition: str) -> frozenset[str]:
    """Return the macros that a condition names."""
    return frozenset(_NAME.findall(condition)) - _WORDS


def evaluated(expression: str, operand: Callable[[str], Value]) -> Value:
    """Return the value of an expression; `operand` gives that of each name and number.

    An expression that cannot be parsed is open.
    """
    return _value(_read(expression), operand, 0)


def _value(node: Node | None, operand: Callable[[str], Value], depth: int) -> Value:
    if node is None or depth > _MAX_DEPTH or node.has_error:
        return None
    if node.type not in _OPERATIONS:
        return operand((node.text or b"").decode())
    parts = [_value(child, operand, depth + 1) for child in node.named_children]
    if node.type == "binary_expression":
        return _combined((node.children[1].text or b"").decode(), parts[0], parts[1])
    if node.type == "unary_expression":
        return _combined(*_SIGNS[(node.children[0].text or b"").decode()], parts[0])
    return parts[0]


def _as_truth(value: Value) -> bool | None:
    return None if value is None else value != 0


def _combined(operator: str, first: Value, second: Value) -> Value:
    """Return the value of `first operator second`, open where an open operand decides it."""
    if operator in ("||", "or", "&&", "and"):
        either, truths = operator in ("||", "or"), (_as_truth(first), _as_truth(second))
        open_ = None if None in truths else int(not either)
        return int(either) if either in truths else open_
    if "set" in (first, second) and 0 in (first, second) and operator in ("==", "!="):
        return int(operator == "!=")
    if not isinstance(first, int) or not isinstance(second, int) or operator not in _ARITHMETIC:
        return None
    return _ARITHMETIC[operator](first, second)
