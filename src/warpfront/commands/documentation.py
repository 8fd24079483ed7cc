"""Pages of the documentation, as the package brings them. Edge."""

from __future__ import annotations

from pathlib import Path

from warpfront.errors import InputError
from warpfront.matrix.nearest import nearest
from warpfront.system.store import read_text

# Installed, the pages are with the other data; in a checkout they are the repository's own.
_FOLDERS = (Path(__file__).parents[1] / "data" / "docs", Path(__file__).parents[3] / "docs")


def page_names() -> tuple[str, ...]:
    """Return the names of the pages and guides."""
    return tuple(sorted(_pages()))


def page_text(name: str) -> str:
    """Return the text of a page. Raise `InputError` for an unknown name."""
    pages = _pages()
    if name not in pages:
        raise InputError(f"no page {name!r}", hint=nearest(name, tuple(sorted(pages))))
    return read_text(pages[name]) or ""


def _pages() -> dict[str, Path]:
    folder = next(folder for folder in _FOLDERS if folder.is_dir())
    return {path.stem: path for path in (*folder.glob("guides/*.md"), *folder.glob("*.md"))}
