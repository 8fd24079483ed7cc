"""The scanner's engine for C++ and CUDA: every rule on an example that has it, on one that only
looks so, and on one where AMD does not come.
"""

from __future__ import annotations

import time
from pathlib import PurePosixPath
from typing import Any

import pytest
from rule_files import read_examples

from warpfront_port.scan import cuda
from warpfront_port.scan.cuda import headers
from warpfront_port.scan.findings import Context, Gate, Match, SourceText

EXAMPLES = read_examples(cuda=True)
RULES = sorted(EXAMPLES)


def seen(text: str, *, path: str = "kernel.cu", context: Context | None = None) -> list[Match]:
    source = SourceText(path=PurePosixPath(path), text=text)
    return list(cuda.rule_matches(source, context or Context()))


def example(rule: str, kind: str) -> list[Match]:
    record = EXAMPLES[rule]
    found = seen(record[kind], path=record.get("path", "kernel.cu"))
    return [rule_match for rule_match in found if rule_match.rule == rule]


def is_open_to_amd(rule: str, found: Match) -> bool:
    text = EXAMPLES[rule]["hit"][found.start : found.end]
    return "amd" in found.sides and found.gate is Gate.OPEN and bool(text.strip())


def test_every_rule_sees_its_true_positive_for_amd() -> None:
    found = {rule: example(rule, "hit") for rule in RULES}
    assert [rule for rule in RULES if not found[rule]] == []
    assert [one for rule in RULES for one in found[rule] if not is_open_to_amd(rule, one)] == []


def test_every_rule_leaves_its_near_miss_alone() -> None:
    assert [one for rule in RULES for one in example(rule, "near")] == []


def test_code_that_amd_does_not_reach_is_no_finding_for_it() -> None:
    gated = [one for rule in RULES for one in example(rule, "gated")]
    assert [one for one in gated if "amd" in one.sides] == []


def test_the_examples_come_to_what_was_reviewed(golden: Any) -> None:
    lines = []
    for rule in RULES:
        text = EXAMPLES[rule]["hit"]
        for found in example(rule, "hit"):
            line = text.count("\n", 0, found.start) + 1
            lines.append(f"{rule} {line} {found.shift:+d} {found.excerpt}")
    golden("scan-cuda.txt", "\n".join(lines) + "\n")


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
    found = [rule_match for rule_match in seen(text) if rule_match.rule == "CU108"]
    assert [rule_match.gate for rule_match in found] == [Gate.WRAPPED]


def test_a_name_that_a_header_of_the_tree_maps_is_wrapped_too() -> None:
    text = "__device__ void f() { __nanosleep(1); }"
    found = seen(text, context=Context(portable_names=frozenset({"__nanosleep"})))
    assert [(rule_match.rule, rule_match.gate) for rule_match in found] == [("CU147", Gate.WRAPPED)]


def test_the_headers_of_a_tree_say_which_names_are_portable() -> None:
    text = """
#ifdef USE_ROCM
#define __syncwarp()
#else
#define MINE 1
#endif
#define BOTH 2
"""
    source = SourceText(path=PurePosixPath("compat.cuh"), text=text)
    facts = cuda.header_facts(source)
    assert facts.portable == {"__syncwarp"}
    assert headers.vendor_macros([facts])["MINE"] == {"amd": "unset"}


def test_a_header_that_is_hips_own_maps_all_that_it_defines() -> None:
    text = "#pragma once\n#include <hip/hip_runtime.h>\n#define __shfl_sync(m, v, l) __shfl(v, l)\n"
    for path, portable in (("vendors/hip.h", {"__shfl_sync"}), ("kernels.hip", set())):
        facts = cuda.header_facts(SourceText(path=PurePosixPath(path), text=text))
        assert facts.portable == portable


def test_code_behind_a_macro_that_no_header_gives_amd_is_not_amds() -> None:
    header = "#if !defined(USE_HIP) && __CUDA_ARCH__ >= 750\n#define TURING 1\n#endif\n"
    facts = cuda.header_facts(SourceText(path=PurePosixPath("common.cuh"), text=header))
    context = Context(vendor_macros=headers.vendor_macros([facts]))
    text = '#ifdef TURING\n__global__ void k() { asm("mov.u32 %0, %laneid;"); }\n#endif\n'
    assert rules_of(text) == {"CU107"}
    assert rules_of(text, context=context) == set()


def test_a_macro_that_one_header_gives_everybody_is_open_however_others_define_it() -> None:
    texts = ("#ifdef __CUDA_ARCH__\n#define FAST 1\n#endif\n", "#define FAST 0 // CUDA, HIP\n")
    facts = [
        cuda.header_facts(SourceText(path=PurePosixPath(f"{at}.h"), text=text))
        for at, text in enumerate(texts)
    ]
    assert headers.vendor_macros(facts[:1])["FAST"] == {"amd": "unset", "other": "unset"}
    assert "FAST" not in headers.vendor_macros(facts)


