"""Verdicts: a `Verification` and an `Outcome` from the result files of the sessions, and the error
of a run from the outcomes of its cells. Pure.

The files are foreign text when they come back. A missing, unfinished or foreign one, and one that
contradicts nox, is an `error`: never a pass. A check that flips between verifications of one digest
is a finding, never a pass.

A seal is a digest of all parts of a verification, which shows an edited or mixed one. It is no
signature: an edit of both is not seen here. Published evidence has its seals in the signed part.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from warpfront import errors
from warpfront.step_results import Blocked, Failed
from warpfront.system.digests import digest_of
from warpfront.system.texts import counted
from warpfront.system.tree_files import Unreadable
from warpfront.verify.results import EMULATOR, CheckResult, Outcome, Verification
from warpfront_checks.results import ResultsError, read_results, surroundings

VERIFICATION_SCHEMA = 1
# By how little was learnt of the image on its hardware: an unavailable device computed nothing, an
# emulated one computed right on other hardware, an undetermined one may have been the hardware, a
# skipped check is no evidence for the others.
_WORST_FIRST = (
    Outcome.ERROR,
    Outcome.FAILED,
    Outcome.UNAVAILABLE,
    Outcome.EMULATED,
    Outcome.UNDETERMINED,
    Outcome.SKIPPED,
    Outcome.PASSED,
)


Named = tuple[str, str]


def worst_of(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the first of error, failed, unavailable, emulated, undetermined, skipped, passed. No
    outcome at all is an error: nothing was proven.
    """
    present = frozenset(outcomes)
    return next((outcome for outcome in _WORST_FIRST if outcome in present), Outcome.ERROR)


def outcome_of(verification: Verification) -> Outcome:
    """Return the whole verification's outcome. A planned session without any check is an error."""
    checked = {check.session for check in verification.checks}
    if not verification.sessions or not checked >= set(verification.sessions):
        return Outcome.ERROR
    return worst_of(check.outcome for check in verification.checks)


def count_outcomes(checks: Iterable[CheckResult]) -> dict[Outcome, int]:
    """Return the number of checks per outcome, worst first, zeros included."""
    counts = Counter(check.outcome for check in checks)
    return {outcome: counts[outcome] for outcome in _WORST_FIRST}


def read_verification(
    about: Verification,
    files: Mapping[str, object | None],
    *,
    ended: str = "",
    nox_report: object | None = None,
    proven_before: frozenset[str] = frozenset(),
) -> Verification:
    """Return a verification with the results in its files.

    `files` are the planned sessions, each with its parsed results or None. `ended` is how the
    process ended, if not by itself; it becomes part of the reason of each missing check.
    `nox_report` is nox's parsed `--report`, compared with the files; it does not have the sessions
    `proven_before` in an earlier run.
    """
    checks: list[CheckResult] = []
    environment: dict[str, object] = {}
    for session, document in files.items():
        check_results = read_session(document, session=session, target=about.target, ended=ended)
        checks += check_results
        if session not in proven_before:
            checks += _contradictions(session, check_results, nox_report)
        environment.update(surroundings(document, session=session))
    return dataclasses.replace(
        about, sessions=tuple(files), checks=tuple(checks), environment=environment
    )


def read_session(
    document: object | None, *, session: str, target: str, ended: str = ""
) -> tuple[CheckResult, ...]:
    """Return the checks of one results file, and an error for each that was planned and
    is not there.
    """
    suffix = f": {ended}" if ended else ""
    if document is None:
        return (_error(session, "results", f"the session left no results file{suffix}"),)
    try:
        if isinstance(document, Unreadable):
            raise ResultsError(document.reason)  # noqa: TRY301 - as of any other unusable file
        session_result = read_results(document, session=session, target=target)
    except ResultsError as error:
        return (_error(session, "results", f"the results file cannot be used: {error}"),)
    checks = [
        CheckResult(**{**vars(check), "session": session, "outcome": Outcome(check.outcome)})
        for check in session_result.checks
    ]
    names = (check.name for check in checks)
    counts, planned = Counter(names), dict.fromkeys(session_result.planned)
    no_result = f"planned, but there is no result: the session did not get to it{suffix}"
    wrong = [(name, no_result) for name in planned if name not in counts]
    twice = ((name, count) for name, count in counts.items() if count > 1)
    wrong += [(name, f"reported {counted(count, 'time')}") for name, count in twice]
    wrong += [(name, "reported without being planned") for name in counts if name not in planned]
    if not session_result.finished:
        wrong.append(("end", f"the session did not come to its end{suffix}"))
    if not (checks or wrong):
        wrong.append(("results", "the session planned no checks"))
    return (*checks, *(_error(session, name, reason) for name, reason in wrong))


