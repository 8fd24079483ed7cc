"""Children that begin as forks of a process that has imported torch and done nothing else with
it. A process that computes on a GPU cannot fork them itself, for no driver survives a fork. Edge.

The fork server is forked while its session has touched no driver yet. Its forks are handed on to
the session by `PR_SET_CHILD_SUBREAPER`: an orphan becomes the child of its nearest ancestor with
that flag. The session waits for each as for any child of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

_CHILD_SUBREAPER, _DIE_WITH_PARENT = 36, 1
_OPEN: list[Nursery] = []


class Nursery:
    """This process's side: asks for children, one after the other."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._pipe, theirs = Pipe()
        pid = os.getpid()

        def serve() -> int:
            self._pipe.close()
            _serve(theirs, pid)
            return 0

        self._pid = fork(serve)
        theirs.close()

    def end(self) -> None:
        self._pipe.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def begin(self, environment: Mapping[str, str], job: Path, log: Any) -> Any:
        with self._asking:
            self._pipe.send(({**environment}, job, log.name))
            return Adopted(self._pipe.recv())


class Adopted:
    """The part of `subprocess.Popen` in use, for a process that another process began."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        return self._reap(0) or 0

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


@contextlib.contextmanager
def open_nursery() -> Iterator[None]:
    """Within it this process has a fork server, which begins before a driver and before threads.
    Where the system has no such thing, children begin as before.
    """
    before = len(_OPEN)
    with contextlib.suppress(AttributeError, OSError):
        if ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0) == 0:
            _OPEN.append(Nursery())
    try:
        yield
    finally:
        for nursery in _OPEN[before:]:
            nursery.end()
        del _OPEN[before:]


def nursery() -> Nursery | None:
    return _OPEN[-1] if _OPEN else None


def _serve(asking: Any, session: int) -> None:
    """Begin children until the session closes its end, or is gone."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() == session:
        with contextlib.suppress(EOFError):
            while True:
                asking.send(_orphan(asking.recv(), asking))


def _orphan(request: tuple[Mapping[str, str], Path, str], asking: Any) -> int:
    """Return a grandchild, whose parent has ended by then."""
    environment, job, path = request
    reading, writing = os.pipe()

    def child() -> int:
        asking.close()
        for descriptor in (reading, writing):
            os.close(descriptor)
        with open(os.devnull, "rb") as nothing, open(path, "ab") as log:  # noqa: PTH123
            # As a Python of its own would begin.
            os.setsid()
            for stream, file in enumerate((nothing, log, log)):
                os.dup2(file.fileno(), stream)
        os.environ.update(environment)
        importlib.import_module("warpfront_checks.children").run_job(job)
        return 0

    def between() -> int:
        os.write(writing, b"%d" % fork(child))
        return 0

    os.waitpid(fork(between), 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as reply:
        return int(reply.read())


def fork(work: Callable[[], int]) -> int:
    """Return the new process, which ends with what `work` returns: nothing of the parent's goes
    on there, nor is ended there a second time. What escapes `work` is printed, and it ends with 1,
    as a Python does that ends by an exception.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = work()
    except BaseException:  # noqa: BLE001 - as Python ends a process: the words, and 1
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
