"""Byte code of sealed sources: Python runs it in their place, if its header allows it. It is judged
by its content alone, at each import of a module and by `verify`.
"""

from __future__ import annotations

import _imp
import json
import marshal
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

from .manifest import Manifest, sha256_of
from .policy import Problems

_EXTERNAL = sys.modules["_frozen_importlib_external"]
_HEADER_BYTES = 16  # PEP 552: magic, flags, then time and size of the source or its hash
_HASHED, _CHECKED = 0b01, 0b10
OTHER = "byte code of another source"


_OURS = f".opt-{sys.flags.optimize}" if sys.flags.optimize else ""
_OURS = f".{sys.implementation.cache_tag}{_OURS}.pyc"
_LEVEL = re.compile(rf"(.+)\.{re.escape(str(sys.implementation.cache_tag))}(?:\.opt-(\d+))?\.pyc\Z")


def level_of(file: str) -> int | None:
    """Return the level of optimization in a name of byte code of an interpreter like this one."""
    match = _LEVEL.match(file)
    return int(match[2] or 0) if match else None


def cached_beside(source: str) -> str:
    """Return the path of a source's byte code, without a prefix. `cache_from_source` costs
    three times as much, and this is called for each module of torch.
    """
    folder, _, file = source.rpartition("/")
    return f"{folder}/__pycache__/{file[:-3]}{_OURS}"


def bytecode_text(location: Path, manifest: Manifest) -> str:
    """Return JSON of path -> sha256 of the byte code of this interpreter, of every level, as it
    is when sealed. Apart from the manifest, because few imports have to read it.
    """
    hashes = {path: sha256_of(location / path) for path, _, _ in _cached(manifest, str(location))}
    return json.dumps(hashes, separators=(",", ":"), sort_keys=True)


def bytecode_findings(manifest: Manifest, sealed_file: Path, since: int = 0) -> Problems:
    """Return (path, fault) for byte code that is neither as sealed nor compiled from its
    source, next to the sources and below this process's prefix. Sealed byte code is read only if
    its ctime is not below `since`.
    """
    sealed = read_sealed(sealed_file)
    location = str(manifest.location)
    for path, source, level in _cached(manifest, location):
        status = os.lstat(f"{location}/{path}")
        if path in sealed and status.st_ctime_ns < since:
            continue
        if is_foreign(f"{location}/{path}", f"{location}/{source}", sealed.get(path, ""), level):
            yield path, OTHER
    paths = (path for files in manifest.files.values() for path in files if path.endswith(".py"))
    for path in paths if sys.pycache_prefix else ():
        source = f"{location}/{path}"
        for level in (0, 1, 2):
            file = _EXTERNAL.cache_from_source(source, optimization=str(level or ""))
            if os.path.lexists(file) and is_foreign(file, source, "", level):
                yield file, f"{OTHER}, below PYTHONPYCACHEPREFIX"


def read_sealed(path: Path) -> Mapping[str, Any]:
    """Nothing where it is damaged or lost: all byte code is compared with its source then."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _cached(manifest: Manifest, location: str) -> Iterator[tuple[str, str, int]]:
    """Yield (path, source's path, level) of byte code of sealed sources for this interpreter."""
    sources = {path for files in manifest.files.values() for path in files if path[-3:] == ".py"}
    for folder in sorted({path.rpartition("/")[0] for path in sources}):
        below = f"{folder}/__pycache__" if folder else "__pycache__"
        try:
            entries = sorted(os.listdir(f"{location}/{below}"))  # noqa: PTH208 - names are all it takes
        except OSError:
            continue
        for file in entries:
            match = _LEVEL.match(file)
            source = f"{folder}/{match[1]}.py".lstrip("/") if match else ""
            if match and source in sources:
                yield f"{below}/{file}", source, int(match[2] or 0)


def is_foreign(
    file: str, source: str, sealed: str, level: int = sys.flags.optimize, like: str = ""
) -> bool:
    """Return whether Python would take byte code that is not of its source. `sealed` is its
    sha256 at the time of the seal, "" if it was not sealed. `like` is byte code that is known to be
    of the source, which spares to compile it.
    """
    if sealed and sha256_of(file) == sealed:
        return False
    try:
        with open(file, "rb") as stream:  # noqa: PTH123 - at each module of torch
            data = stream.read()
        with open(source, "rb") as stream:  # noqa: PTH123
            text = stream.read()
        if not _is_taken(data, text, source):
            return False
        code = marshal.loads(data[_HEADER_BYTES:])  # noqa: S302 - compared, never run
        compiled = None
        if like:
            with open(like, "rb") as stream:  # noqa: PTH123
                reference = stream.read()
            if reference[:4] == _EXTERNAL.MAGIC_NUMBER:  # else another Python's
                compiled = marshal.loads(reference[_HEADER_BYTES:])  # noqa: S302
        if compiled is None:
            compiled = compile(text, source, "exec", dont_inherit=True, optimize=min(level, 2))
    except FileNotFoundError:
        return False
    except (OSError, ValueError, EOFError, TypeError, SyntaxError):
        return True
    return not isinstance(code, CodeType) or code != compiled


def _is_taken(data: bytes, text: bytes, source: str) -> bool:
    """Return whether this Python runs byte code with this header and skips the source."""
    flags = int.from_bytes(data[4:8], "little")
    if data[:4] != _EXTERNAL.MAGIC_NUMBER or flags & ~(_HASHED | _CHECKED):
        return False
    if not flags & _HASHED:
        facts = int(os.stat(source).st_mtime), len(text)  # noqa: PTH116
        return data[8:16] == b"".join((n & 0xFFFFFFFF).to_bytes(4, "little") for n in facts)
    if not flags & _CHECKED or _imp.check_hash_based_pycs == "never":
        return True
    return data[8:16] == _imp.source_hash(int.from_bytes(_EXTERNAL.MAGIC_NUMBER, "little"), text)
