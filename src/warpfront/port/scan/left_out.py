"""Which files are not for AMD: sources that the project's CMake files and includes leave out,
extensions with a setup.py of their own that never asks, and Dockerfiles, scripts and lists of
requirements with a twin for AMD beside them. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from warpfront.port.scan.structured import kind_of
from warpfront.port.scan.structured.cmake import CMakeCommand, builds_hip, read_cmake

_OF_AMD = re.compile(r"(?i)(?<![a-z])(?:rocm|hip|amd)(?![a-z])")
_OF_A_VENDOR = re.compile(
    r"(?i)[-_.]?(?<![a-z])(?:rocm|hip|amd|cuda|nvidia|gpu)(?![a-z])(?:\d+(?:\.\d+)*)?"
)
_SOURCE = re.compile(r"[\w./*?\[\]+-]+\.(?:cu|cc|cpp|cxx|c|hip)\Z")
_VARIABLE = re.compile(r"\A\$\{(?:CMAKE_CURRENT_SOURCE_DIR|CMAKE_CURRENT_LIST_DIR)\}/")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)
_NAMELESS = frozenset({"message", "option", "string", "install"})


@dataclass(slots=True)
class _Named:
    """What CMake files say of sources: in arms that AMD comes to, in others, and taken out."""

    for_amd: set[str] = field(default_factory=set)
    for_others: set[str] = field(default_factory=set)
    taken_out: set[str] = field(default_factory=set)


def left_out_of_hip(texts: Mapping[str, str]) -> frozenset[str]:
    """The files of a tree (path to text, CMake files among them) that no build for AMD compiles:
    sources that CMake names in NVIDIA's arms alone or takes out in AMD's, and headers that only
    those include. None where no CMake file of the tree builds HIP.
    """
    cmake = {path: text for path, text in texts.items() if _is_cmake(PurePosixPath(path))}
    if not any(map(builds_hip, cmake.values())):
        return frozenset()
    named = _Named()
    for path, text in cmake.items():
        for command in read_cmake(text):
            _take(command, PurePosixPath(path).parent, texts, named)
    out = named.taken_out | (named.for_others - named.for_amd)
    return frozenset(out | _headers_of(out, texts)) if out else frozenset()


def beside_amds(paths: Iterable[str]) -> frozenset[str]:
    """The files among `paths` with a sibling whose name is theirs with AMD in it: `setup.sh` beside
    `setup_rocm.sh`, and all Dockerfiles of a folder that has one for AMD.
    """
    twins: dict[tuple[str, str], list[PurePosixPath]] = defaultdict(list)
    for path in map(PurePosixPath, paths):
        kind = kind_of(path)
        if kind in ("dockerfile", "shell", "requirements"):
            said = "" if kind == "dockerfile" else _OF_A_VENDOR.sub("", path.name)
            twins[str(path.parent), f"{kind} {said}"].append(path)
    return frozenset(
        str(path)
        for found in twins.values()
        if any(_OF_AMD.search(path.name) for path in found)
        for path in found
        if not _OF_AMD.search(path.name)
    )


def of_own_builds(paths: Iterable[str], setups: Mapping[str, str]) -> frozenset[str]:
    """The files below a setup.py that builds extensions and never asks for ROCm, where the setup.py
    of a folder above asks: a part that AMD's build does without.
    """
    asks = {
        PurePosixPath(path).parent: _ASKS.search(text) is not None
        for path, text in setups.items()
        if "xtension" in text
    }
    alone = {
        folder
        for folder, knows in asks.items()
        if not knows and any(asks.get(above, False) for above in folder.parents)
    }
    return frozenset(path for path in paths if not alone.isdisjoint(PurePosixPath(path).parents))


_ASKS = re.compile(r"version\.hip|IS_HIP|ROCM|rocm|HIP_HOME|is_hip")


def _is_cmake(path: PurePosixPath) -> bool:
    return path.name == "CMakeLists.txt" or path.suffix == ".cmake"


def _take(
    command: CMakeCommand, folder: PurePosixPath, texts: Mapping[str, str], named: _Named
) -> None:
    words = [word.text for word in command.arguments]
    if command.name in _NAMELESS:
        return
    removes = command.name == "list" and words[:1] == ["REMOVE_ITEM"]
    if removes and command.sides != {"amd"}:
        return
    here = (
        named.taken_out
        if removes
        else named.for_amd
        if "amd" in command.sides
        else named.for_others
    )
    if command.name == "add_subdirectory" and words and not removes:
        below = f"{_joined(folder, words[0])}/"
        here.update(file for file in texts if file.startswith(below))
        return
    for word in words:
        here.update(_files(word, folder, texts))


def _files(word: str, folder: PurePosixPath, texts: Mapping[str, str]) -> Iterator[str]:
    name = _VARIABLE.sub("", word)
    if _SOURCE.match(name) is None or name.startswith("/"):
        return
    path = _joined(folder, name)
    if "*" in name or "?" in name:
        yield from (file for file in texts if fnmatchcase(file, path))
    elif path in texts:
        yield path


def _joined(folder: PurePosixPath, name: str) -> str:
    parts: list[str] = []
    for part in (*folder.parts, *PurePosixPath(name).parts):
        if part == "..":
            parts[-1:] = []
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _headers_of(out: set[str], texts: Mapping[str, str]) -> set[str]:
    """The headers that only files of `out` include, and those that only these include."""
    by_name: dict[str, list[str]] = {}
    for path in texts:
        by_name.setdefault(PurePosixPath(path).name, []).append(path)
    includers: dict[str, set[str]] = {}
    for path, text in texts.items():
        for included in _INCLUDE.findall(text):
            name = PurePosixPath(included).name
            for candidate in by_name.get(name, ()):
                beside = _joined(PurePosixPath(path).parent, included)
                if candidate == beside or f"/{candidate}".endswith(f"/{included.lstrip('./')}"):
                    includers.setdefault(candidate, set()).add(path)
    found: set[str] = set()
    while True:
        left = includers.keys() - found - out
        more = {header for header in left if includers[header] <= out | found}
        if not more:
            return found
        found |= more
