"""TOML as text: tables of strings, numbers, booleans, lists and tables. Words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dump_toml(document: Mapping[str, object]) -> str:
    """Return `document` as TOML that `tomllib` reads as the same value. A list of tables is an
    array of tables; a table in any other list is inline.
    """
    return "\n".join(_table(document, "", "")).removeprefix("\n") + "\n"


def _table(table: Mapping[str, object], name: str, head: str) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if not _is_table(value)}
    if head and (plain or len(plain) == len(table) or head.startswith("[[")):
        yield from ("", head)
    for key, value in plain.items():
        yield f"{_key(key)} = {_literal(value)}"
    for key, value in table.items():
        below = f"{name}.{_key(key)}" if name else _key(key)
        if isinstance(value, Mapping):
            yield from _table(value, below, f"[{below}]")
        elif _is_table(value):
            assert isinstance(value, list | tuple)
            for item in value:
                yield from _table(item, below, f"[[{below}]]")


def _is_table(value: object) -> bool:
    is_list = isinstance(value, list | tuple) and bool(value)
    return isinstance(value, Mapping) or (is_list and all(isinstance(v, Mapping) for v in value))  # type: ignore[attr-defined]


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _literal(key)


def _literal(value: object, indent: str = "") -> str:
    if isinstance(value, str):
        # JSON's escapes are TOML's, but DEL has to be one in TOML.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(k)} = {_literal(v)}' for k, v in value.items())} }}"
    if isinstance(value, list | tuple):
        inner = f"{indent}    "
        items = "".join(f"{inner}{_literal(item, inner)},\n" for item in value)
        return f"[\n{items}{indent}]" if value else "[]"
    return str(value)
