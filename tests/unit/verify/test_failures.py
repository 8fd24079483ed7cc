"""One exit code from many outcomes: nothing but a pass is a success, and the worst wins."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import a_check, a_verification

from warpfront.cli.tasks.showing import raise_failure
from warpfront.errors import (
    BlockedError,
    BuildFailedError,
    EmulatedError,
    HandoverError,
    LockError,
    NotVerifiedError,
    TimedOutError,
    UnavailableError,
    UndeterminedError,
    WarpfrontError,
)
from warpfront.step_results import Blocked, Failed
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.verdict import failure_of

BLOCKED = Blocked(cell_id="blocked", step="lock", reason="index out of reach")
BUILD_FAILED = Failed(cell_id="broken", step="build", reason="exit 1", exit_code=6)
LOCK_FAILED = Failed(cell_id="stale", step="lock", reason="stale", exit_code=4)
PASSED = a_verification(a_check(Outcome.PASSED))
UNAVAILABLE = a_verification(a_check(), a_check(Outcome.UNAVAILABLE, name="device"))
WRONG = a_verification(a_check(), a_check(Outcome.FAILED, name="mlp"))
ERROR = a_verification(a_check(Outcome.ERROR))
EMULATED = a_verification(a_check(), a_check(Outcome.EMULATED, name="device"))
UNDETERMINED = a_verification(a_check(), a_check(Outcome.UNDETERMINED, name="device"))
SKIPPED = a_verification(a_check(), a_check(Outcome.SKIPPED))
EMPTY = a_verification().__class__(
    cell_id="c",
    target="sm_90",
    where="image",
    image_id="",
    content_hash="",
    sessions=(),
    checks=(),
    seconds=0.0,
)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([BUILD_FAILED, BLOCKED, WRONG], BuildFailedError),
        ([LOCK_FAILED, BLOCKED], LockError),
        ([replace(BUILD_FAILED, exit_code=31)], HandoverError),
        ([replace(BUILD_FAILED, exit_code=32)], TimedOutError),
        ([WRONG, BLOCKED, UNAVAILABLE], NotVerifiedError),
        ([ERROR], NotVerifiedError),
        ([SKIPPED], NotVerifiedError),
        ([EMPTY], NotVerifiedError),
        ([BLOCKED, UNAVAILABLE, PASSED], BlockedError),
        ([UNAVAILABLE, PASSED], UnavailableError),
        ([EMULATED, UNAVAILABLE], UnavailableError),
        ([UNDETERMINED, EMULATED, PASSED], EmulatedError),
        ([PASSED, UNDETERMINED], UndeterminedError),
        ([EMULATED, WRONG], NotVerifiedError),
    ],
)
def test_the_worst_outcome_is_the_failure(
    results: list[Blocked | Failed | Verification], expected: type[WarpfrontError]
) -> None:
    assert type(failure_of(results)) is expected


def test_who_accepts_what_could_not_be_determined_accepts_nothing_else() -> None:
    raise_failure([PASSED, UNDETERMINED], allow_undetermined=True)
    with pytest.raises(UndeterminedError, match="could not be determined for"):
        raise_failure([PASSED, UNDETERMINED])
    with pytest.raises(EmulatedError):
        raise_failure([UNDETERMINED, EMULATED], allow_undetermined=True)
    with pytest.raises(NotVerifiedError):
        raise_failure([UNDETERMINED, WRONG], allow_undetermined=True)


def test_only_passes_are_a_success() -> None:
    assert failure_of([PASSED, PASSED]) is None
    assert failure_of([]) is None


def test_the_failure_names_the_cells() -> None:
    failure = failure_of([BUILD_FAILED, BLOCKED])
    assert failure is not None
    assert failure.message == "1 of 2 failed: broken"
