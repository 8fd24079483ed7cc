"""Requirements where projects write them: pyproject.toml, requirements files, setup.cfg. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from warpfront.errors import InputError
from warpfront.wheels.core_metadata import INDEXES, read_lines, without_options
from warpfront_port.preflight.declared import FileRequirements, Kind
from warpfront_port.preflight.pyproject import TomlText, read_pyproject
from warpfront_port.scan.findings import Match
from warpfront_port.scan.package_rules import read_requirement
from warpfront_port.scan.structured.commands import Word
from warpfront_port.scan.words import CUDA_INDEX, line_starts


def _placed(text: str, line: int, literal: str, value: str) -> Word:
    """Return the word for a value that is written as `literal` at or below a line."""
    start = max(text.find(literal, line_starts(text)[line - 1]), 0)
    return Word(text=value, start=start, end=start + len(literal))


def declared_rule_matches(text: str, read: Callable[..., FileRequirements]) -> Iterator[Match]:
    """Yield the rules for what installers require by a file."""
    try:
        declared = read(text, path="").declared
    except InputError as error:
        yield Match(rule="SC003", start=0, end=0, excerpt=error.message.lstrip(":"))
        return
    for item in declared:
        place = _placed(text, item.line, item.literal, item.text)
        if item.kind is not Kind.INDEX:
            for rule, shift in read_requirement(item.text, extra=item.group):
                yield place.match(rule, shift=shift)


def toml_rule_matches(text: str, *, installs: bool = True) -> Iterator[Match]:
    """Yield requirements, package indexes and settings of a TOML file.

    `installs` marks a file in which installers read requirements.
    """
    try:
        document = TomlText(text, path="")
    except InputError as error:
        yield Match(rule="SC003", start=0, end=0, excerpt=error.message.lstrip(":"))
        return
    if installs:
        yield from declared_rule_matches(text, read_pyproject)

    for value in _strings(document.values):
        if CUDA_INDEX.search(value):
            place = document.string(value, table="")
            yield _placed(text, place.line, place.literal, value).match("DP314", value[:80])


def _strings(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the texts in a document."""
    if isinstance(value, str):
        yield value
    elif depth < 20 and isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner, depth + 1)


def requirements_rule_matches(text: str, extra: str = "") -> Iterator[Match]:
    """Yield the matches of a requirements or constraints file.

    `extra` is the purpose in the file's name.
    """
    for line in read_lines(text):
        option, value = line.option
        requirement = without_options(value or line.text)
        start = line.at + max(line.source.find(requirement), 0)
        word = Word(text=requirement, start=start, end=start + len(requirement))
        if option in INDEXES and CUDA_INDEX.search(requirement):
            yield word.match("DP314")
        for rule, shift in read_requirement(requirement, extra=extra) if not option else ():
            yield word.match(rule, shift=shift)
