"""The compiled code of all that an image installs: libraries that it needs, and the numpy it was
built for. The `load` session has these checks in every image, with `smoke:` or without.

numpy's ABI is tried by imports, in a process for each distribution: what an extension compares is a
constant in its code, and no field of a file names it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import mmap
import os
import re
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from warpfront_checks.compiling.programs import ran
from warpfront_checks.distributions import Installed
from warpfront_checks.guard.policy import normalized
from warpfront_checks.results import CheckFinding, failed, judged, passed, several, undetermined
from warpfront_checks.stack.descriptions import optional_files
from warpfront_checks.stack.elf_symbols import (
    UNREADABLE,
    dynamic_of,
    is_elf,
    is_shared_object,
    lacking_libraries,
    loader_paths,
)

SECONDS = 120.0
SIDE_BY_SIDE = 4
_SHOWN = 6
_NAMES_NUMPY = re.compile(rb"numpy\.(_?core|dtype size changed)")
# numpy's own sentences, and Cython's of a structure that has another size.
_OTHER_NUMPY = re.compile(
    r"numpy\.\w+ size changed|compiled using NumPy|numpy\._?core\.\w+ failed to import"
    r"|_ARRAY_API not found|compiled against (ABI|API) version"
)
_IMPORTS = """
import importlib, json, sys
for name in json.load(sys.stdin):
    try:
        importlib.import_module(name)
    except BaseException as error:
        print("\\n" + json.dumps(["failed", name, f"{type(error).__name__}: {error}"[:500]]))
