"""An image of this night against the last release of its cell: both timed here, one after the
other, so that neither machine nor day is what differs.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence

from warpfront.bench.compare import ComparisonTerms, compare_benches
from warpfront.bench.nights import NightStanding, standing_of
from warpfront.bench.records import Bench, Comparison
from warpfront.commands.adopting import as_labelled, pull
from warpfront.commands.benching import ImageTiming, Timeable
from warpfront.commands.keeping import house_of
from warpfront.errors import SlowerError
from warpfront.images.engine import Engine, connect
from warpfront.images.labels import CELL, CONTENT_HASH, CREATED
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.reading import Matrix
from warpfront.matrix.runners import Runner
from warpfront.pipeline.workspace import Workspace
from warpfront.release.ledger import Stock
from warpfront.step_results import Blocked, Failed
from warpfront.system.process import environment
from warpfront.system.progress import Watch
from warpfront.system.references import read_reference
from warpfront.system.store import Store
from warpfront_checks.bench.options import BENCH_OPTIONS, read_bench_effort

RELEASE = "release"
"""The channel whose images a night is held against."""


def standing_name(target: str) -> str:
    """Its file in build/<cell>/, which goes where the timings go."""
    return f"bench-{target}-standing"


def kept_standing(store: Store, cell_id: str, target: str) -> NightStanding | None:
    night_standing: NightStanding | None = store.load(
        cell_id, standing_name(target), (NightStanding,)
    )
    return night_standing


def hold_against_release(
    workspace: Workspace, cell_id: str, row: Runner, watch: Watch, *, target: str
) -> Sequence[object]:
    """Return the timings of the cell's image and their comparison, or a failure if
    they are worse.
    """
    matrix, requirements = workspace.matrix, workspace.requirements
    folders, compat = workspace.folders, workspace.material.compat
    store, engine = folders.store, connect(environment())
    project = Timeable(
        cells=matrix.cells, requirements=requirements, folders=folders, compat=compat
    )
    usual = {option.name: option.default for option in BENCH_OPTIONS}
    effort = read_bench_effort(**{**usual, "preset": row.bench})
    chosen = Selection(only=cell_id, target=target)
    (timing,) = project.timings(chosen, watch, engine, effort=effort)
    if not isinstance(timing, ImageTiming):
        return [timing]
    store.drop(cell_id, standing_name(target))
    released = last_release(_published(matrix, store, timing.cell), cell_id, RELEASE)
    standing = _stood(timing, released, engine, watch, max_slower=row.max_slower)
    if not isinstance(standing, NightStanding):
        return [standing]
    store.save(cell_id, standing_name(target), standing)
    watch.say(f"{cell_id} {standing.text}")
    return [_failed(standing)] if standing.wrong else [standing]


def _published(matrix: Matrix, store: Store, cell: Cell) -> tuple[Stock, ...]:
    if all(channel.name != RELEASE for channel in matrix.channels):
        return ()
    with house_of(matrix, store, (cell,), channel=RELEASE) as house:
        return house.stock()


def last_release(stocks: Iterable[Stock], cell_id: str, channel: str) -> Stock | None:
    """Return the newest image of a cell that was verified for a channel and not withdrawn."""
    fits = [
        stock
        for stock in stocks
        if channel in stock.channels and not stock.yanked and stock.labels.get(CELL) == cell_id
    ]
    return max(fits, key=lambda fit: fit.labels.get(CREATED, ""), default=None)


def _stood(
    timing: ImageTiming, released: Stock | None, engine: Engine, watch: Watch, *, max_slower: float
) -> NightStanding | Blocked | Failed:
    cell_id, target = timing.cell.id, timing.target
    same = released and released.labels.get(CONTENT_HASH) == timing.built.content_hash
    if released is None or same:
        timed = timing.run(engine, watch)
        release = released.digest if released else ""
        night_standing = NightStanding(cell_id=cell_id, target=target, release=release)
        return night_standing if isinstance(timed, Bench) else timed
    named = read_reference(f"{released.repository}@{released.digest}")
    started, image = time.monotonic(), pull(named, engine, watch)
    try:
        built = as_labelled(timing.cell, image, seconds=time.monotonic() - started)
        before = dataclasses.replace(timing, built=built, released=True)
        return _in_turns(before, timing, released.digest, engine, watch, max_slower=max_slower)
    finally:
        engine.remove(f"{named.name}@{named.digest}")


def _in_turns(
    before: ImageTiming,
    now: ImageTiming,
    release: str,
    engine: Engine,
    watch: Watch,
    *,
    max_slower: float,
) -> NightStanding | Blocked | Failed:
    """Release, night; and once more the other way round where something was slower."""
    terms = ComparisonTerms(max_slower=max_slower)
    comparisons: list[Comparison] = []
    for order in ((before, now), (now, before)):
        timed = {timed_run.released: timed_run.run(engine, watch) for timed_run in order}
        timed_run, other = timed[True], timed[False]
        if not isinstance(other, Bench):
            return other
        if not isinstance(timed_run, Bench):
            reason = f"the release: {timed_run.reason}"
            return NightStanding(
                cell_id=now.cell.id, target=now.target, release=release, reason=reason
            )
        comparisons.append(compare_benches((release, timed_run), ("this night", other), terms))
        if not comparisons[-1].slower:
            break
        watch.say(f"{now.cell.id}: slower than the release on {now.target}; once more, in turns")
    return standing_of(now.cell.id, now.target, release, comparisons)


def _failed(night_standing: NightStanding) -> Failed:
    folder = f"build/{night_standing.cell_id}/bench-{night_standing.target}"
    return Failed(
        cell_id=night_standing.cell_id,
        step="bench",
        reason=night_standing.wrong,
        hint=f"{folder}.json has this night's times, {folder}/release.json those of the release",
        exit_code=SlowerError.exit_code,
        repeat=f"warpfront bench compare {folder}/release.json {folder}.json",
    )
