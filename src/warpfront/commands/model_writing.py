"""A stand-alone pytest file for one architecture: its text from parts, and writing it."""

from __future__ import annotations

import ast
import contextlib
import re
from pathlib import Path

import warpfront_checks.architectures
from warpfront.errors import InputError, StoreError
from warpfront.matrix.selection import nearest
from warpfront.system.foreign import read_regular
from warpfront.system.packaged import packaged_text
from warpfront.system.store import write_text
from warpfront_checks.architectures.roster import LibraryError, architectures, library_version
from warpfront_checks.documents import packaged

_WRITTEN = b"Written by `warpfront models --write`"
_OURS = Path(warpfront_checks.architectures.__file__).parent


def model_types() -> tuple[frozenset[str], str]:
    """Return the known model_types and where they are from: the installed library's own tables,
    else those of the releases that this warpfront has read.
    """
    with contextlib.suppress(LibraryError):
        names = frozenset(architecture.name for architecture in architectures())
        return names, f"transformers {library_version()}"
    lines = packaged_text("model-types.txt").splitlines()
    listed = (name for line in lines if not line.startswith("#") for name in line.split())
    return frozenset(listed), "transformers 4.57.6 to 5.24.0"


_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}\.py")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def write_model_test(architecture: str, file: Path, *, allow_undetermined: bool = False) -> Path:
    """Write a test of `architecture`. Raise `InputError` for a name that no known release of the
    library has (`allow_undetermined` takes it as it is: a newer release may have it), for a file
    that is there and was not written here, and for one that cannot be written.
    """
    if not _NAME.fullmatch(architecture):
        hint = "it is a model_type of transformers: qwen3, llama, whisper"
        raise InputError(f"{architecture!r} is no name of an architecture", hint=hint)
    if not _FILE.fullmatch(file.name):
        raise InputError(f"{file.name!r} is no name of a test", hint="test_qwen3.py, say")
    types, source = model_types()
    if architecture not in types and not allow_undetermined:
        raise InputError(
            f"{architecture!r} is no model_type of {source}",
            hint=f"{nearest(architecture, sorted(types))} A newer release may have it: "
            "--allow-undetermined",
        )
    values = packaged("architectures/exceptions.json")["values"]
    exception = {each["name"]: each for each in values}.get(architecture, {})
    head = packaged_text("model_test", "head.txt")
    for place, text in {
        "{architecture}": architecture,
        "{architecture!r}": repr(architecture),
        "{file}": file.name,
        "{default!r}": repr(exception.get("default", {})),
        "{changed!r}": repr(exception.get("values", {})),
    }.items():
        head = head.replace(place, text)
    titles = {"shrinking": "How small a configuration is made", "feeding": "What a model is fed"}
    middle = "\n\n".join(
        f"# {title}.\n\n{_body((_OURS / f'{name}.py').read_text(encoding='utf-8')).strip()}\n"
        for name, title in titles.items()
    )
    tests = packaged_text("model_test", "tests.txt").strip()
    hint = "--write takes a file to write: test_qwen3.py"
    try:
        if not file.parent.is_dir():
            raise InputError(f"{file.parent}: no such folder", hint=hint)
        before = b"" if not file.exists() else read_regular(file)
        if file.is_symlink() or (before and _WRITTEN not in before):
            raise InputError(f"{file}: is there already, and is something else", hint=hint)
        write_text(file, f"{head.rstrip()}\n\n\n{middle}\n\n{tests}\n")
    except (OSError, StoreError) as error:
        raise InputError(str(error), hint=hint) from None
    return file


def _body(source: str) -> str:
    """Return a module without its docstring and imports, which are in the head."""
    lines = source.splitlines()
    imports = (ast.Import, ast.ImportFrom)
    first = next(node for node in ast.parse(source).body[1:] if not isinstance(node, imports))
    # Comments above the first statement belong to it.
    start = first.lineno - 1
    while lines[start - 1].startswith("#"):
        start -= 1
    return "\n".join(lines[start:])