def test_a_field_of_another_structure_is_no_capability() -> None:
    text = "__global__ void k(Matrix m, int* a) { if (m.major == 8) a[threadIdx.x] = 1; }\n"
    assert "CU151" not in [found.rule for found in seen(text)]
    asked = f"cudaDeviceProp prop;\n{text}"
    assert "CU151" in [found.rule for found in seen(asked)]


def test_assembly_of_another_processor_is_no_ptx() -> None:
    text = 'void f() { __asm__ volatile("fcvtn v0.4h, v1.4s" ::: "v0"); }'
    assert rules_of(text, path="arm/repack.cpp") == set()
    assert rules_of(text.replace("void f", "__device__ void f"), path="repack.cpp") == {"CU107"}


def test_an_instruction_without_a_dot_is_ptx_too() -> None:
    assert rules_of('__global__ void k() { asm("trap;"); }') == {"CU107"}


@pytest.mark.parametrize(
    ("guarded", "other", "found"),
    [
        ("fast();", "portable();", {"CU124"}),
        ("// fast();", "", set()),
        ("fast();", "", {"CU123"}),
        ("fast();", "assert(false);", {"CU123"}),
        ("fast();", 'printf("for sm_80"); return;', {"CU123"}),
    ],
)
def test_a_guard_is_one_whose_other_arm_does_nothing_for_amd(
    guarded: str, other: str, found: set[str]
) -> None:
    arm = f"#else\n{other}\n" if other else ""
    text = f"__device__ void f() {{\n#if __CUDA_ARCH__ >= 800\n{guarded}\n{arm}#endif\n}}\n"
    assert rules_of(text) == found


def test_what_only_cuda_defines_is_noted_where_nothing_renames_it() -> None:
    for asked in ("CUDART_VERSION < 11020", "defined(__NVCC__)", "defined(__CUDACC__)"):
        text = f"#if {asked}\nint old;\n#endif\n"
        assert rules_of(text) == {"CU124"}
        assert rules_of(text, context=Context(is_hipified=True)) == set()
    ours = "#if CUDART_VERSION < 11020 && !defined(USE_ROCM)\nint old;\n#endif\n"
    assert rules_of(ours) == set()


@pytest.mark.parametrize(
    ("condition", "is_unset"),
    [
        ("#ifdef X_USING_CUDA\n#elif defined(X_USING_HIP)", True),
        ("#if defined(X_USING_CUDA) || X_USING_HIP", True),
        ("#if defined(X_USING_CUDA) && !defined(X_USING_HIP)", False),
        ("#if !X_USING_CUDA && !defined(X_USING_HIP)", True),
        ("#ifdef X_USING_CUDA", False),
    ],
)
def test_cudas_macro_that_a_project_asks_for_beside_hips_is_unset_on_amd(
    condition: str, *, is_unset: bool
) -> None:
    twins = headers.twin_macros([f"{condition}\nint both;\n#endif\n"])
    macros = headers.vendor_macros([], twins)
    assert macros == ({"X_USING_CUDA": {"amd": "unset", "other": "unset"}} if is_unset else {})
    text = "#ifdef X_USING_CUDA\n#include <cuda/std/atomic>\n#endif\n"
    assert ("CU147" in rules_of(text, context=Context(vendor_macros=macros))) is not is_unset


def test_the_width_of_a_mask_is_that_of_its_last_declaration() -> None:
    text = "void g(unsigned m);\n__device__ int f({0} m, int v) {{ return __shfl_sync(m, v, 0); }}"
    found = {
        kind: [one.shift for one in seen(text.format(kind)) if one.rule == "CU108"]
        for kind in ("unsigned", "uint64_t", "my_mask")
    }
    assert found == {"unsigned": [0], "uint64_t": [], "my_mask": [-1]}


def test_the_name_that_a_macro_gives_amd_is_no_use_of_it() -> None:
    assert rules_of("#ifdef USE_ROCM\n#define cudaMalloc hipMalloc\n#endif\n") == set()


def test_a_mask_of_unknown_width_weighs_less_than_one_of_32_bits() -> None:
    unknown = seen("__device__ int f(int v) { return __shfl_sync(MASK_OF_MINE, v, 0); }")
    assert [(found.rule, found.shift) for found in unknown] == [("CU108", -1)]
    narrow = seen("__device__ int f(unsigned m, int v) { return __shfl_sync(m, v, 0); }")
    assert [(found.rule, found.shift) for found in narrow] == [("CU108", 0)]


