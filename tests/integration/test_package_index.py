"""What resolution gets from a real package index: PyPI's own pages, and the tools that an isolated
build installs. No Docker.
"""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from standins import Index, rocm714_stand_ins, serve_index

from warpfront.errors import CommandFailedError, LockError, WheelError
from warpfront.images.crafting import Crafter
from warpfront.images.engine import Engine
from warpfront.matrix.vendors import VENDORS
from warpfront.model import (
    LockedWheel,
    LockInputs,
    Recipe,
    Source,
    WheelBuild,
    WheelIndex,
    WheelLock,
)
from warpfront.pipeline.locking import resolve_by_uv
from warpfront.system import process
from warpfront.system.process import Command, Completed
from warpfront.wheels.archives import folder_sha256
from warpfront.wheels.choice import wheel_of
from warpfront.wheels.lock import dump_lock, read_lock
from warpfront.wheels.resolution import Sdist
from warpfront.wheels.sdists import sdist_builder
from warpfront.wheels.site import read_site
from warpfront.wheels.sources import Site
from warpfront.wheels.tools import install_toolbox
from warpfront.wheels.trust import PYPI
from warpfront.wheels.uv_program import uv_version
from warpfront.wheels.wheelhouse import Wheelhouse

pytestmark = [pytest.mark.process, pytest.mark.network]


@pytest.fixture(scope="module")
def site() -> Site:
    """This machine's own indexes."""
    return read_site(process.run)


@pytest.fixture
def house(tmp_path: Path) -> Wheelhouse:
    return Wheelhouse(tmp_path / "house")


def resolved(inputs: LockInputs, site: Site, house: Wheelhouse) -> WheelLock:
    return resolve_by_uv(inputs, site, run=process.run, on_line=print, wheelhouse=house)


@pytest.fixture
def rocm714(tmp_path: Path) -> Iterator[Index]:
    with serve_index(rocm714_stand_ins(tmp_path / "rocm714"), name="rocm7.14") as index:
        yield index


class InIsolation:
    """Builds here what warpfront builds in a container."""

    def __init__(self, house: Wheelhouse, site: Site) -> None:
        self._house = house
        self._site = site

    def from_source(self, source: Source) -> tuple[LockedWheel, WheelBuild | None]:
        raise AssertionError(source)

    def from_sdist(self, sdist: Sdist, recipe: Recipe) -> tuple[LockedWheel, WheelBuild]:
        with tempfile.TemporaryDirectory() as folder:
            built = sdist_builder(self._site, process.run)(sdist.path, Path(folder))
            kept, sha256 = self._house.keep(built)
        wheel = wheel_of(kept, sha256, sdist=sdist)
        return wheel, WheelBuild(package=recipe.package, tools=recipe.tools)


def test_rocm_from_7_14_brings_its_runtime_and_one_wheel_built_from_an_sdist(
    rocm714: Index, site: Site, house: Wheelhouse, tmp_path: Path
) -> None:
    inputs = LockInputs(
        cell_id="rocm714-torch",
        python="3.11",
        machine="x86_64",
        glibc="2.36",
        index=WheelIndex(name=rocm714.name, url=rocm714.url),
        stack_requirements=("torch==2.14.1+rocm7.14",),
        requirements=(),
        protected=VENDORS["amd"].protected,
    )
    with pytest.raises(LockError, match="rocm"):
        resolved(inputs, site, house)
    allowed = dataclasses.replace(inputs, allow_builds=("rocm",))
    crafting = InIsolation(house, site)
    lock = resolve_by_uv(
        allowed, site, run=process.run, on_line=print, wheelhouse=house, crafting=crafting
    )
    assert lock.inputs_digest == inputs.digest
    assert [one.package for one in lock.builds] == ["rocm"]
    assert {wheel.name: wheel.version for wheel in lock.wheels} == {
        "rocm": "7.14.0",
        "rocm-sdk-core": "7.14.0",
        "rocm-sdk-device-gfx942": "7.14.0",
        "rocm-sdk-libraries-gfx94x-dcgpu": "7.14.0",
        "torch": "2.14.1+rocm7.14",
        "triton-rocm": "3.8.0",
    }
    assert {wheel.index for wheel in lock.wheels} == {rocm714.url}
    (rocm,) = [wheel for wheel in lock.wheels if wheel.name == "rocm"]
    sdist = rocm714.folder / "rocm-7.14.0.tar.gz"
    assert rocm.sdist == sdist.name
    assert rocm.sdist_sha256 == hashlib.sha256(sdist.read_bytes()).hexdigest()
    assert read_lock(dump_lock(lock), path="pylock.cell.toml") == lock

    elsewhere = Wheelhouse(tmp_path / "elsewhere")
    build = sdist_builder(site, process.run)
    elsewhere.fetch(lock.wheels, site, on_progress=lambda *_: None, build=build)
    assert elsewhere.missing(lock.wheels) == ()
    with pytest.raises(WheelError, match="nothing here builds it"):
        Wheelhouse(tmp_path / "third").fetch((rocm,), site, on_progress=lambda *_: None)


