"""The files of a tree to compile: the declared ones, or else its kernels. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Literal

from warpfront.errors import InputError

Kind = Literal["kernel", "plain", "extension"]
"""Device code, C or C++, or a setup.py that builds through `torch.utils.cpp_extension`."""

KERNELS = frozenset({".cu", ".cuh", ".hip"})
PLAIN = frozenset({".c", ".cc", ".cpp", ".cxx"})
HEADERS = frozenset({".h", ".hh", ".hpp", ".hxx", ".inl", ".cuh"})
READ = KERNELS | PLAIN | HEADERS
SETUP = "setup.py"
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^<>"\n]+)[>"]', re.MULTILINE)
_TORCH = re.compile(r"(?:torch|ATen|c10|caffe2|pybind11)/")


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
    patterns = tuple(patterns)
    includes = {path: tuple(_INCLUDE.findall(text)) for path, text in texts.items()}
    chosen = _declared(texts, patterns) if patterns else _found(includes)
    near_torch = _near_torch(includes)
    return tuple(
        SourceUnit(
            path=path, kind=_kind(path), torch=path in near_torch or _kind(path) == "extension"
        )
        for path in sorted(chosen)
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


def _declared(texts: Iterable[str], patterns: Iterable[str]) -> set[str]:
    paths = [path for path in texts if _is_compiled(path)]
    chosen: set[str] = set()
    for pattern in patterns:
        matching = {path for path in paths if fnmatchcase(path, pattern)}
        if not matching:
            raise InputError(
                f"no source of the tree matches {pattern!r}",
                hint="sources are .cu, .cuh, .hip, .c, .cc, .cpp, .cxx files and setup.py",
            )
        chosen |= matching
    return chosen


def _is_compiled(path: str) -> bool:
    name = PurePosixPath(path)
    return name.suffix.lower() in KERNELS | PLAIN or name.name == SETUP


def _found(includes: Mapping[str, tuple[str, ...]]) -> set[str]:
    included = {PurePosixPath(name).name for names in includes.values() for name in names}
    kernels = {path for path in includes if PurePosixPath(path).suffix.lower() in KERNELS}
    return {
        path
        for path in kernels
        if not path.lower().endswith(".cuh") or PurePosixPath(path).name not in included
    }


def _near_torch(includes: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Return the files that reach a header of torch, through any number of headers of the tree."""
    by_name: dict[str, list[str]] = {}
    for path in includes:
        by_name.setdefault(PurePosixPath(path).name, []).append(path)
    near = {path for path, names in includes.items() if any(map(_TORCH.match, names))}
    includers: dict[str, set[str]] = {}
    for path, names in includes.items():
        for included in _resolved(names, by_name):
            includers.setdefault(included, set()).add(path)
    pending = list(near)
    while pending:
        for path in includers.get(pending.pop(), ()):
            if path not in near:
                near.add(path)
                pending.append(path)
    return frozenset(near)


def _resolved(names: Iterable[str], by_name: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the files of the tree that an include may mean: those whose path ends the same way."""
    for name in names:
        parts = [part for part in PurePosixPath(name).parts if part not in {"..", "."}]
        for path in by_name.get(parts[-1] if parts else "", ()):
            if list(PurePosixPath(path).parts[-len(parts) :]) == parts:
                yield path


def _kind(path: str) -> Kind:
    if PurePosixPath(path).name == SETUP:
        return "extension"
    return "kernel" if PurePosixPath(path).suffix.lower() in KERNELS else "plain"
