"""C++ and CUDA without comments and literals, and which sides reach which lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpfront_port.scan.cuda.conditions import Macros, integer
from warpfront_port.scan.cuda.lexer import blank
from warpfront_port.scan.cuda.preprocessor import read_reaches
from warpfront_port.scan.cuda.view import NAME


def words(text: str) -> list[str]:
    return NAME.findall(blank(text)[0])


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a // b\nc", ["a", "c"]),
        ("a /* b\n b */ c", ["a", "c"]),
        ("a // b \\\n b\nc", ["a", "c"]),
        ('a "b \\" b" c', ["a", "c"]),
        ('a R"(b " b)" c', ["a", "R", "c"]),
        ('a u8R"x(b )" b)x" c', ["a", "u8R", "c"]),
        ('a R"""(b " b)" c)""" d', ["a", "R", "d"]),
        ("a 'b' c", ["a", "c"]),
        ("a '\\'' c", ["a", "c"]),
        ("a '\"' c \" b ", ["a", "c"]),
        ("a = 1'000'000; c", ["a", "c"]),
        ("a = u8'b'; c", ["a", "u8", "c"]),
        ("a /* never closed b", ["a"]),
        ('a "never closed b \nc', ["a", "c"]),
        ("#error don't b\nc", ["c"]),
        ("#pragma b\nc", ["c"]),
        ("#define a(x) b /* no */ \\\n c\nd", ["define", "a", "x", "b", "c", "d"]),
        ("#if b /* over\n lines b */ && b\nc", ["c"]),
        ("%: pragma b\nc", ["c"]),
        ("/* b */ # /* b */ pragma b\nc", ["c"]),
        ("a # b", ["a", "b"]),
        ("a\r\n#pragma b\r\nc", ["a", "c"]),
    ],
)
def test_only_code_is_left(text: str, seen: list[str]) -> None:
    assert words(text) == seen


@given(st.text(alphabet="ab1 \n\\\"'/*#R()<>%:u8", max_size=60))
def test_blanked_code_has_the_length_and_the_line_ends_of_its_text(text: str) -> None:
    code = blank(text)[0]
    assert len(code) == len(text)
    assert [at for at, mark in enumerate(code) if mark == "\n"] == [
        at for at, mark in enumerate(text) if mark == "\n"
    ]


def reached(text: str) -> dict[str, str]:
    """Who gets each line that begins with `x`: n, a and o for NVIDIA, AMD and other."""
    reaches = read_reaches(blank(text)[1])
    found = {}
    offset = 0
    for line in text.splitlines(keepends=True):
        if line.startswith("x"):
            found[line.strip()] = "".join(sorted(side[0] for side in reaches.at(offset).reach))
        offset += len(line)
    return found


@pytest.mark.parametrize(
    ("condition", "then", "otherwise"),
    [
        ("#ifdef USE_ROCM", "a", "no"),
        ("#ifndef USE_ROCM", "no", "a"),
        ("#if USE_ROCM", "a", "no"),
        ("#if !USE_ROCM", "no", "a"),
        ("#if !defined(__HIP_PLATFORM_AMD__)", "no", "a"),
        ("#if defined __HIPCC__", "a", "no"),
        ("#if defined(__NVCC__)", "n", "ano"),
        ("#ifdef __CUDA_ARCH__", "n", "ano"),
        ("#if __CUDA_ARCH__ >= 800", "n", "ano"),
        ("#if __CUDA_ARCH__ < 800", "ano", "n"),
        ("#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700", "n", "ano"),
        ("#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ >= 530)", "ano", "n"),
        ("#if CUDA_VERSION >= 11000", "n", "ano"),
        ("#if CUDA_VERSION >= 11000 || defined(USE_ROCM)", "an", "no"),
        ("#if defined(CUDA_VERSION)", "an", "ano"),
        ("#if HIP_VERSION >= 60200000", "a", "ano"),
        ("#if defined(MY_OWN_HIP_SWITCH)", "a", "no"),
        ("#if defined(MINE)", "ano", "ano"),
        ("#if MINE && defined(USE_ROCM)", "a", "ano"),
        ("#if WITH_CUDA", "an", "ano"),
        ("#if 0", "", "ano"),
        ("#if 1", "ano", ""),
        ("#if (2 * 3 == 6) && !(1 > 2)", "ano", ""),
        ("#if __has_include(<x.h>) && defined(USE_ROCM)", "a", "ano"),
        ("#if defined(DISABLE_HIP_GRAPHS)", "ano", "ano"),
        ("#ifdef __gfx942__", "a", "ano"),
        ("#if ((((", "ano", "ano"),
    ],
)
def test_an_arm_is_reached_by_those_whose_macros_say_so(
    condition: str, then: str, otherwise: str
) -> None:
    assert reached(f"{condition}\nx1\n#else\nx2\n#endif\nx3\n") == {
        "x1": then,
        "x2": otherwise,
        "x3": "ano",
    }


def test_hipify_renames_cudacc() -> None:
    assert reached("#ifdef __CUDACC__\nx1\n#endif\n") == {"x1": "an"}


def test_arms_after_the_one_that_is_taken_are_not_reached() -> None:
    text = "#if defined(USE_ROCM)\nx1\n#elif CUDA_VERSION > 12000\nx2\n#else\nx3\n#endif\n"
    assert reached(text) == {"x1": "a", "x2": "n", "x3": "no"}


def test_conditions_nest() -> None:
    text = "#ifndef USE_ROCM\n#ifdef USE_CUDA\nx1\n#endif\nx2\n#endif\nx3\n"
    assert reached(text) == {"x1": "n", "x2": "no", "x3": "ano"}


def test_an_include_guard_guards_nothing_whatever_its_name() -> None:
    text = "#ifndef MY_ROCM_UTILS\n#define MY_ROCM_UTILS\nx1\n#endif\n"
    assert reached(text) == {"x1": "ano"}


def test_a_macro_that_one_arm_defines_decides_later_conditions() -> None:
    text = """#ifdef USE_ROCM
