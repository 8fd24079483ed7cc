"""`warpfront-guard` as a program: its exit codes and what it says."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from guarded import (
    TORCH,
    GuardedPython,
    a_guarded_python,
    an_unguarded_python,
    cpu_policy,
    install,
    remove,
)

from warpfront_checks.guard.places import HOME, places_of_this_python

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> GuardedPython:
    """For tests that change nothing in it."""
    return a_guarded_python(tmp_path_factory.mktemp("sealed"))


def as_module(guarded: GuardedPython, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a Dockerfile starts it: there is no .pth yet."""
    hidden = ("--home", str(guarded.places.home), "--etc", str(guarded.places.etc))
    library = str(guarded.places.library)
    environment = {"PYTHONPATH": library, "PIP_CONSTRAINT": "", "UV_CONSTRAINT": ""}
    return guarded.run("-m", "warpfront_guard", *hidden, *arguments, environment=environment)


def test_install_seals_the_stack_and_verify_agrees(tmp_path: Path) -> None:
    fresh = an_unguarded_python(tmp_path)
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(cpu_policy().document()))
    done = as_module(fresh, "install", "--policy", str(policy))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("sealed: torch 2.13.0+cpu, torchaudio 2.11.0+cpu")
    [line] = fresh.program("verify").stdout.splitlines()
    assert line.endswith("as it was sealed")


def test_adopt_seals_what_it_finds_and_says_what_the_image_has_to_set(tmp_path: Path) -> None:
    fresh = an_unguarded_python(tmp_path)
    done = as_module(fresh, "adopt")
    assert done.returncode == 0
    assert "sealed: torch 2.13.0+cpu, torchvision 0.28.0+cpu" in done.stdout
    ours = f"{fresh.places.constraints} {fresh.places.needs}"
    assert f'PIP_CONSTRAINT="{ours}"' in done.stdout
    assert fresh.guard("verify").returncode == 0


def test_adopt_keeps_what_the_base_has_set(tmp_path: Path) -> None:
    fresh = an_unguarded_python(tmp_path)
    hidden = ("--home", str(fresh.places.home), "--etc", str(fresh.places.etc))
    environment = {
        "PYTHONPATH": str(fresh.places.library),
        "PIP_CONSTRAINT": "/etc/pip/constraint.txt",
    }
    done = fresh.run("-m", "warpfront_guard", *hidden, "adopt", environment=environment)
    ours = f"{fresh.places.constraints} {fresh.places.needs}"
    assert f'PIP_CONSTRAINT="/etc/pip/constraint.txt {ours}"' in done.stdout


def test_adopting_where_there_is_no_torch_is_one_error(tmp_path: Path) -> None:
    fresh = an_unguarded_python(tmp_path)
    shutil.rmtree(fresh.places.site_packages / "torch")
    done = as_module(fresh, "adopt")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("warpfront-guard: ")
    assert "no torch to adopt here" in line
    assert not fresh.places.folder.exists()


def test_a_torch_on_pythonpath_is_not_the_one_that_is_adopted(tmp_path: Path) -> None:
    fresh = an_unguarded_python(tmp_path)
    place = tmp_path / "elsewhere" / "site-packages"
    install(place, "torch", "2.15.0", TORCH)
    hidden = ("--home", str(fresh.places.home), "--etc", str(fresh.places.etc))
    environment = {"PYTHONPATH": f"{place}:{fresh.places.library}"}
    done = fresh.run("-m", "warpfront_guard", *hidden, "adopt", environment=environment)
    assert "sealed: torch 2.13.0+cpu" in done.stdout


def test_a_finding_is_exit_code_1_and_a_line(tmp_path: Path) -> None:
    own = a_guarded_python(tmp_path)
    (own.places.site_packages / "torch/version.py").write_text("")
    done = own.program("verify")
    assert done.returncode == 1
    assert "file: torch/version.py: 0 bytes instead of 50" in done.stdout.splitlines()
    findings = json.loads(own.guard("verify", "--json").stdout)
    assert {"part": "file", "subject": "torch/version.py"}.items() <= findings[0].items()


