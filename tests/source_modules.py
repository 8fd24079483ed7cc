"""The texts of the modules of src, read once a process for all tests about them."""

from __future__ import annotations

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
