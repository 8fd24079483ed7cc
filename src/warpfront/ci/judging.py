"""The one check that counts: whether every selected cell passed, from what the jobs left. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from warpfront.bench.night_standing import NightStanding
from warpfront.ci.schedule import Schedule
from warpfront.errors import (
    BuildFailedError,
    NotVerifiedError,
    SlowerError,
    UnavailableError,
    WarpfrontError,
)
from warpfront.model import Outcome
from warpfront.report.rows import BUILT, NOT_RUN, ReportRow

_ENDED_WELL = frozenset({"success", "skipped"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Whether a run may be called green, and all that speaks against it, worst first. What is
    `slower` than its last release, or could not be held against it, is right all the same.
    """

    failures: tuple[str, ...]
    unavailable: tuple[str, ...]
    passed: int
    slower: tuple[str, ...] = ()

    @property
    def error(self) -> WarpfrontError | None:
        """None means green."""
        if self.failures:
            kind = BuildFailedError if ": not built" in self.failures[0] else NotVerifiedError
            return kind(f"{len(self.failures)} did not pass: {self.failures[0]}")
        if self.slower:
            return SlowerError(f"{len(self.slower)} beside the last release: {self.slower[0]}")
        if self.unavailable:
            return UnavailableError(
                f"{len(self.unavailable)} could be verified nowhere: {self.unavailable[0]}",
                hint="a runner in `runners:` of matrix.yaml, or a target less",
            )
        return None


def judge(
    planned: Schedule | None,
    rows: Iterable[ReportRow],
    *,
    plan_ended: str,
    ended: Iterable[str],
    standings: Iterable[NightStanding] = (),
) -> Judgement:
    """`plan_ended` and `ended` are how the forge says that the jobs ended; "" on a laptop. Whatever
    is not known to have passed has not. `standings` are what the timings of a night came to.
    """
    if planned is None or plan_ended not in {"", "success"}:
        how = f": the job ended with {plan_ended}" if plan_ended else ""
        return Judgement(failures=(f"plan: nothing was planned{how}",), unavailable=(), passed=0)
    known = {(row.cell_id, row.target): row for row in rows}
    by_cell = {row.cell_id: row for row in known.values()}
    failures = [*_not_built(planned, by_cell), *_not_verified(planned, known)]
    slower = tuple(_slower(planned, standings))
    bad = sorted({how for how in ended if how not in _ENDED_WELL})
    if bad and not failures and not slower:
        failures = [f"jobs: some ended with {', '.join(bad)}, and left nothing that says why"]
    return Judgement(
        failures=tuple(failures),
        unavailable=tuple(
            f"{' on '.join(filter(None, (one.cell_id, one.target)))}: {one.reason}"
            for one in planned.unavailable
        ),
        passed=len(planned.selected) - len(_not_verified(planned, known)),
        slower=slower,
    )


def _not_built(planned: Schedule, rows: Mapping[str, ReportRow]) -> list[str]:
    found = []
    for cell in planned.building:
        row = rows.get(cell)
        if row is None or row.build not in BUILT:
            found.append(f"{cell}: not built ({_why(row)})")
    return found


def _not_verified(planned: Schedule, rows: Mapping[tuple[str, str], ReportRow]) -> list[str]:
    found = []
    for cell, target in planned.selected:
        row = rows.get((cell, target))
        if row is None or row.verify != Outcome.PASSED:
            said = "no result" if row is None or row.verify == NOT_RUN else row.verify
            found.append(f"{cell} on {target}: {said} ({_why(row)})")
    return found


def _slower(planned: Schedule, standings: Iterable[NightStanding]) -> Iterator[str]:
    known = {(one.cell_id, one.target): one for one in standings}
    for cell, target in planned.timed:
        found = known.get((cell, target))
        if wrong := found.wrong if found else "not timed: no job left a result":
            yield f"{cell} on {target}: {wrong}"


def _why(row: ReportRow | None) -> str:
    return (row.reason if row else "") or "no job left a result"
