"""Evidence, file by file, that a project already builds or runs a part of itself on AMD. Pure.

A file counts as AMD's when it shows so itself: conditions of its own, a list in its build's part
for HIP, or a copy for HIP. Nothing counts for a whole tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import PurePosixPath

from warpfront_port.scan.cuda.view import HEADERS
from warpfront_port.scan.findings import Evidence, EvidenceKind, Side
from warpfront_port.scan.graph import followed
from warpfront_port.scan.project import Project
from warpfront_port.scan.reach import (
    MANIFESTS,
    SOURCE,
    Sources,
    include_graph,
    named,
    sources_of,
)
from warpfront_port.scan.structured import kind_of
from warpfront_port.scan.structured.cmake import HIP_ARM
from warpfront_port.scan.structured.commands import Command
from warpfront_port.scan.words import is_named_for_nvidia, is_of_use, line_of, uncommented

_OWN_ARM = re.compile(
    r"(?m)^[ \t]*#[ \t]*(?:(?:el)?if(?:n?def)?\b[^\n]*?(?<![A-Za-z])"
    r"(?:__HIP\w*|HIP_PLATFORM\w*|\w*_HIP(?:CC)?|HIP_ENABLED|\w*ROCM\w*|__AMDGCN\w*|\w*_AMD)\b"
    r"|include[ \t]*[<\"]hip/)"
)
_PYTHON_ARM = re.compile(
    r"version\.hip|IS_HIP|is_hip|is_rocm|IS_ROCM|ROCM_HOME|gcnArchName|amdsmi|\brocm_|_rocm\b"
    r"|[\"'](?:hip|rocm)[\"']"
)
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_LIBRARY = r"(?i:blas(?:lt)?|fft|rand|solver|sparse|prim|dnn)?(?![a-z])"
_PART = re.compile(
    rf"(?:(?P<amd>(?<![A-Za-z])(?i:hip|rocm|roc(?=[a-z])|amd(?:gpu)?)|(?<=[a-z])(?:Hip|Rocm))"
    rf"|(?P<nvidia>(?<![A-Za-z])(?i:cuda|cu(?=[a-z])|nvidia)|(?<=[a-z])Cuda)){_LIBRARY}"
)
_OTHER_BUILD = re.compile(r"(?i)cmake|skbuild|scikit|\bmake\b")
_MAKING = frozenset({"add_library", "add_executable"})
_EXCLUDING = frozenset({"left-out", "optional"})
Shown = Iterator[tuple[str, Evidence]]
"""Paths, each with its evidence."""


def evidence_of(texts: Mapping[str, str], project: Project) -> Mapping[str, Evidence]:
    """Return the evidence for each path of `texts` that has any.

    `texts` are the sources, builds, lists and scripts of a tree, by relative path with `/`.
    """
    tree = _Tree(texts, project)
    by_path = {path: inner for path in texts if (inner := tree.evidence_inside(path)) is not None}
    for path, evidence in (*tree.copies(), *tree.listed()):
        if path not in by_path or (evidence.kind == "amd" and by_path[path].kind == "left-out"):
            by_path[path] = evidence
    tree.follow_includes(by_path)
    for path, evidence in (*tree.by_default(), *tree.spared(), *tree.chosen()):
        by_path.setdefault(path, evidence)
    tree.follow_exclusions(by_path)
    for path, evidence in (*tree.unused(), *tree.built()):
        by_path.setdefault(path, evidence)
    return {**by_path, **dict(tree.aside())}


@dataclass(frozen=True)
class _Tree:
    """The texts of a tree, with what several kinds of evidence ask of them."""

    texts: Mapping[str, str]
    project: Project

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        return {path: kind_of(PurePosixPath(path)) or "" for path in self.texts}

    @cached_property
    def sources(self) -> Sources:
        return sources_of(self.texts)

    @cached_property
    def includes(self) -> tuple[Mapping[str, set[str]], Mapping[str, set[str]]]:
        """Return the headers that each source includes, and the users of each header."""
        return include_graph(self.texts)

    def cite(self, path: str, offset: int, reason: str, kind: EvidenceKind = "amd") -> Evidence:
        """Return the evidence at an offset of a file."""
        line = line_of(self.texts[path], offset)
        return Evidence(kind=kind, path=path, line=line, reason=reason)

    def evidence_inside(self, path: str) -> Evidence | None:
        """Return the evidence in a file itself."""
        text = self.texts[path]
        if path.endswith(".hip"):
            return self.cite(path, 0, "a HIP source")
        arm = _OWN_ARM.search(text) if SOURCE.search(path) else None
        return self.cite(path, arm.end(), "its own condition for AMD") if arm else None

    @cached_property
    def hips(self) -> Mapping[PurePosixPath, Evidence]:
        """Return the folders that CMake builds for AMD: those of the CMakeLists.txt around files
        with HIP, or their own.
        """
        hips: dict[PurePosixPath, Evidence] = {}
        for path in self.project.cmake:
            if arm := HIP_ARM.search(self.texts[path]):
                parents = PurePosixPath(path).parents
                builds = (p for p in parents if str(p / "CMakeLists.txt") in self.texts)
                evidence = self.cite(path, arm.start(), "its build has a branch for AMD")
                hips.setdefault(next(builds, parents[0]), evidence)
        return hips

    def built(self) -> Shown:
        """Yield CMake's modules below a build for AMD: the sides that reach them are its own."""
        for path in self.project.cmake if self.hips else ():
            build = next(filter(None, map(self.hips.get, PurePosixPath(path).parents)), None)
            if build is not None and path.endswith(".cmake"):
                yield path, build

    def listed(self) -> Shown:
        """Yield the sources that the builds of a tree list for AMD, or for CUDA alone."""
        entries: list[tuple[str, str, int, frozenset[Side]]] = []
        for path, commands in self.project.cmake.items():
            if not self.hips.keys().isdisjoint(PurePosixPath(path).parents):
                entries += ((path, *item) for item in _of_cmake(commands, self.texts[path]))
        for path, build in self.project.builds.items():
            for item in build.sources if uncommented(_PYTHON_ARM, self.texts[path]) else ():
                if ("amd" in item.sides) is not ("nvidia" in item.sides):
                    entries.append((path, item.name, item.line, item.sides))
        for path, name, line, sides in entries:
            kind: EvidenceKind = "amd" if "amd" in sides else "left-out"
            reason = f"its build lists it for {'HIP' if kind == 'amd' else 'CUDA alone'}"
            evidence = Evidence(kind=kind, path=path, line=line, reason=reason)
            for source in named(name, PurePosixPath(path).parent, self.sources):
                yield source, evidence

    def _added(self) -> Iterator[tuple[Command, str, PurePosixPath]]:
        """Yield the commands by which CMake's files add folders, with the file and the folder."""
        for path, commands in self.project.cmake.items():
            for command in commands if path.endswith("CMakeLists.txt") else ():
                if command.name == "add_subdirectory" and command.words:
                    yield command, path, PurePosixPath(path).parent / command.words[0].text

    def by_default(self) -> Shown:
        """Yield what CMake builds only by an option that is off, or where it finds CUDA. Where
        these are all units and the build makes nothing else, they are the product.
        """
        of_python = any(map(self.project.product.has, self.project.builds))
        off = frozenset() if of_python else self.project.false
        reason = "its build leaves it out without an option or CUDA"
        folders = {
            folder: self.cite(path, command.start, reason, "optional")
            for command, path, folder in self._added()
            if command.is_under(off)
        }
        optional: dict[str, Evidence] = {}
        built, makes_more = set[str](), False
        for path, commands in self.project.cmake.items() if off else ():
            folder = PurePosixPath(path).parent
            around = next(filter(None, map(folders.get, (folder, *folder.parents))), None)
            for command in commands:
                left_out = around is not None or command.is_under(off)
                evidence = around or self.cite(path, command.start, reason, "optional")
                names = [name for name, *_ in _of_cmake((command,), self.texts[path])]
                sources = {source for n in names for source in named(n, folder, self.sources)}
                optional |= dict.fromkeys(sources, evidence) if left_out else {}
                built |= sources if not left_out else set()
                headers = command.name == "install" and "DIRECTORY" in command.texts
                makes_more |= (headers or command.name in _MAKING) and not left_out
        for path in self.texts if folders else ():
            nearest = filter(None, map(folders.get, PurePosixPath(path).parents))
            optional.update((path, evidence) for evidence in islice(nearest, 1))
        is_all = optional.keys() >= {*self.project.units} and not makes_more
        for path in () if is_all else optional:
            if path not in built:
                yield path, optional[path]

    def aside(self) -> Shown:
        """Yield examples, tests, builds and distributions that what decides does not reach."""
        product = self.project.product
        deciding = (unit for unit in self.project.units if not product.is_aside(unit))
        roots = (name for name in (*MANIFESTS, "CMakeLists.txt") if name in self.texts)
        build = next(roots, next(deciding, ""))
        evidence = Evidence(kind="aside", path=build, line=1, reason="it builds none of them")
        reached = {*product.modules, *(product.code or ()), *self.project.units}
        added = set() if product.installs else {folder for *_, folder in self._added()}
        listed = product.basis.endswith(".py") and bool(self.project.units)
        # Python's own build of the sources, which starts no other one.
        alone = not any(_OTHER_BUILD.search(self.texts.get(m, "")) for m in MANIFESTS)
        manifests = {f"{folder}/{name}" for folder in product.other_folders for name in MANIFESTS}
        apart = {manifest.rpartition("/")[0] for manifest in manifests & self.texts.keys()}
        apart |= {"."} if product.installs and product.packages == () else set()
        for path in self.texts if build else ():
            around = PurePosixPath(path).parents
            builds = self.kinds[path] in {"cmake", "make"}
            beside = (
                is_of_use(f"{around[0]}/" if builds else path)
                or (listed and (SOURCE.search(path) or (builds and alone)))
                or not (apart.isdisjoint(map(str, around)) or product.has(path))
            )
            if beside and path not in reached and added.isdisjoint(around):
                yield path, evidence

    def spared(self) -> Shown:
        """Yield the sources that a project's builds go on without, or the users of their build."""
        spared: dict[str, Evidence] = {}
        needed: set[str] = set()
        for path, build in self.project.builds.items():
            for item in build.sources:
                spare = path in self.project.spare_builds
                reason = f"its {'users go' if spare else 'build goes'} on without it"
                evidence = Evidence(kind="optional", path=path, line=item.line, reason=reason)
                for source in named(item.name, PurePosixPath(path).parent, self.sources):
                    spared.setdefault(source, evidence)
                    needed |= set() if item.optional or spare else {source}
        yield from ((path, item) for path, item in spared.items() if path not in needed)

    def chosen(self) -> Shown:
        """Yield the modules named for NVIDIA that no other one imports without a condition. Where
        they are a third of the project, they are its purpose.
        """
        named = {p for p in self.texts if p.endswith(".py") and is_named_for_nvidia(p)}
        needed = self.project.product.imported
        names = ((path, path.removesuffix(".py").removesuffix("/__init__")) for path in named)
        chosen = {path for path, name in names if name.rpartition("/")[2] not in needed}
        for path in () if self.project.product.is_most(chosen) else chosen:
            yield path, self.cite(path, 0, "it is named for NVIDIA", "left-out")

    def unused(self) -> Shown:
        """Yield the headers that no source includes, where sources are what is built."""
        headers = {p for p in self.sources.paths if PurePosixPath(p).suffix in HEADERS}
        for path in self.sources.paths if headers < {*self.sources.paths} else ():
            if path in headers and not self.includes[1].get(path):
                yield path, self.cite(path, 0, "no source of the tree includes it", "optional")

    def copies(self) -> Shown:
        """Yield sources with a copy for AMD, whose path differs in the vendors' names alone, and
        those below a build with a copy that does not name their folder.
        """
        parts = {
            path: _parts(path) for path in self.texts if SOURCE.search(path) or path.endswith(".py")
        }
        amds = {bare: path for path, (bare, vendor) in parts.items() if vendor == "amd"}
        for path, (bare, vendor) in parts.items():
            amd = amds.get(bare, "") if vendor == "nvidia" else ""
            if amd:
                yield path, self.cite(amd, 0, "a copy for AMD is there", "left-out")

    def follow_includes(self, by_path: dict[str, Evidence]) -> None:
        """Carry evidence for AMD from sources down to what they include."""
        includes = self.includes[0]
        for path in [p for p, item in by_path.items() if item.kind == "amd" and p in includes]:
            for header in sorted(followed((path,), includes)):
                by_path.setdefault(header, by_path[path])

    def follow_exclusions(self, by_path: dict[str, Evidence]) -> None:
        """Carry evidence to the headers that only sources include which a build leaves out."""
        includes, users = self.includes
        excluded = {path for path, item in by_path.items() if item.kind in _EXCLUDING}
        pending = list(users) if excluded else []
        while pending:
            path = pending.pop()
            if path not in by_path and users.get(path, set()) <= excluded:
                by_path[path] = by_path[min(users[path])]
                excluded.add(path)
                pending += includes.get(path, ())


def _of_cmake(commands: Iterable[Command], text: str) -> Iterator[tuple[str, int, frozenset[Side]]]:
    """Yield the sources that commands name; those of a list count where its variable is used."""
    used: dict[str, frozenset[Side]] = {}
    for command in commands:
        for name in _VARIABLE.findall(" ".join(word.text for word in command.words)):
            used[name] = used.get(name, frozenset()) | command.sides
    for command in (command for command in commands if command.name != "install"):
        sides = command.sides
        if command.name == "set" and command.words:
            sides &= used.get(command.words[0].text, sides)
        for word in command.words:
            for name in word.text.split(";"):
                if SOURCE.search(name):
                    yield name, line_of(text, word.start), sides


def _parts(path: str) -> tuple[str, str]:
    """Return a path without vendors' names and endings, and the vendor of its last name."""
    vendors = [match.lastgroup or "" for match in _PART.finditer(path)]
    folder, _, name = _PART.sub("@", path).rpartition("/")
    vendor = "nvidia" if path.endswith(".cu") else ""
    return f"{folder}/{name.partition('.')[0]}", vendors[-1] if vendors else vendor
