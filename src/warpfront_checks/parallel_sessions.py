"""Parallel sessions, each in a process of its own: forks of one process that imported torch,
which takes longer than many a session. Edge.

A session that crashes costs itself only. A process that could not be a fork (a driver was touched
before) starts its session anew. The caller runs a session without an ending alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from signal import ITIMER_REAL, SIGALRM, SIGKILL, setitimer, signal
from typing import Any, NoReturn

from warpfront_checks.check_options import CHECK_SESSIONS
from warpfront_checks.children import fork
from warpfront_checks.results import PROGRESS

ENDINGS = "endings.json"
# What most sessions import, before any of them; of GPUs nothing that may ask a driver.
_IMPORTED: Mapping[str, tuple[str, ...]] = {"cpu": ("torch", "torch._dynamo")}
_PLAINLY = ("torch",)
# It takes longer than torch, and each child of a session that needs it would import it anew.
_COMPILER: Mapping[str, tuple[str, ...]] = {"cuda": ("torch._dynamo", "torch._inductor.utils")}
# Device files of drivers: NVIDIA's, AMD's, those of both under WSL.
_DRIVERS = ("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/dxg")
# More would only wait for one device, where each has a context. A Gaudi is one process's own.
_ON_A_DEVICE, _ON_A_GAUDI = 6, 1
_SESSION_BYTES = 2 * 2**30
_DIE_WITH_PARENT = 1
_PROGRESS_SECONDS = 30.0


def run_side_by_side(
    sessions: Sequence[str],
    run: Callable[[str], int],
    alone: Sequence[str],
    *,
    device: str,
    results: Path,
    import_module: Callable[[str], object] = importlib.import_module,
) -> dict[str, int]:
    """Return each session's exit code; a signal's number, negative, where it crashed. `alone`
    are the options with which this module's package runs one session. A line of counts is printed
    every 30 s, by the files in the folder of their `results`.
    """
    # The command line reads this module, and no hardware.
    hardware = importlib.import_module("warpfront_checks.hardware.values")
    row = CHECK_SESSIONS
    compiler = _COMPILER.get(device, ())
    waiting = sorted(
        sessions, key=lambda x: (row[x].last, bool(compiler) and row[x].compiles, -row[x].seconds)
    )
    cores = len(os.sched_getaffinity(0))
    most = places(cores, hardware.memory_bytes(hardware.Machine()) or 0, device)
    running: dict[int, tuple[str, float]] = {}
    codes: dict[str, int] = {}

    def begin(name: str) -> None:
        # Another device computes, and the threads of its references would wait for each other.
        every = CHECK_SESSIONS[name].threaded and device == "cpu"
        threads = cores if every else max(1, cores // most)
        if row[name].compiles:
            _import_all(compiler, import_module)
        running[_fork(name, run, alone, threads)] = (name, time.monotonic())

    if "load" in waiting:
        # It times and judges the import of torch, so it begins without.
        waiting.remove("load")
        begin("load")
    _import_all(_IMPORTED.get(device, _PLAINLY), import_module)

    def counts() -> str:
        return progress(results, sessions, tuple(codes), [name for name, _ in running.values()])

    with _telling(counts):
        while waiting or running:
            while waiting and len(running) < most and not (running and row[waiting[0]].last):
                begin(waiting.pop(0))
            pid, status, used = os.wait4(-1, 0)
            if pid in running:
                name, start = running.pop(pid)
                codes[name] = os.waitstatus_to_exitcode(status)
                took = f"{time.monotonic() - start:.1f} s"
                computed = f"{used.ru_utime + used.ru_stime:.1f} s of them computing"
                memory = f"{used.ru_maxrss / 2**20:.2f} GiB"
                # A session's last line.
                line = f"{name}: ended with {codes[name]} after {took}"
                sys.stdout.write(f"{line}, {computed}, {memory}\n")
                sys.stdout.flush()
    return codes


def _import_all(names: Sequence[str], import_module: Callable[[str], object]) -> None:
    for name in names:
        with contextlib.suppress(Exception):  # the session that needs it reports the same error
            import_module(name)


@contextlib.contextmanager
def _telling(counts: Callable[[], str]) -> Iterator[None]:
    """Print `counts` every 30 s. A fork inherits no timer, so no session is interrupted by it."""

    def tell(*_: object) -> None:
        with contextlib.suppress(RuntimeError):  # another line is being written: next time
            sys.stdout.write(f"{counts()}\n")
            sys.stdout.flush()

    handler = signal(SIGALRM, tell)
    timer = setitimer(ITIMER_REAL, _PROGRESS_SECONDS, _PROGRESS_SECONDS)
    try:
        yield
    finally:
        setitimer(ITIMER_REAL, *timer)
        signal(SIGALRM, handler)


def progress(
    results: Path, sessions: Sequence[str], finished: Sequence[str], running: Sequence[str]
) -> str:
    """Count sessions that ended, and checks that were made of those planned so far."""
    checked = planned = 0
    for name in sessions:
        with contextlib.suppress(OSError, ValueError, KeyError):
            document = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
            checked, planned = checked + len(document["checks"]), planned + len(document["planned"])
    counts = f"{len(finished)}/{len(sessions)} sessions ended, {checked}/{planned} checks made"
    return f"{PROGRESS}{counts}; {', '.join(running)}"


def places(cores: int, memory_bytes: int, device: str) -> int:
    """Return the number of parallel sessions: a core each, within memory, few on a device."""
    most = {"cpu": cores, "hpu": _ON_A_GAUDI}.get(device, min(cores, _ON_A_DEVICE))
    return max(1, min(most, memory_bytes // _SESSION_BYTES))


def _fork(name: str, run: Callable[[str], int], alone: Sequence[str], threads: int) -> int:
    def session() -> int:
        # No session goes on writing when the one that answers for it is gone.
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, int(SIGKILL), 0, 0, 0)
        torch: Any = sys.modules.get("torch")
        if torch is not None and _unusable(torch):
            _begin_anew(name, alone)
        with contextlib.suppress(Exception):  # the session reports a torch that cannot
            torch.set_num_threads(threads)
        return run(name)

    return fork(session)


def _unusable(torch: Any) -> bool:
    """Return whether the parent touched a driver, which no fork of it can use: torch knows it
    of itself; an open device file shows it of any library.
    """
    for descriptor in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):  # the folder's own is closed by now
            if str(descriptor.readlink()).startswith(_DRIVERS):
                return True
    forked = getattr(getattr(torch, "cuda", None), "_is_in_bad_fork", None)
    return bool(forked and forked())


def _begin_anew(name: str, alone: Sequence[str]) -> NoReturn:
    argv = [sys.executable, "-m", "warpfront_checks", name, *alone]
    os.execv(sys.executable, argv)  # noqa: S606 - this Python, without a shell


_DO_NOT_WRITE, _PREFIX = "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"


# Some forty processes would each compile what they import, which takes longer than many a check.
@contextlib.contextmanager
def shared_byte_code(package: str = "torch") -> Iterator[None]:
    """Give this Python and its children a temporary folder for byte code, removed at exit. Do
    nothing if the package has its byte code, or gets it in `__pycache__`.
    """
    spec = find_spec(package)
    is_compiled = spec is None or not spec.cached or Path(spec.cached).exists()
    # The folder of `__pycache__`: the module's, or one below a prefix.
    beside = Path(spec.cached).parent.parent if spec and spec.cached else Path()
    if is_compiled or not (sys.dont_write_bytecode or not os.access(beside, os.W_OK)):
        yield
        return
    before = {name: os.environ.pop(name, None) for name in (_DO_NOT_WRITE, _PREFIX)}
    previous = sys.dont_write_bytecode, sys.pycache_prefix
    with tempfile.TemporaryDirectory(prefix="byte-code-", ignore_cleanup_errors=True) as folder:
        os.environ[_PREFIX] = folder
        sys.dont_write_bytecode, sys.pycache_prefix = False, folder
        try:
            yield
        finally:
            sys.dont_write_bytecode, sys.pycache_prefix = previous
            del os.environ[_PREFIX]
            os.environ.update({name: value for name, value in before.items() if value is not None})
