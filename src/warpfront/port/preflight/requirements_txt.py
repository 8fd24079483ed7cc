"""Requirements files, in
pip's format (https://pip.pypa.io/en/stable/reference/requirements-file-format/). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from warpfront.errors import InputError
from warpfront.port.preflight.asked import (
    Asked,
    FileAsks,
    Include,
    Kind,
    check_text,
    read_requirement,
)

_COMMENT = re.compile(r"(^|\s)#.*$")
_OPTION = re.compile(r"^(--?[A-Za-z][\w-]*)[=\s]*(.*)$", re.DOTALL)
_PER_LINE_OPTION = re.compile(r"\s--?[a-z][\w-]*[=\s].*$", re.DOTALL)
_PATH = re.compile(r"^(\.{1,2}([/\\]|\[|$)|/|file:|~/)")
_URL = re.compile(r"^([a-z]+\+)?[a-z]+://", re.IGNORECASE)
_EXTRAS = re.compile(r"^(.*?)(\[[^]]*\])?$")
_INDEX_OPTIONS = frozenset({"-i", "--index-url", "--pypi-url", "--extra-index-url"})
_LINK_OPTIONS = frozenset({"-f", "--find-links"})
_INCLUDES = {"-r": Kind.REQUIREMENT, "--requirement": Kind.REQUIREMENT}
_CONSTRAINTS = {"-c": Kind.CONSTRAINT, "--constraint": Kind.CONSTRAINT}
_EDITABLE = frozenset({"-e", "--editable"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A logical line: continuations joined, comments dropped."""

    start: int
    end: int
    source: str
    text: str


def read_requirements(text: str, *, path: str, kind: Kind = Kind.REQUIREMENT) -> FileAsks:
    """What the file asks for. Raises `InputError` with file:line for what pip would refuse too."""
    check_text(text, path=path)
    asked: list[Asked] = []
    includes: list[Include] = []
    unknown: list[str] = []
    for line in _logical_lines(text):
        if line.text.startswith("-"):
            read = _read_option(line, path=path)
        else:
            read = _read_line(line.text, line, path=path, kind=kind)
        if isinstance(read, Asked):
            asked.append(read)
        elif isinstance(read, Include):
            includes.append(read)
        elif read:
            unknown.append(f"{path}:{line.start}: {read}")
    return FileAsks(path=path, asked=tuple(asked), includes=tuple(includes), unknown=tuple(unknown))


def _logical_lines(text: str) -> Iterator[_Line]:
    held, start, source = "", 0, ""
    lines = text.removeprefix("\ufeff").splitlines()
    for number, raw in enumerate([*lines, ""], start=1):
        if not held:
            start, source = number, raw
        held += _COMMENT.sub("", raw)
        if held.endswith("\\") and number <= len(lines):
            held = held[:-1] + " "
            continue
        if held.strip():
            yield _Line(start=start, end=min(number, len(lines)), source=source, text=held.strip())
        held = ""


def _read_option(line: _Line, *, path: str) -> Asked | Include | str:
    """An option's line; "" for options that name nothing to install (`--pre`, `--no-binary`)."""
    found = _OPTION.match(line.text)
    if found is None:
        raise InputError(f"{path}:{line.start}: not a requirement and not an option: {line.text}")
    name, value = found[1], found[2].strip()
    if len(name) > 2 and not name.startswith("--"):
        name, value = name[:2], name[2:] + value
    if name in _INCLUDES or name in _CONSTRAINTS:
        if _URL.match(value):
            return f"{value} is elsewhere and was not read"
        kind = (_INCLUDES | _CONSTRAINTS)[name]
        return Include(path=value.strip("\"'"), line=line.start, kind=kind)
    if name in _INDEX_OPTIONS | _LINK_OPTIONS:
        return _asked(line, value.strip("\"'"), path=path, kind=Kind.INDEX)
    if name in _EDITABLE:
        bare = value.strip("\"'")
        read = _read_line if _URL.match(bare) else _read_path
        return read(bare, line, path=path)
    return ""


def _read_line(
    text: str, line: _Line, *, path: str, kind: Kind = Kind.REQUIREMENT
) -> Asked | Include | str:
    text = _PER_LINE_OPTION.sub("", text).strip()
    if _PATH.match(text) or (_is_folder(text) and not _URL.match(text)):
        return _read_path(text, line, path=path)
    if _URL.match(text):
        return _read_url(text, line, path=path, kind=kind)
    read_requirement(text, where=f"{path}:{line.start}")
    return _asked(line, text, path=path, kind=kind)


def _is_folder(text: str) -> bool:
    return "/" in text and "@" not in text and ";" not in text


def _read_path(text: str, line: _Line, *, path: str) -> Asked | Include | str:
    """A local project, to be read in its turn; a local wheel, as what it is."""
    bare, _, _marker = text.removeprefix("file://").partition(";")
    found = _EXTRAS.match(bare.strip())
    folder = found[1] if found else bare
    if folder.endswith(".whl"):
        name = _wheel_name(folder)
        url = f"{name} @ file:///{folder.rpartition('/')[2]}"
        return _asked(line, url, path=path) if name else f"{folder} is not a wheel's name"
    return Include(path=folder, line=line.start, project=True)


def _read_url(text: str, line: _Line, *, path: str, kind: Kind) -> Asked | str:
    """A bare URL: a wheel says its name, others may (`#egg=`)."""
    bare = text.partition(";")[0].strip()
    parts = urlsplit(bare)
    egg = re.search(r"(?:^|&)egg=([A-Za-z0-9._-]+)", parts.fragment)
    name = _wheel_name(parts.path) or (egg[1] if egg else "") or _repository_name(bare)
    if not name:
        return f"{bare} does not say what it is; it was not followed"
    marker = text.partition(";")[2].strip()
    return _asked(
        line, f"{name} @ {bare}" + (f" ; {marker}" if marker else ""), path=path, kind=kind
    )


def _repository_name(url: str) -> str:
    if not url.startswith("git+"):
        return ""
    last = urlsplit(url).path.rpartition("/")[2].partition("@")[0].removesuffix(".git")
    return last if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]", last) else ""


def _wheel_name(path: str) -> str:
    try:
        return str(parse_wheel_filename(path.rpartition("/")[2].replace("%2B", "+"))[0])
    except InvalidWheelFilename:
        return ""


def _asked(line: _Line, text: str, *, path: str, kind: Kind = Kind.REQUIREMENT) -> Asked:
    return Asked(
        path=path,
        line=line.start,
        end_line=line.end,
        source=line.source,
        text=text,
        literal=line.text,
        kind=kind,
    )
