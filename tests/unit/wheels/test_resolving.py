"""Locks against the cell's own torch, by the real uv on stand-in wheels: who is refused, who gives
way, and what is relaxed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from standins import Index, rocm64_stand_ins, serve_index, stand_in_wheel

from warpfront.errors import LockError, StoreError
from warpfront.matrix.cell import WheelIndex
from warpfront.matrix.vendors import VENDORS
from warpfront.wheels.lock.pylock import dump_lock, read_lock, staleness
from warpfront.wheels.lock.values import LockInputs, RelaxedPackage, WheelLock
from warpfront.wheels.resolve import resolver as resolver_module
from warpfront.wheels.resolve.resolving import resolve_by_uv as resolve
from warpfront.wheels.sources import Site
from warpfront.wheels.store.wheelhouse import Wheelhouse

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("uv_cache")]


@pytest.fixture
def pypi(tmp_path: Path) -> Iterator[Index]:
    folder = tmp_path / "pypi"
    for version in ("2.8.0", "2.9.0"):
        needs = ["nvidia-cublas-cu12", "triton==3.5.0"]
        stand_in_wheel(folder, "torch", version, requires=needs)
    stand_in_wheel(folder, "nvidia-cublas-cu12", "12.8")
    for version in ("3.4.0", "3.5.0"):
        stand_in_wheel(folder, "triton", version)
    stand_in_wheel(folder, "xformers", "0.0.32", requires=["torch==2.9.0"])
    stand_in_wheel(folder, "vllm", "0.10.0", requires=["torch>=2.6"])
    stand_in_wheel(folder, "vllm", "0.11.0", requires=["xformers==0.0.32", "triton>=3.5"])
    stand_in_wheel(folder, "only-new", "1.0", requires=["torch>=2.9"])
    stand_in_wheel(folder, "timm", "1.0", requires=["torch"])
    stand_in_wheel(folder, "timm", "2.0", requires=["torch>=2.9"])
    stand_in_wheel(folder, "cupy", "13.0", requires=["nvidia-cublas-cu12"])
    stand_in_wheel(folder, "old-kernels", "1.0", requires=["pytorch-triton"])
    stand_in_wheel(folder, "pytorch-triton", "3.3.0")
    stand_in_wheel(folder, "kernels", "1.0", requires=["triton>=3.4"])
    stand_in_wheel(folder, "kernels", "2.0", requires=["triton>=3.5"])
    stand_in_wheel(folder, "odd", "1.0", requires=["numpy<2"])
    stand_in_wheel(folder, "numpy", "2.4.6")
    with serve_index(folder, name="simple") as index:
        yield index


@pytest.fixture
def rocm(tmp_path: Path) -> Iterator[Index]:
    with serve_index(rocm64_stand_ins(tmp_path / "rocm"), name="rocm6.4") as index:
        yield index


class Locks:
    """Locks a cell of ROCm's torch 2.8.0 with what it requires; remembers what was said."""

    def __init__(self, rocm: Index, pypi: Index, house: Wheelhouse) -> None:
        self.rocm, self.pypi, self.house = rocm, pypi, house
        self.said: list[str] = []

    def inputs(self, *requirements: str, **changes: object) -> LockInputs:
        facts: dict[str, object] = {
            "cell_id": "cell",
            "python": "3.11",
            "machine": "x86_64",
            "glibc": "2.36",
            "index": WheelIndex(name="rocm6.4", url=self.rocm.url),
            "stack_requirements": ("torch==2.8.0+rocm6.4",),
            "requirements": requirements,
            "toolkit": "rocm",
            "protected": VENDORS["amd"].protected,
        }
        return LockInputs(**(facts | changes))  # type: ignore[arg-type]

    def lock(self, *requirements: str, **changes: object) -> WheelLock:
        return resolve(
            self.inputs(*requirements, **changes),
            Site(index_url=self.pypi.url),
            on_line=self.said.append,
            wheelhouse=self.house,
        )

    def refusal(self, *requirements: str, **changes: object) -> LockError:
        with pytest.raises(LockError) as caught:
            self.lock(*requirements, **changes)
        return caught.value


