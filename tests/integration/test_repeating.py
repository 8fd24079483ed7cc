"""The line that a failure carries, typed as it is said, ends as the failure did."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from builders import make_project
from projects import Project

from warpfront.step_results import repeat_line

pytestmark = pytest.mark.process
CELL = "cpu-x86_64-py311-torch2130-torch"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """One that was never locked."""
    make_project(tmp_path)
    return Project(root=tmp_path, environment=dict(os.environ))


def test_the_line_that_repeats_a_failure_repeats_it(project: Project) -> None:
    said = project.invoke("build", "--locked", "--only", CELL).expect(4).stdout
    left = json.loads((project.root / "build" / CELL / "build.json").read_text())["value"]
    assert left["kind"] == "resolution"
    program, *words = shlex.split(left["repeat"])
    assert program == "warpfront"
    again = project.invoke(*words).expect(4)
    assert again.stdout == said


def test_the_line_of_a_verification_is_one_that_the_program_reads(project: Project) -> None:
    words = shlex.split(repeat_line("verify", CELL, "x86_64"))[1:]
    # Nothing was built: it is blocked, and no option of it is unknown.
    ended = project.invoke(*words, "--json")
    assert CELL in ended.stdout


def test_resume_says_what_it_would_do_and_what_not(project: Project) -> None:
    project.invoke("build", "--locked", "--only", CELL).expect(4)
    refused = project.invoke("resume", "--dry-run").expect(0)
    assert f"not again: {CELL} on x86_64 (resolution): warpfront lock --locked" in refused.said
    (project.root / "build" / CELL / "build.json").unlink()
    wanted = project.invoke("resume", "--dry-run").expect(0)
    assert f"would build {CELL}" in wanted.said
    assert f"would verify {CELL} on x86_64" in wanted.said
    project.invoke("resume").expect(4)