def _contradictions(
    session: str, checks: tuple[CheckResult, ...], nox_report: object | None
) -> tuple[CheckResult, ...]:
    """Return where nox and the file disagree; then neither counts."""
    if nox_report is None:
        return ()
    if isinstance(nox_report, Unreadable):
        return (_error(session, "nox", f"nox's report cannot be used: {nox_report.reason}"),)
    # An unreadable report names no session.
    listed = nox_report.get("sessions") if isinstance(nox_report, dict) else None
    entries = [each for each in listed or () if isinstance(each, dict)]
    verdicts = {str(entry.get("name")): str(entry.get("result")) for entry in entries}
    verdict = verdicts.get(session)
    if verdict is None:
        return (_error(session, "nox", "nox's report does not name this session"),)
    all_passed = worst_of(check.outcome for check in checks) is Outcome.PASSED
    if (verdict == "success") == all_passed:
        return ()
    result = "that all passed" if all_passed else "that not all passed"
    return (_error(session, "nox", f"nox says {verdict}, the results file says {result}"),)


def verification_document(verification: Verification) -> dict[str, object]:
    """Return the verification as JSON values, with its outcome for simple readers."""
    return {
        "schema": VERIFICATION_SCHEMA,
        "outcome": outcome_of(verification).value,
        **dataclasses.asdict(verification),
    }


def _error(session: str, name: str, reason: str) -> CheckResult:
    return CheckResult(session=session, name=name, outcome=Outcome.ERROR, reason=reason)


def sealed(verification: Verification, *, ended: str) -> Verification:
    """Return the verification, ended at that time, with its seal."""
    dated = dataclasses.replace(verification, ended=ended, seal="")
    return dataclasses.replace(dated, seal=_seal(dated))


def is_sealed(verification: Verification) -> bool:
    """Return true if the seal is that of these parts."""
    return bool(verification.seal) and verification.seal == _seal(verification)


def _seal(verification: Verification) -> str:
    document = verification_document(verification)
    return digest_of({name: part for name, part in document.items() if name != "seal"})


def together(runs: Sequence[Verification]) -> Verification:
    """Return the last run, with its flips as failures; what failed each time has failed. Raise
    `ValueError` for runs of more than one digest, which say nothing about each other.
    """
    about = {(run.cell_id, run.target, run.where, run.content_hash, run.image_id) for run in runs}
    if len(about) != 1:
        images = counted(len(about), "image")
        raise ValueError(f"{images}, cells or targets are not verified again but each")
    checks_of_runs = [{(check.session, check.name): check for check in run.checks} for run in runs]
    names: dict[Named, None] = {name: None for each in checks_of_runs for name in each}
    checks = tuple(_judged(name, [each.get(name) for each in checks_of_runs]) for name in names)
    flipped = [f"{check.session}: {check.name}" for check in checks if "outcomes" in check.details]
    again = {"times": len(runs), "outcomes": [outcome_of(run).value for run in runs]}
    return dataclasses.replace(
        runs[-1],
        sessions=tuple(dict.fromkeys(name for run in runs for name in run.sessions)),
        checks=checks,
        seconds=round(sum(run.seconds for run in runs), 2),
        environment={**runs[-1].environment, "again": {**again, "flips": flipped}},
    )


