"""bench: time operations inside each built image, and write a record to the image's results. A slow
image is not a wrong one. At night it is timed in turns with the last release of its cell.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import warpfront
from warpfront.bench.compare import ComparisonTerms, compare_benches
from warpfront.bench.nights import NightStanding, standing_of
from warpfront.bench.record_files import NoRecordError, bench_document, bench_of
from warpfront.bench.records import Bench, Comparison
from warpfront.commands.adopting import as_labelled, pull
from warpfront.commands.channels import open_channel
from warpfront.errors import CommandFailedError, EngineError, SlowerError, StoreError
from warpfront.images.built import CREATED
from warpfront.images.engine.protocol import Engine, connect
from warpfront.images.labels import CELL, CONTENT_HASH
from warpfront.images.preparing import CellInputs, Tools, locked_inputs
from warpfront.matrix.cell import Cell, DeviceAccess, Selection
from warpfront.matrix.runners import Runner
from warpfront.matrix.vendors import VENDORS
from warpfront.pipeline.verifying import (
    VerifiableImage,
    prepare_folder,
    project_images,
    request_inside,
)
from warpfront.pipeline.workspace import Workspace
from warpfront.release.ledger import Stock
from warpfront.step_results import Blocked, Failed
from warpfront.system.foreign import result_in
from warpfront.system.process import run
from warpfront.system.progress import Watch
from warpfront.system.provenance import now, read_provenance
from warpfront.system.references import read_reference
from warpfront.system.store import Store, exclusive, write_json, write_text
from warpfront.verify.containers import ending_of, run_told
from warpfront.verify.results import Verification
from warpfront.verify.verdict import outcome_of
from warpfront.wheels.project_folders import Folders
from warpfront_checks.bench.options import BENCH_OPTIONS, BenchEffort, read_bench_effort

Benched = Bench | Blocked | Failed
SESSION = "bench"
NOT_VERIFIED = "not verified"
PUBLISHED = "published"
# All of `seed` takes minutes; a device that hangs would keep the machine for good.
TIME_LIMIT_SECONDS = 3600.0


def bench(
    workspace: Workspace, selection: Selection, watch: Watch, *, effort: BenchEffort
) -> Iterator[Benched]:
    """Each selected cell's image, on each of its targets, or on the selected one."""
    folders, matrix, material = workspace.folders, workspace.matrix, workspace.material
    inputs = locked_inputs(matrix, material, folders, selection)
    tools = Tools(engine=connect(), folders=folders)
    for timing in timings(inputs, tools, watch, target=selection.target, effort=effort):
        yield timing.run(tools.engine, watch) if isinstance(timing, ImageTiming) else timing


def timings(
    inputs: CellInputs, tools: Tools, watch: Watch, *, target: str, effort: BenchEffort
) -> Iterator[ImageTiming | Blocked | Failed]:
    """Yield the timings of cells, on `target` or on each of theirs, or why one is impossible."""
    tool = tool_here(tools.folders.root)
    for image in project_images(inputs, tools, watch, target=target):
        if isinstance(image, Blocked | Failed):
            yield image
        else:
            yield ImageTiming(image=image, folders=tools.folders, effort=effort, tool=tool)


def tool_here(root: Path) -> dict[str, str]:
    """Return this version and the commit that is checked out."""
    return {"version": warpfront.__version__, "git": read_provenance(root, run).revision}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTiming:
    """An image of a cell on one target; `released` is a published one."""

    image: VerifiableImage
    folders: Folders
    effort: BenchEffort
    tool: Mapping[str, str]
    released: bool = False

    @property
    def cell(self) -> Cell:
        return self.image.cell

    @property
    def target(self) -> str:
        return self.image.claims.target

    @property
    def folder(self) -> Path:
        folder = self.folders.store.cell_folder(self.cell.id) / f"bench-{self.target}"
        return folder / "release" if self.released else folder

    def run(self, engine: Engine, watch: Watch) -> Benched:
        """Alone in its folder; whatever goes wrong with this image, the next one has its turn."""
        watch.step(self.cell.id, f"timing on {self.target}")
        try:
            with exclusive(self.folder, watch.say):
                return self._run(engine, watch)
        except (StoreError, EngineError) as error:
            engine.reap()
            return self._failed(error.message, error.hint, error.exit_code)
        finally:
            watch.step(self.cell.id, "")

    def _run(self, engine: Engine, watch: Watch) -> Benched:
        record = self.folder.with_suffix(".json")
        record.unlink(missing_ok=True)
        prepare_folder(self.folder, self.image.claims)
        access = VENDORS[self.cell.vendor].device_access(engine.host_devices()) or DeviceAccess()
        words = (SESSION, "--", *self.effort.arguments())
        request = request_inside(self.image, self.folder, words, access)
        request = dataclasses.replace(request, time_limit_seconds=TIME_LIMIT_SECONDS)
        result, output = run_told(engine, request, watch, self.cell.id)
        write_text(self.folder / "output.log", output.text)
        built, store = self.image.built, self.folders.store
        verification = store.readable(built.cell_id, f"verify-{self.target}", (Verification,))
        is_of_it = verification is not None and verification.content_hash == built.content_hash
        verified = outcome_of(verification).value if is_of_it else NOT_VERIFIED
        whose = {
            "cell_id": self.cell.id,
            "image_digest": built.image_id,
            "content_hash": built.content_hash,
            "verified": PUBLISHED if self.released else verified,
            "target": self.target,
            "at": now(),
            "tool": dict(self.tool),
        }
        try:
            bench = bench_of(result_in(self.folder / "results" / f"{SESSION}.json"), whose=whose)
        except NoRecordError as error:
            ending = ending_of(result, limit_seconds=TIME_LIMIT_SECONDS)
            hint = f"what it said is in {self.folder / 'output.log'}"
            return self._failed("; ".join(filter(None, (str(error), ending))), hint)
        write_json(record, bench_document(bench))
        watch.say(f"{self.cell.id} on {self.target}: {record}")
        return bench

    def _failed(self, reason: str, hint: str, code: int = CommandFailedError.exit_code) -> Failed:
        return Failed(
            cell_id=self.cell.id,
            step="verify",
            reason=f"not timed: {reason}",
            hint=hint,
            exit_code=code,
            repeat=f"warpfront bench run --only {self.cell.id} --target {self.target}",
        )


