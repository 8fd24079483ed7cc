"""setup.cfg, setup.py and conda's environment.yml: what can be read without running them. Pure."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator, Mapping
from typing import TypeGuard

import yaml

from warpfront.errors import InputError
from warpfront_port.preflight.asked import (
    Asked,
    FileAsks,
    Include,
    Kind,
    check_text,
    read_requirement,
)
from warpfront_port.preflight.setup_literals import Literals, NotLiteralError, Placed

_SETUP_ARGUMENTS = {
    "install_requires": Kind.REQUIREMENT,
    "setup_requires": Kind.BUILD,
    "extras_require": Kind.REQUIREMENT,
}
_REQUIREMENTS_FILE = re.compile(r"^[\w./-]*requirements?[\w./-]*\.(txt|in)$")


def read_setup_cfg(text: str, *, path: str) -> FileAsks:
    """`[options] install_requires`, `setup_requires`, `[options.extras_require]`."""
    check_text(text, path=path)
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text, source=path)
    except configparser.Error as error:
        # Its message quotes the file's lines.
        where = f"{path}:{error.lineno}" if hasattr(error, "lineno") else path
        raise InputError(f"{where}: not a setup.cfg") from None
    lines = text.splitlines()
    asked: list[Asked] = []
    includes: list[Include] = []
    for group, kind, values in _setup_cfg_values(parser):
        if values.strip().startswith("file:"):
            names = values.strip().removeprefix("file:").split(",")
            includes += [Include(path=name.strip(), line=1, group=group) for name in names]
            continue
        for value in values.splitlines():
            wanted = value.partition(" #")[0].strip()
            if wanted and not wanted.startswith("#"):
                number = _line_of(wanted, lines)
                read_requirement(wanted, where=f"{path}:{number}")
                asked.append(
                    _asked(path, number, lines[number - 1], wanted, kind=kind, group=group)
                )
    is_project = parser.has_section("options") or parser.has_section("metadata")
    return FileAsks(path=path, asked=tuple(asked), includes=tuple(includes), is_project=is_project)


def _setup_cfg_values(parser: configparser.RawConfigParser) -> Iterator[tuple[str, Kind, str]]:
    if parser.has_section("options"):
        yield "", Kind.REQUIREMENT, parser.get("options", "install_requires", fallback="")
        yield "", Kind.BUILD, parser.get("options", "setup_requires", fallback="")
    if parser.has_section("options.extras_require"):
        for extra, values in parser.items("options.extras_require"):
            yield extra, Kind.REQUIREMENT, values


def _line_of(wanted: str, lines: list[str]) -> int:
    return next((number for number, line in enumerate(lines, start=1) if wanted in line), 1)


def read_setup_py(text: str, *, path: str) -> FileAsks:
    """Return the requirements of `setup(...)` that follow from literals, and the requirements files
    that it names. Nothing is run: anything else is reported as unknown.
    """
    check_text(text, path=path)
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise InputError(f"{path}:{error.lineno or 1}: not Python") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: not Python") from None
    return _SetupReader(tree, text, path).read()


class _SetupReader:
    def __init__(self, tree: ast.Module, text: str, path: str) -> None:
        self._tree = tree
        self._lines = text.splitlines()
        self._path = path
        self._values = Literals(tree)

    def read(self) -> FileAsks:
        asked: list[Asked] = []
        unknown: list[str] = []
        computed: list[str] = []
        includes: list[Include] = []
        calls = [one for one in ast.walk(self._tree) if _is_setup(one)]
        for keyword in (one for call in calls for one in call.keywords):
            argument = keyword.arg or "**"
            if argument not in {*_SETUP_ARGUMENTS, "**"}:
                continue
            try:
                asked += self._argument(argument, keyword.value)
            except NotLiteralError:
                if argument in {"install_requires", "**"}:
                    at = f"{self._path}:{keyword.value.lineno}"
                    what = "arguments are" if argument == "**" else f"{argument} is"
                    files, is_whole = self._files(keyword.value)
                    includes += files
                    reasons = computed if is_whole else unknown
                    reasons.append(f"{at}: {what} computed, and setup.py is not run")
        if not calls:
            unknown.append(f"{self._path}: no call of setup() was found")
        return FileAsks(
            path=self._path,
            asked=tuple(asked),
            includes=tuple(includes),
            unknown=tuple(unknown),
            unless_included=tuple(computed),
        )

    def _files(self, value: ast.expr) -> tuple[list[Include], bool]:
        """The requirements files that a computed value names, and whether it is one call that
        reads one of them: then its lines are the value.
        """
        value, is_sure = self._values.source_of(value)
        places = list(ast.walk(value))
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and not value.args:
            places += [
                inner
                for one in ast.walk(self._tree)
                if isinstance(one, ast.FunctionDef) and one.name == value.func.id
                for inner in ast.walk(one)
            ]
        found = {
            node.value: Include(path=node.value, line=node.lineno, optional=True)
            for node in places
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and _REQUIREMENTS_FILE.match(node.value)
        }
        return list(found.values()), is_sure and isinstance(value, ast.Call) and len(found) == 1

    def _argument(self, argument: str, node: ast.expr) -> Iterator[Asked]:
        """Raise `NotLiteralError` where its value does not follow from literals."""
        value = self._values.of(node)
        if argument == "**":
            if not isinstance(value, Mapping):
                raise NotLiteralError
            for name in _SETUP_ARGUMENTS.keys() & value.keys():
                yield from self._listed(name, value[name], node.lineno)
        else:
            yield from self._listed(argument, value, node.lineno)

    def _listed(self, argument: str, value: object, line: int) -> Iterator[Asked]:
        kind = _SETUP_ARGUMENTS[argument]
        if isinstance(value, Mapping):
            groups = [(str(extra).partition(":")[0], texts) for extra, texts in value.items()]
        else:
            groups = [("", value)]
        for group, listed in groups:
            is_text = isinstance(listed, str)
            texts = [Placed.at(one, listed) for one in listed.splitlines()] if is_text else listed
            if texts is not None and not isinstance(texts, list | tuple | set | frozenset):
                raise NotLiteralError
            for text in texts or ():
                if isinstance(text, str) and text.strip() and _is_wanted(text):
                    yield self._asked(text, kind, group, line)
                elif not isinstance(text, str):
                    raise NotLiteralError

    def _asked(self, text: str, kind: Kind, group: str, line: int) -> Asked:
        line = text.line if isinstance(text, Placed) else line
        source = self._lines[line - 1]
        return _asked(self._path, line, source, str(text), kind=kind, group=group)


def _is_setup(node: ast.AST) -> TypeGuard[ast.Call]:
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr == "setup"
    return isinstance(function, ast.Name) and function.id == "setup"


def _is_wanted(text: object) -> bool:
    """Whether a literal is a requirement: file names may end up in the same list."""
    try:
        read_requirement(str(text), where="")
    except InputError:
        return False
    return True


def read_environment_yml(text: str, *, path: str) -> FileAsks:
    """conda's environment: its torch packages, and the requirements of its `pip:` list."""
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
    asked: list[Asked] = []
    for one in document.get("dependencies") or ():
        if isinstance(one, str):
            name = re.split(r"[=<>!\s]", one.rpartition("::")[2], maxsplit=1)[0]
            number = _line_of(one, lines)
            asked.append(_asked(path, number, lines[number - 1], name, kind=Kind.CONDA))
        elif isinstance(one, Mapping):
            asked += _pip_list(one.get("pip") or (), path, lines)
    return FileAsks(path=path, asked=tuple(asked))


def _pip_list(texts: object, path: str, lines: list[str]) -> Iterator[Asked]:
    for text in texts if isinstance(texts, list) else ():
        if isinstance(text, str) and not text.startswith("-"):
            number = _line_of(text, lines)
            read_requirement(text, where=f"{path}:{number}")
            yield _asked(path, number, lines[number - 1], text)


def _asked(
    path: str, line: int, source: str, text: str, *, kind: Kind = Kind.REQUIREMENT, group: str = ""
) -> Asked:
    return Asked(
        path=path,
        line=line,
        end_line=line,
        source=source,
        text=text,
        literal=text,
        kind=kind,
        group=group,
    )
