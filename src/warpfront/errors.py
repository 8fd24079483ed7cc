"""The errors that stop a run: one class per cause, one exit code per class.

A message names the problem and its place; `hint` is the next step. Problems of one cell are not
errors but values (`Failed`, `Blocked`), so that the other cells go on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar
from urllib.parse import quote

_USER = re.compile(r"://[^/\s@]+@")
# A password with an unencoded slash, searched in a word up to its last `@`: each character once.
_TO_LAST_AT = re.compile(r"(?<![^\s'\"])[^\s'\"]+@")
_ODD_USER = re.compile(r"://[^\s/@:]+:(?!\d{1,5}/).*@")
_SHORTEST_SECRET = 4
_LONG_LINE = re.compile(r"^(.{1200}).{500,}(.{800})$", re.MULTILINE)
_MOST_CHARACTERS = 100_000
_SECRETS: set[str] = set()


def keep_secret(*secrets: str) -> None:
    """Mask these texts, also as URLs encode them, in all later output. Each reader calls it."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            _SECRETS.update((secret, quote(secret, safe="")))


def without_secrets(text: str) -> str:
    """`text` with every known secret masked, and the user and password of every URL."""
    for secret in sorted(_SECRETS, key=len, reverse=True):
        text = text.replace(secret, "***")
    text = _TO_LAST_AT.sub(lambda word: _ODD_USER.sub("://***@", word[0]), text)
    return _USER.sub("://***@", text)


def excerpt(text: str) -> str:
    """Return the text without the middle of a long line, whatever is quoted, or the end of all."""
    short = _LONG_LINE.sub(r"\1 [...] \2", text)
    return short if len(short) <= _MOST_CHARACTERS else f"{short[:_MOST_CHARACTERS]}\n[...]"


class FailureKind(StrEnum):
    """The kind of a failure, which decides the next step: only `INFRASTRUCTURE` may go away by
    itself, and only it is tried again.
    """

    INFRASTRUCTURE = "infrastructure"
    RESOLUTION = "resolution"
    BUILD = "build"
    VERDICT = "verdict"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    INPUT = "input"


class WarpfrontError(Exception):
    """Base of all expected failures: each class has an exit code of its own (a test checks it)."""

    exit_code: ClassVar[int] = 1
    kind: ClassVar[FailureKind] = FailureKind.INPUT
    kinds: ClassVar[dict[int, FailureKind]] = {exit_code: kind}

    def __init_subclass__(cls, *, exit_code: int, kind: FailureKind = FailureKind.INPUT) -> None:
        cls.exit_code, cls.kind = exit_code, kind
        cls.kinds[exit_code] = kind

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message, self.hint = (excerpt(without_secrets(text)) for text in (message, hint))
        super().__init__(self.message)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """A problem in a file: its place (`path:line`, 1-based; 0 = the whole file), the problem,
    and the remedy.
    """

    path: str
    line: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else self.path
        return f"{where}: {self.message}"


