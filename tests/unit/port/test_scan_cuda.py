"""The scanner's engine for C++ and CUDA: every rule on an example that has it, on one that only
looks so, and on one where AMD does not come.
"""

from __future__ import annotations

import time
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from warpfront.port.scan import cuda
from warpfront.port.scan.catalogue import catalogue
from warpfront.port.scan.findings import Context, Gate, Sighting, SourceText

EXAMPLES: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[2] / "scan" / "cuda_examples.toml").read_text(encoding="utf-8")
)
RULES = sorted(EXAMPLES)


def seen(text: str, *, path: str = "kernel.cu", context: Context | None = None) -> list[Sighting]:
    source = SourceText(path=PurePosixPath(path), text=text)
    return list(cuda.sightings(source, context or Context()))


def example(rule: str, kind: str) -> list[Sighting]:
    record = EXAMPLES[rule]
    names = {name: name.replace("cuda", "hip") for name in record.get("identifiers", ())}
    found = seen(
        record[kind],
        path=record.get("path", "kernel.cu"),
        context=Context(identifiers=names),
    )
    return [sighting for sighting in found if sighting.rule == rule]


def test_every_rule_of_the_engine_has_its_three_examples() -> None:
    ours = {rule.id for rule in catalogue().values() if "cuda" in rule.engines}
    assert {rule for rule in ours if rule.startswith("CU")} == set(EXAMPLES)
    for record in EXAMPLES.values():
        assert {"hit", "miss", "gated"} <= record.keys()


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_sees_its_true_positive_for_amd(rule: str) -> None:
    found = example(rule, "hit")
    assert found
    for sighting in found:
        assert "amd" in sighting.sides
        assert sighting.gate is Gate.OPEN
        assert EXAMPLES[rule]["hit"][sighting.start : sighting.end].strip()


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_leaves_its_near_miss_alone(rule: str) -> None:
    assert example(rule, "miss") == []


@pytest.mark.parametrize("rule", RULES)
def test_code_that_amd_does_not_reach_is_no_finding_for_it(rule: str) -> None:
    assert [found for found in example(rule, "gated") if "amd" in found.sides] == []


def test_the_examples_come_to_what_was_reviewed() -> None:
    expected = Path(__file__).parents[2] / "golden" / "scan-cuda.txt"
    lines = []
    for rule in RULES:
        text = EXAMPLES[rule]["hit"]
        for found in example(rule, "hit"):
            line = text.count("\n", 0, found.start) + 1
            lines.append(f"{rule} {line} {found.shift:+d} {found.what}")
    assert lines == expected.read_text(encoding="utf-8").splitlines()


def rules_of(text: str, **options: Any) -> set[str]:
    return {found.rule for found in seen(text, **options) if "amd" in found.sides}


def test_nvidia_code_in_amds_arm_is_told_from_code_that_both_reach() -> None:
    text = "#ifdef USE_ROCM\n#include <cudnn.h>\n#endif\n"
    assert [found.sides for found in seen(text)] == [frozenset({"amd"})]
    assert [found.gate_line for found in seen(text)] == [1]


def test_a_name_that_the_project_maps_for_amd_is_wrapped() -> None:
    text = """
#if defined(USE_ROCM)
#define __shfl_xor_sync(mask, var, lane) __shfl_xor(var, lane)
#endif
__device__ float f(float v) { return __shfl_xor_sync(0xffffffff, v, 1); }
"""
    found = [sighting for sighting in seen(text) if sighting.rule == "CU108"]
    assert [sighting.gate for sighting in found] == [Gate.WRAPPED]


def test_a_name_that_a_header_of_the_tree_maps_is_wrapped_too() -> None:
    text = "__device__ void f() { __syncwarp(); }"
    found = seen(text, context=Context(portable_names=frozenset({"__syncwarp"})))
    assert [(sighting.rule, sighting.gate) for sighting in found] == [("CU118", Gate.WRAPPED)]


