"""The checks' own tests where torch is: inside the built CPU image, with its Python and its
torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from warpfront.engine import Bind, Engine, RunRequest

pytestmark = [pytest.mark.docker, pytest.mark.network]

REPOSITORY = Path(__file__).parents[2]
CELL = "cpu-x86_64-py311-torch2130-torch"
IMAGE = "localhost/warpfront/torch:2.13.0-cpu-py3.11"


def command(here: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "warpfront", *argv, "--only", CELL),
        cwd=REPOSITORY,
        env=here,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def image(here: dict[str, str]) -> str:
    """The CPU image of this repository, built or reused."""
    done = command(here, "build", "--locked")
    assert done.returncode == 0, done.stderr
    return IMAGE


@pytest.fixture(scope="module")
def pytest_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pytest for the image's Python, from wherever pip gets its wheels here."""
    folder = tmp_path_factory.mktemp("pytest")
    options = ("--quiet", "--python-version", "3.11", "--only-binary=:all:")
    subprocess.run(
        (sys.executable, "-m", "pip", "install", *options, "--target", folder, "pytest"), check=True
    )
    return folder


def test_every_seeded_fault_is_caught_inside_the_image(here: dict[str, str], image: str) -> None:
    assert image
    done = command(here, "verify", "--selftest", "--json")
    assert done.returncode == 0, done.stderr
    (verification,) = json.loads(done.stdout)
    caught = [one for one in verification["checks"] if one["session"] == "selftest"]
    assert {check["outcome"] for check in caught} == {"passed"}
    assert sum("seeded faults caught" in check["reason"] for check in caught) >= 9


def test_the_tests_of_the_checks_pass_with_the_images_torch(
    engine: Engine, image: str, pytest_folder: Path, toolbox: Path
) -> None:
    lines: list[str] = []
    result = engine.run(
        RunRequest(
            image=image,
            command=(
                *("python3", "-m", "pytest", "-c", "/dev/null", "--rootdir", "/tests", "-q"),
                *("-p", "no:cacheprovider", "--import-mode=importlib", "-ra"),
                "/tests/unit/test_checks_numerics.py",
            ),
            binds=(
                Bind(source=REPOSITORY / "tests", target="/tests"),
                Bind(source=REPOSITORY / "src", target="/src"),
                Bind(source=pytest_folder, target="/pytest"),
                Bind(source=toolbox, target="/toolbox"),
            ),
            environment={
                "PYTHONPATH": "/src:/pytest:/toolbox",
                "PYTHONDONTWRITEBYTECODE": "1",
                "HOME": "/tmp",
            },
            memory_bytes=8 * 2**30,
            time_limit_seconds=600,
        ),
        on_line=lines.append,
    )
    assert result.exit_code == 0, "\n".join(lines[-40:])
    assert " passed" in lines[-1]
    assert "skipped" not in lines[-1]
