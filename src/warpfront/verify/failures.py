"""The error and exit code of a run, from the outcomes of its cells. Pure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping

from warpfront.errors import (
    BlockedError,
    BuildFailedError,
    EmulatedError,
    EngineError,
    InputError,
    LockError,
    NotPublishableError,
    NotVerifiedError,
    RegistryError,
    RegistryFault,
    RenderError,
    SignatureError,
    SlowerError,
    StoreError,
    TagConflictError,
    UnavailableError,
    UndeterminedError,
    WarpfrontError,
    WheelError,
)
from warpfront.step_results import Blocked, Failed
from warpfront.verify.results import EMULATOR, Outcome, Verification
from warpfront.verify.verdict import outcome_of

_BY_EXIT_CODE: dict[int, Callable[[str], WarpfrontError]] = {
    **{
        error.exit_code: error
        for error in (
            BuildFailedError,
            EngineError,
            InputError,
            LockError,
            NotPublishableError,
            NotVerifiedError,
            RenderError,
            SignatureError,
            SlowerError,
            StoreError,
            TagConflictError,
            WheelError,
        )
    },
    RegistryError.exit_code: functools.partial(
        RegistryError, registry="registry", step="publish", fault=RegistryFault.WRONG, hint=""
    ),
}


def failure_of(results: Iterable[object]) -> WarpfrontError | None:
    """Return the worst of a step's results as an error, or None if every one is a success. What
    is no `Blocked`, `Failed` or `Verification` is one, and counts among the results.

    A cell that failed comes before a check that did, then a blocked cell, a missing device, an
    emulated one, and one that could not be determined. Anything but `passed` is a failure: a skip
    is not a pass.
    """
    results = tuple(results)
    failed = [result for result in results if isinstance(result, Failed)]
    blocked = [result for result in results if isinstance(result, Blocked)]
    verifications = [result for result in results if isinstance(result, Verification)]
    bad = [
        verification
        for verification in verifications
        if outcome_of(verification) is not Outcome.PASSED
    ]
    count = len(results)
    if failed:
        kind = _BY_EXIT_CODE.get(failed[0].exit_code, BuildFailedError)
        return kind(
            f"{len(failed)} of {count} failed: {_names(result.cell_id for result in failed)}"
        )
    if any(outcome_of(result) not in _OF_DEVICES for result in bad):
        leads = any(EMULATOR in result.environment for result in bad)
        return NotVerifiedError(
            f"not verified: {_names(_name(result) for result in bad)}",
            hint="a failure in an emulator is a lead: try it on hardware" if leads else "",
        )
    if blocked:
        return BlockedError(
            f"{len(blocked)} of {count} blocked: {_names(result.cell_id for result in blocked)}",
            hint="`warpfront doctor` lists what this machine cannot reach; the rest is done",
        )
    for outcome, (kind, text, hint) in _OF_DEVICES.items():
        if named := [_name(result) for result in bad if outcome_of(result) is outcome]:
            return kind(f"{text} for {_names(named)}", hint=hint)
    return None


_OF_DEVICES: Mapping[Outcome, tuple[Callable[..., WarpfrontError], str, str]] = {
    Outcome.UNAVAILABLE: (
        UnavailableError,
        "no such device here",
        "verify on a machine that has one; what could be checked without it was",
    ),
    Outcome.EMULATED: (
        EmulatedError,
        "an emulator or an interposer answered",
        "the check `device` names it; verify on hardware, without it",
    ),
    Outcome.UNDETERMINED: (
        UndeterminedError,
        "a check could not be determined",
        "the report has its reason; --allow-undetermined accepts it",
    ),
}
"""What a missing or doubtful device comes to, the worst first."""


def _name(verification: Verification) -> str:
    return f"{verification.cell_id} on {verification.target} ({outcome_of(verification)})"


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)
