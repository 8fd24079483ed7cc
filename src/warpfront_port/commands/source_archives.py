"""The demands of a package in its source archive, as far as they follow without running it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from warpfront.errors import InputError
from warpfront.wheels.requirement_lines import requirement_name
from warpfront.wheels.store.wheelhouse import final_requires
from warpfront_port.commands.project_files import read_project
from warpfront_port.preflight.declared import FileRequirements, Kind, Part
from warpfront_port.preflight.metadata_index import Demands


def read_source(project: Path, name: str) -> Demands | None:
    """Return the demands in the unpacked archive of `name`: of its metadata where that is
    final (PEP 643), or of its project's files where these need not be run. Return None where
    only running it would tell.
    """
    metadata = project / "PKG-INFO"
    text = metadata.read_text("utf-8", errors="replace") if metadata.is_file() else ""
    requires, conditional = final_requires(text), set[str]()
    if requires is None:
        try:
            read = read_project(project)
        except InputError:
            return None
        if not read or any(file.unknown for file in read):
            return None
        conditional = {
            requirement_name(requirement.text)
            for file in read
            for requirement in file.declared
            if requirement.condition
        }
        requires = tuple(line for file in read for line in _demands(file, name))
        if any(Requirement(require).url for require in requires):
            return None
    return Demands(requires=requires, conditional=frozenset(conditional))


def _demands(file: FileRequirements, name: str) -> Iterator[str]:
    """Yield the requirements of a project's file, and those of its extras with their markers."""
    for requirement in file.declared:
        if requirement.kind is Kind.REQUIREMENT and requirement.part is Part.EXTRA:
            yield _of_extra(requirement.text, requirement.group)
    for part, group, inner_part, inner in file.nested:
        if (part, inner_part) == (Part.EXTRA, Part.EXTRA):
            yield _of_extra(f"{name}[{inner}]", group)


def _of_extra(text: str, extra: str) -> str:
    requirement = Requirement(text)
    if not extra:
        return str(requirement)
    marker = f"({requirement.marker}) and " if requirement.marker else ""
    requirement.marker = None
    return f"{requirement} ; {marker}extra == '{extra}'"
