"""A project folder, opened: its matrix, templates, requirement files and locks, as values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from warpfront.errors import (
    BlockedError,
    CommandFailedError,
    LockError,
    RenderError,
    StoreError,
    WheelError,
)
from warpfront.images.render import Templates
from warpfront.matrix import Matrix, compat, read_matrix
from warpfront.matrix.compat import Compat
from warpfront.model import Blocked, Failed, StepName
from warpfront.system.process import environment, run
from warpfront.system.store import Store, read_text, read_tree
from warpfront.wheels.requirements import Asked, read_requirements
from warpfront.wheels.resolver import Site, read_site
from warpfront.wheels.wheelhouse import Wheelhouse

MATRIX_FILE = "matrix.yaml"
IMAGES_FOLDER = "images"
LOCKS_FOLDER = "locks"
BUILD_FOLDER = "build"
GUARD_FOLDER = Path("inside") / "guard"

AskSite = Callable[[], Site]
"""Asks pip for its configuration, once, and only when something has to come from outside: the
answer takes longer than all the rest of a build that has nothing to do.
"""

T = TypeVar("T")
P = ParamSpec("P")


class Watch(Protocol):
    """Who is told what happens while it happens."""

    def say(self, text: str) -> None:
        """One line for people."""

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None:
        """A transfer moved on; `done_bytes == total_bytes` ends it."""

    def step(self, cell_id: str, text: str) -> None:
        """A cell is now doing `text`; "" = it is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """One project, read and checked. `requirements` maps a path below `root` to what that file asks
    for; `guard` are the files of the guard that images get, by name.
    """

    root: Path
    cache: Path
    matrix: Matrix
    templates: Templates
    requirements: Mapping[str, Asked]
    guard: Mapping[str, str]
    compat: Compat
    store: Store

    @property
    def wheelhouse(self) -> Wheelhouse:
        return Wheelhouse(self.cache / "wheelhouse")

    def lock_path(self, cell_id: str) -> Path:
        return self.root / IMAGES_FOLDER / LOCKS_FOLDER / f"pylock.{cell_id}.toml"


def open_workspace(root: Path, *, build: Path | None = None) -> Workspace:
    """Read everything that decides what exists. Raises `MatrixError`, `LockError` or `StoreError`;
    writes nothing.
    """
    path = root / MATRIX_FILE
    text = read_text(path, missing_ok=True)
    if text is None:
        raise StoreError(
            f"{path}: no such file",
            hint="run in a project's folder, or make one with `warpfront init`",
        )
    table = compat.packaged()
    matrix = read_matrix(text, path=MATRIX_FILE, compat=table)
    wanted = {cell.requirements_file for cell in matrix.cells if cell.requirements_file}
    return Workspace(
        root=root,
        cache=cache_folder(),
        matrix=matrix,
        templates=Templates(read_tree(root / IMAGES_FOLDER)),
        requirements={
            name: read_requirements(name, lambda path: read_text(root / path) or "")
            for name in sorted(wanted)
        },
        guard=read_guard(),
        compat=table,
        store=Store(build or root / BUILD_FOLDER),
    )


def read_guard() -> Mapping[str, str]:
    """The guard's own files, as they go into images: what is read here is what `load` runs."""
    folder = Path(__file__).parents[1] / GUARD_FOLDER
    files = [*folder.glob("*.py"), *folder.glob("*.json")]
    return {path.name: read_text(path) or "" for path in sorted(files)}


def cache_folder() -> Path:
    """Where downloads, toolboxes and the embedded engine are kept, by the XDG base directory
    rules.
    """
    configured = environment().get("XDG_CACHE_HOME", "")
    return (Path(configured) if configured else Path.home() / ".cache") / "warpfront"


def site_when_needed() -> AskSite:
    """The site, read at the first call and kept for the others."""
    return functools.cache(functools.partial(read_site, run))


def attempt(
    cell_id: str, step: StepName, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T | Blocked | Failed:
    """Run one cell's step. What is wrong with this cell only becomes a value, so the others go
    on.
    """
    try:
        return act(*args, **kwargs)
    except BlockedError as error:
        reason = error.message.removeprefix(f"{cell_id}: ")
        return Blocked(cell_id=cell_id, step=step, reason=reason, hint=error.hint)
    except (LockError, RenderError, WheelError, CommandFailedError) as error:
        return Failed(
            cell_id=cell_id,
            step=step,
            reason=error.message.removeprefix(f"{cell_id}: "),
            hint=error.hint,
            exit_code=error.exit_code,
        )
