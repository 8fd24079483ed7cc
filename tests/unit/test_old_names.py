"""The old module names work for one release, and warn."""

from __future__ import annotations

import importlib
import runpy
import sys

import pytest

from warpfront.cli import sessions
from warpfront.cli.tasks import namespace


@pytest.fixture(autouse=True)
def not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name.startswith(("warpfront.doors", "warpfront.inside"))
    ]:
        monkeypatch.delitem(sys.modules, name)


def test_tasks_and_sessions_of_projects_are_found_by_their_old_names() -> None:
    with pytest.warns(FutureWarning, match="warpfront.doors is now warpfront.cli"):
        old = importlib.import_module("warpfront.doors.tasks")
    assert old.namespace is namespace
    assert importlib.import_module("warpfront.doors.sessions").sessions is sessions


def test_the_checks_run_by_their_old_name(capsys: pytest.CaptureFixture[str]) -> None:
    sys.argv, before = ["checks", "--help"], sys.argv
    try:
        with (
            pytest.warns(FutureWarning, match="warpfront.inside.checks is now warpfront_checks"),
            pytest.raises(SystemExit),
        ):
            runpy.run_module("warpfront.inside.checks", run_name="__main__", alter_sys=True)
    finally:
        sys.argv = before
    assert "--claims" in capsys.readouterr().out
