"""Results at rest: `build/<cell id>/<step>.json`, rendered contexts, committed locks. Files are
written aside and moved into place, so a reader never sees half of one. Edge.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import filecmp
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from warpfront.errors import StoreError
from warpfront.system.foreign import read_regular, remove_tree
from warpfront.system.strict_values import read_as
from warpfront.system.tree_files import ImageFile, Unreadable

SCHEMA = 1
_TEXT_LIMIT_BYTES = 256 * 2**20
_FILE_LIMIT_BYTES = 2**31


class Store:
    """The build folder of one project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def cell_folder(self, cell_id: str) -> Path:
        return self.folder / cell_id

    def log_path(self, cell_id: str) -> Path:
        return self.cell_folder(cell_id) / "build.log"

    def save(self, cell_id: str, name: str, value: object) -> Path:
        """Write one step's value. `name` is the step, or step and subject (`verify-sm_90`)."""
        kind, path = type(value).__name__, self.cell_folder(cell_id) / f"{name}.json"
        document = {"schema": SCHEMA, "step": name, "kind": kind, "value": as_json(value)}
        write_json(path, document)
        return path

    def load(self, cell_id: str, name: str, kinds: tuple[type, ...]) -> Any:
        """Return the value that a step wrote, one of `kinds`, or None. Raise `StoreError`."""
        path = self.cell_folder(cell_id) / f"{name}.json"
        text = read_text(path, missing_ok=True)
        if text is None:
            return None
        try:
            document = json.loads(text)
            if document["schema"] != SCHEMA:
                message = f"{path}: schema {document['schema']}, expected {SCHEMA}"
                raise StoreError(message, hint="run the step again")
            kind = {kind.__name__: kind for kind in kinds}[document["kind"]]
            return read_as(kind, document["value"])
        except (RecursionError, ValueError, KeyError, TypeError) as error:
            message = f"{path}: not a result of this version ({error})"
            raise StoreError(message, hint="run the step again") from None

    def readable(self, cell_id: str, name: str, kinds: tuple[type, ...]) -> Any:
        """Return the value like `load`; None also for a file that cannot be read."""
        with contextlib.suppress(StoreError):
            return self.load(cell_id, name, kinds)
        return None

    def drop(self, cell_id: str, name: str) -> None:
        """Forget a step's value: what it was about has changed."""
        with storing(self.folder):
            (self.cell_folder(cell_id) / f"{name}.json").unlink(missing_ok=True)

    def write_context(self, cell_id: str, files: Mapping[str, ImageFile]) -> Path:
        """Replace the rendered context of a cell as a whole. Modes are those of the files and 0755
        for folders: no umask decides who may read what is copied into an image.
        """
        folder = self.cell_folder(cell_id) / "context"
        with folder_aside(folder) as aside:
            for name, file in files.items():
                path = aside / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if file.link:
                    path.symlink_to(file.link)
                else:
                    path.write_bytes(file.content)
                    path.chmod(file.mode)
            for where, _, _ in os.walk(aside):
                Path(where).chmod(0o755)
        return folder


@contextlib.contextmanager
def exclusive(
    folder: Path, on_wait: Callable[[str], None], *, name: str = ".lock"
) -> Iterator[None]:
    """Lock the file `name` in `folder`, and report which process to wait for. The lock ends with
    its process, and no child inherits it.
    """
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not try_lock(descriptor):
            holder = os.pread(descriptor, 32, 0).decode(errors="replace") or "unknown"
            on_wait(f"waiting for another run on {folder} (process {holder})")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Return true if the open file is now locked for this descriptor."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_text(path: Path, text: str) -> None:
    """Write aside, then move: the file is whole or absent, also after Ctrl-C or a full disk."""
    with file_aside(path) as aside:
        aside.write_text(text, "utf-8")


@contextlib.contextmanager
def file_aside(path: Path) -> Iterator[Path]:
    """Yield an empty file. It takes the place of `path` at the end, not after an error."""
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        os.fchmod(handle, 0o644)
        os.close(handle)
        try:
            yield Path(name)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)


