"""The door for builders: one invoke task a step, and what stands around the steps.

A project's own `tasks.py` imports `namespace` from here. A new task is a function with `@command`
in the module of its family, in the place where `--list` shows it. A task imports its step when it
runs: `--list` needs none of them. A command line that names tasks makes those of their families
alone, for invoke copies all that it is given many times.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

from invoke.collection import Collection
from invoke.tasks import Task

FAMILIES = (
    *("path", "billing", "releasing", "ci", "hosting", "porting", "modelling", "speed", "machine"),
)
_PROGRAMS = {"invoke", "inv", "warpfront"}
# These look at every task, whichever are named beside them.
_OF_ALL = re.compile(r"--(list|complete|print)|-[A-Za-z]*l")
_TASK = re.compile(r'^@command(?:\(name="(?P<said>[^"]+)"\))?\ndef (?P<function>\w+)', re.MULTILINE)


def families_for(argv: list[str]) -> tuple[str, ...]:
    """The families of the tasks that these words may name; all of them where none is named."""
    called, words = Path(argv[0]), argv[1:]
    named = tuple(one for one in FAMILIES if not named_in(one).isdisjoint(words))
    is_ours = not _PROGRAMS.isdisjoint((called.name, called.parent.name))
    return named if named and is_ours and not any(map(_OF_ALL.match, words)) else FAMILIES


def named_in(family: str) -> set[str]:
    """The names of its tasks, read off its text, which is cheaper than to import it."""
    text = Path(__file__).with_name(f"{family}.py").read_text(encoding="utf-8")
    found = _TASK.finditer(text)
    return {one["said"] or one["function"].replace("_", "-") for one in found}


def tasks_of(families: tuple[str, ...]) -> Collection:
    made = Collection()
    for family in families:
        for task in vars(import_module(f"{__name__}.{family}")).values():
            if isinstance(task, Task):
                made.add_task(task)
    return made


namespace = tasks_of(families_for(sys.argv))
