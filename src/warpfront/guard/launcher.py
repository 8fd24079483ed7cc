"""The `uv` of a guarded image: the real one, and a word more when it refuses for the guard."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .places import HOME
from .policy import GuardError, read_policy
from .refusal import explanation

_EXPLAINED = ({"pip"}, {"install", "sync"})
_DRY_RUN_SECONDS = 60.0
_NOT_FOUND = 127
_BY_SIGNAL = 128  # and its number: what a shell says of a program that a signal ended


def main(arguments: Sequence[str]) -> int:
    """Run the next uv on PATH. What the launcher has nothing to add to is replaced by it."""
    home = _home()
    uv = real_uv(os.environ.get("PATH", ""), home)
    if uv is None:
        sys.stderr.write("uv: not found: this image's launcher of uv has none to start\n")
        return _NOT_FOUND
    if not is_explained(arguments):
        os.execv(uv, [uv, *arguments])  # noqa: S606 - the user's own command, as given
    code = _run(uv, arguments)
    if code > 0:
        sys.stderr.write(_explanation(uv, arguments, home))
    return code if code >= 0 else _BY_SIGNAL - code


def real_uv(path: str, home: Path = HOME) -> str | None:
    """The uv that would run if the launcher were not there, however PATH writes its folder: a
    launcher that finds itself would start itself for ever.
    """
    ours = os.path.realpath(home / "bin" / "uv")
    for entry in path.split(os.pathsep):
        found = shutil.which("uv", path=entry) if entry else None
        if found is not None and os.path.realpath(found) != ours:
            return found
    return None


def is_explained(arguments: Sequence[str]) -> bool:
    """`uv pip install` and `uv pip sync`, whatever options stand around; not from standard input,
    which cannot be read twice.
    """
    words = [argument for argument in arguments if not argument.startswith("-")]
    starts = len(words) > 1 and words[0] in _EXPLAINED[0] and words[1] in _EXPLAINED[1]
    return starts and "-" not in arguments


def _home() -> Path:
    """The folder that this guard is in: <home>/lib/warpfront_guard."""
    return Path(__file__).resolve().parents[2]


def _run(uv: str, arguments: Sequence[str]) -> int:
    """uv's exit code; signals meant for us reach it."""
    with subprocess.Popen([uv, *arguments]) as child:
        signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to both
        return child.wait()


def _explanation(uv: str, arguments: Sequence[str], home: Path) -> str:
    """uv writes for people, on the terminal; what it said is had by asking again, without doing
    anything.
    """
    try:
        policy = read_policy(home / "guard" / "policy.json")
        again = subprocess.run(
            [uv, *_as_dry_run(arguments)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_DRY_RUN_SECONDS,
            check=False,
            env={**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "0", "CLICOLOR_FORCE": "0"},
        )
    except (GuardError, OSError, subprocess.TimeoutExpired) as error:
        return f"warpfront guard: no explanation: {error}\n"
    return explanation(again.stderr, policy)


def _as_dry_run(arguments: Sequence[str]) -> list[str]:
    """Before what is installed: behind a `--` it would be a package."""
    command = next(i for i, word in enumerate(arguments) if word in _EXPLAINED[1])
    before, rest = arguments[: command + 1], arguments[command + 1 :]
    return [*before, *(() if "--dry-run" in rest else ("--dry-run",)), *rest]