def test_a_damaged_policy_is_a_finding_and_no_traceback(tmp_path: Path) -> None:
    own = a_guarded_python(tmp_path)
    own.places.policy.write_text("{")
    done = own.guard("verify")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("guard: ")


def test_relax_is_shown_by_verify_and_explain(tmp_path: Path) -> None:
    own = a_guarded_python(tmp_path)
    done = own.guard("relax", "torch", "--reason", "we bring our own")
    assert done.returncode == 0
    assert "torch is no longer protected" in done.stdout
    assert "relaxed: torch: we bring our own" in own.guard("verify").stdout
    explained = own.guard("explain").stdout
    assert "torch is relaxed: we bring our own" in explained
    assert "torchvision stays" not in explained


@pytest.mark.parametrize("command", ["verify", "explain"])
def test_after_relax_what_is_said_is_what_is_there(tmp_path: Path, command: str) -> None:
    own = a_guarded_python(tmp_path)
    own.guard("relax", "torch", "--reason", "we bring our own")
    packages = own.places.site_packages
    remove(packages, "torch", "torch-2.13.0+cpu.dist-info")
    said = own.guard(command).stdout
    assert "no torch is here; sealed was 2.13.0+cpu, which was relaxed" in said
    install(packages, "torch", "2.14.1", {**TORCH, "torch/version.py": "x = 1\n"})
    done = own.guard(command)
    assert done.returncode == 0
    assert "torch 2.14.1 is here; sealed was 2.13.0+cpu, which was relaxed" in done.stdout
    assert "as it was sealed" not in done.stdout


def test_a_relaxed_torch_whose_files_are_gone_is_a_finding(tmp_path: Path) -> None:
    own = a_guarded_python(tmp_path)
    own.guard("relax", "torch", "--reason", "we bring our own")
    remove(own.places.site_packages, "torch")
    done = own.guard("verify")
    assert done.returncode == 1
    assert "distribution: torch: 2.13.0+cpu was installed, and 5 of its" in done.stdout
    assert "as it was sealed" not in done.stdout


def test_what_is_relaxed_beside_torch_is_named_with_it(tmp_path: Path) -> None:
    own = a_guarded_python(tmp_path)
    own.guard("relax", "torchvision", "--reason", "we bring our own")
    assert "as it was sealed, all but torchvision, which may" in own.guard("verify").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("relax", "torch"),
        ("relax",),
        ("relax", "torch", "--from", "x"),
        ("relax", "not a name", "--reason", "x"),
        ("install", "--policy", "/nonexistent"),
        ("surprise",),
        (),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_exit_code_2(
    sealed: GuardedPython, arguments: tuple[str, ...]
) -> None:
    done = sealed.guard(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_the_programs_exit_code_is_that_of_the_command(sealed: GuardedPython) -> None:
    done = sealed.program("relax", "torch")
    assert done.returncode == 2
    assert done.stderr.startswith("warpfront-guard: ")


def test_the_places_of_a_python_are_below_opt_unless_said_otherwise(tmp_path: Path) -> None:
    assert places_of_this_python().home == HOME
    moved = places_of_this_python(tmp_path, tmp_path / "etc")
    assert (moved.home, moved.etc) == (tmp_path, tmp_path / "etc")


def test_of_several_folders_the_one_with_torch_is_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian has /usr/local/lib/python3.11/dist-packages and /usr/lib/python3/dist-packages."""
    import site

    local, system = tmp_path / "local/dist-packages", tmp_path / "usr/dist-packages"
    (system / "torch").mkdir(parents=True)
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(local), str(system)])
    assert places_of_this_python().site_packages == system
    (local / "torch").mkdir(parents=True)
    assert places_of_this_python().site_packages == local


def test_the_guard_runs_without_the_rest_of_warpfront(sealed: GuardedPython) -> None:
    program = "import sys, warpfront_guard.__main__; print('warpfront' in sys.modules)"
    assert sealed.run("-I", "-c", program).stdout.strip() == "False"
