"""Where each module of the stack has to come from: an allow list of path, loader and byte code.

Loaded at every import of torch, so it loads little.
"""

from __future__ import annotations

import marshal
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .bytecode import OTHER, cached_beside, is_foreign, read_sealed
from .manifest import (
    SUFFIXES,
    Manifest,
    Measured,
    checksum,
    read_manifest,
    sha256_of,
    size_differences,
)
from .policy import GuardError, Policy, read_policy

# More files than these newer than the seal: times say nothing here, as in a copied environment.
_MANY = 200
_EXTERNAL: Any = sys.modules["_frozen_importlib_external"]
_MODULE_SPEC: Any = sys.modules["_frozen_importlib"].ModuleSpec
_LOADERS = {
    **dict.fromkeys(_EXTERNAL.SOURCE_SUFFIXES, _EXTERNAL.SourceFileLoader),
    **dict.fromkeys(_EXTERNAL.BYTECODE_SUFFIXES, _EXTERNAL.SourcelessFileLoader),
    **dict.fromkeys(_EXTERNAL.EXTENSION_SUFFIXES, _EXTERNAL.ExtensionFileLoader),
}
_TAILS = {
    f"{init}{suffix}": kind for init in ("", "/__init__") for suffix, kind in _LOADERS.items()
}


@dataclass(kw_only=True)
class Stack:
    """What an import knows of the stack. `manifest` has the files that matter at import, `since` is
    the ctime of the manifest itself: what has an older one is as it was sealed. `in_overlay`: to
    write to a file of a lower layer makes its folder, and all above it, anew. `met` is the
    version of each need when it was sealed.
    """

    folder: Path
    policy: Policy
    manifest: Manifest
    since: int
    folders: dict[str, tuple[str, int, bool]]
    met: dict[str, str]
    in_overlay: bool = False
    _clean: set[str] = field(default_factory=set)
    _unread: dict[str, str] = field(default_factory=dict)
    _bytecode: dict[str, Any] | None = None
    _judged: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.location = str(self.manifest.location)
        self.files: dict[str, Measured] = {}
        for name in self.names():
            self.files.update(self.manifest.files[name])

    def names(self) -> list[str]:
        """The distributions that still have to be as they were."""
        return [name for name in self.manifest.files if not self.policy.is_relaxed(name)]

    def file_problems(self, names: Iterable[str]) -> Iterator[str]:
        """Sealed files that are others now, and what was added beside them."""
        wanted, written = set(names), list[tuple[str, str]]()
        grown = [one for one, (owner, _, _) in self.folders.items() if owner in wanted]
        grown = [one for one in grown if not self._is_clean(one)]
        files = self._to_look_at(wanted)
        found = size_differences(
            replace(self.manifest, files=files), sorted(wanted), since=self.since, written=written
        )
        yield from (f"{path}: {what}" for path, what in found)
        if len(written) > _MANY:
            self._unread.update(written)
            written = []
        for path, sha256 in written:
            if sha256_of(f"{self.location}/{path}") != sha256:
                yield f"{path}: other content, as many bytes as before"
        changed = [one for one in grown if self._has_others(one)]
        if changed:
            from .measuring import strays  # noqa: PLC0415 - slow to load, and needed rarely

            whole = read_manifest(self.folder / "stack.json")
            added = strays(whole, wanted, changed)
            yield from (f"{path}: added" for path in added if self._is_loadable(path))

    def _is_loadable(self, path: str) -> bool:
        """What lies beside it, such as a header, is for `verify`."""
        return path.endswith(SUFFIXES) or Path(self.location, path).is_dir()

    def _is_clean(self, folder: str) -> bool:
        """Whether nothing was put into a folder, nor into its byte code, since it was sealed."""
        here = f"{self.location}/{folder}"
        for path in (here, f"{here}/__pycache__") if self.folders[folder][2] else (here,):
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if status.st_ctime_ns >= self.since or not stat.S_ISDIR(status.st_mode):
                self._clean.discard(folder)
                return False
        self._clean.add(folder)
        return True

    def _to_look_at(self, names: set[str]) -> dict[str, dict[str, Measured]]:
        """All files; where to write to one shows in its folder, those of folders that show it."""
        files = {name: dict(self.manifest.files[name]) for name in names}
        if not self.in_overlay:
            self._clean.clear()
            return files
        clean = self._clean
        return {
            name: {path: one for path, one in of.items() if path.rpartition("/")[0] not in clean}
            for name, of in files.items()
        }

    def _has_others(self, folder: str) -> bool:
        path = f"{self.location}/{folder}"
        try:
            status = os.lstat(path)
        except OSError:
            return False
        return stat.S_ISLNK(status.st_mode) or checksum(_entries(path)) != self.folders[folder][1]

    def module_problem(self, spec: Any) -> str | None:
        """Why a module of the stack must not run, "" if it may. None where its file is the sealed
        one, and it is loaded by another loader than Python's own.
        """
        name, origin = spec.name, spec.origin
        path = name.replace(".", "/")
        base = f"{self.location}/{path}"
        tail = origin[len(base) :] if origin and origin.startswith(base) else _tail(origin, path)
        if tail in _TAILS and path + tail in self.files and self._is_place(origin, path + tail):
            loader = spec.loader
            if type(loader) is not _TAILS[tail] or type(spec) is not _MODULE_SPEC:
                return None
            if vars(loader) != {"name": name, "path": origin}:
                return f"{name} is loaded by a changed loader of {origin}"
            return self._content_problem(path + tail, origin)
        folders = [*(spec.submodule_search_locations or ())]
        if origin is None and folders and all(self._is_bare(one, path) for one in folders):
            return ""  # a folder without an __init__.py, such as triton/_C
        kind = type(spec.loader)
        where = origin or next(iter(folders), "nowhere")
        return (
            f"{name} would come from {where} by {kind.__module__}.{kind.__qualname__},"
            f" not from {self.location}"
        )

    def _is_place(self, origin: str, path: str) -> bool:
        """Also by another spelling of the location: a venv has `lib64`, a link to `lib`."""
        if origin == f"{self.location}/{path}":
            return True
        return os.path.realpath(origin) == f"{os.path.realpath(self.location)}/{path}"

    def _is_bare(self, folder: str, path: str) -> bool:
        return path in self.folders and self._is_place(folder, path)

    def _content_problem(self, path: str, origin: str) -> str:
        sha256 = self._unread.pop(path, "") if self._unread else ""
        if sha256 and sha256_of(origin) != sha256:
            return f"{path}: other content, as many bytes as before"
        if path[-3:] != ".py":
            return ""
        if sys.pycache_prefix is None and path.rpartition("/")[0] in self._clean:
            return ""
        prefix = sys.pycache_prefix
        file = cached_beside(origin) if prefix is None else _EXTERNAL.cache_from_source(origin)
        try:
            status = os.lstat(file)
        except OSError:
            return ""
        if prefix is None and status.st_ctime_ns < self.since and stat.S_ISREG(status.st_mode):
            return ""
        return self._bytecode_problem(path, file, origin)

    def _bytecode_problem(self, path: str, file: str, origin: str) -> str:
        if self._bytecode is None:
            self._bytecode = dict(read_sealed(self.folder / "bytecode.json"))
        beside = cached_beside(origin)
        known = self._bytecode.get(cached_beside(path), "")
        like = beside if file != beside and known and sha256_of(beside) == known else ""
        if is_foreign(file, origin, known if file == beside else "", like=like):
            below = (
                f" (below PYTHONPYCACHEPREFIX={sys.pycache_prefix}: give each image its own)"
                if file != beside
                else ""
            )
            return f"{path}: {file} is {OTHER}{below}"
        if file == beside and sha256_of(file) != known:
            self._judged[cached_beside(path)] = sha256_of(file)
        return ""

    def remember(self) -> None:
        """Record byte code that was compared with its source, so that it is compared once; by root,
        who may write to the guard's folder, and in a file system that can be written to.
        """
        file = self.folder / "bytecode.json"
        if not self._judged or not os.access(file, os.W_OK):
            return
        import json  # noqa: PLC0415 - torch has loaded it by now

        known = {**read_sealed(file), **self._judged}
        self._judged = {}
        aside = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            aside.write_text(json.dumps(known, separators=(",", ":"), sort_keys=True))
            aside.replace(file)
        except OSError:
            return


