"""The contents of a tree for a build: CUDA sources, its build method, names to rename. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath

from warpfront_port.scan.hipify_names import hipify_names
from warpfront_port.scan.python.builds import PythonBuild, read_build, users_of
from warpfront_port.scan.reach import EXTENSIONS, SOURCE, Product, named, read_product, sources_of
from warpfront_port.scan.structured import kind_of
from warpfront_port.scan.structured.cmake import HIP_ARM, false_by_default, read_cmake
from warpfront_port.scan.structured.commands import Command
from warpfront_port.scan.words import line_of, uncommented

_UNIT = frozenset({".cu", ".hip", ".c", ".cc", ".cpp", ".cxx"})
_DEVICE = re.compile(r"\b__(?:global|device)__\b|<<<")
_TOOLKIT = re.compile(
    r"(?m)^[ \t]*#[ \t]*include[ \t]*[<\"](?:cuda(?:_runtime|_runtime_api)?\.h|cublas|cufft|curand"
    r"|cusolver|cusparse|cudnn|nccl|cub/|cooperative_groups|opencv2/cuda)"
)
_HIP_HEADER = re.compile(r"(?m)^[ \t]*#[ \t]*include[ \t]*[<\"](?:hip|roc|rccl)\w*/")
_CUDA_NAME = re.compile(
    r"\b(?:(?:cuda|cublas|cufft|curand|cusolver|cusparse|nccl)[A-Z]\w*|cu(?:da|blas|fft|rand|solver"
    r"|sparse)\w+_t|CUBLAS_\w+|CUFFT_\w+|CURAND_\w+|CUSPARSE_\w+|__nv_bfloat16\w*)\b"
)
_CODE = _UNIT | {".cuh", ".h", ".hpp", ".hh", ".hxx", ".inl"}
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_EXTENSION = re.compile(r"CUDAExtension\b|(?:cpp_extension\.load\w*|load_inline)\s*\(")
_CMAKE_CUDA = re.compile(
    r"(?i)enable_language\s*\(\s*CUDA|project\s*\((?:(?!project\s*\()[^)])*\bCUDA\b"
    r"|find_package\s*\(\s*CUDA|cuda_add_(?:library|executable)"
)
_NVCC = re.compile(r"\bnvcc\b")
_ADD_HIP = "add HIP, or a header that maps names"
MAPS_CUDA = re.compile(r"(?m)^[ \t]*#[ \t]*define[ \t]+cuda[A-Z]\w+[ \t]+hip[A-Z]\w+")


_WAYS = (
    ("CMake with HIP", "cmake", HIP_ARM),
    ("a header that gives CUDA's names HIP's meaning", "code", MAPS_CUDA),
    ("a torch extension, which torch hipifies", "python", _EXTENSION),
    ("a makefile with hipcc", "make", re.compile(r"\bhipcc\b")),
    (f"CMake for CUDA alone: {_ADD_HIP}", "cmake", _CMAKE_CUDA),
    (f"a makefile for nvcc alone: {_ADD_HIP}", "make", _NVCC),
)
_OF_HIP = (("cmake", HIP_ARM), ("make", re.compile(r"\bhipcc\b")))
_OF_CUDA = (("cmake", _CMAKE_CUDA), ("make", _NVCC), ("python", _EXTENSION))
_WITHOUT_SOURCES = tuple(way for way in _WAYS if way[1] == "python")


@dataclass(frozen=True, slots=True, kw_only=True)
class Renames:
    """CUDA's names in one file that have a twin in HIP, and their uses."""

    path: str
    names: int
    uses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A tree as far as its build is concerned.

    `units` are the sources that a GPU compiler or its headers are needed for; tests and examples
    count only where there is less of anything else. `hips` are those that are HIP's own. `way`
    describes how the tree can be built for AMD, `of_cuda` is the place of a build for CUDA.
    `product` is what the root's build reaches, `builds` are the Python
    modules that build extensions, `spare_builds` those that all users go on without. `builds_hip`
    is true for a build of HIP's own. `hosts` are the other sources that Python builds list,
    for the host's compiler. `unbuilt` are CUDA sources that the build which decides does not list.
    `cmake` are the commands of CMake's files, `false` the names in them that are false by default.
    """

    units: tuple[str, ...] = ()
    hips: frozenset[str] = frozenset()
    way: str = "pure Python"
    of_cuda: str = ""
    renames: tuple[Renames, ...] = ()
    product: Product = field(default_factory=Product)
    builds: Mapping[str, PythonBuild] = field(default_factory=dict, repr=False)
    spare_builds: frozenset[str] = frozenset()
    builds_hip: bool = False
    hosts: tuple[str, ...] = ()
    unbuilt: tuple[str, ...] = ()
    cmake: Mapping[str, tuple[Command, ...]] = field(default_factory=dict, repr=False)
    false: AbstractSet[str] = frozenset()


def read_project(
    texts: Mapping[str, str],
    commands: Mapping[str, tuple[str, ...]] | None = None,
) -> Project:
    """Return the contents of `texts`, by path. `commands` are a build's sources and options."""
    building = [p for p, text in texts.items() if p.endswith(".py") and EXTENSIONS.search(text)]
    builds = {
        path: build for path in building if (build := read_build(path, texts[path])) is not None
    }
    users = users_of(texts, builds)
    reached = read_product(texts, commands or {}, builds, users)
    sources = {path: text for path, text in texts.items() if PurePosixPath(path).suffix in _UNIT}
    units = [path for path, text in sources.items() if _is_unit(path, text)]
    product = [path for path in units if reached.has(path) and not reached.is_aside(path)]
    lines = {path: texts[path].count("\n") for path in texts if SOURCE.search(path)}
    libraries = sum(lines[path] for path in lines if not reached.is_aside(path))
    compared = libraries >= sum(lines[path] for path in units)  # tests of what is not CUDA's
    installs = reached.installs and reached.packages
    decides = product or reached.code is not None or installs or compared
    counted = product if decides else [path for path in units if reached.has(path)]
    codes = {
        path: _COMMENTS.sub(lambda match: " " * len(match[0]), text)
        for path, text in sorted(texts.items())
        if PurePosixPath(path).suffix in _CODE
    }
    twins = hipify_names().twins
    uses = {
        path: Counter(n for n in _CUDA_NAME.findall(c) if n in twins) for path, c in codes.items()
    }
    kinds = {path: kind_of(PurePosixPath(path)) for path in texts}
    cmake = {path: tuple(read_cmake(texts[path])) for path in texts if kinds[path] == "cmake"}
    return Project(
        units=tuple(sorted(counted)),
        unbuilt=tuple(p for p in sorted(units) if not (reached.has(p) or reached.is_aside(p))),
        hosts=tuple(sorted(_hosts(texts, builds, reached, counted))),
        hips=frozenset(path for path in counted if _is_hips(path, codes[path])),
        way=_way(texts, counted),
        of_cuda=next(filter(None, (_place(texts, *way) for way in _OF_CUDA)), ""),
        renames=tuple(
            Renames(path=path, names=len(counts), uses=counts.total())
            for path, counts in uses.items()
            if counts
        ),
        product=reached,
        builds=builds,
        # The root's own build fails with its extension, spare for its users or not.
        spare_builds=frozenset(build for build in users if "/" in build and not users[build]),
        builds_hip=any(_place(texts, *way) for way in _OF_HIP),
        cmake=cmake,
        false=false_by_default(command for commands in cmake.values() for command in commands),
    )


