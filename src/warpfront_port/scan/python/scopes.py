"""The possible values of a module's expressions, scope by scope. Pure.

A name has the values of its own scope, or of the next enclosing scope that assigns it; a parameter
has its default. A call of the module's own function has the function's return values. Composed text
contains `HOLE` for each unknown part.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from warpfront_port.scan.python.nodes import (
    FUNCTIONS,
    bindings,
    children_of,
    is_self,
    keyword,
    last_name,
    parameters,
)

if TYPE_CHECKING:
    from warpfront_port.scan.python.module import Module

HOLE = "\ufffc"
STARTERS = frozenset(
    {"run", "call", "check_call", "check_output", "Popen", "popen", "system", "which"}
    | {"getoutput", "getstatusoutput", "create_subprocess_exec", "create_subprocess_shell"}
    | {"execute"}
)
_DEPTH = 10
_MOST = 24
_BINDING = (
    ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension,
    ast.AugAssign, ast.withitem,
)  # fmt: skip
_SCOPES = (
    *FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Module, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp,
)  # fmt: skip
_SAME = frozenset({"lower", "upper", "strip", "casefold", "rstrip", "lstrip"})
_CASTS = frozenset({"shlex.split", "list", "tuple", "str", "os.fspath", "pathlib.Path"})
# Calls that have a default last, or as an argument of this name.
_DEFAULTED = frozenset({"get", "getenv", "pop", "setdefault", "getattr"})
_FIELDS = frozenset({"field", "Field", "Option", "Argument"})


class Text(NamedTuple):
    """A string that a value may be, and the node that it is written at."""

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
        # Variables that are made of each other have exponentially many compositions.
        self.words, self.texts = cache(self._words), cache(self._texts)
        self._outer = {
            (self._chain(node)[0], name)
            for node in module.nodes
            if isinstance(node, ast.Global | ast.Nonlocal)
            for name in node.names
        }
        for node in module.nodes:
            if isinstance(node, _BINDING):
                for target, value in bindings(node):
                    self._bind(node, target, value)
            elif isinstance(node, (*FUNCTIONS, ast.Lambda)):
                for argument, default in parameters(node.args):
                    self._names.setdefault((node, argument), []).append(default)
                    self._parameters.setdefault(node, []).append(argument)
        self._bound = frozenset(name for _, name in self._names)
        self.aliases = frozenset(
            name
            for (_, name), assigned in self._names.items()
            if len(assigned) == 1 and isinstance(assigned[0], ast.Attribute | ast.Call)
        )

    def _bind(self, node: ast.AST, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            owner, *outer = self._chain(node)
            if (owner, target.id) in self._outer:  # `global` and `nonlocal` name an outer scope
                functions = (scope for scope in outer if isinstance(scope, FUNCTIONS))
                holders = (scope for scope in functions if (scope, target.id) in self._names)
                owner = next(holders, outer[-1] if outer else owner)
            self._names.setdefault((owner, target.id), []).append(value)
            if isinstance(owner, ast.ClassDef):
                self._attributes.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Attribute):
            self._attributes.setdefault(target.attr, []).append(value)

    def _chain(self, node: ast.AST) -> tuple[ast.AST, ...]:
        """Return the scopes around `node`, from the innermost out."""
        for inner, _ in self._module.ancestors(node):
            if isinstance(inner, _SCOPES):
                if inner not in self._owners:
                    self._owners[inner] = (inner, *self._chain(inner))
                return self._owners[inner]
        return ()

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

    def _assigned(self, node: ast.AST) -> Sequence[ast.expr | None]:
        """Return the values of a name (or an attribute of self) that is no parameter."""
        if isinstance(node, ast.Name):
            return () if self.is_parameter(node) else self.bound(node)
        if isinstance(node, ast.Attribute) and is_self(node.value):
            return self._attributes.get(node.attr, ())
        return ()

    def one(self, node: ast.AST) -> ast.AST:
        """Return the one expression assigned to a name (or an attribute of self), else `node`.

        A value that is made of the name itself, `X = X.strip()`, is no other one.
        """
        values, name = self._assigned(node), last_name(node)
        if len(values) > 1:
            values = [v for v in values if not v or name not in map(last_name, ast.walk(v))]
        return values[0] if len(values) == 1 and values[0] is not None else node

    def made_of(self, node: ast.AST, depth: int = 0) -> frozenset[str]:
        """Return the dotted names that a value is computed from, `torch.cuda.f().major` too."""
        if depth > _DEPTH:
            return frozenset()
        if values := [value for value in self._assigned(node) if value is not None]:
            return frozenset().union(*(self.made_of(value, depth + 1) for value in values))
        parts, ending = children_of(node), ""
        match node:
            case ast.Name():
                return frozenset({self._module.dotted(node)})
            case ast.Call(func=ast.Attribute(attr=name, value=value)) if name in _SAME:
                parts = [value]
            case ast.Call(func=ast.Attribute() as function):
                parts, ending = [function], "()"
            case ast.Call(func=function, args=arguments):
                called = self.made_of(function, depth + 1)
                inner = (self.made_of(argument, depth + 1) for argument in arguments)
                return frozenset(f"{name}()" for name in called).union(*inner)
            case ast.Attribute(attr=name, value=value):
                parts, ending = [value], f".{name}"
            case _:
                pass
        names = frozenset[str]().union(*(self.made_of(part, depth + 1) for part in parts))
        return frozenset(f"{name}{ending}" for name in names)

    def values(self, node: ast.AST | None, depth: int = 0) -> tuple[ast.expr, ...]:
        """Return the possible expressions of `node`, names and choices followed."""
        results: list[ast.expr] = []
        met: set[ast.AST] = set()  # names that are made of each other have no end
        pending: list[tuple[ast.AST | None, int]] = [(node, depth)]
        while pending and len(results) < _MOST:
            value, at = pending.pop()
            if at <= _DEPTH and isinstance(value, ast.expr) and value not in met:
                met.add(value)
                further = self._further(value, at)
                results += [value] if further is None else []
                pending += [(inner, at + 1) for inner in reversed([*(further or ())])]
        return tuple(results)

    def _further(self, node: ast.expr, depth: int) -> Iterable[ast.expr | None] | None:
        """Return the expressions to follow next; None where `node` is a value itself."""
        further: Iterable[ast.expr | None] | None = None
        match node:
            case ast.Name():
                further = self.bound(node) or None
            case ast.Attribute(attr="value", value=ast.Attribute() as member):
                further = self._further(member, depth)
            case ast.Attribute(attr=name, value=ast.Name(id=owner) as value):
                owned = is_self(value) or owner in self._module.classes
                further = self._attributes.get(name) if owned else None
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
        name = last_name(call.func)
        if self._module.dotted(call.func) in _CASTS:
            return call.args[:1]
        if isinstance(call.func, ast.Attribute) and name in (*_SAME, "split", "copy"):
            return (call.func.value,)
        if name in _FIELDS or (name in _DEFAULTED and len(call.args) > 1):
            named, first = keyword(call, "default"), -1 if name in _DEFAULTED else 0
            return (named,) if named is not None else call.args[first:][:1]
        return self._module.returned.get(name)

    def is_parameter(self, name: ast.Name) -> bool:
        """Return true if `name` is a parameter here, whose value callers choose."""
        scope = self._scope_of(name)
        return scope is not None and name.id in self._parameters.get(scope, ())

    def heads(self, call: ast.Call) -> Iterator[Text]:
        """Yield the possible beginnings of the command that a call starts: its first word at
        least, whatever follows.
        """
        starts = last_name(call.func) in STARTERS
        command = call.args[0] if call.args else keyword(call, "args")
        for value in self.values(command) if starts else ():
            lists = self.words(value)
            for head in [word for words in lists for word in words[:1]] if lists else [value]:
                yield from self.texts(head)

    def _words(self, node: ast.expr, depth: int = 0) -> tuple[list[ast.expr], ...]:
        """Return the lists that `node` may be, with what is added to them and put into them.

        An unknown part is there as its expression.
        """
        lists: list[list[ast.expr]] = []
        for value in self.values(node, depth):
            match value:
                case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                    spliced = (next(iter(self.words(part, depth + 1)), [part]) for part in parts)
                    lists.append([word for words in spliced for word in words])
                case ast.BinOp(op=ast.Add(), left=first, right=second):
                    sides = [self.words(part, depth + 1) for part in (first, second)]
                    # An unknown one may be a list of any words.
                    pairs = itertools.product(sides[0] or ([first],), sides[1] or ([second],))
                    more = ([*words, *rest] for words, rest in pairs) if any(sides) else ()
                    lists += itertools.islice(more, _MOST)
                case _:
                    pass
        return tuple(lists[:_MOST])

    def _texts(self, node: ast.AST | None, depth: int = 0) -> tuple[Text, ...]:
        """Return the strings that `node` may be."""
        candidates: list[Text] = []
        for value in self.values(node, depth):
            composed = self._composed(value, depth + 1) if depth <= _DEPTH else ()
            candidates += (Text(text=text, node=value) for text in composed)
        return tuple(candidates[:_MOST])

    def _composed(self, node: ast.expr, depth: int) -> Iterator[str]:
        match node:
            case ast.Constant(value=str() as text):
                yield text
            case ast.JoinedStr(values=parts):
                yield from self._product(parts, depth)
            case ast.FormattedValue(value=value):
                yield from self._pieces(value, depth)
            case ast.BinOp(op=ast.Add() | ast.Div() as operator, left=first, right=second):
                glue = "/" if isinstance(operator, ast.Div) else ""
                joined = list(self._product((first, second), depth, glue))
                yield from (text for text in joined if text.strip(f"{HOLE}/"))
            case (
                ast.BinOp(op=ast.Mod(), left=template)
                | ast.Call(func=ast.Attribute(attr="format", value=template))
            ):
                yield from (text.text for text in self.texts(template, depth))
            case ast.Call(args=parts) if self._module.dotted(node.func) == "os.path.join":
                yield from self._product(parts, depth, "/")
            case _:
                pass

    def _pieces(self, node: ast.expr, depth: int) -> Sequence[str]:
        texts = self.texts(node, depth) if depth <= _DEPTH else ()
        return [text.text for text in texts] or [HOLE]

    def _product(self, parts: Sequence[ast.expr], depth: int, glue: str = "") -> Iterator[str]:
        combinations = itertools.product(*(self._pieces(part, depth) for part in parts))
        yield from (glue.join(combination) for combination in itertools.islice(combinations, _MOST))
