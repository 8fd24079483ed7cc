"""The modules of a tree whose functions always call a function with a finding. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from warpfront_port.scan.graph import followed

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINED = (*_FUNCTIONS, ast.ClassDef)
# The methods that a use of a class runs.
_USED = frozenset({"__init__", "__call__", "__enter__", "forward", "backward"})
# What runs only sometimes, or elsewhere.
_ASIDE = (ast.If, ast.IfExp, ast.Try, ast.BoolOp, ast.Match, ast.Lambda)


def callers_of(
    texts: Mapping[str, str], places: Iterable[tuple[str, int]]
) -> Mapping[tuple[str, int], frozenset[str]]:
    """Return the modules of `texts` that always call the function around each place, itself or
    through others, by path. A call behind a condition or a try may not run.
    """
    modules = {path: tree for path, text in texts.items() if (tree := parsed(text)) is not None}
    defined = {
        path: {node.name: node for node in tree.body if isinstance(node, _DEFINED)}
        for path, tree in modules.items()
    }
    by_name: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for path, names in defined.items():
        for name in names:
            parts = PurePosixPath(path).with_suffix("").parts
            by_name.setdefault(name, []).append((path, parts))
    callers: dict[str, set[str]] = {}
    for path, tree in modules.items():
        imported = {
            alias.asname or alias.name: ((node.module or "").rpartition(".")[2], alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for name, body in defined[path].items():
            for called in _always_called(body):
                folder, original = imported.get(called, ("", ""))
                owners = [path] if called in defined[path] else []
                if original and not owners:
                    owners = [p for p, parts in by_name.get(original, ()) if folder in parts]
                for owner in owners:
                    callers.setdefault(f"{owner}:{original or called}", set()).add(f"{path}:{name}")
    found: dict[tuple[str, int], frozenset[str]] = {}
    for path, line in places:
        around = (
            f"{path}:{name}"
            for name, node in defined.get(path, {}).items()
            if node.lineno <= line <= (node.end_lineno or 0)
        )
        keys = followed(around, callers)
        found[path, line] = frozenset(key.rpartition(":")[0] for key in keys)
    return found


def parsed(text: str) -> ast.Module | None:
    """Return the syntax tree, None for text that does not parse."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _always_called(node: ast.AST) -> Iterator[str]:
    """Yield the names in the calls that a function, or the use of a class, makes at once."""
    for child in ast.iter_child_nodes(node):
        is_method = isinstance(node, ast.ClassDef) and isinstance(child, _FUNCTIONS)
        if is_method and getattr(child, "name", "") not in _USED:
            continue
        if isinstance(child, ast.Call):
            yield from (name.id for name in ast.walk(child.func) if isinstance(name, ast.Name))
        if not isinstance(child, _ASIDE):
            yield from _always_called(child)
