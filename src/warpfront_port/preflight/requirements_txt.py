"""The requirements of a project's requirements files. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

from warpfront.errors import InputError
from warpfront.wheels.core_metadata import wheel_name
from warpfront.wheels.requirement_lines import (
    CONSTRAINTS,
    EDITABLE,
    INCLUDES,
    INDEXES,
    RequirementLine,
    read_lines,
    without_options,
)
from warpfront_port.preflight.declared import (
    DeclaredRequirement,
    FileRequirements,
    Include,
    Kind,
    check_text,
    declared_at,
    read_requirement,
)

MOST_LINES = 20_000
_PATH = re.compile(r"^(\.{1,2}([/\\]|\[|$)|/|file:|~/)")
_URL = re.compile(r"^([a-z]+\+)?[a-z]+://", re.IGNORECASE)
_EXTRAS = re.compile(r"^(.*?)(\[[^]]*\])?$")


def read_requirements(text: str, *, path: str, kind: Kind = Kind.REQUIREMENT) -> FileRequirements:
    """Return the file's requirements. Raise `InputError` with file:line where pip refuses too."""
    check_text(text, path=path)
    declared: list[DeclaredRequirement] = []
    includes: list[Include] = []
    unknown: list[str] = []
    for line in read_lines(text):
        if line.text.startswith("-"):
            read = _read_option(line, path=path)
        else:
            read = _read_line(line.text, line, path=path, kind=kind)
        if isinstance(read, DeclaredRequirement):
            declared.append(read)
        elif isinstance(read, Include):
            includes.append(read)
        elif read:
            unknown.append(f"{path}:{line.start}: {read}")
        if len(declared) > MOST_LINES:
            raise InputError(f"{path}:{line.start}: more than {MOST_LINES:,} requirements")
    return FileRequirements(
        path=path,
        declared=tuple(declared),
        includes=tuple(includes),
        unknown=tuple(unknown),
    )


def _read_option(line: RequirementLine, *, path: str) -> DeclaredRequirement | Include | str:
    """Read an option's line; "" for options that name nothing to install (`--pre`)."""
    name, value = line.option
    if not name:
        raise InputError(f"{path}:{line.start}: not a requirement and not an option")
    if name in INCLUDES | CONSTRAINTS:
        if _URL.match(value):
            return "a list at an address was not read"
        kind = Kind.CONSTRAINT if name in CONSTRAINTS else Kind.REQUIREMENT
        return Include(path=value, line=line.start, kind=kind)
    if name in INDEXES:
        return _asked(line, value, path=path, kind=Kind.INDEX)
    if name in EDITABLE:
        read = _read_line if _URL.match(value) else _read_path
        return read(value, line, path=path)
    return ""


def _read_line(
    text: str, line: RequirementLine, *, path: str, kind: Kind = Kind.REQUIREMENT
) -> DeclaredRequirement | Include | str:
    text = without_options(text)
    is_folder = "/" in text and "@" not in text and ";" not in text
    if _PATH.match(text) or (is_folder and not _URL.match(text)):
        return _read_path(text, line, path=path)
    if _URL.match(text):
        # Read a bare URL: a wheel's file name has the name, others may have `#egg=`.
        bare = text.partition(";")[0].strip()
        parts = urlsplit(bare)
        egg = re.search(r"(?:^|&)egg=([A-Za-z0-9._-]+)", parts.fragment)
        name = wheel_name(parts.path) or (egg[1] if egg else "")
        if not name and bare.startswith("git+"):
            last = parts.path.rpartition("/")[2].partition("@")[0].removesuffix(".git")
            name = last if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]", last) else ""
        if not name:
            return "an address that does not say what it is was not followed"
        marker = text.partition(";")[2].strip()
        named = f"{name} @ {bare} ; {marker}" if marker else f"{name} @ {bare}"
        return _asked(line, named, path=path, kind=kind)
    read_requirement(text, where=f"{path}:{line.start}")
    return _asked(line, text, path=path, kind=kind)


def _read_path(
    text: str, line: RequirementLine, *, path: str
) -> DeclaredRequirement | Include | str:
    """Read a path: a local project is an include, a local wheel a requirement."""
    bare, _, _marker = text.removeprefix("file://").partition(";")
    match = _EXTRAS.match(bare.strip())
    folder = match[1] if match else bare
    if folder.endswith(".whl"):
        name = wheel_name(folder)
        url = f"{name} @ file:///{folder.rpartition('/')[2]}"
        return _asked(line, url, path=path) if name else "not a wheel's name"
    extras = (match[2] or "").strip("[]") if match else ""
    names = tuple(canonicalize_name(extra.strip()) for extra in extras.split(",") if extra.strip())
    return Include(path=folder, line=line.start, project=True, extras=names)


def _asked(
    line: RequirementLine, text: str, *, path: str, kind: Kind = Kind.REQUIREMENT
) -> DeclaredRequirement:
    declared = declared_at(path, line.start, line.source, text, kind=kind)
    return replace(declared, end_line=line.end, literal=line.text)