def test_ptx_that_holds_a_tensor_core_instruction_is_that() -> None:
    text = '__device__ void f() { asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\\n"); }'
    assert rules_of(text) == {"CU107"}


@pytest.mark.parametrize("suffix", [".cu", ".cuh", ".hip", ".cpp", ".h", ".hpp", ".CU"])
def test_sources_and_headers_are_read(suffix: str) -> None:
    assert cuda.reads(PurePosixPath(f"a/b{suffix}"))
    assert not cuda.reads(PurePosixPath(f"a{suffix}/b.py"))


def hostile(part: int = 1) -> dict[str, str]:
    """Long texts that never end well; a `part`-th of each."""
    return {
        "minified": "a=b;" * (300_000 // part),
        "masks": "__shfl_sync(" * (15_000 // part),
        "ballots": "x = __ballot(" * (15_000 // part),
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


@pytest.mark.parametrize(
    ("arm", "is_portable"),
    [
        ("#elif HAVE_ROCM", True),
        ("#elif defined(MINE_HIP)", True),
        ("#elif !HAVE_ROCM", False),
        ("#elif HAVE_SYCL", False),
    ],
)
def test_what_an_arm_for_amd_defines_too_is_portable(arm: str, *, is_portable: bool) -> None:
    text = (
        f"#if HAVE_CUDA\n#define CHECK_CUDA(x) a(x)\n{arm}\n#define CHECK_CUDA(x) hip(x)\n#endif\n"
    )
    source = SourceText(path=PurePosixPath("a.h"), text=text)
    assert ("CHECK_CUDA" in cuda.header_facts(source).portable) is is_portable


def test_an_arm_for_a_header_of_cuda_s_that_was_included_is_none_of_amd_s() -> None:
    case = "case CUFFT_LICENSE_ERROR: return 1;"
    assert "CU147" in {one.rule for one in seen(case) if "amd" in one.sides}
    arm = f"#ifdef _CUFFT_H_\n{case}\n#endif\n"
    assert not [one for one in seen(arm) if "amd" in one.sides]


def test_an_opt_in_to_what_a_block_has_anyway_is_no_finding() -> None:
    text = (
        "void f() {{ cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, {}); }}"
    )
    assert rules_of(text.format("65536")) == set()
    assert rules_of(text.format("65536 * 2")) == {"CU129"}


@pytest.mark.parametrize(
    ("wait", "shifts"),
    [
        ("__syncwarp();", []),
        ("__syncwarp(0xffffffff);", [0]),
        ("uint32_t m = (1ull << n) - 1; __syncwarp(m);", [0]),
        ("uint64_t m = (1ull << n) - 1; __syncwarp(m);", []),
        ("__syncwarp(lanes(n));", [-1]),
    ],
)
def test_a_wait_of_a_warp_takes_64_lanes(wait: str, shifts: list[int]) -> None:
    found = seen(f"__device__ void f(int n) {{ {wait} }}\n")
    assert [one.shift for one in found if one.rule == "CU108"] == shifts


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("return tex2D<float>(t, x, y);", True),
        ("return ::tex2D<float>(t, x, y);", True),
        ("return 0; }\n#define FETCH tex2D(t, 0, 0)\nint g() { return FETCH;", True),
        ("return rtc::tex2D<float>(t, x, y);", False),
        ("return sampler->tex2D(x, y);", False),
        ("using rtc::tex2D;", False),
        ("T tex2D(Texture t, float x, float y);", False),
    ],
)
def test_a_name_of_the_project_s_own_is_not_cudas(code: str, *, found: bool) -> None:
    assert ("CU135" in rules_of(f"__device__ float f() {{ {code} }}")) is found


@pytest.mark.parametrize(("width", "found"), [("", True), (", 32", False), (", WARP", False)])
def test_a_reduction_over_groups_of_32_lanes_is_right(width: str, *, found: bool) -> None:
    loop = "for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(m, v, o{});"
    text = f"#define WARP 32\n__device__ float f(float v) {{ {loop.format(width)} return v; }}"
    assert ("CU113" in rules_of(text)) is found


@pytest.mark.parametrize(
    ("rest", "shift"),
    [
        ("if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;", -1),
        ("if (threadIdx.x % warpSize == 0) part[threadIdx.x / warpSize] = v;", 0),
        ("v = __shfl_sync(m, v, 0);", 0),
    ],
)
def test_a_reduction_over_32_lanes_is_right_in_code_that_counts_32(rest: str, shift: int) -> None:
    loop = "for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(m, v, o);"
    found = seen(f"__global__ void k(float v) {{ {loop} {rest} }}")
    assert [one.shift for one in found if one.rule == "CU113"] == [shift]


@pytest.mark.parametrize(
    ("code", "shifts"),
    [
        ("int w = threadIdx.x / 32; v = __shfl_sync(m, v, 1);", [0]),
        ("int w = threadIdx.x / 32; v = __shfl_down_sync(m, v, 1);", [-1]),
        ("int w = threadIdx.x / 32; v = __shfl_down_sync(m, v, 1, warpSize);", [0]),
        ("int w = threadIdx.x / 32; v = __shfl_down_sync(m, v, 1, 32);", [-1]),
        ("int w = threadIdx.x / 32; v = warpSum(v);", [-1]),
        ("int lane = threadIdx.x & 63; int half_of_warp = lane >> 5; v = __shfl(v, 1);", []),
        ("int warp_bits = bits[at / 8] >> (at % 32); v = __shfl(v, 1);", []),
    ],
)
def test_lanes_of_32_are_certain_where_the_file_takes_lanes_of_a_whole_wave(
    code: str, shifts: list[int]
) -> None:
    found = seen(f"__global__ void k(float v) {{ {code} }}")
    assert [one.shift for one in found if one.rule == "CU114"] == shifts


def test_a_warps_width_in_a_source_without_lanes_counts_something_else() -> None:
    width = "#define WARP_SIZE 32\nint threads(int n) { return n * WARP_SIZE; }\n"
    assert [one.shift for one in seen(width, path="a.cu")] == [-1]
    assert [one.shift for one in seen(width, path="a.cuh")] == [0]
    nowhere = Context(takes_whole_waves=False)
    assert [one.shift for one in seen(width, path="a.cuh", context=nowhere)] == [-1]


@pytest.mark.parametrize(("width", "found"), [("", True), (", 32", False)])
def test_lanes_that_returned_are_missing_in_a_whole_wave(width: str, *, found: bool) -> None:
    shuffle = f"v = __shfl_xor_sync(0xffffffffffffffffull, v, 1{width});"
    code = f"__global__ void k(float v, int n) {{ if (threadIdx.x >= n) return; {shuffle} }}"
    assert ("CU171" in rules_of(code)) is found


@pytest.mark.parametrize(("rest", "shift"), [("v = __shfl_sync(m, v, 0);", 0), ("", -1)])
def test_32_threads_may_be_a_tile_where_no_lanes_exchange_values(rest: str, shift: int) -> None:
    text = f"__global__ void k(float v) {{ a[threadIdx.x % 32] = v; __syncthreads(); {rest} }}"
    assert [one.shift for one in seen(text) if one.rule == "CU114"] == [shift]


def test_an_arm_for_a_macro_of_cuda_is_noted_where_its_file_has_none_for_amd() -> None:
    text = "#ifdef MY_CUDA\nint a;\n#else\nint b;\n#endif\n"
    first, last = seen(text)  # where the arm begins and ends
    assert (first.rule, first.excerpt) == ("CU124", "MY_CUDA, and none for HIP")
    assert (first.start, last.start) == (0, text.index("#else") - 1)
    assert seen("#ifdef MY_CUDA\nint a;\n#elif defined(MY_HIP)\nint b;\n#endif\n") == []
    assert seen(f"#ifdef MY_HIP\nint b;\n#endif\n{text}") == []
    other = "#ifdef MY_CUDA\nint a;\n#elif defined(MY_HIP)\nint b;\n#endif\n"
    assert len(seen(f"{other}{text}")) == 2  # this chain has none
    assert seen("#ifdef MY_CUDA\n#endif\n") == []
    assert seen("#ifndef A_CUDA_H\n#define A_CUDA_H\nint a;\n#endif\n") == []
    usual = "#ifdef WITH_CUDA\nint a;\n#endif\n"  # what torch's builds set for AMD too
    assert seen(usual) != []
    assert seen(usual, context=Context(is_hipified=True)) == []


def test_a_value_for_cuda_and_its_headers_are_noted_where_nothing_names_amd() -> None:
    text = (
        "#include <cuda_runtime.h>\nint f(int kind) { return kind == DEV_CUDA; }\n"
        "int g(int s) { switch (s) { case my::CUDA_KIND: return 1; case CUDA_R_16F: return 2; } }\n"
        "bool h(int e) { return e == CUDA_SUCCESS; }\n"
        "enum class Way { CPU, CUDA };\nauto way = MY_CUDA_CHECK(1);\n"
    )
    assert [found.excerpt.partition(",")[0] for found in seen(text)] == [
        "cuda_runtime.h", "DEV_CUDA", "CUDA_KIND", "CUDA",
    ]  # fmt: skip
    assert seen(f"{text}int hip;\n") == []
