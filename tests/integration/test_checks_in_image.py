"""All checks at full effort, their seeded faults, and their own tests, inside the built CPU image.

What runs always: the same image's quick checks (test_cpu_path), and tests/checks with the image's
very torch (`scripts/test checks`).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from warpfront.images.engine.protocol import Bind, Engine, RunRequest
from warpfront_checks.check_options import SESSIONS

pytestmark = [pytest.mark.docker, pytest.mark.network, pytest.mark.exhaustive]

REPOSITORY = Path(__file__).parents[2]
CELL = "cpu-x86_64-py311-torch2130-torch"
# safetensors, against whose library our own reader and writer are tested, is in no image.
NEEDED = ("pytest", "hypothesis", "safetensors")


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
def pytest_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tests need for the image's Python, from wherever pip gets its wheels here."""
    folder = tmp_path_factory.mktemp("pytest")
    options = ("--quiet", "--python-version", "3.11", "--only-binary=:all:")
    subprocess.run(
        (sys.executable, "-m", "pip", "install", *options, "--target", folder, *NEEDED), check=True
    )
    return folder


def test_everything_passes_inside_the_image_and_every_seeded_fault_is_caught(
    here: dict[str, str], cpu_image: str
) -> None:
    assert cpu_image
    done = command(here, "verify", "--selftest", "--json")
    assert done.returncode == 0, done.stderr
    (verification,) = json.loads(done.stdout)
    sessions = Counter(one["session"] for one in verification["checks"])
    assert set(sessions) == {*SESSIONS, "selftest"}
    assert {one["outcome"] for one in verification["checks"]} == {"passed"}
    counts = verification["environment"]["counts"]
    assert counts["of the 65"] == 65
    assert counts["cases"] > 5000
    caught = [one for one in verification["checks"] if one["session"] == "selftest"]
    assert sum("seeded faults caught" in check["reason"] for check in caught) >= 20


def test_the_tests_of_the_checks_pass_with_the_images_torch(
    engine: Engine, cpu_image: str, pytest_folder: Path
) -> None:
    lines: list[str] = []
    result = engine.run(
        RunRequest(
            image=cpu_image,
            command=(
                "python3",
                "-m",
                "pytest",
                "-c",
                "/dev/null",
                "--rootdir",
                "/tests",
                "-q",
                "-p",
                "no:cacheprovider",
                "--import-mode=importlib",
                "-ra",
                "-o",
                "markers=process: starts child processes\nexhaustive: a sweep\ntimeout:",
                # The recipe is followed on a copy of the repository, which is not in there.
                "/tests/checks",
                "--ignore=/tests/checks/test_recipe.py",
            ),
            binds=(
                Bind(source=REPOSITORY / "tests", target="/tests"),
                Bind(source=REPOSITORY / "src", target="/src"),
                Bind(source=REPOSITORY / "docs", target="/docs"),
                Bind(source=pytest_folder, target="/pytest"),
            ),
            environment={
                "PYTHONPATH": "/src:/tests:/pytest",
                "PYTHONDONTWRITEBYTECODE": "1",
                "HOME": "/tmp",
                "OMP_WAIT_POLICY": "PASSIVE",
            },
            memory_bytes=8 * 2**30,
            time_limit_seconds=600,
        ),
        on_line=lines.append,
    )
    assert result.exit_code == 0, "\n".join(lines[-40:])
    passed = re.fullmatch(r"(\d+) passed.* in .*", lines[-1])
    assert passed is not None, lines[-1]
    assert int(passed[1]) > 300
