"""The interpreter that the stack was sealed for: what its names lead to, and its bytes."""

import os

TYPE_CHECKING = False  # as `typing` has it: this is loaded at every import of torch
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any

_PACKAGES = "/var/lib/dpkg/info"


def interpreter_facts(folder: "Path") -> "dict[str, Any]":
    """Return what the names of Python in the environment's folder of programs lead to, the file
    that they all end at with its size and sha256, and the home that the environment names.
    """
    import re  # noqa: PLC0415 - not at an import

    from .manifest import sha256_of  # noqa: PLC0415

    every = sorted(path.name for path in folder.glob("python*"))
    names = [name for name in every if re.fullmatch(r"python(\d(\.\d+)?)?", name)]
    real = os.path.realpath(folder / "python3") if "python3" in names else ""
    return {
        "folder": str(folder),
        "names": {name: _identity(f"{folder}/{name}") for name in names},
        "home": _home(str(folder)),
        "file": (real, os.path.getsize(real) if real else 0, sha256_of(real) if real else ""),  # noqa: PTH202
    }


def interpreter_problems(
    sealed: "Mapping[str, Any]", since: int = 0
) -> "Iterator[tuple[str, str]]":
    """Yield (path, what is wrong), compared with what `interpreter_facts` returned at the seal. The
    interpreter's file is read where its ctime is not below `since`, in nanoseconds. A security
    update of Debian's package is no finding.
    """
    folder, (real, size, sha256) = sealed["folder"], sealed["file"]
    for name, identity in sealed["names"].items():
        current = _identity(f"{folder}/{name}")
        if current != identity:
            yield f"{folder}/{name}", f"another interpreter: {current}; sealed was {identity}"
    home = _home(folder)
    if home != sealed["home"]:
        yield _configuration(folder), f"its home is {home}; sealed was {sealed['home']}"
    if real and not _is_file(real, size, sha256, since):
        yield real, "another interpreter: not the file that was sealed, nor its Debian package's"


def _identity(path: str) -> str:
    """Return a link's target, or the beginning of a file: a script in an interpreter's place."""
    try:
        return f"a link to {os.readlink(path)}"  # noqa: PTH115
    except OSError:
        pass
    try:
        with open(path, "rb") as stream:  # noqa: PTH123
            return "a program" if stream.read(4) == b"\x7fELF" else "no program"
    except OSError:
        return "nothing"


def _configuration(folder: str) -> str:
    return folder.rpartition("/")[0] + "/pyvenv.cfg"


def _home(folder: str) -> str:
    """Return the home that pyvenv.cfg names, "" if this is no virtual environment."""
    try:
        with open(_configuration(folder), encoding="utf-8") as file:  # noqa: PTH123
            parts = [line.partition("=") for line in file]
    except OSError:
        return ""
    return next((value.strip() for key, _, value in parts if key.strip() == "home"), "")


def _is_file(real: str, size: int, sha256: str, since: int) -> bool:
    try:
        status = os.stat(real)  # noqa: PTH116
    except OSError:
        return False
    if status.st_size == size and status.st_ctime_ns < since:
        return True
    from .manifest import sha256_of  # noqa: PLC0415 - slow to load, and needed rarely

    if status.st_size == size and sha256_of(real) == sha256:
        return True
    # Whether it is the file of an installed Debian package.
    import hashlib  # noqa: PLC0415 - as above
    from pathlib import Path  # noqa: PLC0415

    digest = hashlib.md5(Path(real).read_bytes(), usedforsecurity=False).hexdigest()
    line = f"{digest}  {real.lstrip('/')}"
    return any(
        line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        for path in Path(_PACKAGES).glob("python3*.md5sums")
    )