@pytest.fixture
def locks(rocm: Index, pypi: Index, tmp_path: Path) -> Locks:
    return Locks(rocm, pypi, Wheelhouse(tmp_path / "house"))


def versions(lock: WheelLock) -> dict[str, str]:
    return {wheel.name: wheel.version for wheel in lock.wheels}


def test_what_would_move_torch_is_refused_with_the_chain_of_who_asked(locks: Locks) -> None:
    error = locks.refusal("vllm==0.11.0")
    assert (
        "vllm 0.11.0 -> xformers 0.0.32 -> torch==2.9.0, but this cell holds torch 2.8.0+rocm6.4"
        in error.message
    )
    assert "vllm 0.11.0 -> triton>=3.5, but this cell holds triton 3.4.0" in error.message
    assert "vllm 0.10.0 would leave the stack as it is" in error.hint
    assert "relax" in error.hint


def test_a_package_without_a_fitting_version_has_only_relax_left(locks: Locks) -> None:
    error = locks.refusal("only-new")
    assert "only-new 1.0 -> torch>=2.9" in error.message
    assert "no version of only-new was found that takes this stack" in error.hint


def test_a_full_disk_is_said_in_words(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(resolver_module, "dump_toml", full)
    with pytest.raises(StoreError, match="No space left on device") as raised:
        locks.lock("timm")
    assert raised.value.hint == "free some space, or `warpfront clean`"


def test_an_open_requirement_gives_way_to_an_older_version(locks: Locks) -> None:
    assert versions(locks.lock("timm"))["timm"] == "1.0"


def test_the_images_own_demand_for_another_torch_is_named(locks: Locks) -> None:
    error = locks.refusal("torch>=2.9")
    assert "torch>=2.9, but this cell holds torch 2.8.0+rocm6.4" in error.message
    assert "relax" not in error.hint


def test_a_library_of_another_vendor_comes_where_it_overwrites_nothing(locks: Locks) -> None:
    """As the guard lets it, once the image is there."""
    assert versions(locks.lock("cupy"))["nvidia-cublas-cu12"] == "12.8"


def test_another_triton_is_refused_with_its_chain(locks: Locks) -> None:
    error = locks.refusal("old-kernels")
    assert "old-kernels 1.0 -> pytorch-triton, but this cell must not hold it" in error.message
    assert "rocm image has another triton" in error.message


def test_triton_on_rocm_is_left_to_the_one_that_torch_brings(locks: Locks) -> None:
    found = versions(locks.lock("kernels==1.0"))
    assert found["kernels"] == "1.0"
    assert "triton" not in found
    assert found["pytorch-triton-rocm"] == "3.4.0"


def test_a_newer_triton_on_rocm_is_refused(locks: Locks) -> None:
    error = locks.refusal("kernels==2.0")
    assert "kernels 2.0 -> triton>=3.5, but this cell holds triton 3.4.0" in error.message
    assert "kernels 1.0 would leave the stack as it is" in error.hint


def test_a_contradiction_about_something_else_is_told_in_uvs_words(locks: Locks) -> None:
    error = locks.refusal("odd", "numpy==2.4.6")
    assert "cannot be met together" in error.message
    assert "numpy<2" in error.message


def test_what_is_relaxed_is_locked_beside_the_cells_torch_and_recorded(locks: Locks) -> None:
    relax = (("vllm", "tried by hand"), ("xformers", "only imported for attention"))
    lock = locks.lock("vllm==0.11.0", relax=relax)
    found = versions(lock)
    assert (found["torch"], found["vllm"], found["xformers"]) == (
        "2.8.0+rocm6.4",
        "0.11.0",
        "0.0.32",
    )
    assert not {"triton", "nvidia-cublas-cu12"} & set(found)
    assert lock.relaxed == (
        RelaxedPackage(
            package="vllm", version="0.11.0", reason="tried by hand", unmet=("triton>=3.5",)
        ),
        RelaxedPackage(
            package="xformers",
            version="0.0.32",
            reason="only imported for attention",
            unmet=("torch==2.9.0",),
        ),
    )
    assert read_lock(dump_lock(lock), path="pylock.cell.toml") == lock


def test_what_is_not_named_in_relax_is_still_refused(locks: Locks) -> None:
    error = locks.refusal("vllm==0.11.0", relax=(("vllm", "tried by hand"),))
    assert "xformers 0.0.32 -> torch==2.9.0" in error.message
    assert "triton" not in error.message, "that one was allowed"


def test_beside_a_relaxed_package_others_still_give_way(locks: Locks) -> None:
    lock = locks.lock("only-new", "timm", relax=(("only-new", "works"),))
    assert (versions(lock)["only-new"], versions(lock)["timm"]) == ("1.0", "1.0")
    assert [one.package for one in lock.relaxed] == ["only-new"]


def test_a_relax_that_is_not_needed_is_said_and_not_recorded(locks: Locks) -> None:
    lock = locks.lock("timm==1.0", relax=(("timm", "just in case"),))
    assert lock.relaxed == ()
    assert any("`relax` of timm is not needed here" in text for text in locks.said)


def test_a_relax_of_what_is_not_in_the_image_is_an_error(locks: Locks) -> None:
    error = locks.refusal("timm==1.0", relax=(("tim", "a typing error"),))
    assert "`relax` names tim, which nothing here asks for" in error.message


def test_a_child_keeps_what_its_parent_relaxed(locks: Locks) -> None:
    parent = locks.lock("only-new", relax=(("only-new", "works"),))
    pins = tuple(f"{wheel.name}=={wheel.version}" for wheel in parent.wheels)
    child = locks.lock("numpy", parent=pins, relax=(("only-new", "works"),))
    assert versions(child)["numpy"] == "2.4.6"
    assert child.relaxed == parent.relaxed


def test_a_lock_is_stale_when_what_may_be_relaxed_changes(locks: Locks) -> None:
    lock = locks.lock("only-new", relax=(("only-new", "works"),))
    assert staleness(lock, locks.inputs("only-new", relax=(("only-new", "works"),))) == ""
    without = staleness(lock, locks.inputs("only-new"))
    assert without == "it relaxes only-new, the matrix no longer does"
    reworded = staleness(lock, locks.inputs("only-new", relax=(("only-new", "for now"),)))
    assert "another reason" in reworded


def test_what_wants_a_torch_of_its_own_beside_the_bases_is_named(
    pypi: Index, tmp_path: Path
) -> None:
    inputs = LockInputs(
        cell_id="gaudi",
        python="3.11",
        machine="x86_64",
        glibc="2.36",
        index=None,
        stack_requirements=(),
        requirements=("timm",),
        toolkit="synapseai",
        protected=VENDORS["gaudi"].protected,
    )
    with pytest.raises(LockError, match=r"timm 2\.0 -> torch>=2\.9, but this cell must not hold"):
        resolve(
            inputs,
            Site(index_url=pypi.url),
            on_line=lambda _: None,
            wheelhouse=Wheelhouse(tmp_path / "house"),
        )


def test_an_extra_for_the_stacks_own_toolkit_is_the_way_out(locks: Locks, pypi: Index) -> None:
    folder = pypi.folder
    stand_in_wheel(
        folder,
        "jax",
        "0.10",
        requires=["plugin-12; extra == 'cuda12'", "plugin-13; extra == 'cuda13'"],
        extras=["cuda12", "cuda13"],
    )
    stand_in_wheel(folder, "plugin-12", "0.10", requires=["torch==2.9.0"])
    stand_in_wheel(folder, "plugin-13", "0.10", requires=["torch==2.8.0"])
    error = locks.refusal("jax[cuda12]>=0.9")
    assert "jax[cuda12] 0.10 -> plugin-12 0.10 -> torch==2.9.0" in error.message
    assert error.hint.startswith("jax[cuda13]>=0.9 would leave the stack as it is")
