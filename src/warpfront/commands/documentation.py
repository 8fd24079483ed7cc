"""Pages of the documentation, as the package brings them. Edge."""

from __future__ import annotations

from pathlib import Path

from warpfront.errors import InputError
from warpfront.matrix.nearest import nearest
from warpfront.system.store import read_text

# Installed, the pages are with the other data; in a checkout they are the repository's own.
_FOLDERS = (Path(__file__).parents[1] / "data" / "docs", Path(__file__).parents[3] / "docs")


def pages() -> dict[str, Path]:
    """Return the files of pages and guides by their names."""
    folder = next(folder for folder in _FOLDERS if folder.is_dir())
    paths = (*folder.glob("guides/*.md"), *folder.glob("*.md"))
    return {path.stem: path for path in sorted(paths, key=lambda path: path.stem)}


def page_text(name: str) -> str:
    """Return the text of a page. Raise `InputError` for an unknown name."""
    if path := pages().get(name):
        return read_text(path) or ""
    raise InputError(f"no page {name!r}", hint=nearest(name, tuple(pages())))
