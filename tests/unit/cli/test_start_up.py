"""What a task loads before it does anything: no more than it uses. In child processes, because this
one has loaded everything.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from builders import a_lock, a_wheel, make_project

from warpfront.pipeline import STEPS, Workspace, open_workspace
from warpfront.wheels.lock.pylock import dump_lock, lock_inputs

pytestmark = pytest.mark.process

NEVER = (
    "warpfront_port.scan",
    "warpfront_port.commands",
    "warpfront.bench",
    "warpfront.release.sbom",
    "cyclonedx",
    "packageurl",
    "invoke",
)
EXTRAS = ("matplotlib", "numpy")
OTHER_FAMILIES = ("warpfront.cli.tasks.speed", "warpfront_port.tasks.porting")
NETWORK = ("requests", "urllib3", "docker", "warpfront.wheels.transport")
STEP_MODULES = (*(f"warpfront.pipeline.{name}" for name in STEPS.values()),)
PIPELINE = (*STEP_MODULES, "warpfront.matrix.reading", "pydantic", "jinja2", "rich")
# An engine of this machine is out of sight: a socket is looked for elsewhere, no variable is set.
# A start of Python for both runs of a test: the second has what the first had loaded, and more.
CHILD = """
import json, pathlib, sys
from warpfront.images.engine import protocol as engine
engine.DEFAULT_HOST = "unix:///nowhere/docker.sock"
argv, between = json.loads(sys.argv[1]), sys.argv[2:]
from warpfront.cli.program import run
run(argv)
print(json.dumps(sorted(sys.modules)))
for path in between:
    pathlib.Path(path).unlink()
if between:
    run(argv)
    print(json.dumps(sorted(sys.modules)))
"""


def loaded_by(
    *arguments: str, folder: Path, again_without: Path | None = None
) -> list[tuple[str, set[str]]]:
    """What each run printed, and the modules that were loaded at its end."""
    between = [] if again_without is None else [str(again_without)]
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(arguments), *between],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
    )
    runs, said = [], ""
    for line in ended.stdout.splitlines(keepends=True):
        if line.startswith('["'):
            runs.append((said, set(json.loads(line))))
            said = ""
        else:
            said += line
    return runs


def below(modules: set[str], *names: str) -> set[str]:
    return {one for one in modules for name in names if one == name or one.startswith(f"{name}.")}


@pytest.fixture
def locked(tmp_path: Path) -> Workspace:
    """A project whose one cell has a fresh lock."""
    make_project(tmp_path)
    workspace = open_workspace(tmp_path)
    (cell,) = workspace.matrix.cells
    assert cell.index is not None
    wheels = a_lock(cell, a_wheel(index=cell.index.url))
    lock = dataclasses.replace(wheels, inputs_digest=lock_inputs(cell, None, None).digest)
    path = workspace.folders.lock_path(cell.id)
    path.parent.mkdir(parents=True)
    path.write_text(dump_lock(lock))
    return workspace


def test_what_is_not_to_be_loaded_could_be() -> None:
    names = ("warpfront_port", *NETWORK, *PIPELINE)
    assert [name for name in names if importlib.util.find_spec(name) is None] == []


def test_listing_the_tasks_loads_no_step(tmp_path: Path) -> None:
    ((said, modules),) = loaded_by("--help", folder=tmp_path)
    assert "  port " in said
    assert below(modules, *NEVER, *NETWORK, *PIPELINE) == set()


def test_only_a_plan_that_has_to_ask_an_index_loads_the_network(locked: Workspace) -> None:
    (lock,) = (locked.folders.root / "images" / "locks").iterdir()
    (said, modules), (_, after) = loaded_by("plan", folder=locked.folders.root, again_without=lock)
    assert "1 to build" in said
    assert below(modules, *NEVER, *NETWORK, *EXTRAS, *OTHER_FAMILIES) == set()
    assert below(after, "requests")
    assert below(after, *NEVER) == set()


# What a GPU machine may lack: all that this package depends on, but nox and what nox needs.
BARE = """
import sys
for name in "click docker invoke jinja2 pydantic requests rich uv yaml".split():
    sys.modules[name] = None
from warpfront.cli import sessions
import warpfront.report.junit, warpfront.report.described, warpfront.verify.verdict
print(*(sessions.claims_for_target(target).vendor for target in sys.argv[1:]))
"""


def test_verify_here_needs_nothing_of_ours_but_nox() -> None:
    argv = [sys.executable, "-c", BARE, "sm_90", "gfx942"]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("nvidia amd\n", "")
