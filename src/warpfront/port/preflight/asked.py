"""What a project's files ask of an installer, each with its place. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from packaging.requirements import InvalidRequirement, Requirement

from warpfront.errors import InputError
from warpfront.wheels.requirement_lines import foreign_requirement

LINE_LIMIT = 100_000
"""Characters. A longer line is no requirement, and would only make messages unreadable."""


class Kind(StrEnum):
    """What an installer makes of it."""

    REQUIREMENT = "requirement"
    CONSTRAINT = "constraint"
    BUILD = "build requirement"
    INDEX = "index"
    CONDA = "conda package"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One thing asked for. `text` is a PEP 508 requirement, or the URL of an index.

    `literal` is how it stands in the file, to be replaced there; `source` its first line as it
    stands; `line` to `end_line` its lines (1-based). `group` is the extra or dependency group that
    it belongs to, "" for what is always installed.
    """

    path: str
    line: int
    end_line: int
    source: str
    text: str
    literal: str
    kind: Kind = Kind.REQUIREMENT
    group: str = ""

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Include:
    """Another file that this one names: relative to it, as a requirements file, as constraints or
    as a project's folder. An `optional` one need not be there.
    """

    path: str
    line: int
    kind: Kind = Kind.REQUIREMENT
    project: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAsks:
    """What one file asks for. `unknown` are sentences about what could not be read from it."""

    path: str
    asked: tuple[Asked, ...] = ()
    includes: tuple[Include, ...] = ()
    unknown: tuple[str, ...] = ()


def read_requirement(text: str, *, where: str) -> Requirement:
    """`text` as PEP 508. Raises `InputError` with `where` (file:line)."""
    try:
        return foreign_requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{where}: not a requirement: {text[:80]}: {reason}",
            hint="preflight reads requirements files, pyproject.toml, setup.cfg and setup.py",
        ) from error


def check_text(text: str, *, path: str) -> None:
    """Raises `InputError` for text that is no list of requirements at all."""
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > LINE_LIMIT:
            raise InputError(f"{path}:{number}: a line of {len(line):,} characters")
        if "\0" in line:
            raise InputError(f"{path}:{number}: a NUL character: this is not a text file")
