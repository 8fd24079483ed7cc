"""Invoke tasks: one a step, and the commands around the steps.

A project's own `tasks.py` imports `namespace` from here. A new task is a function with `@command`
in one of the modules below, and a name in `MODULES`. A task imports its step when it runs, so that
`--list` needs no step. Other packages add modules by the entry point `warpfront.tasks`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path

from invoke.collection import Collection
from invoke.tasks import Task

from warpfront.system.extras import registered

# Module -> names of its tasks. invoke copies each task many times, so only named ones are made.
MODULES: Mapping[str, tuple[str, ...]] = {
    "warpfront.cli.tasks.path": (
        "plan",
        "lock",
        "build-wheels",
        "render",
        "build",
        "verify",
        "explain",
        "report",
    ),
    "warpfront.cli.tasks.tables": ("compat",),
    "warpfront.cli.tasks.billing": ("bill", "audit"),
    "warpfront.cli.tasks.releasing": ("publish", "release", "why"),
    "warpfront.cli.tasks.ci": ("ci", "merge", "job", "resume"),
    "warpfront.cli.tasks.hosting": ("runner",),
    "warpfront.cli.tasks.modelling": ("models",),
    "warpfront.cli.tasks.speed": ("bench", "read-log", "compare", "nights", "compare-stacks"),
    "warpfront.cli.tasks.machine": ("doctor", "engine", "init", "clean"),
}
GROUP = "warpfront.tasks"
_PROGRAMS = {"invoke", "inv", "warpfront"}
# Options that need every task, whichever task is named as well.
_OF_ALL = re.compile(r"--(list|complete|print)|-[A-Za-z]*l")


def modules_for(argv: list[str]) -> tuple[str, ...]:
    """Return the modules of the tasks that a command line names; all modules if it names none."""
    called, words = Path(argv[0]), set(argv[1:])
    is_ours = not _PROGRAMS.isdisjoint((called.name, called.parent.name))
    if not is_ours or any(map(_OF_ALL.match, words)):
        return (*MODULES, *installed_modules())
    # Looking for entry points takes longer than anything else here.
    named = _naming(words, MODULES) or _naming(words, installed_modules())
    return named or (*MODULES, *installed_modules())


def installed_modules() -> Mapping[str, tuple[str, ...]]:
    """Return what other packages add to `MODULES`."""
    return {module: names for modules in registered(GROUP) for module, names in modules.items()}


def tasks_of(modules: Iterable[str]) -> Collection:
    """Return the tasks of `modules` as invoke's collection."""
    collection = Collection()
    for module in modules:
        for task in vars(import_module(module)).values():
            if isinstance(task, Task):
                collection.add_task(task)
    return collection


def _naming(words: set[str], modules: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(module for module, names in modules.items() if not words.isdisjoint(names))


namespace = tasks_of(modules_for(sys.argv))
