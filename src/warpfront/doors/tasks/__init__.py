"""The door for builders: one invoke task a step, and what stands around the steps.

A project's own `tasks.py` imports `namespace` from here. A new task is a function with `@command`
in the module of its family, and its name below. A task imports its step when it runs: `--list`
needs none of them.
"""

from __future__ import annotations

from invoke.collection import Collection

from warpfront.doors.tasks.machine import clean, doctor, engine, init
from warpfront.doors.tasks.path import build, lock, plan, render, report, verify
from warpfront.doors.tasks.porting import compile_sources, preflight, scan

namespace = Collection(
    plan, lock, render, build, verify, report, doctor, preflight, scan, engine, init, clean
)
namespace.add_task(compile_sources, name="compile")
