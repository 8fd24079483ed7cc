"""Remaining work of a run that broke off: failures of infrastructure, and cells that
never ran. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from warpfront.errors import FailureKind
from warpfront.report.rows import BUILT, NOT_RUN, ReportRow


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
