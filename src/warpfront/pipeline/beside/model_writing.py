"""A test of somebody's architecture, written to a file of its own."""

from __future__ import annotations

import json
from pathlib import Path

import warpfront
from warpfront.errors import InputError, StoreError
from warpfront.port.model_tests import model_test_text
from warpfront.system.foreign import read_regular
from warpfront.system.store import write_text

_PACKAGE = Path(warpfront.__file__).parent
_DATA = _PACKAGE / "data" / "model_test"
_WRITTEN = b"Written by `warpfront models --write`"
_OURS = _PACKAGE / "inside" / "checks" / "architectures"


def write_model_test(architecture: str, file: Path) -> Path:
    """Raises `InputError` for a name that none can be, for a file that is there and was not written
    here, and for one that cannot be written.
    """
    parts = {
        "head": _DATA / "head.txt",
        "shrinking": _OURS / "shrinking.py",
        "feeding": _OURS / "feeding.py",
        "tests": _DATA / "tests.txt",
    }
    exceptions = json.loads((_OURS / "exceptions.json").read_text(encoding="utf-8"))["values"]
    texts = {name: path.read_text(encoding="utf-8") for name, path in parts.items()}
    text = model_test_text(architecture, file.name, texts, exceptions)
    hint = "--write takes a file to write: test_qwen3.py"
    try:
        if not file.parent.is_dir():
            raise InputError(f"{file.parent}: no such folder", hint=hint)
        before = b"" if not file.exists() else read_regular(file)
        if file.is_symlink() or (before and _WRITTEN not in before):
            raise InputError(f"{file}: is there already, and is something else", hint=hint)
        write_text(file, text)
    except (OSError, StoreError) as error:
        raise InputError(str(error), hint=hint) from None
    return file
