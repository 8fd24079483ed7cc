"""Pages of the documentation, as the package brings them. Edge."""

from __future__ import annotations

from pathlib import Path

from warpfront.errors import InputError
from warpfront.matrix.nearest import nearest
from warpfront.system.packaged import packaged_folder
from warpfront.system.store import read_text


def pages() -> dict[str, Path]:
    """Return the files of pages and guides by their names."""
    folder = packaged_folder("docs")
    paths = (*folder.glob("guides/*.md"), *folder.glob("*.md"))
    return {path.stem: path for path in sorted(paths, key=lambda path: path.stem)}


def page_text(name: str) -> str:
    """Return the text of a page. Raise `InputError` for an unknown name."""
    if path := pages().get(name):
        return read_text(path) or ""
    raise InputError(f"no page {name!r}", hint=nearest(name, tuple(pages())))
