"""The four answers that a command can give, and how answers combine. *Words*.

"Not determined" is never reported as success: it has its own answer, reasons and exit code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from warpfront.errors import UndeterminedError


class Answer(StrEnum):
    """The result for a claim. `NOTHING` means that there was nothing to determine."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDETERMINED = "not determined"
    NOTHING = "nothing to determine"


_SHOWN = 5
"""Reasons in one message: a tree may have thousands of files that cannot be read."""

_WORST_FIRST = (Answer.FAILS, Answer.UNDETERMINED, Answer.HOLDS, Answer.NOTHING)


@dataclass(frozen=True, slots=True)
class Determination:
    """An answer. `reasons` give a sentence for each cause of `FAILS` or `UNDETERMINED`."""

    answer: Answer
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.answer in (Answer.FAILS, Answer.UNDETERMINED) and not self.reasons:
            raise ValueError(f"{self.answer} needs a reason")


def combine(determinations: Iterable[Determination]) -> Determination:
    """Return the worst answer with the reasons of all that share it.

    The order is: fails, not determined, true, nothing to determine. An empty iterable gives
    "nothing to determine".
    """
    every = tuple(determinations)
    answer = next(
        (state for state in _WORST_FIRST if any(each.answer is state for each in every)),
        Answer.NOTHING,
    )
    return Determination(
        answer, tuple(text for each in every if each.answer is answer for text in each.reasons)
    )


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
