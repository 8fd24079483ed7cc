"""What the guard of each cell of our own matrix protects."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders import a_lock, a_wheel

from warpfront.images.render import (
    GUARD_ENVIRONMENT,
    POLICY,
    guard_files,
    guard_policy,
    relaxed_files,
)
from warpfront.matrix.cell import Cell
from warpfront.pipeline.workspace import open_workspace
from warpfront.wheels.lock.pylock import read_lock
from warpfront.wheels.lock.values import RelaxedPackage, WheelLock
from warpfront_checks.guard.channels import constraint_lines
from warpfront_checks.guard.policy import Policy, policy_from

ROOT = Path(__file__).parents[3]
WORKSPACE = open_workspace(ROOT)
CELLS = {cell.id: cell for cell in WORKSPACE.matrix.cells if not cell.parent}
LOCKED = {
    cell_id: path
    for cell_id in CELLS
    if (path := ROOT / "images" / "locks" / f"pylock.{cell_id}.toml").is_file()
}


def lock_of(cell: Cell) -> WheelLock:
    """The committed lock, or, where there is none yet, the stack that the matrix asks for."""
    if cell.id in LOCKED:
        return read_lock(LOCKED[cell.id].read_text(), path=str(LOCKED[cell.id]))
    return a_lock(cell, *(a_wheel(pin.name, pin.version) for pin in cell.stack))


def policy_of(cell: Cell) -> Policy:
    return guard_policy(cell, lock_of(cell), WORKSPACE.material.compat)


def a_cell_of(vendor: str) -> Cell:
    return next(cell for cell in CELLS.values() if cell.vendor == vendor)


@pytest.mark.parametrize("cell_id", CELLS)
def test_every_policy_can_be_read_in_its_image(cell_id: str) -> None:
    policy = policy_of(CELLS[cell_id])
    assert policy_from(json.loads(json.dumps(policy.document()))) == policy


@pytest.mark.parametrize("cell_id", CELLS)
def test_no_name_is_constrained_twice(cell_id: str) -> None:
    """Two constraints on one name meet nowhere, and everything that asks for it is refused."""
    names = [line.partition("=")[0] for line in constraint_lines(policy_of(CELLS[cell_id]))]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("cell_id", CELLS)
def test_torch_is_protected_at_the_version_of_its_cell_or_adopted(cell_id: str) -> None:
    cell = CELLS[cell_id]
    policy = policy_of(cell)
    if policy.adopt:
        assert policy.protected == {}
        assert "torch" in policy.adopt
    else:
        assert policy.protected["torch"].partition("+")[0] == cell.torch


def test_a_cpu_image_lets_come_what_would_overwrite_nothing() -> None:
    policy = policy_of(a_cell_of("cpu"))
    assert policy.protected["torch"].endswith("+cpu")
    assert not {"nvidia-nccl-cu12", "cuda-toolkit", "triton"} & set(policy.sentinels)
    assert {"torch-nightly", "triton-rocm"} <= set(policy.sentinels)


@pytest.mark.parametrize("cell_id", [name for name in LOCKED if name.startswith("nvidia")])
def test_a_cuda_image_protects_the_libraries_that_its_torch_loads(cell_id: str) -> None:
    policy = policy_of(CELLS[cell_id])
    assert {"triton", "nvidia-cublas", "nvidia-cudnn-cu13"} <= set(policy.protected)
    assert policy.sentinels["nvidia-cudnn-cu12"] == "same.folder.as.nvidia.cudnn.cu13"
    assert not set(policy.sentinels) & set(policy.protected)


def test_a_rocm_image_has_a_shim_for_triton_and_no_sentinel_for_it() -> None:
    cell = a_cell_of("amd")
    torch = next(pin for pin in cell.stack if pin.name == "torch")
    wheels = [a_wheel("torch", torch.version), a_wheel("pytorch-triton-rocm", "3.4.0")]
    policy = guard_policy(cell, a_lock(cell, *wheels), WORKSPACE.material.compat)
    assert [(shim.name, shim.requires) for shim in policy.shims] == [
        ("triton", "pytorch-triton-rocm===3.4.0")
    ]
    assert "triton" not in policy.sentinels
    assert "triton-rocm" in policy.sentinels


def test_a_gaudi_image_adopts_what_its_base_brings() -> None:
    policy = policy_of(a_cell_of("gaudi"))
    assert {"torch", "habana-*"} <= set(policy.adopt)
    assert policy.sentinels["triton-rocm"] == "synapseai.image.has.another.triton"


def test_a_companion_that_the_image_lacks_is_pinned_to_the_build_that_fits() -> None:
    cell = a_cell_of("cpu")
    lock = a_lock(cell, a_wheel("torch", "2.13.0+cpu"))
    policy = guard_policy(cell, lock, WORKSPACE.material.compat)
    assert policy.companions == {"torchvision": "0.28.0+cpu", "torchaudio": "2.11.0+cpu"}


def test_what_a_lock_relaxed_is_in_the_policy_with_its_reason() -> None:
    cell = a_cell_of("cpu")
    wheel = a_wheel("torch", "2.13.0+cpu")
    vllm = RelaxedPackage(
        package="vllm", version="1.0", reason="too narrow", unmet=("torch==2.9.0",)
    )
    lock = replace(a_lock(cell, wheel), relaxed=(vllm,))
    assert guard_policy(cell, lock, WORKSPACE.material.compat).relaxed == {"vllm": "too narrow"}
    assert relaxed_files(lock, a_lock(cell, wheel)) != {}
    assert relaxed_files(lock, lock) == {}


def test_the_build_context_holds_the_policy_and_every_file_of_the_guard() -> None:
    files = guard_files(policy_of(a_cell_of("cpu")), WORKSPACE.material.guard)
    assert policy_from(json.loads(files[POLICY])) == policy_of(a_cell_of("cpu"))
    guard = {
        path.name for path in (ROOT / "src/warpfront_checks/guard").iterdir() if path.is_file()
    }
    assert {name.removeprefix("guard/") for name in files} - {POLICY} == guard


def test_the_environment_names_the_files_inside_the_image() -> None:
    files = GUARD_ENVIRONMENT["PIP_CONSTRAINT"].split()
    assert files == ["/opt/warpfront/guard/constraints.txt", "/opt/warpfront/guard/needs.txt"]
    assert GUARD_ENVIRONMENT["UV_CONSTRAINT"] == files[0]
    assert GUARD_ENVIRONMENT["PYTHONNOUSERSITE"] == "1"