def test_pypi_itself_resolves_a_cuda_stack(site: Site, house: Wheelhouse) -> None:
    inputs = LockInputs(
        cell_id="cu130-torch",
        python="3.11",
        machine="x86_64",
        glibc="2.36",
        index=WheelIndex(name="pypi", url=PYPI),
        stack_requirements=("torch===2.14.1", "torchvision===0.29.1", "torchaudio===2.11.0"),
        requirements=(),
        toolkit="cuda",
        protected=VENDORS["nvidia"].protected,
        libraries=VENDORS["nvidia"].libraries,
    )
    lock = resolved(inputs, site, house)
    locked = {wheel.name: wheel for wheel in lock.wheels}
    assert locked["torch"].filename == "torch-2.14.1-cp311-cp311-manylinux_2_28_x86_64.whl"
    assert locked["triton"].version.startswith("3.8.")
    assert "nvidia-cublas" in locked
    assert {wheel.index for wheel in lock.wheels} == {PYPI}
    assert lock.size_bytes > 2_500_000_000
    assert uv_version() >= "0.11"


def test_the_toolbox_is_made_once_for_another_python(site: Site, tmp_path: Path) -> None:
    folder = install_toolbox(
        tmp_path / "py3.13", python="3.13", machine="x86_64", site=site, run=process.run
    )
    assert (folder / "nox" / "__init__.py").is_file()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []

    def refuse(command: Command) -> Completed:
        raise AssertionError(f"started {command}")

    assert install_toolbox(folder, python="3.13", machine="x86_64", site=site, run=refuse) == folder


def crafter(root: Path, site: Site, house: Wheelhouse) -> Crafter:
    """Of a cell whose container must not be asked."""

    def builder(apt: tuple[str, ...]) -> tuple[Engine, str]:
        raise AssertionError(f"a container with {apt} was asked for")

    inputs = LockInputs(
        cell_id="cell",
        python="3.11",
        machine="x86_64",
        glibc="2.36",
        index=None,
        stack_requirements=("torch==2.13.0+cpu",),
        requirements=(),
        parent=("torch==2.13.0+cpu",),
        protected=("torch", "torchvision", "torchaudio"),
    )
    return Crafter(
        inputs=inputs,
        root=root,
        cache=root / "cache",
        wheelhouse=house,
        site=site,
        builder=builder,
        on_line=print,
    )


def library(root: Path, backend: str, requires: str) -> Source:
    (root / "lib").mkdir()
    (root / "lib" / "pyproject.toml").write_text(
        f'[build-system]\nrequires = [{requires}]\nbuild-backend = "{backend}"\n'
        '[project]\nname = "lib"\nversion = "0.1"\ndescription = "a library"\n'
        'dependencies = ["torch>=2"]\n'
    )
    (root / "lib" / "lib.py").write_text("answer = 42\n")
    return Source(kind="folder", location="lib", pin=folder_sha256(root / "lib"))


def test_a_folder_of_python_alone_is_built_here_in_isolation(
    site: Site, house: Wheelhouse, tmp_path: Path
) -> None:
    source = library(tmp_path, "flit_core.buildapi", '"flit_core"')
    wheel, build = crafter(tmp_path, site, house).from_source(source)
    assert (wheel.name, wheel.source, build) == ("lib", "./lib", None)


def test_a_build_that_asks_for_torch_gets_none_in_isolation(
    site: Site, house: Wheelhouse, tmp_path: Path
) -> None:
    source = library(tmp_path, "setuptools.build_meta", '"setuptools", "torch"')
    with pytest.raises(CommandFailedError, match=r"name\.the\.package\.under\.builds"):
        crafter(tmp_path, site, house).from_source(source)