def _hosts(
    texts: Mapping[str, str], builds: Mapping[str, PythonBuild], reached: Product, units: list[str]
) -> Iterator[str]:
    """Yield the sources that Python builds list next to `units`, for the host's compiler."""
    sources = sources_of(texts)
    for path, build in builds.items() if units else ():
        folder = PurePosixPath(path).parent
        listed = {n for item in build.sources for n in named(item.name, folder, sources)}
        for source in listed - {*units} if not listed.isdisjoint(units) else ():
            is_source = PurePosixPath(source).suffix in _UNIT
            if is_source and reached.has(source) and not reached.is_aside(source):
                yield source


def _is_unit(path: str, text: str) -> bool:
    if path.endswith((".cu", ".hip")):
        return True
    code = _COMMENTS.sub(" ", text) if "__" in text or "<<<" in text else text
    return _TOOLKIT.search(text) is not None or (
        "__global__" in code and _DEVICE.search(code) is not None
    )


def _is_hips(path: str, code: str) -> bool:
    """Return true if a source is written in HIP, without a name or header of CUDA's own."""
    hip = PurePosixPath(path).suffixes[-2:].count(".hip") or _HIP_HEADER.search(code)
    cudas = (name for name in _CUDA_NAME.findall(code) if not name.startswith("nccl"))  # RCCL's too
    return bool(hip) and _TOOLKIT.search(code) is None and not any(cudas)


def _way(texts: Mapping[str, str], units: Iterable[str]) -> str:
    """Return the way to AMD that the build itself shows, with its place."""
    has_units = any(True for _ in units)
    for words, kind, pattern in _WAYS if has_units else _WITHOUT_SOURCES:
        if place := _place(texts, kind, pattern):
            return f"{words} ({place})"
    if has_units:
        return "CUDA sources without a build that was recognized"
    return "pure Python" if any(path.endswith(".py") for path in texts) else "no CUDA sources"


def _place(texts: Mapping[str, str], kind: str, pattern: re.Pattern[str]) -> str:
    """Return the first place of a pattern in files of a kind, the shallow ones first."""
    for path, text in sorted(texts.items(), key=lambda item: (item[0].count("/"), item[0])):
        search = pattern.search if kind == "code" else partial(uncommented, pattern)
        suffix = PurePosixPath(path).suffix
        file_kind: str = "python" if suffix == ".py" else kind_of(PurePosixPath(path)) or ""
        file_kind = "code" if suffix in _UNIT | {".cuh", ".h", ".hpp"} else file_kind
        if file_kind == kind and (match := search(text)):
            return f"{path}:{line_of(text, match.end())}"
    return ""
