"""What resolution gets from a real package index: PyPI's own pages, and the tools that an isolated
build installs. No Docker.
"""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from standins import (
    ROCM_DEVICES,
    Index,
    rocm714_stand_ins,
    serve_index,
    stand_in_rocm_sdist,
)

from warpfront.errors import CommandFailedError
from warpfront.images.engine.protocol import Engine
from warpfront.images.wheel_builder import WheelBuilder
from warpfront.matrix.cell import Source, WheelIndex
from warpfront.matrix.vendors import VENDORS
from warpfront.system import process
from warpfront.wheels.lock.pylock import dump_lock, read_lock
from warpfront.wheels.lock.values import PYPI, LockInputs, WheelLock
from warpfront.wheels.resolve.resolving import resolve_by_uv
from warpfront.wheels.rocm import rocm_wheel
from warpfront.wheels.sources import Site, read_site
from warpfront.wheels.store.archives import folder_sha256
from warpfront.wheels.store.sdists import install_toolbox, pure_wheel
from warpfront.wheels.store.wheelhouse import Wheelhouse, read_wheel_metadata
from warpfront.wheels.uv_program import uv_version

pytestmark = [pytest.mark.process, pytest.mark.network]


@pytest.fixture(scope="module")
def site() -> Site:
    """This machine's own indexes."""
    return read_site(process.run)


@pytest.fixture
def house(tmp_path: Path) -> Wheelhouse:
    return Wheelhouse(tmp_path / "house")


def resolved(inputs: LockInputs, site: Site, house: Wheelhouse) -> WheelLock:
    return resolve_by_uv(inputs, site, on_line=print, wheelhouse=house)


@pytest.fixture
def rocm714(tmp_path: Path) -> Iterator[Index]:
    with serve_index(rocm714_stand_ins(tmp_path / "rocm714"), name="rocm7.14") as index:
        index.unhashed = "rocm[-_]*"
        yield index


def rocm714_inputs(index: Index) -> LockInputs:
    return LockInputs(
        cell_id="rocm714-torch",
        python="3.11",
        machine="x86_64",
        glibc="2.36",
        index=WheelIndex(name=index.name, url=index.url),
        stack_requirements=("torch==2.14.1+rocm7.14",),
        requirements=(),
        targets=("gfx942", "gfx950"),
        toolkit="rocm",
        protected=VENDORS["amd"].protected,
    )


def test_rocm_from_7_14_brings_its_runtime_for_the_targets_of_the_cell(
    rocm714: Index, site: Site, house: Wheelhouse, tmp_path: Path
) -> None:
    lock = resolved(rocm714_inputs(rocm714), site, house)
    assert {wheel.name: wheel.version for wheel in lock.wheels} == {
        "rocm": "7.14.0.post1",
        "rocm-sdk-core": "7.14.0",
        "rocm-sdk-device-gfx942": "7.14.0",
        "rocm-sdk-device-gfx950": "7.14.0",
        "rocm-sdk-libraries": "7.14.0",
        "torch": "2.14.1+rocm7.14",
        "triton-rocm": "3.8.0",
    }
    assert {wheel.index for wheel in lock.wheels} == {rocm714.url}
    (rocm,) = [wheel for wheel in lock.wheels if wheel.name == "rocm"]
    sdist = rocm714.folder / "rocm-7.14.0.post1.tar.gz"
    assert rocm.sdist == sdist.name
    assert rocm.sdist_sha256 == hashlib.sha256(sdist.read_bytes()).hexdigest()
    assert rocm.targets == ("gfx942", "gfx950")
    text = dump_lock(lock)
    assert read_lock(text, path="pylock.cell.toml") == lock

    elsewhere = Wheelhouse(tmp_path / "elsewhere")
    elsewhere.fetch(lock.wheels, site, on_progress=lambda *_: None)
    assert elsewhere.missing(lock.wheels) == ()


def test_a_machine_with_a_gpu_makes_the_same_lock_and_runs_nothing_of_rocm(
    rocm714: Index,
    site: Site,
    house: Wheelhouse,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark = tmp_path / "setup.py was run"
    stand_in_rocm_sdist(rocm714.folder, "7.14.0.post1", mark=mark)
    inputs = rocm714_inputs(rocm714)
    without = resolved(inputs, site, house)
    offload_arch = tmp_path / "bin" / "offload-arch"
    offload_arch.parent.mkdir()
    offload_arch.write_text(f"#!/bin/sh\ntouch '{mark}'\necho gfx1100\n")
    offload_arch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{offload_arch.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("ROCM_SDK_TARGET_FAMILY", "gfx1201")
    with_gpu = resolved(inputs, site, Wheelhouse(tmp_path / "another"))
    assert with_gpu == without
    assert not mark.exists()
    elsewhere = Wheelhouse(tmp_path / "elsewhere")
    elsewhere.fetch(without.wheels, site, on_progress=lambda *_: None)
    assert not mark.exists()


def test_the_wheel_made_of_rocm_is_what_its_setup_py_makes_but_for_the_device_code(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCM_SDK_TARGET_FAMILY", "gfx942")
    sdist = stand_in_rocm_sdist(tmp_path)
    built = pure_wheel(sdist, tmp_path / "built", site=site)
    made = rocm_wheel(sdist, tmp_path / "made", ("gfx942",))
    assert made.name == built.name
    assert shipped(made) == shipped(built)
    device = re.compile(r'extra == "device(-all)?"')
    other = {one for one in read_wheel_metadata(built).requires if not device.search(one)}
    assert other == {one for one in read_wheel_metadata(made).requires if not device.search(one)}
    assert len(other) == 3 + len(ROCM_DEVICES)
    assert [one for one in read_wheel_metadata(made).requires if device.search(one)] == [
        'rocm-sdk-device-gfx942==7.14.0; extra == "device-all"'
    ]


def shipped(wheel: Path) -> dict[str, bytes]:
    """Its files, and the programs it installs."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name).strip()
            for name in archive.namelist()
            if ".dist-info/" not in name or name.endswith("entry_points.txt")
        }


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


def test_the_toolbox_is_fetched_once_and_needs_no_index_after(
    site: Site, house: Wheelhouse, tmp_path: Path
) -> None:
    folder = install_toolbox(tmp_path, house, site=lambda: site, on_progress=lambda *_: None)
    assert (folder / "nox" / "__init__.py").is_file()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]

    def nobody() -> Site:
        raise AssertionError("the site was asked")

    def again(cache: Path) -> Path:
        return install_toolbox(cache, house, site=nobody, on_progress=lambda *_: None)

    assert again(tmp_path) == folder
    other = again(tmp_path / "other")
    assert (other / "virtualenv" / "__init__.py").is_file()


def builder(root: Path, site: Site, house: Wheelhouse) -> WheelBuilder:
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
    return WheelBuilder(
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
    wheel, build = builder(tmp_path, site, house).from_source(source)
    assert (wheel.name, wheel.source, build) == ("lib", "./lib", None)


def test_a_build_that_asks_for_torch_gets_none_in_isolation(
    site: Site, house: Wheelhouse, tmp_path: Path
) -> None:
    source = library(tmp_path, "setuptools.build_meta", '"setuptools", "torch"')
    with pytest.raises(CommandFailedError, match=r"name\.the\.package\.under\.builds"):
        builder(tmp_path, site, house).from_source(source)
