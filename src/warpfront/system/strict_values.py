"""Dataclasses for values of a file. Words."""

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import TypeVar

from pydantic import ConfigDict, TypeAdapter

T = TypeVar("T")

reader_of = functools.cache(TypeAdapter)
"""Return pydantic's reader of a type; making one takes milliseconds."""


@typing.dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
def strict_dataclass(kind: type[T]) -> type[T]:
    """Make a frozen dataclass for values of a file, which refuses unknown keys."""
    kind.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(kind)
