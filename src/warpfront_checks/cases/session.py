"""The catalogue's part of the session `operators`: one check for each operation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from warpfront_checks.cases.axes import (
    QUICK_CASES,
    assignments_of,
    build,
)
from warpfront_checks.cases.bounds import Tally, Verdict
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.catalogue import CATALOGUE, TOPICS
from warpfront_checks.cases.known_defects import NO_AXES, preventing_thread, thread_of
from warpfront_checks.cases.operation import Operation
from warpfront_checks.cases.report import described, shrunk
from warpfront_checks.cases.run import (
    ContextEndedError,
    LackingError,
    NoOracleError,
    Reference,
    has_context,
    reference_again,
    reference_of,
    run_case,
)
from warpfront_checks.check_options import CheckOptions
from warpfront_checks.children import leave_after_this
from warpfront_checks.precision import computes_float64, kind_of, tested_dtypes
from warpfront_checks.results import UNDETERMINED, CheckFinding, Recorder, failed

# The kinds of device on which right kernels passed a topic's cases with fresh seeds. The others
# are not claimed: a bound that no right device has confirmed could refuse right ones.
_ON_BOTH = (
    "elementwise, reductions, moves, losses, norms, images, patterns, matrices, convolutions,"
    " grouped convolutions, attention, recurrent, bidirectional, sparse, lists, optimizers"
)
SEEN_ON: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_ON_BOTH.split(", "), ("cpu", "cuda")),
    # On the CPU MKL's solve by several threads may not end, and its transforms write past their
    # memory in one process of four.
    **dict.fromkeys(("systems", "transforms"), ("cuda",)),
}
QUICK_DTYPES = ("float32", "bfloat16")
SUFFIX = ", cases"
FIND_CASES = "cases.session:find_operation"


def check_name(operation: str) -> str:
    """Return the name of an operation's check in results."""
    return f"{operation}{SUFFIX}"


def claimed_operations(device: str, recorder: Recorder) -> list[str]:
    """Return the operations whose cases are judged on a device, and record why others are not."""
    kind = kind_of(device)
    claimed = []
    for topic, operations in TOPICS.items():
        reason = f"bounds of its cases were never seen to be right on {kind}"
        if kind not in SEEN_ON.get(topic, ()):
            recorder.note_unclaimed(f"{topic}{SUFFIX}", reason)
            continue
        for operation in operations:
            if thread := preventing_thread(operation.defects, kind, NO_AXES):
                recorder.note_unclaimed(check_name(operation.name), f"no case is safe: {thread}")
            elif kind in operation.unseen:
                recorder.note_unclaimed(check_name(operation.name), reason)
            else:
                claimed.append(operation.name)
    return claimed


@cache
def case_dtypes(device: str, *, quick: bool) -> tuple[str, ...]:
    """Return the floating dtypes that cases of a device have."""
    dtypes = (*tested_dtypes(device), *(["float64"] if computes_float64(device) else []))
    return tuple(name for name in dtypes if name in QUICK_DTYPES) if quick else dtypes


def find_operation(name: str, device: str, effort: CheckOptions) -> CheckFinding:
    """Judge the cases of one operation, of every seed."""
    if not has_context(device):
        reason = "an earlier case ended this process's context on the device"
        return CheckFinding(outcome=UNDETERMINED, reason=reason)
    operation = CATALOGUE[name]
    try:
        return finding_of(judge_operation(operation, device, effort), operation, device)
    except ContextEndedError as error:
        leave_after_this()
        return failed(f"the device's context ended in {error}")


def finding_of(tally: Tally, operation: Operation, device: str) -> CheckFinding:
    """Return the finding of all cases of an operation, the first failed one made small."""
    shown = _shown(operation, *tally.first, device) if tally.first else {}
    return tally.finding("cases", **shown)


def judge_operation(operation: Operation, device: str, effort: CheckOptions) -> Tally:
    """Judge cases of an operation; others replace those that have no oracle or no kernel."""
    dtypes = operation.dtypes_on(kind_of(device), case_dtypes(device, quick=effort.quick))
    tally, last = Tally(), list[tuple[Case, Reference]]()
    for seed in effort.seeds:
        total = tally.cases + (QUICK_CASES if effort.quick else operation.cases)
        for assignment in assignments_of(operation, dtypes, seed, quick=effort.quick, spare=True):
            if tally.cases == total:
                break
            case = build(operation, assignment, device)
            if thread := preventing_thread(operation.defects, device, case.axes):
                tally.defects[thread] += 1
                continue
            verdicts = verdicts_of(case, tally, last)
            tally.cases += bool(verdicts)
            label = _label(case) if any(each.fault for each in verdicts) else ""
            for each in verdicts:
                fault = f"{each.name}: {each.fault} {label}"
                thread = each.fault and thread_of(operation.defects, fault, device, case.axes)
                if tally.enter(each, f"{label}: {each.name}: {each.fault}", thread):
                    tally.first = tally.first or (assignment, each)
    return tally


def _reference_of(case: Case, last: list[tuple[Case, Reference]]) -> Reference:
    """Return a case's reference, maybe that of the `last` one. Raises `NoOracleError`."""
    if last and (shared := reference_again(case, *last[0])):
        return shared
    # None of them stays in memory while the next one is computed.
    last.clear()
    reference = reference_of(case)
    last.append((case, reference))
    return reference


def verdicts_of(
    case: Case, tally: Tally, last: list[tuple[Case, Reference]] | None = None, **options: Any
) -> list[Verdict]:
    """Return the compared tensors of a case, or nothing where it could not be computed. Options are
    those of `run_case`.
    """
    try:
        if last is not None:
            options["reference"] = _reference_of(case, last)
        return list(run_case(case, **options))
    except NoOracleError:
        tally.refused += 1
    except LackingError as error:
        tally.lacking.append(f"{case.dtype}: {error}")
    except torch.OutOfMemoryError:
        tally.lacking.append("the device's memory was taken meanwhile")
    except Exception as error:
        if not has_context(case.device):
            raise ContextEndedError(f"{_label(case)}: {type(error).__name__}: {error}") from error
        return [Verdict.raised(error)]
    return []


def _label(case: Case) -> str:
    crossed = ", ".join(
        f"{axis} {value}" for axis, value in case.labels if value not in {"contiguous", "all"}
    )
    return f"{case.code} [{crossed}]"


def _shown(
    operation: Operation, assignment: Mapping[str, Any], worst: Verdict, device: str
) -> Mapping[str, object]:
    """Return the case made small, as lines and as the assignment that makes it again."""

    def fails(case: Case) -> Verdict | None:
        prevented = preventing_thread(operation.defects, device, case.axes)
        return None if prevented else fault_of(case)

    small = shrunk(operation, dict(assignment), device, fails)
    again = fails(build(operation, small, device))
    small = small if again else dict(assignment)
    case = build(operation, small, device)
    return {
        "case": {"operation": operation.name, "device": device, "assignment": small},
        "report": list(described(case, again or worst)),
    }


def fault_of(case: Case, **options: Any) -> Verdict | None:
    """Return the first fault of a case, or nothing. Options are those of `run_case`."""
    try:
        return next((verdict for verdict in run_case(case, **options) if verdict.fault), None)
    except (NoOracleError, LackingError):
        return None
    except Exception as error:  # noqa: BLE001 - it fails by raising
        return Verdict.raised(error)
