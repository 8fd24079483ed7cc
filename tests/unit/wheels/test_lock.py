"""Locks: the same bytes everywhere, stale when inputs change, refused when they are not ours."""

from __future__ import annotations

import dataclasses
import tomllib

import pytest
from builders import a_cell
from packaging.pylock import Pylock

from warpfront.errors import LockError
from warpfront.matrix.cell import Compiler, Pin, RequirementList, Toolkit, WheelIndex
from warpfront.wheels.lock.pylock import difference, dump_lock, lock_inputs, read_lock, staleness
from warpfront.wheels.lock.values import LockedWheel, LockInputs, WheelLock

NAME = "pylock.cell.toml"


def a_wheel(name: str, version: str, **changes: object) -> LockedWheel:
    wheel = LockedWheel(
        name=name,
        version=version,
        filename=f"{name.replace('-', '_')}-{version}-py3-none-any.whl",
        sha256=(name.encode().hex() + "0" * 64)[:64],
        size_bytes=1000,
        index="https://pypi.org/simple",
    )
    return dataclasses.replace(wheel, **changes)  # type: ignore[arg-type]


TORCH = a_wheel("torch", "2.13.0+cpu", index="https://download.pytorch.org/whl/cpu")
NUMPY = a_wheel("numpy", "2.4.6")


def a_lock_for(inputs: LockInputs, *wheels: LockedWheel) -> WheelLock:
    return WheelLock(
        cell_id=inputs.cell_id, python=inputs.python, inputs_digest=inputs.digest, wheels=wheels
    )


INPUTS = lock_inputs(a_cell(requirements=("numpy",)), None, None)
LOCK = a_lock_for(INPUTS, NUMPY, TORCH)


def test_the_stack_goes_to_the_cells_index_and_the_rest_to_pypi() -> None:
    cell = a_cell(
        stack=(Pin(name="torch", version="2.14.1"), Pin(name="triton", version="3.8.0")),
        requirements=("pip",),
        requirements_file="images/app/requirements.txt",
        compiler=Compiler(requirements=("nvidia-cuda-nvcc==13.0.88",)),
    )
    inputs = lock_inputs(cell, RequirementList(requirements=("einops>=0.8", "timm>=1.0")), None)
    assert inputs.stack_requirements == ("torch===2.14.1", "triton===3.8.0")
    assert inputs.requirements == ("einops>=0.8", "nvidia-cuda-nvcc==13.0.88", "pip", "timm>=1.0")
    assert (inputs.python, inputs.glibc, inputs.index) == (cell.python, cell.base.glibc, cell.index)


def test_a_childs_inputs_hold_its_parents_exact_pins() -> None:
    assert lock_inputs(a_cell(), None, LOCK).parent == ("numpy==2.4.6", "torch==2.13.0+cpu")


def test_a_lock_comes_back_as_it_was_written() -> None:
    assert read_lock(dump_lock(LOCK), path=NAME) == LOCK


def test_a_lock_is_a_valid_pep_751_file_with_relative_paths_only() -> None:
    document = Pylock.from_dict(tomllib.loads(dump_lock(LOCK)))
    assert [package.name for package in document.packages] == ["numpy", "torch"]
    for package in document.packages:
        assert package.wheels is not None
        (wheel,) = package.wheels
        assert wheel.url is None
        assert "/" not in str(wheel.path)
        assert set(wheel.hashes) == {"sha256"}


def test_the_order_in_which_wheels_were_found_does_not_show() -> None:
    turned = dataclasses.replace(LOCK, wheels=tuple(reversed(LOCK.wheels)))
    assert dump_lock(turned) == dump_lock(LOCK)


def test_a_wheel_built_from_an_sdist_names_it() -> None:
    rocm = a_wheel("rocm", "7.14.0", sdist="rocm-7.14.0.tar.gz", sdist_sha256="c" * 64)
    lock = a_lock_for(INPUTS, rocm)
    assert read_lock(dump_lock(lock), path=NAME) == lock


