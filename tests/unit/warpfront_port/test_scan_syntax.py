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


def type_at(text: str, name: str) -> str | None:
    """The type that `name` has where it is written last."""
    read = view(text)
    found = read.syntax.declared(name, read.code.rindex(name))
    return None if found is None else found.type


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("int m; void f(float m) { m; }", "float"),
        ("void f(float m) { { int m; } m; }", "float"),
        ("void f(float m) { int a, *b, m = 1; m; }", "int"),
        ("void f() { for (int m = 0; ;) m; }", "int"),
        ("void f() { for (auto& m : all) m; }", "auto"),
        ("void f() { if (const int m = g()) m; }", "const int"),
        ("void f() { [](int m) { m; }; }", "int"),
        ("void f(int m); void g() { m; }", None),
        ("void f(int (*g)(float m)) { m; }", None),
        ("struct S { int m; }; void f() { m; }", None),
        ("template <int m> void f() { m; }", "int"),
        ("void f(half2 (&m)[4]) { m; }", "half2"),
        ("void f() { static __shared__ unsigned long long m[4]; m; }", None),
        ("namespace a { int m; } void f() { m; }", None),
        ("/* é */ long m; void f() { 'é'; m; }", "long"),
        ("#define M int m = 1; m\n", "int"),
        ("void f() {\n#ifdef USE_ROCM\nlong m;\n#else\nint m;\n#endif\nm; }", "long"),
        ("#ifdef USE_ROCM\nvoid f(long m) {\n#else\nvoid f(int m) {\n#endif\nm; }", "long"),
        ("#if X\nvoid f(long m) {\n#else\nvoid f(int m) { m;\n#endif\n }", "int"),
    ],
)
def test_a_name_means_what_the_innermost_scope_says(text: str, meant: str | None) -> None:
    found = type_at(text, "m")
    assert found == ("static __shared__ unsigned long long" if "static" in text else meant)


def test_members_may_be_declared_later() -> None:
    read = view("struct S { void f() { m; } void g() { char m; m; } int m; };")
    places = read.syntax.places("m")
    found = [read.syntax.declared("m", at) for at in places]
    assert [one and one.type for one in found] == ["int", "char", "char", "int"]


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("f(a<b, c>(d), 2)", ["a<b, c>(d)", "2"]),
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
    assert read.syntax.specifiers(read.code.index("HERE")) == on


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
