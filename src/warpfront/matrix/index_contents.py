"""The releases that wheel indexes had when they were read. Words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import date
from typing import Annotated, Literal

from packaging.version import Version
from pydantic import AfterValidator

from warpfront.system.strict_values import strict_dataclass


@strict_dataclass
class IndexedRelease:
    """A version of one distribution on one index, as its Linux files and METADATA describe it.

    `python` are the X.Y of CPython with a wheel, empty where one wheel serves all; `machines` as in
    platform tags; `platform` is the lowest manylinux level, "" for none. `hashes` counts the files
    with a sha256, `files` all. `requires` maps a machine to the demands of its wheel; a machine
    whose METADATA could not be read is missing. `devices` are the targets of `device-*` extras.
    `since` is the day (ISO 8601) of the first reading with these values; `until` that of the first
    reading without the version, "" while it is there. `yanked` is the reason, None if it is not.
    """

    python: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    platform: str = ""
    files: int = 0
    hashes: int = 0
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    yanked: str | None = None
    since: str = ""
    until: str = ""


_Version = Annotated[str, AfterValidator(lambda text: str(Version(text)))]
_Day = Annotated[str, AfterValidator(lambda text: date.fromisoformat(text).isoformat())]
Releases = Mapping[str, Mapping[_Version, IndexedRelease]]
"""Distribution -> full version (`2.14.1+cu130`) -> release."""


@strict_dataclass
class IndexContents:
    """The contents of one index; `read` is the day of the reading that they are of."""

    read: _Day
    wheels: Releases


@strict_dataclass
class Contents:
    """The contents of all indexes that were read, by URL. `contradictions` are sentences on rows of
    the compat table that an index contradicts.
    """

    schema: Literal[1] = 1
    indexes: Mapping[str, IndexContents] = field(default_factory=dict)
    contradictions: tuple[str, ...] = ()
