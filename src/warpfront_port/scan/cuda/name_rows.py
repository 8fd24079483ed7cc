"""Rules that a name or a header decides, from the catalogue, indexed for lookup. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from warpfront_port.scan.catalogue import catalogue
from warpfront_port.scan.hipify_names import hipify_names


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRow:
    """`once`: only the first of a name in each part of a file that other sides reach,
    `once_a_file`: of all its names and headers; `then` must follow a name, such as a bracket;
    `shift`: worse or better; `open_shift`: so behind a condition that AMD may not meet.

    `pattern` is searched for in the code of a file that names one of `words` and has `requires`, in
    functions that have `within`.
    """

    rule: str
    names: frozenset[str]
    families: tuple[re.Pattern[str], ...]
    headers: tuple[re.Pattern[str], ...]
    pattern: re.Pattern[str] | None = None
    words: tuple[str, ...] = ()
    requires: re.Pattern[str] = re.compile("")
    within: re.Pattern[str] | None = None
    once: bool = False
    once_a_file: bool = False
    then: re.Pattern[str] = re.compile("")
    shift: int = 0
    open_shift: int = 0


@cache
def rows() -> tuple[NameRow, ...]:
    """Return the rows of all rules about C++ and CUDA, in the order of rules."""
    of_code = (rule for rule in catalogue().values() if "cuda" in rule.engines)
    read: list[NameRow] = []
    for rule, record in ((r.id, dict(record)) for r in of_code for record in r.seen):
        twinless = hipify_names().twinless if record.pop("twinless", False) else ()
        names = frozenset((*record.pop("names", ()), *twinless))
        for key in ("families", "headers"):
            record[key] = tuple(map(re.compile, record.get(key, ())))
        for key in {"pattern", "requires", "within", "then"} & record.keys():
            record[key] = re.compile(record[key].replace("\n", ""))
        read.append(NameRow(rule=rule, names=names, **record))
    return tuple(read)


@cache
def rows_naming(name: str) -> tuple[NameRow, ...]:
    """Return the rows about an identifier; a repository has thousands of them, not millions."""
    return tuple(r for r in rows() if name in r.names or any(f.match(name) for f in r.families))


@cache
def rows_including(header: str) -> tuple[NameRow, ...]:
    """Return the rows that are about `header`, the path as an #include writes it."""
    return tuple(row for row in rows() if any(pattern.match(header) for pattern in row.headers))
