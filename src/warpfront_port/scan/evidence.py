"""Evidence, file by file, that a project already builds or runs a part of itself on AMD. Pure.

A file counts as AMD's when it shows so itself: conditions of its own, a list in its build's part
for HIP, a header that maps CUDA's names, or a copy for HIP. Nothing counts for a whole tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import PurePosixPath

from warpfront_port.scan.cuda.view import HEADERS
from warpfront_port.scan.findings import Evidence, EvidenceKind, Side
from warpfront_port.scan.graph import followed
from warpfront_port.scan.project import MAPS_CUDA, Project
from warpfront_port.scan.reach import (
    MANIFESTS,
    SOURCE,
    Sources,
    import_graph,
    include_graph,
    named,
    sources_of,
)
from warpfront_port.scan.structured import kind_of
from warpfront_port.scan.structured.cmake import HIP_ARM
from warpfront_port.scan.structured.commands import Command
from warpfront_port.scan.structured.makefile import reached_lines
from warpfront_port.scan.words import (
    is_automation,
    is_named_for_nvidia,
    is_of_use,
    line_of,
    uncommented,
)

_OWN_ARM = re.compile(
    r"(?m)^[ \t]*#[ \t]*(?:(?:el)?if(?:n?def)?\b[^\n]*?(?<![A-Za-z])"
    r"(?:__HIP\w*|HIP_PLATFORM\w*|\w*_HIP(?:CC)?|HIP_ENABLED|\w*ROCM\w*|__AMDGCN\w*|\w*_AMD)\b"
    r"|include[ \t]*[<\"]hip/)"
)
_PYTHON_ARM = re.compile(
    r"version\.hip|IS_HIP|is_hip|is_rocm|IS_ROCM|ROCM_HOME|gcnArchName|amdsmi|\brocm_|_rocm\b"
    r"|[\"'](?:hip|rocm)[\"']"
)
_ROCM = re.compile(r"(?i)rocm")
_OF_A_RELEASE = re.compile(r"(?i)rocm|amdgpu[-_]install")
_BUILDS_ROCM = re.compile(r"(?i)rocm|hipcc")
_HIPCC = re.compile(r"\bhipcc\b")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_WORD = re.compile(r"[\w./*%$(){}-]+")
_NAME = re.compile(r"[\w.+-]+")
# Of one digit near the word; of two only next to it: those near may be a distribution's.
_RELEASE = re.compile(r"(?<![\d.])([5-9])\.\d")
_LATER = re.compile(r"(?:[-_]?version)?[\s:=\"'\[/@-]*(1\d)\.\d", re.IGNORECASE)
_NEAR = 100
_OF_AMD = re.compile(r"(?i)(?<![a-z])(?:rocm|hip|amd)(?![a-z])")
_OF_A_VENDOR = re.compile(
    r"(?i)[-_.]?(?<![a-z])(?:rocm|hip|amd|cuda|nvidia|gpu)(?![a-z])(?:\d+(?:\.\d+)*)?"
)
_PART = "@"
_LIBRARY = r"(?i:blas(?:lt)?|fft|rand|solver|sparse|prim|dnn)?(?![a-z])"
_PART_OF_AMD = re.compile(
    rf"(?:(?<![A-Za-z])(?i:hip|rocm|roc(?=[a-z])|amd(?:gpu)?)|(?<=[a-z])(?:Hip|Rocm)){_LIBRARY}"
)
_PART_OF_NVIDIA = re.compile(
    rf"(?:(?<![A-Za-z])(?i:cuda|cu(?=[a-z])|nvidia)|(?<=[a-z])Cuda){_LIBRARY}"
)
_OTHER_BUILD = re.compile(r"(?i)cmake|skbuild|scikit|\bmake\b")
_BESIDE = frozenset({"shell", "requirements"})
_NAMED_FOR_AMD = frozenset({"dockerfile", "yaml"}) | _BESIDE
_EXCLUDING = frozenset({"left-out", "optional"})
_SAYING = frozenset({"message", "return", "option"})
_LISTED: tuple[tuple[str, EvidenceKind], ...] = (
    ("its build lists it for CUDA alone", "left-out"),
    ("its build for HIP lists it", "amd"),
)
Shown = Iterator[tuple[str, Evidence]]
"""Paths, each with its evidence."""


def evidence_of(texts: Mapping[str, str], project: Project) -> Mapping[str, Evidence]:
    """Return the evidence for each path of `texts` that has any.

    `texts` are the sources, builds, lists and scripts of a tree, by relative path with `/`.
    """
    tree = _Tree(texts, project)
    by_path = {path: inner for path in texts if (inner := tree.evidence_inside(path)) is not None}
    copies = dict(tree.copies())
    for path, evidence in (*copies.items(), *tree.listed()):
        if path not in by_path or (evidence.kind == "amd" and by_path[path].kind == "left-out"):
            by_path[path] = evidence
    copied = {path for path, evidence in copies.items() if by_path[path] is evidence}
    tree.follow_includes(by_path, copied)
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
        if SOURCE.search(path):
            arm, reason = _OWN_ARM.search(text), "its own condition for AMD"
        elif path.endswith((".py", ".pyi")):
            arm, reason = uncommented(_PYTHON_ARM, text), "its own branch for ROCm"
        else:
            named_here = self.kinds[path] in _NAMED_FOR_AMD
            arm, reason = uncommented(_ROCM, text) if named_here else None, "it names ROCm"
        return self.cite(path, arm.end(), reason) if arm else None

    def listed(self) -> Shown:
        """Yield the sources that the builds of a tree list for AMD, or for CUDA alone."""
        amds = {  # the folders of the CMakeLists.txt around files with HIP, or their own
            next((p for p in parents if str(p / "CMakeLists.txt") in self.texts), parents[0])
            for path in self.project.cmake
            if HIP_ARM.search(self.texts[path]) and (parents := PurePosixPath(path).parents)
        }
        reason = "its build adds it for CUDA alone"
        cudas = {
            folder: self.cite(path, command.start, reason, "left-out")
            for command, path, folder in (self._added() if amds else ())
            if command.sides == {"nvidia"}
        }
        for path in self.texts:
            folder = PurePosixPath(path).parent
            around = (folder, *folder.parents)
            has_hip = not amds.isdisjoint(around)
            added = next((cudas[parent] for parent in around if parent in cudas), None)
            if added is not None and has_hip:
                if self.kinds[path] == "cmake" or SOURCE.search(path):
                    yield path, added
                continue
            for name, line, sides in self._entries(path, has_hip=has_hip):
                reason, kind = _LISTED["amd" in sides]
                evidence = Evidence(kind=kind, path=path, line=line, reason=reason)
                yield from ((source, evidence) for source in named(name, folder, self.sources))

    def _entries(self, path: str, *, has_hip: bool) -> Iterator[tuple[str, int, frozenset[Side]]]:
        """Yield the sources that a build lists, with their lines and the sides that compile them.

        `has_hip` is true where CMake builds for AMD around the file.
        """
        text = self.texts[path]
        if self.kinds[path] == "cmake" and has_hip:
            yield from _of_cmake(self.project.cmake[path], text)
        elif self.kinds[path] == "make" and (hipcc := uncommented(_HIPCC, text)):
            entries = [
                (name, line_of(text, hipcc.end() if "amd" in sides else start), sides)
                for start, line, sides in reached_lines(text)
                for word in _WORD.findall(line)
                if SOURCE.search(name := word.strip("$(){}").replace("%", "*"))
            ]
            # The rule for an ending lists sources where nothing else does.
            yield from [e for e in entries if not e[0].startswith("*.")] or entries
        elif path in self.project.builds and uncommented(_PYTHON_ARM, text):
            for item in self.project.builds[path].sources:
                if ("amd" in item.sides) is not ("nvidia" in item.sides):
                    yield item.name, item.line, item.sides

    def _added(self) -> Iterator[tuple[Command, str, PurePosixPath]]:
        """Yield the commands by which CMake's files add folders, with the file and the folder."""
        for path, commands in self.project.cmake.items():
            for command in commands if path.endswith("CMakeLists.txt") else ():
                if command.name == "add_subdirectory" and command.words:
                    yield command, path, PurePosixPath(path).parent / command.words[0].text

    def by_default(self) -> Shown:
        """Yield what CMake builds only by an option that is off, or where it finds CUDA.

        Where that is all units and the build has no target beside them, it is the product.
        """
        of_python = any(map(self.project.product.has, self.project.builds))
        off = frozenset() if of_python else self.project.false
        folders: dict[PurePosixPath, Evidence | None] = {}
        for command, path, folder in self._added() if off else ():
            evidence = self._under(off, command, path, is_aside=is_of_use(f"{folder}/"))
            folders[folder] = evidence if folders.get(folder, evidence) else None
        listed: dict[str, Evidence | None] = {}
        has_target = False
        for path, commands in self.project.cmake.items() if off else ():
            folder = PurePosixPath(path).parent
            around = next(filter(None, map(folders.get, (folder, *folder.parents))), None)
            for command in commands:
                evidence = around or self._under(off, command, path)
                if evidence is None and command.name.startswith("add_custom"):
                    continue  # no compiler of the build reads what it names
                has_target |= evidence is None and command.name in {"add_library", "add_executable"}
                for name, *_ in _of_cmake((command,), self.texts[path]):
                    for source in named(name, folder, self.sources):
                        listed[source] = evidence if listed.get(source, evidence) else None
        beside: dict[PurePosixPath, Evidence | None] = {}
        for source, item in listed.items():  # what no list names goes with what is beside it
            folder = PurePosixPath(source).parent
            beside[folder] = item if beside.get(folder, item) else None
        folders = beside | folders
        by_path = {path: item for path, item in listed.items() if item}
        for path in (
            (path for path in self.texts if path not in listed) if any(folders.values()) else ()
        ):
            nearest = filter(None, map(folders.get, PurePosixPath(path).parents))
            by_path.update((path, item) for item in islice(nearest, 1))
        is_product = by_path.keys() >= set(self.project.units) and not has_target
        for path, item in by_path.items():
            if item.kind == "aside" or not is_product:
                yield path, item

    def _under(
        self, off: AbstractSet[str], command: Command, path: str, *, is_aside: bool = False
    ) -> Evidence | None:
        """Return the evidence of a command in an arm that is not taken by default, if it is."""
        reason = "its build leaves it out without an option or CUDA"
        kind: EvidenceKind = "aside" if is_aside else "optional"
        return self.cite(path, command.start, reason, kind) if command.is_under(off) else None

    def built(self) -> Shown:
        """Yield the CUDA sources below a build that has a branch for AMD of its own.

        CMake's modules there count as AMD's: the sides that reach them are their includer's.
        """
        reason = "its build has a branch for AMD"
        branches = {
            PurePosixPath(path).parent: Evidence(
                kind="built", path=path, line=build.amd_line, reason=reason
            )
            for path, build in self.project.builds.items()
            if build.amd_line and uncommented(_PYTHON_ARM, self.texts[path])
        }
        for path, commands in self.project.cmake.items():
            if path.endswith("CMakeLists.txt"):
                arm = HIP_ARM.search(self.texts[path])
                starts = [
                    command.start
                    for command in commands
                    if command.sides == {"amd"} and command.name not in _SAYING
                ]
                for start in (*starts, *([arm.start()] if arm else []))[:1]:
                    branches[PurePosixPath(path).parent] = self.cite(path, start, reason, "built")
        for path in self.texts if branches else ():
            of_cmake = path.endswith(".cmake")
            evidence = next(filter(None, map(branches.get, PurePosixPath(path).parents)), None)
            if evidence is not None and (of_cmake or SOURCE.search(path)):
                yield path, replace(evidence, kind="amd") if of_cmake else evidence

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
        # The root's own build fails with its extension, optional for its users or not.
        spare = self.project.dispensable.difference(MANIFESTS)
        spared: dict[str, Evidence] = {}
        needed: set[str] = set()
        for path, build in self.project.builds.items():
            reason = f"its {'users go' if path in spare else 'build goes'} on without it"
            for item in build.sources:
                evidence = Evidence(kind="optional", path=path, line=item.line, reason=reason)
                for source in named(item.name, PurePosixPath(path).parent, self.sources):
                    spared.setdefault(source, evidence)
                    needed |= set() if item.optional or path in spare else {source}
        yield from ((path, item) for path, item in spared.items() if path not in needed)

    def chosen(self) -> Shown:
        """Yield the modules named for NVIDIA that no other one imports without a condition, and
        those that only they import. Where they are a third of the project, they are its purpose.
        """
        named = {p for p in self.texts if p.endswith(".py") and is_named_for_nvidia(p)}
        graph = import_graph(self.texts, anywhere=False) if named else {}
        needed = {module for path in graph.keys() - named for module in graph[path]}
        chosen = named - needed - self.project.product.modules
        graph = import_graph(self.texts, anywhere=True) if chosen else {}
        below = followed(chosen, graph)
        others = {path: imported for path, imported in graph.items() if path not in chosen}
        starts = (others.keys() - below | needed | self.project.product.modules) - chosen
        theirs = chosen | below - followed(starts, others)
        for path in () if self.project.product.is_most(theirs) else theirs:
            reason = "only what is named for NVIDIA imports it"
            yield path, self.cite(min(chosen), 0, reason, "left-out")

    def unused(self) -> Shown:
        """Yield the headers that no source includes, where sources are what is built, and the
        files of CMake's language that no build names: the settings of one machine, or a user's.
        """
        for path in self.sources.paths if self.project.units else ():
            if PurePosixPath(path).suffix in HEADERS and not self.includes[1].get(path):
                yield path, self.cite(path, 0, "no source of the tree includes it", "optional")
        named: dict[str, set[str]] = {}
        for path in self.project.cmake:
            name = PurePosixPath(path).name
            for word in {name, name.removesuffix(".cmake").removeprefix("Find")}:
                named.setdefault(word, set()).add(path)
        graph = {
            path: set[str]().union(
                *(named.get(word, ()) for word in _NAME.findall(self.texts[path]))
            )
            for path in self.project.cmake
        }
        builds = {path for path in self.project.cmake if path.endswith("CMakeLists.txt")}
        for path in self.project.cmake.keys() - followed(builds, graph) if builds else ():
            yield path, self.cite(path, 0, "no file of the build names it", "aside")

    def copies(self) -> Shown:
        """Yield files with a copy for AMD, whose path differs in the vendor's name alone."""
        amds: dict[str, str] = {}
        for path, kind in self.kinds.items():
            part = path if path.endswith(".hip") else _PART_OF_AMD.sub(_PART, path)
            if part != path or path.endswith(".hip"):
                amds.setdefault(_bare(part), path)
            if _OF_AMD.search(path) and kind in _NAMED_FOR_AMD:
                amds.setdefault(_plain(path, kind), path)
        for path, kind in self.kinds.items():
            part = _PART_OF_NVIDIA.sub(_PART, path)
            amd = ""
            code = SOURCE.search(path) or path.endswith(".py")
            if code and (part != path or path.endswith(".cu")):
                amd = amds.get(_bare(part), "")
            elif kind in _NAMED_FOR_AMD and not _OF_AMD.search(path):
                images = kind != "yaml" or "compose" in path
                amd = amds.get(_plain(path, kind), "") if images else ""
            if amd:
                yield path, self.cite(amd, 0, "a copy for AMD is there", "left-out")
        yield from self._folders_beside(amds)

    def _folders_beside(self, amds: Mapping[str, str]) -> Shown:
        """Yield sources below `cuda/CMakeLists.txt` where `hip/CMakeLists.txt` has its own."""
        for build in self.texts:
            folder, _, name = build.rpartition("/")
            part = _PART_OF_NVIDIA.sub(_PART, folder)
            amd = amds.get(f"{part}/CMakeLists", "") if name == "CMakeLists.txt" else ""
            names_it = f"{folder.rpartition('/')[2]}/" in self.texts.get(amd, "")
            if amd and part != folder and not names_it:
                evidence = self.cite(amd, 0, "a build for AMD is beside its own", "left-out")
                below = (path for path in self.sources.paths if path.startswith(f"{folder}/"))
                yield from ((path, evidence) for path in below)

    def follow_includes(self, by_path: dict[str, Evidence], copied: AbstractSet[str]) -> None:
        """Carry evidence along includes: down from sources, and up from headers that map names.

        A header that is `copied` for AMD is none of AMD's: a source includes one of the two.
        """
        includes, users = self.includes
        reason = "a header that gives CUDA's names HIP's meaning"
        for path in self.sources.paths:
            if mapped := MAPS_CUDA.search(self.texts[path]):
                _spread(path, self.cite(path, mapped.end(), reason), users, by_path, copied)
        for path in [p for p, item in by_path.items() if item.kind == "amd" and p in includes]:
            if users.get(path) or not path.endswith((".h", ".hpp", ".cuh")):
                _spread(path, by_path[path], includes, by_path, copied)

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


