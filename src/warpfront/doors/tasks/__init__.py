"""The door for builders: one invoke task a step, and what stands around the steps.

A project's own `tasks.py` imports `namespace` from here. A new task is a function with `@command`
in the module of its family, in the place where `--list` shows it. A task imports its step when it
runs: `--list` needs none of them.
"""

from __future__ import annotations

from invoke.collection import Collection
from invoke.tasks import Task

from warpfront.doors.tasks import (
    billing,
    ci,
    hosting,
    machine,
    modelling,
    path,
    porting,
    releasing,
    speed,
)

namespace = Collection()
for _family in (path, billing, releasing, ci, hosting, porting, modelling, speed, machine):
    for _task in vars(_family).values():
        if isinstance(_task, Task):
            namespace.add_task(_task)
