"""Syntax passes of clang for HIP over untouched CUDA sources, next to a HIP toolchain. Edge.

`python3 syntax_job.py JOB RESULTS` needs the standard library alone: it runs in a compiler's image
as well as on a host. A forced include maps the CUDA names that the sources use to HIP's. A folder
of shim headers replaces CUDA's headers: diagnostics have the project's own lines.

JOB is JSON: `target` (gfx942), `root` (folder), `units` (paths below it), `names` and `headers`
(hipify's tables, CUDA to HIP), `torch` and `python` (their `include` folders or ""; an image's own
torch comes first), `toolchain` (a fetched one's folder or ""), `jobs`, `seconds` of processor time
(the limit of one pass), `cache` (a folder or ""), `claims` (files whose findings the compiler is to
judge), `flags` (options by unit), `definitions` (options of every unit), `modules` (a folder of
CMake modules that stand for CUDA's), `native` (units that are HIP's own), `hosts` (sources for the
host's compiler), `builds_hip` (true for a tree with a build for HIP), `is_confined`
(true on a user's machine, where Landlock keeps what runs from other files and from the network).
RESULTS gets one JSON document.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import hashlib
import importlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess  # noqa: TID251 - it runs where warpfront is not
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

SCHEMA = 1
LACKS = "warpfront: the environment lacks "
ABSENT = "warpfront: no environment has "
_SOURCES = {".cu", ".c", ".cc", ".cpp", ".cxx"}
_CODE = _SOURCES | {".hip", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".inl", ".in"}
_BUILDS = {"CMakeLists.txt", "Makefile", "setup.py"}
_MOST_WITNESSES = 20
_MOST_BUILDS = 20
_MOST_SECONDS = 600  # for all sources: a pass that begins later is none, and a next scan makes it
_NAME = re.compile(r"[A-Za-z_]\w*")
_DECLARED = (
    r"(?:struct|class|enum|union|typename|using|namespace)\s+%s\b"
    r"|(?:(?<!return)(?<!else)(?<!throw)(?<!case)(?<=\w)\s|[>*&\]}])\s*%s\s*[=;,)({[]"
)
_LACKED = re.compile(r"(?:undeclared identifier|unknown type name|no type named) '(\w+)'")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^<>\"\n]+)[>\"]", re.MULTILINE)
_STOP = re.compile(r"^[ \t]*#[ \t]*error\b", re.MULTILINE)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_STANDARD = re.compile(
    r"(?:CMAKE_(?:CXX|CUDA)|CXX|CUDA)_STANDARD\s+(\d\d)|-std=(?:c|gnu)\+\+(\d\w)"
)
_BASE = (
    "-fsyntax-only -Wno-everything -ferror-limit=0 -fno-caret-diagnostics -fno-color-diagnostics"
)
_RUNTIME = "hip/hip_runtime.h"
# Headers of CUDA that hipify's tables lack.
_HEADERS = {"cuda_device_runtime_api.h": _RUNTIME, "nccl.h": "rccl/rccl.h"}
_TORCHS = ("torch/", "ATen/", "c10/", "TH/", "THC/", "THCUNN/")
# Headers of CUDA's toolkit and of NVIDIA's libraries.
_CUDAS = re.compile(
    r"(?:cuda|cooperative_groups|cub|thrust|cutlass|cute|nv|libcudacxx|crt)/"
    r"|(?:cuda|cu[a-z]+|nv[a-z]*|mma|device_|sm_\d|math_|vector_|texture_|surface_|driver_|npp)"
    r"\w*\.(?:h|hpp|cuh)\Z|opencv2/cuda"
)
_BACK_END = re.compile(r"thrust(?:::|/system/)cuda\b")
# What torch.utils.cpp_extension gives hipcc (COMMON_HIP_FLAGS, COMMON_HIPCC_FLAGS).
_TORCH_OPTIONS = (
    "-DUSE_ROCM=1 -DHIPBLAS_V2 -DCUDA_HAS_FP16=1 -D__HIP_NO_HALF_OPERATORS__=1 "
    "-D__HIP_NO_HALF_CONVERSIONS__=1 -DHIP_ENABLE_WARP_SYNC_BUILTINS=1 "
    "-DTORCH_EXTENSION_NAME=extension"
)
# torch's own build writes this header; a wheel for the CPU lacks it.
_TORCH_MACROS = "c10/cuda/impl/cuda_cmake_macros.h"
# Languages whose compiler is a stand-in as CUDA's is, with the endings of their sources.
_LANGUAGES = {"HIP": "hip", "Fortran": "f;F;f77;F77;f90;F90;f95;F95;f03;F03;f08;F08;for;FOR"}
# Folders that decide nothing, where the whole project cannot be configured.
_ASIDE = "^(tests?|testing|unit_?tests?|bench(marks?)?|examples?|samples?|docs?)$"
_PATHS = {"-I": ["-iquote", "-idirafter"], "-isystem": ["-idirafter"], "-iquote": ["-iquote"]}
_BEFORE_CUDACC = ("thrust/detail/config.h", "hipcub/config.hpp", "rocprim/config.hpp")
# Of CMake's cache: an entry, a name for one vendor, a value that chooses CUDA, and one of those
# offered that chooses HIP.
_CACHED = re.compile(r"^(?!CMAKE_)(\w+)(?::|-)(BOOL|STRING|STRINGS:INTERNAL)=(.*)$", re.MULTILINE)
_TARGET = re.compile(r"\b[A-Za-z]\w*::[A-Za-z][\w.+-]*")
_OF_HIP = re.compile(r"#[ \t]*include[ \t]*[<\"]hip/")
_OF_TORCH = re.compile(rf"(?m)^[ \t]*#[ \t]*include[ \t]*[<\"](?:{'|'.join(_TORCHS)})")
_OWN_TARGET = re.compile(r"add_(?:library|executable)\s*\(\s*([A-Za-z]\w*::[A-Za-z][\w.+-]*)")
_VENDOR = re.compile(r"(?:^|_)(HIP|ROCM|CUDA)(?:_|$)")
_CHOICE = re.compile(r"(?:\w+_)?(?:CUDA|cuda)")
_OFFERED = re.compile(r"(?i)(?:\A|;)((?:\w+_)?(?:hip|rocm))(?=;|\Z)")
_SIDES: Sequence[str] = ("--cuda-device-only", "--cuda-host-only")
_HOST = "-c++"  # C++ without HIP
_CONDITION = re.compile(r"[ \t]*#[ \t]*(?:(?:el)?ifn?(?:def)?|else|endif)\b")
# Landlock's first system call, its version with rights of the network, and rights: of folders all
# and those to read and run, of files all, of TCP all (linux/landlock.h).
_LANDLOCK, _LANDLOCK_OF_NETWORK = 444, 4
_LANDLOCK_ALL, _LANDLOCK_READ = (1 << 15) - 1, 0b1101
_LANDLOCK_FILE, _LANDLOCK_TCP = 0b111 | 1 << 14, 0b11
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys", "/dev")
_LINE_MARK = re.compile(r'# (\d+) "([^"]+)"')


_HIP_VERSION = (
    "#include <hip/hip_version.h>\nV HIP_VERSION_MAJOR.HIP_VERSION_MINOR.HIP_VERSION_PATCH\n"
)


@dataclass(frozen=True)
class Compiler:
    """clang++ that compiles HIP for the target, what it answers to --version, and HIP's version."""

    path: str
    version: str
    hip: str