def _spread(
    start: str,
    evidence: Evidence,
    edges: Mapping[str, set[str]],
    by_path: dict[str, Evidence],
    copied: AbstractSet[str],
) -> None:
    for path in sorted(followed((start,), edges)):
        of_cuda = path in by_path and by_path[path].kind == "left-out" and path not in copied
        if path not in by_path or of_cuda:
            by_path[path] = evidence


def _of_cmake(commands: Iterable[Command], text: str) -> Iterator[tuple[str, int, frozenset[Side]]]:
    """Yield the sources that commands name; those of a list count where its variable is used."""
    used: dict[str, frozenset[Side]] = {}
    for command in commands:
        for name in _VARIABLE.findall(" ".join(word.text for word in command.words)):
            used[name] = used.get(name, frozenset()) | command.sides
    for command in commands:
        sides = command.sides
        if command.name == "set" and command.words:
            sides &= used.get(command.words[0].text, sides)
        for word in command.words:
            for name in word.text.split(";"):
                if SOURCE.search(name):
                    yield name, line_of(text, word.start), sides


def _bare(path: str) -> str:
    """Return a path without the endings of its name: `a/k` of `a/k.hip.cpp`."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.partition('.')[0]}"


def _plain(path: str, kind: str) -> str:
    """Return what a file and its copy for AMD have in common."""
    folder, _, name = path.rpartition("/")
    return f"{kind} {folder}/{_OF_A_VENDOR.sub('', name)}" if kind in _BESIDE else f"{kind} "


def doubt_of_branch(texts: Mapping[str, str], release: str) -> str:
    """Return why a branch for AMD next to a build for CUDA is no proof, "" where it is one.

    Such a branch states that its sources build. The project's own CI shows it for the releases of
    ROCm that it names; one that names none shows it for some release, perhaps an older one.
    """
    places: dict[int, str] = {}
    for path, text in texts.items():
        arm = uncommented(_BUILDS_ROCM, text) if is_automation(path) else None
        if arm:
            ends = [word.end() for word in _OF_A_RELEASE.finditer(text)]
            releases = [m[1] for end in ends for m in _RELEASE.finditer(text, end, end + _NEAR)]
            releases += [m[1] for end in ends if (m := _LATER.match(text, end))]
            places[max(map(int, releases), default=0)] = f"{path}:{line_of(text, arm.end())}"
    if not places:
        return "no CI of the project's builds them for ROCm"
    newest = max(places)
    if newest >= int(release.removeprefix("rocm")):
        return ""
    if not newest:
        return f"the project's CI names no release of ROCm ({places[newest]})"
    return f"the project's CI builds them for rocm{newest} at most ({places[newest]})"
