"""Names of wheels and source archives, parsed. Words."""

from __future__ import annotations

import functools
from typing import NamedTuple

from packaging.tags import Tag
from packaging.utils import (
    BuildTag,
    InvalidSdistFilename,
    InvalidWheelFilename,
    NormalizedName,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version


class FileName(NamedTuple):
    """The parts of a distribution's file name; a source archive has no build and no tags."""

    name: NormalizedName
    version: Version
    build: BuildTag = ()
    tags: frozenset[Tag] = frozenset()


@functools.cache  # the same wheels are in many locks and on many pages
def read_wheel_name(filename: str) -> FileName | None:
    """Return the parts of a wheel's name; None for what is no wheel's name."""
    try:
        return FileName(*parse_wheel_filename(filename))
    except InvalidWheelFilename:
        return None


def read_file_name(filename: str) -> FileName | None:
    """Return the parts of the name of a wheel or source archive; None for any other, and for
    names that are older than the rules for them.
    """
    if filename.endswith(".whl"):
        return read_wheel_name(filename)
    try:
        return FileName(*parse_sdist_filename(filename))
    except (InvalidSdistFilename, InvalidVersion):
        return None
