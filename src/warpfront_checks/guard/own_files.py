"""What of the guard itself is not as its seal left it, or would be another in its place."""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from .bytecode import is_foreign, level_of
from .loading import NAME, other_guards
from .manifest import SUFFIXES, Manifest, at_import, packages_text
from .places import Places
from .sealing import program_text


def own_problems(places: Places, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """(path, what is wrong): another guard on the path, what an import reads of the manifest,
    programs, and code that the guard would load beside its sources.
    """
    folder = places.library / NAME
    for path in other_guards((os.getcwd(), *sys.path), str(folder)):  # noqa: PTH109 - as the path has it
        yield path, f"another {NAME} on the path: {folder} is this image's"
    text = places.manifest.read_text(encoding="utf-8")
    met = _met(_bytes(places.at_import) or b"")
    for file, right in (
        (places.at_import, at_import(manifest, text, met)),
        (places.packages, packages_text(manifest).encode()),
    ):
        if _bytes(file) != right:
            yield str(file), "not made of this manifest"
    for name, module in (("warpfront-guard", "__main__"), ("uv", "launcher")):
        program = places.programs / name
        found = _bytes(program)
        if (found is None and name == "uv") or _is_program(places, found, module):
            continue
        yield str(program), "not the program that the seal wrote"
    yield from _code_problems(folder)


def _is_program(places: Places, found: bytes | None, module: str) -> bool:
    first = (found or b"").partition(b"\n")[0].decode(errors="replace")
    return found == program_text(places, first.removeprefix("#!"), module).encode()


def _code_problems(folder: Path) -> Iterator[tuple[str, str]]:
    """What Python could load there and is neither a source nor its byte code."""
    for path in sorted(folder.rglob("*")):
        cached = path.parent.name == "__pycache__"
        source = path.parent.parent / f"{path.name.partition('.')[0]}.py"
        level = level_of(path.name) if cached else None
        if path.is_symlink() or (path.is_dir() and path != folder / "__pycache__"):
            yield str(path), "added to the guard"
        elif level is not None and source.is_file():
            if is_foreign(str(path), str(source), "", level):
                yield str(path), "byte code of another source"
        elif path.name.endswith(SUFFIXES) and not path.name.endswith(".py") and not cached:
            yield str(path), "added to the guard"


def _met(found: bytes) -> Mapping[str, str]:
    """What it says of needs, which is of the time of the seal."""
    try:
        return dict(marshal.loads(found)["met"])  # noqa: S302 - compared, never run
    except (ValueError, TypeError, KeyError, EOFError):
        return {}


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
