"""Descriptions of other people's packages: their compiled code, their fallback without it, and
the signs of that. The table is a data file, dated and with sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from warpfront_checks.documents import Reader, packaged

TABLE = "stack/descriptions.json"
EVERY = "every"


@dataclass(frozen=True, kw_only=True)
class Sign:
    """A sign of a fallback on `vendors`: a `log` line, or an `attribute`'s type or value."""

    means: str
    log: str = ""
    attribute: str = ""
    type: str = ""
    value: str = ""
    vendors: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Description:
    """The required behaviour of a package in an image of one vendor.

    `compiled` are modules, or `file:GLOB` of libraries, that have to be in the process; `computes`
    is a program that prints a line which `prints` has to match, on a device. `of` is the version
    that it was read of, on the day `read`.
    """

    name: str
    imports: tuple[str, ...]
    read: str
    of: str
    sources: tuple[str, ...]
    compiled: tuple[str, ...] = ()
    signs: tuple[Sign, ...] = ()
    computes: str = ""
    prints: str = ""
    not_for: str = ""


def table() -> Mapping[str, Any]:
    packages: Mapping[str, Any] = packaged(TABLE)["packages"]
    return packages


def starts() -> Mapping[str, str]:
    """Return known files that run code at every start of Python, each with its pattern."""
    return {name: str(entry["text"]) for name, entry in packaged(TABLE)["starts"].items()}


def optional_files(vendor: str, smoke: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return patterns of compiled files that need not load on a vendor's devices."""
    entries = packaged(TABLE)["optional"].items()
    patterns = (name for name, entry in entries if vendor in entry.get("vendors", (vendor,)))
    return (*patterns, *(str(pattern) for entry in smoke for pattern in entry.get("optional", ())))


def names() -> tuple[str, ...]:
    return tuple(sorted(table()))


def description(name: str, *, vendor: str, version: str) -> Description:
    """Return the table's description of a package for one vendor, at the installed version (""
    if it is not): the first entry whose pattern of versions matches, else the last.
    """
    entries = table()[name]
    matching = (entry for entry in entries if re.match(entry.get("versions", ""), version))
    entry = next(matching, entries[-1])
    signs = [s for s in entry.get("signs", ()) if vendor in s.get("vendors", (vendor,))]
    none: Mapping[str, Any] = {"compiled": [], "computes": "", "prints": ""}
    fields = {key: of_vendor(entry.get(key, {}), vendor, value) for key, value in none.items()}
    fields |= {"name": name, "signs": signs, "not_for": entry.get("vendors", {}).get(vendor, "")}
    return Reader(error=ValueError, lenient=True).record(Description, {**entry, **fields}, name)


def nothing_for(name: str) -> tuple[str, ...]:
    """Return why a package's newest version has nothing for some vendors, and what has."""
    return tuple(table()[name][-1].get("vendors", {}).values())


def of_vendor(by_vendor: Mapping[str, Any], vendor: str, otherwise: Any) -> Any:
    """Return a vendor's own entry, else what is so for every one."""
    return by_vendor.get(vendor, by_vendor.get(EVERY, otherwise))
