"""The possible values of a module's expressions, scope by scope. Pure.

A name has the values of its own scope, or of the next enclosing scope that assigns it. A parameter
has its default and the arguments of calls in the module. A call of the module's own function has
the function's return values. Composed text contains `HOLE` for each unknown part.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warpfront_port.scan.python.module import Module

HOLE = "\ufffc"
_DEPTH = 10
_MOST = 24
_BINDING = (
    ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension,
    ast.AugAssign, ast.withitem,
)  # fmt: skip
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Module)
_SAME = frozenset({"lower", "upper", "strip", "casefold", "rstrip", "lstrip"})
# Calls that take a default: the index of its positional argument.
_DEFAULTS = {
    "get": 1, "getenv": 1, "pop": 1, "setdefault": 1, "getattr": 2, "field": 9, "Field": 0,
    "Option": 0, "Argument": 0,
}  # fmt: skip
_FORMATTED = re.compile(r"%(?:\(\w+\))?[-+ #0]*\d*(?:\.\d+)?[sdifrgex]")
_BRACES = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A string that an expression may be, and the node that it is written at."""

    text: str
    node: ast.AST


class Scopes:
    """Answers for the expressions of one module."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._names: dict[tuple[ast.AST, str], list[ast.expr | None]] = {}
        self._attributes: dict[str, list[ast.expr | None]] = {}
        self._parameters: dict[ast.AST, list[str]] = {}
        self._owners: dict[ast.AST, tuple[ast.AST, ...]] = {}
        self._texts: dict[tuple[ast.AST, int], tuple[Text, ...]] = {}
        self._outer: set[tuple[ast.AST, str]] = set()
        for node in module.nodes:
            if isinstance(node, ast.Global | ast.Nonlocal):
                self._outer |= {(self._chain(node)[0], name) for name in node.names}
        for node in module.nodes:
            if isinstance(node, _BINDING):
                for target, value in bindings(node):
                    self._bind(node, target, value)
            elif isinstance(node, (*_FUNCTIONS, ast.Lambda)):
                self._bind_parameters(node)
        self._bound = frozenset(name for _, name in self._names)
        self.aliases = frozenset(
            name
            for (_, name), assigned in self._names.items()
            if len(assigned) == 1 and isinstance(assigned[0], ast.Attribute | ast.Call)
        )

    def _bind(self, node: ast.AST, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            owner = self._owner(node, target.id)
            self._names.setdefault((owner, target.id), []).append(value)
            if isinstance(owner, ast.ClassDef):
                self._attributes.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Attribute):
            self._attributes.setdefault(target.attr, []).append(value)

    def _owner(self, node: ast.AST, name: str) -> ast.AST:
        """Return the scope that an assignment to `name` at `node` binds it in.

        `global` and `nonlocal` name an outer scope.
        """
        inner, *outer = self._chain(node)
        if (inner, name) not in self._outer:
            return inner
        functions = (scope for scope in outer if isinstance(scope, _FUNCTIONS))
        holders = (scope for scope in functions if (scope, name) in self._names)
        return next(holders, outer[-1] if outer else inner)

    def _bind_parameters(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        for argument, default in parameters(node.args):
            self._names.setdefault((node, argument), []).append(default)
            self._parameters.setdefault(node, []).append(argument)

    def _chain(self, node: ast.AST) -> tuple[ast.AST, ...]:
        """Return the scopes around `node`, from the innermost out."""
        inner = node
        parents = self._module.parents
        while inner in parents:
            inner = parents[inner]
            if isinstance(inner, _SCOPES):
                chain = self._owners.get(inner)
                if chain is None:
                    chain = self._owners[inner] = (inner, *self._chain(inner))
                return chain
        return (inner,) if isinstance(node, ast.expr | ast.stmt) and inner is node else ()

    def _scope_of(self, name: ast.Name) -> ast.AST | None:
        """Return the scope that defines `name` here. A class's names are its own body's only."""
        if name.id not in self._bound:
            return None
        for place, scope in enumerate(self._chain(name)):
            if (scope, name.id) in self._names and not (place and isinstance(scope, ast.ClassDef)):
                return scope
        return None

    def bound(self, name: ast.Name) -> Sequence[ast.expr | None]:
        """Return the values of `name` in the scope that it is read from; None if unknown."""
        scope = self._scope_of(name)
        return self._names[scope, name.id] if scope is not None else ()

    def one(self, node: ast.AST) -> ast.AST:
        """Return the one expression assigned to a name (or an attribute of self), else `node`."""
        values: Sequence[ast.expr | None] = ()
        if isinstance(node, ast.Name):
            values = () if self.is_parameter(node) else self.bound(node)
        elif isinstance(node, ast.Attribute) and _is_self(node.value):
            values = self._attributes.get(node.attr, ())
        return values[0] if len(values) == 1 and values[0] is not None else node

    def values(self, node: ast.AST | None, depth: int = 0) -> tuple[ast.expr, ...]:
        """Return the possible expressions of `node`, names and choices followed."""
        results: list[ast.expr] = []
        self._follow(node, depth, set(), results)
        return tuple(results)

    def _follow(
        self, node: ast.AST | None, depth: int, met: set[ast.AST], results: list[ast.expr]
    ) -> None:
        """Follow each expression once, since names that are made of each other have no end."""
        over = depth > _DEPTH or len(results) >= _MOST
        if over or not isinstance(node, ast.expr) or node in met:
            return
        met.add(node)
        further = self._further(node, depth)
        if further is None:
            results.append(node)
        for inner in further or ():
            self._follow(inner, depth + 1, met, results)

    def _further(self, node: ast.expr, depth: int) -> Iterable[ast.expr | None] | None:
        """Return the expressions to follow next; None where `node` is a value itself."""
        further: Iterable[ast.expr | None] | None = None
        match node:
            case ast.Name():
                further = (*self.bound(node), *self._handed_over(node)) or None
            case ast.Attribute():
                further = self._attribute(node)
            case ast.IfExp(body=body, orelse=orelse):
                further = (body, orelse)
            case ast.BoolOp(values=values):
                further = values
            case ast.NamedExpr(value=value) | ast.Starred(value=value):
                further = (value,)
            case ast.Subscript(value=table, slice=key):
                further = self._items(table, key, depth)
            case ast.Call():
                further = self._called(node)
            case _:
                pass
        return further

    def _attribute(self, node: ast.Attribute) -> Iterable[ast.expr | None] | None:
        if node.attr == "value" and isinstance(node.value, ast.Attribute):
            return self._attribute(node.value)
        owned = isinstance(node.value, ast.Name) and (
            _is_self(node.value) or node.value.id in self._module.classes
        )
        return self._attributes.get(node.attr) if owned else None

    def _items(self, table: ast.expr, key: ast.expr, depth: int) -> list[ast.expr] | None:
        items: list[ast.expr] = []
        for value in self.values(table, depth + 1):
            if isinstance(value, ast.Dict):
                items += [
                    item
                    for name, item in zip(value.keys, value.values, strict=True)
                    if not isinstance(key, ast.Constant)
                    or (isinstance(name, ast.Constant) and name.value == key.value)
                ]
            elif isinstance(value, ast.List | ast.Tuple):
                items += value.elts
        return items or None

    def _called(self, call: ast.Call) -> Iterable[ast.expr | None] | None:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        name = call.func.id if isinstance(call.func, ast.Name) else name
        if name in _SAME and isinstance(call.func, ast.Attribute):
            return (call.func.value,)
        if name in _DEFAULTS:
            place = _DEFAULTS[name]
            defaults = [item.value for item in call.keywords if item.arg == "default"]
            return [*defaults, *call.args[place : place + 1]] or None
        return self._module.returned.get(name)

    def is_parameter(self, name: ast.Name) -> bool:
        """Return true if `name` is a parameter here, whose value callers choose."""
        scope = self._scope_of(name)
        return scope is not None and name.id in self._parameters.get(scope, ())

    def _handed_over(self, name: ast.Name) -> Iterator[ast.expr]:
        """Yield the arguments of this module's calls for the parameter `name`."""
        scope = self._scope_of(name)
        names = self._parameters.get(scope, []) if scope is not None else []
        if name.id in names and isinstance(scope, _FUNCTIONS):
            for call in self._module.called.get(scope.name, ())[:_MOST]:
                yield from _argument(call, name.id, names.index(name.id))

    def texts(self, node: ast.AST | None, depth: int = 0) -> tuple[Text, ...]:
        """Return the strings that `node` may be.

        Cached: variables that are made of each other have exponentially many compositions.
        """
        if node is None:
            return ()
        if (node, depth) not in self._texts:
            self._texts[node, depth] = self._read_texts(node, depth)
        return self._texts[node, depth]

    def _read_texts(self, node: ast.AST, depth: int) -> tuple[Text, ...]:
        texts: list[Text] = []
        for value in self.values(node, depth):
            if isinstance(value, ast.Constant):
                if isinstance(value.value, str):
                    texts.append(Text(text=value.value, node=value))
            elif depth <= _DEPTH:
                texts += (Text(text=text, node=value) for text in self._composed(value, depth + 1))
        return tuple(texts[:_MOST])

    def _composed(self, node: ast.expr, depth: int) -> Iterator[str]:
        match node:
            case ast.JoinedStr(values=parts):
                yield from self._product(parts, depth)
            case ast.FormattedValue(value=value):
                yield from self._pieces(value, depth)
            case ast.BinOp(op=ast.Add(), left=first, right=second):
                joined = list(self._product((first, second), depth))
                yield from (text for text in joined if text.strip(HOLE))
            case ast.BinOp(op=ast.Mod(), left=first, right=second):
                pieces = second.elts if isinstance(second, ast.Tuple) else [second]
                yield from self._filled(first, _FORMATTED, pieces, depth)
            case ast.Call(func=ast.Attribute(attr="format", value=base), args=pieces):
                yield from self._filled(base, _BRACES, pieces, depth)
            case ast.Call(func=ast.Attribute(attr="join", value=base), args=[listed]):
                for value in self.values(listed, depth):
                    if isinstance(value, ast.List | ast.Tuple):
                        glue = next(self._pieces(base, depth))
                        yield glue.join(next(self._pieces(e, depth)) for e in value.elts)
            case _:
                return

    def _pieces(self, node: ast.expr, depth: int) -> Iterator[str]:
        texts = self.texts(node, depth) if depth <= _DEPTH else ()
        yield from (text.text for text in texts)
        if not texts:
            yield HOLE

    def _product(self, parts: Sequence[ast.expr], depth: int) -> Iterator[str]:
        pieces = [tuple(self._pieces(part, depth)) for part in parts]
        combinations = itertools.product(*pieces)
        yield from ("".join(combination) for combination in itertools.islice(combinations, _MOST))

    def _filled(
        self, template: ast.expr, hole: re.Pattern[str], pieces: Sequence[ast.expr], depth: int
    ) -> Iterator[str]:
        for text in self.texts(template, depth):
            filling = [next(self._pieces(piece, depth)) for piece in pieces]
            holes = hole.split(text.text)
            filling += [HOLE] * len(holes)
            yield "".join(itertools.chain(*zip(holes, filling, strict=False)))[: -len(HOLE)]


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def parameters(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield every parameter with its default, in order, without `self`."""
    positional = [*arguments.posonlyargs, *arguments.args]
    missing = len(positional) - len(arguments.defaults)
    defaults: list[ast.expr | None] = [None] * missing + list(arguments.defaults)
    named = [*zip(positional, defaults, strict=True)]
    if named and named[0][0].arg in {"self", "cls"}:
        named = named[1:]
    named += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    yield from ((argument.arg, default) for argument, default in named)


def _argument(call: ast.Call, name: str, place: int) -> Iterator[ast.expr]:
    if place < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args):
        yield call.args[place]
    yield from (item.value for item in call.keywords if item.arg == name)


def bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield (target, value) for every name or attribute that a statement binds.

    The value is None where the statement does not contain it.
    """
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield from _unpacked(node.target, node.value)
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        literal = node.iter.elts if isinstance(node.iter, ast.List | ast.Tuple | ast.Set) else ()
        for value in literal or (None,):
            yield from _unpacked(node.target, value)
    elif isinstance(node, ast.AugAssign):
        yield node.target, None
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _unpacked(node.optional_vars, None)


def _unpacked(
    target: ast.expr, value: ast.expr | None
) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield each unpacked name and its value: both names of `major, minor = f()` have the call."""
    if isinstance(target, ast.Tuple | ast.List):
        pairs = value.elts if isinstance(value, ast.Tuple | ast.List) else ()
        for index, element in enumerate(target.elts):
            yield from _unpacked(element, pairs[index] if index < len(pairs) else value)
    else:
        yield target, value
