"""The lock of AMD's rows, made once on a connected machine: `warpfront lock`, over an index
on loopback that serves stand-ins as pytorch.org serves ROCm 7.14's. No Docker.
"""

from __future__ import annotations

import os
import sys
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from projects import SITE_VARIABLES, Project, write_project
from standins import (
    ROCM_DEVICES,
    Index,
    rocm10_stand_ins,
    rocm714_stand_ins,
    serve_index,
    stand_in_wheel,
)

from warpfront.system.process import Command, Completed, run
from warpfront.wheels.lock.pylock import read_lock
from warpfront.wheels.rocm import rocm_wheel

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

CELL = "amd-rocm714-gfx942_gfx950-py311-torch2141-torch"
LOCK = f"images/locks/pylock.{CELL}.toml"


@pytest.fixture
def rocm(tmp_path: Path) -> Iterator[Index]:
    with serve_index(rocm714_stand_ins(tmp_path / "wheels"), name="rocm7.14") as served:
        served.unhashed = "rocm[-_]*"
        yield served


@pytest.fixture
def project(rocm: Index, tmp_path: Path) -> Project:
    row: dict[str, object] = {
        "vendor": "amd",
        "toolkit": "7.14",
        "targets": ["gfx942", "gfx950"],
        "torch": "2.14.1",
        "companions": ["torchvision"],
    }
    root = write_project(
        tmp_path / "project",
        rows=[row],
        images={"torch": {"template": "torch", "title": "ROCm"}},
        indexes={"rocm7.14": rocm.url},
    )
    nowhere = {"DOCKER_HOST": "tcp://127.0.0.1:9", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return Project(root=root, environment={**os.environ, **nowhere})


def plan(project: Project) -> tuple[str, str]:
    (cell,) = project.invoke("plan", "--json").expect(0).json
    assert cell["cell_id"] == CELL
    return cell["reason"], cell["hint"]


def test_one_command_on_a_connected_machine_is_all_that_a_row_lacks(
    project: Project, rocm: Index
) -> None:
    assert plan(project) == ("never built: it has no lock yet", "")
    said = project.invoke("lock", "--target", "gfx942").expect(0).said
    for target in ("gfx942", "gfx950"):
        assert f"bytes for {target}" in said
    lock = read_lock((project.root / LOCK).read_text(encoding="utf-8"), path=LOCK)
    assert {wheel.name: wheel.version for wheel in lock.wheels} == {
        "torch": "2.14.1+rocm7.14",
        "torchvision": "0.29.1+rocm7.14",
        "triton-rocm": "3.8.0",
        "rocm": "7.14.0.post1",
        "rocm-sdk-core": "7.14.0",
        "rocm-sdk-libraries": "7.14.0",
        "rocm-sdk-device-gfx942": "7.14.0",
        "rocm-sdk-device-gfx950": "7.14.0",
    }
    assert {wheel.index for wheel in lock.wheels} == {rocm.url}
    assert "never built" not in plan(project)[0]
    project.invoke("lock", "--locked").expect(0)


def test_where_the_index_is_out_of_reach_the_plan_says_which_command_is_missing(
    project: Project, rocm: Index
) -> None:
    matrix = project.root / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace(rocm.url, "http://127.0.0.1:9/whl/rocm7.14"))
    reason, hint = plan(project)
    assert reason.startswith("never built: it has no lock yet; http://127.0.0.1:9/whl/rocm7.14: ")
    assert hint.startswith("warpfront lock --target gfx942, on a machine that reaches its index")


def installed(folder: Path, wheels: Iterable[Path]) -> Path:
    """Return an environment with exactly these wheels: without a pip of its own, whose installation
    takes three times as long as theirs.
    """
    venv.create(folder, symlinks=True)
    ran(folder, "install", "--no-index", "--no-deps", *map(str, wheels)).check()
    return folder


def ran(folder: Path, *arguments: str) -> Completed:
    """Run this Python's pip on an environment."""
    argv = (sys.executable, "-m", "pip", "--python", str(folder), *arguments)
    settings = {"PIP_CONFIG_FILE": os.devnull}
    return run(Command(argv=argv, environment=settings, unset=SITE_VARIABLES))


