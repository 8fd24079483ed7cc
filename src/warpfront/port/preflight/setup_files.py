"""setup.cfg, setup.py and conda's environment.yml: what can be read without running them. Pure."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator, Mapping

import yaml

from warpfront.errors import InputError
from warpfront.port.preflight.asked import (
    Asked,
    FileAsks,
    Include,
    Kind,
    check_text,
    read_requirement,
)

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
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not a setup.cfg: {reason}") from error
    lines = text.splitlines()
    asked: list[Asked] = []
    includes: list[Include] = []
    for group, kind, values in _setup_cfg_values(parser):
        if values.strip().startswith("file:"):
            names = values.strip().removeprefix("file:").split(",")
            includes += [Include(path=name.strip(), line=1) for name in names]
            continue
        for value in values.splitlines():
            wanted = value.partition(" #")[0].strip()
            if wanted and not wanted.startswith("#"):
                number = _line_of(wanted, lines)
                read_requirement(wanted, where=f"{path}:{number}")
                asked.append(
                    _asked(path, number, lines[number - 1], wanted, kind=kind, group=group)
                )
    return FileAsks(path=path, asked=tuple(asked), includes=tuple(includes))


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
    """The literal requirements of `setup(...)`, and the requirements files that it names.

    What it computes is said to be unknown; nothing is run.
    """
    check_text(text, path=path)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not Python: {error}") from error
    return _SetupReader(tree, text, path).read()


class _SetupReader:
    def __init__(self, tree: ast.Module, text: str, path: str) -> None:
        self._tree = tree
        self._lines = text.splitlines()
        self._path = path
        self._names = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def read(self) -> FileAsks:
        asked: list[Asked] = []
        unknown: list[str] = []
        for argument, value in self._arguments():
            kind = _SETUP_ARGUMENTS[argument]
            strings = list(self._strings(value, depth=0))
            if not strings and not _is_empty(value):
                unknown.append(
                    f"{self._path}:{value.lineno}: {argument} is computed, and setup.py is not run"
                )
            group = "extra" if argument == "extras_require" else ""
            asked += [self._asked(node, kind, group) for node in strings if _is_wanted(node.value)]
        includes = [
            Include(path=node.value, line=node.lineno)
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and _REQUIREMENTS_FILE.match(node.value)
        ]
        return FileAsks(
            path=self._path,
            asked=tuple(asked),
            includes=tuple(includes) if unknown else (),
            unknown=() if includes else tuple(unknown),
        )

    def _arguments(self) -> Iterator[tuple[str, ast.expr]]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and _called(node) == "setup":
                for keyword in node.keywords:
                    if keyword.arg in _SETUP_ARGUMENTS:
                        yield keyword.arg, keyword.value

    def _strings(self, value: ast.expr, *, depth: int) -> Iterator[ast.Constant]:
        """The string literals that end up in a list: through names, `+`, lists and dict values."""
        if depth > 8:
            return
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value
        elif isinstance(value, ast.List | ast.Tuple | ast.Set):
            for one in value.elts:
                yield from self._strings(one, depth=depth + 1)
        elif isinstance(value, ast.Dict):
            for one in value.values:
                yield from self._strings(one, depth=depth + 1)
        elif isinstance(value, ast.BinOp):
            yield from self._strings(value.left, depth=depth + 1)
            yield from self._strings(value.right, depth=depth + 1)
        elif isinstance(value, ast.Name) and value.id in self._names:
            yield from self._strings(self._names[value.id], depth=depth + 1)

    def _asked(self, node: ast.Constant, kind: Kind, group: str) -> Asked:
        text = str(node.value)
        source = self._lines[node.lineno - 1]
        return _asked(self._path, node.lineno, source, text, kind=kind, group=group)


def _called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_empty(value: ast.expr) -> bool:
    return isinstance(value, ast.List | ast.Tuple) and not value.elts


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
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{path}: broken YAML: {str(error).splitlines()[0]}") from error
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
