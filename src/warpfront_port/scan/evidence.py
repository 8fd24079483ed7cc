"""Evidence, file by file, that a project already builds or runs a part of itself on AMD. Pure.

A file counts as AMD's when it shows so itself: conditions of its own, a list in its build's part
for HIP, a header that maps CUDA's names, or a copy for HIP. Nothing counts for a whole tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from warpfront_port.scan.findings import Evidence, Side
from warpfront_port.scan.python.builds import PythonBuild, imports_with_options, read_build
from warpfront_port.scan.reach import (
    EXTENSIONS,
    SOURCE,
    followed,
    include_graph,
    named,
    sources_of,
)
from warpfront_port.scan.structured import kind_of
from warpfront_port.scan.structured.cmake import hip_arm, read_cmake
from warpfront_port.scan.words import is_aside, is_automation

_OWN_ARM = re.compile(
    r"(?m)^[ \t]*#[ \t]*(?:(?:el)?if(?:n?def)?\b[^\n]*?(?<![A-Za-z])"
    r"(?:__HIP\w*|HIP_PLATFORM\w*|\w*_HIP(?:CC)?|HIP_ENABLED|\w*ROCM\w*|__AMDGCN\w*|\w*_AMD)\b"
    r"|include[ \t]*[<\"]hip/)"
)
_PYTHON_ARM = re.compile(
    r"(?m)^[^#\n]*(?:version\.hip|IS_HIP|is_hip|is_rocm|IS_ROCM|ROCM_HOME|gcnArchName|amdsmi"
    r"|\brocm_|_rocm\b|[\"'](?:hip|rocm)[\"'])"
)
_MAPS_CUDA = re.compile(r"(?m)^[ \t]*#[ \t]*define[ \t]+cuda[A-Z]\w+[ \t]+hip[A-Z]\w+")
_OF_AMD = re.compile(r"(?i)(?<![a-z])(?:rocm|hip|amd)(?![a-z])")
_OF_A_VENDOR = re.compile(
    r"(?i)[-_.]?(?<![a-z])(?:rocm|hip|amd|cuda|nvidia|gpu)(?![a-z])(?:\d+(?:\.\d+)*)?"
)


def evidence_of(texts: Mapping[str, str]) -> Mapping[str, Evidence]:
    """Return the evidence for each path of `texts` that has any.

    `texts` are the sources, builds, lists and scripts of a tree, by relative path with `/`.
    """
    by_path: dict[str, Evidence] = {}
    for path, text in texts.items():
        evidence_here = _own(path, text)
        if evidence_here is not None:
            by_path[path] = evidence_here
    builds = {
        path: build
        for path, text in texts.items()
        if path.endswith(".py")
        and EXTENSIONS.search(text)
        and (build := read_build(path, text)) is not None
    }
    for path, evidence in (*_listed(texts, builds), *_copies(texts)):
        if path not in by_path or (evidence.kind == "amd" and by_path[path].kind == "left-out"):
            by_path[path] = evidence
    _follow_includes(texts, by_path)
    branches = dict(_branches(texts, builds))
    off = _off_by_default(texts, builds)
    for path, evidence in (*_spared(texts, builds, off), *_built(texts, branches)):
        by_path.setdefault(path, evidence)
    return by_path


def _own(path: str, text: str) -> Evidence | None:
    """Return the evidence in a file itself."""
    if path.endswith(".hip"):
        return Evidence(kind="amd", path=path, line=1, reason="a HIP source")
    if SOURCE.search(path):
        arm = _OWN_ARM.search(text)
        return _at(path, text, arm, "its own condition for AMD") if arm else None
    if path.endswith((".py", ".pyi")):
        arm = _PYTHON_ARM.search(text)
        return _at(path, text, arm, "its own branch for ROCm") if arm else None
    named = kind_of(PurePosixPath(path)) in {"dockerfile", "yaml", "shell", "requirements"}
    rocm = re.search(r"(?im)^[^#\n]*rocm", text) if named else None
    return _at(path, text, rocm, "it names ROCm") if rocm else None


def _at(path: str, text: str, match: re.Match[str], reason: str) -> Evidence:
    return Evidence(kind="amd", path=path, line=text.count("\n", 0, match.end()) + 1, reason=reason)


def _listed(
    texts: Mapping[str, str], builds: Mapping[str, PythonBuild]
) -> Iterator[tuple[str, Evidence]]:
    """Yield the sources that the builds of a tree list for AMD, or for CUDA alone."""
    sources = sources_of(texts)
    hip_folders = {
        _project_of(path, texts)
        for path, text in texts.items()
        if kind_of(PurePosixPath(path)) == "cmake" and hip_arm(text)
    }
    cudas = _added_for_cuda(texts) if hip_folders else {}
    for path, text in texts.items():
        kind = kind_of(PurePosixPath(path))
        folder = PurePosixPath(path).parent
        around = (folder, *folder.parents)
        entries: Iterable[tuple[str, int, frozenset[Side]]] = ()
        added = next((cudas[parent] for parent in around if parent in cudas), None)
        if added is not None and not hip_folders.isdisjoint(around):
            if kind == "cmake" or SOURCE.search(path):
                yield path, added
        elif kind == "cmake" and not hip_folders.isdisjoint(around):
            entries = _of_cmake(text)
        elif kind == "make" and (hipcc := re.search(r"(?m)^[^#\n]*\bhipcc\b", text)):
            line = text.count("\n", 0, hipcc.end()) + 1
            entries = ((name, line, frozenset({"amd"})) for name in _words_of(text))
        elif path in builds:
            listed = builds[path].sources if _PYTHON_ARM.search(text) else ()
            entries = (
                (item.name, item.line, item.sides)
                for item in listed
                if ("amd" in item.sides) is not ("nvidia" in item.sides)
            )
        for name, line, sides in entries:
            amd = "amd" in sides
            reason = "its build for HIP lists it" if amd else "its build lists it for CUDA alone"
            evidence = Evidence(
                kind="amd" if amd else "left-out", path=path, line=line, reason=reason
            )
            for source in named(name, folder, sources):
                yield source, evidence


def _project_of(path: str, texts: Mapping[str, str]) -> PurePosixPath:
    """Return the folder of the CMakeLists.txt around a file of CMake's, or the file's own."""
    parents = PurePosixPath(path).parents
    return next((p for p in parents if str(p / "CMakeLists.txt") in texts), parents[0])


def _added_for_cuda(texts: Mapping[str, str]) -> Mapping[PurePosixPath, Evidence]:
    """Return the folders that CMake adds where it builds for CUDA alone, with the place."""
    added: dict[PurePosixPath, Evidence] = {}
    for path, text in texts.items():
        if not path.endswith("CMakeLists.txt") or "add_subdirectory" not in text.lower():
            continue
        for command in read_cmake(text):
            if command.name == "add_subdirectory" and command.sides == {"nvidia"}:
                folder = PurePosixPath(path).parent / command.arguments[0].text
                line = text.count("\n", 0, command.start) + 1
                reason = "its build adds it for CUDA alone"
                added[folder] = Evidence(kind="left-out", path=path, line=line, reason=reason)
    return added


def _built(
    texts: Mapping[str, str], branches: Mapping[str, Evidence]
) -> Iterator[tuple[str, Evidence]]:
    """Yield the CUDA sources below a build that has a branch for AMD of its own.

    CMake's modules there count as AMD's: the sides that reach them are their includer's.
    """
    for path in texts if branches else ():
        of_cmake = path.endswith(".cmake")
        if of_cmake or SOURCE.search(path):
            folders = map(str, PurePosixPath(path).parents)
            evidence = next((branches[folder] for folder in folders if folder in branches), None)
            if evidence is not None:
                yield path, replace(evidence, kind="amd") if of_cmake else evidence


def _branches(
    texts: Mapping[str, str], builds: Mapping[str, PythonBuild]
) -> Iterator[tuple[str, Evidence]]:
    """Yield the folders of builds with a branch for AMD, and the place of that branch."""
    for path, text in texts.items():
        line = builds[path].amd_line if path in builds and _PYTHON_ARM.search(text) else 0
        if path.endswith("CMakeLists.txt") and _OF_AMD.search(text):
            starts = (
                command.start
                for command in read_cmake(text)
                if command.sides == {"amd"} and command.name not in _SAYING
            )
            arm = hip_arm(text)
            start = next(starts, arm.start() if arm else -1)
            line = text.count("\n", 0, start) + 1 if start >= 0 else 0
        if line:
            yield (
                str(PurePosixPath(path).parent),
                Evidence(
                    kind="built", path=path, line=line, reason="its build has a branch for AMD"
                ),
            )


_SAYING = frozenset({"message", "return", "option"})


def _spared(
    texts: Mapping[str, str], builds: Mapping[str, PythonBuild], off: Mapping[str, Evidence]
) -> Iterator[tuple[str, Evidence]]:
    """Yield the sources that a project's builds go on without, or that no default path builds."""
    sources = sources_of(texts)
    for path, build in builds.items():
        reason = "its build goes on without it"
        for item in build.sources:
            evidence = Evidence(kind="optional", path=path, line=item.line, reason=reason)
            for source in named(item.name, PurePosixPath(path).parent, sources):
                if item.optional or path in off:
                    yield source, off.get(path, evidence)