print("\\n" + json.dumps(["ended", "", ""]))
"""


def distributions_of(names: Iterable[str]) -> tuple[Distribution, ...]:
    """Return the installed distributions with these names, each once."""
    normalized_names = {normalized(name) for name in names}
    by_name: dict[str, Distribution] = {}
    for distribution in importlib.metadata.distributions():
        name = normalized(distribution.metadata["Name"] or "")
        if name in normalized_names:
            by_name.setdefault(name, distribution)
    return tuple(by_name.values())


def added_to(installed: Installed, stack: Iterable[str], names: Iterable[str]) -> frozenset[str]:
    """Return the distributions beyond torch's own stack and all that it requires. What torch
    loads is checked by importing it and computing with it; its toolkit has plug-ins for networks
    and file systems (nvshmem, cufile) that no image of ours serves.
    """
    pending, visited = ["torch", *stack], set[str]()
    while pending:
        name = normalized(pending.pop())
        lines = () if name in visited else installed.requirements.get(name, ())
        visited.add(name)
        pending += [match[0] for line in lines if (match := re.match(r"[A-Za-z0-9._-]+", line))]
    return frozenset(normalized(name) for name in names) - visited


def find_lacking_libraries(
    names: Collection[str], vendor: str, smoke: Iterable[Mapping[str, Any]] = ()
) -> CheckFinding:
    """Check that the loader finds every library that a compiled file needs."""
    normalized_names = {normalized(name) for name in names}
    every: dict[Path, str] = {}
    unlisted = []
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"] or ""
        owner = f"{name} {distribution.version}" if normalized(name) in normalized_names else ""
        # Its libraries, and its programs, whose names have no suffix.
        files_of = (f for f in distribution.files or () if is_shared_object(f.name) or not f.suffix)
        paths = (Path(str(distribution.locate_file(file))) for file in files_of)
        every |= {path.resolve(): owner for path in paths if is_elf(path)}
        unlisted += [name] if owner and distribution.files is None else []
    files = {path: owner for path, owner in every.items() if owner}
    lacking = lacking_libraries(files, loader_paths(every, vendor), optional_files(vendor, smoke))
    wrong = [
        f"{files[path]}: {path.name} lacks {several(lib, _SHOWN)}" for path, lib in lacking.items()
    ]
    details = {"lacking": {str(path): list(names) for path, names in lacking.items()}}
    doubts = [f"no RECORD lists the files of {several(unlisted, _SHOWN)}"] if unlisted else []
    damaged = [path.name for path in files if dynamic_of(path).machine == UNREADABLE]
    doubts += [f"no loader could read {several(damaged, _SHOWN)}"] if damaged else []
    if doubts and not wrong:
        return undetermined(f"not known: {'; '.join(doubts)}")
    summary = f"{len(files)} compiled files" if files else "nothing to look at: no compiled files"
    return judged(wrong, summary, **details)


def find_other_numpy(names: Collection[str]) -> CheckFinding:
    """Check that no extension was built for another numpy than the installed one."""
    numpy = importlib.metadata.version("numpy")
    modules_by_name = {
        distribution: modules
        for distribution in distributions_of(names)
        if (modules := _to_import(distribution))
    }
    with ThreadPoolExecutor(min(SIDE_BY_SIDE, os.cpu_count() or 1)) as pool:
        trials = list(pool.map(_try_imports, modules_by_name, modules_by_name.values()))
    wrong = [f"{name}: {other_numpy(bad[0], name, numpy)}" for name, bad, _ in trials if bad]
    unknown = [f"{name}: {why}" for name, _, why in trials if why]
    if wrong:
        return failed("; ".join(wrong), numpy=numpy, imports={name: bad for name, bad, _ in trials})
    if unknown:
        return undetermined("not known: " + "; ".join(unknown))
    none = "nothing to try: no distribution beyond torch's has code that names numpy"
    return passed(f"{len(trials)} distributions beside numpy {numpy}" if trials else none)


def other_numpy(error: str, package: str, numpy: str) -> str:
    """Return the conflict with numpy in an import error and its remedy; "" if there is none."""
    if not _OTHER_NUMPY.search(error):
        return ""
    name = package.partition(" ")[0]
    if numpy.startswith(("0.", "1.")):
        way = f"a newer one than {numpy}: take that numpy, or an older {name}"
    else:
        way = f"1.x, not {numpy}: take numpy<2, or a newer {name}"
    return f"built for another numpy, {way} ({error})"


def _try_imports(
    distribution: Distribution, modules: tuple[str, ...]
) -> tuple[str, tuple[str, ...], str]:
    """Return a distribution's name, its extensions that were built for another numpy, and why that
    could not be found out.
    """
    name = f"{distribution.metadata['Name']} {distribution.version}"
    argv, modules_json = [sys.executable, "-c", _IMPORTS], json.dumps(modules).encode()
    with tempfile.TemporaryDirectory() as folder:
        completed = ran(argv, seconds=SECONDS, cwd=Path(folder), given=modules_json)
    results = []
    for line in completed.output.splitlines():
        with contextlib.suppress(ValueError, TypeError):
            kind, module, message = map(str, json.loads(line))
            results.append((kind, module, message))
    wrong = tuple(
        f"{module}: {message}" for kind, module, message in results if _OTHER_NUMPY.search(message)
    )
    # numpy prints its own sentence where a C extension goes on without it.
    if not wrong and (sentence := _OTHER_NUMPY.search(completed.output)):
        wrong = (sentence.group(0),)
    if wrong or any(kind == "ended" for kind, _, _ in results):
        return name, wrong, ""
    if completed.returncode is None:
        return name, (), f"stopped after {SECONDS:g} s of importing"
    return name, (), f"its import ended the process with {completed.returncode}"


def _to_import(distribution: Distribution) -> tuple[str, ...]:
    """Return the extension modules of a distribution that name numpy; its packages, where it is
    for one platform, demands numpy, and no file of it names numpy.
    """
    if normalized(distribution.metadata["Name"]) == "numpy":
        return ()
    named = {str(file): file for file in distribution.files or ()}
    module_names = []
    for name, file in named.items():
        path = Path(str(distribution.locate_file(file)))
        with contextlib.suppress(OSError, ValueError):
            if module := _module(name):
                with (
                    path.open("rb") as code,
                    mmap.mmap(code.fileno(), 0, access=mmap.ACCESS_READ) as data,
                ):
                    module_names += [module] if _NAMES_NUMPY.search(data) else []
    demands = any(
        re.match(r"numpy\b(?![-.\w])", line) and "extra" not in line
        for line in distribution.requires or ()
    )
    wheel = (distribution.read_text("WHEEL") or "").lower()
    if module_names or not demands or "root-is-purelib: false" not in wheel:
        return tuple(module_names)
    packages = (re.fullmatch(r"(\w+)(/__init__)?\.py", name) for name in named)
    return tuple(match[1] for match in packages if match)


def _module(name: str) -> str:
    """Return `a.b._c` of `a/b/_c.cpython-311-x86_64-linux-gnu.so`; "" for any other file."""
    suffix = next((suffix for suffix in EXTENSION_SUFFIXES if name.endswith(suffix)), "")
    module = name.removesuffix(suffix).replace("/", ".")
    return module if suffix and all(part.isidentifier() for part in module.split(".")) else ""
