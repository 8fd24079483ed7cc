"""The four answers of a command and how they combine."""

from __future__ import annotations

import pytest

from warpfront.determination import Answer, Determination, combine, require_determined
from warpfront.errors import UndeterminedError

HOLDS = Determination(Answer.HOLDS)
FAILS = Determination(Answer.FAILS, ("torch was replaced",))
UNKNOWN = Determination(Answer.UNDETERMINED, ("setup.py computes its requirements",))


@pytest.mark.parametrize(
    ("each", "answer"),
    [
        ((), Answer.NOTHING),
        ((HOLDS, Determination(Answer.NOTHING)), Answer.HOLDS),
        ((HOLDS, UNKNOWN), Answer.UNDETERMINED),
        ((UNKNOWN, FAILS, HOLDS), Answer.FAILS),
    ],
)
def test_the_worst_answer_counts(each: tuple[Determination, ...], answer: Answer) -> None:
    assert combine(each).answer is answer


def test_a_combination_keeps_every_reason_of_its_answer() -> None:
    other = Determination(Answer.UNDETERMINED, ("no index answered",))
    assert combine((UNKNOWN, HOLDS, other)).reasons == (*UNKNOWN.reasons, *other.reasons)


def test_an_answer_that_does_not_hold_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="not determined needs a reason"):
        Determination(Answer.UNDETERMINED)


def test_undetermined_reasons_end_with_their_own_exit_code() -> None:
    with pytest.raises(UndeterminedError, match="not determined: no index; no metadata") as raised:
        require_determined(["no index", "no metadata", "no index"])
    assert raised.value.exit_code == 33


def test_a_message_names_the_first_reasons_and_counts_the_rest() -> None:
    with pytest.raises(UndeterminedError, match=r"f0; f1; f2; f3; f4; and 3 more"):
        require_determined(f"f{number}" for number in range(8))


def test_a_user_may_allow_what_is_not_determined() -> None:
    require_determined(["no index"], allow_undetermined=True)
    require_determined([])
