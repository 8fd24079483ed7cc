"""What other repositories take from this one: the GitHub action and the hooks of pre-commit."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
HOOKS = {
    hook["id"]: hook
    for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
}


def step(name: str) -> str:
    """Return the script of one of the action's steps."""
    (script,) = [each["run"] for each in ACTION["runs"]["steps"] if each["name"] == name]
    assert isinstance(script, str)
    return script


@pytest.mark.process
@pytest.mark.parametrize(
    ("sarif", "words"),
    [("", "scan --target gfx942"), ("out.sarif", "scan --target gfx942 --sarif out.sarif")],
)
@pytest.mark.parametrize("code", [0, 15])
def test_the_action_runs_its_command_and_ends_with_its_exit_code(
    tmp_path: Path, sarif: str, words: str, code: int
) -> None:
    program = tmp_path / "warpfront/bin/warpfront"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho "$@" >"{tmp_path}/words"\nexit {code}\n')
    program.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "WARPFRONT_COMMAND": "scan --target gfx942",
        "WARPFRONT_SARIF": sarif,
    }
    done = subprocess.run(["bash", "-c", step("run")], env=environment, check=False)
    assert done.returncode == code
    assert (tmp_path / "words").read_text().strip() == words
    assert (tmp_path / "output").read_text().strip() == f"exit-code={code}"


def test_the_action_installs_by_hash_and_from_its_own_commit() -> None:
    lines = [line for line in step("install").splitlines() if "pip install" in line]
    assert "--require-hashes" in lines[0]
    assert '--no-deps --no-build-isolation "$GITHUB_ACTION_PATH"' in lines[1]
    assert len(lines) == 2
    assert (ROOT / "ci/requirements.txt").is_file()


def warpfront(folder: Path, *words: str) -> int:
    """Run the command line in a folder and return its exit code."""
    command = (sys.executable, "-m", "warpfront", *words)
    return subprocess.run(command, cwd=folder, check=False).returncode


def project(tmp_path: Path) -> Path:
    """Return a new project with the files of examples/server."""
    folder = tmp_path / "project"
    folder.mkdir()
    assert warpfront(folder, "init") == 0
    shutil.copytree(EXAMPLES / "server", folder, dirs_exist_ok=True)
    return folder


def run_hook(name: str, folder: Path, *words: str) -> int:
    program, *arguments = shlex.split(HOOKS[name]["entry"])
    assert program == "warpfront"
    return warpfront(folder, *arguments, *words)


@pytest.mark.process
def test_the_matrix_hook_refuses_a_wrong_matrix(tmp_path: Path) -> None:
    folder = project(tmp_path)
    assert run_hook("warpfront-matrix", folder) == 0
    text = (folder / "matrix.yaml").read_text()
    (folder / "matrix.yaml").write_text(text.replace("vendor: cpu", "vendor: vcpu"))
    assert run_hook("warpfront-matrix", folder) == 2


@pytest.mark.process
def test_the_lock_hook_refuses_a_cell_without_a_lock(tmp_path: Path) -> None:
    assert run_hook("warpfront-lock", project(tmp_path), "--vendor", "cpu") == 4


@pytest.mark.process
@pytest.mark.parametrize(
    ("line", "options", "code"),
    [
        # Its branch for AMD was not compiled.
        ("", [], 33),
        ("", ["--allow-undetermined"], 0),
        ('asm volatile("bar.sync 0;");', ["--allow-undetermined"], 15),
    ],
)
def test_the_scan_hook_refuses_what_does_not_run_there(
    tmp_path: Path, line: str, options: list[str], code: int
) -> None:
    folder = tmp_path / "sources"
    shutil.copytree(EXAMPLES / "extension", folder)
    if line:
        kernel = folder / "bad.cu"
        kernel.write_text(f"__global__ void kernel() {{\n{line}\n}}\n")
    assert run_hook("warpfront-scan", folder, "--target", "gfx942", *options) == code
