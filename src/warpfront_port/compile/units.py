"""The files of a tree to compile: the declared ones, or else its kernels. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Literal

from warpfront.errors import InputError
from warpfront_port.scan.graph import followed
from warpfront_port.scan.python.gates import Gates
from warpfront_port.scan.python.module import Module
from warpfront_port.scan.python.nodes import text_of
from warpfront_port.scan.reach import include_graph

Kind = Literal["kernel", "plain", "extension"]
"""Device code, C or C++, or a setup.py that builds through `torch.utils.cpp_extension`."""

KERNELS = frozenset({".cu", ".cuh", ".hip"})
PLAIN = frozenset({".c", ".cc", ".cpp", ".cxx"})
HEADERS = frozenset({".h", ".hh", ".hpp", ".hxx", ".inl", ".cuh"})
READ = KERNELS | PLAIN | HEADERS
SETUP = "setup.py"
_COMPILED = (*KERNELS, *PLAIN, SETUP)
_TORCH = re.compile(r"(?m)^[ \t]*#[ \t]*include[ \t]*[<\"](?:torch|ATen|c10|caffe2|pybind11)/")
_DEFINITION = re.compile(r"-D[A-Za-z_]\w*(?:=\w+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceUnit:
    """A file to compile, relative to the tree's root. `torch` is whether it includes torch's
    headers, itself or through headers of the tree.
    """

    path: str
    kind: Kind
    torch: bool


def units_of(texts: Mapping[str, str], patterns: Iterable[str] = ()) -> tuple[SourceUnit, ...]:
    """Return the units among `texts` (path to text), in the order of paths: matches of
    `patterns`, or without any, the kernels.

    A .cuh counts where no file of the tree includes it. Raise `InputError` for a pattern that
    matches nothing that could be compiled.
    """
    patterns, (_, users) = tuple(patterns), include_graph(texts)
    near_torch = followed((path for path, text in texts.items() if _TORCH.search(text)), users)
    headers = {path for path in users if path.lower().endswith(".cuh")}
    kernels = {path for path in texts if _kind(path) == "kernel"} - headers
    return tuple(
        SourceUnit(path=path, kind=kind, torch=path in near_torch or kind == "extension")
        for path in sorted(_declared(texts, patterns) if patterns else kernels)
        for kind in (_kind(path),)
    )


def include_folders(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the folders of the tree that a build would most likely give to `-I`, shallow ones
    first: the root, `include`, `csrc` and `src` where they have files.
    """
    folders = {
        str(PurePosixPath(*parts[: depth + 1]))
        for parts in (PurePosixPath(path).parts for path in paths)
        for depth in range(min(len(parts) - 1, 2))
        if parts[depth] in {"include", "csrc", "src"}
    }
    return (".", *sorted(folders, key=lambda folder: (folder.count("/"), folder)))


def definitions_of(path: str, text: str) -> Iterator[str]:
    """Yield the macros that a Python build certainly defines for AMD, as options: `-DX=1`.

    They are words of an option list, and pairs such as `("X", "1")` of `define_macros`.
    """
    module = Module(PurePosixPath(path), text)
    gates = Gates(module)
    for node in module.nodes:
        words = [text_of(part) for part in getattr(node, "elts", (node,))]
        if isinstance(node, ast.Tuple) and len(words) == 2 and "define_macros" in text:
            words = [f"-D{words[0]}" + (f"={words[1]}" if words[1] else "")]
        elif not isinstance(node, ast.Constant):
            continue
        given = [word for word in words if word and _DEFINITION.fullmatch(word)]
        tests = (
            isinstance(parent, ast.If)
            and module.conditions.truths(parent.test)["amd"] is (child in parent.body)
            for parent, child in module.ancestors(node)
            if isinstance(parent, ast.If | ast.Return | ast.ExceptHandler)
        )
        if given and all(tests) and "amd" in gates.of_value(node).sides:
            yield from given


def _declared(texts: Iterable[str], patterns: Iterable[str]) -> set[str]:
    paths = [path for path in texts if path.lower().endswith(_COMPILED)]
    chosen: set[str] = set()
    for pattern in patterns:
        matching = {path for path in paths if fnmatchcase(path, pattern)}
        if not matching:
            hint = "sources are .cu, .cuh, .hip, .c, .cc, .cpp, .cxx files and setup.py"
            raise InputError(f"no source of the tree matches {pattern!r}", hint=hint)
        chosen |= matching
    return chosen


def _kind(path: str) -> Kind:
    if PurePosixPath(path).name == SETUP:
        return "extension"
    return "kernel" if PurePosixPath(path).suffix.lower() in KERNELS else "plain"