RELEASE = "release"
"""The channel whose images a night is compared with."""


def standing_name(target: str) -> str:
    """Its file in build/<cell>/, which goes where the timings go."""
    return f"bench-{target}-standing"


def kept_standing(store: Store, cell_id: str, target: str) -> NightStanding | None:
    kept: NightStanding | None = store.load(cell_id, standing_name(target), (NightStanding,))
    return kept


def hold_against_release(
    workspace: Workspace, cell_id: str, row: Runner, watch: Watch, *, target: str
) -> Sequence[object]:
    """Return the timings of the cell's image and their comparison, or a failure if worse."""
    folders, matrix, material = workspace.folders, workspace.matrix, workspace.material
    store, engine = folders.store, connect()
    chosen = Selection(only=cell_id, target=target)
    inputs = locked_inputs(matrix, material, folders, chosen)
    tools = Tools(engine=engine, folders=folders)
    usual = {option.name: option.default for option in BENCH_OPTIONS}
    effort = read_bench_effort(**{**usual, "preset": row.bench})
    (timing,) = timings(inputs, tools, watch, target=target, effort=effort)
    if not isinstance(timing, ImageTiming):
        return [timing]
    store.drop(cell_id, standing_name(target))
    released = last_release(_published(workspace, chosen), cell_id, RELEASE)
    standing = _stood(timing, released, engine, watch, max_slower=row.slower_share)
    if not isinstance(standing, NightStanding):
        return [standing]
    store.save(cell_id, standing_name(target), standing)
    watch.say(f"{cell_id} {standing.text}")
    if not standing.wrong:
        return [standing]
    folder = f"build/{cell_id}/bench-{target}"
    failed = Failed(
        cell_id=cell_id,
        step="bench",
        reason=standing.wrong,
        hint=f"{folder}.json has this night's times, {folder}/release.json those of the release",
        exit_code=SlowerError.exit_code,
        repeat=f"warpfront bench compare {folder}/release.json {folder}.json",
    )
    return [failed]


def _published(workspace: Workspace, selection: Selection) -> tuple[Stock, ...]:
    if all(channel.name != RELEASE for channel in workspace.matrix.channels):
        return ()
    with open_channel(workspace, selection, channel=RELEASE) as repositories:
        return repositories.stock()


def last_release(stocks: Iterable[Stock], cell_id: str, channel: str) -> Stock | None:
    """Return the newest image of a cell that was verified for a channel and not withdrawn."""
    of_cell = (stock for stock in stocks if stock.labels.get(CELL) == cell_id)
    fits = (stock for stock in of_cell if channel in stock.channels and not stock.yanked)
    return max(fits, key=lambda fit: fit.labels.get(CREATED, ""), default=None)


def _stood(
    timing: ImageTiming, released: Stock | None, engine: Engine, watch: Watch, *, max_slower: float
) -> NightStanding | Blocked | Failed:
    """Time the release, then the night; once more the other way round where something was slower.
    The night alone, without a release of other content.
    """
    release = released.digest if released else ""
    standing = NightStanding(cell_id=timing.cell.id, target=timing.target, release=release)
    same = released and released.labels.get(CONTENT_HASH) == timing.image.built.content_hash
    if released is None or same:
        timed = timing.run(engine, watch)
        return standing if isinstance(timed, Bench) else timed
    named = read_reference(f"{released.repository}@{release}")
    started, image = time.monotonic(), pull(named, engine, watch)
    comparisons: list[Comparison] = []
    try:
        built = as_labelled(timing.cell, image, seconds=time.monotonic() - started)
        image_before = dataclasses.replace(timing.image, built=built)
        before = dataclasses.replace(timing, image=image_before, released=True)
        for order in ((before, timing), (timing, before)):
            runs = {timed_run.released: timed_run.run(engine, watch) for timed_run in order}
            old, new = runs[True], runs[False]
            if not isinstance(new, Bench):
                return new
            if not isinstance(old, Bench):
                return dataclasses.replace(standing, reason=f"the release: {old.reason}")
            terms = ComparisonTerms(max_slower=max_slower)
            comparisons.append(compare_benches((release, old), ("this night", new), terms))
            if not comparisons[-1].slower:
                break
            where = f"{timing.cell.id}: slower than the release on {timing.target}"
            watch.say(f"{where}; once more, in turns")
    finally:
        engine.remove(f"{named.name}@{named.digest}")
    return standing_of(timing.cell.id, timing.target, release, comparisons)
