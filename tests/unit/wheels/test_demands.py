"""Whose demands on the torch stack do not hold in a cell, and through whom they came."""

from __future__ import annotations

import pytest

from warpfront.matrix.cell import WheelIndex
from warpfront.matrix.vendors import VENDORS
from warpfront.wheels.core_metadata import Distribution
from warpfront.wheels.lock.values import LockInputs, RelaxedPackage
from warpfront.wheels.resolve.demands import Stack, relaxed_of, stack_of, unmet_demands

CPU = Stack(
    versions={"torch": "2.13.0+cpu", "torchvision": "0.28.0+cpu"},
    answered={},
    foreign={"triton-rocm": "cpu.image.has.another.triton"},
)
ROCM = Stack(
    versions={"torch": "2.8.0+rocm6.4", "pytorch-triton-rocm": "3.4.0"},
    answered={"triton": "3.4.0+pytorch.triton.rocm"},
    foreign={},
)


def a_distribution(name: str, version: str, *requires: str) -> Distribution:
    return Distribution(name=name, version=version, requires=requires)


def demanded(*requirements: str, stack: Stack = CPU, **metadata: list[str]) -> list[str]:
    """What is unmet when an image asks for `requirements` and `metadata` says what each package of
    version 1.0 demands.
    """
    distributions = [
        a_distribution(name.replace("_", "-"), "1.0", *requires)
        for name, requires in metadata.items()
    ]
    found = unmet_demands(distributions, requirements, stack, python="3.11", machine="x86_64")
    return [str(one) for one in found]


def inputs_for(vendor: str, *stack: str, index: bool = True) -> LockInputs:
    return LockInputs(
        cell_id="cell",
        python="3.11",
        machine="x86_64",
        glibc="2.36",
        index=WheelIndex(name="stack", url="https://index.test") if index else None,
        stack_requirements=stack,
        requirements=(),
        toolkit=VENDORS[vendor].toolkit or "cpu",
        protected=VENDORS[vendor].protected,
        libraries=VENDORS[vendor].libraries,
    )


def test_the_whole_chain_that_led_to_another_torch_is_named() -> None:
    assert demanded("vllm==1.0", vllm=["xformers==1.0"], xformers=["torch==2.8.0"]) == [
        "vllm 1.0 -> xformers 1.0 -> torch==2.8.0, but this cell holds torch 2.13.0+cpu"
    ]


def test_what_the_stack_meets_is_no_news() -> None:
    assert demanded("a", a=["torch>=2.0", "torch==2.13.0", "torchvision", "numpy"]) == []


def test_every_package_that_asks_is_named_each_by_its_shortest_way() -> None:
    found = demanded("a", "z", a=["b"], b=["z"], z=["torch<2"])
    assert found == ["z 1.0 -> torch<2, but this cell holds torch 2.13.0+cpu"]
    both = demanded("a", a=["torch<2", "b"], b=["torchvision<0.2"])
    assert [text.split(", but")[0] for text in both] == [
        "a 1.0 -> torch<2",
        "a 1.0 -> b 1.0 -> torchvision<0.2",
    ]


def test_the_images_own_requirement_is_named_without_a_chain() -> None:
    (found,) = unmet_demands([], ["torch>=2.14"], CPU, python="3.11", machine="x86_64")
    assert (found.asker, found.chain) == ("", ())
    assert str(found).startswith("torch>=2.14, but this cell holds torch 2.13.0+cpu")


def test_an_extra_counts_where_it_was_asked_for() -> None:
    metadata = ['torch<2; extra == "gpu"']
    assert demanded("a", a=metadata) == []
    assert demanded("a[gpu]", a=metadata) == [
        "a[gpu] 1.0 -> torch<2, but this cell holds torch 2.13.0+cpu"
    ]


def test_an_extra_that_asks_for_its_own_package_with_another_extra_is_followed() -> None:
    metadata = ['a[gpu]; extra == "all"', 'torch<2; extra == "gpu"']
    (found,) = demanded("a[all]", a=metadata)
    assert found.startswith("a[all] 1.0 -> a[gpu] 1.0 -> torch<2")


