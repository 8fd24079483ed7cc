"""The sources that a Python build lists, with the sides that compile them. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from warpfront_port.scan.findings import Gate, Side
from warpfront_port.scan.python.gates import Gates, forgiving
from warpfront_port.scan.python.module import Module, read_module
from warpfront_port.scan.python.nodes import text_of
from warpfront_port.scan.reach import SOURCE
from warpfront_port.scan.words import is_of_use

_LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSource:
    """A source or pattern, the sides that compile it, and true if the project goes without it."""

    name: str
    line: int
    sides: frozenset[Side]
    optional: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonBuild:
    """The sources of a build."""

    sources: tuple[ListedSource, ...]


def read_build(path: str, text: str) -> PythonBuild | None:
    """Return the build that a module makes, None for a module that does not parse."""
    module = read_module(PurePosixPath(path), text)
    if module is None:
        return None
    gates = Gates(module)
    # The build's own command may catch the compiler's error, and go on. `optional=True` spares no
    # extension: torch's build raises `RuntimeError`, which setuptools does not catch (torch 2.13,
    # utils/cpp_extension.py, `_run_ninja_build`).
    steps = (module.functions.get(name) for name in ("run", "build_extension", "build_extensions"))
    forgiven = any(_catches(node) for step in steps if step for node in ast.walk(step))
    sources: list[ListedSource] = []
    for node in module.of(ast.Constant):
        name = text_of(node)
        if name and len(name) < _LONGEST and SOURCE.search(name):
            to = gates.of_value(node)
            optional = forgiven or to.gate is Gate.OPTION
            source = ListedSource(name=name, line=node.lineno, sides=to.sides, optional=optional)
            sources.append(source)
    return PythonBuild(sources=tuple(sources))


def users_of(texts: Mapping[str, str], builds: Collection[str]) -> Mapping[str, set[str]]:
    """Return, by build, the modules that import its extensions and do not go on without, if any.

    The modules next to a build in a folder are a part of it. A name is first that of a module next
    to the one that imports it.
    """
    folders = {path: f"{path.rpartition('/')[0]}/" for path in builds if "/" in path}
    names = {path: _names_of(texts, path, folders.get(path, "")) for path in builds}
    every = frozenset[str]().union(*names.values())
    users: dict[str, set[str]] = {}
    modules = (path for path in texts if path.endswith(".py") and path not in names)
    for path in modules if every else ():
        extensions_used = every.intersection(() if is_of_use(path) else _WORD.findall(texts[path]))
        outside = [build for build in names if not path.startswith(folders.get(build, "/"))]
        readable = extensions_used and outside
        module = read_module(PurePosixPath(path), texts[path]) if readable else None
        if module is None:
            continue
        for node in (*module.of(ast.Import), *module.of(ast.ImportFrom)):
            used = {
                name
                for name in extensions_used.intersection(_WORD.findall(module.source_of(node)))
                if str(module.path.with_name(f"{name}.py")) not in texts
            }
            for build in outside if used else ():
                if not used.isdisjoint(names[build]):
                    needing = users.setdefault(build, set())
                    needing |= set() if _is_spare(module, node) else {path}
    return users


def _names_of(texts: Mapping[str, str], build: str, folder: str) -> set[str]:
    """Return the names of a build's extensions, of its module, and of a folder of its own."""
    names = {*_CUDA_EXTENSION.findall(texts[build]), PurePosixPath(build).stem}
    if folder:
        names |= {PurePosixPath(folder).name}
        beside = (PurePosixPath(path) for path in texts if path.startswith(folder))
        names |= {p.stem for p in beside if p.suffix == ".py" and f"{p.parent}/" == folder}
        names |= {name.partition(".")[0] for name in _EXTENSION.findall(texts[build])}
    return names - {"setup"}


_CUDA_EXTENSION = re.compile(r"CUDAExtension\(\s*(?:name\s*=\s*)?[\"'](?:\w+\.)*(\w+)[\"']")
_EXTENSION = re.compile(r"(?:Extension\(\s*|\bname\s*=\s*)[\"']([\w.]+)[\"']")
_WORD = re.compile(r"\w+")


def _is_spare(module: Module, node: ast.AST) -> bool:
    """Return true for an import whose failure is caught and raised nowhere else."""
    tries = (parent for parent, _ in module.ancestors(node) if _catches(parent))
    handlers = getattr(next(tries, None), "handlers", ())
    inner = [statement for handler in handlers for statement in ast.walk(handler)]
    return bool(inner) and not any(isinstance(statement, ast.Raise) for statement in inner)


def _catches(node: ast.AST) -> bool:
    return isinstance(node, ast.Try) and any(map(forgiving, node.handlers))
