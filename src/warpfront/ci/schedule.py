"""Which jobs a run of CI has: from cells, what changed of them, and the machines. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from warpfront.errors import InputError
from warpfront.matrix.runners import Runner
from warpfront.model import Cell

JOBS_PER_SHARD = 256
"""https://docs.github.com/en/actions/reference/limits: jobs that one matrix generates."""
OUTPUT_LIMIT_BYTES = 1_000_000
"""The same page: what the outputs of one job may hold is 1 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScope:
    """What starts a run, and how far it goes. `trusted`: self-hosted machines may take part;
    `channel` is where it publishes to; `benches`: images are timed against the last release.
    """

    name: str
    only_changed: bool
    trusted: bool
    channel: str = ""
    benches: bool = False


SCOPES: Mapping[str, RunScope] = {
    scope.name: scope
    for scope in (
        RunScope(name="pull_request", only_changed=True, trusted=False),
        RunScope(name="labelled", only_changed=True, trusted=True),
        RunScope(name="merge_queue", only_changed=True, trusted=True),
        RunScope(name="merged", only_changed=True, trusted=True),
        RunScope(name="nightly", only_changed=False, trusted=True, channel="nightly", benches=True),
        RunScope(name="release", only_changed=False, trusted=True, channel="release"),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One job: the `cells` that it takes, and the `target` where it verifies. `name` is its name in
    the forge and that of what it hands over; `after` are the jobs whose hand-overs it is given.
    """

    name: str
    cells: tuple[str, ...]
    target: str = ""
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Omitted:
    """A cell on a target (`""`: as a whole) that no job is for, and why."""

    cell_id: str
    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A run of CI. `build`, `verify` and `bench` are jobs by their runner's name, `publish` by
    vendor. `unavailable` was asked for and nobody can do it; `later` is for another scope;
    `unchanged` need nothing.
    """

    scope: str
    channel: str
    build: Mapping[str, tuple[Work, ...]]
    verify: Mapping[str, tuple[Work, ...]]
    bench: Mapping[str, tuple[Work, ...]] = field(default_factory=dict)
    publish: Mapping[str, tuple[Work, ...]] = field(default_factory=dict)
    unchanged: tuple[str, ...] = ()
    unavailable: tuple[Omitted, ...] = ()
    later: tuple[Omitted, ...] = ()
    notes: tuple[str, ...] = ()
    fingerprints: Mapping[str, str] = field(default_factory=dict)

    @property
    def selected(self) -> tuple[tuple[str, str], ...]:
        """Every cell and target that has to pass."""
        return _on_targets(self.verify)

    @property
    def timed(self) -> tuple[tuple[str, str], ...]:
        """Every cell and target that is held against its last release."""
        return _on_targets(self.bench)

    @property
    def publishing(self) -> tuple[str, ...]:
        """Every cell that has to be published."""
        return tuple(cell for cell, _ in _on_targets(self.publish))

    @property
    def building(self) -> tuple[str, ...]:
        """Every cell that has to be built."""
        return tuple(cell for cell, _ in _on_targets(self.build))


def _on_targets(works: Mapping[str, tuple[Work, ...]]) -> tuple[tuple[str, str], ...]:
    every = (work for each in works.values() for work in each)
    return tuple((cell, work.target) for work in every for cell in work.cells)


def schedule(
    cells: Iterable[Cell],
    *,
    scope: RunScope,
    runners: Iterable[Runner],
    now: Mapping[str, str],
    before: Mapping[str, str] | None,
    blocked: Mapping[str, str],
    offline: Mapping[str, str] | None = None,
) -> Schedule:
    """The jobs for `cells` in `scope`. `now` and `before` are their fingerprints, here and at the
    commit that is compared with (None: there is nothing to compare with). `blocked` maps cells that
    can be made nowhere to the reason, `offline` rows of machines that would take no job.
    """
    cells, runners = tuple(cells), tuple(runners)
    compared = before if scope.only_changed and before is not None else {}
    changed = [cell for cell in cells if compared.get(cell.id) != now[cell.id]]
    makers = {cell.id: _builder(cell, runners, scope) for cell in changed if cell.id not in blocked}
    unavailable = [
        Omitted(cell_id=cell.id, target="", reason=why)
        for cell in changed
        if (why := _why_not_built(cell, makers, blocked))
    ]
    made = [cell for cell in changed if makers.get(cell.id)]
    work = {cell.id for cell in changed}
    roots = _roots(cells)
    verify, missing, later = _verifying(made, roots, runners, scope, offline or {})
    return Schedule(
        scope=scope.name,
        channel=scope.channel,
        build=_building(made, makers, roots),
        verify=verify,
        bench=_benching(verify, made, runners) if scope.benches else {},
        publish=_publishing(verify, made, roots) if scope.channel else {},
        unchanged=tuple(cell.id for cell in cells if cell.id not in work),
        unavailable=tuple(sorted([*unavailable, *missing])),
        later=tuple(sorted(later)),
        fingerprints=now,
    )


def _roots(cells: Iterable[Cell]) -> dict[str, str]:
    """Cell -> the cell at the bottom of its chain of parents, whose job makes all of the chain: its
    layers are warm there.
    """
    roots: dict[str, str] = {}
    for cell in cells:  # parents come before children
        roots[cell.id] = roots.get(cell.parent, cell.parent) if cell.parent else cell.id
    return roots


def _builder(cell: Cell, runners: Iterable[Runner], scope: RunScope) -> str:
    """A hosted machine before one of our own, which makers of images need not keep busy."""
    fits = [one for one in runners if one.builds and one.machine == cell.machine]
    usable = [one for one in fits if one.trust == "hosted" or scope.trusted]
    return min(usable, key=lambda one: one.trust != "hosted").name if usable else ""


def _why_not_built(cell: Cell, makers: Mapping[str, str], blocked: Mapping[str, str]) -> str:
    if cell.id in blocked:
        return blocked[cell.id]
    return "" if makers[cell.id] else f"no runner that may take part builds for {cell.machine}"


def _building(
    cells: Iterable[Cell], makers: Mapping[str, str], roots: Mapping[str, str]
) -> dict[str, tuple[Work, ...]]:
    chains: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        chains.setdefault((makers[cell.id], roots[cell.id]), []).append(cell.id)
    works: dict[str, list[Work]] = {}
    for (runner, root), chain in chains.items():
        works.setdefault(runner, []).append(Work(name=f"build-{root}", cells=tuple(chain)))
    return {runner: tuple(each) for runner, each in works.items()}


def _verifying(
    cells: Iterable[Cell],
    roots: Mapping[str, str],
    runners: Iterable[Runner],
    scope: RunScope,
    offline: Mapping[str, str],
) -> tuple[dict[str, tuple[Work, ...]], list[Omitted], list[Omitted]]:
    works: dict[str, list[Work]] = {}
    missing: list[Omitted] = []
    later: list[Omitted] = []
    for cell in cells:
        for target in cell.targets:
            fits = [one for one in runners if one.verifies(cell.vendor, target, cell.machine)]
            allowed = [one for one in fits if scope.trusted or one.trust == "hosted"]
            usable = [one for one in allowed if one.name not in offline]
            asleep = "; ".join(offline[one.name] for one in allowed if one.name in offline)
            reason = asleep or f"no runner of the table has {target}"
            omitted = Omitted(cell_id=cell.id, target=target, reason=reason)
            if usable:
                work = Work(
                    name=verifying_job(cell.id, target),
                    cells=(cell.id,),
                    target=target,
                    after=(f"build-{roots[cell.id]}",),
                )
                works.setdefault(usable[0].name, []).append(work)
            else:
                (missing if scope.trusted else later).append(omitted)
    return {runner: tuple(each) for runner, each in works.items()}, missing, later


def verifying_job(cell_id: str, target: str) -> str:
    """The name of the job that verifies a cell on a target."""
    return f"verify-{cell_id}-{target}"


def _publishing(
    verify: Mapping[str, tuple[Work, ...]], cells: Iterable[Cell], roots: Mapping[str, str]
) -> dict[str, tuple[Work, ...]]:
    """A job for each cell that is verified on some target, by vendor: it waits for no machine of
    another vendor, which may be switched off.
    """
    verifying: dict[str, list[str]] = {}
    for work in (work for each in verify.values() for work in each):
        for cell_id in work.cells:
            verifying.setdefault(cell_id, []).append(work.name)
    works: dict[str, list[Work]] = {}
    for cell in cells:
        if names := verifying.get(cell.id):
            after = (f"build-{roots[cell.id]}", *names)
            work = Work(name=f"publish-{cell.id}", cells=(cell.id,), after=after)
            works.setdefault(cell.vendor, []).append(work)
    return {vendor: tuple(each) for vendor, each in works.items()}


def _benching(
    verify: Mapping[str, tuple[Work, ...]], cells: Iterable[Cell], runners: Iterable[Runner]
) -> dict[str, tuple[Work, ...]]:
    """What is verified, timed where it was: the first image of a chain, whose torch all have."""
    roots = {cell.id for cell in cells if not cell.parent}
    return {
        one.name: works
        for one in runners
        if one.bench
        and (
            works := tuple(
                dataclasses.replace(
                    work,
                    name=f"bench-{work.name.removeprefix('verify-')}",
                    after=(*work.after, work.name),
                )
                for work in verify.get(one.name, ())
                if roots.issuperset(work.cells)
            )
        )
    }


def verified_vendors(runners: Iterable[Runner]) -> tuple[str, ...]:
    """The vendors whose cells some machine verifies: no other cell can be published."""
    return tuple(dict.fromkeys(one.vendor for one in runners if one.targets))


def shards(works: Iterable[Work]) -> list[dict[str, object]]:
    """Jobs as a forge's matrix of matrices: each shard with a name and no more jobs than one
    matrix may have.
    """
    entries = [
        {
            "name": work.name,
            "cells": " ".join(work.cells),
            **({"target": work.target, "after": ",".join(work.after)} if work.target else {}),
        }
        for work in works
    ]
    return [
        {"shard": number // JOBS_PER_SHARD + 1, "jobs": entries[number : number + JOBS_PER_SHARD]}
        for number in range(0, len(entries), JOBS_PER_SHARD)
    ]


def outputs(planned: Schedule, runners: Iterable[Runner]) -> dict[str, str]:
    """What the job `plan` tells the others: name -> text, `[]` where there is nothing to do. What
    is to be published is sent to the registry as it is built (`candidate`). Raises `InputError`
    where a forge would refuse it for its size.
    """
    runners, sent = tuple(runners), bool(planned.channel)
    names = [runner.name for runner in runners]
    vendors = verified_vendors(runners)

    def works(name: str) -> tuple[Work, ...]:
        return planned.build.get(name, ())

    said = {
        **{f"build-{name}": shards(() if sent else works(name)) for name in names},
        **{f"candidate-{name}": shards(works(name) if sent else ()) for name in names},
        **{f"verify-{name}": shards(planned.verify.get(name, ())) for name in names},
        **{f"bench-{name}": shards(planned.bench.get(name, ())) for name in names},
        **{f"publish-{name}": shards(planned.publish.get(name, ())) for name in vendors},
    }
    texts = {name: json.dumps(value, separators=(",", ":")) for name, value in said.items()}
    texts["channel"] = planned.channel
    size = sum(len(name) + len(text) for name, text in texts.items())
    if size > OUTPUT_LIMIT_BYTES:
        raise InputError(
            f"{len(planned.selected)} verifications make {size} bytes of job outputs, and a forge "
            f"takes {OUTPUT_LIMIT_BYTES}",
            hint="run CI for a part of the matrix: --vendor, --image, --only",
        )
    return texts