def find_compiler(target: str, toolchain: str = "") -> Compiler | None:
    """Return the newest clang++ here that can compile an empty HIP source for `target`, or that
    of a fetched toolchain.
    """
    options = ["-x", "hip", f"--offload-arch={target}", "-fsyntax-only"]
    kernel = "#include <hip/hip_runtime.h>\n__global__ void k(int* p) { *p = 1; }\n"
    for path in [f"{toolchain}/bin/clang++"] if toolchain else _installed_compilers():
        if _compiled([path, *options], kernel)[0] == 0:
            version = next(iter(_run([path, "--version"], 20)[1].splitlines()), path)
            text = _compiled([path, "-x", "c++", "-E", "-P"], _HIP_VERSION)[1]
            match = re.search(r"V (\d+)\s*\.\s*(\d+)\s*\.\s*(\d+)", text)
            if match is None:
                return Compiler(path, version, "0.0")
            hip = ".".join(match.groups())
            return Compiler(path, f"{version}, HIP {hip}", hip)
    return None


def _installed_compilers() -> Iterator[str]:
    """Yield each clang++ of this machine: ROCm's, the system's, the search path's, the newest of a
    kind first after the one without a version, which is chosen.
    """
    for place in ("opt/rocm*/llvm", "opt/rocm*/lib/llvm", "usr/lib/llvm-*"):
        paths = map(str, Path("/").glob(f"{place}/bin/clang++"))
        versions = {path: [*map(int, re.findall(r"\d+", path))] or [sys.maxsize] for path in paths}
        yield from sorted(versions, key=versions.__getitem__, reverse=True)
    yield from filter(None, [shutil.which("amdclang++") or shutil.which("clang++")])


def _compiled(argv: list[str], text: str) -> tuple[int, str]:
    """Return the exit code and the output of a compiler for a source of this text."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.hip"
        source.write_text(text)
        return _run([*argv, str(source)], 60)


def _run(argv: list[str], seconds: float) -> tuple[int, str]:
    """Return the exit code (124 after `seconds` of processor time) and stdout with stderr."""
    limited = ["sh", "-c", f'ulimit -t {int(seconds)} && exec "$@"', "sh", *argv]
    try:
        completed = subprocess.run(
            limited, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=5 * seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, ""
    except OSError as error:
        return 127, str(error)
    killed = completed.returncode in {-signal.SIGKILL, -signal.SIGXCPU}
    return 124 if killed else completed.returncode, completed.stdout.decode("utf-8", "replace")


def torch_headers() -> str:
    """Return the include folder of the torch in this Python's environment, or ""."""
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(folder) / "include" / "ATen").is_dir():
            return str(Path(folder) / "include")
    return ""


