"""What could not be determined is never a success."""

from __future__ import annotations

import pytest

from warpfront.errors import UndeterminedError
from warpfront.step_results import require_determined


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
