"""A foreign program run within limits: its time, its memory, its output."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HEAD_BYTES = 96 * 1024
TAIL_BYTES = 16 * 1024
"""The first messages say what is wrong; the last ones how it ended."""

LARGEST_FILE_BYTES = 1 << 30
_OUT_OF_MEMORY = (
    "out of memory",
    "std::bad_alloc",
    "Cannot allocate memory",
    "cannot allocate",
    # What clang and GCC say of a part of theirs that the kernel ended.
    "unable to execute command: Killed",
    "Killed signal terminated program",
)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a program. `returncode` is None if it is missing, or was stopped at its limit;
    `output` is its output, without the middle if that is long. `left` are processes that outlived
    it by more than its grace.
    """

    argv: tuple[str, ...]
    returncode: int | None
    output: str
    seconds: float
    missing: bool = False
    left: tuple[str, ...] = ()

    @property
    def out_of_memory(self) -> bool:
        if self.returncode == -signal.SIGKILL:
            return True
        return bool(self.returncode) and any(word in self.output for word in _OUT_OF_MEMORY)


def ran(
    argv: Sequence[str],
    *,
    seconds: float,
    cwd: Path,
    memory_bytes: int | None = None,
    environment: Mapping[str, str] | None = None,
    given: bytes = b"",
    hears: Sequence[int] = (),
    grace_seconds: float | None = None,
) -> Ended:
    """Run to its end or its limit; then nothing of its process group remains. Without
    `memory_bytes` its memory is the container's, as for programs that map a device's. It reads
    `given` and has the files `hears`. With a grace, no process that it started remains, in any
    group, and survivors are named: only if no other code here starts processes meanwhile.
    """
    if shutil.which(argv[0]) is None:
        return Ended(argv=tuple(argv), returncode=None, output="", seconds=0.0, missing=True)
    limits: tuple[str, ...] = ()
    if memory_bytes is not None:
        most = f"--fsize={LARGEST_FILE_BYTES}"
        limits = ("prlimit", f"--as={memory_bytes}", most, "--core=0", "--")
    before = adopt() if grace_seconds is not None else frozenset()
    returncode: int | None = None
    outliving: tuple[str, ...] = ()
    started = time.monotonic()
    with tempfile.TemporaryFile(dir=cwd) as output:
        child = subprocess.Popen(
            [*limits, *argv],
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C", "TMPDIR": str(cwd), **(environment or {})},
            stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=hears,
        )
        try:
            if child.stdin is not None:
                with contextlib.suppress(BrokenPipeError), child.stdin as words:
                    words.write(given)
            with contextlib.suppress(subprocess.TimeoutExpired):
                returncode = child.wait(seconds)
            ran_seconds = time.monotonic() - started
            if grace_seconds is not None and returncode is not None:
                outliving = end_left(before, grace_seconds)
        finally:
            _end_group(child)
            if grace_seconds is not None:
                end_left(before, 0.0)
        size, file = os.fstat(output.fileno()).st_size, output.fileno()
        head = os.pread(file, HEAD_BYTES, 0)
        tail = os.pread(file, TAIL_BYTES, max(HEAD_BYTES, size - TAIL_BYTES))
    left_out = size - len(head) - len(tail)
    middle = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
    text = (head + middle + tail).decode("utf-8", "replace")
    return Ended(
        argv=tuple(argv), returncode=returncode, output=text, seconds=ran_seconds, left=outliving
    )


def _end_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


_SET_CHILD_SUBREAPER = 36
_PATIENCE_SECONDS = 10.0
_WORDS = 120


def adopt() -> frozenset[int]:
    """Adopt orphaned descendants in place of init. Return those that exist already."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return frozenset(_descendants())


def end_left(before: Collection[int], grace_seconds: float) -> tuple[str, ...]:
    """End the descendants that are not in `before` and remain; return their command lines."""
    until = time.monotonic() + grace_seconds
    while (remaining := _since(before)) and time.monotonic() < until:
        time.sleep(0.02)
    commands = []
    for pid in remaining:
        words = b""
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
        commands.append(words.decode("utf-8", "replace")[:_WORDS] or f"process {pid}")
    until = time.monotonic() + _PATIENCE_SECONDS
    while (remaining := _since(before)) and time.monotonic() < until:
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return tuple(commands)


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
