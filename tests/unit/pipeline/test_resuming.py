"""A verification that was interrupted is continued: what passed counts, and nothing stale does."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from builders import a_built_image, a_lock, key_of_parts, make_project
from fakes import FakeEngine

from warpfront.errors import InputError
from warpfront.images.engine.protocol import RunRequest, RunResult
from warpfront.images.labels import CONTENT_HASH
from warpfront.images.preparing import CellInputs, Tools
from warpfront.matrix.cell import Cell
from warpfront.pipeline.verifying import CheckPlan, verify_cells
from warpfront.pipeline.workspace import Workspace, open_workspace
from warpfront.system.progress import Line
from warpfront.verify.containers import attempt_key
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.run_options import RunOptions
from warpfront.verify.verdict import outcome_of
from warpfront.wheels.sources import Site
from warpfront_checks.check_options import CheckOptions, read_effort
from warpfront_checks.hardware.values import Detected

SESSIONS = ("load", "numerics", "golden", "devices")
FACTS = {"torch": "2.13.0+cpu", "toolkit": "", "python": "3.11", "archs": [], "relaxed": []}
LABELS = {
    "org.opencontainers.image.version": "2.13.0-cpu-py3.11",
    "dev.warpfront.torch": "2.13.0+cpu",
    "dev.warpfront.toolkit": "",
    "dev.warpfront.python": "3.11",
    "dev.warpfront.targets": "x86_64",
    "dev.warpfront.relaxed": "",
    CONTENT_HASH: "aa",
}
Wrong = dict[str, Any]
FIRST = CheckOptions(chosen=False, run="first", seeds=(70001,))


class Heard:
    """A watch that keeps what it hears."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None:  # noqa: ARG002
        self.lines.append(text)