class MatrixError(WarpfrontError, exit_code=2):
    """matrix.yaml (or the compat table) is not usable; carries all problems of the file at once."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = tuple(
            replace(each, message=excerpt(each.message), hint=excerpt(each.hint))
            for each in problems
        )
        lines = (f"{each}" + (f"\n    hint: {each.hint}" if each.hint else "") for each in problems)
        super().__init__("\n".join(lines))


class NothingSelectedError(WarpfrontError, exit_code=3):
    """The selection options match no cell."""


class LockError(WarpfrontError, exit_code=4, kind=FailureKind.RESOLUTION):
    """A lock is stale, unreadable, or cannot be made."""


class RenderError(WarpfrontError, exit_code=5, kind=FailureKind.BUILD):
    """A template cannot be rendered, or rendered to something else than
    the template's instructions.
    """


class BuildFailedError(WarpfrontError, exit_code=6, kind=FailureKind.BUILD):
    """A selected cell failed to build; the others were still tried."""


class NotVerifiedError(WarpfrontError, exit_code=7, kind=FailureKind.VERDICT):
    """A check of a selected cell failed, ended early, or wrote no report."""


class BlockedError(WarpfrontError, exit_code=9, kind=FailureKind.INFRASTRUCTURE):
    """A selected cell cannot be made from here: an index, base or registry is out of reach; or it
    cannot be verified, since it was never built.
    """


class EngineError(WarpfrontError, exit_code=10, kind=FailureKind.INFRASTRUCTURE):
    """No usable container engine, or it went away."""


class UnavailableError(WarpfrontError, exit_code=11, kind=FailureKind.INFRASTRUCTURE):
    """Verification found no such device on this machine, or compile no compiler that knows the
    target. Never a pass.
    """


class WheelError(WarpfrontError, exit_code=12, kind=FailureKind.INFRASTRUCTURE):
    """A wheel could not be fetched intact: truncated, wrong hash, out of reach."""


class StoreError(WarpfrontError, exit_code=13, kind=FailureKind.INFRASTRUCTURE):
    """A file or folder of ours cannot be read or written: permissions, a full disk, or the lock
    of another run.
    """


class CommandFailedError(WarpfrontError, exit_code=14, kind=FailureKind.BUILD):
    """A program we started failed or is missing."""


class TimedOutError(CommandFailedError, exit_code=32, kind=FailureKind.TIMEOUT):
    """A program that was started took longer than it may."""


class FindingsError(WarpfrontError, exit_code=15, kind=FailureKind.VERDICT):
    """A scan or a preflight found something to change."""


class InputError(WarpfrontError, exit_code=16):
    """A file of a project is missing, not text, not TOML, or has no requirements."""


class RegistryFault(StrEnum):
    """The way a registry failed. Only `REFUSED` is permanent."""

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    WRONG = "wrong"
    FULL = "full"
    SLOW = "slow"


class RegistryError(WarpfrontError, exit_code=17, kind=FailureKind.INFRASTRUCTURE):
    """A registry is out of reach, refuses, answers what cannot be true, is full, or too slow."""

    def __init__(
        self, message: str, *, registry: str, step: str, fault: RegistryFault, hint: str
    ) -> None:
        super().__init__(f"{registry}: {step}: {message}", hint=hint)
        self.registry, self.step, self.fault = registry, step, fault


class NotPublishableError(WarpfrontError, exit_code=18, kind=FailureKind.VERDICT):
    """A selected image may not be published in the channel: what was proven is not what the channel
    demands, or the image cannot be named.
    """


class TagConflictError(WarpfrontError, exit_code=19):
    """A tag is claimed by two cells, points to another image, or was moved by another publisher."""


class SignatureError(WarpfrontError, exit_code=20):
    """Signing failed, or a signature is not valid."""


class NotComparableError(WarpfrontError, exit_code=21):
    """Two measurements are of unlike work, or too short to say anything."""


class SlowerError(WarpfrontError, exit_code=22, kind=FailureKind.VERDICT):
    """A comparison is slower than --max-slower allows, with its whole interval."""


class StaleError(WarpfrontError, exit_code=30):
    """A generated file is not what the program would write now."""


class HandoverError(WarpfrontError, exit_code=31, kind=FailureKind.INFRASTRUCTURE):
    """Files that one job handed to the next changed, or two jobs wrote different ones."""


class UndeterminedError(WarpfrontError, exit_code=33, kind=FailureKind.VERDICT):
    """A command could not determine part of its answer, and found nothing wrong in the rest.
    `--allow-undetermined` accepts that.
    """


class EmulatedError(WarpfrontError, exit_code=34, kind=FailureKind.VERDICT):
    """Checks passed, but an emulator or an interposer answered for the device."""


class Terminated(KeyboardInterrupt):
    """SIGTERM as an exception that unwinds like Ctrl-C, so that every `finally` runs."""


INTERRUPTED_EXIT_CODE = 130
UNREAD_EXIT_CODE = 141  # the shell's exit code for SIGPIPE
BUG_EXIT_CODE = 70
USAGE_EXIT_CODE = 2  # as argparse and Click have it; a matrix that cannot be read ends so, too


def kind_of_exit(code: int) -> FailureKind:
    """Return the kind of failure of an exit code; a bug or an unknown one is of the build."""
    kinds = {**WarpfrontError.kinds, INTERRUPTED_EXIT_CODE: FailureKind.CANCELLED}
    return kinds.get(code, FailureKind.BUILD)
