"""One parsed Python module: names to dotted names, nodes to parents and offsets. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_VALUES = frozenset(
    {"ctx", "op", "ops", "id", "attr", "kind", "lineno", "name", "arg", "type_params"}
)
_SCOPES = (*FUNCTIONS, ast.Lambda, ast.Module)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A node that a rule is about, before anybody looked at what stands around it."""

    rule: str
    node: ast.AST
    what: str = ""
    shift: int = 0


class Module:
    """What the rules ask of one module.

    `nodes` are all nodes, parents before children, in source order. Raises `SyntaxError`,
    `ValueError` (null bytes) or `RecursionError` (nesting deeper than the interpreter reads).
    """

    def __init__(self, path: PurePosixPath, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = ast.parse(text)
        self._dotted: dict[ast.AST, str] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes = self._ordered_nodes()
        self.imported = self._imported_names()
        self._line_starts = self._starts()

    def _ordered_nodes(self) -> list[ast.AST]:
        nodes: list[ast.AST] = []
        pending: list[ast.AST] = [self.tree]
        while pending:
            node = pending.pop()
            nodes.append(node)
            children = _children(node)
            for child in children:
                self.parents[child] = node
            children.reverse()
            pending += children
        return nodes

    def _imported_names(self) -> dict[str, str]:
        """Local name to dotted name, over all scopes: `nvtx` -> `torch.cuda.nvtx`."""
        names: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    names[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom):
                prefix = "." * node.level + (node.module or "")
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{prefix}.{alias.name}"
        return names

    def _starts(self) -> list[int]:
        """Where lines begin, as the parser counts them: at \\n, \\r\\n and \\r only."""
        starts, text, at = [0], self.text, 0
        while at < len(text):
            newline, carriage = text.find("\n", at), text.find("\r", at)
            if carriage >= 0 and (newline < 0 or carriage < newline):
                at = carriage + (2 if text.startswith("\r\n", carriage) else 1)
            elif newline >= 0:
                at = newline + 1
            else:
                break
            starts.append(at)
        return starts

    def dotted(self, node: ast.AST) -> str:
        """`torch.cuda.is_available` for that expression, imports followed; "" for others."""
        known = self._dotted.get(node)
        if known is None:
            known = self._dotted[node] = self._spelled(node)
        return known

    def _spelled(self, node: ast.AST) -> str:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Call) and parts:
            parts.append(f"{self.dotted(node.func)}()")
        elif isinstance(node, ast.Name):
            parts.append(self.imported.get(node.id, node.id))
        else:
            return ""
        return ".".join(reversed(parts))

    def ancestors(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """(parent, child on the way to it), from the inside out."""
        while node in self.parents:
            parent = self.parents[node]
            yield parent, node
            node = parent

    def scope(self, node: ast.AST) -> ast.AST:
        """The innermost function (or the module) that `node` runs in."""
        return next(
            (parent for parent, _ in self.ancestors(node) if isinstance(parent, _SCOPES)), self.tree
        )

    def in_function(self, node: ast.AST) -> bool:
        return not isinstance(self.scope(node), ast.Module)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Offsets of `node` in the text, in characters."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None) or column
        return self._offset(line, column), self._offset(end_line, end_column)

    def _offset(self, line: int, column_bytes: int) -> int:
        start = self._line_starts[min(line, len(self._line_starts)) - 1]
        if self._is_ascii or column_bytes == 0:
            return start + column_bytes
        stretch = self.text[start : start + column_bytes]
        return start + len(
            stretch.encode("utf-8", "replace")[:column_bytes].decode(errors="ignore")
        )

    @cached_property
    def _is_ascii(self) -> bool:
        return self.text.isascii()

    def source_of(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    @cached_property
    def docstrings(self) -> frozenset[ast.AST]:
        """Strings that stand alone as statements: nobody's values."""
        return frozenset(
            node.value
            for node in self.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        )

    @cached_property
    def assigned(self) -> dict[str, ast.expr | None]:
        """Name to the expression it is given; None where it is given more than one."""
        found: dict[str, ast.expr | None] = {}
        for node in self.nodes:
            for name, value in _bindings(node):
                found[name] = None if name in found else value
        return found

    @cached_property
    def returned(self) -> dict[str, tuple[ast.expr, ...]]:
        """Function name to what it returns, in source order."""
        found: dict[str, tuple[ast.expr, ...]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Return) and node.value is not None:
                scope = self.scope(node)
                if isinstance(scope, FUNCTIONS):
                    found[scope.name] = (*found.get(scope.name, ()), node.value)
        return found

    def value_of(self, node: ast.AST) -> ast.AST:
        """What `node` stands for: the one expression its name was given, else itself."""
        if isinstance(node, ast.Name):
            return self.assigned.get(node.id) or node
        return node

    @cached_property
    def called(self) -> dict[str, tuple[ast.Call, ...]]:
        """Name to the calls of it in this module."""
        found: dict[str, tuple[ast.Call, ...]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found[node.func.id] = (*found.get(node.func.id, ()), node)
        return found

    @cached_property
    def launches_triton(self) -> bool:
        return "triton" in self.text

    @cached_property
    def builds_extensions(self) -> bool:
        """Whether the module is one that builds extensions."""
        return (
            not self.modules.isdisjoint({"setuptools", "distutils", "skbuild"})
            or "cpp_extension" in self.text
            or self.path.name == "setup.py"
        )

    @cached_property
    def modules(self) -> frozenset[str]:
        """Top-level packages that the module imports anywhere."""
        names: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
        return frozenset(names)


def _children(node: ast.AST) -> list[ast.AST]:
    """The children in source order, without operators and contexts: those are values of their
    parent, shared between nodes.
    """
    children: list[ast.AST] = []
    for name in node._fields:
        if name in _VALUES:
            continue
        value = getattr(node, name, None)
        if isinstance(value, list):
            children += [child for child in value if isinstance(child, ast.AST)]
        elif isinstance(value, ast.AST):
            children.append(value)
    return children


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield from _unpacked(node.target, node.value)


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """`major, minor = capability()` gives both names the call."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Attribute):
        yield target.attr, value
    elif isinstance(target, ast.Tuple | ast.List):
        pairs = value.elts if isinstance(value, ast.Tuple | ast.List) else ()
        for index, element in enumerate(target.elts):
            yield from _unpacked(element, pairs[index] if index < len(pairs) else value)


def text_of(node: ast.AST | None) -> str | None:
    """The string that a constant is."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def is_true(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value in (True, "1", "true", "True")


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of the keyword argument `name`."""
    return next((item.value for item in call.keywords if item.arg == name), None)
