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

    def word(value: str) -> Word:
        place = document.string(value, table="")
        return _placed(text, place.line, place.literal, value)

    optional = document.table("project", "optional-dependencies")
    # uv's indexes that only packages which name them use.
    indexes = document.value("tool", "uv", "index")
    listed = indexes if isinstance(indexes, list) else []
    explicit = [index for index in listed if isinstance(index, dict) and index.get("explicit")]
    chosen = {value for _, value in (*_plain(optional), *_plain(explicit))}
    for _, value in _plain(document.values):
        if CUDA_INDEX.search(value):
            yield word(value).match("DP314", value[:80], -2 if value in chosen else 0)


def _plain(value: object, above: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield (name with the tables above it, value as text) for every plain value."""
    if isinstance(value, str | bool):
        yield above.strip("."), str(value).lower() if isinstance(value, bool) else value
    elif depth < 20 and isinstance(value, dict):
        for key, inner in value.items():
            yield from _plain(inner, f"{above}.{key}", depth + 1)
    elif depth < 20 and isinstance(value, list):
        for inner in value:
            yield from _plain(inner, above, depth + 1)


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
