"""`python -m invoke` without the second of processor time that loading takes: a copy of a process
that has loaded the steps, and nothing of the tests, before anybody asked.

It has a session, a folder, an environment and outputs of its own, as a start of Python would give
it. What a start itself does, and whatever a test kills, is for real ones: `Project.start`.
"""

from __future__ import annotations

import atexit
import io
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

LOADED = (
    "invoke.main",
    "jinja2",
    "pydantic",
    "rich.table",
    "warpfront.cli.tasks",
    "warpfront.images.engine.docker",
    *(
        f"warpfront.pipeline.{step}"
        for step in ("planning", "locking", "building", "verifying", "publishing", "reporting")
    ),
)
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(list(LOADED))


@dataclass(frozen=True, slots=True)
class Forked:
    """A child, asked as `subprocess.Popen` is."""

    process: ForkServerProcess

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        code = self.process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("invoke", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def fork_invoke(
    words: tuple[str, ...], root: Path, environment: Mapping[str, str], folder: Path
) -> Forked:
    """`invoke` of these words in `root`; what it says goes to `stdout` and `stderr` of `folder`."""
    child = _SERVER.Process(target=_invoke, args=(words, root, dict(environment), folder))
    child.daemon = True  # no run of tests waits for one that was forgotten
    child.start()
    return Forked(child)


def _invoke(words: tuple[str, ...], root: Path, environment: dict[str, str], folder: Path) -> None:
    multiprocessing.current_process().daemon = False  # which may have children of its own
    os.setsid()
    os.chdir(root)
    os.environ.clear()
    os.environ.update(environment)
    for name, number, mode in (("null", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        path = Path(os.devnull) if name == "null" else folder / name
        with path.open(mode) as file:
            os.dup2(file.fileno(), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as Python opens it
    sys.stdout, sys.stderr = _unbuffered(1), _unbuffered(2)
    here = Path(__file__).parent
    sys.path[:] = [str(root), *(one for one in sys.path if Path(one) != here)]
    sys.argv = ["invoke", *words]
    from invoke.main import program

    try:
        program.run()
    finally:
        atexit._run_exitfuncs()


def _unbuffered(number: int) -> io.TextIOWrapper:
    raw = open(number, "wb", buffering=0, closefd=False)  # noqa: SIM115 - as Python opens it
    return io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
