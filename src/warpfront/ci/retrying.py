"""Retries of a job, the failures that a second try may not hide, and what remains of a run that
broke off. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from warpfront.errors import FailureKind
from warpfront.report.rows import BUILT, NOT_RUN, ReportRow
from warpfront.step_results import Failed
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.verdict import outcome_of, together

RETRIES = 2
"""How many more times a job tries a cell that failed for infrastructure, and for nothing else."""


def worth_another_try(results: Iterable[object]) -> bool:
    """Return whether there is a failure that may go away by itself."""
    failed = (result for result in results if isinstance(result, Failed))
    return any(failure.kind is FailureKind.INFRASTRUCTURE for failure in failed)


def pause_seconds(tries: int) -> float:
    """Return the pause before the next try, after so many."""
    return 10.0 * 3.0 ** (tries - 1)


def with_flakiness(now: Verification, before: Verification | None) -> Verification:
    """Return the new result, together with the one `before` of the very same image: failed and
    then anything that a channel may accept is a flip.
    """
    if (
        before is None
        or (before.content_hash, before.target) != (now.content_hash, now.target)
        or outcome_of(before) is not Outcome.FAILED
        or outcome_of(now) in {Outcome.FAILED, Outcome.ERROR}
    ):
        return now
    # Another machine gives the same image another id.
    return together([dataclasses.replace(before, image_id=now.image_id), now])


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """Cells to build; cells and targets to verify, once they are built; and what is not tried
    again, because it would end as it did.
    """

    build: tuple[str, ...]
    verify: tuple[tuple[str, str], ...]
    refused: tuple[ReportRow, ...]


def remaining(rows: Iterable[ReportRow]) -> Remaining:
    """Return the remaining builds and verifications by the rows of the report."""
    rows = tuple(rows)
    again = [row for row in rows if row.kind in {"", FailureKind.INFRASTRUCTURE}]
    return Remaining(
        build=tuple(dict.fromkeys(row.cell_id for row in again if row.build not in BUILT)),
        verify=tuple(
            (row.cell_id, row.target) for row in again if row.verify == NOT_RUN or row.kind
        ),
        refused=tuple(row for row in rows if row not in again),
    )
