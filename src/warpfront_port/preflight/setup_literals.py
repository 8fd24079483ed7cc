"""Values of expressions of a setup.py that follow from its literals. Pure.

Nothing of the file is run: its syntax tree is read, and each operation that is known here is made
on values that came from literals. Whatever else occurs ends the reading.
"""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

MOST_STEPS = 20_000
_MOST_CHARACTERS = 1_000_000


class NotLiteralError(Exception):
    """The value does not follow from literals."""


class Placed(str):
    """A string literal with its line (1-based)."""

    __slots__ = ("line",)
    line: int

    @classmethod
    def at(cls, text: str, place: object) -> Self:
        made = cls(text)
        made.line = place if isinstance(place, int) else getattr(place, "line", 1)
        return made


# A class of characters, once or many times: patterns that no text makes slow.
_SIMPLE_PATTERN = re.compile(r"(\[[^\]\\]*\]|[\w ;,=<>!~-])[+]?")


def _fields(pattern: str, text: str) -> list[str]:
    if not _SIMPLE_PATTERN.fullmatch(pattern):
        raise NotLiteralError
    return re.split(pattern, text)


_COMPARES: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "dict": dict,
    "sorted": sorted,
    "str": str,
    "len": len,
    "sum": lambda many, start=0: sum(many, start),
    "re.split": _fields,
}
_METHODS = frozenset(
    {"strip", "lstrip", "rstrip", "split", "splitlines", "lower", "replace", "startswith"}
    | {"endswith", "join", "partition", "rpartition", "removeprefix", "removesuffix"}
    | {"values", "items", "keys", "get", "union", "copy"}
)


