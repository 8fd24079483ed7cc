"""work: one job of CI, with what it is handed, and what it hands over whatever came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from warpfront.ci.flow import HANDOVER
from warpfront.ci.handover import leave
from warpfront.ci.retrying import RETRIES, pause_seconds, with_flakiness, worth_another_try
from warpfront.errors import FailureKind, InputError, StoreError, WarpfrontError
from warpfront.model import Blocked, BuiltImage, Failed, StepName, Verification
from warpfront.pipeline.beside.gathering import gather, handed_over
from warpfront.pipeline.within.attempt import failed_by
from warpfront.pipeline.workspace import Folders
from warpfront.system.progress import Watch
from warpfront.system.store import Store
from warpfront.verify.seal import sealed

Act = Callable[[str], Sequence[object]]
"""A step of one cell: what it made of it, and of the cells that it stands on."""

STEPS_OF_JOBS = ("build", "verify", "bench", "publish")


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What a job is sent for."""

    step: StepName
    name: str
    cells: tuple[str, ...]
    target: str = ""

    def __post_init__(self) -> None:
        if self.step not in STEPS_OF_JOBS or not self.name or not self.cells:
            steps = "|".join(STEPS_OF_JOBS)
            raise InputError(f"a job is `--step {steps}`, with --name and --cells")

    @property
    def files(self) -> str:
        """How the names of the files begin that its step leaves."""
        on_target = self.step in {"verify", "bench"}
        return f"{self.step}-{self.target}" if on_target else self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a job came to, and how often each of its cells was tried."""

    results: tuple[object, ...]
    tries: Mapping[str, int]


def work(
    errand: Errand,
    act: Act,
    folders: Folders,
    *,
    watch: Watch,
    retries: int = RETRIES,
    pause: Callable[[float], None] = time.sleep,
) -> Done:
    """Take what was handed over, do the step for each cell, hand over what there is of it. What
    failed for its infrastructure is tried again, so many times.
    """
    store, handover = folders.store, folders.root / HANDOVER
    gather(handed_over(handover), store)
    before = {cell: _earlier(store, cell, errand) for cell in errand.cells}
    results: list[object] = []
    tries: dict[str, int] = {}
    try:
        for cell in errand.cells:
            found, tries[cell] = _tried(
                act, cell, errand.step, retries=retries, watch=watch, pause=pause
            )
            _keep_reason(found, errand.step, store)
            results += [_judged_again(one, before[cell], store) for one in found]
    finally:
        made = dict.fromkeys((*errand.cells, *(getattr(r, "cell_id", "") for r in results)))
        leave(store.folder, filter(None, made), errand.files, handover / errand.name)
    return Done(results=tuple(results), tries=tries)


def _tried(
    act: Act,
    cell: str,
    step: StepName,
    *,
    retries: int,
    watch: Watch,
    pause: Callable[[float], None],
) -> tuple[Sequence[object], int]:
    """The results of one cell, after as many tries as its infrastructure was worth."""
    tries = 0
    while True:
        tries += 1
        results = _attempted(act, cell, step)
        if tries > retries or not worth_another_try(results):
            return results, tries
        seconds = pause_seconds(tries)
        watch.say(f"{cell}: infrastructure failed; the next try is in {seconds:g} s")
        pause(seconds)


def _attempted(act: Act, cell: str, step: StepName) -> Sequence[object]:
    try:
        return act(cell)
    except WarpfrontError as error:
        if error.kind not in {FailureKind.INFRASTRUCTURE, FailureKind.TIMEOUT}:
            raise
        return [failed_by(error, cell, step)]


def _keep_reason(results: Sequence[object], step: StepName, store: Store) -> None:
    """Why nothing was built, for whoever judges the run, where the step was not left to say it. An
    image that is there stays known.
    """
    for one in results:
        if step == "build" and isinstance(one, Failed):
            before = store.load(one.cell_id, "build", (BuiltImage, Blocked, Failed))
            if not isinstance(before, BuiltImage):
                store.save(one.cell_id, "build", one)


def _earlier(store: Store, cell: str, errand: Errand) -> Verification | None:
    """What an earlier try of this very job found, handed over by itself."""
    try:
        return store.load(cell, errand.files, (Verification,)) if errand.step == "verify" else None
    except StoreError:
        return None


def _judged_again(result: object, before: Verification | None, store: Store) -> object:
    if not isinstance(result, Verification):
        return result
    judged = with_flakiness(result, before)
    if judged != result:
        judged = sealed(judged, ended=judged.ended)
        store.save(result.cell_id, f"verify-{result.target}", judged)
    return judged


def same_image(
    handed: BuiltImage | Blocked | Failed | None, built: Mapping[str, object], cell: str
) -> Failed | Blocked | None:
    """Why the image that this machine has is not the one that a job before this has built."""
    made = built[cell]
    if isinstance(made, Failed | Blocked):
        return made
    assert isinstance(made, BuiltImage)
    if not isinstance(handed, BuiltImage) or handed.content_hash == made.content_hash:
        return None
    return Failed(
        cell_id=cell,
        step="verify",
        reason=f"content {made.content_hash[:12]} here, and {handed.content_hash[:12]} was built",
        hint="both machines have to build the same commit with the same warpfront",
        exit_code=7,
    )