@contextlib.contextmanager
def folder_aside(folder: Path) -> Iterator[Path]:
    """Yield an empty folder. It takes the place of `folder` at the end, also while another
    process does the same; after an error it is removed.
    """
    with storing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            yield aside
            aside.chmod(0o755)
            while True:
                try:
                    aside.rename(folder)
                    break
                except OSError as error:
                    if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                        raise
                    old = aside.with_name(f"{aside.name}.old")
                    with contextlib.suppress(FileNotFoundError):
                        folder.rename(old)
                        remove_tree(old)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder that is removed in the end."""
    with tempfile.TemporaryDirectory(prefix="warpfront-") as name:
        yield Path(name)


def append_text(path: Path, text: str) -> None:
    """Append lines to a file. A line that a full disk cut short is ended first."""
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as stream:
            if stream.tell():
                stream.seek(-1, os.SEEK_END)
                text = text if stream.read(1) == b"\n" else f"\n{text}"
            stream.write(text.encode())


def write_json(path: Path, value: object) -> None:
    """Plain JSON values, in a form that diffs well."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def place_program(program: Path, folder: Path) -> Path:
    """Return a folder holding just this executable, moved into place whole."""
    target = folder / program.name
    if not (target.exists() and filecmp.cmp(program, target)):
        with file_aside(target) as aside:
            shutil.copy2(program, aside)
    return folder


def remove_other(copy: Path, original: Path) -> bool:
    """Remove a copy that differs from its original, and return true if it did."""
    if not copy.is_file() or filecmp.cmp(copy, original, shallow=False):
        return False
    copy.unlink()
    return True


def read_text(path: Path, *, missing_ok: bool = False) -> str | None:
    """Return a file's text; None if it is missing and may be. Raise `StoreError`."""
    with storing(path):
        try:
            return read_regular(path, _TEXT_LIMIT_BYTES, follow=True).decode("utf-8")
        except FileNotFoundError:
            if missing_ok:
                return None
            raise
        except UnicodeDecodeError as error:
            raise StoreError(f"{path}: not UTF-8 text (byte {error.start})") from None


def read_tree(folder: Path) -> Mapping[str, ImageFile | Unreadable]:
    """Everything below `folder` but its folders, by relative POSIX path: files as they are, hidden
    ones too, links that stay in the first folder of their path, and what can be neither.
    """
    files: dict[str, ImageFile | Unreadable] = {}

    def fail(error: OSError) -> None:
        raise error

    with storing(folder):
        for where, folders, names in os.walk(folder, onerror=fail):
            links = [name for name in folders if Path(where, name).is_symlink()]
            for path in sorted(Path(where, name) for name in (*names, *links)):
                # What is not UTF-8 in a name becomes U+FFFD.
                key = os.fsencode(path.relative_to(folder).as_posix()).decode("utf-8", "replace")
                files[key] = _read_entry(path, folder)
    return dict(sorted(files.items()))


def _read_entry(path: Path, root: Path) -> ImageFile | Unreadable:
    try:
        if path.is_symlink():
            link = str(path.readlink())
            inner = Path(os.path.realpath(root), path.relative_to(root).parts[0])
            lands = Path(os.path.realpath(path))
            if not link.startswith("/") and inner != lands and lands.is_relative_to(inner):
                return ImageFile(link=link)
            return Unreadable(reason=f"a link that leads out of its folder, to {link}")
        content = read_regular(path, _FILE_LIMIT_BYTES)
        return ImageFile(content=content, executable=bool(path.stat().st_mode & 0o100))
    except OSError as error:
        return Unreadable(reason=str(error.strerror))
    except StoreError as error:
        return Unreadable(reason=error.message.removeprefix(f"{path}: "))


_PLAIN = {bool, int, float, str}


def as_json(value: object) -> Any:
    """Return a value of the model, or any nest of them, as plain JSON values."""
    if value is None or type(value) in _PLAIN:  # most are
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [as_json(item) for item in value]
    if isinstance(value, bytes):  # a file of an image's folder: what it was, not what was in it
        return f"sha256:{hashlib.sha256(value).hexdigest()}"
    return str(value) if isinstance(value, StrEnum | Path) else value


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Translate what the file system refuses at or below `path` into `StoreError`."""
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, f"make {path} writable")
        message = f"{error.filename or path}: {error.strerror or error}"
        raise StoreError(message, hint=hint) from error


_HINTS = {
    errno.ENOENT: "",
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space, or `warpfront clean`"),
    errno.EROFS: "the file system is read-only; choose another folder",
}
