"""The checks of this project: `nox -s verify -- --target cpu`."""

from __future__ import annotations

import sys
from pathlib import Path

import nox

try:
    from warpfront import sessions
except ModuleNotFoundError:
    # Inside images warpfront is a folder, not an installed package.
    sys.path.append(str(Path(__file__).resolve().parent / "src"))
    from warpfront import sessions

__all__ = ["sessions"]

nox.options.default_venv_backend = "none"
nox.options.sessions = ["verify"]
