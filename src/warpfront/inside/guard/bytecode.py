"""Byte code beside sealed sources: Python runs it in their place, if its header says so."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import marshal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

from .manifest import Manifest
from .measuring import Doubted, always, status_of

_HEADER_BYTES = 16  # PEP 552: magic, flags, then time and size of the source or its hash


def bytecode_text(location: Path, manifest: Manifest) -> str:
    """JSON of path -> sha256 of the byte code of this interpreter, as it is when sealed. Apart from
    the manifest, which every import of torch reads.
    """
    paths = {path: location / path for path in bytecode_paths(manifest)}
    hashes = {path: _sha256(file) for path, file in paths.items() if file.is_file()}
    return json.dumps(hashes, separators=(",", ":"), sort_keys=True)


def bytecode_paths(manifest: Manifest) -> Iterator[str]:
    """Where this interpreter looks for the byte code of each sealed source."""
    for files in manifest.files.values():
        for path in files:
            if path.endswith(".py"):
                yield importlib.util.cache_from_source(path)


def bytecode_findings(
    manifest: Manifest, sealed_file: Path, doubted: Doubted = always
) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) for byte code that is neither as sealed nor what its source compiles
    to. What is as it was sealed is read only where its status is `doubted`.
    """
    sealed = _read_sealed(sealed_file)
    for path in bytecode_paths(manifest):
        status = status_of(f"{manifest.location}/{path}")
        if status is None or (path in sealed and not doubted(status)):
            continue
        file = manifest.location / path
        if _sha256(file) == sealed.get(path):
            continue
        source = manifest.location / importlib.util.source_from_cache(path)
        if not _compiled_from(file, source):
            yield path, "byte code of another source"


def _read_sealed(path: Path) -> Mapping[str, Any]:
    """Nothing where it is damaged or lost: all byte code is compared with its source then."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _compiled_from(file: Path, source: Path) -> bool:
    data = file.read_bytes()
    if data[:4] != importlib.util.MAGIC_NUMBER:
        return True  # another Python's: this one makes its own
    try:
        found = marshal.loads(data[_HEADER_BYTES:])  # noqa: S302 - compared, never run
        wanted = compile(
            source.read_bytes(), str(source), "exec", dont_inherit=True, optimize=sys.flags.optimize
        )
    except (OSError, ValueError, EOFError, TypeError, SyntaxError):
        return False
    return isinstance(found, CodeType) and found == wanted


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