class Literals:
    """The names that a module assigns once, and the values of its expressions."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        self._names = dict(pair for node in nodes for pair in _assigned(node))
        bound = Counter(_bound(node) for node in nodes)
        self._changed = {name for name, times in bound.items() if times > 1}
        self._steps = 0

    def of(self, node: ast.expr) -> Any:
        """Return the value of `node`. Raise `NotLiteralError`."""
        try:
            return self._of(node, {})
        except NotLiteralError:
            raise
        except Exception as error:
            raise NotLiteralError from error

    def source_of(self, node: ast.expr) -> tuple[ast.expr, bool]:
        """Return the expression that a name stands for, and whether nothing else changes it."""
        is_sure, seen = True, set[str]()
        while isinstance(node, ast.Name) and node.id in self._names and node.id not in seen:
            seen.add(node.id)
            is_sure = is_sure and node.id not in self._changed
            node = self._names[node.id]
        return node, is_sure

    def _of(self, node: ast.expr, local: Mapping[str, Any]) -> Any:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise NotLiteralError
        method: Callable[[Any, Mapping[str, Any]], Any] | None
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise NotLiteralError
        value = method(node, local)
        if isinstance(value, str | list | tuple | set | dict) and len(value) > _MOST_CHARACTERS:
            raise NotLiteralError
        return value

    def _constant(self, node: ast.Constant, _local: Mapping[str, Any]) -> Any:
        is_text = isinstance(node.value, str)
        return Placed.at(str(node.value), node.lineno) if is_text else node.value

    def _name(self, node: ast.Name, local: Mapping[str, Any]) -> Any:
        if node.id in local:
            return local[node.id]
        if node.id in self._changed or node.id not in self._names:
            raise NotLiteralError
        return self._of(self._names[node.id], {})

    def _list(self, node: ast.List | ast.Tuple | ast.Set, local: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = []
        for one in node.elts:
            if isinstance(one, ast.Starred):
                found += self._of(one.value, local)
            else:
                found.append(self._of(one, local))
        return found

    _tuple = _list
    _set = _list

    def _dict(self, node: ast.Dict, local: Mapping[str, Any]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found |= self._of(value, local)
            else:
                found[self._of(key, local)] = self._of(value, local)
        return found

    def _binop(self, node: ast.BinOp, local: Mapping[str, Any]) -> Any:
        left, right = self._of(node.left, local), self._of(node.right, local)
        if isinstance(node.op, ast.Add):
            value = left + right
        elif isinstance(node.op, ast.Mod) and isinstance(left, str) and "%" in left:
            # A width of a billion characters is as short to write as one of two.
            if re.search(r"%[^sd%]", left):
                raise NotLiteralError
            value = left % (tuple(right) if isinstance(right, list) else right)
        else:
            raise NotLiteralError
        return Placed.at(value, left) if isinstance(value, str) else value

    def _joinedstr(self, node: ast.JoinedStr, local: Mapping[str, Any]) -> str:
        parts = []
        for one in node.values:
            if isinstance(one, ast.FormattedValue):
                if one.format_spec is not None or one.conversion != -1:
                    raise NotLiteralError
                parts.append(str(self._of(one.value, local)))
            else:
                parts.append(str(self._of(one, local)))
        return Placed.at("".join(parts), node.lineno)

    def _subscript(self, node: ast.Subscript, local: Mapping[str, Any]) -> Any:
        value = self._of(node.value, local)
        if isinstance(node.slice, ast.Slice):
            bounds = (node.slice.lower, node.slice.upper, node.slice.step)
            found = value[slice(*(one if one is None else self._of(one, local) for one in bounds))]
        else:
            found = value[self._of(node.slice, local)]
        return Placed.at(found, value) if isinstance(value, Placed) else found

    def _unaryop(self, node: ast.UnaryOp, local: Mapping[str, Any]) -> Any:
        value = self._of(node.operand, local)
        if isinstance(node.op, ast.Not):
            return not value
        if isinstance(node.op, ast.USub) and isinstance(value, int):
            return -value
        raise NotLiteralError

    def _compare(self, node: ast.Compare, local: Mapping[str, Any]) -> bool:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARES:
            raise NotLiteralError
        right = self._of(node.comparators[0], local)
        return bool(_COMPARES[type(node.ops[0])](self._of(node.left, local), right))

    def _boolop(self, node: ast.BoolOp, local: Mapping[str, Any]) -> bool:
        each = (bool(self._of(one, local)) for one in node.values)
        return all(each) if isinstance(node.op, ast.And) else any(each)

    def _ifexp(self, node: ast.IfExp, local: Mapping[str, Any]) -> Any:
        return self._of(node.body if self._of(node.test, local) else node.orelse, local)

    def _listcomp(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, local: Mapping[str, Any]
    ) -> list[Any]:
        return [self._of(node.elt, names) for names in self._rounds(node.generators, local)]

    _setcomp = _listcomp
    _generatorexp = _listcomp

    def _dictcomp(self, node: ast.DictComp, local: Mapping[str, Any]) -> dict[Any, Any]:
        return {
            self._of(node.key, names): self._of(node.value, names)
            for names in self._rounds(node.generators, local)
        }

    def _rounds(
        self, generators: list[ast.comprehension], local: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Any]]:
        if not generators:
            yield local
            return
        first, *others = generators
        for value in self._of(first.iter, local):
            names = {**local, **dict(_unpacked(first.target, value))}
            if all(self._of(one, names) for one in first.ifs):
                yield from self._rounds(others, names)

    def _call(self, node: ast.Call, local: Mapping[str, Any]) -> Any:
        arguments = [self._of(one, local) for one in node.args]
        if node.keywords:
            raise NotLiteralError
        name = ast.unparse(node.func)
        if name in _FUNCTIONS and name not in self._names:
            value = _FUNCTIONS[name](*arguments)
            of = arguments[-1] if name == "re.split" else None
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            of = self._of(node.func.value, local)
            if _longest(of, node.func.attr, arguments) > _MOST_CHARACTERS:
                raise NotLiteralError
            value = getattr(of, node.func.attr)(*arguments)
        else:
            raise NotLiteralError
        if isinstance(of, Placed):
            return _placed(value, of)
        return list(value) if type(value).__name__.startswith("dict_") else value


def _longest(of: Any, method: str, arguments: list[Any]) -> int:
    """At most how many characters come of a method that multiplies them."""
    if method == "replace":
        return (len(of) + 1) * (len(arguments[1]) + 1)
    if method == "join":
        return (len(of) + 1) * len(arguments[0]) + sum(map(len, arguments[0]))
    return 0


def _placed(value: Any, of: Placed) -> Any:
    """The strings that came of a literal, at its line."""
    if isinstance(value, str):
        return Placed.at(value, of)
    if isinstance(value, list | tuple):
        return [Placed.at(one, of) if isinstance(one, str) else one for one in value]
    return value


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The names that a statement gives its whole value."""
    if isinstance(node, ast.Assign):
        names = [one.id for one in node.targets if isinstance(one, ast.Name)]
        yield from ((name, node.value) for name in names)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        yield node.target.id, node.value


def _bound(node: ast.AST) -> str:
    """The name that a node binds or changes, in whatever way; "" for none."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return node.id
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.arg):
        return node.arg
    inside: ast.expr | None = None
    if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        inside = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        # `append` and its like: what grows or shrinks is no literal any more.
        inside = node.func.value if node.func.attr not in _METHODS else None
    return inside.id if isinstance(inside, ast.Name) else ""


def _unpacked(target: ast.expr, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        for one, part in zip(target.elts, list(value), strict=True):
            yield from _unpacked(one, part)
    else:
        raise NotLiteralError
