"""A forge's store of artifacts as a folder, for workflows that act runs: up and down."""

from __future__ import annotations

import fnmatch
import re
import shutil
import sys
from pathlib import Path


def upload(store: Path, name: str, path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(store / name, ignore_errors=True)
        shutil.copytree(path, store / name)


def download(store: Path, pattern: str, path: Path) -> None:
    """Each artifact in a folder of its name, as download-artifact does for a pattern."""
    braces = re.fullmatch(r"\{(.*)\}", pattern)
    patterns = braces.group(1).split(",") if braces else [pattern]
    for one in sorted(store.iterdir()) if store.is_dir() else []:
        if any(fnmatch.fnmatchcase(one.name, each) for each in patterns):
            shutil.copytree(one, path / one.name, dirs_exist_ok=True)


if __name__ == "__main__":
    verb, store, name, path = sys.argv[1:]
    {"upload": upload, "download": download}[verb](Path(store), name, Path(path))
