"""Fixes put lines behind gates: AMD's finding is gone, and NVIDIA sees the same tokens."""

from __future__ import annotations

import subprocess
from pathlib import PurePosixPath

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rule_files import KINDS, read_examples

from warpfront_port.scan import cuda
from warpfront_port.scan.findings import Context, SourceText
from warpfront_port.scan.fix import FIXABLE, MASK, Fix, fix_source
from warpfront_port.scan.isolation import nvidia_lines

FIXED = {
    "a mask that is a literal": """#include <cuda_fp16.h>
#ifdef MINE
#include "mine.h"
#endif
__device__ float f(float v) {
  v += __shfl_down_sync(0xffffffff, v, 8);
  return __shfl_xor_sync(0xffffffff, v, 1);
}
""",
    "a mask below a condition that runs to the end": """#if MINE
#include <cuda_fp16.h>
#ifdef MINE
#include "mine.h"
#endif
__device__ float f(float v) { return __shfl_xor_sync(0xffffffff, v, 1); }
#endif
""",
    "a mask in a header with a guard": """#ifndef F_H
#define F_H
#include <cuda_fp16.h>
__device__ float f(float v) { return __shfl_xor_sync(0xffffffff, v, 1); }
#endif
""",
    "a mask below an include that is a comment": """/*
#include <cuda_fp16.h>
*/
__device__ float f(float v) { return __shfl_xor_sync(0xffffffff, v, 1); }
""",
    "a mask that is a macro": """#define FULL_MASK 0xffffffff
__device__ float f(float v) { return __shfl_down_sync(FULL_MASK, v, 8); }
""",
}


def fixed(text: str) -> Fix | None:
    source = SourceText(path=PurePosixPath("src/kernel.cu"), text=text)
    return fix_source(source, cuda.rule_matches(source, Context()))


def for_nvidia(text: str) -> list[str]:
    """What NVIDIA's compiler reads of it, with the mask that a fix replaced."""
    source = SourceText(path=PurePosixPath("a.cu"), text=text.replace(MASK, "0xffffffff"))
    return [step.text for step in nvidia_lines(source)]


def left(text: str) -> list[str]:
    source = SourceText(path=PurePosixPath("src/kernel.cu"), text=text)
    seen = cuda.rule_matches(source, Context())
    return [one.rule for one in seen if one.rule in FIXABLE and "amd" in one.sides]


@pytest.mark.parametrize("name", sorted(FIXED))
def test_what_a_fix_gates_is_no_finding_any_more(name: str) -> None:
    assert left(FIXED[name])
    fix = fixed(FIXED[name])
    assert fix is not None
    assert left(fix.after) == []


@pytest.mark.parametrize("name", sorted(FIXED))
def test_nvidia_sees_the_same_tokens(name: str) -> None:
    fix = fixed(FIXED[name])
    assert fix is not None
    assert for_nvidia(fix.after) == for_nvidia(fix.before)


