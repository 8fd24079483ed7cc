"""The one check that counts: whether every selected cell is proven, by the same `admission` that
publishes, and whether what was to be published is. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from warpfront import errors
from warpfront.bench.nights import NightStanding
from warpfront.ci.schedule import Omitted, Schedule
from warpfront.matrix.release_channels import Channel
from warpfront.release.admission import Evidence, admission
from warpfront.release.ledger import Publication, Stage
from warpfront.report.rows import BUILT, NOT_RUN, ReportRow
from warpfront.step_results import Blocked, Failed, repeat_line
from warpfront.verify.results import Outcome
from warpfront_checks.check_options import SESSIONS

_ENDED_WELL = frozenset({"success", "skipped"})
_PENDING = (
    "a maintainer puts the label `gpu` on the pull request, and when that run is green, runs the "
    "job `required` again; or `ci: {unchecked: listed}` of matrix.yaml leaves it to the merge "
    "queue (docs/admission.md)"
)
_UNPUBLISHED = "nightly"
"""The channel whose demands count in a run that publishes nothing: the next one that does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of a run, of a cell on a target, and the line that repeats it."""

    text: str
    cell_id: str
    target: str = ""
    kind: str = errors.FailureKind.VERDICT.value
    repeat: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on a run and every reason against it, worst first. `slower` is correct and takes
    more time than its last release, or could not be compared with it. `pending` are changed cells
    on targets that no machine of this scope has; they are red, or `listed` first in a green run.
    `noted` is what a channel let pass. `faults` are the failures of cells with what repeats each.
    """

    failures: tuple[str, ...]
    unavailable: tuple[str, ...]
    passed: int
    slower: tuple[str, ...] = ()
    unpublished: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def error(self) -> errors.WarpfrontError | None:
        """Return the error; None means green."""
        if self.failures:
            is_unbuilt = ": not built" in self.failures[0]
            kind = errors.BuildFailedError if is_unbuilt else errors.NotVerifiedError
            return kind(f"{len(self.failures)} did not pass: {self.failures[0]}")
        if self.unpublished:
            text = f"{len(self.unpublished)} were not published: {self.unpublished[0]}"
            return errors.NotPublishableError(text, hint="docs/release.md, What may be published")
        if self.slower:
            text = f"{len(self.slower)} beside the last release: {self.slower[0]}"
            return errors.SlowerError(text)
        if self.unavailable:
            return errors.UnavailableError(
                f"{len(self.unavailable)} could be verified nowhere: {self.unavailable[0]}",
                hint="a runner in `runners:` of matrix.yaml, or a target less",
            )
        if self.pending:
            return errors.UnavailableError(
                f"pending a GPU: {len(self.pending)} changed, and no machine of this run has its "
                f"target: {self.pending[0]}",
                hint=_PENDING,
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a run: `planned` is the result of the job `plan` and `jobs` those of the
    others, "" and empty on a laptop. `evidence` and `publications` are by cell, `standings` the
    results of a night's timings, `now` the time of the judgement.
    """

    now: str
    planned: str = ""
    jobs: tuple[str, ...] = ()
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    publications: Mapping[str, Publication | Blocked | Failed | None] = field(default_factory=dict)
    standings: tuple[NightStanding, ...] = ()


def judge(
    planned: Schedule | None,
    rows: Iterable[ReportRow],
    end: RunEnd,
    channel: Channel,
    *,
    lists_unchecked: bool = False,
    checked_by_label: bool = False,
) -> Judgement:
    """Return whether everything that was planned is proven as `channel` demands, and published.
    Whatever is not known to have passed has not. `checked_by_label`: the run that the label `gpu`
    started for this commit is green.
    """
    if planned is None or end.planned not in {"", "success"}:
        ending = f": the job ended with {end.planned}" if end.planned else ""
        return Judgement(failures=(f"plan: nothing was planned{ending}",), unavailable=(), passed=0)
    rows_by_target = {(row.cell_id, row.target): row for row in rows}
    by_cell = {row.cell_id: row for row in rows_by_target.values()}
    refused, noted = _admitted(planned, rows_by_target, end, channel)
    broken = [
        _fault(f"not built ({_why(row)})", cell, "", row)
        for cell in planned.building
        if (row := by_cell.get(cell)) is None or row.build not in BUILT
    ]
    broken += refused
    failures = [fault.text for fault in broken]
    by_target = {(standing.cell_id, standing.target): standing for standing in end.standings}
    timings = {place: by_target.get(place) for place in planned.timed}
    slower = tuple(
        f"{cell} on {target}: {wrong}"
        for (cell, target), timing in timings.items()
        if (wrong := timing.wrong if timing else "not timed: no job left a result")
    )
    missing = _not_published(planned, end)
    unpublished = tuple(fault.text for fault in missing)
    bad = sorted({state for state in end.jobs if state not in _ENDED_WELL})
    if bad and not failures and not slower and not unpublished:
        failures = [f"jobs: some ended with {', '.join(bad)}, and left nothing that says why"]
    later = tuple(_omitted(work) for work in planned.later)
    return Judgement(
        failures=tuple(failures),
        unavailable=tuple(_omitted(work) for work in planned.unavailable),
        passed=len(planned.selected) - len(refused),
        slower=slower,
        unpublished=unpublished,
        pending=() if lists_unchecked or checked_by_label else later,
        listed=later if lists_unchecked and not checked_by_label else (),
        noted=(*noted, *(f"{line}; checked by the label" for line in later if checked_by_label)),
        faults=(*broken, *missing),
    )


def demands_of(scope: str, channel: str, channels: Iterable[Channel]) -> Channel:
    """Return what a run has to prove: the demands of the channel that it publishes to, or of the
    nightly that publishes it later. Where nothing is published, a base may be a bootstrapped one.
    """
    by_name = {channel.name: channel for channel in channels}
    if channel:
        return by_name[channel]
    demands = by_name.get(_UNPUBLISHED, Channel(name=scope, tags=(), sessions=SESSIONS))
    return dataclasses.replace(demands, allow=tuple({*demands.allow, "bootstrap", "relaxed"}))


def _admitted(
    planned: Schedule, rows: Mapping[tuple[str, str], ReportRow], end: RunEnd, channel: Channel
) -> tuple[list[Fault], list[str]]:
    """Return what is not proven, and what the channel let pass. Each planned target has to be
    proven, also with `targets: any`: a machine that was planned for it has such a device.
    """
    allow = tuple(exception for exception in channel.allow if exception != "unavailable")
    demands = dataclasses.replace(channel, targets="all", allow=allow)
    refused: list[Fault] = []
    noted: list[str] = []
    for cell, target in planned.selected:
        row, evidence = rows.get((cell, target)), end.evidence.get(cell)
        is_bad = row is not None and row.verify not in {NOT_RUN, Outcome.PASSED}
        outcome = row.verify if row and is_bad else "not proven"
        if evidence is None or target not in {**evidence.verifications, **evidence.unread}:
            refused.append(_fault(f"not verified, no result ({_why(row)})", cell, target, row))
            continue
        alone = dataclasses.replace(
            evidence,
            cell=dataclasses.replace(evidence.cell, targets=(target,)),
            verifications={n: v for n, v in evidence.verifications.items() if n == target},
        )
        verdict = admission(alone, demands, now=end.now)
        noted += [f"{cell}: {text}" for text in verdict.noted]
        if not verdict.admitted:
            why = "; ".join(text.removeprefix(f"{target}: ") for text in verdict.against)
            refused.append(_fault(f"{outcome} ({why})", cell, target, row))
    return refused, noted


def _fault(text: str, cell: str, target: str, row: ReportRow | None) -> Fault:
    """Return the fault of a verification, or without a target, of a build."""
    usual = errors.FailureKind.VERDICT if target else errors.FailureKind.INFRASTRUCTURE
    repeat = repeat_line("verify", cell, target) if target else repeat_line("build", cell)
    return Fault(
        text=f"{' on '.join(filter(None, (cell, target)))}: {text}",
        cell_id=cell,
        target=target,
        kind=(row.kind if row else "") or usual.value,
        repeat=(row.repeat if row else "") or repeat,
    )


def _not_published(planned: Schedule, end: RunEnd) -> list[Fault]:
    missing = []
    for cell in planned.publishing:
        publication, evidence = end.publications.get(cell), end.evidence.get(cell)
        identities, why = evidence.identities if evidence else frozenset(), ""
        if not isinstance(publication, Publication):
            why = publication.reason if publication else "no job left a result"
        elif publication.stage is not Stage.DONE:
            why = f"it broke off at {publication.stage}"
        elif publication.channel != planned.channel:
            why = f"it went to {publication.channel}"
        elif not {publication.image_id, publication.digest} & identities:
            why = f"what was is another image: {publication.image_id}"
        if why:
            failed = publication if isinstance(publication, Failed) else None
            kind = failed.kind if failed else errors.FailureKind.INFRASTRUCTURE
            text = f"{cell}: not published ({why})"
            repeat = f"{repeat_line('publish', cell)} --channel {planned.channel}"
            missing.append(Fault(text=text, cell_id=cell, kind=str(kind), repeat=repeat))
    return missing


def _omitted(omitted: Omitted) -> str:
    return f"{' on '.join(filter(None, (omitted.cell_id, omitted.target)))}: {omitted.reason}"


def _why(row: ReportRow | None) -> str:
    return (row.reason if row else "") or "no job left a result"