class StoppingEngine(FakeEngine):
    """An engine whose containers run `sessions_of(request)` and may then be stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.stops: list[BaseException | str] = []

    def run(self, request: RunRequest, on_line: Line) -> RunResult:
        result = super().run(request, on_line)
        stop = self.stops.pop(0) if self.stops else ""
        if isinstance(stop, BaseException):
            raise stop
        return dataclasses.replace(result, timed_out=stop == "time")


@dataclasses.dataclass
class World:
    """One cell with a built image, and an engine whose container leaves what `leaves` has."""

    workspace: Workspace
    cell: Cell
    engine: StoppingEngine
    watch: Heard
    leaves: dict[str, Wrong]
    options: RunOptions = dataclasses.field(default_factory=RunOptions)
    effort: CheckOptions = FIRST

    @property
    def folder(self) -> Path:
        return self.workspace.folders.store.cell_folder(self.cell.id) / "verify-x86_64"

    def verify(self) -> Verification:
        (found,) = verify_cells(
            CellInputs(
                cells=(self.cell,),
                locks={self.cell.id: a_lock(self.cell)},
                matrix=self.workspace.matrix,
                material=self.workspace.material,
            ),
            CheckPlan(target="", sessions=SESSIONS, effort=self.effort, options=self.options),
            Tools(engine=self.engine, folders=self.workspace.folders, site=Site),
            self.watch,
        )
        assert isinstance(found, Verification)
        return found

    def interrupted(self, stop: BaseException | str = "time") -> None:
        """A run that was stopped when `numerics` had passed and `golden` had not ended."""
        self.leaves = {"golden": {"finished": False}, "devices": {"missing": True}}
        self.engine.stops = [stop]
        if isinstance(stop, str):
            assert outcome_of(self.verify()) is Outcome.ERROR
        else:
            with pytest.raises(type(stop)):
                self.verify()
        self.leaves = {}

    def sessions_run(self) -> list[tuple[str, ...]]:
        commands = [request.command[2:] for request in self.engine.requests]
        return [command[: command.index("--")] for command in commands]


def document(session: str, wrong: Wrong) -> dict[str, Any]:
    check = {"name": "one", "outcome": "passed", "reason": "", "seconds": 0.1, "details": {}}
    facts = {"facts": FACTS} if session == "load" else {}
    return {
        "schema": 1,
        "session": session,
        "target": "x86_64",
        "environment": facts,
        "planned": ["one"],
        "unclaimed": [],
        "finished": True,
        "checks": [check],
        **wrong,
    }


def proven_before(found: Verification) -> list[str]:
    return list(cast("dict[str, str]", found.environment["proven before"]))


def effort_of(found: Verification) -> dict[str, object]:
    return cast("dict[str, object]", found.environment["check_options"])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    make_project(tmp_path)
    workspace = open_workspace(tmp_path)
    cell = next(one for one in workspace.matrix.cells if one.image == "torch")
    engine = StoppingEngine()
    image = engine.build(cell.local_reference, LABELS)
    built = a_built_image(cell, image_id=image.id, content_hash="aa")
    workspace.folders.store.save(cell.id, "build", built)
    made = World(workspace, cell, engine, Heard(), {})

    def program(request: RunRequest, on_line: Line) -> int:
        folder = next(bind.source for bind in request.binds if bind.target == "/results")
        words = request.command[2:]
        on_line("progress: 1/4 sessions ended, 3/9 checks made; golden")
        on_line("golden: one: passed (0.10 s)")
        for session in words[: words.index("--")]:
            wrong = made.leaves.get(session, {})
            if "missing" not in wrong:
                (folder / f"{session}-table.json").write_text("[]")
                (folder / f"{session}.json").write_text(json.dumps(document(session, wrong)))
        sessions = [{"name": name, "result": "success"} for name in words[: words.index("--")]]
        (folder / "nox.json").write_text(json.dumps({"sessions": sessions}))
        return 0

    engine.programs["python3"] = program
    toolbox = "warpfront.pipeline.verifying.install_toolbox"
    monkeypatch.setattr(toolbox, lambda cache, *_, **__: cache)
    monkeypatch.setattr("warpfront.pipeline.verifying.attempt_key", key_of_parts)
    return made


@pytest.mark.parametrize("stop", ["time", KeyboardInterrupt()], ids=["time-out", "ctrl-c"])
def test_the_next_run_continues_with_what_passed(world: World, stop: BaseException | str) -> None:
    world.interrupted(stop)
    world.effort = dataclasses.replace(world.effort, run="second", seeds=(70002,))

    found = world.verify()

    assert world.sessions_run() == [SESSIONS, ("load", "golden", "devices")]
    assert outcome_of(found) is Outcome.PASSED
    assert found.sessions == SESSIONS
    assert proven_before(found) == ["numerics"]
    assert effort_of(found)["run"] == "first", "all seeds are of one run"
    assert any("proven before: numerics (20" in text for text in world.watch.said)
    assert {path.stem for path in (world.folder / "results").iterdir()} == {
        "nox", *SESSIONS, *(f"{name}-table" for name in SESSIONS)
    }  # fmt: skip
    assert not (world.folder / "attempt.json").exists()


def test_a_second_interruption_loses_nothing_either(world: World) -> None:
    world.interrupted(KeyboardInterrupt())
    world.leaves = {"devices": {"missing": True}}
    world.engine.stops = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        world.verify()
    world.leaves = {}

    found = world.verify()

    assert world.sessions_run()[-1] == ("load", "devices")
    assert proven_before(found) == ["numerics", "golden"]
    assert outcome_of(found) is Outcome.PASSED


def test_a_run_that_came_to_its_end_is_not_continued(world: World) -> None:
    world.leaves = {"golden": {"finished": False}}
    assert outcome_of(world.verify()) is Outcome.ERROR
    world.leaves = {}

    found = world.verify()

    assert world.sessions_run() == [SESSIONS, SESSIONS]
    assert "proven before" not in found.environment


Change = Callable[[World], None]


def _another_image(world: World) -> None:
    image = world.engine.build(world.cell.local_reference, {**LABELS, "other": "label"})
    built = a_built_image(world.cell, image_id=image.id, content_hash="aa")
    world.workspace.folders.store.save(world.cell.id, "build", built)


def _another_content(world: World) -> None:
    image = world.engine.build(world.cell.local_reference, {**LABELS, CONTENT_HASH: "bb"})
    built = a_built_image(world.cell, image_id=image.id, content_hash="bb")
    world.workspace.folders.store.save(world.cell.id, "build", built)


def _other_effort(**changes: Any) -> Change:
    def change(world: World) -> None:
        world.effort = dataclasses.replace(world.effort, **changes)

    return change


def _other_options(**changes: Any) -> Change:
    def change(world: World) -> None:
        world.options = RunOptions(**changes)

    return change


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The drivers of this machine, which a test may change."""
    drivers = {"nvidia": "580.65.06"}

    detected = Detected(drivers=drivers)
    monkeypatch.setattr("warpfront.pipeline.verifying.read_devices", lambda *_: detected)
    return drivers


def test_sessions_of_another_driver_do_not_count(world: World, machine: dict[str, str]) -> None:
    world.interrupted()
    machine["nvidia"] = "590.44.01"

    assert "proven before" not in world.verify().environment
    assert world.sessions_run()[1] == SESSIONS


