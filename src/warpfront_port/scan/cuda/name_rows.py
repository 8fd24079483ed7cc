"""Rules that a name or a header decides, from the catalogue, indexed for lookup. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from warpfront_port.scan.catalogue import catalogue
from warpfront_port.scan.hipify_names import hipify_names


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRow:
    """`once`: only the first of a name in each part of a file that other sides reach,
    `once_a_file`: of all its names and headers; `call` and `scope`: a bracket or `::` must follow a
    name; `shift`: worse or better.
    """

    rule: str
    names: frozenset[str]
    families: tuple[re.Pattern[str], ...]
    headers: tuple[re.Pattern[str], ...]
    once: bool
    once_a_file: bool
    call: bool
    scope: bool
    shift: int


@cache
def rows() -> tuple[NameRow, ...]:
    """Return the rows of all rules about C++ and CUDA, in the order of rules."""
    of_code = (rule for rule in catalogue().values() if "cuda" in rule.engines)
    return tuple(_read_row(rule.id, record) for rule in of_code for record in rule.seen)


def _read_row(rule: str, record: Mapping[str, Any]) -> NameRow:
    twinless = hipify_names().twinless if record.get("twinless") else ()
    return NameRow(
        rule=rule,
        names=frozenset((*record.get("names", ()), *twinless)),
        families=tuple(re.compile(pattern) for pattern in record.get("families", ())),
        headers=tuple(re.compile(pattern) for pattern in record.get("headers", ())),
        once=record.get("once", False),
        once_a_file=record.get("once_a_file", False),
        call=record.get("call", False),
        scope=record.get("scope", False),
        shift=record.get("shift", 0),
    )


@cache
def rows_naming(name: str) -> tuple[NameRow, ...]:
    """Return the rows about an identifier; a repository has thousands of them, not millions."""
    return tuple(
        row
        for row in rows()
        if name in row.names or any(family.match(name) for family in row.families)
    )


def rows_including(header: str) -> tuple[NameRow, ...]:
    """Return the rows that are about `header`, the path as an #include writes it."""
    return tuple(row for row in rows() if any(pattern.match(header) for pattern in row.headers))