def test_the_headers_of_a_tree_say_which_names_are_portable() -> None:
    text = """
#ifdef USE_ROCM
#define __syncwarp()
namespace cub = hipcub;
using nv_bfloat16 = hip_bfloat16;
__device__ inline int __dp4a(int a, int b, int c) { return 0; }
#else
#define MINE 1
#endif
#define BOTH 2
"""
    source = SourceText(path=PurePosixPath("compat.cuh"), text=text)
    assert cuda.portable_names_of(source) == {"__syncwarp", "cub", "nv_bfloat16", "__dp4a"}


def test_the_name_that_a_macro_gives_amd_is_no_use_of_it() -> None:
    assert rules_of("#ifdef USE_ROCM\n#define cudaMalloc hipMalloc\n#endif\n") == set()


def test_a_mask_of_unknown_width_weighs_less_than_one_of_32_bits() -> None:
    unknown = seen("__device__ int f(int v) { return __shfl_sync(MASK_OF_MINE, v, 0); }")
    assert [(found.rule, found.shift) for found in unknown] == [("CU108", -1)]
    narrow = seen("__device__ int f(unsigned m, int v) { return __shfl_sync(m, v, 0); }")
    assert [(found.rule, found.shift) for found in narrow] == [("CU108", 0)]


def test_ptx_that_holds_a_tensor_core_instruction_is_that() -> None:
    text = '__device__ void f() { asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\\n"); }'
    assert rules_of(text) == {"CU121"}


@pytest.mark.parametrize("suffix", [".cu", ".cuh", ".hip", ".cpp", ".h", ".hpp", ".CU"])
def test_sources_and_headers_are_read(suffix: str) -> None:
    assert cuda.reads(PurePosixPath(f"a/b{suffix}"))
    assert not cuda.reads(PurePosixPath(f"a{suffix}/b.py"))


def hostile(part: int = 1) -> dict[str, str]:
    """Long texts that never end well; a `part`-th of each."""
    return {
        "minified": "a=b;" * (300_000 // part),
        "masks": "__shfl_sync(" * (40_000 // part),
        "ballots": "x = __ballot(" * (40_000 // part),
        "shared": "__shared__ float x[" * (40_000 // part),
        "device": "__device__ " * (60_000 // part),
        "kernels": "__global__ void k(" * (40_000 // part),
        "braces": "__global__ void k() {" * (40_000 // part),
        "operators": "__device__ operator+(float2 " * (30_000 // part),
        "lanes": "lane = threadIdx.x & 31 " * (30_000 // part),
        "includes": "#include <cub/\n" * (50_000 // part),
        "conditions": "#if (((((((defined(A) || \n" * (20_000 // part),
        "nesting": "#if A\n" * (50_000 // part),
        "brackets": "#if " + "(" * (200_000 // part) + "\n",
        "for": "shfl for(int i = 16; " * (20_000 // part),
        "half2": "half2 a; " + "a[a[a[" * (60_000 // part),
        "asm": '__device__ asm("' * (30_000 // part),
        "typename": "__global__ template <typename T> ; T::X(" * (20_000 // part),
        "defines": "".join(f"#define M{i} M{i + 1}\n" for i in range(20_000 // part)),
        "one name": "half2 " + "q" * (1_000_000 // part) + ".x",
        "arithmetic": "__global__ threadIdx.x / " * (30_000 // part),
        "warp constants": "const int warp_size " * (40_000 // part),
        "enum": "enum { warp_size = " * (40_000 // part),
    }


@pytest.mark.parametrize("name", sorted(hostile(part=1000)))
@pytest.mark.parametrize("part", [10, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_no_text_makes_the_engine_slow(name: str, part: int) -> None:
    """Ten times the text is allowed ten times the time, and a square would take a hundred times."""
    seen("")  # the rules are read once
    before = time.process_time()
    seen(hostile(part)[name])
    assert time.process_time() - before < 20 / part
