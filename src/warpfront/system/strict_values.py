"""Dataclasses for values of a file. Words."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

T = TypeVar("T")

# Making the reader of a type takes milliseconds.
_reader = functools.cache(TypeAdapter)


def read_as(kind: type[T], value: object) -> T:
    """Return a plain value as a `kind`. Raise pydantic's `ValidationError`."""
    reader: TypeAdapter[T] = _reader(kind)  # type: ignore[arg-type]
    return reader.validate_python(value)


@typing.dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
def strict_dataclass(kind: type[T]) -> type[T]:
    """Make a frozen dataclass for values of a file, which refuses unknown keys."""
    kind.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(kind)


def extended(kind: type[T], *values: Any, **more: Any) -> T:
    """Return a dataclass `kind` with the fields of these dataclasses that it has, too, and `more`.
    Of two values of one field the later counts.
    """
    known = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    fields = ((value, field.name) for value in values for field in dataclasses.fields(value))
    shared = {name: getattr(value, name) for value, name in fields if name in known}
    return kind(**{**shared, **more})


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object, as `object_pairs_hook`. Raise `ValueError` for a
    repeated key, of which two readers may take two different values.
    """
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("it has a key twice")
    return members


def object_in(document: object, *names: str) -> Mapping[str, Any]:
    """Return the object at a path of names in foreign JSON; an empty one where there is none."""
    for name in names:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def text_of(fields: Mapping[str, Any], name: str) -> str:
    """Return a text in foreign JSON; "" where there is none."""
    text = fields.get(name)
    return text if isinstance(text, str) else ""


def refuse_constant(word: str) -> NoReturn:
    """Reject `NaN` and the like in JSON, as `parse_constant`."""
    raise ValueError(f"{word} is no number")


def first_wrong(error: ValidationError) -> str:
    """Return the first place where a foreign document is wrong, and the reason."""
    first = error.errors(include_input=False, include_url=False)[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
