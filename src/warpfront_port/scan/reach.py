"""The part of a tree that the build of its root reaches. Pure.

`compile_commands.json` lists what a build compiles. Without one, the Python builds of the root's
distribution list it. Without either, every source counts. A folder with a build of its own below
a root with one is another distribution.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from warpfront_port.scan.graph import followed
from warpfront_port.scan.words import is_aside

if TYPE_CHECKING:
    from warpfront_port.scan.python.builds import PythonBuild

SOURCE = re.compile(r"\.(?:cu|cuh|hip|c|cc|cpp|cxx|h|hh|hpp|hxx|inl)\Z", re.IGNORECASE)
EXTENSIONS = re.compile(r"CUDAExtension|cpp_extension")
_BUILDS = re.compile(
    r"CUDAExtension\s*\(|=\s*CUDAExtension\b|cpp_extension\.load|load_inline|import[^\n]*\bload\b"
)
INCLUDE = re.compile(r"(?m)^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]")
MANIFESTS = ("pyproject.toml", "setup.cfg", "setup.py")
_ROOTS = frozenset({"", "src", "python", "lib", "source"})
_TOLD = re.compile(r"-(?:I|isystem|D|U|std=|iquote)")
_SEPARATE = frozenset({"-I", "-isystem", "-iquote", "-D", "-U"})
# What makes each manifest that of a distribution. A [build-system] alone distributes nothing.
_DISTRIBUTES = {
    "pyproject.toml": re.compile(r"(?m)^\[(?:project|tool\.(?:poetry|flit\.metadata))\]"),
    "setup.cfg": re.compile(r"(?m)^\[metadata\]"),
    "setup.py": re.compile(""),
}
_SCRIPT = re.compile(r"(?!setup\.py)[^/]+\.py")
_IMPORTED = re.compile(r"(?m)^(?:[ \t]*\")?(?:from|import)[ \t]+([^\n#]+)")
_CALLED = re.compile(r"(?<!def )\b([A-Za-z_]\w*)\(")
_ENTRY = re.compile(r"(?<![\w.])([\w.]+):\w+[\"']")
_COMPILES = re.compile(
    r"(?i)cmake|skbuild|scikit|meson|nvcc|hipcc|(?-i:Extension)\b|ext[-_]modules|cython|make\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """The files that decide for a tree; None where all of a kind do.

    `code` are the reached sources and headers, `packages` the folders of the distribution's Python
    packages. `others` are the folders of other distributions. `basis` is the file that lists the
    sources, "" for none. `flags` are the options of a source, from compile_commands.json.
    `unreached` are sources that a configured build leaves out. `installs` is true if pip installs
    what the root needs. `modules` are those of its packages. `lines` are those of the root's
    modules, `imported` the words of what modules import at once. `started` are the functions that
    scripts at the root call. `of_nvidia` are sources in other languages that name NVIDIA, where
    none has a part for AMD.
    """

    code: frozenset[str] | None = None
    packages: tuple[str, ...] | None = None
    other_folders: tuple[str, ...] = ()
    basis: str = ""
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unreached: frozenset[str] = frozenset()
    installs: bool = False
    modules: frozenset[str] = frozenset()
    lines: Mapping[str, int] = field(default_factory=dict)
    imported: frozenset[str] = frozenset()
    started: frozenset[str] = frozenset()
    of_nvidia: frozenset[str] = frozenset()

    def is_aside(self, path: str) -> bool:
        """Return true if a file lies among examples, tests and the like that no product imports."""
        return path not in self.modules and is_aside(PurePosixPath(path))

    def is_most(self, paths: AbstractSet[str]) -> bool:
        """Return true if modules make up a third of the lines that decide, or of all where some
        of them do not: what the project is there for.
        """
        most = paths & self.lines.keys()
        apart = not all(map(self.has, most))
        whole = sum(number for path, number in self.lines.items() if apart or self.has(path))
        return 3 * sum(self.lines[path] for path in most) >= whole

    def needs(self, package: str) -> bool:
        """Return true if a module imports a package, or `cupy` for `cupy-cuda12x`."""
        word = package.lower().replace("-", "_")
        return any(f"{word}_cu".startswith(f"{name.lower()}_cu") for name in self.imported)

    def has(self, path: str) -> bool:
        """Return true if findings at `path` decide for the tree."""
        if SOURCE.search(path) and (self.code is not None or path in self.unreached):
            return path in (self.code or ()) and path not in self.unreached
        if _depth(path, self.other_folders) > _depth(path, self.packages or ()):
            return False
        # Where a distribution is, nothing imports a notebook.
        of_python = path.endswith(".ipynb") or (path.endswith((".py", ".pyi")) and "/" in path)
        return self.packages is None or not of_python or path in self.modules


def _depth(path: str, folders: Iterable[str]) -> int:
    """Return the length of the longest of `folders` around `path`, 0 for none."""
    return max((len(folder) for folder in folders if path.startswith(f"{folder}/")), default=0)


def read_product(
    texts: Mapping[str, str],
    commands: Mapping[str, tuple[str, ...]],
    builds: Mapping[str, PythonBuild],
    users: Mapping[str, set[str]],
) -> Product:
    """Return what the root's build reaches. `commands` are sources and options of a build, `builds`
    the Python modules that build extensions, `users` the modules that import one, by build.
    """
    manifests = {path for path in texts if path.rpartition("/")[2] in MANIFESTS}
    installs = any(name in texts and _DISTRIBUTES[name].search(texts[name]) for name in MANIFESTS)
    packages: tuple[str, ...] | None = None
    if installs:
        packages = tuple(_packages(texts)) or None
    elif "CMakeLists.txt" in texts:
        # A build of C++: Python in its folders is a wrapper or a tool.
        packages = ()
    modules = frozenset(
        path
        for package in packages or ()
        for path in texts
        if path.startswith(f"{package}/") and path.endswith(".py")
        if not is_aside(PurePosixPath(path[len(package) + 1 :]))
    )
    folders = {path.rpartition("/")[0] for path in manifests if installs}
    needed = folders & {
        build.rpartition("/")[0]
        for build, importers in users.items()
        for path in importers
        if path in modules or not _depth(path, packages or ())
    }
    plain = Product(
        packages=packages,
        other_folders=tuple(sorted(folders - {""} - needed)),
        installs=installs,
        modules=modules | {f"{folder}/setup.py" for folder in needed},
    )
    return _with_code(plain, texts, commands, builds if installs else {})


def _with_code(
    plain: Product,
    texts: Mapping[str, str],
    commands: Mapping[str, tuple[str, ...]],
    builds: Mapping[str, PythonBuild],
) -> Product:
    """Return the product with its modules' lines, and with the sources that its builds list."""
    lines = {
        path: text.count("\n")
        for path, text in texts.items()
        if path.endswith(".py") and not plain.is_aside(path)
        if plain.has(path) or _depth(path, plain.packages or ()) > _depth(path, plain.other_folders)
    }
    scripts = (text for path, text in texts.items() if _SCRIPT.fullmatch(path))
    started = frozenset(name for text in scripts for name in _CALLED.findall(text))
    files = (p for p in texts if p.endswith((".py", ".ipynb")) and not plain.is_aside(p))
    at_once = {line for path in files for line in _IMPORTED.findall(texts[path])}
    imported = frozenset(word for line in at_once for word in re.findall(r"\w+", line))
    plain = replace(plain, lines=lines, started=started, imported=imported)
    if commands:
        listed, basis = set(commands) & texts.keys(), "compile_commands.json"
    else:
        listed, basis = _listed(texts, plain, builds)
    # The distribution's own files may name a compiler, or a build that is not read.
    manifests = (texts[name] for name in MANIFESTS if name in texts)
    otherwise = any(map(_COMPILES.search, manifests)) or any(
        EXTENSIONS.search(text) and _BUILDS.search(text) and plain.has(path)
        for path, text in texts.items()
        if path.endswith(".py")
    )
    if not listed and (not plain.packages or otherwise):
        return plain
    code = frozenset(followed(listed, include_graph(texts)[0]))
    return replace(plain, code=code, basis=basis, flags=commands)