def _judged(name: Named, results: Sequence[CheckResult | None]) -> CheckResult:
    """Return one check of all runs. A missing one is an error."""
    outcomes = [Outcome.ERROR if result is None else result.outcome for result in results]
    present = [result for result in results if result is not None]
    if len(set(outcomes)) == 1:
        return present[-1]
    worst = worst_of(outcomes)
    counts = ", ".join(f"{result.value} {count}" for result, count in Counter(outcomes).items())
    of_worst = next((result for result in present if result.outcome is worst), present[-1])
    why = of_worst.reason if of_worst.outcome is worst else "it was not made"
    return CheckResult(
        session=name[0],
        name=name[1],
        outcome=Outcome.FAILED,
        reason=f"flips on one digest ({counts} of {counted(len(results), 'time')}): {why}",
        seconds=round(sum(result.seconds for result in present), 4),
        details={**of_worst.details, "outcomes": [outcome.value for outcome in outcomes]},
    )


_BY_EXIT_CODE: dict[int, Callable[[str], errors.WarpfrontError]] = {
    kind.exit_code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.WarpfrontError)
    if "__init__" not in vars(kind)
}
_BY_EXIT_CODE[errors.RegistryError.exit_code] = lambda text: errors.RegistryError(
    text, registry="registry", step="publish", fault=errors.RegistryFault.WRONG, hint=""
)


def failure_of(results: Iterable[object]) -> errors.WarpfrontError | None:
    """Return the worst of a step's results as an error, or None if every one is a success. What
    is no `Blocked`, `Failed` or `Verification` is one, and counts among the results.

    A cell that failed comes before a check that did, then a blocked cell, a missing device, an
    emulated one, and one that could not be determined. Anything but `passed` is a failure: a skip
    is not a pass.
    """
    results = tuple(results)
    count = len(results)
    failed = [result for result in results if isinstance(result, Failed)]
    blocked = [result.cell_id for result in results if isinstance(result, Blocked)]
    verifications = (result for result in results if isinstance(result, Verification))
    bad = [result for result in verifications if outcome_of(result) is not Outcome.PASSED]
    if failed:
        kind = _BY_EXIT_CODE.get(failed[0].exit_code, errors.BuildFailedError)
        names = ", ".join(result.cell_id for result in failed)
        return kind(f"{len(failed)} of {count} failed: {names}")
    if any(outcome_of(result) not in _OF_DEVICES for result in bad):
        leads = any(EMULATOR in result.environment for result in bad)
        hint = "a failure in an emulator is a lead: try it on hardware" if leads else ""
        return errors.NotVerifiedError(f"not verified: {', '.join(map(_name, bad))}", hint=hint)
    if blocked:
        hint = "`warpfront doctor` lists what this machine cannot reach; the rest is done"
        text = f"{len(blocked)} of {count} blocked: {', '.join(blocked)}"
        return errors.BlockedError(text, hint=hint)
    for outcome, (kind, text, hint) in _OF_DEVICES.items():
        if named := [_name(result) for result in bad if outcome_of(result) is outcome]:
            return kind(f"{text} for {', '.join(named)}", hint=hint)
    return None


_OF_DEVICES: Mapping[Outcome, tuple[Callable[..., errors.WarpfrontError], str, str]] = {
    Outcome.UNAVAILABLE: (
        errors.UnavailableError,
        "no such device here",
        "verify on a machine that has one; what could be checked without it was",
    ),
    Outcome.EMULATED: (
        errors.EmulatedError,
        "an emulator or an interposer answered",
        "the check `device` names it; verify on hardware, without it",
    ),
    Outcome.UNDETERMINED: (
        errors.UndeterminedError,
        "a check could not be determined",
        "the report has its reason; --allow-undetermined accepts it",
    ),
}
"""What a missing or doubtful device comes to, the worst first."""


def _name(verification: Verification) -> str:
    return f"{verification.cell_id} on {verification.target} ({outcome_of(verification)})"
