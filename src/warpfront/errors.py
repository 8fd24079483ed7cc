"""The errors that stop a run: one class per cause, one exit code per class.

A message names the problem and its place; `hint` is the next step. Problems of one cell are not
errors but values (`Failed`, `Blocked`), so that the other cells go on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar
from urllib.parse import quote

_USER = re.compile(r"://[^/\s@]+@")
# A password with an unencoded slash: no program can use the address, all can print it.
_ODD_USER = re.compile(r"://[^\s/@:]+:(?!\d{1,5}(?:[/\s]|$))[^\s'\"]*@")
_SHORTEST_SECRET = 4
_SECRETS: set[str] = set()


def keep_secret(*secrets: str) -> None:
    """Mask these texts, also as URLs encode them, in all later output. Every reader of a secret
    calls it once.
    """
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            _SECRETS.update((secret, quote(secret, safe="")))


def without_secrets(text: str) -> str:
    """`text` with every known secret masked, and the user and password of every URL."""
    for secret in sorted(_SECRETS, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _USER.sub("://***@", _ODD_USER.sub("://***@", text))


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
    """Base of all expected failures. `exit_code` is unique per class (checked by a test)."""

    exit_code: ClassVar[int] = 1
    kind: ClassVar[FailureKind] = FailureKind.INPUT

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message, self.hint = without_secrets(message), without_secrets(hint)
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


class MatrixError(WarpfrontError):
    """matrix.yaml (or the compat table) is not usable; carries all problems of the file at once."""

    exit_code = 2

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        lines = [
            f"{problem}" + (f"\n    hint: {problem.hint}" if problem.hint else "")
            for problem in problems
        ]
        super().__init__("\n".join(lines))
        self.problems = problems


class NothingSelectedError(WarpfrontError):
    """The selection options match no cell."""

    exit_code = 3


class LockError(WarpfrontError):
    """A lock is stale, unreadable, or cannot be made."""

    exit_code = 4
    kind = FailureKind.RESOLUTION


class RenderError(WarpfrontError):
    """A template cannot be rendered, or rendered to something else than
    the template's instructions.
    """

    exit_code = 5
    kind = FailureKind.BUILD


class BuildFailedError(WarpfrontError):
    """A selected cell failed to build; the others were still tried."""

    exit_code = 6
    kind = FailureKind.BUILD


class NotVerifiedError(WarpfrontError):
    """A check of a selected cell failed, ended early, or wrote no report."""

    exit_code = 7
    kind = FailureKind.VERDICT


class BlockedError(WarpfrontError):
    """A selected cell cannot be made from here: an index, base or registry is out of reach; or it
    cannot be verified, since it was never built.
    """

    exit_code = 9
    kind = FailureKind.INFRASTRUCTURE


class EngineError(WarpfrontError):
    """No usable container engine, or it went away."""

    exit_code = 10
    kind = FailureKind.INFRASTRUCTURE


class UnavailableError(WarpfrontError):
    """Verification found no such device on this machine, or compile no compiler that knows the
    target. Never a pass.
    """

    exit_code = 11
    kind = FailureKind.INFRASTRUCTURE


class WheelError(WarpfrontError):
    """A wheel could not be fetched intact: truncated, wrong hash, out of reach."""

    exit_code = 12
    kind = FailureKind.INFRASTRUCTURE


class StoreError(WarpfrontError):
    """A file or folder of ours cannot be read or written: permissions, a full disk, or the lock
    of another run.
    """

    exit_code = 13
    kind = FailureKind.INFRASTRUCTURE


class CommandFailedError(WarpfrontError):
    """A program we started failed or is missing."""

    exit_code = 14
    kind = FailureKind.BUILD


class TimedOutError(CommandFailedError):
    """A program that was started took longer than it may."""

    exit_code = 32
    kind = FailureKind.TIMEOUT


class FindingsError(WarpfrontError):
    """A scan or a preflight found something to change."""

    exit_code = 15
    kind = FailureKind.VERDICT


class InputError(WarpfrontError):
    """A file of a project is missing, not text, not TOML, or has no requirements."""

    exit_code = 16


class RegistryFault(StrEnum):
    """The way a registry failed. Only `REFUSED` is permanent."""

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    WRONG = "wrong"
    FULL = "full"
    SLOW = "slow"


class RegistryError(WarpfrontError):
    """A registry is out of reach, refuses, answers what cannot be true, is full, or too slow."""

    exit_code = 17
    kind = FailureKind.INFRASTRUCTURE

    def __init__(
        self, message: str, *, registry: str, step: str, fault: RegistryFault, hint: str
    ) -> None:
        super().__init__(f"{registry}: {step}: {message}", hint=hint)
        self.registry, self.step, self.fault = registry, step, fault


class NotPublishableError(WarpfrontError):
    """A selected image may not be published in the channel: what was proven is not what the channel
    demands, or the image cannot be named.
    """

    exit_code = 18
    kind = FailureKind.VERDICT


class TagConflictError(WarpfrontError):
    """A tag is claimed by two cells, points to another image, or was moved by another publisher."""

    exit_code = 19


class SignatureError(WarpfrontError):
    """Signing failed, or a signature is not valid."""

    exit_code = 20


class NotComparableError(WarpfrontError):
    """Two measurements are of unlike work, or too short to say anything."""

    exit_code = 21


class SlowerError(WarpfrontError):
    """A comparison is slower than --max-slower allows, with its whole interval."""

    exit_code = 22
    kind = FailureKind.VERDICT


class StaleError(WarpfrontError):
    """A generated file is not what the program would write now."""

    exit_code = 30


class HandoverError(WarpfrontError):
    """Files that one job handed to the next changed, or two jobs wrote different ones."""

    exit_code = 31
    kind = FailureKind.INFRASTRUCTURE


class UndeterminedError(WarpfrontError):
    """A command could not determine part of its answer, and found nothing wrong in the rest.
    `--allow-undetermined` accepts that.
    """

    exit_code = 33
    kind = FailureKind.VERDICT


class EmulatedError(WarpfrontError):
    """Checks passed, but an emulator or an interposer answered for the device."""

    exit_code = 34
    kind = FailureKind.VERDICT


class Terminated(KeyboardInterrupt):
    """SIGTERM as an exception that unwinds like Ctrl-C, so that every `finally` runs."""


INTERRUPTED_EXIT_CODE = 130
UNREAD_EXIT_CODE = 141  # the shell's exit code for SIGPIPE
BUG_EXIT_CODE = 70
USAGE_EXIT_CODE = 2  # as argparse and Click have it; a matrix that cannot be read ends so, too


def kind_of_exit(code: int) -> FailureKind:
    """Return the kind of failure of an exit code; a bug or an unknown one is of the build."""
    kinds = {error.exit_code: error.kind for error in _family(WarpfrontError)}
    return {**kinds, INTERRUPTED_EXIT_CODE: FailureKind.CANCELLED}.get(code, FailureKind.BUILD)


def _family(error: type[WarpfrontError]) -> list[type[WarpfrontError]]:
    return [error, *(member for child in error.__subclasses__() for member in _family(child))]
