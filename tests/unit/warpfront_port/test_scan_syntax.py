"""What a name means where: functions, scopes, declarations and arguments by the tree."""

from __future__ import annotations

import random
import time
from pathlib import PurePosixPath

import pytest

from warpfront_port.scan.cuda.reading_code import rule_matches
from warpfront_port.scan.cuda.view import View
from warpfront_port.scan.findings import Context, SourceText


def view(text: str) -> View:
    source = SourceText(path=PurePosixPath("a.cu"), text=text)
    return View(source=source, context=Context())


def seen(text: str) -> list[tuple[str, str]]:
    source = SourceText(path=PurePosixPath("a.cu"), text=text)
    return [(one.rule, one.excerpt) for one in rule_matches(source, Context())]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("int m; void f(float m) { m; }", "float"),
        ("void f(float* m) { g(m); return m; }", "float*"),
        ("void f() { for (int m = 0; ;) m; }", "int"),
        ("void f() { if (const int m = g()) m; }", "const int"),
        ("void g(float m) { } void f() { int m; } void h() { m; }", "int"),
        ("template <int m> void f() { m; }", "int"),
        ("void f() { static __shared__ unsigned m[4]; m; }", "static __shared__ unsigned"),
        ("/* é */ long m; void f() { 'é'; m; }", "long"),
        ("void f() { int a;" + " " * 200 + "int m = 1; m; }", "int"),
        ("void f() { m; }", ""),
    ],
)
def test_a_name_has_the_type_of_its_last_declaration(text: str, meant: str) -> None:
    read = view(text)
    assert read.syntax.type_of("m", read.code.rindex("m")) == meant


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("int lane = (int)(HERE);", "lane"),
        ("if (a == b) lanes[2] |= ~HERE;", "lanes"),
        ("int lane = static_cast<int>(HERE);", "lane"),
        ("int count = f(HERE);", ""),
        ("a.lane = HERE;", ""),
        ("int lane = 0; HERE;", ""),
        ("if (lane == HERE) a();", ""),
    ],
)
def test_a_statement_stores_to_the_name_before_its_sign(code: str, name: str) -> None:
    read = view(f"void f() {{ {code} }}")
    assert read.syntax.stored_to(read.code.index("HERE"))[0] == name


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("f(a < b, c)", ["a < b", "c"]),
        ("f((a, b), g(c, d), {1, 2})", ["(a, b)", "g(c, d)", "{1, 2}"]),
        ("f([&](int i) { return i; }, 1)", ["[&](int i) { return i; }", "1"]),
        ("f<1, 2>(a)", ["a"]),
        ("dim3 grid(f(a), f(b))", ["a"]),
        ("return f( a )", ["a"]),
        ("if (x { f(a, b)", ["a", "b"]),
    ],
)
def test_arguments_are_those_of_the_call(call: str, given: list[str]) -> None:
    read = view(f"void g() {{ {call}; }}\n")
    _span, found = read.syntax.call(read.syntax.places("f")[0])
    assert [read.code[slice(*span)] for span in found] == given


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("__global__ void k() { HERE; }", {"global"}),
        ("__host__ __device__ void k() { HERE; }", {"host", "device"}),
        ("__device__ void j() {} void k() { HERE; }", set()),
        ("__device__ void j(); void k() { HERE; }", set()),
        ("void k() { run([=] __device__ (int i) { HERE; }); }", {"device"}),
        ("__global__ void k() { run([=](int i) { HERE; }); }", {"global"}),
        ("struct S { template <class T> __device__ int k(T t) const { HERE; } };", {"device"}),
        ("#ifdef A\n__global__ void k(int a) {\n#else\nvoid k() {\n#endif\nHERE; }", {"global"}),
        ("#ifdef A\n__global__ void k(int a) {\n#else\nvoid k() { HERE;\n#endif\n }", set()),
        ("#define K(n) __global__ void n() { HERE; }\n", {"global"}),
        ("__global__ void __launch_bounds__(64) k() { case 1: LOOP(i) { HERE; } }", {"global"}),
    ],
)
def test_a_place_is_in_the_function_around_it(text: str, on: set[str]) -> None:
    read = view(text)
    assert read.syntax.block(read.code.index("HERE")).specifiers == on


N = 100_000
KERNEL = "\n__device__ void k(unsigned m) { m = __ballot(1); __popc(m); std::max(1, 2); m.x; }\n"
PARTS = pytest.mark.parametrize("part", [8, pytest.param(1, marks=pytest.mark.exhaustive)])


@pytest.mark.parametrize(
    "text",
    [
        "(" * N,
        "void f() { x = " + "(" * N + ")" * N + "; }",
        "void f() " + "{" * N + KERNEL + "}" * N,
        "{" * N,
        "[" * N,
        "a<" * N,
        "f(" * N,
        "int " + "*" * N + "m;",
        "\n#if A\n" * 2000 + "x" + "\n#else\n{\n#endif\n" * 2000,
        "#if A\n{\n#else\n}\n#endif\n__popc(m);" * 4000,
        "__popc(m + __ballot(m)); m = m + 1;" * 20_000,
        "half2 m; m.x = __popc(m);" * 20_000,
    ],
    ids=lambda text: text[:12],
)
@PARTS
def test_hostile_text_costs_a_bounded_time(text: str, part: int) -> None:
    assert seconds_of(text[: len(text) // part]) < 20 / part


@pytest.mark.parametrize(
    ("pieces", "count"),
    [
        ([*"{}()[]<>;,=+-*&|~!?:.#\"' \nabcint01m__popc("], 2 * 1024 * 1024),
        (["{", "}", "(m)", "<", ">", "__popc", "m", "=", ";", "int "], N),
    ],
    ids=["characters", "words"],
)
@PARTS
def test_random_text_costs_a_bounded_time(pieces: list[str], count: int, part: int) -> None:
    text = "".join(random.Random(1).choices(pieces, k=count // part))
    assert seconds_of(text) < 20 / part


def seconds_of(text: str) -> float:
    """An eighth of the text is allowed an eighth of the time; a square would take 64 times."""
    before = time.process_time()
    seen(f"#include <cuda_fp16.h>\n__device__ half2 m; {text}{KERNEL}")
    return time.process_time() - before
