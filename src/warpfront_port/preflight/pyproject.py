"""pyproject.toml: PEP 621, PEP 735, what uv, poetry, pdm, setuptools and hatch add to it; the
metadata of a script (PEP 723), pylock.toml (PEP 751), Pipfile. `tomllib` drops the lines of
values, so they are found in the text. Pure.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.errors import InputError
from warpfront_port.preflight.declared import (
    DeclaredRequirement,
    FileRequirements,
    Include,
    Kind,
    Nested,
    Part,
    check_text,
    read_requirement,
)

_SCRIPT = re.compile(r"(?m)^# /// script[^\S\n]*\n((?:#(?:[^\S\n].*)?\n)+?)# ///[^\S\n]*$")
_TABLES = frozenset(
    {"project", "tool", "build-system", "dependency-groups", "dependencies", "packages"}
    | {"dev-packages", "lock-version", "requires-python"}
)
"""The tables of pyproject.toml, a script, pylock.toml and Pipfile; no other file has them."""
# Lists of requirements, and what their lines are.
_LISTS: Mapping[str, Mapping[str, Any]] = {
    "dependencies": {},
    "project.dependencies": {},
    "build-system.requires": {"kind": Kind.BUILD},
    "tool.uv.dev-dependencies": {"group": "dev", "part": Part.GROUP},
    "tool.uv.override-dependencies": {},
    "tool.uv.constraint-dependencies": {"kind": Kind.CONSTRAINT},
}
# Tables of such lists by extra or group.
_GROUPED = {
    "project.optional-dependencies": Part.EXTRA,
    "dependency-groups": Part.GROUP,
    "tool.pdm.dev-dependencies": Part.GROUP,
}
_INDEXES = (
    *("tool.poetry.source", "source", "tool.pdm.source", "tool.uv.index"),
    *("tool.uv.index-url", "tool.uv.extra-index-url", "tool.uv.find-links"),
)
_OPERATOR = re.compile(r"^(===|==|~=|!=|<=|>=|<|>)")


def read_pyproject(text: str, *, path: str) -> FileRequirements:
    """Return the project's requirements, from any table. Raise `InputError` with file:line."""
    check_text(text, path=path)
    return _PyprojectReader(TomlText(text, path=path)).read()


def script_metadata(text: str) -> str:
    """Return the TOML in a script (PEP 723), each character in its place; "" where it has none."""
    match = _SCRIPT.search(text)
    if match is None:
        return ""
    above = re.sub(r"[^\n]", " ", text[: match.start(1)])
    return above + re.sub(r"(?m)^# ?", lambda mark: " " * len(mark[0]), match[1])


