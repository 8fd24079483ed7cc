"""bench by way of images: whose record it is, and what a container that leaves nonsense costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import a_built_image, a_lock, make_project
from fakes import FakeEngine

from warpfront.bench.record_files import read_records
from warpfront.bench.records import Bench
from warpfront.cli.display import Display
from warpfront.commands import benching
from warpfront.images.engine.protocol import RunRequest
from warpfront.images.labels import CONTENT_HASH
from warpfront.matrix.cell import Selection
from warpfront.pipeline.workspace import Workspace, open_workspace
from warpfront.step_results import Blocked, Failed
from warpfront.verify.results import Outcome, Verification
from warpfront_checks.bench.options import BenchEffort

TIMINGS: dict[str, Any] = {
    "schema": 1,
    "kind": "Timings",
    "target": "x86_64",
    "environment": {"device_name": "a processor"},
    "settings": {"preset": "tiny"},
    "results": [],
    "training": [],
    "findings": [],
}
Leave = Callable[[Path], object]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    make_project(tmp_path)
    return open_workspace(tmp_path)


def left(document: object) -> Leave:
    return lambda folder: (folder / "bench.json").write_text(json.dumps(document))


def timed(
    workspace: Workspace, leave: Leave, monkeypatch: pytest.MonkeyPatch
) -> tuple[Bench | Blocked | Failed, RunRequest]:
    """The project's one cell, whose container does `leave(its results folder)`."""
    engine, (cell,) = FakeEngine(), workspace.matrix.cells
    image = engine.build(cell.local_reference, {CONTENT_HASH: "aa"})
    made = a_built_image(cell, image_id=image.id, content_hash="aa")
    workspace.folders.store.save(cell.id, "build", made)

    def program(request: RunRequest, _on_line: object) -> int:
        leave(next(bind.source for bind in request.binds if bind.target == "/results"))
        return 0

    engine.programs["python3"] = program
    monkeypatch.setattr(benching, "connect", lambda: engine)
    locks = {cell.id: a_lock(cell)}
    monkeypatch.setattr("warpfront.images.preparing.fresh_locks", lambda *_: locks)
    monkeypatch.setattr(benching, "tool_here", lambda _: {"version": "1", "git": "c0ffee"})
    toolbox = "warpfront.pipeline.verifying.install_toolbox"
    monkeypatch.setattr(toolbox, lambda cache, *_, **__: cache)
    effort = BenchEffort(preset="tiny", suites=("conv",))
    (found,) = benching.bench(workspace, Selection(), Display(), effort=effort)
    return found, engine.requests[-1]


def test_a_record_belongs_to_the_image_it_was_timed_in(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, request = timed(workspace, left(TIMINGS), monkeypatch)
    assert isinstance(found, Bench)
    assert (found.image_digest, found.content_hash) == (request.image, "aa")
    assert (found.verified, found.tool["git"]) == ("not verified", "c0ffee")
    record = workspace.folders.store.cell_folder(found.cell_id) / "bench-x86_64.json"
    assert read_records(record.read_text()) == (found,)
    assert "bench" in request.command
    assert {"--preset=tiny", "--conv"} <= set(request.command)


@pytest.mark.parametrize(
    ("content_hash", "says"), [("aa", "passed"), ("of an older image", "not verified")]
)
def test_a_verification_counts_only_for_the_content_it_is_about(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, content_hash: str, says: str
) -> None:
    monkeypatch.setattr(benching, "outcome_of", lambda _: Outcome.PASSED)
    (cell,) = workspace.matrix.cells
    verification = Verification(
        cell_id=cell.id,
        target="x86_64",
        where="image",
        image_id="sha256:1",
        content_hash=content_hash,
        sessions=(),
        checks=(),
        seconds=1.0,
    )
    workspace.folders.store.save(cell.id, "verify-x86_64", verification)
    found, _ = timed(workspace, left(TIMINGS), monkeypatch)
    assert isinstance(found, Bench)
    assert found.verified == says


@pytest.mark.parametrize(
    ("leave", "says"),
    [
        (lambda _: None, "not timed: no timings"),
        (left("nonsense"), "not timed: no timings"),
        (left({**TIMINGS, "target": "sm_90"}), "'sm_90', not of 'x86_64'"),
        (left({**TIMINGS, "results": [{"id": 1}]}), "results.0"),
    ],
)
def test_what_a_container_leaves_is_no_record_before_it_is_read(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, leave: Leave, says: str
) -> None:
    found, _ = timed(workspace, leave, monkeypatch)
    assert isinstance(found, Failed)
    assert says in found.reason
    assert found.repeat.startswith("warpfront bench run --only ")
    folder = workspace.folders.store.cell_folder(found.cell_id)
    assert not (folder / "bench-x86_64.json").exists()
