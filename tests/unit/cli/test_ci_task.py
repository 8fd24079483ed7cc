"""`invoke ci --judge` and `--notify` on GitLab, with its interface stood in for."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import make_project
from forge_interfaces import ForgeInterface, github_job, gitlab_job, standing_in
from invoke.exceptions import Exit

from warpfront.ci.schedule import Omitted, Schedule, Work
from warpfront.cli.tasks import namespace
from warpfront.commands.ci_runs import keep_plan
from warpfront.errors import NotVerifiedError, UnavailableError

NOTHING = Schedule(scope="nightly", channel="", build={}, verify={})
BENCHED = Schedule(
    scope="nightly",
    channel="",
    build={},
    verify={},
    bench={"ubuntu": (Work(name="bench-x", cells=(), target="x86_64"),)},
)


@pytest.fixture
def gitlab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForgeInterface]:
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    forge = ForgeInterface()
    with standing_in(forge, forge.gitlab):
        for name, text in gitlab_job(forge).items():
            monkeypatch.setenv(name, text)
        yield forge


def ended(**task: bool) -> int:
    try:
        namespace.tasks["ci"].body(None, **task)
    except Exit as exit_:
        return int(exit_.code or 0)
    return 0


def test_a_job_that_failed_without_a_result_is_red_by_the_forge_s_own_word(
    gitlab: ForgeInterface, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`allow_failure` made it green, since no file said anything (audit 3, G14)."""
    keep_plan(BENCHED, tmp_path)
    gitlab.jobs = [{"name": "bench-x", "status": "success"}]
    assert ended(judge=True) == 0
    gitlab.jobs = [{"name": "bench-x", "status": "failed"}]
    assert ended(judge=True) == NotVerifiedError.exit_code
    assert "jobs: some ended with failed" in capsys.readouterr().out
    gitlab.jobs = []
    assert ended(judge=True) == NotVerifiedError.exit_code
    assert "no job in this run" in capsys.readouterr().out


def test_states_that_no_token_reads_are_said_to_be_undetermined(
    gitlab: ForgeInterface, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pipeline's own state is what counts then: no job of it may fail."""
    keep_plan(NOTHING, tmp_path)
    gitlab.refuses["/jobs"] = 404
    assert ended(judge=True) == 0
    assert "states of jobs: not determined (" in capsys.readouterr().out


@pytest.mark.usefixtures("gitlab")
def test_a_plan_that_another_job_changed_is_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAN_DIGEST", keep_plan(NOTHING, tmp_path))
    assert ended(judge=True) == 0
    keep_plan(BENCHED, tmp_path)
    assert ended(judge=True) == 31


def test_a_red_night_opens_an_issue_with_a_token_that_may(
    gitlab: ForgeInterface, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "a-token-of-the-project")
    monkeypatch.setenv("CI_PIPELINE_URL", "https://gitlab.com/me/mine/-/pipelines/1234")
    keep_plan(BENCHED, tmp_path)
    gitlab.jobs = [{"name": "bench-x", "status": "failed"}]
    assert ended(notify=True) == 0
    (issue,) = gitlab.issues
    assert issue["title"] == "warpfront: the nightly run is red"
    assert "https://gitlab.com/me/mine/-/pipelines/1234" in issue["description"]
    gitlab.jobs = [{"name": "bench-x", "status": "success"}]
    assert ended(notify=True) == 0
    assert issue["state"] == "closed"


@pytest.mark.usefixtures("gitlab")
@pytest.mark.parametrize(
    ("scope", "option", "code"),
    [
        ("pull_request", "", UnavailableError.exit_code),
        ("pull_request", "ci: {unchecked: red}", UnavailableError.exit_code),
        ("pull_request", "ci: {unchecked: listed}", 0),
        ("labelled", "ci: {unchecked: listed}", UnavailableError.exit_code),
        ("merge_queue", "ci: {unchecked: listed}", UnavailableError.exit_code),
    ],
)
def test_a_gpu_row_that_no_machine_checks_is_red_unless_the_table_lists_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scope: str, option: str, code: int
) -> None:
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(f"{matrix.read_text()}\n{option}\n")
    later = (Omitted(cell_id="gpu", target="sm_90", reason="no runner of the table has sm_90"),)
    keep_plan(dataclasses.replace(NOTHING, scope=scope, later=later), tmp_path)
    assert ended(judge=True) == code
    first = capsys.readouterr().out.splitlines()[0]
    assert ("1 NOT CHECKED" in first) == (not code)


@pytest.mark.parametrize(
    ("conclusion", "commit", "ran", "of", "code"),
    [
        ("success", "head", "2026-11-02T00:00:00Z", "me", 0),
        ("failure", "head", "2026-11-02T00:00:00Z", "me", UnavailableError.exit_code),
        ("skipped", "head", "2026-11-02T00:00:00Z", "me", UnavailableError.exit_code),
        ("success", "older", "2026-11-02T00:00:00Z", "me", UnavailableError.exit_code),
        # Before the base moved on: of another merge.
        ("success", "head", "2026-10-31T00:00:00Z", "me", UnavailableError.exit_code),
        # The label sends no fork to machines of our own: its run has listed the same.
        ("success", "head", "2026-11-02T00:00:00Z", "fork", UnavailableError.exit_code),
    ],
)
def test_a_green_run_of_the_label_for_this_very_commit_is_what_a_pull_request_waits_for(  # noqa: PLR0917 - a table
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    conclusion: str,
    commit: str,
    ran: str,
    of: str,
    code: int,
) -> None:
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    event = tmp_path / "event.json"
    asked = {"head": {"sha": "head", "repo": {"full_name": f"{of}/mine"}}, "base": {"sha": "b"}}
    event.write_text(json.dumps({"pull_request": asked}))
    later = (Omitted(cell_id="gpu", target="sm_90", reason="no runner of the table has sm_90"),)
    keep_plan(dataclasses.replace(NOTHING, scope="pull_request", later=later), tmp_path)
    run = {"id": 3, "conclusion": conclusion, "head_sha": commit, "created_at": ran}
    forge = ForgeInterface(runs=[run], commits={"b": "2026-11-01T00:00:00Z"})
    with standing_in(forge, forge.github):
        job = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(event)}
        for name, text in {**github_job(forge), **job}.items():
            monkeypatch.setenv(name, text)
        assert ended(judge=True) == code
