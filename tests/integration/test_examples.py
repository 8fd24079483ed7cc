"""The projects of examples/: built and verified on the CPU, as their README says. Their torch is
this repository's own image, by its lock.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from projects import CPU_CELL, REPOSITORY, Project

from warpfront.images.engine.protocol import Engine

pytestmark = [pytest.mark.docker, pytest.mark.network]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("server"),
        pytest.param("finetune", marks=pytest.mark.exhaustive),
        pytest.param("notebook", marks=pytest.mark.exhaustive),
        pytest.param("extension", marks=pytest.mark.exhaustive),
    ],
)
def test_an_example_is_built_and_verified(
    name: str, tmp_path: Path, engine: Engine, cpu_image: str
) -> None:
    project = Project(root=tmp_path, environment=dict(os.environ))
    subprocess.run((sys.executable, "-m", "warpfront", "init"), cwd=tmp_path, check=True)
    shutil.copytree(REPOSITORY / "examples" / name, tmp_path, dirs_exist_ok=True)
    lock = Path("images", "locks", f"pylock.{CPU_CELL}.toml")
    (tmp_path / lock).parent.mkdir()
    shutil.copy(REPOSITORY / lock, tmp_path / lock)
    engine.tag(cpu_image, cpu_image.replace("/warpfront/", f"/{name}/"))
    try:
        answers = project.invoke("build", "--vendor", "cpu", "--json", timeout=900).expect(0).json
        assert answers[CPU_CELL]["reused"]
        # The session `stack` alone: the others are about the image of torch, which is others' test.
        project.verify(("load", "stack"), "--vendor", "cpu", "--image", name, timeout=600).expect(0)
        cell = f"cpu-x86_64-py311-torch2130-{name}"
        checks = project.checks(cell, "x86_64")
        ran = {
            check: outcome
            for (session, check), (outcome, _) in checks.items()
            if session == "stack"
        }
        (run,) = [check for check in ran if check.endswith(": runs")]
        assert ran[run] == "passed"
    finally:
        project.invoke("clean", "--vendor", "cpu").expect(0)