def _file_system(location: str) -> str:
    """That of the innermost mount which holds a folder; "mixed" where something is mounted below
    it, whose times say nothing of the seal.
    """
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
            mounts = [line.split() for line in file]
    except OSError:
        return ""
    real = os.path.realpath(location)
    if any(fields[4].startswith(f"{real}/") for fields in mounts):
        return "mixed"
    kinds = {
        fields[4]: fields[fields.index("-") + 1]
        for fields in mounts
        if fields[4] == "/" or f"{real}/".startswith(f"{fields[4]}/")
    }
    return kinds.get(max(kinds, key=len, default=""), "")


def _tail(origin: str | None, path: str) -> str:
    """What follows a module's path in a file below another spelling of the location."""
    before, found, tail = (origin or "").rpartition(f"/{path}")
    return tail if before and found else "nowhere"


def _entries(path: str) -> Iterator[str]:
    with os.scandir(path) as entries:
        for one in entries:
            if one.name != "__pycache__":
                end = "@" if one.is_symlink() else "/" if one.is_dir() else ""
                yield one.name + end


def read_stack(folder: Path) -> Stack:
    """Raises `GuardError` where a part of the guard is lost, damaged, or of another seal."""
    policy, sealed = read_policy(folder / "policy.json"), folder / "stack.json"
    try:
        status = sealed.stat()
        found = marshal.loads((folder / "at-import.bin").read_bytes())  # noqa: S302 - as a .pyc is
        if found["bytes"] != status.st_size:
            read_manifest(sealed)
            raise GuardError(f"{sealed}: another manifest than the one that was sealed")
        manifest = Manifest(
            location=Path(found["location"]), versions=found["versions"], files=found["files"]
        )
        kind = _file_system(found["location"])
        return Stack(
            folder=folder,
            policy=policy,
            manifest=manifest,
            since=0 if kind == "mixed" else status.st_ctime_ns,
            folders=found["folders"],
            met=found["met"],
            in_overlay=kind == "overlay",
        )
    except OSError as error:
        raise GuardError(f"{error.filename}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, EOFError) as error:
        raise GuardError(f"{folder / 'at-import.bin'}: not made by a seal: {error}") from error