def _off_by_default(
    texts: Mapping[str, str], builds: Mapping[str, PythonBuild]
) -> Mapping[str, Evidence]:
    """Return the builds at run time that are imported only by an option that is off by default."""
    loaders = {path for path in builds if _LOADS.search(texts[path])}
    modules = {path: text for path, text in texts.items() if path.endswith(".py")}
    names = {_module_name(path): path for path in modules}
    always: dict[str, set[str]] = {}
    options: list[tuple[str, str, int]] = []
    for path, text in modules.items() if loaders else ():
        for target, line in imports_with_options(path, text, names):
            if line:
                options.append((path, target, line))
            else:
                always.setdefault(path, set()).add(target)
    starts = {path for path in modules if not is_aside(PurePosixPath(path))}
    imported = followed((), always).union(*always.values(), (target for _, target, _ in options))
    begun = followed((path for path in starts if path not in imported), always)
    reason = "only an option that is off by default imports its build"
    return {
        loader: Evidence(kind="optional", path=path, line=line, reason=reason)
        for path, target, line in options
        if path in begun
        for loader in loaders & followed((target,), always) - begun
    }


def _module_name(path: str) -> str:
    plain = path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__")
    return plain.replace("/", ".")


_LOADS = re.compile(r"cpp_extension\.load\w*|import[^\n]*\bload(?:_inline)?\b")


