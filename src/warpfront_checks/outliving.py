"""Processes that a program leaves behind, in whatever group or session: seen, named and ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

_SET_CHILD_SUBREAPER = 36
_PATIENCE_SECONDS = 10.0
_WORDS = 120


def adopt() -> frozenset[int]:
    """Make this process the parent of its orphaned descendants, instead of the init process.
    Return those that are its descendants already.
    """
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return frozenset(_descendants())


def end_left(before: Collection[int], grace_seconds: float) -> tuple[str, ...]:
    """End the descendants that are not in `before` and remain; return their command lines."""
    until = time.monotonic() + grace_seconds
    while (remaining := _since(before)) and time.monotonic() < until:
        time.sleep(0.02)
    commands = tuple(_words(pid) for pid in remaining)
    until = time.monotonic() + _PATIENCE_SECONDS
    while (remaining := _since(before)) and time.monotonic() < until:
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return commands


def _since(before: Collection[int]) -> list[int]:
    """Return the living descendants; reap those that have ended, which no other process would."""
    descendants = [pid for pid in _descendants() if pid not in before]
    for pid in descendants:
        with contextlib.suppress(ChildProcessError):  # a child's child
            os.waitpid(pid, os.WNOHANG)
    return [pid for pid in descendants if _stat(pid)[0] not in {"", "Z"}]


def _descendants() -> Iterator[int]:
    parents = {int(path.name): _stat(int(path.name))[1] for path in Path("/proc").glob("[0-9]*")}
    descendants: set[int] = set()
    new = {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - descendants
        descendants |= new
    return iter(sorted(descendants))


def _stat(pid: int) -> tuple[str, int]:
    """Its state and its parent; ("", 0) of one that is gone."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return "", 0
    return state, int(parent)


def _words(pid: int) -> str:
    try:
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        command_line = ""
    return command_line.replace("\0", " ").strip()[:_WORDS] or f"process {pid}"
