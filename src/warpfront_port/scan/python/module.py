"""A parsed Python module: names to dotted names, nodes to parents and offsets. Pure."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import TypeVar, cast

from warpfront_port.scan.graph import followed
from warpfront_port.scan.python.conditions import Conditions
from warpfront_port.scan.python.nodes import (
    FUNCTIONS,
    Text,
    called_name,
    children_of,
    last_name,
    text_of,
)
from warpfront_port.scan.python.scopes import Scopes
from warpfront_port.scan.words import NAMES_AMD, line_starts

_SCOPES = (*FUNCTIONS, ast.Lambda, ast.Module)
# Words for NVIDIA's devices, its programs and libraries, and for the same of AMD's.
_NVIDIA = re.compile(
    r"(?i)cuda(?!_?graph)|(?:compute|device|cuda)_?capabilit|\.cuh?\Z|(?<=[=,])(?:sm|compute)_"
    r"|(?:(?<![a-z])|(?<=-l))(?:nvidia(?!/)|nv(?:ml|cc|rtc|gpu|smi|link)|nsight"
    r"|cu(?:blas|dnn|fft|sparse|solver)|(?:tma|ptx|cubin)(?![a-z]))"
    r"|(?<![a-z0-9])(?:sm_?\d\d(?!\d)|sm_\Z|cu(?=\d|\\d))"
)
_WORD = re.compile(r"\w+")
# Flags, and variables that ROCm reads too; torch's devices, and its key of options for a compiler.
_FLAG = (
    r"(?:-*(?:no|use|is|with)[-_]?)?cuda|.*CUDA_(?:VISIBLE_DEVICES|LAUNCH_BLOCKING|DEVICE_ORDER)"
)
_TORCHS = (
    r"-*(?:[a-z][\w-]*[-_])?cuda(?:s|[-_](?!v?er|capab)[a-z]\w*)?|.*CUDA_ALLOC_CONF|nvcc|.*\.cuh?"
)
_SHARED = [re.compile(rf"(?:{words})(?::.*)?\Z") for words in (_FLAG, f"{_FLAG}|{_TORCHS}")]
_SAYING = re.compile(r"(?i)print|echo|warn|info|error|exception|debug|critical|log\Z|exit")
_Node = TypeVar("_Node", bound=ast.AST)


@dataclass(frozen=True, slots=True)
class Seen:
    """A node that a rule is about, before its gates are evaluated.

    `excerpt` defaults to the node's source. `via` is the node where the value takes effect, if it
    is another one.
    """

    rule: str
    node: ast.AST
    excerpt: str = ""
    shift: int = 0
    via: ast.AST | None = None


class Module:
    """The properties of one module that rules query.

    `nodes` are all nodes, parents before children, in source order. Raises `SyntaxError`,
    `ValueError` (null bytes) or `RecursionError` (nesting deeper than the interpreter reads). It
    reads the syntax of the running Python.
    """

    def __init__(self, path: PurePosixPath, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = ast.parse(text.removeprefix("\ufeff"))
        self._dotted: dict[ast.AST, str] = {}
        self._searched: dict[re.Pattern[str], bool] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = []
        self._by_type: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        pending: list[ast.AST] = [self.tree]
        while pending:
            node = pending.pop()
            self.nodes.append(node)
            self._by_type[type(node)].append(node)
            children = children_of(node)
            for child in children:
                self.parents[child] = node
            children.reverse()
            pending += children
        self.imported: dict[str, str] = {}
        """Local name to dotted name, over all scopes: `nvtx` to `torch.cuda.nvtx`."""
        for node in self.of(ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                self.imported[alias.asname or top] = alias.name if alias.asname else top
        for node_from in self.of(ast.ImportFrom):
            prefix = "." * node_from.level + (node_from.module or "")
            for alias in node_from.names:
                self.imported[alias.asname or alias.name] = f"{prefix}.{alias.name}"
        self._import_roots = {name.split(".")[0] for name in self.imported.values()} - {""}
        self._line_starts = line_starts(text)
        self._is_ascii = text.isascii()

    def of(self, kind: type[_Node]) -> Sequence[_Node]:
        """Return the nodes of this exact type, in source order."""
        return cast("Sequence[_Node]", self._by_type[kind])

    def dotted(self, node: ast.AST) -> str:
        """Return `torch.cuda.is_available` for that expression, imports followed; "" for others."""
        if node in self._dotted:
            return self._dotted[node]
        whole, parts = node, list[str]()
        self._dotted[node] = ""  # of names that are aliases of each other
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Call):
            # `getattr(torch, "compile")` is the attribute; others are `name()`, before a dot.
            if called_name(node.func) == "getattr" and len(node.args) >= 2:
                name = text_of(node.args[1])
                parts.append(f"{self.dotted(node.args[0])}.{name}" if name else "")
            else:
                parts.append(f"{self.dotted(node.func)}()" if parts else "")
        elif isinstance(node, ast.Name):
            parts.append(self._of_name(node))
        else:
            parts.append("")
        self._dotted[whole] = ".".join(reversed(parts)) if parts[-1] else ""
        return self._dotted[whole]

    def _of_name(self, node: ast.Name) -> str:
        """Return the dotted name imported under the name, or the one that it is an alias of."""
        if node.id in self.imported:
            return self.imported[node.id]
        value = self.scopes.one(node) if node.id in self.scopes.aliases else node
        if isinstance(value, ast.Attribute | ast.Call):
            dotted = self.dotted(value)
            if dotted.split(".")[0] in self._import_roots and not dotted.endswith(")"):
                return dotted
        return node.id

    def ancestors(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Yield (parent, child on the way to it), from the inside out."""
        while node in self.parents:
            parent = self.parents[node]
            yield parent, node
            node = parent

    def scope(self, node: ast.AST) -> ast.AST:
        """Return the innermost function (or the module) that `node` runs in."""
        return next(
            (parent for parent, _ in self.ancestors(node) if isinstance(parent, _SCOPES)), self.tree
        )

    def is_said(self, node: ast.AST) -> bool:
        """Return true if a text is only printed, logged or raised."""
        calls = (call for call, _ in self.ancestors(node) if isinstance(call, ast.Call))
        call = next(calls, None)
        return call is not None and _SAYING.search(last_name(call.func)) is not None

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the offsets of `node` in the text, in characters."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None) or column
        return self._offset(line, column), self._offset(end_line, end_column)

    def _offset(self, line: int, column_bytes: int) -> int:
        start = self._line_starts[min(line, len(self._line_starts)) - 1]
        if self._is_ascii or column_bytes == 0:
            return start + column_bytes
        stretch = self.text[start : start + column_bytes].encode("utf-8", "replace")
        return start + len(stretch[:column_bytes].decode(errors="ignore"))

    def source_of(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def excerpt(self, node: ast.AST) -> str:
        """Return the source of `node` on one line, truncated where it is long."""
        return " ".join(self.source_of(node).split())[:80]

    @cached_property
    def texts(self) -> Sequence[Text]:
        """Return the strings that are values, and no statements of their own."""
        strings = (node for node in self.of(ast.Constant) if isinstance(node.value, str))
        return [cast("Text", s) for s in strings if not isinstance(self.parents[s], ast.Expr)]

    @cached_property
    def scopes(self) -> Scopes:
        """Return the possible values of the module's expressions."""
        return Scopes(self)

    @cached_property
    def conditions(self) -> Conditions:
        """Return the values of the module's tests, side by side."""
        return Conditions(self, asks=self.knows_hip)

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Return the classes that the module defines, by name."""
        return {node.name: node for node in self.of(ast.ClassDef)}

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        """Return the functions and methods that the module defines, by name."""
        return {node.name: node for node in self.nodes if isinstance(node, FUNCTIONS)}

    @cached_property
    def returned(self) -> Mapping[str, Sequence[ast.expr]]:
        """Return the values that each function returns, in source order."""
        by_function: dict[str, list[ast.expr]] = {}
        for node in self.of(ast.Return):
            scope = self.scope(node)
            if node.value is not None and isinstance(scope, FUNCTIONS):
                by_function.setdefault(scope.name, []).append(node.value)
        return by_function

    @cached_property
    def started(self) -> set[str]:
        """Return the functions and classes that the module's own statements start, by name."""
        calls: dict[str, set[str]] = {}
        for node in self.of(ast.Call):
            calls.setdefault(self.owner(node), set()).add(last_name(node.func))
        return followed({""}, calls)

    def uses(self, node: ast.AST) -> list[ast.Name]:
        """Return the uses of the names that the statement around `node` assigns."""
        names = self._given(node)
        return [
            use
            for use in (self.of(ast.Name) if names else ())
            if use.id in names and isinstance(use.ctx, ast.Load) and use.id not in self._given(use)
        ]

    def _given(self, node: ast.AST) -> set[str]:
        """Return the names that the statement around `node` assigns."""
        statement = next((p for p, _ in self.ancestors(node) if isinstance(p, ast.stmt)), node)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        return {target.id for target in targets if isinstance(target, ast.Name)}

    def owner(self, node: ast.AST) -> str:
        """Return the outermost function or class whose call runs `node`; "" for the module."""
        around = [parent for parent, _ in self.ancestors(node)]
        if not any(isinstance(parent, FUNCTIONS) for parent in around):
            return ""
        named = (*FUNCTIONS, ast.ClassDef)
        return next(parent.name for parent in reversed(around) if isinstance(parent, named))

    @cached_property
    def builds_extensions(self) -> bool:
        """Return true if the module builds extensions."""
        return (
            not self.packages.isdisjoint({"setuptools", "distutils", "skbuild"})
            or "cpp_extension" in self.text
            or "-gencode" in self.text
            or self.path.name == "setup.py"
        )

    def has_match(self, pattern: re.Pattern[str]) -> bool:
        """Return true if the text has a match of `pattern`, which is searched for once."""
        if pattern not in self._searched:
            self._searched[pattern] = pattern.search(self.text) is not None
        return self._searched[pattern]

    @property
    def knows_hip(self) -> bool:
        """Return true if the module names AMD's software anywhere."""
        return self.has_match(NAMES_AMD)

    @cached_property
    def nvidia_names(self) -> frozenset[str]:
        """Return the words of the text that mean NVIDIA's devices, where it names none of AMD's."""
        names = () if self.knows_hip else _WORD.findall(self.text)
        return frozenset(filter(self.means_nvidia, set(names)))

    def means_nvidia(self, text: str) -> bool:
        """Return true for a name or text that means NVIDIA's devices alone."""
        shared = _SHARED["torch" in self.packages]
        return _NVIDIA.search(text) is not None and shared.match(text) is None

    @cached_property
    def packages(self) -> frozenset[str]:
        """Return top-level packages that the module imports anywhere."""
        names = [alias.name for node in self.of(ast.Import) for alias in node.names]
        names += [node.module or "" for node in self.of(ast.ImportFrom) if not node.level]
        return frozenset(name.split(".")[0] for name in names if name)


def read_module(path: PurePosixPath, text: str) -> Module | None:
    """Return the module, None for text that does not parse."""
    try:
        return Module(path, text)
    except (SyntaxError, ValueError, RecursionError):
        return None
