"""Evidence, file by file, that a project already builds or runs a part of itself on AMD. Pure.

A file counts as AMD's when it shows so itself: conditions of its own, a list in its build's part
for HIP, a header that maps CUDA's names, or a copy for HIP. Nothing counts for a whole tree.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import PurePosixPath

from warpfront_port.scan.findings import Evidence, Side
from warpfront_port.scan.python.gates import Gates
from warpfront_port.scan.python.module import Module, text_of
from warpfront_port.scan.structured import kind_of
from warpfront_port.scan.structured.cmake import builds_hip, read_cmake

_SOURCE = re.compile(r"\.(?:cu|cuh|hip|c|cc|cpp|cxx|h|hh|hpp|hxx|inl)\Z", re.IGNORECASE)
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
_INCLUDE = re.compile(r"(?m)^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]")
_OF_AMD = re.compile(r"(?i)(?<![a-z])(?:rocm|hip|amd)(?![a-z])")
_OF_A_VENDOR = re.compile(
    r"(?i)[-_.]?(?<![a-z])(?:rocm|hip|amd|cuda|nvidia|gpu)(?![a-z])(?:\d+(?:\.\d+)*)?"
)
_EXTENSIONS = re.compile(r"CUDAExtension|cpp_extension")


def evidence_of(texts: Mapping[str, str]) -> Mapping[str, Evidence]:
    """Return the evidence for each path of `texts` that has any.

    `texts` are the sources, builds, lists and scripts of a tree, by relative path with `/`.
    """
    by_path: dict[str, Evidence] = {}
    for path, text in texts.items():
        evidence_here = _own(path, text)
        if evidence_here is not None:
            by_path[path] = evidence_here
    for path, evidence in (*_listed(texts), *_copies(texts)):
        if path not in by_path or (evidence.kind == "amd" and by_path[path].kind == "left-out"):
            by_path[path] = evidence
    _follow_includes(texts, by_path)
    _follow_packages(texts, by_path)
    return by_path


def _own(path: str, text: str) -> Evidence | None:
    """Return the evidence in a file itself."""
    if path.endswith(".hip"):
        return Evidence(kind="amd", path=path, line=1, reason="a HIP source")
    if _SOURCE.search(path):
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


def _listed(texts: Mapping[str, str]) -> Iterator[tuple[str, Evidence]]:
    """Yield the sources that the builds of a tree list for AMD, or for CUDA alone."""
    sources = _sources_of(texts)
    hip_folders = {
        PurePosixPath(path).parent
        for path, text in texts.items()
        if kind_of(PurePosixPath(path)) == "cmake" and builds_hip(text)
    }
    for path, text in texts.items():
        kind = kind_of(PurePosixPath(path))
        folder = PurePosixPath(path).parent
        entries: Iterable[tuple[str, int, frozenset[Side]]] = ()
        if kind == "cmake" and not hip_folders.isdisjoint((folder, *folder.parents)):
            entries = _of_cmake(text)
        elif kind == "make" and (hipcc := re.search(r"(?m)^[^#\n]*\bhipcc\b", text)):
            line = text.count("\n", 0, hipcc.end()) + 1
            entries = ((name, line, frozenset({"amd"})) for name in _words_of(text))
        elif path.endswith(".py") and _EXTENSIONS.search(text) and _PYTHON_ARM.search(text):
            entries = _of_python(path, text)
        for name, line, sides in entries:
            amd = "amd" in sides
            reason = "its build for HIP lists it" if amd else "its build lists it for CUDA alone"
            evidence = Evidence(
                kind="amd" if amd else "left-out", path=path, line=line, reason=reason
            )
            for source in _named(name, folder, sources):
                yield source, evidence


def _words_of(text: str) -> Iterator[str]:
    for word in re.findall(r"[\w./*%$(){}-]+", text):
        name = word.replace("%", "*")
        if _SOURCE.search(name):
            yield name


def _of_cmake(text: str) -> Iterator[tuple[str, int, frozenset[Side]]]:
    for command in read_cmake(text):
        for word in command.arguments:
            for name in word.text.split(";"):
                if _SOURCE.search(name):
                    yield name, text.count("\n", 0, word.start) + 1, command.sides


def _of_python(path: str, text: str) -> Iterator[tuple[str, int, frozenset[Side]]]:
    """Yield sources that one vendor's branch lists; a list for both vendors proves neither."""
    try:
        module = Module(PurePosixPath(path), text)
    except (SyntaxError, ValueError, RecursionError):
        return
    gates = Gates(module)
    for node in module.nodes:
        name = text_of(node) if isinstance(node, ast.Constant) else None
        if name and len(name) < 200 and _SOURCE.search(name):
            sides = gates.standing(node).sides
            if ("amd" in sides) is not ("nvidia" in sides):
                yield name, getattr(node, "lineno", 1), sides


