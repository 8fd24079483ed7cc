"""A test of somebody's architecture, written to a file of its own."""

from __future__ import annotations

import json
from pathlib import Path

import warpfront
from warpfront.errors import InputError
from warpfront.port.model_tests import model_test_text

_PACKAGE = Path(warpfront.__file__).parent
_DATA = _PACKAGE / "data" / "model_test"
_OURS = _PACKAGE / "inside" / "checks" / "architectures"


def write_model_test(architecture: str, file: Path) -> Path:
    """Raises `InputError` for a name that none can be, and for a file that cannot be written."""
    parts = {
        "head": _DATA / "head.txt",
        "shrinking": _OURS / "shrinking.py",
        "feeding": _OURS / "feeding.py",
        "tests": _DATA / "tests.txt",
    }
    exceptions = json.loads((_OURS / "exceptions.json").read_text(encoding="utf-8"))["values"]
    texts = {name: path.read_text(encoding="utf-8") for name, path in parts.items()}
    text = model_test_text(architecture, file.name, texts, exceptions)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{file}: {error.strerror}", hint="--write takes a file to write"
        ) from None
    return file
