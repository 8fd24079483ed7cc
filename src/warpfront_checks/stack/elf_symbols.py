"""Libraries and symbols that a compiled file needs and does not find here.

Reads the file's own tables; the loader itself stops at the first.

`lacking` loads a file, as an import would. `LoaderPaths` loads nothing: it looks for the names that
a file lists where ld.so(8) would look, so it also serves for plug-ins that a package loads later.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import functools
import glob
import importlib.machinery
import mmap
import os
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SHT_DYNSYM, _STB_GLOBAL = 11, 1
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 14, 15, 29
_MACHINES = {62: "x86_64", 183: "aarch64"}
_TRUSTED = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/lib/*-linux-gnu", "/usr/lib/*-linux-gnu")
_CAUGHT = frozenset({"ImportError", "Exception", "BaseException"})
_LONGEST_SOURCE_BYTES = 1 << 20
_Function = ast.FunctionDef | ast.AsyncFunctionDef
UNREADABLE = "unreadable"
_SHOWN = 300
_ALTERNATIVE = re.compile(
    r"(?<=[_-])(cpu|cuda|rocm|hip|xpu|sycl|tensorrt|openvino|dnnl|migraphx)[\d_]*(?=[a-z.-])"
)
_CACHE = Path("/etc/ld.so.cache")
# Libraries of a driver that is the host's: the container toolkit mounts them into an image.
DRIVERS: Mapping[str, str] = {"nvidia": r"lib(cuda|nvcuvid|cudadebugger|nvidia-[\w-]+)\.so\.1"}
_NAME_LIMIT_BYTES = 1 << 16
_MAPS = Path("/proc/self/maps")


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of an ELF file; `name` is "" where the file's table of names has none."""

    name: str
    kind: int
    offset: int
    size: int
    link: int


def lacking(path: Path, demangle: Callable[[str], str] = str) -> dict[str, Any]:
    """Load a file as an import would, with every symbol bound. Return the error of the loader, ""
    where it loads, and the libraries and symbols that are missing.
    """
    try:
        ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        needed, undefined = read_elf(path.read_bytes())
        # A loaded library is opened by its path, wherever it is, as an extension finds it.
        mapped = {os.path.basename(file): file for file in sorted(loaded_files(), reverse=True)}  # noqa: PTH119 - thousands
        opened = {}
        for name in needed:
            with contextlib.suppress(OSError):
                opened[name] = ctypes.CDLL(mapped.get(name, name))
        gone = tuple(name for name in needed if name not in opened)
        handles = [ctypes.CDLL(None), *opened.values()]
        symbols = sorted({n for n in undefined if not any(hasattr(h, n) for h in handles)})
        # What a missing library would bring is not missing for itself.
        lacks = [] if gone else [demangle(name)[:_SHOWN] for name in symbols]
        return {"said": str(error)[:_SHOWN], "libraries": [*gone], "symbols": lacks}
    return {"said": "", "libraries": [], "symbols": []}


def loaded_files() -> frozenset[str]:
    """Return the shared objects that this process has mapped; none where that cannot be read."""
    try:
        lines = _MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(line.split(maxsplit=5)[-1] for line in lines if ".so" in line)


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    """An ELF file's dynamic section: needed libraries, and the folders to search first."""

    machine: str = ""
    needed: tuple[str, ...] = ()
    soname: str = ""
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LoaderPaths:
    """The folders in which the loader of an image looks for libraries. `packaged` are the names of
    all libraries that distributions bring: a package may load them before by ctypes, as torch does,
    or import the package that has them. `driver` is a pattern of the host's libraries.
    """

    folders: tuple[str, ...] = ()
    cached: frozenset[str] = frozenset()
    packaged: frozenset[str] = frozenset()
    driver: str = ""
    machine: str = field(default_factory=lambda: os.uname().machine)

    def unserved(self, path: Path) -> tuple[str, ...]:
        """Return needed libraries that this image lacks; none for another machine's file."""
        dynamic = dynamic_of(path)
        if dynamic.machine != self.machine:
            return ()
        folders = [folder.replace("${ORIGIN}", "$ORIGIN") for folder in dynamic.folders]
        folders = [folder.replace("$ORIGIN", str(path.parent)) for folder in folders]

        def serves(name: str) -> bool:
            if "/" in name:
                return Path(name).is_file()
            listed = (
                name in self.cached or name in self.packaged or re.match(r"ld-linux|ld64", name)
            )
            if listed or (self.driver and re.fullmatch(self.driver, name)):
                return True
            return any(Path(folder, name).is_file() for folder in (*folders, *self.folders))

        return tuple(name for name in dynamic.needed if not serves(name))


