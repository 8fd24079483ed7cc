"""Checks from a container's results, whose reasons name a line of the tree. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from warpfront.verify.results import CheckResult, Outcome, Verification
from warpfront_port.compile.diagnostics import Diagnostic, Place, read_diagnostics
from warpfront_port.compile.job_document import COPY, SOURCE
from warpfront_port.compile.ptx import place_of_function, place_of_line
from warpfront_port.scan.findings import ScanFinding

SESSION = "compile"
HIPIFIED = "hipified/"
"""The folder of hipify's output, below a container's results."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Message:
    """A message of a compiler about the tree. `path` is relative to the tree's root; `line` 0
    = the file as a whole. `unit` is the file that was being compiled.
    """

    path: str
    line: int
    column: int
    severity: Literal["error", "warning"]
    text: str
    unit: str

    def __str__(self) -> str:
        numbers = "".join(f":{number}" for number in (self.line, self.column) if number)
        return f"{self.path}{numbers}: {self.severity}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """The result of compiling a tree for one target.

    `place` names the image that compiled it, `notes` the compiler there. `left` are the findings
    that hipify does not solve, where it was requested.
    """

    verification: Verification
    messages: tuple[Message, ...]
    left: tuple[ScanFinding, ...]
    place: str
    notes: tuple[str, ...]


def judged(
    check: CheckResult,
    *,
    files: Mapping[str, str],
    texts: Mapping[str, str],
    renamed: Mapping[str, str] | None = None,
) -> tuple[CheckResult, tuple[Message, ...]]:
    """Return the check of one unit with its compiler's messages, and those messages.

    The check is called as the unit is. `files` are the texts of the container's results by path;
    `texts` the sources by path in the tree. `renamed` maps the files that hipify wrote under
    another name to their sources.
    """
    output = check.details.get("output")
    if not isinstance(output, str):
        return check, ()
    names = _strings(check.details.get("kept"))
    ptx = [files[name] for name in names if name in files]
    tree = _Tree(unit=check.name, files=files, texts=texts, renamed=renamed or {})
    messages = tuple(
        _message(_with_source(diagnostic, ptx), tree) for diagnostic in read_diagnostics(output)
    )
    return _with_messages(check, messages), messages


def _with_messages(check: CheckResult, messages: tuple[Message, ...]) -> CheckResult:
    errors = [message for message in messages if message.severity == "error"]
    reason = check.reason
    if check.outcome is Outcome.FAILED and errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        reason = f"{errors[0]}{more}"
    elif check.outcome is Outcome.PASSED and messages:
        reason = f"{len(messages)} warning{'s' if len(messages) > 1 else ''}"
    details = {name: value for name, value in check.details.items() if name != "kept"}
    if messages:
        details.pop("output", None)
    details["messages"] = [dataclasses.asdict(message) for message in messages]
    return dataclasses.replace(check, reason=reason, details=details)


def _with_source(diagnostic: Diagnostic, ptx: Iterable[str]) -> Diagnostic:
    """Return a diagnostic with its place in the source, where ptxas named a function or a line
    of its own input.
    """
    place = diagnostic.place
    if place is not None and not place.path.endswith(".ptx"):
        return diagnostic
    for text in ptx:
        position = (
            place_of_function(text, diagnostic.message)
            if place is None
            else place_of_line(text, place.line)
        )
        if position is not None:
            return dataclasses.replace(diagnostic, place=position)
    return diagnostic


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tree:
    """The tree as a unit's compiler saw it: below the mount, or as hipify's copy."""

    unit: str
    files: Mapping[str, str]
    texts: Mapping[str, str]
    renamed: Mapping[str, str]

    def path_of(self, path: str) -> str | None:
        """Return a path in the container as one of the tree; None for one outside it."""
        inside = tree_path(path, self.unit)
        return None if inside is None else self.renamed.get(inside, inside)

    def line_of(self, place: Place | None, path: str) -> int:
        """Return the source's line. Both hipify tools add lines at the top of a file only."""
        if place is None:
            return 0
        translated, written = self.files.get(f"{HIPIFIED}{path}"), self.texts.get(path)
        if translated is None or written is None:
            return place.line
        added = len(translated.splitlines()) - len(written.splitlines())
        return max(1, place.line - max(0, added))


def _message(diagnostic: Diagnostic, tree: _Tree) -> Message:
    """Return the message at its first place in the tree; else at the unit as a whole."""
    places = (diagnostic.place, *diagnostic.via, *diagnostic.included)
    inside = [(tree.path_of(place.path), place) for place in places if place is not None]
    path, place = next(((path, position) for path, position in inside if path), (tree.unit, None))
    text = diagnostic.message
    if diagnostic.place is not None and place is not diagnostic.place:
        text += f" (in {diagnostic.place.path}:{diagnostic.place.line})"
    return Message(
        path=path,
        line=tree.line_of(place, path),
        column=place.column if place else 0,
        severity=diagnostic.severity,
        text=text,
        unit=tree.unit,
    )


def tree_path(path: str, unit: str = "") -> str | None:
    """Return a path in the container as one of the tree; None for one outside it.

    The copy of a setup.py's own has a folder for every unit.
    """
    for root in (COPY, SOURCE):
        if path.startswith(f"{root}/"):
            return path[len(root) + 1 :]
    _, separator, rest = path.partition("/tree/")
    if separator and path.startswith(str(PurePosixPath(COPY).parent)):
        return rest
    if unit.endswith(".py") and not path.startswith(("/", "<")):
        # A setup.py is run in its own folder, and names its sources from there.
        return str(PurePosixPath(unit).parent / path)
    return None


def _strings(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
