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
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_CHILD_SUBREAPER, _DIE_WITH_PARENT = 36, 1
_LONGEST_BYTES = 1 << 20
_OPEN: list[Nursery] = []


class Nursery:
    """This process's side: asks for children, one after the other."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._socket, theirs = socket.socketpair()
        pid = os.getpid()

        def serve() -> int:
            self._socket.close()
            _serve(theirs, pid)
            return 0

        fork(serve)
        theirs.close()

    def begin(self, environment: Mapping[str, str], job: Path, log: Any) -> Any:
        request = {"environment": {**environment}, "job": str(job), "said": log.name}
        with self._asking:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            answer = self._socket.recv(64)
        if not answer:
            raise OSError("the process that begins children has ended")
        return Adopted(int(answer))


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


def open_nursery() -> None:
    """Open this process's fork server, before a driver. Without one, children begin as before."""
    with contextlib.suppress(AttributeError, OSError):
        if ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0) == 0:
            _OPEN.append(Nursery())


def nursery() -> Nursery | None:
    return _OPEN[-1] if _OPEN else None


def work_in_fork(environment: Mapping[str, str], job: Path, log_fd: int) -> int:
    """Work on a job in a fork, as a Python of its own would."""
    os.setsid()
    for stream in (1, 2):
        os.dup2(log_fd, stream)
    os.environ.update(environment)
    importlib.import_module("warpfront_checks.children").run_job(job)
    return 0


def _serve(asking: socket.socket, session: int) -> None:
    """Until the session closes its end, or is gone."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != session:
        return
    with asking, asking.makefile("rb") as lines:
        while line := lines.readline(_LONGEST_BYTES):
            asking.sendall(b"%d" % _orphan(json.loads(line), asking))


def _orphan(request: Mapping[str, Any], asking: socket.socket) -> int:
    """A grandchild, whose parent has ended when this returns."""
    reading, writing = os.pipe()

    def child() -> int:
        for descriptor in (reading, writing, asking.fileno()):
            os.close(descriptor)
        with open(os.devnull, "rb") as nothing, open(request["said"], "ab") as log:  # noqa: PTH123
            os.dup2(nothing.fileno(), 0)
            return work_in_fork(request["environment"], Path(request["job"]), log.fileno())

    def between() -> int:
        os.write(writing, b"%d" % fork(child))
        return 0

    pid = fork(between)
    os.waitpid(pid, 0)
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