def test_a_lock_of_rocm_from_7_14_belongs_to_its_targets() -> None:
    index = WheelIndex(name="rocm7.14", url="https://download.pytorch.org/whl/rocm7.14")

    def asked(version: str, *targets: str) -> LockInputs:
        rocm = Toolkit(name="rocm", version=version)
        cell = a_cell(
            vendor="amd",
            toolkit=rocm,
            targets=targets,
            index=index,
            stack=(),
            requirements=(),
        )
        return lock_inputs(cell, None, None)

    rocm = a_wheel(
        "rocm",
        "7.14.0.post1",
        sdist="rocm-7.14.0.post1.tar.gz",
        sdist_sha256="c" * 64,
        targets=("gfx90a", "gfx942"),
        index=index.url,
    )
    lock = a_lock_for(asked("7.14", "gfx942", "gfx90a"), rocm)
    assert read_lock(dump_lock(lock), path=NAME) == lock
    assert staleness(lock, asked("7.14", "gfx90a", "gfx942")) == ""
    assert staleness(lock, asked("7.14", "gfx942")) == (
        "rocm is for gfx90a gfx942, the matrix says gfx942"
    )
    # Before, torch's wheel holds the code of every target itself.
    assert asked("7.2", "gfx942").digest == asked("7.2", "gfx90a").digest


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("schema = 1", "schema = 2", "schema 2"),
        ("[tool.warpfront]", "[tool.other]", "not a lock of ours"),
        ('path = "torch', 'path = "/srv/wheels/torch', "bare file name"),
        ('path = "torch', 'url = "https://mirror.test/torch', "bare file name"),
        ("size = 1000", "", "no size"),
        ("746f726368", "zz", "no sha256"),
        ("[[packages]]", "[[packages]", "Expected|Invalid|line"),
        ('lock-version = "1.0"', 'lock-version = "9.0"', "9.0"),
        ('requires-python = "==3.11.*"', 'requires-python = ">=3.11"', "requires-python"),
        ('inputs = "', 'input = "', "no inputs"),
        ("torch-2.13.0+cpu-", "numpy-2.13.0+cpu-", "not consistent"),
    ],
)
def test_a_lock_that_was_tampered_with_is_refused(old: str, new: str, words: str) -> None:
    text = dump_lock(LOCK)
    assert old in text
    with pytest.raises(LockError, match=words) as caught:
        read_lock(text.replace(old, new), path=NAME)
    assert NAME in caught.value.message


def test_a_name_that_pep_751_forbids_is_refused() -> None:
    with pytest.raises(LockError, match=r"pylock\.torch-2\.13\.toml: not a name for a lock"):
        read_lock(dump_lock(LOCK), path="pylock.torch-2.13.toml")


def test_a_fresh_lock_is_not_stale() -> None:
    assert staleness(LOCK, INPUTS) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"python": "3.12"}, "made for Python 3.11, the matrix says 3.12"),
        ({"stack_requirements": ("torch==2.14.0+cpu",)}, "has torch 2.13.0+cpu, the matrix asks"),
        ({"stack_requirements": ("torchaudio==2.11.0+cpu",)}, "has no torchaudio"),
        ({"requirements": ("einops", "numpy")}, "has no einops"),
        ({"parent": ("numpy==1.26.4",)}, "has numpy 2.4.6, the matrix asks for numpy==1.26.4"),
        ({"glibc": "2.31"}, "its inputs changed"),
    ],
)
def test_a_stale_lock_says_what_changed(changes: dict[str, object], words: str) -> None:
    changed = dataclasses.replace(INPUTS, **changes)  # type: ignore[arg-type]
    assert words in staleness(LOCK, changed)


def test_a_child_installs_only_what_it_adds() -> None:
    einops = a_wheel("einops", "0.8.1")
    child = dataclasses.replace(LOCK, cell_id="child", wheels=(TORCH, einops, NUMPY))
    assert difference(child, LOCK) == (einops,)


@pytest.mark.parametrize(
    "wheels",
    [
        (TORCH,),
        (TORCH, a_wheel("numpy", "2.4.7")),
        (TORCH, dataclasses.replace(NUMPY, sha256="f" * 64)),
    ],
    ids=["dropped", "another version", "other bytes"],
)
def test_a_child_that_changes_its_parents_wheels_is_refused(
    wheels: tuple[LockedWheel, ...],
) -> None:
    child = dataclasses.replace(LOCK, cell_id="child", wheels=wheels)
    with pytest.raises(LockError, match=r"child: numpy is numpy-2\.4\.6"):
        difference(child, LOCK)


@pytest.mark.parametrize(
    ("machine", "platform", "fits"),
    [
        ("x86_64", "any", True),
        ("x86_64", "manylinux_2_28_x86_64", True),
        ("x86_64", "manylinux_2_17_x86_64.manylinux2014_x86_64", True),
        ("x86_64", "manylinux_2_28_aarch64", False),
        ("aarch64", "any", True),
        ("aarch64", "linux_aarch64", True),
        ("aarch64", "manylinux_2_28_x86_64", False),
        ("aarch64", "macosx_11_0_arm64", False),
    ],
)
def test_a_lock_with_a_wheel_of_another_machine_is_stale_whatever_its_digest_says(
    machine: str,
    platform: str,
    fits: bool,  # noqa: FBT001 - a case
) -> None:
    inputs = dataclasses.replace(INPUTS, machine=machine)
    torch = dataclasses.replace(TORCH, filename=f"torch-2.13.0+cpu-cp311-cp311-{platform}.whl")
    reason = f"it has {torch.filename}, which is not for {machine}"
    assert staleness(a_lock_for(inputs, NUMPY, torch), inputs) == ("" if fits else reason)


def test_the_machine_is_part_of_what_a_lock_depends_on() -> None:
    arm = lock_inputs(a_cell(machine="aarch64"), None, None)
    assert arm.machine == "aarch64"
    assert arm.digest != lock_inputs(a_cell(), None, None).digest