@pytest.mark.parametrize(
    ("marker", "applies"),
    [
        ('sys_platform == "linux"', True),
        ('sys_platform == "win32"', False),
        ('python_version < "3.11"', False),
        ('platform_machine == "aarch64"', False),
    ],
)
def test_a_marker_decides_for_the_images_platform(marker: str, *, applies: bool) -> None:
    assert bool(demanded("a", a=[f"torch<2; {marker}"])) is applies


def test_a_library_of_another_vendor_is_named_with_the_reason() -> None:
    assert demanded("a", a=["triton-rocm==3.8"]) == [
        "a 1.0 -> triton-rocm==3.8, but this cell must not hold it (cpu image has another triton)"
    ]


def test_a_shim_answers_for_the_version_that_it_stands_for() -> None:
    assert demanded("a", stack=ROCM, a=["triton>=3.0"]) == []
    (found,) = demanded("a", stack=ROCM, a=["triton>=3.5"])
    assert "holds triton 3.4.0+pytorch.triton.rocm" in found


def test_a_torch_from_an_address_is_unmet_whatever_its_version() -> None:
    (found,) = demanded("a", a=["torch @ https://example.test/torch-2.13.0-py3-none-any.whl"])
    assert found.startswith("a 1.0 -> torch @ https://example.test")


def test_metadata_that_nobody_can_read_demands_nothing() -> None:
    deep = "(" * 5000 + "python_version > '3'" + ")" * 5000
    incomparable = "torch<1; os_name ~= 'x'"
    assert demanded("a", a=["torch (>=", f"torch<1; {deep}", incomparable, "torch<2"]) == [
        "a 1.0 -> torch<2, but this cell holds torch 2.13.0+cpu"
    ]


def test_packages_in_a_circle_are_visited_once() -> None:
    assert len(demanded("a", a=["b", "torch<2"], b=["a"])) == 1


def test_a_stack_is_what_the_matrix_names_and_what_its_torch_loads() -> None:
    pins = {
        "torch": "2.14.1",
        "triton": "3.8.0",
        "nvidia-cudnn-cu13": "9.1",
        "numpy": "2.4.6",
    }
    stack = stack_of(inputs_for("nvidia", "torch===2.14.1"), pins)
    assert set(stack.versions) == {"torch", "triton", "nvidia-cudnn-cu13"}
    assert "nvidia-cudnn-cu12" in stack.foreign, "it owns the same folder"
    assert "torch===2.14.1" in stack.pins


def test_a_rocm_stack_answers_for_triton_and_lets_cudas_libraries_come() -> None:
    pins = {"torch": "2.8.0+rocm6.4", "pytorch-triton-rocm": "3.4.0"}
    stack = stack_of(inputs_for("amd", "torch==2.8.0+rocm6.4"), pins)
    assert stack.answered == {"triton": "3.4.0+pytorch.triton.rocm"}
    assert {"triton", "triton-rocm"} <= set(stack.excluded)
    assert any(text.startswith("triton-rocm==0+") for text in stack.constraints)
    assert not [text for text in stack.constraints if text.startswith("nvidia")]
    assert "triton==3.4.0" in stack.constraints


def test_nothing_of_a_stack_that_comes_with_the_base_may_come_again() -> None:
    stack = stack_of(inputs_for("gaudi", index=False), {})
    (found,) = demanded("timm", stack=stack, timm=["torchvision"])
    assert "the base has its own" in found


def test_what_was_relaxed_is_recorded_with_its_reason_and_what_it_wants() -> None:
    vllm = a_distribution("vllm", "0.11.0", "torch==2.8.0", "torchvision==0.23.0")
    found = unmet_demands([vllm], ["vllm"], CPU, python="3.11", machine="x86_64")
    assert relaxed_of(found, [vllm], {"vllm": "works with 2.13", "other": "unused"}) == (
        RelaxedPackage(
            package="vllm",
            version="0.11.0",
            reason="works with 2.13",
            unmet=("torch==2.8.0", "torchvision==0.23.0"),
        ),
    )