#define ON_AMD 1
#else
#define ON_AMD 0
#endif
#if ON_AMD
x1
#else
x2
#endif
#undef ON_AMD
#ifdef ON_AMD
x3
#endif
"""
    assert reached(text) == {"x1": "a", "x2": "no", "x3": ""}


@pytest.mark.parametrize(
    "head",
    [
        "#ifndef FAST\n#define FAST 0\n#endif\n",
        "#ifdef MINE\n#else\n#define FAST 0\n#endif\n",
        "#define FAST 0\n#ifdef MINE\n#undef FAST\n#endif\n",
    ],
)
def test_a_define_that_a_build_may_override_makes_no_arm_dead(head: str) -> None:
    assert reached(f"{head}#if FAST\nx1\n#else\nx2\n#endif\n") == {"x1": "ano", "x2": "ano"}


def test_a_define_that_nothing_overrides_makes_an_arm_dead() -> None:
    text = "#define FAST 0\n#if FAST\nx1\n#else\nx2\n#endif\n"
    assert reached(text) == {"x1": "", "x2": "ano"}


def test_a_macro_with_an_open_value_is_defined_all_the_same() -> None:
    text = "#define A (MINE > 3)\n#if A\nx1\n#else\nx2\n#endif\n#ifdef A\nx3\n#else\nx4\n#endif\n"
    assert reached(text) == {"x1": "ano", "x2": "ano", "x3": "ano", "x4": ""}


def test_strays_change_nothing() -> None:
    assert reached("#endif\n#else\nx1\n#if USE_ROCM\nx2\n") == {"x1": "ano", "x2": "a"}


@pytest.mark.parametrize(
    ("literal", "value"),
    [("0x1F", 31), ("017", 15), ("0b11", 3), ("1'000u", 1000), ("08", None), ("1.5", None)],
)
def test_integers_are_read_as_c_writes_them(literal: str, value: int | None) -> None:
    assert integer(literal) == value


def test_a_condition_as_deep_as_a_well_is_open() -> None:
    deep = "(" * 5000 + "1" + ")" * 5000
    assert Macros().truth(deep, "amd") is None
    assert Macros().truth("!" * 5000 + "1", "amd") is None
