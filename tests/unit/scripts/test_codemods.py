"""tools/unsplat.py and tools/local_names.py change what they say, and nothing else."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('x = (*("a", "b"), c)', 'x = ("a", "b", c)'),
        ('f(*("a", f(*("b",))), k=1)', 'f("a", f("b"), k=1)'),
        ('x = [\n    *("a", "b",),\n]', 'x = [\n    "a", "b",\n]'),
        ('x = {*("a", "é"), *rest}', 'x = {"a", "é", *rest}'),
    ],
)
def test_a_splat_of_a_literal_tuple_becomes_its_elements(
    tool: Any, before: str, after: str
) -> None:
    assert tool("unsplat").rewritten(before) == after


@pytest.mark.parametrize("text", ['f(*("a" for _ in x))', "f(*x)", "x = (*(), 1)", "f(*[1, 2])"])
def test_another_splat_stays(tool: Any, text: str) -> None:
    assert tool("unsplat").rewritten(text) == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f(files): return [one.x for one in files]", "[file.x for file in files]"),
        ("def f(x):\n found = read_lock(x)\n return found", "lock = read_lock(x)"),
        # The noun is in use there: the next name that is free.
        ("def f(x, lock):\n found = read_lock(x)\n return found", "result = read_lock(x)"),
        ("def f(a, file): return [one for one in a.files if file]", "[item for item in a.files"),
        # Of two bindings that disagree no noun is taken.
        ("def f(x):\n found = read_a1(x)\n found = read_b1(x)\n return found", "result = read_b1"),
        ("def f(x):\n found = g(x)\n return lambda: found", "return lambda: result"),
        ("def f(x): return max(x.rows, key=lambda one: one.y)", "key=lambda item: item.y"),
    ],
)
def test_a_local_name_says_what_it_is_bound_to(tool: Any, before: str, after: str) -> None:
    assert after in tool("local_names").rewritten(before)


@pytest.mark.parametrize(
    "text",
    [
        "def f(found): return found",
        "found = g()",
        "class A:\n    found = g()",
        "def f(x):\n global found\n found = g(x)",
        "def f(x):\n def found(): pass\n return found",
        "def f(x):\n import found\n return found",
        "def f(x):\n try: pass\n except E as found: return found",
        "def f(x): return g(found=x).found",
    ],
)
def test_a_name_that_is_not_local_stays(tool: Any, text: str) -> None:
    assert tool("local_names").rewritten(text) == text
