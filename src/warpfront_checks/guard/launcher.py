"""The `uv` of a guarded image: the real one, and a word more when it refuses for the guard."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .going_back import read_installs, read_uv_log
from .places import HOME
from .policy import GuardError, read_policy
from .refusal import explanation, going_back, stopped, unusable
from .requires_dist import UnreadableError, read_requirement

# Commands that resolve for an environment and end by themselves. Those that run programs (`run`,
# `tool run`) are not captured: their stderr is the programs'.
_EXPLAINED = (
    *(("pip", "install"), ("pip", "sync"), ("pip", "compile")),
    *(("add",), ("sync",), ("lock",), ("tool", "install")),
)
_HAVE_DRY_RUN = (("pip", "install"), ("pip", "sync"), ("sync",), ("lock",))
# Options of uv itself that take a value, which is then no command.
_WITH_VALUE = frozenset(
    ["--allow-insecure-host", "--cache-dir", "--color", "--config-file", "--directory", "--project"]
)
# Their dry run is looked at before they are started.
_FORESEEN = (("pip", "install"), ("pip", "sync"))
_OVERRIDES = ("--override", "--overrides")
_DRY_RUN_SECONDS = 60.0
_PLAIN = {"NO_COLOR": "1", "FORCE_COLOR": "0", "CLICOLOR_FORCE": "0"}
_KEPT_BYTES = 1 << 18
_COLORS = re.compile(r"\x1b\[[0-9;]*m")  # FORCE_COLOR asks for them in a pipe, too
_NOT_FOUND = 127
_BY_SIGNAL = 128  # and its number: a shell's status for a program that a signal ended


def main(arguments: Sequence[str]) -> int:
    """Run the next uv on PATH. What the launcher has nothing to add to is replaced by it."""
    home = Path(__file__).resolve().parents[2]  # of <home>/lib/warpfront_guard
    uv = real_uv(os.environ.get("PATH", ""), home)
    if uv is None:
        sys.stderr.write("uv: not found: this image's launcher of uv has none to start\n")
        return _NOT_FOUND
    command = command_of(arguments)
    if command not in _EXPLAINED:
        os.execv(uv, [uv, *arguments])  # noqa: S606 - the user's own command, as given
    if command in _FORESEEN and (text := _foreseen(uv, arguments, command, home)):
        sys.stderr.write(text)
        return 1
    # On a terminal uv draws, so its stderr is not captured; into a pipe or a file it writes lines.
    code, errors = _run(uv, arguments, heard=not os.isatty(sys.stderr.fileno()))
    if code > 0:
        errors = errors or _asked_again(uv, arguments, command)
        try:
            policy = read_policy(home / "guard" / "policy.json")
            sys.stderr.write(explanation(errors, policy, overrides_of(arguments)))
        except GuardError as error:
            sys.stderr.write(f"warpfront guard: no explanation: {error}\n")
    return code if code >= 0 else _BY_SIGNAL - code


def real_uv(path: str, home: Path = HOME) -> str | None:
    """Return the uv that would run if the launcher were not there, however PATH writes its
    folder: a launcher that finds itself would start itself for ever.
    """
    ours = os.path.realpath(home / "bin" / "uv")
    for entry in path.split(os.pathsep):
        program = shutil.which("uv", path=entry) if entry else None
        if program is not None and os.path.realpath(program) != ours:
            return program
    return None


def command_of(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return uv's command, behind any options: `("add",)`, `("pip", "install")`, or empty."""
    words = iter(arguments)
    command: list[str] = []
    for word in words:
        if word in _WITH_VALUE and not command:
            next(words, None)
        elif not word.startswith("-"):
            command.append(word)
        if command and (command[0] not in ("pip", "tool") or len(command) > 1):
            break
    return tuple(command)


def _run(uv: str, arguments: Sequence[str], *, heard: bool) -> tuple[int, str]:
    """Return uv's exit code and, if it is to be `heard`, the end of what it wrote to stderr,
    which goes on to ours at once. Signals meant for us reach it.
    """
    stderr = subprocess.PIPE if heard else None
    with subprocess.Popen([uv, *arguments], stderr=stderr) as child:
        signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to both
        written = b""
        while child.stderr is not None and (chunk := os.read(child.stderr.fileno(), 1 << 16)):
            sys.stderr.buffer.write(chunk)
            sys.stderr.buffer.flush()
            written = (written + chunk)[-_KEPT_BYTES:]
        return child.wait(), _COLORS.sub("", written.decode(errors="replace"))


def _foreseen(uv: str, arguments: Sequence[str], command: tuple[str, ...], home: Path) -> str:
    """Return the reason not to start uv: it would end with a release of years ago, or with one
    that torch cannot work with. A step back is only reported.
    """
    try:
        policy = read_policy(home / "guard" / "policy.json")
    except GuardError:
        return ""  # the refusal reports it
    log = _asked_again(uv, arguments, command, RUST_LOG="uv_resolver=debug")
    releases, chosen = read_uv_log(log, policy)
    broken = unusable(releases, read_installs(log))
    if broken or command != ("pip", "install") or "--no-deps" in arguments:
        return broken
    stops = [text for name, number in chosen.items() if (text := stopped(releases, name, number))]
    if not stops:
        steps = (going_back(releases, name, number) for name, number in chosen.items())
        sys.stderr.write("".join(steps))
    return "".join(stops)


def overrides_of(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return name -> the user's own override of it and its file: uv reports it as if every
    package required it. An unreadable file has no overrides; uv itself reports it.
    """
    paths = environment.get("UV_OVERRIDE", "").split()
    for word, following in zip(arguments, (*arguments[1:], ""), strict=False):
        option, _, value = word.partition("=")
        paths += [value or following] if option in _OVERRIDES else []
    overrides: dict[str, str] = {}
    for path in paths:
        text = ""
        with contextlib.suppress(OSError, ValueError):
            text = Path(path).read_text("utf-8")
        for line in filter(None, (row.partition("#")[0].strip() for row in text.splitlines())):
            with contextlib.suppress(UnreadableError):
                overrides[read_requirement(line).name] = f"{line} ({path})"
    return overrides


def _asked_again(uv: str, arguments: Sequence[str], command: tuple[str, ...], **more: str) -> str:
    """Return uv's stderr of a dry run, with `more` in its environment; "" if that is not
    possible: it reads from standard input, or knows no dry run.
    """
    if command not in _HAVE_DRY_RUN or "-" in arguments:
        return ""
    try:
        again = subprocess.run(
            [uv, *_as_dry_run(arguments, command)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_DRY_RUN_SECONDS,
            check=False,
            env={**os.environ, **_PLAIN, **more},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return again.stderr


def _as_dry_run(arguments: Sequence[str], command: tuple[str, ...]) -> list[str]:
    """Before what is installed: behind a `--` it would be a package."""
    end = list(arguments).index(command[-1]) + 1
    before, rest = arguments[:end], arguments[end:]
    return [*before, *(() if "--dry-run" in rest else ("--dry-run",)), *rest]
