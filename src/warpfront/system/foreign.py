"""Files that a container or another program wrote: read to a limit, without following links,
waiting for a FIFO or trusting their form; removed whatever they are. Edge.

Imports the standard library only, because `verify --here` uses it.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from warpfront.errors import StoreError
from warpfront.system.digests import JSON_DEPTH_LIMIT, clean_json
from warpfront.system.tree_files import Unreadable

RESULT_LIMIT_BYTES = 16 * 2**20
_KINDS = {"-": "", "l": "a link", "d": "a folder", "p": "a FIFO", "s": "a socket"}
"""By the first letter of a mode as `ls` shows it."""


def read_regular(
    path: Path, limit_bytes: int = RESULT_LIMIT_BYTES, *, follow: bool = False
) -> bytes:
    """Return the bytes of a regular file. Raise `FileNotFoundError`, and `StoreError` for
    anything else, for what is larger than the limit, and for what may not be read. With `follow` a
    link to a regular file is one.
    """
    content = None
    try:
        status = path.stat() if follow else path.lstat()
        kind, size = kind_of(status.st_mode), status.st_size
        # A file whose size exceeds the limit is not read; one that grows is read up to the limit.
        if not kind and size <= limit_bytes:
            content = first_bytes(path, limit_bytes + 1, follow=follow)
            size = len(content or b"")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    if not kind and size > limit_bytes:
        raise StoreError(f"{path}: larger than {limit_bytes / 2**20:g} MiB")
    if content is None:
        raise StoreError(f"{path}: {kind or 'changed while it was read'}, not a regular file")
    return content


def first_bytes(path: Path, most: int, *, follow: bool = False) -> bytes | None:
    """Return at most `limit` bytes of a regular file, else None. Never waits for a FIFO."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    with os.fdopen(os.open(path, flags), "rb") as file:
        return None if kind_of(os.fstat(file.fileno()).st_mode) else file.read(most)


def kind_of(mode: int) -> str:
    """Return the kind of a file in words; "" for a regular file."""
    return _KINDS.get(stat.filemode(mode)[0], "a device")


def read_json(path: Path) -> object | None:
    """Return a cleaned JSON value of another program; None without. Raise `StoreError`."""
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return None
    try:
        return clean_json(json.loads(content.decode("utf-8")))
    except RecursionError:
        raise StoreError(f"{path}: deeper than {JSON_DEPTH_LIMIT} levels") from None
    except ValueError as error:
        raise StoreError(f"{path}: {error}") from None


def result_in(path: Path) -> object | None:
    """Return the JSON value of a session, None without one, or why it cannot count."""
    try:
        return read_json(path)
    except StoreError as error:
        return Unreadable(reason=error.message)


def regular_files(folder: Path) -> Iterator[Path]:
    """Yield the regular files below `folder`, by path; links are not followed."""
    for where, folders, names in os.walk(folder):
        folders.sort()
        paths = (Path(where, name) for name in sorted(names))
        yield from (path for path in paths if not kind_of(path.lstat().st_mode))


def remove_tree(path: Path) -> None:
    """Remove what is there, whatever it is: no link is followed, and our own folders are opened to
    us first. Nothing there is what was wanted. Raise `StoreError` for what is not ours to remove.
    """
    try:
        if not path.is_symlink() and path.is_dir():
            pending = [path]
            while pending:
                entry_path = pending.pop()
                status = entry_path.lstat()
                if status.st_uid == os.geteuid() and status.st_mode & 0o700 != 0o700:
                    entry_path.chmod(0o700)
                with os.scandir(entry_path) as entries:
                    folders = (entry for entry in entries if entry.is_dir(follow_symlinks=False))
                    pending += map(Path, folders)
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        message = f"{error.filename or path}: cannot be removed: {error.strerror}"
        hint = f"remove {path} as the user that owns what is in it"
        raise StoreError(message, hint=hint) from error


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
