"""Properties of single nodes of Python's syntax tree. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_FIELDS_WITHOUT_NODES = frozenset(
    {"ctx", "op", "ops", "id", "attr", "kind", "lineno", "name", "arg", "type_params"}
)
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {ast.Constant: ()}
_ANY = ast.Name("_", ast.Load())


class Text(ast.Constant):
    """A string that is a value: the type of the nodes that detectors of texts read."""

    value: str  # type: ignore[mutable-override]


def children_of(node: ast.AST) -> list[ast.AST]:
    """Return the children in source order, without operators and contexts: those are values of
    their parent, shared between nodes.
    """
    kind = type(node)
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(name for name in kind._fields if name not in _FIELDS_WITHOUT_NODES)
    children: list[ast.AST] = []
    for name in _FIELDS[kind]:
        value = getattr(node, name, None)
        if isinstance(value, list):
            children += [child for child in value if isinstance(child, ast.AST)]
        elif isinstance(value, ast.AST):
            children.append(value)
    return children


def called_name(function: ast.expr) -> str:
    """Return the name of a function, or of a method of self; "" for other calls."""
    if isinstance(function, ast.Attribute):
        return function.attr if is_self(function.value) else ""
    return function.id if isinstance(function, ast.Name) else ""


def last_name(node: ast.AST) -> str:
    """Return a dotted expression's last part, or an item's key: `c` of `a.b.c` and `a["c"]`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return text_of(node.slice) or ""
    return node.id if isinstance(node, ast.Name) else ""


def text_of(node: ast.AST | None) -> str | None:
    """Return the string that a constant is."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def names_of(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node itself has."""
    fields = (getattr(node, field, None) for field in ("id", "attr", "arg", "name"))
    yield from (name for name in fields if isinstance(name, str))


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value of the keyword argument `name`."""
    return next((item.value for item in call.keywords if item.arg == name), None)


def elements(node: ast.AST | None) -> list[ast.expr]:
    """Return the elements of a literal list, tuple or set; none of another node."""
    return node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else []


def parameters(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield every parameter with its default, in order, without `self`."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    named = [*zip(positional, defaults, strict=True)]
    if named and named[0][0].arg in {"self", "cls"}:
        named = named[1:]
    named += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    yield from ((argument.arg, default) for argument, default in named)


def bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield (target, value) for every name or attribute that a statement binds.

    The value is None where the statement does not contain it; a loop's is any item.
    """
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _unpacked(target, value)
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.NamedExpr(target=target, value=value)
        ):
            yield from _unpacked(target, value)
        case ast.For() | ast.AsyncFor() | ast.comprehension():
            for item in elements(node.iter) or [ast.Subscript(node.iter, _ANY, ast.Load())]:
                yield from _unpacked(node.target, item)
        case ast.AugAssign(target=target):
            yield target, None
        case ast.withitem(optional_vars=ast.expr() as target):
            yield from _unpacked(target, None)
        case _:
            pass


def _unpacked(
    target: ast.expr, value: ast.expr | None
) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield each unpacked name and its value: both names of `major, minor = f()` have the call."""
    if isinstance(target, ast.Tuple | ast.List):
        pairs = elements(value)
        for index, element in enumerate(target.elts):
            yield from _unpacked(element, pairs[index] if index < len(pairs) else value)
    else:
        yield target, value