class Tree:
    """The code of a source tree: the texts of what is code by its name or by an include of it, by
    path, read once.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.texts: dict[str, str] = {}
        self.builds = ""
        others: dict[str, list[str]] = {}
        for folder, names, files in os.walk(root):
            names[:] = sorted(name for name in names if not name.startswith("."))
            for name in sorted(files):
                path = Path(folder) / name
                if path.is_symlink() or not path.is_file() or path.stat().st_size > 4_000_000:
                    continue
                relative = path.relative_to(root).as_posix()
                if path.suffix.lower() in _CODE:
                    self.texts[relative] = path.read_text("utf-8", "replace")
                elif name in _BUILDS or path.suffix in {".cmake", ".mk"}:
                    self.builds += path.read_text("utf-8", "replace") + "\n"
                else:
                    others.setdefault(name, []).append(relative)
        waiting = [*self.texts]
        while waiting:
            for header in _INCLUDE.findall(self.texts[waiting.pop()]):
                for relative in others.pop(_last(header), ()):
                    self.texts[relative] = (root / relative).read_text("utf-8", "replace")
                    waiting.append(relative)
        self.by_name: dict[str, list[str]] = {}
        for relative in self.texts:
            self.by_name.setdefault(_last(relative), []).append(relative)
        self.words = {word for text in self.texts.values() for word in _NAME.findall(text)}
        self.included = frozenset(
            header for text in self.texts.values() for header in _INCLUDE.findall(text)
        )

    def read_by(self, source: str) -> set[str]:
        """Return the files of the tree that a source includes by name, and itself."""
        visited, waiting = {source}, [source]
        while waiting:
            for header in _INCLUDE.findall(self.texts.get(waiting.pop(), "")):
                new = set(self.by_name.get(_last(header), ())) - visited
                visited |= new
                waiting += new
        return visited

    def parts(self, units: Iterable[str]) -> set[str]:
        """Return the units that another unit includes, by their names."""
        listed = set(units)
        return set().union(*(self.read_by(unit) & listed - {unit} for unit in listed))

    def of_hip(self) -> set[str]:
        """Return the sources that are written in HIP."""
        return {
            path
            for path, text in self.texts.items()
            if path.endswith(".hip") or (Path(path).suffix in _SOURCES and _OF_HIP.search(text))
        }

    def reading(self, pattern: re.Pattern[str], sources: Iterable[str]) -> set[str]:
        """Return the sources that have an include, themselves or through the tree's own headers."""
        return {
            source
            for source in sources
            if any(pattern.search(self.texts.get(path, "")) for path in self.read_by(source))
        }

    def witnesses(self, claims: Iterable[str], units: Iterable[str]) -> list[str]:
        """Return sources that read the files of `claims` which no unit reads, the first of each."""
        read = set[str]().union(*map(self.read_by, units))
        chosen: list[str] = []
        readers: dict[str, set[str]] = {}
        for claim in claims:
            if claim in read:
                continue
            if not readers:
                sources = (path for path in self.texts if Path(path).suffix in _SOURCES)
                readers = {path: self.read_by(path) for path in sources}
            reader = next(
                (path for path in (claim, *readers) if claim in readers.get(path, ())), ""
            )
            chosen += [reader] * bool(reader)
            read |= readers.get(reader, set())
        return chosen[:_MOST_WITNESSES]

    def own(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that the tree declares."""
        return sorted(
            name
            for name in names
            if any(re.search(_DECLARED % (name, name), t) for t in self.texts.values() if name in t)
        )

    def build_words(self, *, is_unreached: bool) -> set[str]:
        """Return the names that builds have. What compiles sources that no build lists may also
        define what opens a header of the tree: its macros.
        """
        texts = self.texts.values() if is_unreached else ()
        return {*_NAME.findall(self.builds), *(m for text in texts for m in _DEFINE.findall(text))}

    def stops(self) -> list[str]:
        """Return the places of `#error`, as `path:line`."""
        return [
            f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
            for path, text in self.texts.items()
            for match in _STOP.finditer(text)
        ]

    def cmake_builds(self, sources: Iterable[str]) -> list[str]:
        """Return the topmost folders that CMake builds and that have any of `sources` below."""
        above = [{"", *map(str, Path(source).parents)} - {"."} for source in sources]
        builds: list[str] = []
        for folder in sorted(set().union(*above), key=lambda name: (name.count("/"), name)):
            is_below = any(not build or f"{folder}/".startswith(f"{build}/") for build in builds)
            if not is_below and (self.root / folder / "CMakeLists.txt").is_file():
                builds.append(folder)
        return builds

    def include_folders(self) -> list[str]:
        """Return the folders that make an include of the tree's own headers found."""
        folders: dict[str, int] = {}
        for name in self.included:
            plain = re.sub(r"\A(?:\.\.?/)+", "", name)
            for path in self.by_name.get(_last(plain), ()):
                if path == plain or path.endswith(f"/{plain}"):
                    folder = path[: len(path) - len(plain)].rstrip("/")
                    folders[folder] = folders.get(folder, 0) + 1
        return [
            str(self.root / folder)
            for folder, _ in sorted(folders.items(), key=lambda i: (-i[1], i[0]))
        ]

    def standard(self, least: int) -> str:
        """Return the newest C++ standard that the builds name, at least the given one."""
        standards = {"17": 17, "1z": 17, "20": 20, "2a": 20, "23": 23, "2b": 23}
        named = [standards.get(a or b, 17) for a, b in _STANDARD.findall(self.builds)]
        return f"-std=c++{max([least, *named])}"


@dataclass(frozen=True)
class Configured:
    """Results of `cmake -S -B`: options by source of the tree, made headers' folders, and a reason
    why the project was not configured, or not wholly. `cache` are CMake's entries, by name, type
    and value; `argv` and `values` are the program and its definitions, `build` its folder.
    """

    flags: dict[str, list[str]]
    folders: list[str]
    reason: str = ""
    argv: Sequence[str] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    cache: Sequence[tuple[str, str, str]] = ()
    build: str = ""


def configure(
    compiler: Compiler, tree: Tree, modules: str, folder: Path, build: str = ""
) -> Configured:
    """Configure a build of CMake whose compiler of CUDA and HIP is a stand-in; nothing is built."""
    cmake = shutil.which("cmake")
    if cmake is None:
        return Configured({}, [], "no cmake beside the compiler")
    stand_ins = folder / "cmake"
    shutil.copytree(modules, stand_ins, dirs_exist_ok=True)
    for path in stand_ins.glob("CMake*CUDA*"):
        for language, endings in _LANGUAGES.items():
            text = path.read_text("utf-8").replace("CUDA", language).replace("cuda", "hip")
            text = text.replace("EXTENSIONS cu", f"EXTENSIONS {endings}")
            path.with_name(path.name.replace("CUDA", language)).write_text(text, "utf-8")
    targets = {*_TARGET.findall(tree.builds)} - {*_OWN_TARGET.findall(tree.builds)}
    argv = [cmake, *(["-G", "Ninja"] if shutil.which("ninja") else [])]
    values = {
        "CMAKE_MODULE_PATH": str(stand_ins), "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_PROJECT_TOP_LEVEL_INCLUDES": f"{stand_ins}/stand-ins.cmake",
        "CMAKE_CXX_COMPILER": compiler.path, "CMAKE_C_COMPILER_WORKS": "1",
        "CMAKE_CXX_COMPILER_WORKS": "1", "CMAKE_TRY_COMPILE_TARGET_TYPE": "STATIC_LIBRARY",
        "CMAKE_CUDA_ARCHITECTURES": "80", "CMAKE_HIP_ARCHITECTURES": "gfx942",
        "WARPFRONT_TARGETS": ";".join(sorted(targets)),
        "WARPFRONT_HIP": compiler.hip, "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
        "FETCHCONTENT_FULLY_DISCONNECTED": "ON",
        "CMAKE_PREFIX_PATH": str(Path(compiler.path).parents[1] / "usr"),
    }  # fmt: skip
    c_compiler = Path(compiler.path).with_name(Path(compiler.path).name.replace("++", ""))
    if c_compiler.is_file():
        values["CMAKE_C_COMPILER"] = str(c_compiler)
    return _configured(argv, values, tree.root, folder / "default", build)


def configure_for_hip(first: Configured, root: Path, folder: Path) -> Configured:
    """Configure once more with what CMake's cache offers for HIP: options named for it are on,
    those named for CUDA off, and a choice of CUDA, or one that offers HIP, is one of HIP. The same
    where there is none.
    """
    choices: dict[str, str] = {}
    for name, kind, value in first.cache:
        if kind == "BOOL" and (vendor := _VENDOR.search(name)):
            is_detail = any(name != other and name.startswith(other) for other, *_ in first.cache)
            choices |= {} if is_detail else {name: "OFF" if vendor[1] == "CUDA" else "ON"}
        elif kind == "STRING" and _CHOICE.fullmatch(value):
            choices[name] = value.replace("CUDA", "HIP").replace("cuda", "hip")
        elif kind == "STRINGS:INTERNAL" and (offered := _OFFERED.search(value)):
            choices[name] = offered[1]
    if not choices.keys() - {name for name, value in choices.items() if value == "OFF"}:
        return first
    return _configured(first.argv, {**first.values, **choices}, root, folder / "hip", first.build)


def _configure_at(argv: Sequence[str], values: Mapping[str, str], source: Path, build: Path) -> str:
    """Run CMake until it writes the commands of a build, with less of the project each time; return
    its first error. A command that an absent package would bring does nothing.
    """
    errors: list[str] = []
    code, output = 0, ""
    for without, all_found in (("^$", "OFF"), (_ASIDE, "OFF"), (_ASIDE, "ON")):
        commands: list[str] = []
        while len(commands) < _MOST_BUILDS:
            definitions = {
                **values, "WARPFRONT_WITHOUT": without, "WARPFRONT_FOUND": all_found,
                "WARPFRONT_COMMANDS": ";".join(commands),
            }  # fmt: skip
            options = [f"-D{name}={value}" for name, value in definitions.items()]
            code, output = _run([*argv, "-S", str(source), "-B", str(build), *options], 180)
            unknown = re.search(r'Unknown CMake command "(\w+)"', output)
            if unknown is None or unknown[1] in commands:
                break
            commands.append(unknown[1])
        error = re.search(r"CMake Error[^\n]*\n(?:\s*\n)?\s*([^\n]+)", output)
        errors.append(error[1].strip() if error else f"exit {code}")
        if (build / "compile_commands.json").is_file():
            break
    return errors[0]


def _configured(
    argv: Sequence[str], values: Mapping[str, str], root: Path, folder: Path, name: str
) -> Configured:
    build, copy = folder / "build" / name, folder / "tree"
    if not copy.is_dir():  # a configure step may write into the tree
        shutil.copytree(root, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    commands = build / "compile_commands.json"
    first_error = _configure_at(argv, values, copy / name, build)
    written = (
        path for path in copy.rglob("*.[hH]*") if not (root / path.relative_to(copy)).exists()
    )
    headers = [*build.rglob("*.[hH]*"), *written]
    # an include names a made header by its name, or by its folder too
    folders = {str(f) for p in headers if "CMakeFiles" not in p.parts for f in p.parents[:2]}
    cache = build / "CMakeCache.txt"
    cached = _CACHED.findall(cache.read_text("utf-8")) if cache.is_file() else []
    configured = partial(
        Configured, folders=sorted(folders), argv=argv, values=values, cache=cached, build=name
    )
    if not commands.is_file():
        return configured({}, reason=f"cmake: {first_error}")
    entries = {Path(e["file"]): e["command"] for e in json.loads(commands.read_text("utf-8"))}
    flags = {
        path.relative_to(copy).as_posix(): shlex.split(command.replace(str(copy), str(root)))
        for path, command in entries.items()
        if path.is_relative_to(copy)
    }
    absent = build / "absent"
    names = sorted(set(absent.read_text("utf-8").split())) if absent.is_file() else []
    return configured(
        flags, reason=f"{', '.join(names)}: absent here, taken as empty" * bool(names)
    )


def reached_units(units: Iterable[str], flags: Mapping[str, list[str]]) -> list[str]:
    """Return the units that a build compiles; none where it leaves out each that is CUDA's or
    HIP's by name: a build for the CPU answers nothing about those.
    """
    listed = list(units)
    reached = [unit for unit in listed if unit in flags]
    of_gpu = {unit for unit in listed if unit.endswith((".cu", ".hip"))}
    return reached if not of_gpu or of_gpu & {*reached} else []


def unit_options(words: Iterable[str]) -> list[str]:
    """Return definitions and include folders of a build's command, after the system's folders."""
    options: list[str] = []
    pending = ""
    for word in words:
        name, value = (pending, word) if pending else (word[:2], word[2:])
        pending = ""
        if word in {"-I", "-isystem", "-iquote", "-D", "-U"}:
            pending = word
        elif name in _PATHS:
            options += [part for option in _PATHS[name] for part in (option, value)]
        elif name in {"-D", "-U"}:
            options.append(name + value)
    return options


def write_shims(
    folder: Path, tree: Tree, names: Mapping[str, str], headers: Mapping[str, str], torch: str
) -> Path:
    """Write shim headers and the forced include into `folder`; return the forced include.

    They are the same for all projects of one torch, whose headers use every name.
    """
    shims, forced = folder / "shims", folder / "warpfront_forced.h"
    if forced.is_file():
        return forced
    for cuda, name in headers.items():
        if not torch and cuda in tree.by_name and not _CUDAS.match(cuda):
            continue  # a sample's header that the project has a copy of
        # the tables leave folders out
        hip = name if "/" in name else f"{name.partition('.')[0]}/{name}"
        alias = "namespace cub = hipcub;\n" if hip.startswith("hipcub/") else ""
        (shims / cuda).parent.mkdir(parents=True, exist_ok=True)
        (shims / cuda).write_text(
            f"#pragma once\n#if __has_include(<{hip}>)\n#include <{hip}>\n{alias}"
            f"#else\n#error {LACKS}{hip}\n#endif\n"
        )
    if torch and not (Path(torch) / _TORCH_MACROS).exists():
        stub = shims / _TORCH_MACROS
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text("#pragma once\n#define C10_CUDA_BUILD_SHARED_LIBS\n")
    used = {cuda: hip for cuda, hip in names.items() if cuda in tree.words or torch}
    lines = ["#pragma once", f"#include <{_RUNTIME}>"]
    if "__CUDACC__" in tree.words or torch:
        # thrust and hipCUB choose their back end by this macro when they are first included
        includes = (
            f"#if __has_include(<{header}>)\n#include <{header}>\n#endif"
            for header in _BEFORE_CUDACC
        )
        lines += ["#ifdef __HIP__", *includes, "#define __CUDACC__ 1", "#endif"]
    lines += [
        f"#define {cuda} {hip}"
        for cuda, hip in sorted(used.items())
        if cuda not in (hip, "__CUDACC__") and _NAME.match(hip)
    ]
    forced.write_text("\n".join(lines) + "\n")
    return forced


def tree_options(tree: Tree, folder: Path, provided: Collection[str], torch: str) -> list[str]:
    """Return the options for what a tree uses and neither HIP nor torch has.

    A header that only CUDA has, or that torch has no more, is an error of its own where it is
    included, and the compiler goes on. Headers that are there come first.
    """
    for name in tree.included.difference(provided):
        in_tree = any(f"/{path}".endswith(f"/{name}") for path in tree.by_name.get(_last(name), ()))
        names = (name, re.sub("hip(?=/)", "cuda", name).replace("HIP", "CUDA"))
        gone = (
            torch
            and name.startswith(_TORCHS)
            and not any((Path(torch) / n).exists() for n in names)
        )
        if not in_tree and (_CUDAS.match(name) or gone):
            path = folder / "absent" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            hip_name, again = name.replace("thrust/system/cuda/", "thrust/system/hip/"), "_next"
            whole = "{0}/{0}.cuh".format(name.partition("/")[0])  # it has all of its library
            if whole in provided and not torch:
                hip_name, again = whole, ""
            path.write_text(
                f"#if __has_include{again}(<{hip_name}>)\n#include{again} <{hip_name}>\n"
                f"#else\n#error {ABSENT}{name}\n#endif\n"
            )
    options = ["-isystem", str(folder / "absent")]
    if any(_BACK_END.search(text) for text in tree.texts.values()):
        alias = folder / "back_end.h"
        alias.write_text(
            "#ifdef __cplusplus\n#include <thrust/detail/config.h>\nTHRUST_NAMESPACE_BEGIN\n"
            "namespace hip {}\nnamespace cuda = hip;\nTHRUST_NAMESPACE_END\n#endif\n"
        )
        options += ["-include", str(alias)]
    return options


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def arguments(compiler: Compiler, job: Mapping[str, Any], standard: str) -> list[str]:
    """Return the options of every pass that no project decides but by its C++ standard."""
    return [
        compiler.path, "-x", "hip", f"--offload-arch={job['target']}", standard, *_BASE.split(),
        "-D__HIP_PLATFORM_AMD__=1", "-DWARPFRONT_SYNTAX_ONLY=1",
        "-idirafter", str(job.get("python") or sysconfig.get_paths()["include"]),
    ]  # fmt: skip


def on_host(words: Iterable[str], language: str) -> list[str]:
    """Return the options of a pass over a source in C or C++, which HIP's headers take too."""
    of_others = ("--offload-arch=", *(["-std=c++"] if language == "c" else []))
    return [language if word == "hip" else word for word in words if not word.startswith(of_others)]


def emulation(hip: str, torch: str, forced: Path) -> list[str]:
    """Return the options that give CUDA's names and headers HIP's meaning, and torch's headers."""
    headers = [torch, f"{torch}/torch/csrc/api/include"] if torch else []
    major, minor = map(int, hip.split(".")[:2])
    defined = [*_TORCH_OPTIONS.split(), f"-DTORCH_HIP_VERSION={100 * major + minor}"]
    return [
        "-include", str(forced), *(defined * bool(torch)), "-isystem", str(forced.parent / "shims"),
        *(option for header in headers for option in ("-isystem", header)),
    ]  # fmt: skip


def precompiled(argv: list[str], folder: Path, seconds: float) -> dict[str, list[str]]:
    """Return, by side, the options that take torch's headers as read: they need 18 s a side, and
    0.4 s precompiled. Nothing for a side whose headers do not compile.
    """
    source = folder / "torch.hip"
    if not source.is_file():  # what is precompiled refuses a newer one
        source.write_text("#include <torch/extension.h>\n")

    def precompile(side: str) -> list[str]:
        path = folder / f"torch{side}.pch"
        if not path.is_file():
            print("torch's headers", flush=True)
            emitted = ["-Xclang", "-emit-pch", "-Xclang", "-o", "-Xclang", str(path)]
            words = [*argv, side] if side in _SIDES else on_host(argv, "c++")
            _run([*words, *emitted, str(source)], seconds)  # renamed when it is whole
        return ["-Xclang", "-include-pch", "-Xclang", str(path)] if path.is_file() else []

    sides = (*_SIDES, _HOST)
    with concurrent.futures.ThreadPoolExecutor(len(sides)) as pool:
        return dict(zip(sides, pool.map(precompile, sides), strict=True))


def passes(
    argv: list[str],
    root: Path,
    unit: str,
    seconds: float,
    read: Mapping[str, list[str]],
    *,
    claims: Mapping[str, str],
    sides: Iterable[str] = _SIDES,
) -> dict[str, object]:
    """Return what the passes of these sides answer about one unit: of device and host.

    `lines` are those that a pass compiled, by file: of `claims`, which are texts by path.
    """
    outputs: list[str] = []
    codes: list[int] = []
    lines: dict[str, set[int]] = {}
    for side in sides:
        code, text = _run([*argv, *read.get(side, ()), side, str(root / unit)], seconds)
        if code and ".pch" in text:  # options of the unit that do not fit
            code, text = _run([*argv, side, str(root / unit)], seconds)
        codes.append(code)
        outputs.append(text)
        if code == 124:
            break
        if claims:
            text = _run([*argv, side, "-E", "-dD", str(root / unit)], seconds)[1]
            for path, number in compiled_lines(text, root, claims):
                lines.setdefault(path, set()).add(number)
    ordered = {path: sorted(numbers) for path, numbers in lines.items()}
    return {"unit": unit, "codes": codes, "output": "\n".join(outputs), "lines": ordered}


def compiled_lines(
    preprocessed: str, root: Path, texts: Mapping[str, str]
) -> Iterator[tuple[str, int]]:
    """Yield the lines of `texts`, by path, that `clang -E -dD` prints: no condition drops them.

    All lines between two conditions count where one does: a macro's call is printed in its first.
    """
    path, number = "", 0
    printed: dict[str, set[int]] = {}
    for line in preprocessed.split("\n"):
        if mark := _LINE_MARK.match(line):
            path, number = os.path.relpath(os.path.normpath(mark[2]), root), int(mark[1])
            continue
        if line.strip() and path in texts:
            printed.setdefault(path, set()).add(number)
        number += 1
    for path, numbers in printed.items():
        between: list[int] = []
        for number, line in enumerate([*texts[path].split("\n"), "#endif"], 1):
            between.append(number)
            if _CONDITION.match(line):
                yield from ((path, n) for n in (() if numbers.isdisjoint(between) else between))
                between = []


def folder_options(folders: Sequence[str], made_folders: Iterable[str]) -> Iterator[str]:
    """Yield the options of include folders: they never come before the system's."""
    yield from (option for name in folders for option in ("-iquote", name))
    yield from (option for name in (*folders, *made_folders) for option in ("-idirafter", name))


def launches_overlay(tree: Tree, units: Iterable[str], torch: str, folder: Path) -> list[str]:
    """Return the options by which clang reads launches as torch's hipify writes them: a text that
    takes a macro's call for the kernel's name is an error of the build. Names stay as they are.
    """
    package = Path(torch).parent / "utils" / "hipify"
    if not torch or not package.is_dir():
        return []
    sys.path.insert(0, str(package.parent))
    rewrite = importlib.import_module("hipify.hipify_python").processKernelLaunches
    files = []
    for path in sorted(set().union(*map(tree.read_by, units))):
        text = tree.texts.get(path, "")
        written = text
        if "<<<" in text:
            with contextlib.suppress(Exception):  # what it refuses is read as it is
                written = rewrite(text, {"kernel_launches": [], "unsupported_calls": []})
        if written != text and written.count("\n") == text.count("\n"):
            copy = folder / "launches" / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(written, "utf-8")
            name = str(tree.root / path)
            files.append({"type": "file", "name": name, "external-contents": str(copy)})
    overlay = folder / "launches.yaml"
    document = {"version": 0, "use-external-names": False, "roots": files}
    overlay.write_text(json.dumps(document), "utf-8")
    return ["-ivfsoverlay", str(overlay)] * bool(files)


def _folder_of_torch(
    compiler: Compiler, job: Mapping[str, Any], standard: str, names: Mapping[str, str]
) -> Path | None:
    """Return the folder of what all projects of one torch share; None where nothing is stored."""
    if not job["torch"] or not job.get("cache"):
        return None
    path = Path(job["torch"]) / "torch" / "headeronly" / "version.h"
    version = (path.read_text("utf-8"), path.stat().st_mtime_ns) if path.is_file() else ()
    program = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()  # it writes headers
    decided = [program, compiler, job["target"], job["torch"], standard, version, sorted(names)]
    folder = Path(job["cache"]) / f"torch-{hashlib.sha256(repr(decided).encode()).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _in_threads(
    passed: Callable[[str], dict[str, object]], units: Sequence[str], jobs: int
) -> list[dict[str, object]]:
    """Return the results of all units, and print a line for each."""
    results = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for count, result in enumerate(pool.map(passed, units), 1):
            print(f"{count} of {len(units)} {result['unit']}", flush=True)
            results.append(result)
    return results


def _as_parts(
    passed: Callable[[str], dict[str, object]],
    results: Sequence[Mapping[str, Any]],
    parts: Sequence[str],
    jobs: int,
) -> list[dict[str, object]]:
    """Return the result of each part: that of a source whose passes compiled lines of it, else its
    own, as it is compiled alone.
    """
    readers = {path: result for result in results for path in result["lines"]}
    alone = _in_threads(passed, [part for part in parts if part not in readers], jobs)
    return [{**readers[part], "unit": part} for part in parts if part in readers] + alone


def chosen_build(
    compiler: Compiler, tree: Tree, job: Mapping[str, Any], folder: Path
) -> tuple[Configured, list[str], set[str]]:
    """Return the builds that decide, joined, the sources that they compile, and those that are
    HIP's own. Each build is the project's for HIP where there is one, else its default.
    """
    units, modules = job["units"], job.get("modules") or ""
    flags = job.get("flags") or {}
    hip_sources = tree.of_hip() if job.get("builds_hip") else set()
    sources = {*units, *hip_sources}
    builds = tree.cmake_builds(sources) if modules and not flags else []
    native = set(job.get("native") or ())
    if not builds:
        listed = reached_units(units, flags)
        return Configured(flags, []), listed, native.difference(listed)
    if not job.get("runs_builds", True):
        reason = "this kernel cannot confine CMake (Linux 6.7 can)"
        return Configured({}, [], reason), [], native
    joined: list[Configured] = []
    of_hip, reached, unreached = set[str](), set[str](), set(units)
    for build in builds[:_MOST_BUILDS]:
        chosen = configure(compiler, tree, modules, folder, build)
        below = {path for path in sources if not build or path.startswith(f"{build}/")}
        compiled = set(reached_units(below.intersection(units), chosen.flags))
        if job.get("builds_hip") and chosen.cache:
            for_hip = configure_for_hip(chosen, tree.root, folder)
            hips = below & for_hip.flags.keys()
            texts = {path: tree.texts[path] for path in below & hip_sources}
            kernels = {p for p, text in texts.items() if p.endswith(".hip") or "__global__" in text}
            if kernels and kernels.isdisjoint(hips):
                hips = set()  # what a build for the CPU shares with one for HIP
            if not hips and not compiled and not kernels:  # no source is HIP's by its own text
                for_hip = for_hip if for_hip.flags else chosen
                hips = tree.reading(_OF_HIP, for_hip.flags)
            if hips:
                chosen, compiled, of_hip = for_hip, hips, of_hip | hips
            elif kernels:
                chosen = replace(chosen, reason=f"no build has {min(kernels)}")
                compiled = set()
        joined.append(chosen)
        reached |= compiled
        unreached -= below if compiled else set()
    reasons = [one.reason for one in joined if one.reason]
    if reached and unreached:
        reasons.append(f"no build of CMake that was configured has {min(unreached)}")
    configured = Configured(
        {source: words for one in joined for source, words in one.flags.items()},
        [*dict.fromkeys(name for one in joined for name in one.folders)],
        "; ".join(dict.fromkeys(reasons)),
    )
    return configured, sorted(reached | unreached) if reached else [], of_hip or native - reached


@dataclass(frozen=True)
class _Passes:
    """The passes of one job. `argv` are the options of HIP's own sources, and of CUDA's."""

    job: Mapping[str, Any]
    tree: Tree
    argv: tuple[Sequence[str], Sequence[str]]
    shared: Sequence[str]
    overlay: Sequence[str]
    read: Mapping[str, list[str]]
    configured: Configured
    native: AbstractSet[str]
    hosts: AbstractSet[str]
    of_torch: AbstractSet[str]
    claims: AbstractSet[str]
    state: str
    scratch: str
    end: float

    def of(self, unit: str) -> dict[str, object]:
        """Return the result of a source, in its language."""
        definitions = self.job.get("definitions", ())
        options = unit_options((*self.configured.flags.get(unit, ()), *definitions))
        words = [*self.argv[unit not in self.native], *self.shared, *options]
        is_torchs = unit in self.of_torch
        words += self.overlay if is_torchs else ()
        read, sides = self.read if is_torchs else {}, _SIDES
        if unit.endswith(".c"):
            words, read, sides = on_host(words, "c"), {}, _SIDES[1:]
        elif is_torchs and not unit.endswith((".cu", ".hip")):
            # torch gives it to the host's compiler, also on ROCm
            words, sides = on_host(words, "c++"), _SIDES[1:]
            read = {_SIDES[1]: self.read.get(_HOST, [])}
        tree, seconds = self.tree, float(self.job["seconds"])
        claims = {path: tree.texts[path] for path in sorted(self.claims & tree.read_by(unit))}
        decided = f"{self.state}\0{unit}\0{words}\0{[*claims]}".replace(self.scratch, "")
        run = partial(passes, words, tree.root, unit, seconds, read, claims=claims, sides=sides)
        if time.monotonic() > self.end:
            run = partial(dict, unit=unit, codes=[124], output="", lines={})
        result = _stored(self.job, decided, run)
        return {**result, "is_native": unit in self.native, "is_host": unit in self.hosts}


def run_job(job: Mapping[str, Any]) -> dict[str, object]:
    """Return the results of all units: `compiler`, `units`, `hip` (HIP's names to CUDA's),
    `build_words` (those of the diagnostics that build files have, too), `stops` (where the tree has
    an `#error`: a diagnostic is its text alone), `own` (names that the compiler did not know and
    the tree declares), and `by_python` (true where torch's builds decide). `witnesses` are the
    results of sources that are no units and read the files of `claims`.
    """
    compiler = find_compiler(job["target"], job.get("toolchain") or "")
    if compiler is None:
        return {"schema": SCHEMA, "compiler": "", "units": [], "hip": {}}
    tree = Tree(Path(job["root"]))
    names = dict(job["names"])
    hosts = sorted(tree.reading(_OF_TORCH, job.get("hosts") or ()))
    units = [*job["units"], *hosts]
    of_torch = tree.reading(_OF_TORCH, units)
    job = {**job, "torch": (torch_headers() or job.get("torch") or "") if of_torch else ""}
    if not job["torch"]:
        names.pop("CUDA_VERSION", None)  # its twin is a macro of torch's builds
    headers = {**job["headers"], **_HEADERS}
    with tempfile.TemporaryDirectory(prefix="warpfront-syntax-") as scratch:
        # torch's own builds have C++ 20
        is_torchs = job["torch"] and not (job.get("modules") and tree.cmake_builds(units))
        folder, standard = Path(scratch), tree.standard(20 if is_torchs else 17)
        fixed = _folder_of_torch(compiler, job, standard, names) or folder
        forced = write_shims(fixed, tree, names, headers, str(job["torch"]))
        plain = arguments(compiler, job, standard)
        argv = [*plain, *emulation(compiler.hip, str(job["torch"]), forced)]
        read = precompiled(argv, fixed, float(job["seconds"])) if job["torch"] else {}
        configured, reached, native = chosen_build(compiler, tree, job, folder)
        native -= of_torch
        shared = tree_options(tree, folder, headers, str(job["torch"]))
        shared += folder_options(tree.include_folders(), configured.folders)
        units = [*reached, *hosts] if reached else units
        parts = tree.parts(units) - configured.flags.keys()
        units = [unit for unit in units if unit not in parts]
        claims = tree.texts.keys() & {*(job.get("claims") or ()), *parts}
        witnesses = tree.witnesses(sorted(claims), units)
        overlay = launches_overlay(tree, of_torch & {*units}, str(job["torch"]), folder)
        state = _state_of(compiler, tree, [*argv, *shared], scratch, forced)

        passed = _Passes(
            job, tree, (plain, argv), [*shared], overlay, read, configured, native,
            {*hosts}, of_torch, claims, state, scratch, time.monotonic() + _MOST_SECONDS,
        ).of  # fmt: skip
        results = _in_threads(passed, [*units, *witnesses], int(job["jobs"]))
        included = _as_parts(passed, results[: len(units)], sorted(parts), int(job["jobs"]))
    unreached = "" if reached or not configured.flags else "its build has none of these sources"
    words = {word for result in results for word in _NAME.findall(str(result["output"]))}
    lacked = {name for result in results for name in _LACKED.findall(str(result["output"]))}
    return {
        "schema": SCHEMA, "compiler": compiler.version,
        "units": [*results[: len(units)], *included],
        "hip": {hip: cuda for cuda, hip in names.items() if cuda in tree.words and hip in words},
        "witnesses": results[len(units) :],
        "build_words": sorted(words & tree.build_words(is_unreached=bool(unreached))),
        "unconfigured": configured.reason or unreached, "reached": reached,
        "stops": tree.stops(),
        "own": tree.own(lacked), "by_python": bool(is_torchs),
    }  # fmt: skip


def _stored(
    job: Mapping[str, Any], decided: str, make: Callable[[], dict[str, object]]
) -> dict[str, object]:
    """Return a result, made where the cache has none of what decides it."""
    if not job.get("cache"):
        return make()
    path = Path(job["cache"]) / f"{hashlib.sha256(decided.encode()).hexdigest()}.json"
    with contextlib.suppress(OSError, ValueError):  # none is stored, or it is broken
        return dict(json.loads(path.read_text()))
    result = make()
    # One that took too long, or that a signal ended, is no answer.
    if all(0 <= code < 124 for code in result["codes"]):  # type: ignore[attr-defined]
        with contextlib.suppress(OSError):  # a full disk stores nothing
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = path.with_suffix(f".{os.getpid()}")
            whole.write_text(json.dumps(result))
            whole.replace(path)
    return result


def _state_of(compiler: Compiler, tree: Tree, argv: list[str], scratch: str, forced: Path) -> str:
    """Return a digest of what decides a result: compiler, options, names, the tree's place and
    files, and this program, which writes headers.
    """
    digest = hashlib.sha256(compiler.version.encode() + Path(__file__).read_bytes())
    digest.update("\0".join([*argv, str(tree.root)]).replace(scratch, "").encode())
    digest.update(forced.read_bytes() + tree.builds.encode("utf-8", "surrogatepass"))
    for path, text in tree.texts.items():
        digest.update(f"{path}\0{text}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def confine(readable: Iterable[str], writable: Iterable[str]) -> bool:
    """Let this process and its children reach these places alone, and no TCP. Return false where
    the kernel cannot (Landlock's fourth ABI: Linux 6.7).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_LANDLOCK, None, 0, 1) < _LANDLOCK_OF_NETWORK:
        return False
    rules = struct.pack("=QQ", _LANDLOCK_ALL, _LANDLOCK_TCP)
    ruleset = libc.syscall(_LANDLOCK, rules, len(rules), 0)
    for access, places in ((_LANDLOCK_READ, readable), (_LANDLOCK_ALL, writable)):
        for path in filter(Path.exists, map(Path, filter(None, places))):
            allowed = access if path.is_dir() else access & _LANDLOCK_FILE
            beneath = struct.pack("=Qi", allowed, os.open(path, os.O_PATH))
            libc.syscall(_LANDLOCK + 1, ruleset, 1, beneath, 0)
    no_new_privileges = 38
    return (
        int(libc.prctl(no_new_privileges, 1, 0, 0, 0)) == 0
        and int(libc.syscall(_LANDLOCK + 2, ruleset, 0)) == 0
    )


def main(argv: list[str]) -> int:
    """Run the job of `argv[1]` and write the results to `argv[2]`."""
    job = json.loads(Path(argv[1]).read_text("utf-8"))
    if job.get("is_confined"):
        inputs = (job["root"], job["toolchain"], job["torch"], job["python"], job["modules"])
        readable = [*_SYSTEM, __file__, sys.prefix, sys.base_prefix, torch_headers(), *inputs]
        Path(job["cache"]).mkdir(parents=True, exist_ok=True)
        job["runs_builds"] = confine(readable, [tempfile.gettempdir(), job["cache"], "/dev/null"])
    results = run_job(job)
    Path(argv[2]).write_text(json.dumps(results), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