def loader_paths(packaged: Iterable[Path], vendor: str) -> LoaderPaths:
    """Return the paths of this image: LD_LIBRARY_PATH, ld.so.cache and the loader's own folders."""
    listed = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    trusted = [folder for pattern in _TRUSTED for folder in sorted(glob.glob(pattern))]  # noqa: PTH207 - of the whole system
    cache = _CACHE.read_bytes() if _CACHE.is_file() else b""
    cached = (os.fsdecode(text) for text in cache.split(b"\0") if text.startswith(b"/"))
    files = [*packaged]
    return LoaderPaths(
        folders=(*listed, *trusted),
        cached=frozenset(os.path.basename(path) for path in cached if os.path.isfile(path)),  # noqa: PTH119, PTH113 - thousands
        packaged=frozenset(
            [*(file.name for file in files), *(dynamic_of(f).soname for f in files)]
        ),
        driver=DRIVERS.get(vendor, ""),
    )


def lacking_libraries(
    files: Iterable[Path], paths: LoaderPaths, optional: Iterable[str] = ()
) -> dict[Path, tuple[str, ...]]:
    """Return the files that need libraries which no path serves, with the names of these.

    Alternatives count only where none of them is served: by name (`libx_cpu.so`,
    `libx_cuda126.so`), or by the package's own imports (`has_alternative`).
    `optional` are patterns of files that a package is known to do without.
    """
    unserved_names = {path: paths.unserved(path) for path in files}
    served = {_family(path) for path, names in unserved_names.items() if not names}
    modules = [path for path, names in unserved_names.items() if not names and _is_module(path)]
    return {
        path: names
        for path, names in unserved_names.items()
        if names
        and (
            not has_alternative(path, modules) if _is_module(path) else _family(path) not in served
        )
        and not any(path.match(pattern) for pattern in optional)
    }


def _family(path: Path) -> tuple[str, str]:
    """Return the folder, and the name without what tells alternatives: devices, versions."""
    return str(path.parent), re.sub(r"\d+", "*", _ALTERNATIVE.sub("*", path.name))


def _is_module(path: Path) -> bool:
    return path.name.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES[:-1]))


def has_alternative(module: Path, served: Collection[Path]) -> bool:
    """Return whether a function next to an extension module imports it and goes on without it
    (`except ImportError`), and imports another extension of the folder that is `served`.
    """
    stems = {_module_name(path) for path in served if path.parent == module.parent}
    name = _module_name(module)
    for source in sorted(module.parent.glob("*.py")):
        tree: ast.AST = ast.Module(body=[], type_ignores=[])
        with contextlib.suppress(OSError, ValueError, SyntaxError, RecursionError):
            text = source.read_bytes() if source.stat().st_size < _LONGEST_SOURCE_BYTES else b""
            tree = ast.parse(text) if name.encode() in text else tree
        for function in (node for node in ast.walk(tree) if isinstance(node, _Function)):
            guarded = (
                statement
                for node in ast.walk(function)
                if isinstance(node, ast.Try) and any(map(_catches, node.handlers))
                for statement in node.body
            )
            imported = {*_imported(function)}
            if stems & imported and any(name in _imported(each) for each in guarded):
                return True
    return False


