"""Requirements where projects write them: pyproject.toml, requirements files, setup.cfg. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from warpfront.wheels.requirement_lines import (
    INDEXES,
    read_lines,
    without_options,
)
from warpfront_port.scan.findings import Match
from warpfront_port.scan.package_rules import read_poetry, read_requirement
from warpfront_port.scan.setting_rules import read_setting
from warpfront_port.scan.structured.commands import Word
from warpfront_port.scan.words import CUDA_INDEX, index_shift

_SECTION = re.compile(r"\[([^\]]+)\]\s*\Z")
_KEY = re.compile(r"([A-Za-z_][\w.-]*)\s*=\s*(.*)")


class _Finder:
    """The places of the strings of a TOML document, each requested once, in order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._after: dict[str, int] = {}

    def word(self, value: str) -> Word:
        for after in (self._after.get(value, 0), 0):
            for form in (f'"{value}"', f"'{value}'", value):
                start = self._text.find(form, after)
                if start >= 0:
                    self._after[value] = end = start + len(form)
                    return Word(text=value, start=start, end=end)
        return Word(text=value, start=0, end=0)


def toml_rule_matches(text: str) -> Iterator[Match]:
    """Yield requirements, package indexes and the Python bound of a TOML file."""
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        yield Match(rule="SC003", start=0, end=0, excerpt=str(error)[:100])
        return
    finder = _Finder(text)
    for group, requirement in _requirements(document):
        for required in read_requirement(requirement, extra=group):
            yield finder.word(requirement).match(required.rule, shift=required.shift)
    yield from _of_poetry(finder, text, document)
    for name, value in _settings(document):
        for setting_use in read_setting(name, value):
            yield finder.word(value).match(setting_use.rule, setting_use.excerpt)
    optional = _table(document, "project", "optional-dependencies")
    chosen = {*_strings(optional), *_explicit(document)}
    for value in _strings(document):
        if CUDA_INDEX.search(value):
            shift = -2 if value in chosen else index_shift(text)
            yield finder.word(value).match("DP314", value[:80], shift)


def _explicit(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield uv's indexes that only packages which name them use."""
    indexes = _table(document, "tool", "uv").get("index")
    for index in indexes if isinstance(indexes, list) else ():
        if isinstance(index, dict) and index.get("explicit"):
            yield str(index.get("url"))


def _table(document: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        inner = document.get(name)
        document = inner if isinstance(inner, dict) else {}
    return document


def _requirements(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (name of the extra or "", requirement)."""
    for *names, last in _LISTS:
        yield from (("", text) for text in _texts(_table(document, *names).get(last)))
    for place in _TABLES_OF_LISTS:
        for group, listed in _table(document, *place).items():
            inner = listed if isinstance(listed, dict) else {"dependencies": listed}
            for key in ("dependencies", "extra-dependencies"):
                yield from ((group, text) for text in _texts(inner.get(key)))


_LISTS = (
    ("project", "dependencies"),
    ("build-system", "requires"),
    ("tool", "uv", "dev-dependencies"),
    ("tool", "uv", "override-dependencies"),
    ("tool", "uv", "constraint-dependencies"),
)
_TABLES_OF_LISTS = (
    ("project", "optional-dependencies"),
    ("dependency-groups",),
    ("tool", "pdm", "dev-dependencies"),
    ("tool", "hatch", "envs"),
)


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _of_poetry(finder: _Finder, text: str, document: Mapping[str, Any]) -> Iterator[Match]:
    """Yield the requirements in tables of Poetry and of a Pipfile."""
    poetry = _table(document, "tool", "poetry")
    tables = [("", _table(poetry, "dependencies"))]
    tables += [("", _table(document, name)) for name in ("packages", "dev-packages")]
    tables += [
        (name, _table(poetry, "group", name, "dependencies")) for name in _table(poetry, "group")
    ]
    for group, table in tables:
        for name, value in table.items():
            entry = _table(table, name)
            specifier = value if isinstance(value, str) else entry.get("version", "")
            extras = _texts(entry.get("extras"))
            for required in read_poetry(name, str(specifier), extra=group, extras=extras):
                key = re.search(rf"^\s*[\"']?{re.escape(name)}[\"']?\s*=.*$", text, re.MULTILINE)
                word = Word(text="", start=key.start(), end=key.end()) if key else finder.word(name)
                yield word.match(required.rule, f"{name} {specifier}".strip(), required.shift)


def _settings(
    value: Mapping[str, Any], above: str = "", depth: int = 0
) -> Iterator[tuple[str, str]]:
    """Yield (name with the tables above it, value as text) for every plain value."""
    for key, inner in value.items():
        name = f"{above}.{key}".strip(".")
        if isinstance(inner, dict) and depth < 20:
            yield from _settings(inner, name, depth + 1)
        elif isinstance(inner, str | bool):
            yield name, str(inner).lower() if isinstance(inner, bool) else inner


def _strings(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < 20 and isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner, depth + 1)


def requirements_rule_matches(text: str, extra: str = "") -> Iterator[Match]:
    """Yield the matches of a requirements or constraints file.

    `extra` is the purpose in the file's name. Torch comes from ROCm's wheel index if there is one.
    """
    rocms = _OF_ROCM.search(text) is not None
    for line in read_lines(text):
        option, value = line.option
        requirement = without_options(value or line.text)
        start = line.at + max(line.source.find(requirement), 0)
        word = Word(text=requirement, start=start, end=start + len(requirement))
        if option in INDEXES and CUDA_INDEX.search(requirement):
            yield word.match("DP314")
        for required in read_requirement(requirement, extra=extra) if not option else ():
            if not (rocms and required.rule == "DP302"):
                yield word.match(required.rule, shift=required.shift)


_OF_ROCM = re.compile(r"(?m)^(?:-i|--index-url)[=\s]\S*/rocm")


def cfg_rule_matches(text: str) -> Iterator[Match]:
    """Yield the matches of setup.cfg: install_requires and the extras."""
    offset, section, key = 0, "", ""
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        header, pair = _SECTION.match(bare), _KEY.match(line)
        if header is not None:
            section, key = header[1], ""
        elif pair is not None and not line[0].isspace():
            key = pair[1]
            bare = pair[2].strip()
        extra = key if section == "options.extras_require" else ""
        relevant = extra or (section == "options" and key in {"install_requires", "setup_requires"})
        if relevant and header is None:
            for required in read_requirement(bare, extra=extra):
                start = offset + line.find(bare)
                word = Word(text=bare, start=start, end=start + len(bare))
                yield word.match(required.rule, shift=required.shift)
        offset += len(line)
