"""work: one job of CI, with what it is handed, and what it hands over whatever came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from warpfront.ci.flow import HANDOVER, LEFT
from warpfront.ci.handover import demand, handed_over, leave, merge
from warpfront.ci.retrying import RETRIES, pause_seconds, with_flakiness, worth_another_try
from warpfront.errors import FailureKind, InputError, WarpfrontError
from warpfront.images.built import BuiltImage
from warpfront.step_results import Blocked, Failed, StepName, failed_by
from warpfront.system.progress import Watch
from warpfront.system.store import Store
from warpfront.verify.results import Verification
from warpfront.verify.verdict import sealed
from warpfront.wheels.project_folders import Folders

Pause = Callable[[float], None]
Act = Callable[[str], Sequence[object]]
"""A step of one cell: what it made of it, and of the cells that it stands on."""

STEPS_OF_JOBS = ("build", "verify", "bench", "publish")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """The step, cells and target of a CI job. `after` are the artifacts that it needs."""

    step: StepName
    name: str
    cells: tuple[str, ...]
    target: str = ""
    after: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.step not in STEPS_OF_JOBS or not self.name or not self.cells:
            steps = "|".join(STEPS_OF_JOBS)
            raise InputError(f"a job is `--step {steps}`, with --name and --cells")

    @property
    def files(self) -> str:
        """The prefix of the names of the step's result files."""
        on_target = self.step in {"verify", "bench"}
        return f"{self.step}-{self.target}" if on_target else self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The results of a job, and the number of tries of each cell."""

    results: tuple[object, ...]
    tries: Mapping[str, int]


def work(
    job_request: JobRequest,
    act: Act,
    folders: Folders,
    *,
    watch: Watch,
    prepare: Callable[[], object] = lambda: None,
    finish: Callable[[Sequence[object]], object] = lambda _results: None,
    retries: int = RETRIES,
    pause: Pause = time.sleep,
) -> Done:
    """Take what was handed over, `prepare` the machine, do the step for each cell, `finish` with
    the results, and hand over what there is. What failed for its infrastructure is tried again, so
    many times; a missing hand-over and a machine that is not ready fail every cell.
    """
    store, root, cells = folders.store, folders.root, job_request.cells
    handovers = handed_over(root / HANDOVER, root / LEFT)
    merge(handovers, store.folder)
    # Verifications of an earlier try of this job, from that try's artifact.
    earlier = (store.readable(cell, job_request.files, (Verification,)) for cell in cells)
    before = dict(zip(cells, earlier, strict=True))
    results: list[object] = []
    tries: dict[str, int] = {}
    try:
        hindrance: WarpfrontError | None = None
        try:
            demand(job_request.after, handovers.values())
            prepare()
        except WarpfrontError as error:
            if error.kind is FailureKind.INPUT:  # a mistake of the call
                raise
            hindrance = error
        for cell in cells:
            cell_results: Sequence[object]
            if hindrance is not None:
                cell_results, tries[cell] = [failed_by(hindrance, cell, job_request.step)], 1
            else:
                cell_results, tries[cell] = _tried(
                    act, cell, step=job_request.step, retries=retries, watch=watch, pause=pause
                )
            _keep_reason(cell_results, job_request, store)
            results += [_judged_again(result, before[cell], store) for result in cell_results]
        finish(results)
    finally:
        ids = dict.fromkeys((*cells, *(getattr(r, "cell_id", "") for r in results)))
        folder = root / LEFT / job_request.name
        leave(store.folder, filter(None, ids), job_request.files, folder)
    return Done(results=tuple(results), tries=tries)


def _tried(
    act: Act, cell: str, *, step: StepName, retries: int, watch: Watch, pause: Pause
) -> tuple[Sequence[object], int]:
    """Return the results of one cell, after retries of infrastructure failures."""
    tries = 0
    while True:
        tries += 1
        try:
            results = act(cell)
        except WarpfrontError as error:
            if error.kind not in {FailureKind.INFRASTRUCTURE, FailureKind.TIMEOUT}:
                raise
            results = [failed_by(error, cell, step)]
        if tries > retries or not worth_another_try(results):
            return results, tries
        seconds = pause_seconds(tries)
        watch.say(f"{cell}: infrastructure failed; the next try is in {seconds:g} s")
        pause(seconds)


def _keep_reason(results: Sequence[object], job_request: JobRequest, store: Store) -> None:
    """Store for the report why nothing was built or verified, unless the step stored a result.
    The record of an image that exists is not replaced.
    """
    name = not_run(job_request.target)
    for result in results:
        if job_request.step == "verify" and isinstance(result, Verification):
            store.drop(result.cell_id, name)
        elif job_request.step == "verify" and isinstance(result, Failed):
            store.save(result.cell_id, name, result)
        elif job_request.step == "build" and isinstance(result, Failed):
            before = store.load(result.cell_id, "build", (BuiltImage, Blocked, Failed))
            if not isinstance(before, BuiltImage):
                store.save(result.cell_id, "build", result)


def not_run(target: str) -> str:
    """Return the name of the stored reason why a verification on `target` never ran."""
    return f"verify-{target}-not-run"


def _judged_again(result: object, before: Verification | None, store: Store) -> object:
    if not isinstance(result, Verification):
        return result
    judged = with_flakiness(result, before)
    if judged != result:
        judged = sealed(judged, ended=judged.ended)
        store.save(result.cell_id, f"verify-{result.target}", judged)
    return judged
