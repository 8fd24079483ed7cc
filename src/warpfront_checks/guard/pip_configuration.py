"""A pip.conf with one more file of constraints: everything else in it stays, comments too."""

from __future__ import annotations

import configparser
import re

from .policy import GuardError

# As configparser reads a section's header: the text after the bracket is ignored.
_HEADER = re.compile(r"\[(?P<name>.+)\]")


def listed_constraints(text: str) -> dict[str, list[str]]:
    """Return section -> its `constraint`s. Raise `GuardError` for what pip cannot read either."""
    return {
        section: settings["constraint"].split()
        for section, settings in _settings(text).items()
        if "constraint" in settings
    }


def unguarded_sections(text: str, file: str) -> list[str]:
    """Return sections whose `constraint` lacks `file`: a command's replaces `[global]`'s."""
    listed = {"global": [], **listed_constraints(text)}
    return [section for section, files in listed.items() if file not in files]


def with_constraint(text: str, file: str) -> str:
    """Return `text` with `file` among the constraints of every section that has some, and of
    `[global]`. Raise `GuardError` if that cannot be done without touching anything else.
    """
    listed, before = listed_constraints(text), _settings(text)
    lines = text.splitlines()
    for section in unguarded_sections(text, file):
        files = [*listed.get(section, []), file]
        lines = _with_setting(lines, section, files)
        before.setdefault(section, {})["constraint"] = " ".join(files)
    result = "".join(f"{line}\n" for line in lines)
    if _words(_settings(result)) != _words(before):
        raise GuardError(f"cannot add `constraint = {file}` to its [global]: add it by hand")
    return result


def _settings(text: str) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(default_section="")
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise GuardError(f"pip cannot read it: {' '.join(str(error).split())}") from error
    return {section: dict(parser.items(section)) for section in parser.sections()}


def _words(settings: dict[str, dict[str, str]]) -> dict[str, dict[str, list[str]]]:
    sections = settings.items()
    return {s: {n: (value or "").split() for n, value in named.items()} for s, named in sections}


def _with_setting(lines: list[str], section: str, files: list[str]) -> list[str]:
    setting = ["constraint =", *(f"    {file}" for file in files)]
    start = next((i for i, line in enumerate(lines) if _section_of(line) == section), None)
    if start is None:
        return [f"[{section}]", *setting, *([""] if lines else []), *lines]
    rest = _without_constraint(lines, start)
    return [*rest[: start + 1], *setting, *rest[start + 1 :]]


def _section_of(line: str) -> str | None:
    match = _HEADER.match(line)
    return match["name"] if match else None


def _without_constraint(lines: list[str], start: int) -> list[str]:
    """Return `lines` without the setting `constraint` of the section that begins at `start`."""
    remaining, dropping, inside = [], False, False
    for number, line in enumerate(lines):
        comment = line.lstrip().startswith(("#", ";"))
        if _section_of(line) is not None:
            inside, dropping = number == start, False
        elif inside and line[:1].strip() and not comment:
            dropping = re.split("[=:]", line)[0].strip().lower() == "constraint"
        if comment or not dropping:
            remaining.append(line)
    return remaining
