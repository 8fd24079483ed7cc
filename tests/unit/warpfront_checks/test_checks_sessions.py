"""The doors: nox, the entry script and the command line of the checks, as real child processes."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest
from nox import Session

import warpfront
import warpfront_checks
from warpfront.cli import sessions
from warpfront.cli.sessions import claims_for_target
from warpfront_checks.results import write_json

PACKAGE = Path(warpfront.__file__).parent
ROOT = PACKAGE.parents[1]
SEEN_INSIDE = [
    *sorted(Path(warpfront_checks.__file__).parent.glob("*.py")),
    PACKAGE / "cli" / "sessions.py",
    PACKAGE / "cli" / "__init__.py",
    PACKAGE / "__init__.py",
]

FAKE_TORCH = '''
"""A torch that sees no device, and tells which folders it was found from."""
import os, sys
from types import SimpleNamespace
if os.environ.get("DIE"):
    os._exit(int(os.environ["DIE"]))
with open(os.environ["SEEN"], "w") as file:
    file.write("\\n".join(sys.path))
__version__ = "2.14.1+cu130"
version = SimpleNamespace(cuda="13.0", hip=None)
cuda = SimpleNamespace(is_available=lambda: False, get_arch_list=list, init=lambda: None)
_C = SimpleNamespace(__file__=sys.executable, _cuda_getArchFlags=lambda: "sm_90")
'''


@pytest.mark.parametrize("path", SEEN_INSIDE, ids=lambda path: path.name)
def test_what_runs_inside_parses_on_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))


@pytest.fixture
def container(tmp_path: Path) -> Path:
    """The folders as they are mounted into an image, with a toolbox and a torch of our own."""
    root = tmp_path / "warpfront"
    for package in (warpfront, warpfront_checks):
        folder = Path(package.__path__[0])
        shutil.copytree(folder, root / "src" / package.__name__)
    (root / "noxfile.py").write_text("import yaml_of_somebody  # a project's own, not for images")
    (root / "toolbox").symlink_to(Path(pytest.importorskip("nox").__file__).parents[1])
    site = tmp_path / "site"
    site.mkdir()
    (site / "torch.py").write_text(FAKE_TORCH)
    (tmp_path / "results").mkdir()
    write_json(root / "claims.json", claims_for_target("sm_90").document())
    return root


def enter(root: Path, *sessions: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As in an image: an isolated Python whose only own package is torch."""
    script = (
        "import sys; from pathlib import Path; "
        f"sys.path.insert(0, {str(root / 'src' / 'warpfront_checks')!r}); "
        "import enter; results = Path(sys.argv.pop()); enter.main(sys.argv[1:], results=results)"
    )
    return subprocess.run(
        [sys.executable, "-S", "-c", script, *sessions, str(root.parent / "results")],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(root.parent / "site"), **environment},
    )


@pytest.mark.process
def test_sessions_run_in_children_that_do_not_see_the_toolbox(container: Path) -> None:
    seen = container.parent / "seen"
    done = enter(container, "load", SEEN=str(seen))
    document = json.loads((container.parent / "results" / "load.json").read_text())
    assert document["finished"] is True, done.stderr
    report = json.loads((container.parent / "results" / "nox.json").read_text())
    assert [entry["name"] for entry in report["sessions"]] == ["load"]
    folders = seen.read_text().splitlines()
    assert str(container / "src") in folders
    assert str(container / "toolbox") not in folders
    assert str(container / "src" / "warpfront_checks") not in folders


@pytest.mark.process
def test_a_process_that_dies_fails_the_session_and_leaves_its_plan(container: Path) -> None:
    done = enter(container, "load", DIE="139", SEEN="/dev/null")
    assert done.returncode != 0
    document = json.loads((container.parent / "results" / "load.json").read_text())
    assert document["finished"] is False
    assert document["planned"]
    assert document["checks"] == []


@pytest.mark.process
def test_entering_without_a_session_says_how(container: Path) -> None:
    done = enter(container)
    assert "usage: enter.py SESSION" in done.stderr


def nox(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "nox", "-s", "verify", "--", *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.process
def test_a_wrong_option_is_refused_with_words() -> None:
    done = nox("--heer")
    assert done.returncode != 0
    assert "No such option '--heer'" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--here", "--target", "h100"], "not of the form of any vendor"),
        (["--here", "--image", "torch"], "--vendor, --image and --only do not apply"),
    ],
)
def test_what_cannot_be_verified_here_is_said_before_anything_runs(
    arguments: list[str], complaint: str
) -> None:
    def stop(said: str) -> NoReturn:
        raise RuntimeError(said)

    session = SimpleNamespace(posargs=arguments, error=stop)
    with pytest.raises(RuntimeError, match=complaint):
        sessions._verify(cast("Session", session))


@pytest.mark.process
def test_checks_without_claims_say_where_they_come_from(tmp_path: Path) -> None:
    argv = ["load", "--claims", str(tmp_path / "none.json"), "--results", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "warpfront_checks", *argv],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "hint: the claims file is written by" in done.stderr
