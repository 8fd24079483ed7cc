"""A new project's files: a matrix with one CPU row, its schema for editors, the templates, and
the two doors. Edge.
"""

from __future__ import annotations

from pathlib import Path

from warpfront.errors import StoreError
from warpfront.system.store import read_text, write_text

_DATA = Path(__file__).parents[1] / "data"
# Installed, the templates are with the other data; in a checkout they are the repository's own.
_IMAGES = (_DATA / "images", Path(__file__).parents[3] / "images")
_SCHEMA = "matrix.schema.json"
_TEMPLATES = ("_shared", "torch", "devel", "hf")


def make_project(folder: Path, *, dry_run: bool = False) -> tuple[Path, ...]:
    """Write a project that builds into `folder`; what was written (or would be).

    Raise `StoreError` before writing anything if one of the files exists.
    """
    files = {folder / name: text for name, text in _project_files().items()}
    existing = [path for path in files if path.exists()]
    if existing:
        raise StoreError(
            f"{existing[0]} exists", hint="make a project in an empty folder; nothing was written"
        )
    if not dry_run:
        for path, text in files.items():
            write_text(path, text)
    return tuple(files)


def _project_files() -> dict[str, str]:
    # `.txt`, because they are not modules of this package.
    files = {
        path.name.removesuffix(".txt"): read_text(path) or ""
        for path in sorted((_DATA / "project").iterdir())
    }
    # A copy, so that every clone has it at one path, without a network.
    files[_SCHEMA] = read_text(_DATA / _SCHEMA) or ""
    images = next(folder for folder in _IMAGES if folder.is_dir())
    for name in _TEMPLATES:
        for path in sorted((*(images / name).glob("*.j2"), *(images / name).glob("*.txt"))):
            files[f"images/{name}/{path.name}"] = read_text(path) or ""
    files[".gitignore"] = "/.venv/\n/build/\n/handover/\n__pycache__/\n"
    return files