def doubt_of_branch(texts: Mapping[str, str], release: str) -> str:
    """Return why a branch for AMD beside a build for CUDA is no proof, "" where it is one.

    Such a branch states that its sources build. The project's own CI shows it, for the releases of
    ROCm that it names.
    """
    places: dict[str, str] = {}
    for path, text in texts.items():
        arm = _ROCM.search(text) if is_automation(path) else None
        if arm:
            place = f"{path}:{text.count(chr(10), 0, arm.end()) + 1}"
            versions = [
                version[1]
                for word in re.finditer("(?i)rocm", text)
                for version in _VERSION.finditer(text, word.end(), word.end() + _NEAR)
            ]
            places |= {f"rocm{max(versions)}" if versions else "": place}
    if not places:
        return "no CI of the project's builds them for ROCm"
    newest = max(places)
    if not newest or newest >= release:
        return ""
    return f"the project's CI builds them for {newest} at most ({places[newest]})"


_ROCM = re.compile(r"(?im)^[^#\n]*(?:rocm|hipcc)")
_VERSION = re.compile(r"(?<![\d.])([5-9])\.\d")
_NEAR = 100


def _words_of(text: str) -> Iterator[str]:
    for word in re.findall(r"[\w./*%$(){}-]+", text):
        name = word.replace("%", "*")
        if SOURCE.search(name):
            yield name


