"""What stands before the watch when Python starts, and the watch in environments made from the
image's Python.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from guarded import (
    GuardedPython,
    a_guarded_python,
    findings,
    make_environment,
    places_below,
    sealed_cpu,
)

from warpfront_checks.guard.channels import (
    block,
    channel_findings,
    environment_channels,
    with_block,
)
from warpfront_checks.guard.places import Places
from warpfront_checks.guard.policy import read_policy
from warpfront_checks.guard.sealing import seal

A_FINDER = """
import sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None

def put():
    sys.meta_path.insert(0, Finder)
"""


def test_what_a_new_python_has_before_the_watch_is_a_finding(tmp_path: Path) -> None:
    places = sealed_cpu(tmp_path)
    assert findings(places, start=[]) == []
    start = [("evil.Finder", "it is asked for torch before the watch is")]
    [line] = findings(places, start=start)
    assert line == "import: evil.Finder: it is asked for torch before the watch is"


@pytest.mark.process
def test_verify_asks_a_python_that_has_just_started(tmp_path: Path) -> None:
    guarded = a_guarded_python(tmp_path)
    assert guarded.guard("verify").returncode == 0
    (guarded.places.site_packages / "finder.py").write_text(A_FINDER)
    (guarded.places.site_packages / "a_finder.pth").write_text("import finder; finder.put()\n")
    done = guarded.guard("verify")
    assert done.returncode == 1
    assert "import: finder.Finder: it is asked for torch before the watch is" in done.stdout
    (guarded.places.site_packages / "a_finder.pth").write_text(
        "import sys, types; sys.modules['torch'] = types.ModuleType('torch')\n"
    )
    assert (
        "import: torch: it is in sys.modules when Python starts" in guarded.guard("verify").stdout
    )
    (guarded.places.site_packages / "a_finder.pth").unlink()
    (guarded.places.site_packages / "z_finder.pth").write_text(
        "import sys; sys.meta_path[:] = [one for one in sys.meta_path if isinstance(one, type)]\n"
    )
    assert "import: sys.meta_path: the watch is not in it" in guarded.guard("verify").stdout


def with_library(places: Places, folder: Path) -> Places:
    folder.mkdir()
    return dataclasses.replace(places, standard_library=folder)


def test_a_base_keeps_its_own_sitecustomize(tmp_path: Path) -> None:
    places = places_below(tmp_path)
    theirs = "import apport_python_hook"
    once = with_block(theirs, places)
    assert once.startswith(f"{theirs}\n")
    assert with_block(once, places) == once
    assert block(places) in once


def test_a_sitecustomize_without_the_watch_is_found(tmp_path: Path) -> None:
    places = with_library(sealed_cpu(tmp_path / "a"), tmp_path / "library")
    policy = read_policy(places.policy)
    seal(policy, places, python="python3")
    assert places.sitecustomize is not None
    assert channel_findings(policy, places, environment_channels(places)) == []
    places.sitecustomize.write_text("")
    [(subject, text)] = channel_findings(policy, places, environment_channels(places))
    assert (subject, text) == (str(places.sitecustomize), "it does not start the watch")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> GuardedPython:
    """For tests that change nothing in it."""
    return a_guarded_python(tmp_path_factory.mktemp("image"))


def an_environment(image: GuardedPython, folder: Path, torch: str) -> Path:
    """Somebody's own environment with a torch in it, that imports the guard's sitecustomize."""
    packages = make_environment(folder)
    (packages / "torch").mkdir()
    (packages / "torch" / "__init__.py").write_text("")
    (packages / f"torch-{torch}.dist-info").mkdir()
    image.stand_in(block(image.places))
    return folder / "bin" / "python"


@pytest.mark.process
def test_another_torch_of_somebodys_own_environment_is_told_from_the_images(
    image: GuardedPython, tmp_path: Path
) -> None:
    done = image.run("-c", "import torch", python=an_environment(image, tmp_path, "2.15.0"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("warpfront guard: torch 2.15.0 of ")
    assert "is not this image's torch 2.13.0+cpu" in done.stderr


@pytest.mark.process
def test_the_same_torch_in_somebodys_own_environment_is_nothing_to_tell(
    image: GuardedPython, tmp_path: Path
) -> None:
    done = image.run("-c", "import torch", python=an_environment(image, tmp_path, "2.13.0+cpu"))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
def test_pip_in_somebodys_own_environment_is_constrained_too(
    image: GuardedPython, tmp_path: Path
) -> None:
    python = an_environment(image, tmp_path, "2.15.0")
    program = "import os; print(os.environ['PIP_CONSTRAINT'])"
    done = image.run("-c", program, python=python, environment={"PIP_CONSTRAINT": ""})
    ours = [str(image.places.constraints), str(image.places.needs)]
    assert done.stdout.split() == ours
