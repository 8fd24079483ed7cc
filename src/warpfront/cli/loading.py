"""The modules of commands: a command line imports what it names.

A new command is a function with `@command` in one of the modules below, and its first word in
`MODULES`. A command imports its step when it runs, so that `--help` needs no step. Other packages
add modules by the entry point `warpfront.tasks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from warpfront.cli.tasks.declaring import Command, Group
from warpfront.system.extras import registered

# Module -> first words of its commands, old ones too: a command line imports what it names.
MODULES: Mapping[str, tuple[str, ...]] = {
    "warpfront.cli.tasks.project": ("init", "add", "migrate", "docs", "completion"),
    "warpfront.cli.tasks.path": (
        *("plan", "lock", "build-wheels", "render", "build", "verify", "report"),
        "explain",
    ),
    "warpfront.cli.tasks.releasing": ("publish", "release", "why"),
    "warpfront.cli.tasks.ci": ("ci", "merge", "job", "resume", "runner"),
    "warpfront.cli.tasks.speed": ("bench", "read-log", "compare", "nights", "compare-stacks"),
    "warpfront.cli.tasks.machine": ("engine", "doctor", "clean"),
    "warpfront.cli.tasks.inventory": ("compat", "sbom", "bill", "audit", "models"),
}
GROUP = "warpfront.tasks"
_INVOKE = {"invoke", "inv"}


@cache
def installed_modules() -> Mapping[str, tuple[str, ...]]:
    """Return what other packages add to `MODULES`."""
    return {module: names for modules in registered(GROUP) for module, names in modules.items()}


def modules_naming(words: set[str]) -> tuple[str, ...]:
    """Return the modules whose commands have one of these words; all modules if none has."""
    # Looking for entry points takes longer than anything else here.
    named = _naming(words, MODULES) or _naming(words, installed_modules())
    return named or (*MODULES, *installed_modules())


def _naming(words: set[str], modules: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(module for module, names in modules.items() if not words.isdisjoint(names))


def declared_in(modules: Iterable[str]) -> Iterator[Command | Group]:
    """Yield the commands and groups of these modules."""
    for module in modules:
        for value in vars(import_module(module)).values():
            if isinstance(value, Command | Group):
                yield value


def modules_for(argv: list[str]) -> tuple[str, ...]:
    """Return the modules of the tasks that a command line of invoke names, else all modules."""
    called, words = Path(argv[0]), set(argv[1:])
    is_invoke = not _INVOKE.isdisjoint((called.name, called.parent.name))
    is_about_all = any(word.startswith(("--l", "--c", "--p")) or word == "-l" for word in words)
    every = (*MODULES, *installed_modules())
    return modules_naming(words) if is_invoke and not is_about_all else every