def _catches(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler catches the failure of an import."""
    nodes = ast.walk(handler.type) if handler.type else (ast.Name(id="BaseException"),)
    return any(isinstance(node, ast.Name) and node.id in _CAUGHT for node in nodes)


def _imported(node: ast.AST) -> Iterator[str]:
    """Yield last parts of the names that a statement imports, and of their modules."""
    for child in ast.walk(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in child.names]
            names += [child.module] if isinstance(child, ast.ImportFrom) and child.module else []
            yield from (name.rpartition(".")[2] for name in names)


def _module_name(path: Path) -> str:
    return path.name.partition(".")[0]


def is_shared_object(name: str) -> bool:
    return re.search(r"\.so(\.\d+)*\Z", name) is not None


def is_elf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


@functools.cache
def dynamic_of(path: Path) -> Dynamic:
    """Return the dynamic section of a file; an empty one if it cannot be read."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return read_dynamic(data)
    except (OSError, ValueError):
        return Dynamic()


def read_dynamic(data: bytes | mmap.mmap) -> Dynamic:
    """Return the dynamic section of a 64-bit little-endian ELF file; an empty one for any other
    file. One that is cut short or inconsistent is for the machine `UNREADABLE`.
    """
    try:
        return _dynamic(data) if is_readable(data) else Dynamic()
    except (struct.error, ValueError, OverflowError, StopIteration):
        return Dynamic(machine=UNREADABLE)


def _dynamic(data: bytes | mmap.mmap) -> Dynamic:
    machine, (start,) = struct.unpack_from("<H", data, 18)[0], struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQQQ", data, start + n * size) for n in range(count)]
    name = _MACHINES.get(machine, f"ELF machine {machine}")
    tables = [header for header in headers if header[0] == _PT_DYNAMIC]
    if not tables:
        return Dynamic(machine=name)
    content = data[tables[0][2] : tables[0][2] + tables[0][5] // 16 * 16]
    entries = list(struct.iter_unpack("<QQ", content))
    address = next(value for tag, value in entries if tag == _DT_STRTAB)
    texts = next(
        header[2] + address - header[3]
        for header in headers
        if header[0] == _PT_LOAD and header[3] <= address < header[3] + header[5]
    )
    by_tag: dict[int, list[str]] = {}
    for tag, value in entries:
        if tag in {_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH}:
            by_tag.setdefault(tag, []).append(_text(data, texts + value))
    folders = by_tag.get(_DT_RUNPATH) or by_tag.get(_DT_RPATH) or []
    return Dynamic(
        machine=name,
        needed=tuple(by_tag.get(_DT_NEEDED, ())),
        soname=next(iter(by_tag.get(_DT_SONAME, ())), ""),
        folders=tuple(folder for text in folders for folder in text.split(":") if folder),
    )


def read_elf(data: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (needed libraries, symbols that another file has to define) of a 64-bit little-endian
    ELF file. Return nothing for any other file, nor for one that is cut short or inconsistent.
    """
    symbols = []
    try:
        every = sections(data) if is_readable(data) else []
        for section in every:
            if section.link < len(every) and section.kind == _SHT_DYNSYM:
                texts, end = every[section.link].offset, section.offset + section.size // 24 * 24
                entries = struct.iter_unpack("<IBBHQQ", data[section.offset : end])
                symbols += [
                    _text(data, texts + name)
                    for name, info, _, index, _, _ in entries
                    if index == 0 and info >> 4 == _STB_GLOBAL
                ]
    except (struct.error, ValueError, OverflowError):
        return (), ()
    return read_dynamic(data).needed, tuple(symbols)


def is_readable(data: bytes | mmap.mmap) -> bool:
    """Return whether it is a 64-bit little-endian ELF file."""
    return data[:6] == b"\x7fELF\x02\x01"


def sections(data: bytes | mmap.mmap) -> list[Section]:
    """Return the sections of a file that `is_readable`. Raise `struct.error` if it is cut short."""
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    places = range(start, start + count * size, size) if start and size else ()
    heads = [struct.unpack_from("<IIQQQQI", data, place) for place in places]
    texts = heads[names][4] if names < len(heads) else len(data)
    listed = []
    for place, kind, _, _, offset, length, link in heads:
        name = ""
        with contextlib.suppress(ValueError):
            name = _text(data, texts + place)
        listed.append(Section(name=name, kind=kind, offset=offset, size=length, link=link))
    return listed


def _text(data: bytes | mmap.mmap, position: int) -> str:
    end = data.find(b"\0", position, position + _NAME_LIMIT_BYTES)
    if position < 0 or end < 0:
        raise ValueError(f"no text at {position}")
    return data[position:end].decode("utf-8", "replace")
