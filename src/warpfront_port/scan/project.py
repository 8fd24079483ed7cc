"""The contents of a tree for a build: CUDA sources, its build method, names to rename. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from warpfront_port.scan.structured import kind_of
from warpfront_port.scan.words import is_aside

_UNIT = frozenset({".cu", ".c", ".cc", ".cpp", ".cxx"})
_DEVICE = re.compile(r"\b__(?:global|device)__\b|<<<")
_TOOLKIT = re.compile(
    r"(?m)^[ \t]*#[ \t]*include[ \t]*[<\"](?:cuda(?:_runtime|_runtime_api)?\.h|cublas|cufft|curand"
    r"|cusolver|cusparse|cudnn|nccl|cub/|thrust/|cooperative_groups|opencv2/cuda)"
)
_CUDA_NAME = re.compile(
    r"\b(?:(?:cuda|cublas|cufft|curand|cusolver|cusparse|nccl)[A-Z]\w*|cu(?:da|blas|fft|rand|solver"
    r"|sparse)\w+_t|CUBLAS_\w+|CUFFT_\w+|CURAND_\w+|CUSPARSE_\w+|__nv_bfloat16\w*)\b"
)
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_EXTENSION = re.compile(
    r"(?m)^[^#\n]*\b(?:CUDAExtension|cpp_extension\.load\w*|load_inline)\b\s*\("
)
_CMAKE_CUDA = re.compile(
    r"(?im)^[^#\n]*(?:enable_language\s*\(\s*CUDA|project\s*\([^)]*\bCUDA\b|find_package\s*\(\s*CUDA"
    r"|cuda_add_(?:library|executable))"
)
_HIP = re.compile(
    r"(?im)^[^#\n]*(?:enable_language\s*\(\s*HIP|LANGUAGES[^)]*\bHIP\b|find_package\s*\(\s*hip\b)"
)
_ADD_HIP = "add HIP, or a header that maps names"
_MAPS_CUDA = re.compile(r"(?m)^[ \t]*#[ \t]*define[ \t]+cuda[A-Z]\w+[ \t]+hip[A-Z]\w+")


_WAYS = (
    ("CMake with HIP", "cmake", _HIP),
    ("a header that gives CUDA's names HIP's meaning", "code", _MAPS_CUDA),
    ("a torch extension, which torch hipifies", "python", _EXTENSION),
    ("a makefile with hipcc", "make", re.compile(r"(?m)^[^#\n]*\bhipcc\b")),
    (f"CMake for CUDA alone: {_ADD_HIP}", "cmake", _CMAKE_CUDA),
    (f"a makefile for nvcc alone: {_ADD_HIP}", "make", re.compile(r"(?m)^[^#\n]*\bnvcc\b")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renames:
    """CUDA's names in one file: how many, and the `twinless` that hipify's tables do not know."""

    path: str
    names: int
    uses: int
    twinless: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A tree as far as its build is concerned.

    `units` are the sources that CUDA's compiler or headers are needed for; tests and examples count
    only if there is nothing else. `way` describes how the tree can be built for AMD, with its
    place. `tables` is true if hipify's tables were available to find names with twins.
    """

    units: tuple[str, ...] = ()
    way: str = "pure Python"
    renames: tuple[Renames, ...] = ()
    tables: bool = False


def read_project(texts: Mapping[str, str], identifiers: Mapping[str, str]) -> Project:
    """Return the contents of `texts`, by path. `identifiers` maps CUDA's names to HIP's."""
    sources = {path: text for path, text in texts.items() if PurePosixPath(path).suffix in _UNIT}
    units = [path for path, text in sources.items() if _is_unit(path, text)]
    product = [path for path in units if not is_aside(PurePosixPath(path))]
    named = (_renames(path, text, identifiers) for path, text in sorted(texts.items()))
    return Project(
        units=tuple(sorted(product or units)),
        way=_way(texts, product or units),
        renames=tuple(renames for renames in named if renames is not None),
        tables=bool(identifiers),
    )


def _is_unit(path: str, text: str) -> bool:
    if path.endswith(".cu"):
        return True
    code = _COMMENTS.sub(" ", text) if "__" in text or "<<<" in text else text
    return _TOOLKIT.search(text) is not None or (
        "__global__" in code and _DEVICE.search(code) is not None
    )


def _renames(path: str, text: str, identifiers: Mapping[str, str]) -> Renames | None:
    suffix = PurePosixPath(path).suffix
    if suffix not in _UNIT | {".cuh", ".h", ".hpp", ".hh", ".hxx", ".inl"}:
        return None
    counts = Counter(_CUDA_NAME.findall(_COMMENTS.sub(_blank, text)))
    if not counts:
        return None
    lacking = {name for name in counts if name not in identifiers} if identifiers else set()
    defined = {name for name in lacking if re.search(rf"(?m)^\s*#\s*define\s+{name}\b", text)}
    twinless = tuple((name, _line_of(text, name)) for name in sorted(lacking - defined))
    return Renames(path=path, names=len(counts), uses=sum(counts.values()), twinless=twinless)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _line_of(text: str, name: str) -> int:
    match = re.search(rf"\b{name}\b", text)
    return text.count("\n", 0, match.start()) + 1 if match else 1


def _way(texts: Mapping[str, str], units: Iterable[str]) -> str:
    """Return the way to AMD that the build itself shows, with its place."""
    if not any(True for _ in units):
        return "pure Python" if any(path.endswith(".py") for path in texts) else "no CUDA sources"
    for words, kind, pattern in _WAYS:
        for path, text in sorted(texts.items(), key=lambda item: (item[0].count("/"), item[0])):
            if _kind(path) == kind and (match := pattern.search(text)):
                return f"{words} ({path}:{text.count(chr(10), 0, match.end()) + 1})"
    return "CUDA sources without a build that was recognized"


def _kind(path: str) -> str:
    suffix = PurePosixPath(path).suffix
    if suffix == ".py":
        return "python"
    if suffix in _UNIT | {".cuh", ".h", ".hpp"}:
        return "code"
    return kind_of(PurePosixPath(path)) or ""
