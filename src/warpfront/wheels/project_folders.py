"""Folders of a project and of its caches. Edge."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from warpfront.system.store import Store
from warpfront.wheels.store.wheelhouse import Wheelhouse

IMAGES_FOLDER = "images"
LOCKS_FOLDER = "locks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Folders: the project's `root`, the user's `cache`, and the `store` of the steps' results."""

    root: Path
    cache: Path
    store: Store

    @property
    def wheelhouse(self) -> Wheelhouse:
        return Wheelhouse(self.cache / "wheelhouse")

    def lock_path(self, cell_id: str) -> Path:
        return self.root / IMAGES_FOLDER / LOCKS_FOLDER / f"pylock.{cell_id}.toml"
