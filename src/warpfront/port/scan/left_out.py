"""Which files are not for AMD, and of which nothing shows that they are: by what CMake files,
makefiles and setup.py name, by who includes whom, and by twins for AMD beside them. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from warpfront.port.scan.findings import Known, Side, SourceText
from warpfront.port.scan.python import sources_named
from warpfront.port.scan.structured import kind_of
from warpfront.port.scan.structured.cmake import (
    CMakeCommand,
    builds_hip,
    defined_for_others,
    read_cmake,
)

_OF_AMD = re.compile(r"(?i)(?<![a-z])(?:rocm|hip|amd)(?![a-z])")
_OF_A_VENDOR = re.compile(
    r"(?i)[-_.]?(?<![a-z])(?:rocm|hip|amd|cuda|nvidia|gpu)(?![a-z])(?:\d+(?:\.\d+)*)?"
)
_SOURCE = re.compile(r"[\w./*?\[\]+-]+\.(?:cu|cc|cpp|cxx|c|hip)\Z")
_VARIABLE = re.compile(r"\A\$\{(?:CMAKE_CURRENT_SOURCE_DIR|CMAKE_CURRENT_LIST_DIR)\}/")
_BEFORE = re.compile(r"\A(?:\$\{\w+\}|\$\(\w+\)|\.\.?|/)*/")
_NAMED_SOURCE = re.compile(r"[\w./*-]+\.(?:cu|cc|cpp|cxx|c|hip)\b")
_OF_HIP = re.compile(r"(?<![a-z])hip|HIP|ROCM|ROCm|rocm|__AMD")
_NAMELESS = frozenset({"message", "option", "string", "install"})


@dataclass(slots=True)
class _Named:
    """What builds say of sources: in arms that AMD comes to, in others, and taken out. What lies in
    a folder that is added is `below` it: its own build says more.
    """

    for_amd: set[str] = field(default_factory=set)
    for_others: set[str] = field(default_factory=set)
    taken_out: set[str] = field(default_factory=set)
    below_amd: set[str] = field(default_factory=set)
    below_others: set[str] = field(default_factory=set)

    def without_amd(self) -> set[str]:
        below = self.below_others - self.below_amd
        return self.taken_out | ((self.for_others | below) - self.for_amd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A tree's C++ and CUDA: every file's text, and what each includes, with whether AMD comes to
    that line. `builds` are its CMake files, makefiles and the modules that name sources.
    """

    texts: Mapping[str, str]
    includes: Mapping[str, Iterable[tuple[str, bool]]]
    builds: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What AMD's build does without, and of what nothing shows that it compiles it."""

    left_out: frozenset[str] = frozenset()
    unproven: frozenset[str] = frozenset()


def reached_by_amd(code: Code) -> Reached:
    """The sources of a tree that knows AMD. Left out are those that builds name in NVIDIA's arms
    alone or take out in AMD's, and headers that only these, or lines for NVIDIA alone, include.
    Nothing is shown of files that say nothing of HIP, that no build names for AMD, and that none
    of those which are reached includes.
    """
    tree = _Paths(code.texts)
    named = _Named()
    hip = any(builds_hip(text) for path, text in code.builds.items() if _is_cmake(path))
    for path, text in code.builds.items():
        if _is_cmake(path):
            for command in read_cmake(text):
                if hip:
                    _take(command, PurePosixPath(path).parent, code.texts, named)
                if "amd" in command.sides or not hip:
                    named.for_amd.update(*(tree.ending(word.text) for word in command.arguments))
        elif path.endswith(".py"):
            _take_module(SourceText(path=PurePosixPath(path), text=text), tree, named)
        else:
            named.for_amd.update(*map(tree.ending, _NAMED_SOURCE.findall(text)))
    includers = _includers(code.includes, tree)
    out = _closed(named.without_amd(), includers)
    reached = {path for path, text in code.texts.items() if _OF_HIP.search(text)}
    reached = _including((reached | named.for_amd | named.below_amd) - out, includers)
    return Reached(left_out=frozenset(out), unproven=frozenset(code.texts.keys() - reached - out))


def macros_without_amd(builds: Mapping[str, str]) -> dict[str, Mapping[Side, Known]]:
    """What CMake files define for others alone, where one of them builds HIP."""
    cmake = [text for path, text in builds.items() if _is_cmake(path)]
    if not any(map(builds_hip, cmake)):
        return {}
    return {name: {"amd": "unset"} for name in defined_for_others(cmake)}


_Includers = Mapping[str, Mapping[str, bool]]
"""Of each header, the files that include it, and whether AMD comes to that line."""