def _packages(texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the topmost packages that a distribution of the root installs.

    They have an `__init__.py`, or a command of the distribution is in them.
    """
    folders = {path.rpartition("/")[0] for path in texts if path.endswith("/__init__.py")}
    tops = {name.partition(".")[0] for b in MANIFESTS for name in _ENTRY.findall(texts.get(b, ""))}
    named = {path.rpartition("/")[0] for path in texts if path.endswith(".py")}
    for folder in sorted({*folders, *(f for f in named if f.rpartition("/")[2] in tops)}):
        parent = folder.rpartition("/")[0]
        if parent in _ROOTS and f"{folder}/setup.py" not in texts:
            yield folder


def _listed(
    texts: Mapping[str, str], product: Product, builds: Mapping[str, PythonBuild]
) -> tuple[set[str], str]:
    """Return the sources that the distribution's Python builds list, and the first such build."""
    sources, listed, basis = sources_of(texts), set[str](), ""
    for path, build in builds.items():
        if product.has(path):
            folder = PurePosixPath(path).parent
            names = {item.name for item in build.sources}
            # `.cu` alone is the ending of the names that are listed.
            patterns = {f"*{n}" if n.startswith(".") and "/" not in n else n for n in names}
            listed_here = {
                source
                for name in patterns
                for source in named(name, folder, sources)
                if "*" not in name or not _depth(source, product.other_folders)
            }
            basis = basis or (path if listed_here else "")
            listed |= listed_here
    of_cuda = any("CUDAExtension" in text for path, text in texts.items() if product.has(path))
    whole = any(path.endswith(".cu") for path in listed) or not of_cuda
    return (listed, basis) if whole else (set(), "")


def read_commands(text: str, root: str) -> Mapping[str, tuple[str, ...]]:
    """Return the sources below `root` of a compile_commands.json, with their include folders and
    definitions. Raises `ValueError` for other JSON.
    """
    commands: dict[str, tuple[str, ...]] = {}
    for entry in json.loads(text):
        folder = PurePosixPath(str(entry.get("directory", root)))
        path = str(folder / str(entry.get("file", "")))
        words = entry.get("arguments") or shlex.split(str(entry.get("command", "")))
        if path.startswith(f"{root}/"):
            options: list[str] = []
            for option, word in pairwise(("", *map(str, words))):
                if option in _SEPARATE:
                    options += (option, word if option in {"-D", "-U"} else str(folder / word))
                elif word not in _SEPARATE and _TOLD.match(word):
                    options.append(f"-I{folder / word[2:]}" if word.startswith("-I") else word)
            commands[path.removeprefix(f"{root}/")] = tuple(options)
    return commands


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a tree, and by the last part of their paths."""

    paths: tuple[str, ...]
    by_name: Mapping[str, list[str]]


def sources_of(texts: Mapping[str, str]) -> Sources:
    """Return the sources and headers among `texts`."""
    paths = tuple(path for path in texts if SOURCE.search(path))
    by_name: dict[str, list[str]] = {}
    for path in paths:
        by_name.setdefault(path.rpartition("/")[2], []).append(path)
    return Sources(paths, by_name)


def named(name: str, folder: PurePosixPath, sources: Sources) -> Iterator[str]:
    """Yield the sources that a name or pattern of a build in `folder` means."""
    pattern = re.sub(r"(?:\$[{(]\w+[)}]|\{\w*\}|%s)/?", "", name)
    outside = pattern.startswith("../")
    pattern = re.sub(r"\A(?:\.\.?/)+", "", pattern).lstrip("/")
    if not pattern.strip("*./"):
        return
    last = pattern.rpartition("/")[2]
    exact = posixpath.normpath(folder / name)
    if exact in sources.by_name.get(last, ()):
        yield exact
        return
    candidates = sources.paths if "*" in last or "?" in last else sources.by_name.get(last, ())
    for source in candidates:
        inside = outside or folder == PurePosixPath(".") or source.startswith(f"{folder}/")
        if inside and (fnmatch(source, pattern) or fnmatch(source, f"*/{pattern}")):
            yield source


def include_graph(
    texts: Mapping[str, str],
) -> tuple[Mapping[str, set[str]], Mapping[str, set[str]]]:
    """Return for each source the headers of the tree that it includes, and the other way round."""
    sources = sources_of(texts)
    includes: dict[str, set[str]] = {}
    users: dict[str, set[str]] = {}
    for path in sources.paths:
        includes[path] = {
            header
            for name in INCLUDE.findall(texts[path])
            for header in _headers(name, path, sources)
        }
        for header in includes[path]:
            users.setdefault(header, set()).add(path)
    return includes, users


def _headers(name: str, path: str, sources: Sources) -> list[str]:
    """Return the headers of the tree that an include in `path` means: the nearest ones."""
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    candidates = sources.by_name.get(name.rpartition("/")[2], [])
    if beside in candidates:
        return [beside]
    plain = name.lstrip("./")
    fitting = [header for header in candidates if f"/{header}".endswith(f"/{plain}")]
    if len(fitting) < 2:
        return fitting
    near = {header: len(posixpath.commonprefix((header, path))) for header in fitting}
    return [header for header in fitting if near[header] == max(near.values())]
