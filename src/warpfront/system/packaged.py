"""Data files of a package of this distribution. Words."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any


def packaged_text(*path: str, package: str = "warpfront") -> str:
    """Return a file below `data/`."""
    return resources.files(package).joinpath("data", *path).read_text(encoding="utf-8")


def packaged_toml(*path: str, package: str = "warpfront") -> dict[str, Any]:
    """Return a TOML file below `data/`."""
    return tomllib.loads(packaged_text(*path, package=package))


def packaged_folder(name: str) -> Path:
    """Return a folder of the repository, which is with the data where this is installed."""
    package = Path(__file__).parents[1]
    folders = (package / "data" / name, package.parents[1] / name)
    return next(folder for folder in folders if folder.is_dir())
