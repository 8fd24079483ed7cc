"""The lines of a requirements file as pip joins them (https://pip.pypa.io/en/stable/reference/
requirements-file-format/). What a line may ask for is for its reader to say. Words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.markers import Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

INCLUDES = frozenset({"-r", "--requirement"})
CONSTRAINTS = frozenset({"-c", "--constraint"})
EDITABLE = frozenset({"-e", "--editable"})
INDEXES = frozenset({"-i", "--index-url", "--pypi-url", "--extra-index-url", "-f", "--find-links"})
NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
"""The pattern of a distribution's name."""
_COMMENT = re.compile(r"(^|\s)#.*$")
_OPTION = re.compile(r"(--[A-Za-z][\w-]*|-[A-Za-z])[=\s]*(.*)\Z", re.DOTALL)
_PER_LINE_OPTION = re.compile(r"\s--?[a-z][\w-]*[=\s].*$", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementLine:
    """Lines `start` to `end` (1-based) joined: continuations resolved, comments dropped.
    `source` is the first of them unchanged, at the offset `at` of the text.
    """

    start: int
    end: int
    at: int
    source: str
    text: str

    @property
    def option(self) -> tuple[str, str]:
        """(name, value) of a line that is an option, such as `-r base.txt`; else two times ""."""
        match = _OPTION.match(self.text)
        return (match[1], match[2].strip().strip("\"'")) if match else ("", "")


def read_lines(text: str) -> Iterator[RequirementLine]:
    """Yield the lines of a requirements file that are not blank or comments."""
    parts, start, source = list[str](), 0, ""
    bare = text.removeprefix("\ufeff")
    offset = first_at = len(text) - len(bare)
    lines = bare.splitlines(keepends=True)
    for number, whole in enumerate([*lines, ""], start=1):
        raw = whole.rstrip("\r\n")
        if not parts:
            start, source, first_at = number, raw, offset
        offset += len(whole)
        parts.append(_COMMENT.sub("", raw))
        if parts[-1].endswith("\\") and number <= len(lines):
            parts[-1] = parts[-1][:-1] + " "
            continue
        if joined := "".join(parts).strip():
            end = min(number, len(lines))
            yield RequirementLine(start=start, end=end, at=first_at, source=source, text=joined)
        parts.clear()


def foreign_requirement(text: str) -> Requirement:
    """Raise `InvalidRequirement`, also for a marker that is nested deeper than it can be read."""
    try:
        return Requirement(text)
    except RecursionError:
        raise InvalidRequirement("nested too deeply to be read") from None


def readable_requirement(text: str) -> Requirement | None:
    """Return the requirement; None for text that pip and uv skip as well."""
    try:
        return foreign_requirement(text)
    except InvalidRequirement:
        return None


def plain_requirement(requirement: Requirement) -> str:
    """Return the requirement without its marker, and without an address, which may be secret."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"


def requirement_name(text: str) -> str:
    """Return the normalized name that a requirement begins with, however the rest is written."""
    match = re.match(NAME, text)
    return str(canonicalize_name(match[0])) if match else ""


def marker_environment(python: str, machine: str) -> Mapping[str, str]:
    """Return the environment of markers: CPython `python` (X.Y) on Linux."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }


def marker_holds(marker: Marker, environment: Mapping[str, str]) -> bool:
    """Return true if a foreign marker is true. As in uv, one with incomparable values is not."""
    try:
        return marker.evaluate(dict(environment))
    except (UndefinedComparison, UndefinedEnvironmentName):
        return False


def applies(demand: Requirement, environment: Mapping[str, str], extra: str = "") -> bool:
    """Return true if the marker is true; for an extra, only if the extra makes it true."""
    if demand.marker is None:
        return not extra
    plain = marker_holds(demand.marker, {**environment, "extra": ""})
    if not extra:
        return plain
    return not plain and marker_holds(demand.marker, {**environment, "extra": extra})


def without_options(text: str) -> str:
    """Return the text without the options that pip lets follow a requirement (`--hash`)."""
    return _PER_LINE_OPTION.sub("", text).strip()
