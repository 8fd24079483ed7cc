"""The image's torch where people use it otherwise: copied into another image, in a login shell, in
an environment on top of it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from guarded import GuardedPython, a_guarded_python, findings, make_environment, sealed_cpu

from warpfront_checks.guard.channels import block, installing

pytestmark = pytest.mark.process


@pytest.fixture
def own(tmp_path: Path) -> GuardedPython:
    return a_guarded_python(tmp_path)


def test_a_stack_that_was_copied_without_its_guard_says_what_to_copy(own: GuardedPython) -> None:
    home = own.places.home
    home.rename(home.with_name("kept"))
    [line] = own.run("-c", "pass").stderr.splitlines()
    assert f"this image lacks {home}, which goes with it: COPY it too, then RUN " in line
    advised = line.partition("then RUN ")[2]
    assert advised == installing(own.places)
    shutil.rmtree(own.places.etc)
    home.with_name("kept").rename(home)
    hidden = f" --home {home} --etc {own.places.etc}"
    command = advised.replace("warpfront_guard", f"warpfront_guard{hidden}")
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)
    assert own.guard("verify").returncode == 0
    assert own.run("-c", "import torch").stderr == ""


def test_a_login_shell_starts_the_images_python(own: GuardedPython) -> None:
    profile = own.places.profile
    script = f". {profile}; . {profile}; command -v python3; echo $PIP_CONSTRAINT; echo $PATH"
    environment = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    python, constraint, path = done.stdout.splitlines()
    assert python == f"{own.folder}/venv/bin/python3"
    assert constraint == f"{own.places.constraints} {own.places.needs}"
    assert path == f"{own.places.programs}:{own.folder}/venv/bin:/usr/bin:/bin"


def test_a_profile_that_was_changed_is_found(tmp_path: Path) -> None:
    places = sealed_cpu(tmp_path)
    exported = f'export PIP_CONSTRAINT="{places.constraints} {places.needs}"\n'
    assert exported in places.profile.read_text()
    places.profile.write_text("")
    assert findings(places) == [f"channel: {places.profile}: not as the policy demands"]


@pytest.mark.parametrize("sees", [True, False])
def test_an_environment_that_asks_for_the_systems_packages_sees_the_images(
    own: GuardedPython,
    sees: bool,  # noqa: FBT001
) -> None:
    folder = own.folder / "over"
    make_environment(folder, sees_packages=sees)
    own.stand_in(block(own.places))
    done = own.run("-c", "import torch; print(torch.__file__)", python=folder / "bin" / "python")
    assert (done.stdout.strip() == f"{own.places.site_packages}/torch/__init__.py") is sees
    assert (done.stderr == "") is sees


def test_the_same_environment_with_a_torch_of_its_own_is_refused(own: GuardedPython) -> None:
    folder = own.folder / "over"
    packages = make_environment(folder, sees_packages=True)
    own.stand_in(block(own.places))
    (packages / "torch").mkdir()
    (packages / "torch" / "__init__.py").write_text("")
    done = own.run("-c", "import torch", python=folder / "bin" / "python")
    assert f"torch would come from {packages}/torch/__init__.py" in done.stderr
