"""An image of this night beside the last release of its cell: what is slower, twice, is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from builders import a_built_image, a_lock, make_project
from fakes import FakeEngine, FakeRegistry
from series import noisy

from warpfront.bench.nights import NightStanding
from warpfront.bench.record_files import read_records
from warpfront.bench.records import Bench
from warpfront.cli.display import Display
from warpfront.commands import benching
from warpfront.commands.benching import (
    hold_against_release,
    kept_standing,
    last_release,
)
from warpfront.errors import FailureKind, SlowerError
from warpfront.images.built import CREATED
from warpfront.images.engine.protocol import RunRequest
from warpfront.images.labels import CELL, CONTENT_HASH
from warpfront.matrix.runners import Runner
from warpfront.pipeline.workspace import Workspace, open_workspace
from warpfront.release.ledger import Stock
from warpfront.step_results import Failed

ROW = Runner(
    name="ubuntu",
    trust="hosted",
    labels=("ubuntu",),
    group="",
    machine="x86_64",
    builds=True,
    vendor="cpu",
    targets=("x86_64",),
    count=1,
    engine="theirs",
    bench="tiny",
)
REPOSITORY = "registry.test/mine/torch"
# Of an operation in an image that is timed for the n-th time: how slow it is.
Slowness = Callable[[str, str, int], float]


@dataclass
class Night:
    """A machine whose images take the times that they are told to."""

    workspace: Workspace
    monkeypatch: pytest.MonkeyPatch
    slowness: Slowness = lambda _image, _case, _time: 1.0
    left_out: str = ""
    engine: FakeEngine = field(default_factory=FakeEngine)
    stocks: list[Stock] = field(default_factory=list)
    timed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.cell,) = self.workspace.matrix.cells
        self.engine.registries["registry.test"] = FakeRegistry("registry.test")
        self.engine.programs["python3"] = self.time
        image = self.build("aa", self.cell.local_reference)
        made = a_built_image(self.cell, image_id=image, content_hash="aa")
        self.workspace.folders.store.save(self.cell.id, "build", made)
        lock = {self.cell.id: a_lock(self.cell)}
        set_to = self.monkeypatch.setattr
        for module in (benching,):
            set_to(module, "connect", lambda: self.engine)
        set_to("warpfront.images.preparing.fresh_locks", lambda *_: lock)
        set_to(benching, "tool_here", lambda _: {})
        set_to("warpfront.pipeline.verifying.install_toolbox", lambda cache, *_, **__: cache)
        set_to(benching, "_published", lambda *_: tuple(self.stocks))

    def build(self, content: str, name: str) -> str:
        labels = {CELL: self.cell.id, CONTENT_HASH: content, CREATED: "2026-11-01T00:00:00+00:00"}
        return self.engine.build(name, labels, content=content).id

    def release(self, content: str) -> None:
        name = f"{REPOSITORY}:{content}"
        self.build(content, name)
        self.engine.push(name, lambda *_: None)
        digest = self.engine.registries["registry.test"].tagged["mine/torch", content]
        labels = {CELL: self.cell.id, CONTENT_HASH: content}
        stock = Stock(
            repository=REPOSITORY,
            digest=digest,
            tags=(content,),
            channels=("release",),
            labels=labels,
        )
        self.stocks.append(stock)

    def time(self, request: RunRequest, _on_line: object) -> int:
        labels = next(o for o in self.engine.stored.values() if o.id == request.image).labels
        content = labels[CONTENT_HASH]
        self.timed.append(content)
        turn = self.timed.count(content)
        cases = [one for one in ("mm", "add") if (content, one) != ("aa", self.left_out)]
        seeds = count(100 * len(self.timed))
        document = {
            "schema": 1,
            "kind": "Timings",
            "target": "x86_64",
            "environment": {},
            "settings": {"preset": "tiny", "cold": False, "tf32": False},
            "results": [
                a_case(one, self.slowness(content, one, turn), next(seeds)) for one in cases
            ],
            "training": [],
            "findings": [],
        }
        place = next(bind.source for bind in request.binds if bind.target == "/results")
        if content != "broken":
            (place / "bench.json").write_text(json.dumps(document))
        return 0

    def passes(self) -> Sequence[object]:
        return hold_against_release(self.workspace, self.cell.id, ROW, Display(), target="x86_64")

    @property
    def standing(self) -> NightStanding:
        found = kept_standing(self.workspace.folders.store, self.cell.id, "x86_64")
        assert found is not None
        return found


def a_case(name: str, level: float, seed: int) -> dict[str, Any]:
    blocks = [noisy(10, seed * 10 + number, level) for number in range(5)]
    return {
        "id": name,
        "suite": "matmul",
        "op": name,
        "shape": "8",
        "dtype": "float32",
        "direction": "forward",
        "outcome": "passed",
        "samples_seconds": blocks,
    }


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    make_project(tmp_path)
    return Night(workspace=open_workspace(tmp_path), monkeypatch=monkeypatch)


def slow_now(by: float, *, turns: tuple[int, ...] = (1, 2)) -> Slowness:
    """`mm` in the image of this night, in these turns."""
    return lambda image, case, turn: by if (image, case) == ("aa", "mm") and turn in turns else 1.0


def test_without_a_release_the_night_is_timed_and_held_against_nothing(night: Night) -> None:
    assert night.passes() == [night.standing]
    assert (night.timed, night.standing.release, night.standing.wrong) == (["aa"], "", "")


def test_the_same_speed_passes_and_both_records_are_there(night: Night) -> None:
    night.release("old")
    assert night.passes() == [night.standing]
    assert night.standing.wrong == ""
    assert night.timed == ["old", "aa"]
    folder = night.workspace.folders.store.cell_folder(night.cell.id)
    for name, digest in (("bench-x86_64.json", "aa"), ("bench-x86_64/release.json", "old")):
        (record,) = read_records((folder / name).read_text())
        assert isinstance(record, Bench)
        assert record.content_hash == digest
    # What was pulled does not stay, and the night's image keeps its name.
    assert not any(
        "@sha256:" in name for one in night.engine.stored.values() for name in one.references
    )


def test_an_operation_that_is_slower_twice_is_a_failure_with_its_name(night: Night) -> None:
    night.release("old")
    night.slowness = slow_now(1.12)
    (failed,) = night.passes()
    assert isinstance(failed, Failed)
    assert (failed.exit_code, failed.kind) == (SlowerError.exit_code, FailureKind.VERDICT)
    assert "slower than the last release: mm 1.1" in failed.reason
    assert "add" not in failed.reason
    assert failed.repeat.startswith("warpfront bench compare build/")
    assert night.timed == ["old", "aa", "aa", "old"]
    assert night.standing.wrong == failed.reason


def test_what_was_slow_once_was_something_else(night: Night) -> None:
    night.release("old")
    night.slowness = slow_now(1.12, turns=(1,))
    assert night.passes() == [night.standing]
    assert night.standing.slower == ()


def test_within_what_is_allowed_nothing_is_slower(night: Night) -> None:
    night.release("old")
    night.slowness = slow_now(1.04)
    assert night.passes() == [night.standing]
    assert night.timed == ["old", "aa"]


def test_the_very_content_of_the_release_is_not_held_against_itself(night: Night) -> None:
    night.release("aa")
    night.timed.clear()
    assert night.passes() == [night.standing]
    assert night.timed == ["aa"]


def test_what_only_the_release_could_do_is_a_failure(night: Night) -> None:
    night.release("old")
    night.left_out = "add"
    (failed,) = night.passes()
    assert isinstance(failed, Failed)
    assert "done by the last release alone: add" in failed.reason


def test_a_release_that_cannot_be_timed_is_no_pass(night: Night) -> None:
    night.release("broken")
    (failed,) = night.passes()
    assert isinstance(failed, Failed)
    assert "not held against the last release: the release: not timed" in failed.reason


def test_a_night_that_cannot_be_timed_leaves_no_older_standing(night: Night) -> None:
    night.passes()
    night.engine.programs["python3"] = lambda *_: 1
    (failed,) = night.passes()
    assert isinstance(failed, Failed)
    assert kept_standing(night.workspace.folders.store, night.cell.id, "x86_64") is None


def test_the_last_release_is_the_newest_of_the_cell_that_was_not_taken_back() -> None:
    def a_stock(digest: str, day: int, cell: str = "cell", **changes: Any) -> Stock:
        labels = {CELL: cell, CREATED: f"2026-11-{day:02}T00:00:00+00:00"}
        facts = {"channels": ("release",), **changes}
        return Stock(repository="r", digest=digest, tags=(digest,), labels=labels, **facts)

    stocks = [
        a_stock("old", 1),
        a_stock("new", 3),
        a_stock("taken back", 4, yanked=True),
        a_stock("nightly", 5, channels=("nightly",)),
        a_stock("another cell's", 6, cell="other"),
    ]
    found = last_release(stocks, "cell", "release")
    assert found is not None
    assert found.digest == "new"
    assert last_release(stocks, "third", "release") is None
