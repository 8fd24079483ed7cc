"""The requirements of a project's files for an installer, each with its place; and the parts that
its default installation leaves out. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from warpfront.errors import InputError
from warpfront.wheels.core_metadata import foreign_requirement

LINE_LIMIT = 100_000
"""Characters. A longer line is no requirement, and would only make messages unreadable."""


class Kind(StrEnum):
    """The use that an installer makes of a line."""

    REQUIREMENT = "requirement"
    CONSTRAINT = "constraint"
    BUILD = "build requirement"
    INDEX = "index"
    CONDA = "conda package"


class Part(StrEnum):
    """A part of a project that its default installation leaves out, by the option that adds it."""

    EXTRA = "--extra"
    GROUP = "--group"
    FILE = "-r"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredRequirement:
    """A requirement or index of a file. `text` is a PEP 508 requirement, or the URL of an index.

    `literal` is its spelling in the file, to be replaced there; `source` its first line as written;
    `line` to `end_line` its lines (1-based). `group` is the extra, dependency group or optional
    file that it belongs to, "" for one that is always installed. `part` is the kind of that group;
    `is_chosen` is set where an option adds the group. `condition` is the place of a condition that
    it is under and that was not evaluated, "" for none.
    """

    path: str
    line: int
    end_line: int
    source: str
    text: str
    literal: str
    kind: Kind = Kind.REQUIREMENT
    group: str = ""
    part: Part = Part.EXTRA
    is_chosen: bool = False
    condition: str = ""

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def requirement(self) -> Requirement:
        return Requirement(self.text)

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def is_installed(self) -> bool:
        """Return whether the installation in question includes it."""
        return not self.group or self.is_chosen


def declared_at(
    path: str, line: int, source: str, text: str, *, kind: Kind = Kind.REQUIREMENT, group: str = ""
) -> DeclaredRequirement:
    """Return a requirement that is in one line, as it is written there."""
    return DeclaredRequirement(
        path=path,
        line=line,
        end_line=line,
        source=source,
        text=text,
        literal=text,
        kind=kind,
        group=group,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Include:
    """Another file that a file names, relative to it: a requirements file, constraints or
    a project's folder.

    `extras` are those of the project to include. An `optional` file may be absent. `group` and
    `part` are as in `DeclaredRequirement`.
    """

    path: str
    line: int
    kind: Kind = Kind.REQUIREMENT
    project: bool = False
    optional: bool = False
    extras: tuple[str, ...] = ()
    group: str = ""
    part: Part = Part.EXTRA


Nested = tuple[Part, str, Part, str]
"""A group, and a group that it includes: (part, name, part, name)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRequirements:
    """The requirements of one file.

    `unknown` are sentences about the parts that could not be read. `unless_included` are those
    about parts that need one of its optional includes, `notes` are about assumptions. `local` are
    names that no index serves: the project's own, its workspace's. `nested` are groups that include
    groups, `asked_for` the groups that another file of the project installs (`-e .[gpu]`).
    `is_static` is set where installers read no other file of the project.
    """

    path: str
    declared: tuple[DeclaredRequirement, ...] = ()
    includes: tuple[Include, ...] = ()
    unknown: tuple[str, ...] = ()
    unless_included: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    nested: tuple[Nested, ...] = ()
    asked_for: tuple[tuple[Part, str], ...] = ()
    local: frozenset[str] = frozenset()
    is_project: bool = True
    is_static: bool = False


def read_requirement(text: str, *, where: str) -> Requirement:
    """Return `text` as PEP 508. Raise `InputError` with `where` (file:line) and without the text:
    the file may be another than its name promises.
    """
    try:
        return foreign_requirement(text)
    except InvalidRequirement as error:
        deep = ", nested too deeply" if "nested" in str(error) else ""
        hint = "preflight reads requirements files, pyproject.toml, setup.cfg and setup.py"
        raise InputError(f"{where}: not a requirement (PEP 508){deep}", hint=hint) from None


def check_text(text: str, *, path: str) -> None:
    """Raise `InputError` for text that is no list of requirements at all."""
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > LINE_LIMIT:
            raise InputError(f"{path}:{number}: a line of {len(line):,} characters")
        if "\0" in line:
            raise InputError(f"{path}:{number}: a NUL character: this is not a text file")


def chosen(
    files: Iterable[FileRequirements], parts: tuple[tuple[Part, str], ...]
) -> tuple[FileRequirements, ...]:
    """Return the files with the lines of these parts as installed, and of the parts that they
    include. Raise `InputError` for a name that the project does not have.
    """
    files = tuple(files)
    declared = (line for file in files for line in file.declared if line.group)
    groups = {(line.part, line.group) for line in declared}
    groups |= {place[:2] for file in files for place in file.nested}
    for part, name in parts:
        if _key((part, name)) not in map(_key, groups):
            names = ", ".join(sorted(name for of, name in groups if of is part)) or "none"
            message = f"{part} {name}: the project has none of this name"
            raise InputError(message, hint=f"it has: {names}")
    with_parts: list[FileRequirements] = []
    for file in files:
        # A line that is always installed may demand an extra of the project itself: `name[extra]`.
        keys = {_key(place) for place in (*parts, *file.asked_for, (Part.EXTRA, ""))}
        grows = True
        while grows:
            more = {_key(n[2:]) for n in file.nested if _key(n[:2]) in keys}
            grows = not more <= keys
            keys |= more
        lines = (
            replace(line, is_chosen=bool(line.group) and _key((line.part, line.group)) in keys)
            for line in file.declared
        )
        with_parts.append(replace(file, declared=tuple(lines)))
    return tuple(with_parts)


def _key(place: tuple[Part, str]) -> tuple[Part, str]:
    return place[0], str(canonicalize_name(place[1]))