def _named(name: str, folder: PurePosixPath, sources: _Sources) -> Iterator[str]:
    """Yield the sources that a name or pattern of a build means."""
    pattern = re.sub(r"\$[{(]\w+[)}]/?", "", name)
    outside = pattern.startswith("../")
    pattern = re.sub(r"\A(?:\.\.?/)+", "", pattern).lstrip("/")
    if not pattern.strip("*./"):
        return
    last = pattern.rpartition("/")[2]
    candidates = sources.paths if "*" in last or "?" in last else sources.by_name.get(last, ())
    for source in candidates:
        inside = outside or folder == PurePosixPath(".") or source.startswith(f"{folder}/")
        if inside and (fnmatch(source, pattern) or fnmatch(source, f"*/{pattern}")):
            yield source


@dataclass(frozen=True, slots=True)
class _Sources:
    """The sources of a tree, and by the last part of their paths."""

    paths: tuple[str, ...]
    by_name: Mapping[str, list[str]]


def _sources_of(texts: Mapping[str, str]) -> _Sources:
    paths = tuple(path for path in texts if _SOURCE.search(path))
    by_name: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        by_name[path.rpartition("/")[2]].append(path)
    return _Sources(paths, by_name)


def _copies(texts: Mapping[str, str]) -> Iterator[tuple[str, Evidence]]:
    """Yield files that have a copy for AMD, whose path differs in the vendor's name alone."""
    kinds = {path: kind_of(PurePosixPath(path)) for path in texts}
    amds: dict[str, str] = {}
    for path, kind in kinds.items():
        if (part := _PART_OF_AMD.sub(_PART, path)) != path:
            amds.setdefault(_key(part), path)
        if _OF_AMD.search(path) and kind in _BY_KIND:
            amds.setdefault(f"{kind} {_plain(path) if kind in _BESIDE else ''}", path)
    for path, kind in kinds.items():
        amd = ""
        if _SOURCE.search(path) and (part := _PART_OF_NVIDIA.sub(_PART, path)) != path:
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
    includes, users = _include_graph(texts)
    for path, text in texts.items():
        mapped = _MAPS_CUDA.search(text) if _SOURCE.search(path) else None
        if mapped:
            evidence = _at(path, text, mapped, "a header that gives CUDA's names HIP's meaning")
            _spread(path, evidence, users, by_path)
    for path in [path for path, item in by_path.items() if item.kind == "amd" and path in includes]:
        if users.get(path) or not path.endswith((".h", ".hpp", ".cuh")):
            _spread(path, by_path[path], includes, by_path)
    for path, having in users.items():
        first = min(having)
        if path not in by_path and all(_is_left_out(by_path.get(user)) for user in having):
            by_path[path] = by_path[first]


def _include_graph(
    texts: Mapping[str, str],
) -> tuple[Mapping[str, set[str]], Mapping[str, set[str]]]:
    """Return for each source the headers of the tree that it includes, and the other way round."""
    sources = _sources_of(texts)
    includes: dict[str, set[str]] = {}
    users: dict[str, set[str]] = defaultdict(set)
    for path in sources.paths:
        includes[path] = {
            header
            for name in _INCLUDE.findall(texts[path])
            for header in sources.by_name.get(name.rpartition("/")[2], ())
            if header == name or header.endswith(f"/{name.lstrip('./')}")
        }
        for header in includes[path]:
            users[header].add(path)
    return includes, users


def _is_left_out(evidence: Evidence | None) -> bool:
    return evidence is not None and evidence.kind == "left-out"


def _spread(
    start: str, evidence: Evidence, edges: Mapping[str, set[str]], by_path: dict[str, Evidence]
) -> None:
    pending = [start]
    visited = {start}
    while pending:
        path = pending.pop()
        if path not in by_path or by_path[path].kind == "left-out":
            by_path[path] = evidence
        pending += sorted(edges.get(path, set()) - visited)
        visited |= edges.get(path, set())


def _follow_packages(texts: Mapping[str, str], by_path: dict[str, Evidence]) -> None:
    """Add to the modules of a Python package the first branch for ROCm in that package's code."""
    by_package: dict[str, Evidence] = {}
    modules = [path for path in texts if path.endswith(".py")]
    packages = {path.rpartition("/")[0] for path in modules if path.endswith("__init__.py")}
    for path in sorted(modules):
        package = _package(path, packages)
        builds = _EXTENSIONS.search(texts[path]) or path.endswith("setup.py")
        if package and path in by_path and not builds:
            by_package.setdefault(package, by_path[path])
    for path in modules:
        package = _package(path, packages)
        if package in by_package and path not in by_path:
            by_path[path] = by_package[package]


def _package(path: str, packages: set[str]) -> str:
    """Return the outermost package folder around a module; "" for none."""
    folders = [str(folder) for folder in PurePosixPath(path).parents if str(folder) in packages]
    return folders[-1] if folders else ""