class _PyprojectReader:
    def __init__(self, document: TomlText) -> None:
        self._document = document
        self._value, self._table = document.value, document.table
        self._asked: list[DeclaredRequirement] = []
        self._includes: list[Include] = []
        self._unknown: list[str] = []
        self._computed: list[str] = []
        self._nested: list[Nested] = []
        self._local: set[str] = set()

    def read(self) -> FileRequirements:
        project, poetry = self._table("project"), self._table("tool", "poetry")
        for table, of in _LISTS.items():
            self._list(self._value(*table.split(".")), table, **of)
        for table, part in _GROUPED.items():
            for group, listed in self._table(*table.split(".")).items():
                texts = listed
                if part is Part.GROUP:  # which may include others, and editable folders
                    entries = _items(listed)
                    forms = (item for item in entries if isinstance(item, Mapping))
                    names = (form.get("include-group") for form in forms)
                    self._nested += [
                        (part, group, part, name) for name in names if isinstance(name, str)
                    ]
                    texts = [e for e in entries if isinstance(e, str) and e[:2] != "-e"]
                self._list(texts, table, group=group, part=part)
        self._read_poetry()
        self._read_pylock()
        for table in _INDEXES:
            for index in _items(self._value(*table.split("."))):
                self._index(index, table)
        for name, source in self._table("tool", "uv", "sources").items():
            for entry in _items(source):
                if isinstance(entry, Mapping):
                    self._uv_source(name, entry)
        self._read_files_of_dynamic()
        if not _TABLES & self._document.values.keys():
            self._unknown.append(f"{self._document.path}: no table in which installers read")
        project_name = project.get("name") or poetry.get("name")
        name = canonicalize_name(project_name) if isinstance(project_name, str) else ""
        # A line that demands the project itself includes its other extras.
        requirements = (line for line in self._asked if line.kind is not Kind.INDEX)
        self_demands = [line for line in requirements if line.name == name]
        for line in self_demands:
            extras = sorted(line.requirement.extras)
            self._nested += [(line.part, line.group, Part.EXTRA, extra) for extra in extras]
        return FileRequirements(
            path=self._document.path,
            declared=tuple(line for line in self._asked if line not in self_demands),
            includes=tuple(self._includes),
            unknown=tuple(self._unknown),
            unless_included=tuple(self._computed),
            nested=tuple(self._nested),
            local=frozenset({*self._local, name} - {""}),
            is_project=bool(project or poetry),
            is_static=bool(project) and "dependencies" not in _items(project.get("dynamic")),
        )

    def _uv_source(self, name: str, source: Mapping[str, Any]) -> None:
        """Add a source of `name`: for its own extra or group, or else for one of those that demand
        the name, the default installation first.
        """
        place = self._document.key(name, table="tool.uv.sources")
        asking = [
            (declared.part, declared.group)
            for declared in self._asked
            if declared.kind is Kind.REQUIREMENT and declared.name == canonicalize_name(name)
        ]
        kinds = (("extra", Part.EXTRA), ("group", Part.GROUP))
        chosen = [(part, source[key]) for key, part in kinds if isinstance(source.get(key), str)]
        for part, group in (chosen or sorted(asking, key=lambda pair: bool(pair[1])))[:1]:
            of = {"group": group, "part": part}
            if isinstance(source.get("path"), str):
                self._folder(name, source["path"], place, **of)
            if source.get("workspace"):
                self._local.add(canonicalize_name(name))
                if not group:
                    where = self._where(place)
                    self._unknown.append(f"{where}: {name} is of the workspace: name its folder")
            if url := _url_of(source):
                self._add(f"{name} @ {url}{_marker(source.get('marker'))}", place, **of)

    def _folder(self, name: str, path: str, place: TomlPlace, **of: Any) -> None:
        """Include the project in a folder, which no index serves; `of` is its group and part."""
        self._local.add(canonicalize_name(name))
        self._includes.append(Include(path=path, line=place.line, project=True, **of))

    def _read_poetry(self) -> None:
        """Read the tables of poetry, and those of a Pipfile, which have the same form."""
        poetry = ("tool", "poetry")
        for extra, names in self._table(*poetry, "extras").items():
            for name in _items(names):
                if isinstance(name, str):
                    self._nested.append((Part.EXTRA, extra, Part.EXTRA, _optional(name)))
        groups = self._table(*poetry, "group")
        tables: dict[tuple[str, ...], str] = {
            (*poetry, "dependencies"): "",
            (*poetry, "dev-dependencies"): "dev",
            **{(*poetry, "group", group, "dependencies"): group for group in groups},
            ("packages",): "",
            ("dev-packages",): "dev-packages",
        }
        for table, group in tables.items():
            for name, value in self._table(*table).items():
                place = self._document.key(name, table=".".join(table))
                for entry in _items(value) if name != "python" else ():
                    self._poetry_one(name, entry, place, group)

    def _poetry_one(self, name: str, value: object, place: TomlPlace, group: str) -> None:
        form = {"version": value} if isinstance(value, str) else value
        if not isinstance(form, Mapping):
            return
        part = Part.GROUP if group else Part.EXTRA
        group = group or (_optional(name) if form.get("optional") else "")
        of = {"group": group, "part": part}
        if isinstance(form.get("path"), str):
            self._folder(name, form["path"], place, **of)
            return
        url, version = _url_of(form), form.get("version", "*")
        if not url and (not isinstance(version, str) or "||" in version):
            unread = f"{self._where(place)}: {name}: versions joined by || are unread"
            self._unknown += [] if group else [unread]
            return
        # https://python-poetry.org/docs/dependency-specification/
        clauses = (clause.strip() for clause in str(version).replace(" ", ",").split(","))
        try:
            suffix = f" @ {url}" if url else ""
            suffix = suffix or ",".join(p for c in clauses if c for p in _from_clause(c))
        except ValueError as error:
            raise InputError(f"{self._where(place)}: not a version of poetry's") from error
        extras = f"[{','.join(form['extras'])}]" if form.get("extras") else ""
        self._add(f"{name}{extras}{suffix}{_marker(form.get('markers'))}", place, **of)

    def _read_pylock(self) -> None:
        packages = _items(self._document.values.get("packages"))
        for package in packages if "lock-version" in self._document.values else ():
            if not isinstance(package, Mapping) or not isinstance(package.get("name"), str):
                raise InputError(f"{self._document.path}: not a lock of PEP 751")
            place = self._document.string(package["name"], table="packages")
            where = package.get("vcs") or package.get("archive") or {}
            url = where.get("url") if isinstance(where, Mapping) else None
            source = f"=={package['version']}" if package.get("version") else ""
            if source := f" @ {url}" if url else source:
                self._add(f"{package['name']}{source}{_marker(package.get('marker'))}", place)
            else:
                self._unknown.append(f"{self._where(place)}: {package['name']} is in a folder")

    def _read_files_of_dynamic(self) -> None:
        """Read the requirements that setuptools and a hatch plugin take from files."""
        setuptools = ("tool", "setuptools", "dynamic")
        hatch = ("tool", "hatch", "metadata", "hooks", "requirements_txt")
        extras = "optional-dependencies"
        files = [
            ("", self._value(*setuptools, "dependencies", "file")),
            ("", self._value(*hatch, "files")),
            *(
                (e, self._value(*setuptools, extras, e, "file"))
                for e in self._table(*setuptools, extras)
            ),
            *self._table(*hatch, extras).items(),
        ]
        for group, names in files:
            for name in _items(names):
                if isinstance(name, str):
                    place = self._document.string(name, table="tool")
                    self._includes.append(Include(path=name, line=place.line, group=group))
        project, poetry = self._table("project"), self._table("tool", "poetry")
        is_dynamic = "dependencies" in _items(project.get("dynamic"))
        if is_dynamic or not (project or poetry):
            scripts = ("setup.cfg", "setup.py")
            self._includes += [Include(path=name, line=1, optional=True) for name in scripts]
        if is_dynamic and not poetry:
            place = self._document.key("dynamic", table="project")
            backend = self._table("build-system").get("build-backend", "setuptools")
            where = self._where(place)
            self._computed.append(f"{where}: dependencies are computed, by {backend}")

    def _list(self, texts: object, table: str, **of: Any) -> None:
        if texts is None:
            return
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{self._document.path}: {table} is not a list of requirements")
        for text in texts:
            place = self._document.string(text, table=table.rpartition(".")[0] or table)
            self._add(text, place, **of)

    def _index(self, form: object, table: str) -> None:
        url = form.get("url") if isinstance(form, Mapping) else form
        if isinstance(url, str):
            self._add(url, self._document.string(url, table=table), kind=Kind.INDEX)

    def _add(self, text: str, place: TomlPlace, **of: Any) -> None:
        """Add a line; `of` are its kind, its group and the group's part."""
        if of.get("kind") is not Kind.INDEX:
            read_requirement(text, where=self._where(place))
        path, location = self._document.path, dataclasses.asdict(place)
        self._asked.append(DeclaredRequirement(path=path, text=text, **location, **of))

    def _where(self, place: TomlPlace) -> str:
        return f"{self._document.path}:{place.line}"


