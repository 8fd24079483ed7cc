"""One job of CI: what it takes, tries again, and leaves, whatever came of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import a_built_image, a_check, a_verification

from warpfront.ci.handover import leave
from warpfront.commands.ci_runs import Done, JobRequest, not_run, work
from warpfront.errors import (
    EngineError,
    FailureKind,
    HandoverError,
    InputError,
    LockError,
    UnavailableError,
)
from warpfront.images.built import BuiltImage
from warpfront.step_results import Failed
from warpfront.system.store import Store
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.verdict import outcome_of
from warpfront.wheels.project_folders import Folders

CELL = "cell"
BUILT = a_built_image(cell_id=CELL)
PASSED = a_verification(a_check(session="load"), cell_id=CELL, target="sm_90")
FAILED = a_verification(
    a_check(Outcome.FAILED, session="load", reason="0.1 off"), cell_id=CELL, target="sm_90"
)
GONE = Failed(cell_id=CELL, step="build", reason="gone", exit_code=EngineError.exit_code)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(root=tmp_path, cache=tmp_path / "cache", store=Store(tmp_path / "build"))


class Nobody:
    """Nobody to tell."""

    def say(self, text: str) -> None: ...

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...


class Working:
    """A job whose step answers in turn, and leaves its last answer as the step would."""

    def __init__(self, folders: Folders, step: str = "build") -> None:
        self.folders, self.step = folders, step
        self.pauses: list[float] = []
        self.answers: list[Any] = []

    def act(self, cell: str) -> Sequence[object]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        name = "verify-sm_90" if isinstance(answer, Verification) else "build"
        self.folders.store.save(cell, name, answer)
        return [answer]

    def do(self, *answers: Any, pause: Callable[[float], None] | None = None) -> Done:
        self.answers = list(answers)
        target = "sm_90" if self.step == "verify" else ""
        job_request = JobRequest(
            step=self.step,  # type: ignore[arg-type]
            name=f"{self.step}-x",
            cells=(CELL,),
            target=target,
        )
        pauses = pause or self.pauses.append
        return work(job_request, self.act, self.folders, watch=Nobody(), pause=pauses)

    @property
    def left(self) -> list[str]:
        manifest = self.folders.root / "left" / f"{self.step}-x" / "manifest.json"
        return sorted(json.loads(manifest.read_text())["files"])


def test_infrastructure_is_tried_again_within_a_budget(folders: Folders) -> None:
    working = Working(folders)
    done = working.do(GONE, EngineError("gone again"), BUILT)
    assert (done.results, done.tries) == ((BUILT,), {CELL: 3})
    assert working.pauses == [10.0, 30.0]
    done = working.do(GONE, GONE, GONE)
    assert (done.results, done.tries) == ((GONE,), {CELL: 3})


def test_an_engine_that_stays_away_is_a_result_of_its_cell(folders: Folders) -> None:
    working = Working(folders)
    (failed,) = working.do(*(EngineError("gone") for _ in range(3))).results
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.exit_code) == (FailureKind.INFRASTRUCTURE, EngineError.exit_code)
    # Whoever judges the run hears why, and how to repeat it; an image of before stays known.
    assert working.left == [f"build/{CELL}/build.json"]
    assert folders.store.load(CELL, "build", (Failed,)) == failed
    shutil.rmtree(folders.root / "left")
    folders.store.save(CELL, "build", BUILT)
    working.do(*(EngineError("gone") for _ in range(3)))
    assert folders.store.load(CELL, "build", (BuiltImage,)) == BUILT


def test_nothing_else_is_tried_again(folders: Folders) -> None:
    stale = Failed(cell_id=CELL, step="lock", reason="stale", exit_code=LockError.exit_code)
    done = Working(folders).do(stale, BUILT)
    assert (done.results, done.tries) == ((stale,), {CELL: 1})
    done = Working(folders, "verify").do(FAILED, PASSED)
    assert (done.results, done.tries) == ((FAILED,), {CELL: 1})


def test_what_there_is_is_handed_over_whatever_came_of_it(folders: Folders) -> None:
    working = Working(folders)
    working.do(GONE, GONE, GONE)
    assert working.left == [f"build/{CELL}/build.json"]
    folders.store.save(CELL, "build", BUILT)
    with pytest.raises(InputError):
        working.do(InputError("a mistake of ours"))
    assert working.left == [f"build/{CELL}/build.json"]


def test_an_earlier_try_of_the_same_job_is_held_against_this_one(folders: Folders) -> None:
    first = Working(folders, "verify")
    first.do(FAILED)
    assert first.left == [f"build/{CELL}/verify-sm_90.json"]
    folders.store.drop(CELL, "verify-sm_90")
    (result,) = Working(folders, "verify").do(PASSED).results
    assert isinstance(result, Verification)
    assert outcome_of(result) is Outcome.FAILED
    assert folders.store.load(CELL, "verify-sm_90", (Verification,)) == result


def test_a_hand_over_that_was_changed_stops_the_job(folders: Folders) -> None:
    Working(folders).do(BUILT)
    (folders.root / "left/build-x/build/cell/build.json").write_text("{}")
    with pytest.raises(HandoverError):
        Working(folders, "verify").do(PASSED)


def test_a_hand_over_that_is_missing_fails_each_cell_by_its_name(folders: Folders) -> None:
    """Nothing is done, and what is handed over says why."""
    job_request = JobRequest(
        step="verify", name="verify-x", cells=(CELL,), target="sm_90", after=("build-a", "build-b")
    )
    leave(folders.store.folder, [CELL], "build", folders.root / "handover" / "build-a")
    working = Working(folders, "verify")
    done = work(job_request, working.act, folders, watch=Nobody())
    (failed,) = done.results
    assert isinstance(failed, Failed)
    assert failed.reason.startswith("no artifact build-b:")
    assert failed.exit_code == HandoverError.exit_code
    kept = folders.store.load(CELL, not_run("sm_90"), (Failed,))
    assert kept == failed
    assert (folders.root / "left/verify-x/build/cell/verify-sm_90-not-run.json").is_file()


@pytest.mark.parametrize("around", ["", "verify-x"], ids=["as it is", "in a folder of its name"])
def test_a_hand_over_is_found_wherever_a_service_extracts_it(around: str, folders: Folders) -> None:
    Working(folders).do(BUILT)
    left, taken_to = folders.root / "left" / "build-x", folders.root / "handover" / around
    taken_to.mkdir(parents=True)
    left.rename(taken_to / "build-x")
    folders.store.drop(CELL, "build")
    job_request = JobRequest(
        step="verify", name="verify-x", cells=(CELL,), target="sm_90", after=("build-x",)
    )
    assert work(job_request, lambda _cell: [PASSED], folders, watch=Nobody()).results == (PASSED,)
    assert folders.store.load(CELL, "build", (BuiltImage,)) == BUILT


def test_a_machine_that_is_not_ready_leaves_a_hand_over_that_says_so(folders: Folders) -> None:
    def not_ready() -> None:
        raise UnavailableError("this machine is not what `runners:` says of h100: no sm_90 here")

    job_request = JobRequest(step="verify", name="verify-x", cells=(CELL,), target="sm_90")
    done = work(job_request, lambda _cell: [PASSED], folders, watch=Nobody(), prepare=not_ready)
    (failed,) = done.results
    assert isinstance(failed, Failed)
    assert (failed.exit_code, failed.kind) == (11, FailureKind.INFRASTRUCTURE)
    assert (folders.root / "left/verify-x/build/cell/verify-sm_90-not-run.json").is_file()
    # Once it has run, what kept it from running is gone.
    work(job_request, lambda _cell: [PASSED], folders, watch=Nobody())
    assert folders.store.load(CELL, not_run("sm_90"), (Failed,)) is None


@pytest.mark.parametrize("wrong", [{"step": "plan"}, {"cells": ()}, {"name": ""}])
def test_an_errand_says_what_and_for_whom(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="--step build"):
        JobRequest(**{"step": "build", "name": "x", "cells": (CELL,), **wrong})
