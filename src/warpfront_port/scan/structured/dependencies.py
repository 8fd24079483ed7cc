"""Requirements where projects write them: pyproject.toml, requirements files, setup.cfg. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from warpfront.wheels.requirement_lines import (
    INDEXES,
    RequirementLine,
    read_lines,
    without_options,
)
from warpfront_port.scan.findings import Match
from warpfront_port.scan.package_rules import Required, read_poetry, read_requirement
from warpfront_port.scan.setting_rules import read_setting
from warpfront_port.scan.words import CUDA_INDEX, index_shift

_SECTION = re.compile(r"\[([^\]]+)\]\s*\Z")
_KEY = re.compile(r"([A-Za-z_][\w.-]*)\s*=\s*(.*)")


class _Finder:
    """The places of the strings of a TOML document, each requested once, in order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._after: dict[str, int] = {}

    def place(self, value: str) -> tuple[int, int]:
        for after in (self._after.get(value, 0), 0):
            for form in (f'"{value}"', f"'{value}'", value):
                start = self._text.find(form, after)
                if start >= 0:
                    self._after[value] = start + len(form)
                    return start, start + len(form)
        return 0, 0


def toml_rule_matches(text: str) -> Iterator[Match]:
    """Yield requirements, package indexes and the Python bound of a TOML file."""
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        yield Match(rule="SC003", start=0, end=0, what=str(error)[:100])
        return
    finder = _Finder(text)
    project = _table(document, "project")
    for group, requirements in _groups(document, project):
        for requirement in requirements:
            yield from _of_requirement(finder, requirement, group)
    poetry = _table(document, "tool", "poetry")
    yield from _of_poetry(finder, text, poetry)
    for group in ("packages", "dev-packages"):  # a Pipfile's
        yield from _of_poetry(finder, text, {"dependencies": _table(document, group)})
    for name, value in _settings(document):
        for setting_use in read_setting(name, value):
            start, end = finder.place(value)
            yield Match(rule=setting_use.rule, start=start, end=end, what=setting_use.what)
    chosen = set(_strings(project.get("optional-dependencies"))) | set(_explicit(document))
    for value in _strings(document):
        if CUDA_INDEX.search(value):
            start, end = finder.place(value)
            shift = -2 if value in chosen else index_shift(text)
            yield Match(rule="DP314", start=start, end=end, what=value[:80], shift=shift)


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


def _groups(
    document: Mapping[str, Any], project: Mapping[str, Any]
) -> Iterator[tuple[str, list[str]]]:
    """Yield (name of the extra or "", requirement strings)."""
    yield "", _texts(project.get("dependencies"))
    yield "", _texts(_table(document, "build-system").get("requires"))
    for name, value in _table(project, "optional-dependencies").items():
        yield name, _texts(value)
    for name, value in _table(document, "dependency-groups").items():
        yield name, _texts(value)
    for name, value in _table(document, "tool", "pdm", "dev-dependencies").items():
        yield name, _texts(value)
    for name, value in _table(document, "tool", "hatch", "envs").items():
        inner = value if isinstance(value, dict) else {}
        yield name, [*_texts(inner.get("dependencies")), *_texts(inner.get("extra-dependencies"))]
    uv = _table(document, "tool", "uv")
    for key in ("dev-dependencies", "override-dependencies", "constraint-dependencies"):
        yield "", _texts(uv.get(key))


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _of_requirement(finder: _Finder, requirement: str, group: str) -> Iterator[Match]:
    for required in read_requirement(requirement, extra=group):
        yield required.at(*finder.place(requirement), requirement)


def _of_poetry(finder: _Finder, text: str, poetry: Mapping[str, Any]) -> Iterator[Match]:
    tables = [("", _table(poetry, "dependencies"))]
    tables += [
        (name, _table(group, "dependencies"))
        for name, group in _table(poetry, "group").items()
        if isinstance(group, dict)
    ]
    for group, table in tables:
        for name, value in table.items():
            entry = _table(table, name)
            specifier = value if isinstance(value, str) else entry.get("version", "")
            extras = _texts(entry.get("extras"))
            for required in read_poetry(name, str(specifier), extra=group, extras=extras):
                key = re.search(rf"^\s*[\"']?{re.escape(name)}[\"']?\s*=.*$", text, re.MULTILINE)
                start, end = key.span() if key is not None else finder.place(name)
                yield required.at(start, end, f"{name} {specifier}".strip())


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
        if option in INDEXES and CUDA_INDEX.search(requirement):
            yield Required(rule="DP314", shift=0).at(*_on_line(line, requirement), requirement)
        elif not option:
            for required in read_requirement(requirement, extra=extra):
                if not (rocms and required.rule == "DP302"):
                    yield required.at(*_on_line(line, requirement), requirement)


_OF_ROCM = re.compile(r"(?m)^(?:-i|--index-url)[=\s]\S*/rocm")


def _on_line(line: RequirementLine, snippet: str) -> tuple[int, int]:
    start = line.at + max(line.source.find(snippet), 0)
    return start, start + len(snippet)


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
                yield required.at(start, start + len(bare), bare)
        offset += len(line)
