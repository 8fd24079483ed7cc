"""Requirements files, setup.cfg, setup.py and conda's environment.yml: what can be read of them
without running any. Pure.
"""

from __future__ import annotations

import ast
import configparser
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

import yaml
from packaging.utils import canonicalize_name

from warpfront.errors import InputError
from warpfront.wheels.core_metadata import (
    CONSTRAINTS,
    EDITABLE,
    INCLUDES,
    INDEXES,
    RequirementLine,
    read_lines,
    wheel_name,
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
from warpfront_port.preflight.setup_interpreter import UNKNOWN, Placed, ReadFile, SetupInterpreter

MOST_LINES = 20_000
_PATH = re.compile(r"^(\.{1,2}([/\\]|\[|$)|/|file:|~/)")
_URL = re.compile(r"^([a-z]+\+)?[a-z]+://", re.IGNORECASE)
_EXTRAS = re.compile(r"^(.*?)(\[[^]]*\])?$")
_SETUP_ARGUMENTS = {
    "install_requires": Kind.REQUIREMENT,
    "setup_requires": Kind.BUILD,
    "extras_require": Kind.REQUIREMENT,
}


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


def read_setup_cfg(text: str, *, path: str) -> FileRequirements:
    """Read `[options] install_requires`, `setup_requires` and `[options.extras_require]`."""
    check_text(text, path=path)
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text, source=path or "setup.cfg")  # its errors need a name
    except configparser.Error as error:
        # Its message quotes the file's lines.
        where = f"{path}:{error.lineno}" if hasattr(error, "lineno") else path
        raise InputError(f"{where}: not a setup.cfg") from None
    lines = text.splitlines()
    declared_requirements: list[DeclaredRequirement] = []
    includes: list[Include] = []
    lists = {"install_requires": Kind.REQUIREMENT, "setup_requires": Kind.BUILD}
    options = [("", kind, parser.get("options", name, fallback="")) for name, kind in lists.items()]
    if parser.has_section("options.extras_require"):
        extras = parser.items("options.extras_require")
        options += [(extra, Kind.REQUIREMENT, values) for extra, values in extras]
    for group, kind, values in options:
        if values.strip().startswith("file:"):
            names = values.strip().removeprefix("file:").split(",")
            includes += [Include(path=name.strip(), line=1, group=group) for name in names]
            continue
        bare = (value.partition(" #")[0].strip() for value in values.splitlines())
        for requirement in (text for text in bare if text and not text.startswith("#")):
            number = _line_of(requirement, lines)
            read_requirement(requirement, where=f"{path}:{number}")
            place = path, number, lines[number - 1]
            declared_requirements.append(declared_at(*place, requirement, kind=kind, group=group))
    return FileRequirements(
        path=path,
        declared=tuple(declared_requirements),
        includes=tuple(includes),
        is_project=parser.has_section("options") or parser.has_section("metadata"),
    )


def _line_of(needle: str, lines: list[str]) -> int:
    return next((number for number, line in enumerate(lines, start=1) if needle in line), 1)


def read_setup_py(text: str, *, path: str, read: ReadFile = lambda _: None) -> FileRequirements:
    """Return the requirements of `setup(...)`, as far as they follow without running the file, from
    literals and from files of the project. Anything else is reported as unknown.
    """
    check_text(text, path=path)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        where = f"{path}:{error.lineno or 1}" if isinstance(error, SyntaxError) else path
        raise InputError(f"{where}: not Python") from None
    declared: list[DeclaredRequirement | None] = []
    unknown: list[str] = []
    interpreter = SetupInterpreter(tree, text.splitlines(), read)
    for call in interpreter.calls:
        for argument, (value, line) in call.items():
            if argument == "**":
                unknown.append(f"{path}:{line}: arguments are computed, and setup.py is not run")
            elif kind := _SETUP_ARGUMENTS.get(argument):
                texts = tuple(_texts(value))
                if argument == "install_requires" and any(item is UNKNOWN for _, item in texts):
                    message = f"{argument} is computed, and setup.py is not run"
                    unknown.append(f"{path}:{line}: {message}")
                declared += (_of_setup(item, kind, of, path=path, line=line) for of, item in texts)
    if not interpreter.calls:
        unknown.append(f"{path}: no call of setup() was found")
    unset = f"{path}: it reads variables of the environment, which were taken as unset"
    return FileRequirements(
        path=path,
        declared=tuple(filter(None, dict.fromkeys(declared))),
        unknown=tuple(unknown),
        notes=(unset,) if interpreter.reads_environment else (),
    )


def _texts(value: object) -> Iterator[tuple[str, object]]:
    """Yield each requirement of an argument with its extra; `UNKNOWN` for one that is not known."""
    groups = value.items() if isinstance(value, Mapping) else [("", value)]
    for group, listed in groups:
        texts = listed
        if isinstance(listed, str):
            texts = [Placed.located(line, listed) for line in listed.splitlines()]
        if not isinstance(texts, list | tuple | set | None):
            yield "", UNKNOWN
            continue
        extra, _, marker = str(group).partition(":")
        for entry in texts or ():
            if isinstance(entry, str) and (bare := entry.partition(" #")[0].strip()):
                text = f"{bare} ; {marker}" if marker and ";" not in bare else bare
                yield extra, Placed.located(text, entry)
            elif not isinstance(entry, str):
                yield "", UNKNOWN


def _of_setup(
    item: object, kind: Kind, group: str, *, path: str, line: int
) -> DeclaredRequirement | None:
    """Return a literal as a requirement; None for a file name, which may be in the same list."""
    try:
        read_requirement(str(item), where="")
    except InputError:
        return None
    if not isinstance(item, Placed):
        return None
    file = posixpath.join(posixpath.dirname(path), item.path) if item.path else path
    declared = declared_at(file, item.line or line, item.source, str(item), kind=kind, group=group)
    return replace(declared, condition=f"{path}:{item.condition}" if item.condition else "")


def read_environment_yml(text: str, *, path: str) -> FileRequirements:
    """Read conda's environment: its torch packages, and the requirements of its `pip:` list."""
    check_text(text, path=path)
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        raise InputError(f"{where}: broken YAML") from None
    if not isinstance(document, Mapping):
        raise InputError(f"{path}: not an environment of conda")
    lines = text.splitlines()
    declared: list[DeclaredRequirement] = []
    pip: list[str] = []
    for entry in document.get("dependencies") or ():
        if isinstance(entry, str):
            name = re.split(r"[=<>!\s]", entry.rpartition("::")[2], maxsplit=1)[0]
            number = _line_of(entry, lines)
            declared.append(declared_at(path, number, lines[number - 1], name, kind=Kind.CONDA))
        elif isinstance(entry, Mapping) and isinstance(entry.get("pip"), list):
            pip += (text for text in entry["pip"] if isinstance(text, str))
    # conda writes them into a requirements file: each at the line that it has in the YAML.
    placed = [""] * len(lines)
    for entry in pip:
        placed[_line_of(entry, lines) - 1] = entry
    read = read_requirements("\n".join(placed), path=path)
    return replace(read, declared=(*declared, *read.declared))