@pytest.mark.parametrize("whole", [False, True], ids=["the row's targets", "AMD's own list"])
def test_what_needs_torch_can_be_installed_beside_it(tmp_path: Path, *, whole: bool) -> None:
    """With AMD's own `device-all` pip wants the code of every GPU before it takes a torch that is
    there already.
    """
    index = rocm714_stand_ins(tmp_path / "index", rocm={"7.14.0": "7.14.0"})
    targets = ROCM_DEVICES if whole else ("gfx942", "gfx950")
    rocm = rocm_wheel(index / "rocm-7.14.0.tar.gz", tmp_path / "made", targets)
    names = (
        "torch-",
        "triton_rocm",
        "rocm_sdk_core",
        "rocm_sdk_libraries",
        "rocm_sdk_device_gfx942",
        "rocm_sdk_device_gfx950",
    )
    made = installed(tmp_path / "venv", [rocm, *(next(index.glob(f"{one}*")) for one in names)])
    wheel = stand_in_wheel(tmp_path, "acme", "1.0", requires=["torch>=2.9"])
    found = ran(made, "install", "--no-index", str(wheel))
    assert (found.returncode == 0) is not whole, found.stderr
    if whole:
        assert "rocm-sdk-device-gfx" in found.stderr
    else:
        ran(made, "check").check()


CELL_10 = "amd-rocm100-gfx942_gfx1201-py313-torch2130-torch"
DEVICES_10 = ("gfx90a", "gfx942", "gfx1100", "gfx1200", "gfx1201")


@pytest.fixture
def rocm10(tmp_path: Path) -> Iterator[Index]:
    folder = rocm10_stand_ins(tmp_path / "wheels", devices=DEVICES_10)
    with serve_index(folder, name="whl-next") as served:
        yield served


def project_of_10(index: Index, tmp_path: Path, *, packages: tuple[str, ...] = ()) -> Project:
    row: dict[str, object] = {
        "vendor": "amd",
        "toolkit": "10.0",
        "targets": ["gfx942", "gfx1201"],
        "torch": "2.13.0",
        "companions": ["torchvision", "torchaudio"],
        "python": "3.13",
        "base": "debian-13",
    }
    image = {"template": "torch", "title": "ROCm", "packages": list(packages)}
    root = write_project(
        tmp_path / "project",
        rows=[row],
        images={"torch": image},
        bases=("debian-12", "debian-13"),
        indexes={"amd-rocm10.0": index.url},
    )
    nowhere = {"DOCKER_HOST": "tcp://127.0.0.1:9", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return Project(root=root, environment={**os.environ, **nowhere})


def test_a_rocm_10_cell_gets_the_device_packages_of_its_targets_and_no_other(
    rocm10: Index, tmp_path: Path
) -> None:
    """torch and vision by their extras, audio by none; a family's package comes with its member."""
    project = project_of_10(rocm10, tmp_path)
    for newer in ("2.14.0+rocm10.0.0", "2.15.0+rocm10.1.0", "2.15.0a0+rocm10.0.0"):
        stand_in_wheel(rocm10.folder, "torch", newer, tag="cp313-cp313-linux_x86_64")
    said = project.invoke("lock").expect(0).said
    for target in ("gfx942", "gfx1201"):
        assert f"bytes for {target}" in said
    path = f"images/locks/pylock.{CELL_10}.toml"
    lock = read_lock((project.root / path).read_text(encoding="utf-8"), path=path)
    label = "+rocm10.0.0"
    assert {wheel.name: wheel.version for wheel in lock.wheels if "device" in wheel.name} == {
        "amd-torch-device-gfx942": f"2.13.0{label}",
        "amd-torch-device-gfx1201": f"2.13.0{label}",
        "amd-torch-device-gfx12-0": f"2.13.0{label}",
        "amd-torchvision-device-gfx942": f"0.28.0{label}",
        "amd-torchvision-device-gfx1201": f"0.28.0{label}",
        "rocm-sdk-device-gfx942": "10.0.0",
        "rocm-sdk-device-gfx1201": "10.0.0",
    }
    others = {wheel.name: wheel.version for wheel in lock.wheels if "device" not in wheel.name}
    assert others["torchaudio"] == f"2.11.0.2{label}"
    assert others["rocm"] == others["rocm-sdk-libraries"] == "10.0.0"
    project.invoke("lock", "--locked").expect(0)


def test_every_device_is_refused_with_the_targets_of_the_row(rocm10: Index, tmp_path: Path) -> None:
    project = project_of_10(rocm10, tmp_path, packages=("torch[device-all]",))
    said = project.invoke("lock").expect(4).said
    assert "torch[device-all] asks for the code of every GPU" in said
    assert "the row's targets (gfx1201 gfx942) bring theirs" in said


def test_a_target_that_the_index_has_no_package_for_is_refused_by_name(tmp_path: Path) -> None:
    folder = rocm10_stand_ins(tmp_path / "wheels", devices=("gfx942",))
    with serve_index(folder, name="whl-next") as served:
        said = project_of_10(served, tmp_path).invoke("lock").expect(4).said
    assert "device-gfx1201" in said
