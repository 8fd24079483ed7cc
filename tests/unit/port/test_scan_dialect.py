"""What nvcc takes and clang refuses: by types and scopes; what looks alike is left alone."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from warpfront_port.scan.cuda import rule_matches
from warpfront_port.scan.findings import Context, SourceText

RULES = frozenset({"CU161", "CU162", "CU163", "CU164"})


def said(text: str, path: str = "a.cu") -> list[tuple[str, str]]:
    source = SourceText(path=PurePosixPath(path), text=text)
    seen = rule_matches(source, Context())
    return [(one.rule, one.what) for one in seen if one.rule in RULES]


@pytest.mark.parametrize(
    ("body", "rules"),
    [
        ("float4 v = {0};", ["CU161"]),
        ("const int2 v = {1};", ["CU161"]),
        ("float4 v = {x, y};", ["CU161"]),
        ("float4 v[2] = {0};", ["CU161"]),
        ("float4 v[2] = {w};", []),
        ("float4 v = {w};", []),
        ("float4 v = {};", []),
        ("float2 v = {x, y};", []),
        ("float4 v = {1, 2, 3, 4};", []),
        ("half2 v = {0}; float v4 = {0}; myfloat4 u = {0};", []),
        ("uint3 t = threadIdx;", ["CU162"]),
        ("uint3 t; t = gridDim;", ["CU162"]),
        ("dim3 t = threadIdx; unsigned n = blockIdx.x;", []),
        ("uint3 t = make_uint3(threadIdx.x, 0, 0); p.threadIdx = t;", []),
    ],
)
def test_vectors_and_indices(body: str, rules: list[str]) -> None:
    assert [rule for rule, _ in said(f"__device__ void f() {{ {body} }}\n")] == rules


@pytest.mark.parametrize(
    ("head", "braces", "whats"),
    [
        ("int n", "{n, 1}", ["n (int)"]),
        ("int n", "{(n + 255) / 256, 1}", ["(n + 255) / 256 (int)"]),
        ("std::size_t n, unsigned m", "{m, n}", ["n (64 bits)"]),
        ("const T& x", "{x.size(), x->numel()}", ["x.size() (64 bits)", "x->numel() (64 bits)"]),
        ("unsigned n, int m", "{n / m, 1}", []),
        ("int n", "{static_cast<unsigned>(n), unsigned(n)}", []),
        ("auto n", "{n, OTHER, 4 * 2}", []),
        ("int* n", "{n[0], 1}", []),
        ("Size n", "{n, n.x}", []),
    ],
)
def test_dim3_between_braces(head: str, braces: str, whats: list[str]) -> None:
    for form in (f"dim3 g{braces};", f"dim3 g = {braces};", f"auto g = dim3{braces};"):
        text = f"void f({head}) {{ {form} k<<<g, 1>>>(); }}\n"
        assert [what for rule, what in said(text) if rule == "CU163"] == whats
    assert not said(f"void f({head}) {{ dim3 g{braces}; }}\n", "host.cpp")  # GCC only warns


def test_what_is_too_deep_is_not_known() -> None:
    for deep in ("n + " * 5000 + "n", "(" * 3000 + "n" + ")" * 3000):
        assert not said(f"void f(int n) {{ dim3 g{{{deep}}}; k<<<g, 1>>>(); }}\n")


def test_the_nearest_declaration_decides() -> None:
    text = (
        "void f(unsigned n) { { const int m = 4; dim3 a{m, n}; } { int n = 3; dim3 b{n, 1}; } }\n"
        "template <int N> void g() { dim3 a{N, 1}; }\n__device__ int d;\n"
    )
    assert said(text) == [("CU163", "n (int)")]


CLASS = "struct S {{ {} float f(float x); float g(int); float v; }};\n"


@pytest.mark.parametrize(
    ("declared", "defined", "is_said"),
    [
        ("__device__", "float S::f(float x)", True),
        ("__host__ __device__ inline", "inline float S::f(float x)", True),
        ("ANY", "float S::f(float x)", True),
        ("ANY", "ANY float S::f(float x)", False),
        ("__device__", "__device__ float S::f(float x)", False),
        ("", "float S::f(float x)", False),
        ("__device__", "float T::f(float x)", False),
        ("__host__", "float S::f(float x)", False),
    ],
)
def test_definitions_have_what_their_declarations_have(
    declared: str, defined: str, *, is_said: bool
) -> None:
    head = "#define ANY __host__ __device__\nstruct T { float f(float x); };\n"
    text = f"{head}{CLASS.format(declared)}{defined} {{ return x; }}\n__device__ int d;\n"
    assert said(text) == [("CU164", "S::f")] * is_said
    called = text + "void g() { float y = S::f(1); }\n"
    assert said(called) == said(text)


def test_an_overload_of_the_hosts_may_be_the_one_that_is_defined() -> None:
    text = (
        "struct S { __device__ int f(int x); int f(float x); };\nint S::f(float x) { return 1; }\n"
    )
    assert not said(text)


def test_an_operator_is_a_member_too() -> None:
    text = (
        "struct S { __device__ int operator()(int x); };\nint S::operator()(int x) { return x; }\n"
    )
    assert said(text) == [("CU164", "S::operator")]
