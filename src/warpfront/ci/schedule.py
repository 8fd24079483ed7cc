"""The schedule of a CI run: its jobs by cells, their changes, and the machines. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from warpfront.ci.flow import Job, Limits, builder_of
from warpfront.errors import InputError, StaleError
from warpfront.matrix.cell import Cell
from warpfront.matrix.expansion import verifying_job
from warpfront.matrix.runners import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScope:
    """The trigger of a run, and its extent. `trusted`: self-hosted machines may take part;
    `channel` is the one that it publishes to; `benches`: images are timed against the last release.
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
    """A job: the `cells` of one `vendor` that it takes, and the `target` that it verifies on.
    Its `name` is also that of its artifact; `after` are the jobs whose artifacts it downloads.
    `images` are the cells whose images a build uploads for other jobs.
    """

    name: str
    cells: tuple[str, ...]
    vendor: str = ""
    target: str = ""
    after: tuple[str, ...] = ()
    images: tuple[str, ...] = ()

    def facts(self, runner: str) -> dict[str, str]:
        """Return the facts that a job on a row of runners receives, none of them empty."""
        facts = {
            "name": self.name,
            "cells": " ".join(self.cells),
            "runner": runner,
            "target": self.target,
            "after": ",".join(self.after),
            "images": " ".join(self.images),
        }
        return {name: fact for name, fact in facts.items() if fact}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Omitted:
    """A cell on a target (`""`: as a whole) that no job is for, and why."""

    cell_id: str
    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A run of CI. `build`, `verify` and `bench` are jobs by their runner's name. `unavailable`
    was requested and no machine can do it; `later` is for another scope; `unchanged` need nothing.
    """

    scope: str
    channel: str
    build: Mapping[str, tuple[Work, ...]]
    verify: Mapping[str, tuple[Work, ...]]
    bench: Mapping[str, tuple[Work, ...]] = field(default_factory=dict)
    publish: tuple[Work, ...] = ()
    unchanged: tuple[str, ...] = ()
    unavailable: tuple[Omitted, ...] = ()
    later: tuple[Omitted, ...] = ()
    notes: tuple[str, ...] = ()
    fingerprints: Mapping[str, str] = field(default_factory=dict)

    @property
    def selected(self) -> tuple[tuple[str, str], ...]:
        """Return every cell and target that has to pass."""
        return _on_targets(self.verify)

    @property
    def timed(self) -> tuple[tuple[str, str], ...]:
        """Return every cell and target that is compared with its last release."""
        return _on_targets(self.bench)

    @property
    def publishing(self) -> tuple[str, ...]:
        """Return every cell that has to be published."""
        return tuple(cell for work in self.publish for cell in work.cells)

    @property
    def works(self) -> frozenset[str]:
        """Return the names of all works."""
        kinds = (*self.build.values(), *self.verify.values(), *self.bench.values(), self.publish)
        return frozenset(work.name for kind in kinds for work in kind)

    @property
    def building(self) -> tuple[str, ...]:
        """Return every cell that has to be built."""
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
    """Return the jobs for `cells` in `scope`. `now` and `before` are their fingerprints, here
    and at the base commit (None: there is nothing to compare with). `blocked` maps cells that can
    be made nowhere to the reason, `offline` rows of machines that would take no job.
    """
    cells, runners = tuple(cells), tuple(runners)
    compared = before if scope.only_changed and before is not None else {}
    changed = [cell for cell in cells if compared.get(cell.id) != now[cell.id]]
    makers, unavailable = dict[str, str](), list[Omitted]()
    for cell in changed:
        # A hosted machine before one of our own, which builds need not occupy.
        builder = builder_of(cell.machine, runners, trusted=scope.trusted)
        why = f"no runner that may take part builds for {cell.machine}"
        if builder and cell.id not in blocked:
            makers[cell.id] = builder.name
        else:
            reason = blocked.get(cell.id, why)
            unavailable.append(Omitted(cell_id=cell.id, target="", reason=reason))
    buildable = [cell for cell in changed if cell.id in makers]
    # The cell at the bottom of a chain of parents, whose job makes all of the chain: its layers
    # are warm there.
    roots: dict[str, str] = {}
    for cell in cells:  # parents come before children
        roots[cell.id] = roots.get(cell.parent, cell.parent) if cell.parent else cell.id
    verify, missing = _verifying(buildable, roots, runners, scope, offline or {})
    if scope.trusted:  # else machines of another scope may have the targets
        unavailable += missing
    handed = set() if scope.channel else {cell for cell, _ in _on_targets(verify)}
    return Schedule(
        scope=scope.name,
        channel=scope.channel,
        build=_building(buildable, makers, roots, handed),
        verify=verify,
        bench=_benching(verify, buildable, runners) if scope.benches else {},
        publish=_publishing(buildable, roots, verify) if scope.channel else (),
        unchanged=tuple(cell.id for cell in cells if compared.get(cell.id) == now[cell.id]),
        unavailable=tuple(sorted(unavailable)),
        later=() if scope.trusted else tuple(sorted(missing)),
        fingerprints=now,
    )


def _building(
    cells: Iterable[Cell],
    makers: Mapping[str, str],
    roots: Mapping[str, str],
    handed: Container[str],
) -> dict[str, tuple[Work, ...]]:
    """Return one work for each chain. `handed` are the cells that other jobs verify, and whose
    images go there as an artifact.
    """
    chains: dict[tuple[str, str, str], list[str]] = {}
    for cell in cells:
        chains.setdefault((makers[cell.id], roots[cell.id], cell.vendor), []).append(cell.id)
    works: dict[str, tuple[Work, ...]] = {}
    for (runner, root, vendor), chain in chains.items():
        images = tuple(cell for cell in chain if cell in handed)
        work = Work(name=f"build-{root}", cells=tuple(chain), vendor=vendor, images=images)
        works[runner] = (*works.get(runner, ()), work)
    return works


def _publishing(
    cells: Iterable[Cell], roots: Mapping[str, str], verify: Mapping[str, tuple[Work, ...]]
) -> tuple[Work, ...]:
    """Return one work for each cell that is verified on some target, with its build and
    verifications and nothing else. A cell that no machine verifies cannot be published.
    """
    proofs: dict[str, list[str]] = {}
    for each in verify.values():
        for work in each:
            for cell in work.cells:
                proofs.setdefault(cell, []).append(work.name)
    return tuple(
        Work(
            name=f"publish-{cell.id}",
            cells=(cell.id,),
            vendor=cell.vendor,
            after=(f"build-{roots[cell.id]}", *proofs[cell.id]),
        )
        for cell in cells
        if cell.id in proofs
    )


def _verifying(
    cells: Iterable[Cell],
    roots: Mapping[str, str],
    runners: Iterable[Runner],
    scope: RunScope,
    offline: Mapping[str, str],
) -> tuple[dict[str, tuple[Work, ...]], list[Omitted]]:
    works, missing = dict[str, tuple[Work, ...]](), list[Omitted]()
    for cell in cells:
        for target in cell.targets:
            fits = [row for row in runners if row.verifies(cell.vendor, target, cell.machine)]
            allowed = [fit for fit in fits if scope.trusted or fit.trust == "hosted"]
            usable = [runner for runner in allowed if runner.name not in offline]
            if usable:
                work = Work(
                    name=verifying_job(cell.id, target),
                    cells=(cell.id,),
                    vendor=cell.vendor,
                    target=target,
                    after=(f"build-{roots[cell.id]}",),
                )
                works[usable[0].name] = (*works.get(usable[0].name, ()), work)
            else:
                asleep = "; ".join(offline[fit.name] for fit in allowed)
                reason = asleep or f"no runner of the table has {target}"
                missing.append(Omitted(cell_id=cell.id, target=target, reason=reason))
    return works, missing


def _benching(
    verify: Mapping[str, tuple[Work, ...]], cells: Iterable[Cell], runners: Iterable[Runner]
) -> dict[str, tuple[Work, ...]]:
    """Return the benchmarks of chains' first images, on the machines that verify them."""
    roots, works = {cell.id for cell in cells if not cell.parent}, dict[str, tuple[Work, ...]]()
    for runner in (runner for runner in runners if runner.bench):
        for work in verify.get(runner.name, ()):
            if roots.issuperset(work.cells):
                name, after = f"bench-{work.name.removeprefix('verify-')}", (*work.after, work.name)
                timed = dataclasses.replace(work, name=name, after=after)
                works[runner.name] = (*works.get(runner.name, ()), timed)
    return works


