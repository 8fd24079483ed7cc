"""The modules of src, read and parsed once a process for all tests about them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


@cache
def module_texts() -> Mapping[str, str]:
    """Return the text of each module of src by its POSIX path there."""
    paths = sorted(SOURCE.rglob("*.py"))
    return {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in paths}


@cache
def module_tree(name: str) -> ast.Module:
    """Return the syntax tree of the module at a path. Do not change it."""
    return ast.parse(module_texts()[name])


def module_trees() -> Mapping[str, tuple[str, ast.Module]]:
    """Return the text and the syntax tree of each module, by its path."""
    return {name: (text, module_tree(name)) for name, text in module_texts().items()}
