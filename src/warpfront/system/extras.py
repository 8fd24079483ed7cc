"""Optional parts: what packages add by entry points, and which extra has a missing module. Edge."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

# Top-level module -> the extra of pyproject.toml that installs it.
EXTRAS = {
    "tree_sitter": "port",
    "tree_sitter_cuda": "port",
    "installer": "layers",
    "zstandard": "layers",
    "matplotlib": "charts",
    "packageurl": "publish",
}


def how_to_install(error: ModuleNotFoundError) -> str:
    """Return the command that installs a missing optional module; "" if no extra has it."""
    extra = EXTRAS.get((error.name or "").partition(".")[0])
    return f"pip install 'warpfront[{extra}]'" if extra else ""


def registered(group: str) -> Iterator[Any]:
    """Yield the objects of an entry-point group. Raise `ModuleNotFoundError`."""
    for point in entry_points(group=group):
        yield point.load()