class _Paths:
    """The files of a tree by how their paths end."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.by_name: dict[str, list[str]] = defaultdict(list)
        for path in paths:
            self.by_name[path.rpartition("/")[2]].append(path)

    def ending(self, word: str) -> Iterator[str]:
        """The files that a build may mean by `word`, whatever folder it begins in."""
        name = _BEFORE.sub("", word)
        if _SOURCE.match(name) is None:
            return
        last = name.rpartition("/")[2]
        globs = "*" in last or "?" in last
        names = [one for one in self.by_name if fnmatchcase(one, last)] if globs else [last]
        found = (path for one in names for path in self.by_name.get(one, ()))
        yield from (path for path in found if fnmatchcase(f"/{path}", f"*/{name}"))

    def included(self, header: str, includer: str) -> Iterator[str]:
        beside = _joined(PurePosixPath(includer).parent, header)
        for path in self.by_name.get(header.rpartition("/")[2], ()):
            if path == beside or f"/{path}".endswith(f"/{header.lstrip('./')}"):
                yield path


def _take_module(source: SourceText, tree: _Paths, named: _Named) -> None:
    asks = _ASKS.search(source.text) is not None
    for word, sides in sources_named(source):
        here = named.for_amd if "amd" in sides or not asks else named.for_others
        here.update(tree.ending(word))


def _includers(
    includes: Mapping[str, Iterable[tuple[str, bool]]], tree: _Paths
) -> dict[str, dict[str, bool]]:
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    for path, lines in includes.items():
        for header, amd in lines:
            for included in tree.included(header, path):
                found[included][path] = amd or found[included].get(path, False)
    return found


def _closed(out: set[str], includers: _Includers) -> set[str]:
    """`out`, and the headers that AMD comes to through nothing else."""
    return _grown(
        out, includers, lambda by, found: not any(amd and one not in found for one, amd in by)
    )


def _including(reached: set[str], includers: _Includers) -> set[str]:
    """`reached`, and the headers that AMD comes to through any of it."""
    return _grown(
        reached, includers, lambda by, found: any(amd and one in found for one, amd in by)
    )


def _grown(
    found: set[str],
    includers: _Includers,
    takes: Callable[[Iterable[tuple[str, bool]], set[str]], bool],
) -> set[str]:
    """`found`, and every header that `takes` wants for who includes it, until there is none."""
    while more := {
        header for header in includers.keys() - found if takes(includers[header].items(), found)
    }:
        found = found | more
    return found


def unproven_packaging(paths: Iterable[str]) -> frozenset[str]:
    """In a tree that knows AMD: what is packaged or built another way than from its root. Files
    with AMD's name are its own.
    """
    return frozenset(
        str(path)
        for path in map(PurePosixPath, paths)
        if (kind := kind_of(path)) is not None
        and not _OF_AMD.search(str(path))
        and not (kind in _MANIFESTS and path.name in _OF_THE_ROOT and len(path.parts) == 1)
    )


_MANIFESTS = frozenset({"toml", "requirements", "cfg"})
_OF_THE_ROOT = frozenset({"pyproject.toml", "requirements.txt", "setup.cfg"})


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


def cudas_beside_amds(paths: Iterable[str]) -> frozenset[str]:
    """The files whose path, with a name of NVIDIA's part read as one of AMD's, is another file's
    or that of a folder with code: `cuda/queue.cpp` beside `hip/`, `cufft.h` beside `rocfft.h`.
    """
    amds: set[str] = set()
    nvidias: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        parts = path.split("/")
        code = path.endswith(_CODE)
        for depth, part in enumerate(parts, 1):
            is_file = depth == len(parts)
            name = part.partition(".")[0] if is_file else part
            above = "/".join(parts[: depth - 1])
            amd, nvidia = (pattern.sub(_PART, name) for pattern in (_PART_OF_AMD, _PART_OF_NVIDIA))
            if amd != name and (is_file or code):
                amds.add(f"{above}/{amd}")
            if nvidia != name:
                nvidias[f"{above}/{nvidia}"].append(path)
    return frozenset(path for part in nvidias.keys() & amds for path in nvidias[part])


_CODE = (".cu", ".cuh", ".hip", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".py")
_PART = r"@\g<library>"
_LIBRARY = r"(?P<library>blas(?:lt)?|fft|rand|solver|sparse|prim|dnn)?(?![a-z])"
_PART_OF_AMD = re.compile(rf"(?i)(?<![a-z])(?:hip|rocm|roc(?=[a-z])|amd(?:gpu|gcn)?|hcc){_LIBRARY}")
_PART_OF_NVIDIA = re.compile(rf"(?i)(?<![a-z])(?:cuda|cu(?=[a-z])|nvidia|(?:nv)?ptx){_LIBRARY}")


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


def _is_cmake(path: str) -> bool:
    return path.endswith(("CMakeLists.txt", ".cmake"))


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
        added = named.below_amd if "amd" in command.sides else named.below_others
        added.update(file for file in texts if file.startswith(below))
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
