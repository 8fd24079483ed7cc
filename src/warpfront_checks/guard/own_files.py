"""Files of the guard itself that are not as sealed, or that would take their place."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from .at_import import made_again
from .bytecode import is_foreign, level_of
from .fast_path import NAME
from .loading import other_guards
from .manifest import SUFFIXES, Manifest, packages_text
from .places import Places
from .policy import GuardError, Policy
from .sealing import program_text


def own_problems(places: Places, policy: Policy, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield (path, fault): another guard on the path, the part of the manifest for imports,
    programs, and code that the guard would load next to its sources.
    """
    folder = places.library / NAME
    for path in other_guards((os.getcwd(), *sys.path), str(folder)):  # noqa: PTH109 - as the path has it
        yield path, f"another {NAME} on the path: {folder} is this image's"
    for file, right in (
        (places.at_import, _right_document(places, policy, manifest)),
        (places.packages, packages_text(manifest).encode()),
    ):
        if _bytes(file) != right:
            yield str(file), "not made of this manifest and policy"
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
    """Return the files that Python could load and that are neither a source nor its byte code."""
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


def _right_document(places: Places, policy: Policy, manifest: Manifest) -> bytes:
    texts = places.policy.read_text("utf-8"), places.manifest.read_text("utf-8")
    try:
        return made_again(places.at_import, policy, manifest, texts)
    except GuardError:
        return b""


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