def preprocessed(text: str, *macros: str) -> list[str]:
    """What gcc's preprocessor makes of it; #include lines are kept as words."""
    kept = text.replace("#include", "INCLUDED")
    command = ["cpp", "-P", "-undef", "-x", "c++", *macros, "-"]
    done = subprocess.run(command, input=kept, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.process
@pytest.mark.parametrize("name", sorted(FIXED))
def test_a_real_preprocessor_gives_nvidia_the_same_tokens(name: str) -> None:
    fix = fixed(FIXED[name])
    assert fix is not None
    nvidia = ("-D__CUDACC__=1", "-D__NVCC__=1", "-D__CUDA_ARCH__=900")
    for macros in (nvidia, (*nvidia, "-DMINE"), ()):
        assert preprocessed(fix.after, *macros) == preprocessed(fix.before, *macros)
    # hipcc without HIP's headers, with them, and torch's builds.
    for amd in ("-D__HIP__=1", "-D__HIP_PLATFORM_AMD__=1", "-DUSE_ROCM=1"):
        for_amd = preprocessed(fix.after, amd, "-DMINE=1")
        assert for_amd != preprocessed(fix.before, amd, "-DMINE=1")


PIECES = [
    *FIXED.values(),
    "#if MINE\n",
    "#ifdef USE_ROCM\n",
    "#ifndef USE_ROCM\n",
    "#elif defined(MINE)\n",
    "#else\n",
    "#endif\n",
    "#define MINE 1\n",
    "/* a comment\n over lines */ int y;\n",
    "__device__ void g() {\n  __syncwarp();\n}\n",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_whatever_the_file_a_fix_leaves_nvidia_its_tokens(pieces: list[str]) -> None:
    fix = fixed("".join(pieces))
    if fix is not None:
        assert for_nvidia(fix.after) == for_nvidia(fix.before)
        assert fix.after != fix.before


def balanced(pieces: list[str]) -> str:
    """The pieces without arms and ends that no `#if` opened, and with the ends that are missing:
    gcc refuses the others.
    """
    kept: list[str] = []
    depth = 0
    for piece in pieces:
        if piece.startswith("#el") or (piece == "#endif\n" and depth == 0):
            continue
        opens = piece.startswith("#if") and "#endif" not in piece
        depth += opens - (piece == "#endif\n")
        kept.append(piece)
    return "".join(kept) + "#endif\n" * depth


@pytest.mark.process
@settings(max_examples=settings().max_examples // 3)  # each starts six processes
@given(st.lists(st.sampled_from(PIECES), max_size=12))
@example(["#if MINE\n", FIXED["a mask that is a literal"]])
def test_a_real_preprocessor_agrees_on_whatever_file(pieces: list[str]) -> None:
    fix = fixed(balanced(pieces))
    if fix is not None:
        for macros in (("-D__CUDACC__=1",), ("-D__CUDACC__=1", "-DMINE=1"), ()):
            assert preprocessed(fix.after, *macros) == preprocessed(fix.before, *macros)


def test_a_macro_is_defined_above_its_uses() -> None:
    for text in FIXED.values():
        fix = fixed(text)
        assert fix is not None
        if MASK in fix.after:
            first = fix.after.index(MASK)
            assert fix.after[:first].endswith("#define ")


def test_no_example_of_a_rule_changes_for_nvidia() -> None:
    texts = (one[kind] for one in read_examples(cuda=True).values() for kind in KINDS)
    fixes = [fix for text in texts if (fix := fixed(text)) is not None]
    assert fixes
    assert {rule for fix in fixes for rule in fix.rules} <= FIXABLE
    assert [fix for fix in fixes if for_nvidia(fix.after) != for_nvidia(fix.before)] == []


@pytest.mark.parametrize(
    "text",
    [
        "__device__ void f() { if (x) __syncwarp(); }\n",
        "#ifdef USE_ROCM\n__syncwarp();\n#endif\n",
        "__device__ float g(float v) { return __shfl_sync(mask_of_mine, v, 1); }\n",
        '__device__ void f() { asm volatile("mov.u32 %0, 1;" : "=r"(a)); }\n',
        "__device__ void f() {\r\n  __syncwarp();\r\n}\r\n",
        # What stands between R"""( and )""" is a text: lines put into it would be in the text.
        'auto kernel = R"""(\n__device__ void f() { " \n  __syncwarp();\n}\n)""";\n',
        # Lines above a definition would be in the comment that ends there.
        (
            "/* of\n all */ #define M 0xffffffff\n"
            "__device__ float g(float v) { return __shfl_sync(M, v, 1); }\n"
        ),
        "int x;\n",
    ],
)
def test_what_is_not_mechanical_is_left_alone(text: str) -> None:
    assert fixed(text) is None


def test_a_fix_twice_is_a_fix_once() -> None:
    for text in FIXED.values():
        fix = fixed(text)
        assert fix is not None
        assert fixed(fix.after) is None


def test_a_definition_that_nvidia_would_lose_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    text = FIXED["a mask that is a macro"]
    assert fixed(text)
    monkeypatch.setattr("warpfront_port.scan.fix._ROCM", "1")
    assert fixed(text) is None


def test_a_change_that_nvidia_would_see_is_told() -> None:
    before = "#if !defined(USE_ROCM)\na();\n#endif\n"
    assert for_nvidia(before) == for_nvidia("a();\n")
    assert for_nvidia("#ifdef USE_ROCM\nb();\n#else\na();\n#endif\n") == for_nvidia("a();\n")
    assert for_nvidia(before) != for_nvidia("#if defined(USE_ROCM)\na();\n#endif\n")


def test_the_patch_is_a_unified_diff() -> None:
    fix = fixed(FIXED["a mask that is a macro"])
    assert fix is not None
    assert fix.patch.splitlines() == [
        "--- a/src/kernel.cu",
        "+++ b/src/kernel.cu",
        "@@ -1,2 +1,6 @@",
        "+#if defined(USE_ROCM) || defined(__HIP_PLATFORM_AMD__) || defined(__HIP__)",
        "+#define FULL_MASK 0xffffffffffffffffull",
        "+#else",
        " #define FULL_MASK 0xffffffff",
        "+#endif",
        " __device__ float f(float v) { return __shfl_down_sync(FULL_MASK, v, 8); }",
    ]


def test_a_file_without_a_last_line_end_keeps_its_last_line() -> None:
    text = FIXED["a mask that is a macro"] + "int last;"
    fix = fixed(text)
    assert fix is not None
    assert fix.after.endswith("int last;")
