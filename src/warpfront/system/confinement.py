"""Containment of a path in a folder, with all links resolved. Edge."""

from __future__ import annotations

import os
from pathlib import Path


def inside_root(path: Path, root: Path) -> bool:
    """Return whether `path`, every link of it resolved, is `root` or lies below it. A path that
    does not exist is judged by the part of it that does; a circle of links is outside.
    """
    try:
        resolved = Path(os.path.realpath(path))
        looping = resolved.is_symlink()
    except (OSError, ValueError):
        return False
    return not looping and resolved.is_relative_to(os.path.realpath(root))
