"""What stands before the watch in an interpreter that has just started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .manifest import Manifest, read_manifest
from .policy import GuardError

_SECONDS = 60.0
# Asked with the stack's modules and their folders. Of the finders behind the watch Python's own are
# left out: whoever else answers for one of the modules does so in their place.
_PROBE = """
import builtins, importlib.machinery as machinery, json, sys, zipimport
asked, folders = json.load(sys.stdin)
PYTHONS = (machinery.BuiltinImporter, machinery.FrozenImporter, machinery.PathFinder)

def named(thing):
    kind = thing if isinstance(thing, type) else type(thing)
    return kind.__module__ + "." + kind.__qualname__

def answers(finder):
    for name, folder in asked:
        try:
            if finder.find_spec(name, [folder], None) is not None:
                return name
        except Exception:
            pass

def takes(hook):
    for folder in folders:
        try:
            hook(folder)
        except Exception:
            continue
        return folder

watched = [named(one) == "warpfront_guard.startup.Watcher" for one in sys.meta_path]
before = sys.meta_path[: watched.index(True)] if True in watched else sys.meta_path
behind = [one for one in sys.meta_path[len(before) + 1 :] if one not in PYTHONS]
hooks = [one for one in sys.path_hooks if one is not zipimport.zipimporter]
hooks = [one for one in hooks if one.__module__ != "_frozen_importlib_external"]
found = {
    "finders": [named(one) for one in before] if True in watched else None,
    "modules": sorted(sys.modules),
    "answering": [[named(one), name] for one in behind if (name := answers(one))],
    "hooks": [
        [one.__module__ + "." + one.__qualname__, name] for one in hooks if (name := takes(one))
    ],
    "importing": type(builtins.__import__).__name__ == "builtin_function_or_method",
}
print(json.dumps(found))
"""


@dataclass(frozen=True, kw_only=True)
class Start:
    """An interpreter that has just started: the `finders` that are asked before the watch, None
    where there is no watch, and the `modules` it has loaded. `answering` are others' finders and
    path hooks that answer for a module of the stack, with its name; `importing` says whether
    `import` is Python's own.
    """

    finders: tuple[str, ...] | None
    modules: tuple[str, ...]
    answering: tuple[tuple[str, str], ...] = ()
    importing: bool = True


def import_findings(start: Start, packages: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(subject, what is wrong): finders asked before the watch, and protected packages that are
    there before anybody imported them.
    """
    if start.finders is None:
        yield "sys.meta_path", "the watch is not in it: imports of torch are not looked at"
    for finder in start.finders or ():
        yield finder, "it is asked for torch before the watch is"
    for finder, module in start.answering:
        yield finder, f"it answers for {module} in the place of Python's own finder"
    if not start.importing:
        yield "builtins.__import__", "it was replaced by the time Python has started"
    there = set(packages)
    for module in sorted(one for one in start.modules if one.partition(".")[0] in there):
        yield module, "it is in sys.modules when Python starts, before anybody imported it"


def read_start(manifest: Path) -> Start:
    """Asked of a new interpreter: this one has done more than start. `manifest` is the file with
    the stack whose modules are asked for; `verify` says if it cannot be read.
    """
    try:
        asked = list(_modules(read_manifest(manifest)))
    except GuardError:
        asked = []
    folders = sorted({folder for _, folder in asked})
    done = subprocess.run(
        [sys.executable, "-c", _PROBE],
        input=json.dumps([asked, folders]),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return Start(finders=None, modules=())
    finders = found["finders"]
    return Start(
        finders=None if finders is None else tuple(finders),
        modules=tuple(found["modules"]),
        answering=tuple((who, what) for who, what in [*found["answering"], *found["hooks"]]),
        importing=found["importing"],
    )


def _modules(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """(module, folder of its package) of what a .py of the stack is imported as."""
    packages = manifest.packages()
    for files in manifest.files.values():
        for path in files:
            parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
            if path.endswith(".py") and parts[0] in packages and len(parts) > 1:
                yield ".".join(parts), str(manifest.location.joinpath(*parts[:-1]))
