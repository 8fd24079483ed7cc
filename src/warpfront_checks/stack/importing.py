"""A program that imports modules as their users would, in a process of its own, and
reports the results.

`python importing.py NUMBER`: the request comes by stdin, and the report goes to the file that
is open as NUMBER. Started by its path, so that no module of ours is importable with the image's
packages. It writes the whole report before the process ends; if a library kills the process,
the report so far remains. A library finds no file of ours to write to, and the word of a report
is in none.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_OWN = Path(__file__).resolve().parent
_SHOWN = 300


def main(request: Mapping[str, Any], told_to: int) -> None:
    """`wanted`: `imports`, `compiled` (modules, or `file:GLOB` of a library that has to be in this
    process), `attributes` to read, `diagnose`: whether to look at every extension but `optional`
    ones, and `word`, by which its report is known.
    """
    pid, dumps = os.getpid(), json.dumps
    report: dict[str, Any] = {"imports": {}, "compiled": {}, "attributes": {}, "finished": False}
    report["word"] = request["word"]

    def say(doing: str = "") -> None:
        report["doing"] = doing
        if os.getpid() == pid:  # a library may fork
            document = dumps(report, default=str).encode()
            os.pwrite(told_to, document, 0)
            os.ftruncate(told_to, len(document))

    torch = importlib.import_module("torch")
    report["torch before"] = _facts(torch)
    for name in request["imports"]:
        report["imports"][name] = {"error": "the process ended while it was imported"}
        say()
        report["imports"][name] = _imported(name)
    report["imported"] = True
    for name in request["compiled"]:
        say(f"while {name} was looked for")
        report["compiled"][name] = _compiled(name, request["imports"])
    report["extensions"] = _extensions(request, say)
    say()
    for path in request["attributes"]:
        report["attributes"][path] = _attribute(path)
    report["torch after"] = _facts(torch) | {"swapped": sys.modules.get("torch") is not torch}
    report["finished"] = True
    say()


def _facts(torch: Any) -> dict[str, object]:
    """Return torch's version and the devices it sees. Looking for them starts no context."""
    hpu = getattr(torch, "hpu", None)
    counts = {"cuda": torch.cuda.device_count(), "hpu": hpu.device_count() if hpu else 0}
    return {"file": torch.__file__, "version": torch.__version__, "devices": counts}


def _imported(name: str) -> dict[str, object]:
    """Return the origin of a module, or the reason why it was not imported."""
    before = time.monotonic()
    try:
        module = importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001 - SystemExit at an import is an answer, too
        where = traceback.extract_tb(error.__traceback__)[-1:]
        return {
            "error": f"{type(error).__name__}: {error}"[:_SHOWN],
            "missing": getattr(error, "name", None),
            "at": f"{where[0].filename}:{where[0].lineno}" if where else "",
        }
    owner, file = _distribution(name), getattr(module, "__file__", None)
    if owner and file and owner.files and os.path.realpath(file) not in _brought(name):
        problem = f"it says that it is {file}, which its wheel does not bring"
        return {"error": problem[:_SHOWN], "missing": None, "at": ""}
    return {
        "file": file,
        "distribution": owner.metadata["Name"] if owner else None,
        "version": owner.version if owner else None,
        "seconds": round(time.monotonic() - before, 3),
    }


def _distribution(module: str) -> importlib.metadata.Distribution | None:
    owners = _owners().get(module.partition(".")[0], [])
    return importlib.metadata.distribution(owners[0]) if owners else None


@functools.cache
def _brought(module: str) -> frozenset[str]:
    """Return the files of all distributions that bring something of a module's package."""
    owners = map(importlib.metadata.distribution, _owners()[module.partition(".")[0]])
    files = (str(owner.locate_file(file)) for owner in owners for file in owner.files or ())
    return frozenset(map(os.path.realpath, files))


@functools.cache
def _owners() -> Mapping[str, list[str]]:
    """Read the metadata of all installed distributions."""
    return importlib.metadata.packages_distributions()


