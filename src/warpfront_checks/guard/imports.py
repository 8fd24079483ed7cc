"""Finders and hooks that come before the watch in an interpreter that has just started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .at_import import modules_of
from .fast_path import NAME
from .manifest import read_manifest
from .places import Places
from .policy import GuardError, Problems

_SECONDS = 60.0
# Its input is the stack's modules, their folders and the guard's library. Of the finders after the
# watch Python's own are omitted: any other that answers for one of the modules takes their
# place. The path importer cache of the stack's folders is read, too. The first lines are
# those of `machinery.py`.
_PROBE = """
import importlib.machinery as machinery, json, zipimport
asked, folders, own = json.load(sys.stdin)
PYTHONS = (machinery.BuiltinImporter, machinery.FrozenImporter, machinery.PathFinder)
own_startup = sys.modules.get("warpfront_guard.startup")

def named(thing):
    kind = thing if isinstance(thing, type) else type(thing)
    return kind.__module__ + "." + kind.__qualname__

def answers(finder, only=None):
    for name, folder in asked:
        if only is not None and folder != only:
            continue
        try:
            if finder.find_spec(name, *([] if only else [folder and [folder], None])) is not None:
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

def watch_problems():
    file = own + "/startup.py"
    if getattr(own_startup, "__file__", None) != file:
        return [str(getattr(own_startup, "__file__", "nothing")) + " is the watch, not " + file]
    fresh = {"__name__": own_startup.__name__, "__file__": file}
    with open(file, "rb") as source:
        exec(compile(source.read(), file, "exec", dont_inherit=True), fresh)
    kept = {k: v for k, v in fresh.items() if isinstance(v, (type, FunctionType))}
    kept["__name__"] = own_startup.__name__
    return ["the watch's " + one for one in differences(vars(own_startup), kept)]

watched = [named(one) == "warpfront_guard.startup.Watcher" for one in sys.meta_path]
before = sys.meta_path[: watched.index(True)] if True in watched else sys.meta_path
behind = [one for one in sys.meta_path[len(before) + 1 :] if one not in PYTHONS]
hooks = [one for one in sys.path_hooks if one is not zipimport.zipimporter]
hooks = [one for one in hooks if one.__module__ != "_frozen_importlib_external"]
cache = {f: one for f, one in sys.path_importer_cache.items() if f in folders and one is not None}
cache = {f: one for f, one in cache.items() if type(one) is not machinery.FileFinder}
found = {
    "finders": [named(one) for one in before] if True in watched else None,
    "modules": sorted({*sys.modules, *getattr(own_startup, "planted", ())}),
    "answering": [[named(one), name] for one in behind if (name := answers(one))]
    + [[named(one), name] for f, one in cache.items() if (name := answers(one, f))]
    + [[one.__module__ + "." + one.__qualname__, name] for one in hooks if (name := takes(one))],
    "machinery": [*machinery_problems(), *replaced_builtins()],
    "watch": watch_problems() if True in watched else [],
}
print(json.dumps(found))
"""


@dataclass(frozen=True, kw_only=True)
class Start:
    """An interpreter that has just started: the `finders` that run before the watch, None if
    there is no watch, and the `modules` it has loaded. `answering` are others' finders and path
    hooks that answer for a module of the stack, with its name. `machinery` are parts of the import
    system that are not Python's own, `watch` parts of the watch that are not this guard's.
    """

    finders: tuple[str, ...] | None
    modules: tuple[str, ...]
    answering: tuple[Sequence[str], ...] = ()
    machinery: tuple[str, ...] = ()
    watch: tuple[str, ...] = ()


def import_findings(start: Start, packages: Iterable[str]) -> Problems:
    """Yield (subject, fault) for finders before the watch and packages loaded before an import."""
    if start.finders is None:
        yield "sys.meta_path", "the watch is not in it: imports of torch are not looked at"
    for finder in start.finders or ():
        yield finder, "it is asked for torch before the watch is"
    for finder, module in start.answering:
        yield finder, f"it answers for {module} in the place of Python's own finder"
    for name in start.machinery:
        yield name, "it was replaced by the time Python has started"
    for name in start.watch:
        yield "sys.meta_path", f"{name}: it is not this guard's own"
    protected = set(packages)
    for module in sorted(name for name in start.modules if name.partition(".")[0] in protected):
        yield module, "it is in sys.modules when Python starts, before anybody imported it"


def read_start(places: Places) -> Start:
    """Read the state of a new interpreter: this one has done more than start. The manifest of
    `places` lists the modules; if it is unreadable, `verify` reports that.
    """
    try:
        manifest = read_manifest(places.manifest)
        location = str(manifest.location)
        names = [name.split(".") for name in modules_of(manifest)]
        modules = [(".".join(n), "/".join([location, *n[:-1]]) if n[1:] else "") for n in names]
    except GuardError:
        modules = []
    folders = sorted({folder for _, folder in modules if folder})
    program = Path(__file__).with_name("machinery.py").read_text(encoding="utf-8") + _PROBE
    completed = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps([modules, folders, str(places.library / NAME)]),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    try:
        probe = json.loads(completed.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return Start(finders=None, modules=())
    read = {name: probe[name] for name in Start.__dataclass_fields__}
    parts: dict[str, Any] = {n: None if part is None else tuple(part) for n, part in read.items()}
    return Start(**parts)
