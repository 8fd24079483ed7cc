"""The door: options become a selection, errors become exit codes without a traceback."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeEngine
from invoke.exceptions import Exit

from warpfront.doors import tasks
from warpfront.doors.tasks import Request, command
from warpfront.errors import LockError
from warpfront.images.labels import CELL
from warpfront.inside.checks.effort import Effort
from warpfront.matrix.scaffold import make_project
from warpfront.model import Selection
from warpfront.pipeline.workspace import open_workspace

SEEN: list[Request] = []


def a_task(body: Any) -> Any:
    return command(body).body


def run_with(error: BaseException) -> Exit:
    def broken(_request: Request) -> None:
        """A task."""
        raise error

    with pytest.raises(Exit) as caught:
        a_task(broken)(None, **common())
    return caught.value


def common(**changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {
        "target": "",
        "vendor": "",
        "image": "",
        "only": "",
        "json": False,
        "dry_run": False,
    }
    return options | changes


def test_an_expected_error_is_its_message_its_hint_and_its_code() -> None:
    ended = run_with(LockError("lock is stale", hint="invoke lock"))
    assert (ended.code, ended.message) == (4, "error: lock is stale\nhint: invoke lock")


def test_a_bug_is_named_one_and_shows_its_traceback() -> None:
    ended = run_with(ZeroDivisionError("oops"))
    assert ended.code == 70
    assert "bug in warpfront" in str(ended.message)
    assert "ZeroDivisionError: oops" in str(ended.message)


def test_clean_removes_the_projects_images_and_leaves_what_stands_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    cell = open_workspace(tmp_path).matrix.cells[0]
    engine = FakeEngine()
    for name in (cell.local_reference, f"localhost/{cell.project}/builder:1", "my/app:1"):
        engine.build(name, {CELL: cell.id}, content=name)
    monkeypatch.setattr(tasks, "connect", lambda _environment: engine)
    tasks.clean.body(None, **common(), everything=False)
    assert [image.references for image in engine.images(CELL)] == [("my/app:1",)]


def test_ctrl_c_is_130() -> None:
    assert run_with(KeyboardInterrupt()).code == 130


def test_sigterm_unwinds_a_task_like_ctrl_c() -> None:
    cleaned: list[str] = []

    def waiting(_request: Request) -> None:
        """A task."""
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            cleaned.append("yes")

    with pytest.raises(Exit) as caught:
        a_task(waiting)(None, **common())
    assert (caught.value.code, cleaned) == (130, ["yes"])


def test_options_become_a_selection() -> None:
    def noting(request: Request) -> None:
        """A task."""
        SEEN.append(request)

    a_task(noting)(None, **common(target="gfx942", only="*devel", json=True))
    assert SEEN[-1].selection == Selection(target="gfx942", only="*devel")
    assert SEEN[-1].json
    assert not SEEN[-1].dry_run


def test_every_step_takes_the_same_options_and_explains_each() -> None:
    for name in ("plan", "lock", "render", "build", "verify", "report", "doctor", "clean"):
        task = getattr(tasks, name)
        assert set(tasks.SELECTION_HELP) <= {key.replace("-", "_") for key in task.help}
        assert task.__doc__


EFFORT = {"quick": True, "profile": "torch", "seeds": 3, "selftest": False}


def test_verify_hands_on_how_much_to_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Effort] = []

    def verify(*_: object, effort: Effort, **__: object) -> tuple[()]:
        asked.append(effort)
        return ()

    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warpfront.pipeline.verify", verify)
    tasks.verify.body(None, **common(json=True), **EFFORT)
    assert asked == [Effort(quick=True, profile="torch", seeds=(0, 1, 2))]


@pytest.mark.parametrize("wrong", [{"profile": "loose"}, {"seeds": 0}])
def test_an_unknown_profile_and_no_seeds_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    make_project(tmp_path)
    with pytest.raises(Exit) as caught:
        tasks.verify.body(None, **common(), **(EFFORT | wrong))
    assert caught.value.code == 1
    assert "hint:" in str(caught.value.message)


def test_planning_a_new_project_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warpfront.pipeline.plan", lambda *_: ())
    tasks.plan.body(None, **common(json=True))
    assert json.loads(capsys.readouterr().out) == []


def test_a_folder_without_a_matrix_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exit) as caught:
        tasks.report.body(None, **common(), markdown=False)
    assert caught.value.code == 13
    assert "warpfront init" in str(caught.value.message)


def test_a_hostile_matrix_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "matrix.yaml").write_text("schema: 1\nschema: 1\nrows: [[[[\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exit) as caught:
        tasks.plan.body(None, **common())
    assert caught.value.code == 2
    assert "Traceback" not in str(caught.value.message)
    assert "matrix.yaml:" in str(caught.value.message)