def _items(value: object) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def _url_of(form: Mapping[str, Any]) -> str:
    url = form.get("url") or (f"git+{form['git']}" if form.get("git") else "")
    return url if isinstance(url, str) else ""


def _marker(text: object) -> str:
    return f" ; {text}" if text else ""


def _optional(name: str) -> str:
    """Return the group of an optional dependency of poetry, which its extras name."""
    return f"optional {canonicalize_name(name)}"


def _from_clause(clause: str) -> Iterator[str]:
    if clause == "*":
        return
    if clause[0] == "^" or (clause[0] == "~" and clause[1:2] != "="):
        lowest = Version(clause[1:])
        yield f">={lowest}"
        # The first version that a caret or tilde no longer accepts.
        release = lowest.release
        last = len(release) - 1
        first_part = next((index for index, part in enumerate(release) if part), last)
        first = first_part if clause[0] == "^" else min(1, last)
        ceiling = ".".join(map(str, (*release[:first], release[first] + 1)))
        yield f"<{ceiling}"
    elif _OPERATOR.match(clause):
        yield clause
    else:
        yield f"=={clause}"


_LINE = re.compile(r"\(at line (\d+)")
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*',
    re.DOTALL,
)
_HEADER = re.compile(r"^[ \t]*\[\[?[ \t]*([^\]\n]+?)[ \t]*\]\]?[ \t]*(?:#.*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlPlace:
    """A value's line (1-based), that line's text, and the value as written."""

    line: int
    end_line: int
    source: str
    literal: str


class TomlText:
    """A TOML document that knows where its strings are. Raises `InputError` for broken TOML."""

    def __init__(self, text: str, *, path: str) -> None:
        self.path = path
        text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        try:
            self.values: Mapping[str, Any] = tomllib.loads(text)
        except ValueError as error:  # a number of 5,000 digits is one, too
            # tomllib quotes keys and characters of the file: only the place is passed on.
            match = _LINE.search(str(error))
            where = f"{path}:{match[1]}" if match else path
            raise InputError(f"{where}: broken TOML") from None
        except RecursionError:
            raise InputError(f"{path}: nested too deeply to be read") from None
        self._text = text
        self._lines = text.split("\n")
        headers = reversed(list(_HEADER.finditer(text)))
        self._headers = {_bare(match[1]): match.start() for match in headers}
        self._strings = [
            (match.start(), match.end(), _value(match[0]))
            for match in _TOKEN.finditer(text)
            if not match[0].startswith("#")
        ]
        self._used: set[int] = set()

    def value(self, *names: str) -> Any:
        """Return the value of a key below these tables; None for none."""
        value: Any = self.values
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def table(self, *names: str) -> Mapping[str, Any]:
        """Return a table, an empty one for none."""
        value = self.value(*names)
        return value if isinstance(value, Mapping) else {}

    def string(self, value: str, *, table: str) -> TomlPlace:
        """Return the next string `value` at or below `[table]`; the file where it is unclear."""
        begin = self._begin(table)
        for start, end, text in self._strings:
            if start >= begin and start not in self._used and text == value:
                self._used.add(start)
                return self._place(start, end)
        return self._place(0, 0)

    def key(self, name: str, *, table: str) -> TomlPlace:
        """Return the line where `name` gets its value in `[table]`, or its own `[table.name]`."""
        begin = self._begin(table)
        quoted = re.escape(name)
        pattern = (
            rf"^[ \t]*[\"']?{quoted}[\"']?[ \t]*[.=][^\n]*|^\[+{re.escape(table)}\.{quoted}\]+"
        )
        match = re.compile(pattern, re.MULTILINE).search(self._text, begin)
        return self._place(*(match.span() if match else (0, 0)))

    def _begin(self, table: str) -> int:
        """Return the beginning of `[table]` or of the nearest table above it."""
        name = _bare(table)
        while name and name not in self._headers:
            name = name.rpartition(".")[0]
        return self._headers.get(name, 0)

    def _place(self, start: int, end: int) -> TomlPlace:
        line = self._text.count("\n", 0, start) + 1
        return TomlPlace(
            line=line,
            end_line=self._text.count("\n", 0, end) + 1,
            source=self._lines[line - 1],
            literal=self._text[start:end],
        )


def _bare(header: str) -> str:
    return re.sub(r"[\"'\s]", "", header)


def _value(literal: str) -> str:
    try:
        return str(tomllib.loads(f"x = {literal}")["x"])
    except tomllib.TOMLDecodeError:
        return literal