def test_sessions_of_an_older_key_do_not_count_after_a_stop_at_once(
    world: World, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that began with another key was killed before it had a container."""
    world.interrupted()
    machine["nvidia"] = "590.44.01"
    with monkeypatch.context() as patched:
        killed = Mock(side_effect=KeyboardInterrupt)
        patched.setattr("warpfront.pipeline.verifying.prepare_folder", killed)
        with pytest.raises(KeyboardInterrupt):
            world.verify()

    assert "proven before" not in world.verify().environment
    assert world.sessions_run()[1] == SESSIONS


def test_a_remote_engine_continues_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    features = dataclasses.replace(world.engine.features(), local=False)
    monkeypatch.setattr(world.engine, "features", lambda: features)
    world.interrupted()

    assert "proven before" not in world.verify().environment


@pytest.mark.parametrize(
    "change",
    [
        _another_image,
        _another_content,
        _other_effort(quick=True),
        _other_effort(profile="torch"),
        _other_effort(chosen=True, run="third"),
        _other_options(fresh=True),
        _other_options(repeat=2),
        pytest.param(
            _other_options(user="12345"),
            marks=pytest.mark.skipif(os.getuid() != 0, reason="only root hands folders on"),
        ),
    ],
    ids=["image id", "content", "quick", "profile", "run", "fresh", "again", "user"],
)
def test_nothing_stale_counts(world: World, change: Change) -> None:
    world.interrupted()
    change(world)

    found = world.verify()

    assert world.sessions_run()[1] == SESSIONS
    assert "proven before" not in found.environment


@pytest.mark.parametrize(
    "wrong",
    [
        {"checks": []},
        {"finished": False},
        {"target": "sm_90"},
        {"checks": [{"name": "one", "outcome": "skipped", "reason": "", "seconds": 0}]},
        {"session": "golden"},
    ],
    ids=["none made", "not ended", "another target", "skipped", "another session"],
)
def test_a_session_that_did_not_pass_is_run_again(world: World, wrong: Wrong) -> None:
    world.leaves = {"numerics": wrong}
    world.engine.stops = ["time"]
    world.verify()
    world.leaves = {}

    found = world.verify()

    assert "numerics" in world.sessions_run()[1]
    assert "numerics" not in proven_before(found)


def test_what_was_edited_since_does_not_count(world: World) -> None:
    world.interrupted()
    world.engine.stops = ["time"]
    world.leaves = {"devices": {"missing": True}}
    world.verify()
    world.leaves = {}
    made = {"name": "one", "outcome": "passed", "reason": "edited", "seconds": 0}
    path = world.folder / "results" / "numerics.json"
    path.write_text(json.dumps(document("numerics", {"checks": [made]})))

    found = world.verify()

    assert world.sessions_run()[2] == ("load", "devices")
    assert proven_before(found) == ["numerics", "golden"]
    assert "edited" not in {check.reason for check in found.checks}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": 1}', "null"])
def test_a_record_that_cannot_be_read_continues_nothing(world: World, text: str) -> None:
    world.interrupted()
    (world.folder / "attempt.json").write_text(text)

    assert outcome_of(world.verify()) is Outcome.PASSED
    assert world.sessions_run()[1] == SESSIONS


def test_a_change_of_the_code_in_the_image_is_another_key(tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    check = tmp_path / "checks" / "one.py"
    check.write_text("bound = 1\n")
    first = attempt_key([tmp_path], {"image": "a"})
    assert attempt_key([tmp_path], {"image": "a"}) == first
    check.write_text("bound = 2\n")

    assert attempt_key([tmp_path], {"image": "a"}) != first


def test_a_line_on_the_way_has_the_counts_of_sessions_and_checks(world: World) -> None:
    world.verify()

    assert world.watch.lines[-1] == (
        "1/4 sessions ended, 3/9 checks made; golden; golden: one: passed (0.10 s)"
    )


def test_the_container_has_the_user_and_the_limit_that_were_asked_for(world: World) -> None:
    if os.getuid():
        pytest.skip("only root hands folders on")
    world.options = RunOptions(user="12345", limit_seconds=77)

    found = world.verify()

    (request,) = world.engine.requests
    assert (request.user, request.time_limit_seconds) == ("12345:0", 77.0)
    assert "HOME" not in request.environment, "as `docker run --user` has it"
    assert (world.folder / "results").stat().st_uid == 12345
    assert found.environment["user"] == "12345:0"


def test_a_whole_run_draws_an_id_that_was_not_chosen() -> None:
    drawn = read_effort(quick=False, profile="strict", seeds=1, run="")
    chosen = read_effort(quick=False, profile="strict", seeds=1, run=drawn.run)

    assert (drawn.chosen, chosen.chosen) == (False, True)
    assert drawn == chosen


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"repeat": 0}, "--repeat 0"),
        ({"limit_seconds": 0}, "--limit-seconds 0"),
        ({"user": "jo"}, "--user 'jo' is no uid or uid:gid"),
        ({"user": "1:2:3"}, "--user '1:2:3'"),
    ],
)
def test_options_of_no_use_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        RunOptions(**options)
