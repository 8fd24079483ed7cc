"""Results of a step for a cell without a value, errors as such results, and what a command could
not determine. Words.

"Not determined" is never reported as success: it has its own reasons and exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, ParamSpec, TypeVar

from warpfront import errors
from warpfront.errors import UndeterminedError

_OF_THIS_CELL = (
    errors.CommandFailedError,
    errors.LockError,
    errors.NotPublishableError,
    errors.RegistryError,
    errors.RenderError,
    errors.SignatureError,
    errors.TagConflictError,
    errors.WheelError,
)
T = TypeVar("T")
P = ParamSpec("P")
StepName = Literal[
    "plan", "lock", "build-wheels", "render", "build", "verify", "bench", "publish", "report"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A cell that cannot be made from here: what is out of reach, and why."""

    cell_id: str
    step: StepName
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A failed step of a cell; the others go on. `exit_code` is the error's own, `kind` follows
    from it by default, `repeat` is the line that repeats it on a laptop.
    """

    cell_id: str
    step: StepName
    reason: str
    hint: str = ""
    log: str | None = None
    exit_code: int = 1
    kind: errors.FailureKind | None = None
    repeat: str = ""

    def __post_init__(self) -> None:
        if self.kind is None:
            object.__setattr__(self, "kind", errors.kind_of_exit(self.exit_code))
        if not self.repeat:
            object.__setattr__(self, "repeat", repeat_line(self.step, self.cell_id))


def repeat_line(step: StepName, cell_id: str, target: str = "") -> str:
    """Return the command line that repeats a step of a cell from what is committed."""
    locked = " --locked" if step in {"render", "build"} else ""
    on = f" --target {target}" if target else ""
    return f"warpfront {step}{locked} --only {cell_id}{on}"


def attempt(
    cell_id: str, step: StepName, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T | Blocked | Failed:
    """Run one cell's step. What is wrong with this cell only becomes a value; the others go on."""
    try:
        return act(*args, **kwargs)
    except errors.BlockedError as error:
        reason = error.message.removeprefix(f"{cell_id}: ")
        return Blocked(cell_id=cell_id, step=step, reason=reason, hint=error.hint)
    except _OF_THIS_CELL as error:
        return failed_by(error, cell_id, step)


def failed_by(error: errors.WarpfrontError, cell_id: str, step: StepName) -> Failed:
    """Return an error as the failure of one cell."""
    return Failed(
        cell_id=cell_id,
        step=step,
        reason=error.message.removeprefix(f"{cell_id}: "),
        hint=error.hint,
        exit_code=error.exit_code,
    )


_SHOWN = 5
"""Reasons in one message: a tree may have thousands of files that cannot be read."""


def require_determined(
    undetermined: Iterable[str], *, allow_undetermined: bool = False, hint: str = ""
) -> None:
    """Raise `UndeterminedError` (exit code 33) with the first reasons and the number of the rest,
    unless there is none or the user allows it.
    """
    reasons = tuple(dict.fromkeys(undetermined))
    if reasons and not allow_undetermined:
        rest = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        raise UndeterminedError(f"not determined: {'; '.join(reasons[:_SHOWN])}{rest}", hint=hint)
