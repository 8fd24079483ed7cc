"""Results at rest: `build/<cell id>/<step>.json`, rendered contexts, committed locks. Files are
written aside and moved into place, so a reader never sees half of one. Edge.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from warpfront.errors import StoreError

SCHEMA = 1


class Store:
    """The build folder of one project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def cell_folder(self, cell_id: str) -> Path:
        return self.folder / cell_id

    def context_folder(self, cell_id: str) -> Path:
        return self.folder / cell_id / "context"

    def log_path(self, cell_id: str) -> Path:
        return self.folder / cell_id / "build.log"

    def save(self, cell_id: str, name: str, value: object) -> Path:
        """Write one step's value. `name` is the step, or the step and what it
        is about (`verify-sm_90`).
        """
        document = {
            "schema": SCHEMA,
            "step": name,
            "kind": type(value).__name__,
            "value": as_json(value),
        }
        path = self.cell_folder(cell_id) / f"{name}.json"
        write_json(path, document)
        return path

    def load(self, cell_id: str, name: str, kinds: tuple[type, ...]) -> Any:
        """The value that a step left, one of `kinds`, or None if it left none. Raises
        `StoreError` for a file that is not ours.
        """
        path = self.cell_folder(cell_id) / f"{name}.json"
        text = read_text(path, missing_ok=True)
        if text is None:
            return None
        return _read_document(path, text, {kind.__name__: kind for kind in kinds})

    def drop(self, cell_id: str, name: str) -> None:
        """Forget a step's value: what it was about has changed."""
        with storing(self.folder):
            (self.cell_folder(cell_id) / f"{name}.json").unlink(missing_ok=True)

    def names(self, cell_id: str, prefix: str) -> tuple[str, ...]:
        folder = self.cell_folder(cell_id)
        if not folder.is_dir():
            return ()
        return tuple(sorted(path.stem for path in folder.glob(f"{prefix}*.json")))

    def write_context(self, cell_id: str, files: Mapping[str, str]) -> Path:
        """Replace the rendered context of a cell as a whole."""
        folder = self.context_folder(cell_id)
        with storing(self.folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=".context-", dir=folder.parent))
            try:
                for name, text in files.items():
                    path = aside / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text, encoding="utf-8")
                shutil.rmtree(folder, ignore_errors=True)
                aside.rename(folder)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        return folder

    def exclusive(self, on_wait: Callable[[str], None]) -> AbstractContextManager[None]:
        """One build at a time on this folder; a second one says that it waits."""
        return exclusive(self.folder, on_wait)


@contextlib.contextmanager
def exclusive(
    folder: Path, on_wait: Callable[[str], None], *, name: str = ".lock"
) -> Iterator[None]:
    """One holder at a time of the lock file `name` in `folder`; the next says for whom it waits.
    The lock dies with its holder, and no child inherits it.
    """
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not try_lock(descriptor):
            on_wait(f"waiting for another run on {folder} (process {_holder(descriptor)})")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Whether the open file could be locked for this descriptor alone."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_text(path: Path, text: str) -> None:
    """Write aside, then move: the file is whole or absent, also after Ctrl-C or a full disk."""
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            Path(aside).chmod(0o644)
            Path(aside).replace(path)
        finally:
            Path(aside).unlink(missing_ok=True)


def write_json(path: Path, value: object) -> None:
    """Plain JSON values, in a form that diffs well."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def place_program(program: Path, folder: Path) -> Path:
    """A folder holding just this executable, moved into place whole; made again where it is not as
    it was copied.
    """
    target = folder / program.name
    if not target.exists() or not _is_copy(target, program):
        with storing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            handle, aside = tempfile.mkstemp(prefix=".", dir=folder)
            os.close(handle)
            try:
                shutil.copy2(program, aside)
                Path(aside).replace(target)
            finally:
                Path(aside).unlink(missing_ok=True)
    return folder


def _is_copy(path: Path, original: Path) -> bool:
    mine, theirs = path.stat(), original.stat()
    return (mine.st_size, mine.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns)


def read_text(path: Path, *, missing_ok: bool = False) -> str | None:
    """A file's text; None if it is missing and may be. Raises `StoreError` when it cannot be
    read as UTF-8.
    """
    with storing(path):
        try:
            return path.read_bytes().decode("utf-8")
        except FileNotFoundError:
            if missing_ok:
                return None
            raise
        except UnicodeDecodeError as error:
            raise StoreError(f"{path}: not UTF-8 text (byte {error.start})") from None


def read_tree(folder: Path) -> Mapping[str, str]:
    """Every regular file below `folder`, as relative POSIX path -> text, hidden ones and
    links left out.
    """
    files = {}
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not path.is_symlink() and not hidden:
            files[path.relative_to(folder).as_posix()] = read_text(path) or ""
    return files


def as_json(value: object) -> Any:
    """A value of the model, or any nest of them, as plain JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: as_json(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [as_json(item) for item in value]
    return str(value) if isinstance(value, StrEnum | Path) else value


_adapters: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """pydantic's reader and writer of one type; making one takes milliseconds, so each is kept."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _read_document(path: Path, text: str, kinds: Mapping[str, type]) -> Any:
    try:
        document = json.loads(text)
        if document["schema"] != SCHEMA:
            raise StoreError(
                f"{path}: schema {document['schema']}, expected {SCHEMA}", hint="run the step again"
            )
        kind = kinds[document["kind"]]
        value = _adapter(kind).validate_python(document["value"])
    except (json.JSONDecodeError, KeyError, TypeError, ValidationError) as error:
        raise StoreError(
            f"{path}: not a result of this version ({error})", hint="run the step again"
        ) from None
    return value


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 32, 0).decode(errors="replace") or "unknown"


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Translate what the file system refuses at or below `path` into `StoreError`."""
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, f"make {path} writable")
        raise StoreError(
            f"{error.filename or path}: {error.strerror or error}", hint=hint
        ) from error


_HINTS = {
    errno.ENOENT: "",
    errno.ENOSPC: "free some space, or `invoke clean`",
    errno.EDQUOT: "free some space, or `invoke clean`",
    errno.EROFS: "the file system is read-only; choose another folder",
}