def _of_cmake(text: str) -> Iterator[tuple[str, int, frozenset[Side]]]:
    """Yield the sources that commands name; those of a list count where its variable is used."""
    commands = tuple(read_cmake(text))
    used: dict[str, frozenset[Side]] = {}
    for command in commands:
        for word in command.arguments:
            for name in _VARIABLE.findall(word.text):
                used[name] = used.get(name, frozenset()) | command.sides
    for command in commands:
        sides = command.sides
        if command.name == "set" and command.arguments:
            sides &= used.get(command.arguments[0].text, sides)
        for word in command.arguments:
            for name in word.text.split(";"):
                if SOURCE.search(name):
                    yield name, text.count("\n", 0, word.start) + 1, sides


_VARIABLE = re.compile(r"\$\{(\w+)\}")


def _copies(texts: Mapping[str, str]) -> Iterator[tuple[str, Evidence]]:
    """Yield files that have a copy for AMD, whose path differs in the vendor's name alone."""
    kinds = {path: kind_of(PurePosixPath(path)) for path in texts}
    amds: dict[str, str] = {}
    for path, kind in kinds.items():
        if path.endswith(".hip") or (part := _PART_OF_AMD.sub(_PART, path)) != path:
            amds.setdefault(_key(path if path.endswith(".hip") else part), path)
        if _OF_AMD.search(path) and kind in _BY_KIND:
            amds.setdefault(f"{kind} {_plain(path) if kind in _BESIDE else ''}", path)
    for path, kind in kinds.items():
        amd = ""
        part = _PART_OF_NVIDIA.sub(_PART, path)
        if SOURCE.search(path) and (part != path or path.endswith(".cu")):
            amd = amds.get(_key(part), "")
        elif kind in _BY_KIND and not _OF_AMD.search(path):
            images = kind != "yaml" or "compose" in path
            beside = _plain(path) if kind in _BESIDE else ""
            amd = amds.get(f"{kind} {beside}", "") if images else ""
        if amd:
            reason = "a copy for AMD is there"
            yield path, Evidence(kind="left-out", path=amd, line=1, reason=reason)


_BESIDE = frozenset({"shell", "requirements"})
_BY_KIND = frozenset({"dockerfile", "yaml"}) | _BESIDE


def _plain(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/{_OF_A_VENDOR.sub('', name)}"


def _key(path: str) -> str:
    return path.rpartition(".")[0]


_PART = "@"
_LIBRARY = r"(?i:blas(?:lt)?|fft|rand|solver|sparse|prim|dnn)?(?![a-z])"
_PART_OF_AMD = re.compile(rf"(?<![A-Za-z])(?i:hip|rocm|roc(?=[a-z])|amd(?:gpu)?){_LIBRARY}")
_PART_OF_NVIDIA = re.compile(rf"(?<![A-Za-z])(?i:cuda|cu(?=[a-z])|nvidia){_LIBRARY}")


def _follow_includes(texts: Mapping[str, str], by_path: dict[str, Evidence]) -> None:
    """Carry evidence along includes: down from sources, and up from a header that maps names."""
    includes, users = include_graph(texts)
    for path, text in texts.items():
        mapped = _MAPS_CUDA.search(text) if SOURCE.search(path) else None
        if mapped:
            evidence = _at(path, text, mapped, "a header that gives CUDA's names HIP's meaning")
            _spread(path, evidence, users, by_path)
    for path in [path for path, item in by_path.items() if item.kind == "amd" and path in includes]:
        if users.get(path) or not path.endswith((".h", ".hpp", ".cuh")):
            _spread(path, by_path[path], includes, by_path)
    pending = list(users)
    while pending:
        path = pending.pop()
        if path not in by_path and all(_is_left_out(by_path.get(u)) for u in users.get(path, ())):
            by_path[path] = by_path[min(users[path])]
            pending += includes.get(path, ())


def _is_left_out(evidence: Evidence | None) -> bool:
    return evidence is not None and evidence.kind == "left-out"


def _spread(
    start: str, evidence: Evidence, edges: Mapping[str, set[str]], by_path: dict[str, Evidence]
) -> None:
    for path in sorted(followed((start,), edges)):
        if path not in by_path or by_path[path].kind == "left-out":
            by_path[path] = evidence
