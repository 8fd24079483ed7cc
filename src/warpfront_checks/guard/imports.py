"""Finders and hooks that come before the watch in an interpreter that has just started."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

from .at_import import modules_of
from .fast_path import NAME
from .manifest import read_manifest
from .places import Places
from .policy import GuardError

_SECONDS = 60.0
_UNWATCHED = ("sys.meta_path", "the watch is not in it: imports of torch are not looked at")
# Its input is the stack's modules, their folders, its packages and the guard's library. Of the
# finders after the watch Python's own are omitted: any other that answers for one of the modules
# takes their place. The path importer cache of the stack's folders is read, too. The first lines
# are those of `machinery.py`.
_PROBE = """
import importlib.machinery as machinery, json, zipimport
asked, folders, protected, own, unwatched = json.load(sys.stdin)
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

def strangers(behind):
    usual = (machinery.FileFinder, type(None))
    cached = [(f, one) for f, one in sys.path_importer_cache.items() if type(one) not in usual]
    hooks = [one for one in sys.path_hooks if one is not zipimport.zipimporter]
    yield from ((named(one), answers(one)) for one in behind if one not in PYTHONS)
    yield from ((named(one), answers(one, f)) for f, one in cached if f in folders)
    for hook in hooks:
        if hook.__module__ != "_frozen_importlib_external":
            yield hook.__module__ + "." + hook.__qualname__, takes(hook)

def problems():
    modules = sorted({*sys.modules, *getattr(own_startup, "planted", ())})
    watched = [named(one) == "warpfront_guard.startup.Watcher" for one in sys.meta_path]
    place = watched.index(True) if True in watched else len(watched)
    if True in watched:
        for finder in sys.meta_path[:place]:
            yield named(finder), "it is asked for torch before the watch is"
        for part in watch_problems():
            yield "sys.meta_path", f"{part}: it is not this guard's own"
    else:
        yield unwatched
    for finder, name in strangers(sys.meta_path[place + 1 :]):
        if name:
            yield finder, f"it answers for {name} in the place of Python's own finder"
    for name in (*machinery_problems(), *replaced_builtins()):
        yield name, "it was replaced by the time Python has started"
    for name in modules:
        if name.partition(".")[0] in protected:
            yield name, "it is in sys.modules when Python starts, before anybody imported it"

print(json.dumps([*problems()]))
"""


def read_start(places: Places) -> list[tuple[str, str]]:
    """Return (subject, fault) for what comes before the watch in a new interpreter, or in its
    place: this one has done more than start. The manifest of `places` lists the modules; if it is
    unreadable, `verify` reports that.
    """
    modules, packages = [], list[str]()
    with contextlib.suppress(GuardError):
        manifest = read_manifest(places.manifest)
        location, packages = str(manifest.location), list(manifest.packages())
        names = [name.split(".") for name in modules_of(manifest)]
        modules = [(".".join(n), "/".join([location, *n[:-1]]) if n[1:] else "") for n in names]
    folders = sorted({folder for _, folder in modules if folder})
    program = Path(__file__).with_name("machinery.py").read_text(encoding="utf-8") + _PROBE
    completed = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps([modules, folders, packages, str(places.library / NAME), _UNWATCHED]),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    try:
        return [(str(s), str(text)) for s, text in json.loads(completed.stdout.splitlines()[-1])]
    except (ValueError, IndexError, TypeError):
        return [_UNWATCHED]
