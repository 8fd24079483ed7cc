"""Dataclasses from parsed JSON, by the types of their fields: what another program wrote is foreign
text, and nothing of another form is let in. Pure.
"""

from __future__ import annotations

import json
import sys
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

_T = TypeVar("_T")
_SCALARS = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}
_hints = cache(get_type_hints)


@cache
def packaged(path: str) -> dict[str, Any]:
    """Return a JSON file of this package, by its path below it."""
    document: dict[str, Any] = json.loads((Path(__file__).parent / path).read_text("utf-8"))
    return document


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Reads documents, and raises `error` with the name of what is of another form. Of each text
    and list the length is limited; `lenient` is for objects that may have more fields.
    """

    error: type[Exception]
    longest: int = sys.maxsize
    most: int = sys.maxsize
    lenient: bool = False

    def record(self, kind: type[_T], value: object, where: str) -> _T:
        """Return the dataclass whose fields an object has; those with a default may be missing."""
        record = self._object(value, where)
        hints: dict[str, Any] = _hints(kind)  # type: ignore[arg-type]
        unknown = [] if self.lenient else [name for name in record if name not in hints]
        if unknown:
            raise self.error(f"unknown field {unknown[0][:80]!r}")
        present = [name for name in hints if name in record]
        read = {name: self._value(hints[name], record[name], name) for name in present}
        for field in fields(kind):  # type: ignore[arg-type]
            required = field.default is MISSING and field.default_factory is MISSING
            if required and field.name not in read:
                raise self.error(f"{field.name} must be {_SCALARS.get(hints[field.name], 'given')}")
        return kind(**read)

    def _value(self, kind: Any, value: Any, where: str) -> Any:
        origin, parts = get_origin(kind), get_args(kind)
        if kind in (object, Any):
            return value
        if origin is UnionType:
            return None if value is None else self._value(parts[0], value, where)
        if is_dataclass(kind):
            return self.record(kind, value, where)  # type: ignore[arg-type]
        if origin is tuple:
            if not isinstance(value, list):
                raise self.error(f"{where} must be a list")
            self._limit(where, len(value), self.most)
            return tuple(self._value(parts[0], item, where) for item in value)
        if origin is not None:
            items = self._object(value, where).items()
            return {self._value(str, k, where): self._value(parts[1], v, where) for k, v in items}
        scalar = str if kind is Path else kind
        is_number = scalar in (int, float) and isinstance(value, bool)
        if is_number or not isinstance(value, (int, float) if scalar is float else scalar):
            raise self.error(f"{where} must be {_SCALARS[scalar]}")
        if isinstance(value, str):
            self._limit(where, len(value), self.longest)
        return kind(value)

    def _object(self, value: object, where: str) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise self.error(f"{where} must be an object")
        self._limit(where, len(value), self.most)
        return value

    def _limit(self, where: str, length: int, most: int) -> None:
        if length > most:
            raise self.error(f"{where} is longer than {most}")
