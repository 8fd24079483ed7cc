"""Errors of one cell as values, so that other cells go on. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from warpfront import errors
from warpfront.step_results import Blocked, Failed, StepName

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
