"""Parts of a project that its default installation leaves out: extras, dependency groups, further
requirements files. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name

from warpfront.errors import InputError
from warpfront_port.preflight.declared import FileRequirements, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The extras and groups that the user asks for."""

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[tuple[Part, str], ...]:
        extras = ((Part.EXTRA, name) for name in self.extras)
        return (*extras, *((Part.GROUP, name) for name in self.groups))


def chosen(files: Iterable[FileRequirements], parts: Parts) -> tuple[FileRequirements, ...]:
    """Return the files with the lines of these parts as installed, and of the parts that they
    include. Raise `InputError` for a name that the project does not have.
    """
    files = tuple(files)
    groups = {
        (requirement.part, requirement.group)
        for file in files
        for requirement in file.declared
        if requirement.group
    }
    groups |= {place[:2] for file in files for place in file.nested}
    for part, name in parts.named:
        if _key((part, name)) not in map(_key, groups):
            names = ", ".join(sorted(name for of, name in groups if of is part)) or "none"
            raise InputError(
                f"{part} {name}: the project has none of this name", hint=f"it has: {names}"
            )
    return tuple(_with(file, parts) for file in files)


def _with(file: FileRequirements, parts: Parts) -> FileRequirements:
    # A line that is always installed may demand an extra of the project itself: `name[extra]`.
    keys = {_key(place) for place in (*parts.named, *file.asked_for, (Part.EXTRA, ""))}
    grows = True
    while grows:
        more = {_key(n[2:]) for n in file.nested if _key(n[:2]) in keys}
        grows = not more <= keys
        keys |= more
    requirements = tuple(
        replace(
            requirement,
            is_chosen=bool(requirement.group)
            and _key((requirement.part, requirement.group)) in keys,
        )
        for requirement in file.declared
    )
    return replace(file, declared=requirements)


def _key(place: tuple[Part, str]) -> tuple[Part, str]:
    return place[0], str(canonicalize_name(place[1]))
