"""What GitHub's environment says of a run, and what is said to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from warpfront.errors import InputError
from warpfront.system.provenance import Forge, read_forge


def forge_of(event: str, payload: Any, folder: Path, **more: str) -> Forge:
    path = folder / "event.json"
    path.write_text(payload if isinstance(payload, str) else json.dumps(payload))
    said = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": event,
        "GITHUB_EVENT_PATH": str(path),
        "GITHUB_REPOSITORY": "me/mine",
    }
    return read_forge({**said, **more}, label="gpu")


def asked(repository: str | None, *labels: str) -> dict[str, Any]:
    head = {"sha": "head", "repo": {"full_name": repository} if repository else None}
    named = [{"name": label} for label in labels]
    return {"pull_request": {"base": {"sha": "abc"}, "head": head, "labels": named}}


@pytest.mark.parametrize(
    ("event", "payload", "scope", "since"),
    [
        ("pull_request", asked("me/mine"), "pull_request", "abc"),
        ("pull_request", asked("me/mine", "gpu"), "labelled", "abc"),
        ("pull_request", asked("fork/mine", "gpu"), "pull_request", "abc"),
        ("pull_request", asked(None, "gpu"), "pull_request", "abc"),
        ("merge_group", {"merge_group": {"base_sha": "def"}}, "merge_queue", "def"),
        ("schedule", {}, "nightly", ""),
        ("workflow_dispatch", {"inputs": {"scope": "release"}}, "release", ""),
        ("workflow_dispatch", {"inputs": None}, "nightly", ""),
        ("push", {"ref": "refs/heads/main", "before": "abc"}, "merged", "abc"),
        ("push", {"ref": "refs/heads/main", "before": "0" * 40}, "merged", ""),
        ("push", {"ref": "refs/tags/v1", "before": "0" * 40}, "release", ""),
    ],
)
def test_an_event_is_a_scope_and_what_to_compare_with(
    event: str, payload: Any, scope: str, since: str, tmp_path: Path
) -> None:
    forge = forge_of(event, payload, tmp_path)
    assert (forge.scope, forge.since) == (scope, since)


def test_how_other_jobs_ended_is_heard(tmp_path: Path) -> None:
    forge = forge_of("schedule", {}, tmp_path, PLANNED="success", ENDED="success,failure,")
    assert (forge.planned, forge.ended) == ("success", ("success", "failure"))


def test_what_is_said_is_added_to_what_was(tmp_path: Path) -> None:
    summary, outputs = tmp_path / "summary", tmp_path / "outputs"
    summary.write_text("before\n")
    files = {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_OUTPUT": str(outputs)}
    forge = forge_of("schedule", {}, tmp_path, **files)
    forge.say_summary("after\n")
    forge.say_outputs({"build": "[]", "channel": ""})
    assert summary.read_text() == "before\nafter\n"
    assert outputs.read_text() == "build=[]\nchannel=\n"


def test_on_a_laptop_nothing_is_said(tmp_path: Path) -> None:
    forge = read_forge({"GITHUB_STEP_SUMMARY": str(tmp_path / "x")}, label="gpu")
    forge.say_summary("x")
    forge.say_outputs({"a": "b"})
    assert forge == Forge()
    assert not (tmp_path / "x").exists()


def test_an_event_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the JSON of an event"):
        forge_of("schedule", "{", tmp_path)
