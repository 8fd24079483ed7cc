"""The text of a stand-alone pytest file for one architecture, from its parts. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from warpfront.errors import InputError

_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}\.py")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def model_test_text(
    architecture: str,
    file: str,
    parts: Mapping[str, str],
    exceptions: Sequence[Mapping[str, Any]],
) -> str:
    """`parts` are the head, the sources of how models are shrunk and fed, and the tests; of
    `exceptions` the entry of this architecture is written down. Raise `InputError`.
    """
    if not _NAME.fullmatch(architecture):
        raise InputError(
            f"{architecture!r} is no name of an architecture",
            hint="it is a model_type of transformers: qwen3, llama, whisper",
        )
    if not _FILE.fullmatch(file):
        raise InputError(f"{file!r} is no name of a test", hint="test_qwen3.py, say")
    exception = next(
        (exception for exception in exceptions if exception["name"] == architecture), {}
    )
    head = parts["head"]
    values = {"architecture": architecture, "file": file}
    for name, value in values.items():
        head = head.replace(f"{{{name}}}", value).replace(f"{{{name}!r}}", repr(value))
    for name, key in (("default", "default"), ("changed", "values")):
        head = head.replace(f"{{{name}!r}}", repr(dict(exception.get(key, {}))))
    sections = (
        ("How small a configuration is made", _body(parts["shrinking"])),
        ("What a model is fed", _body(parts["feeding"])),
    )
    middle = "\n\n".join(f"# {title}.\n\n{text.strip()}\n" for title, text in sections)
    return f"{head.rstrip()}\n\n\n{middle}\n\n{parts['tests'].strip()}\n"


def _body(source: str) -> str:
    """Return a module without its docstring and imports, which are in the head."""
    lines = source.splitlines()
    first = next(
        node
        for number, node in enumerate(ast.parse(source).body)
        if number and not isinstance(node, ast.Import | ast.ImportFrom)
    )
    # Comments above the first statement belong to it.
    start = first.lineno - 1
    while lines[start - 1].startswith("#"):
        start -= 1
    return "\n".join(lines[start:])
