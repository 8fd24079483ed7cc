"""One job of CI: what it takes, tries again, and leaves, whatever came of it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import a_built_image, a_check, a_verification

from warpfront.errors import EngineError, FailureKind, HandoverError, InputError, LockError
from warpfront.model import BuiltImage, Failed, Outcome, Verification
from warpfront.pipeline.beside.working import Done, Errand, same_image, work
from warpfront.pipeline.workspace import Folders
from warpfront.system.store import Store
from warpfront.verify.verdict import outcome_of

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
        errand = Errand(step=self.step, name=f"{self.step}-x", cells=(CELL,), target=target)  # type: ignore[arg-type]
        pauses = pause or self.pauses.append
        return work(errand, self.act, self.folders, watch=Nobody(), pause=pauses)

    @property
    def left(self) -> list[str]:
        manifest = self.folders.root / "handover" / f"{self.step}-x" / "manifest.json"
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
    shutil.rmtree(folders.root / "handover")
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
    (folders.root / "handover/build-x/build/cell/build.json").write_text("{}")
    with pytest.raises(HandoverError):
        Working(folders, "verify").do(PASSED)


def test_the_image_has_to_be_the_one_that_was_built() -> None:
    assert same_image(BUILT, {CELL: BUILT}, CELL) is None
    assert same_image(None, {CELL: BUILT}, CELL) is None
    other = dataclasses.replace(BUILT, content_hash="0" * 64)
    wrong = same_image(BUILT, {CELL: other}, CELL)
    assert isinstance(wrong, Failed)
    assert "was built" in wrong.reason
    assert same_image(BUILT, {CELL: GONE}, CELL) is GONE


@pytest.mark.parametrize("wrong", [{"step": "plan"}, {"cells": ()}, {"name": ""}])
def test_an_errand_says_what_and_for_whom(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="--step build"):
        Errand(**{"step": "build", "name": "x", "cells": (CELL,), **wrong})
