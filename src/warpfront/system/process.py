"""The only way to other programs: a command is a value, `run` can be replaced. Edge."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from warpfront.errors import CommandFailedError, Terminated, TimedOutError
from warpfront.system.progress import Line

TAIL_LINES = 20
# How long a child may take to obey each of INT, TERM and KILL.
PATIENCE_SECONDS = (10.0, 5.0, 5.0)
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
_SECRET_WORDS = ("token", "password", "secret", "credential")


# As the kernel's ENOSPC is worded by Go, by C programs and by uv, in lower case.
DISK_FULL = "no space left on device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to run: argv, never a shell string. `environment` is added to the inherited one,
    after the names in `unset` were taken out of it."""

    argv: tuple[str, ...]
    cwd: Path | None = None
    environment: Mapping[str, str] | None = None
    stdin: str | None = None
    timeout_seconds: float | None = None
    unset: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the command line for a shell, with values that look secret masked."""
        return shlex.join(_masked(argument) for argument in self.argv)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The result of a command. `stdout` and `stderr` are decoded with replacement characters."""

    command: Command
    returncode: int
    stdout: str
    stderr: str

    def check(self, *, hint: str = "") -> Completed:
        """Itself if the command succeeded, else `CommandFailedError` with its last lines."""
        if self.returncode == 0:
            return self
        tail = "\n".join((self.stderr.strip() or self.stdout.strip()).splitlines()[-TAIL_LINES:])
        raise CommandFailedError(f"{self.command} exited with {self.returncode}\n{tail}", hint=hint)


_running: set[subprocess.Popen[str]] = set()

Run = Callable[[Command], Completed]


def run(command: Command) -> Completed:
    """Run to its end and capture what it prints.

    Raise `CommandFailedError` when the program is missing or outlives its time; a non-zero exit
    is a result.
    """
    with _child(command, merge=False) as child:
        try:
            out, err = child.communicate(command.stdin, timeout=command.timeout_seconds)
        except subprocess.TimeoutExpired:
            message = f"{command} was stopped after {command.timeout_seconds:g} s"
            raise TimedOutError(message) from None
    return Completed(command=command, returncode=child.returncode, stdout=out, stderr=err)


def stream(command: Command, on_line: Line) -> Completed:
    """Run and hand over each line as it comes; on Ctrl-C stop the whole process group."""
    assert command.stdin is None, "only `run` feeds a command"
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    with _child(command, merge=True) as child:
        watchdog = threading.Timer(command.timeout_seconds or 0.0, _stop, (child,))
        watchdog.daemon = True
        if command.timeout_seconds is not None:
            watchdog.start()
        try:
            assert child.stdout is not None
            for line in child.stdout:
                tail.append(line.rstrip("\n"))
                on_line(line.rstrip("\n"))
            child.wait()
        finally:
            watchdog.cancel()
    return Completed(
        command=command, returncode=child.returncode, stdout="\n".join(tail), stderr=""
    )


def stop_all() -> None:
    """Stop every program that is still running, whichever thread started it."""
    for child in tuple(_running):
        _stop(child)


def start_daemon(command: Command, log: Path) -> None:
    """Start a program that outlives us, in a session of its own, its output appended to `log`.

    Returns at once; whether it came up is for the caller to find out. `setsid --fork` hands it to
    init, so that it never becomes a zombie of ours.
    """
    logged = ("setsid", "--fork", "sh", "-c", 'exec "$@" >>"$0" 2>&1', str(log))
    run(replace(command, argv=(*logged, *command.argv))).check(hint=f"see {log}")


def environment() -> dict[str, str]:
    """Return a copy of this process's environment, for the edge modules to read from."""
    return dict(os.environ)


def cache_folder(variables: Mapping[str, str] | None = None) -> Path:
    """Return the folder of downloads, toolboxes and the embedded engine, by XDG's rules."""
    values = environment() if variables is None else variables
    home = values.get("XDG_CACHE_HOME") or f"{values.get('HOME') or Path.home()}/.cache"
    return Path(home) / "warpfront"


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Within it, SIGTERM and SIGHUP raise `Terminated`, so that everything that cleans up on Ctrl-C
    cleans up on them too. Does nothing outside the main thread, where Python delivers no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, _frame: FrameType | None) -> None:
        raise Terminated(signal.Signals(number).name)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, terminate) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def _child(command: Command, *, merge: bool) -> Iterator[subprocess.Popen[str]]:
    """Start a program, which does not outlive an error."""
    inherited = {name: value for name, value in os.environ.items() if name not in command.unset}
    try:
        started = subprocess.Popen(
            command.argv,
            cwd=command.cwd,
            env={**inherited, **(command.environment or {})},
            stdin=subprocess.PIPE if command.stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge else subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError:
        raise CommandFailedError(
            f"{command.argv[0]}: not found", hint=f"install {command.argv[0]}"
        ) from None
    except OSError as error:
        raise CommandFailedError(f"{command.argv[0]}: {error.strerror}") from error
    with started as child:
        _running.add(child)
        try:
            yield child
        except BaseException:
            _stop(child)
            raise
        finally:
            _running.discard(child)


def _stop(child: subprocess.Popen[str]) -> None:
    """Ask the child's whole group to stop, then make it: INT, TERM, KILL."""
    for number, patience_seconds in zip(_STOPS, PATIENCE_SECONDS, strict=True):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        try:
            child.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            continue
        return


def _masked(argument: str) -> str:
    name, equals, _ = argument.partition("=")
    is_secret = any(word in name.lower() for word in _SECRET_WORDS) and not name.startswith("id")
    return f"{name}=***" if equals and is_secret else argument
