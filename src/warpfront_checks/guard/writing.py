"""Writing all files of a change, or none of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Mapping
from pathlib import Path

from .policy import GuardError

_READABLE = 0o644
_RUNNABLE = 0o755


def write_files(texts: Mapping[Path, str | bytes], *, programs: Container[Path] = ()) -> None:
    """Write every text to a temporary file, then move each into its place, in order. An
    interruption leaves no half of a file, and before the moves nothing at all. A new file can be
    read by everybody, whatever the umask; an existing one has its mode preserved. Raise
    `GuardError` before anything is written if one of them may not be.
    """
    targets = {path: Path(os.path.realpath(path)) for path in texts}
    for target in targets.values():
        _demand_right_to_write(target)
    asides: dict[Path, Path] = {}
    folders: list[Path] = []
    try:
        for path, text in texts.items():
            target = targets[path]
            folders += _make_folder(target.parent)
            aside = target.with_name(f".{target.name}.new")
            asides[aside] = target
            aside.write_bytes(text.encode() if isinstance(text, str) else text)
            aside.chmod(_RUNNABLE if path in programs else _mode_of(target))
        for aside, target in asides.items():
            aside.replace(target)
    except OSError as error:
        raise GuardError(f"{error.filename}: {error.strerror}") from error
    finally:
        for aside in asides:
            aside.unlink(missing_ok=True)
        for folder in reversed(folders):
            _remove_if_empty(folder)


def _demand_right_to_write(path: Path) -> None:
    folder = path.parent
    while not os.path.lexists(folder):
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise GuardError(f"{path}: no right to write in {folder}: run this as root")


def _make_folder(folder: Path) -> list[Path]:
    """Return the folders that had to be made, outermost first."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()][::-1]
    for one in missing:
        one.mkdir()
        one.chmod(_RUNNABLE)
    return missing


def _mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else _READABLE


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