def _compiled(name: str, imports: list[str]) -> dict[str, object]:
    """Return whether compiled code is in this process: an extension's module, or a library."""
    loaded_files = _symbols().loaded_files()
    if name.startswith("file:"):
        pattern = name.removeprefix("file:")
        matching = {str(path) for path in _files(imports) if path.match(pattern)}
        loaded = sorted(matching & loaded_files)
        problem = "" if loaded else "not in the process"
        return {"loaded": loaded, "error": problem, **({} if loaded else _first_lacking(matching))}
    imported = _imported(name)
    if "error" in imported:
        stem = name.rpartition(".")[2]
        matching = {str(path) for path in _files(imports) if path.name.partition(".")[0] == stem}
        return {"loaded": [], "error": imported["error"], **_first_lacking(matching)}
    file, problem = str(imported["file"] or ""), ""
    if not file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        problem = f"{name} is {file}, which is no extension"
    elif os.path.realpath(file) not in loaded_files:
        problem = f"{name} says that it is {file}, not in the process"
    return {"loaded": [] if problem else [file], "error": problem}


def _first_lacking(files: set[str]) -> dict[str, object]:
    """Return why the first of these that fails does not load."""
    for file in sorted(files):
        problem = _lacking(Path(file))
        if problem["said"]:
            return {"file": file, **problem}
    return {"file": None} if not files else {}


def _extensions(request: Mapping[str, Any], say: Callable[[str], None]) -> dict[str, object]:
    """Return the compiled files of these packages that are in this process. To `diagnose`, return
    too why each other Python extension would not load. That runs its code: `say` is called before.
    """

    def lacking(path: Path) -> dict[str, object]:
        say(f"while {path} was loaded")
        return _lacking(path)

    files, suffixes = _files(request["imports"]), tuple(importlib.machinery.EXTENSION_SUFFIXES)
    mapped = _symbols().loaded_files()
    others = [path for path in files if str(path) not in mapped]
    named = [path for path in others if path.name.endswith(suffixes)]
    named = [path for path in named if path.name.count(".") > 1 or path.name[0] == "_"]
    named = [path for path in named if not any(map(path.match, request["optional"]))]
    return {
        "loaded": sorted({str(path) for path in files} & mapped),
        "others": sorted(map(str, others)),
        "lacking": {str(path): lacking(path) for path in named} if request["diagnose"] else {},
    }


def _files(imports: list[str]) -> list[Path]:
    """Return the shared objects that the imported packages' distributions brought."""
    distributions = filter(None, map(_distribution, imports))
    owners = {distribution.metadata["Name"]: distribution for distribution in distributions}
    files = (file for owner in owners.values() for file in owner.files or ())
    named = (file for file in files if _symbols().is_shared_object(file.name))
    paths = (Path(str(file.locate())).resolve() for file in named)
    return [path for path in paths if path.is_file()]


def _lacking(path: Path) -> dict[str, object]:
    torch: Any = importlib.import_module("torch")
    demangle = getattr(torch._C, "_demangle", str)  # noqa: SLF001 - the only demangler here
    problem: dict[str, object] = _symbols().lacking(path, demangle)
    return problem


@functools.cache
def _symbols() -> Any:
    """Return `elf_symbols`, loaded by its file: it is of no package in this process."""
    spec = importlib.util.spec_from_file_location("_warpfront_elf", _OWN / "elf_symbols.py")
    assert spec is not None
    assert spec.loader is not None
    # Its dataclasses look for their module.
    symbols = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(symbols)
    return symbols


def _attribute(path: str) -> dict[str, object]:
    """Return the type and the value at a dotted path, as texts."""
    module, _, name = path.rpartition(".")
    try:
        value = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        return {"error": str(error)[:_SHOWN]}
    return {"type": type(value).__name__, "value": str(value)[:_SHOWN]}


if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if Path(entry or os.curdir).resolve() != _OWN]
    number = int(sys.argv.pop())
    os.set_inheritable(number, False)  # noqa: FBT003 - named by the function
    main(json.loads(sys.stdin.read()), number)
