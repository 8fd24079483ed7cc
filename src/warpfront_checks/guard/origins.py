"""Allowed origins of each module of the stack: path, loader and byte code.

Loaded when the fast path of an import has doubts.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .at_import import read_at_import
from .bytecode import OTHER, cached_beside, is_foreign, read_sealed
from .fast_path import TIED, mount_of
from .manifest import (
    EXTENSION_SUFFIXES,
    Manifest,
    Measured,
    read_manifest,
    sha256_of,
    size_differences,
    strays,
    written_since,
)
from .policy import GuardError, Policy, read_policy, reading

# More files than these newer than the seal: times say nothing here, as in a copied environment.
_MANY = 200
_EXTERNAL: Any = sys.modules["_frozen_importlib_external"]
_MODULE_SPEC: Any = sys.modules["_frozen_importlib"].ModuleSpec
_LOADERS = {
    **dict.fromkeys(_EXTERNAL.SOURCE_SUFFIXES, _EXTERNAL.SourceFileLoader),
    **dict.fromkeys(_EXTERNAL.BYTECODE_SUFFIXES, _EXTERNAL.SourcelessFileLoader),
    **dict.fromkeys(EXTENSION_SUFFIXES, _EXTERNAL.ExtensionFileLoader),
}
_TAILS = {
    f"{init}{suffix}": kind for init in ("", "/__init__") for suffix, kind in _LOADERS.items()
}


# The stack by the times of the files that describe it: a policy may be relaxed meanwhile.
_stacks: dict[tuple[int, ...], Stack] = {}


@dataclass(kw_only=True)
class Stack:
    """The sealed stack as `watch` compares it. `document` is the seal's for imports, and
    `manifest` has its files. `since` is the ctime of the whole manifest, in nanoseconds: a file
    with an older one is as it was sealed.
    """

    folder: Path
    policy: Policy
    manifest: Manifest
    since: int
    document: Mapping[str, Any]
    _unread: dict[str, str] = field(default_factory=dict)
    _bytecode: dict[str, Any] | None = None
    _judged: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.location = str(self.manifest.location)
        self.files: dict[str, Measured] = {}
        for name in self.names():
            self.files.update(self.manifest.files[name])

    def names(self) -> list[str]:
        """Return the distributions that still have to be as they were."""
        return self.policy.unrelaxed(self.manifest.files)

    def file_problems(self, names: Iterable[str]) -> Iterator[str]:
        """Return the sealed files that have changed, and the files added next to them."""
        distributions, written = sorted(names), list[str]()
        doubted = written_since(self.since)
        changed = size_differences(self.manifest, distributions, doubted=doubted, hashed=written)
        yield from (f"{path}: {fault}" for path, fault in changed)
        if len(written) > _MANY:
            self._unread.update((path, self.files[path][1]) for path in written)
            written = []
        for path in written:
            if sha256_of(f"{self.location}/{path}") != self.files[path][1]:
                yield f"{path}: other content, as many bytes as before"
        # A new file that Python cannot load, such as a header, is for `verify`.
        added = strays(self.manifest, distributions, loadable=True)
        yield from (f"{path}: added" for path in added)

    def module_problem(self, spec: Any) -> str | None:
        """Return why a module of the stack must not run, "" if it may. None if its file is the
        sealed one, and it is loaded by another loader than Python's own.
        """
        name, origin = spec.name, spec.origin
        path = name.replace(".", "/")
        # Behind its module's own path, below any spelling of the location.
        before, _, rest = (origin or "").rpartition(f"/{path}")
        tail = rest if before else "nowhere"
        if tail in _TAILS and path + tail in self.files and self._is_place(origin, path + tail):
            loader = spec.loader
            if type(loader) is not _TAILS[tail] or type(spec) is not _MODULE_SPEC:
                return None
            if vars(loader) != {"name": name, "path": origin}:
                return f"{name} is loaded by a changed loader of {origin}"
            return self._content_problem(path + tail, origin)
        folders = [*(spec.submodule_search_locations or ())]
        bare = self.document["modules"].get(name) == "" and folders
        if origin is None and bare and all(self._is_place(folder, path) for folder in folders):
            return ""  # a folder without an __init__.py, such as triton/_C
        kind = type(spec.loader)
        where = origin or next(iter(folders), "nowhere")
        by = f"{kind.__module__}.{kind.__qualname__}"
        return f"{name} would come from {where} by {by}, not from {self.location}"

    def _is_place(self, origin: str, path: str) -> bool:
        """Also by another spelling of the location: a venv has `lib64`, a link to `lib`."""
        if origin == f"{self.location}/{path}":
            return True
        return os.path.realpath(origin) == f"{os.path.realpath(self.location)}/{path}"

    def _content_problem(self, path: str, origin: str) -> str:
        sha256 = self._unread.pop(path, "") if self._unread else ""
        if sha256 and sha256_of(origin) != sha256:
            return f"{path}: other content, as many bytes as before"
        if path[-3:] != ".py":
            return ""
        prefix = sys.pycache_prefix
        file = cached_beside(origin) if prefix is None else _EXTERNAL.cache_from_source(origin)
        try:
            status = os.lstat(file)
        except OSError:
            return ""
        if prefix is None and status.st_ctime_ns < self.since and stat.S_ISREG(status.st_mode):
            return ""
        if self._bytecode is None:
            self._bytecode = dict(read_sealed(self.folder / "bytecode.json"))
        beside = cached_beside(origin)
        sealed_hash = self._bytecode.get(cached_beside(path), "")
        like = beside if file != beside and sealed_hash and sha256_of(beside) == sealed_hash else ""
        if is_foreign(file, origin, sealed_hash if file == beside else "", like=like):
            below = f" (below PYTHONPYCACHEPREFIX={sys.pycache_prefix}: give each image its own)"
            below = below if file != beside else ""
            return f"{path}: {file} is {OTHER}{below}"
        if file == beside and sha256_of(file) != sealed_hash:
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

        hashes = {**read_sealed(file), **self._judged}
        self._judged = {}
        aside = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            aside.write_text(json.dumps(hashes, separators=(",", ":"), sort_keys=True))
            aside.replace(file)
        except OSError:
            return


def read_stack(folder: Path) -> Stack:
    """Read the sealed stack. Raise `GuardError` if a part is lost, damaged or another seal's."""
    statuses = []
    for path in (folder / name for name in TIED):
        with reading(path, "there"):
            statuses.append(path.stat())
    times = tuple(status.st_ctime_ns for status in statuses)
    if times not in _stacks:
        _stacks[times] = _read(folder, statuses[1])
    return _stacks[times]


def _read(folder: Path, status: os.stat_result) -> Stack:
    policy, sealed = read_policy(folder / "policy.json"), folder / "stack.json"
    document = read_at_import(folder / "at-import.bin")
    if document["manifest_bytes"] != status.st_size:
        read_manifest(sealed)
        raise GuardError(f"{sealed}: another manifest than the one that was sealed")
    location = document["location"]
    return Stack(
        folder=folder,
        policy=policy,
        manifest=Manifest(
            location=Path(location), versions=document["versions"], files=document["files"]
        ),
        since=0 if mount_of(location)[0] == "mixed" else status.st_ctime_ns,
        document=document,
    )
