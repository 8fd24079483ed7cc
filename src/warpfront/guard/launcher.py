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


def main(arguments: Sequence[str]) -> int:
    """Run the next uv on PATH. What the launcher has nothing to add to is replaced by it."""
    uv = real_uv(os.environ.get("PATH", ""))
    if uv is None:
        sys.stderr.write("uv: not found: this image's launcher of uv has none to start\n")
        return _NOT_FOUND
    if not is_explained(arguments):
        os.execv(uv, [uv, *arguments])  # noqa: S606 - the user's own command, as given
    code = _run(uv, arguments)
    if code > 0:
        sys.stderr.write(_explanation(uv, arguments))
    return code


def real_uv(path: str, home: Path = HOME) -> str | None:
    """The uv that would run if the launcher were not there."""
    ours = str(home / "bin")
    others = [entry for entry in path.split(os.pathsep) if entry.rstrip("/") != ours]
    return shutil.which("uv", path=os.pathsep.join(others))


def is_explained(arguments: Sequence[str]) -> bool:
    """`uv pip install` and `uv pip sync`, whatever options stand around; not from standard input,
    which cannot be read twice.
    """
    words = [argument for argument in arguments if not argument.startswith("-")]
    starts = len(words) > 1 and words[0] in _EXPLAINED[0] and words[1] in _EXPLAINED[1]
    return starts and "-" not in arguments


def _run(uv: str, arguments: Sequence[str]) -> int:
    """uv's exit code; signals meant for us reach it."""
    with subprocess.Popen([uv, *arguments]) as child:
        signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to both
        return child.wait()


def _explanation(uv: str, arguments: Sequence[str]) -> str:
    """uv writes for people, on the terminal; what it said is had by asking again, without doing
    anything.
    """
    try:
        policy = read_policy(HOME / "guard" / "policy.json")
        again = subprocess.run(
            [uv, *arguments, "--dry-run", "--color", "never"],
            capture_output=True,
            text=True,
            timeout=_DRY_RUN_SECONDS,
            check=False,
        )
    except (GuardError, OSError, subprocess.TimeoutExpired) as error:
        return f"warpfront guard: no explanation: {error}\n"
    return explanation(again.stderr, policy)
