"""The interpreter that the stack was sealed for: what its names lead to, and its bytes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .manifest import sha256_of
from .places import Places

_NAME = re.compile(r"python(\d(\.\d+)?)?\Z")
_PACKAGES = Path("/var/lib/dpkg/info")


def interpreter_text(places: Places) -> str:
    """JSON of what the names of Python lead to in the folder of the environment, of the file that
    they all end at, and of the home that the environment names.
    """
    folder = places.interpreters
    names = sorted(path.name for path in folder.glob("python*") if _NAME.match(path.name))
    real = os.path.realpath(folder / "python3") if "python3" in names else ""
    document = {
        "folder": str(folder),
        "names": {name: _identity(folder / name) for name in names},
        "home": _home(folder),
        "file": [real, Path(real).stat().st_size if real else 0, sha256_of(real) if real else ""],
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def interpreter_problems(file: Path, since: int = 0) -> Iterator[tuple[str, str]]:
    """(path, what is wrong). The file of the interpreter is read where its ctime is not below
    `since`; what a security update of Debian brings in its place is no finding.
    """
    try:
        sealed: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        folder, (real, size, sha256) = Path(sealed["folder"]), sealed["file"]
        names, home = dict(sealed["names"]), sealed["home"]
    except (OSError, ValueError, KeyError, TypeError):
        yield str(file), "lost or damaged: the interpreter cannot be told from another"
        return
    for name, identity in names.items():
        found = _identity(folder / name)
        if found != identity:
            yield str(folder / name), f"another interpreter: {found}; sealed was {identity}"
    if _home(folder) != home:
        yield str(folder.parent / "pyvenv.cfg"), f"its home is {_home(folder)}; sealed was {home}"
    if real and not _is_file(real, size, sha256, since):
        yield real, "another interpreter: not the file that was sealed, nor its Debian package's"


def _identity(path: Path) -> str:
    """Where a link leads; of a file, how it begins: a script in the place of an interpreter."""
    if path.is_symlink():
        return f"a link to {path.readlink()}"
    if not path.is_file():
        return "nothing"
    with path.open("rb") as stream:
        return "a program" if stream.read(4) == b"\x7fELF" else "no program"


def _home(folder: Path) -> str:
    """What pyvenv.cfg names, "" where this is no virtual environment."""
    try:
        lines = (folder.parent / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    parts = (line.partition("=") for line in lines)
    return next((value.strip() for key, _, value in parts if key.strip() == "home"), "")


def _is_file(real: str, size: int, sha256: str, since: int) -> bool:
    try:
        status = os.stat(real)  # noqa: PTH116 - at every import of torch
    except OSError:
        return False
    if status.st_size == size and (status.st_ctime_ns < since or sha256_of(real) == sha256):
        return True
    return _is_packaged(real)


def _is_packaged(real: str) -> bool:
    import hashlib  # noqa: PLC0415 - as above

    digest = hashlib.md5(Path(real).read_bytes(), usedforsecurity=False).hexdigest()
    line = f"{digest}  {real.lstrip('/')}"
    return any(
        line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        for path in _PACKAGES.glob("python3*.md5sums")
    )
