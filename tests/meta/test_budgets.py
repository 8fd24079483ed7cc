"""Lines of src and the rates of its language only fall: budgets.toml has the numbers."""

from __future__ import annotations

import ast
import importlib.util
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from source_modules import ROOT, module_trees

BUDGETS = Path(__file__).with_name("budgets.toml")
LOWER = "run `python tools/language.py --write` and commit tests/meta/budgets.toml"
# Below a budget by more than this share of it, the number has to follow.
SLACK = 0.01


@pytest.fixture(scope="module")
def language() -> Any:
    spec = importlib.util.spec_from_file_location("language", ROOT / "tools" / "language.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["language"] = module
    spec.loader.exec_module(module)
    return module


def complaints(measured: Mapping[str, float], budgets: Mapping[str, float]) -> list[str]:
    """Return what is above its budget, or so far below that the budget has to follow."""
    assert measured.keys() == budgets.keys()
    return [
        f"{name} is {value}, its budget {budgets[name]}: "
        + (f"lower the number: {LOWER}" if value < budgets[name] else "it may only fall")
        for name, value in measured.items()
        if not budgets[name] * (1 - SLACK) <= value <= budgets[name]
    ]


def test_src_keeps_its_budgets(language: Any) -> None:
    budgets = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))["src"]
    assert complaints(language.measure(module_trees().values()).budgets(), budgets) == []


def test_a_number_that_rises_is_refused_and_one_that_falls_far_is_to_be_lowered() -> None:
    budgets = {"lines": 1000, "rate": 10.0}
    assert complaints({"lines": 1000, "rate": 9.95}, budgets) == []
    (above,) = complaints({"lines": 1001, "rate": 10.0}, budgets)
    assert above == "lines is 1001, its budget 1000: it may only fall"
    (below,) = complaints({"lines": 1000, "rate": 9.8}, budgets)
    assert "rate is 9.8, its budget 10.0: lower the number" in below


def test_what_is_written_is_what_is_compared(language: Any) -> None:
    measured = language.measure([("x = 1\n", ast.parse("x = 1\n"))])
    assert tomllib.loads(language.budgets_text(measured))["src"] == measured.budgets()


TEXT = '''\
"""What is said of nobody."""
# it was told otherwise
NAMES = "said = found # no comment"


class Wheel:
    """A wheel."""

    def found(self, asked: str) -> str:
        r"""Return it."""
        one = f"{asked} # held"
        return one  # 0x1d
'''


def test_words_are_counted_in_prose_and_names_outside_of_strings(language: Any) -> None:
    measured = language.measure([(TEXT, ast.parse(TEXT))])
    assert measured == language.Measure(
        lines=12,
        words=5 + 5 + 2 + 2 + 2,  # a comment's `#` is a word of its own
        names=12,
        docstrings=3,
        dialect=4,
        generic=4,  # found, asked, one, one
        without_subject=1,
    )
