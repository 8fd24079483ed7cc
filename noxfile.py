"""The door for checks: `nox -s verify`, and what a developer runs before a commit.

`nox -s verify -- --target cpu` verifies images from the inside; `nox -s verify -- --here` the
current Python.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nox

try:
    from warpfront.doors import sessions
except ModuleNotFoundError:
    # Inside images and on GPU machines warpfront is a folder, not an installed package.
    sys.path.append(str(Path(__file__).resolve().parent / "src"))
    from warpfront.doors import sessions

__all__ = ["sessions"]

nox.options.default_venv_backend = "none"
nox.options.sessions = ["verify"]


@nox.session(default=False)
def tests(session: nox.Session) -> None:
    """Unit and contract tests: no Docker, no network. Further arguments go to pytest."""
    chosen = session.posargs or ["-m", "not docker and not network and not gpu"]
    session.run(sys.executable, "-m", "pytest", *chosen, external=True)


@nox.session(default=False)
def lint(session: nox.Session) -> None:
    """Ruff's rules and its format."""
    session.run(sys.executable, "-m", "ruff", "check", external=True)
    session.run(sys.executable, "-m", "ruff", "format", "--check", external=True)


@nox.session(default=False)
def types(session: nox.Session) -> None:
    """mypy, strict."""
    session.run(sys.executable, "-m", "mypy", external=True)