def works_of(job: Job, planned: Schedule) -> tuple[tuple[str, Work], ...]:
    """Return the works of a job, each with the row that does it. An image to publish goes to
    the registry as it is built (`candidate` in the place of `build`).
    """
    if job.kind == "publish":
        works = (work for work in planned.publish if work.vendor == job.vendor)
        return tuple((job.runner.name, work) for work in works)
    if job.kind in {"build", "candidate"} and (job.kind == "candidate") != bool(planned.channel):
        return ()
    kinds = {"verify": planned.verify, "bench": planned.bench}
    by_row = kinds.get(job.kind, planned.build)
    pairs = ((row.name, work) for row in job.runners for work in by_row.get(row.name, ()))
    return tuple((name, work) for name, work in pairs if work.vendor == job.vendor)


def shards(works: Iterable[tuple[str, Work]], limit: int) -> list[dict[str, object]]:
    """Return jobs as a matrix of matrices: each shard with a number and at most `limit` jobs."""
    entries = [work.facts(runner) for runner, work in works]
    starts = range(0, len(entries), limit)
    return [{"shard": n // limit + 1, "jobs": entries[n : n + limit]} for n in starts]


def outputs(planned: Schedule, jobs: Iterable[Job], limits: Limits) -> dict[str, str]:
    """Return the outputs of the job `plan` by name, `[]` where there is nothing to do. Raises
    `InputError` where the CI service would refuse it for its size.
    """
    works = {job.name: works_of(job, planned) for job in jobs if job.spread}
    if lost := planned.works - {work.name for each in works.values() for _, work in each}:
        raise StaleError(
            f"no job of the workflows does {', '.join(sorted(lost))}",
            hint="`warpfront ci write`, and commit the result",
        )
    lists = {name: shards(work, limits["jobs_per_matrix"]) for name, work in works.items()}
    texts = {name: json.dumps(value, separators=(",", ":")) for name, value in lists.items()}
    texts["channel"] = planned.channel
    size = sum(len((name + text).encode("utf-16-le")) for name, text in texts.items())
    if size > limits["output_bytes"]:
        raise InputError(
            f"{len(planned.selected)} verifications make {size} bytes of job outputs, and a job "
            f"may have {limits['output_bytes']}",
            hint="run CI for a part of the matrix: --vendor, --image, --only",
        )
    return texts
