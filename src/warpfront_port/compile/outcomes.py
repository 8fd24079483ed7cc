"""Checks from a container's results, whose reasons name a line of the tree. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Literal

from warpfront.system.texts import counted
from warpfront.verify.results import CheckResult, Outcome, Verification
from warpfront_port.compile.diagnostics import (
    Diagnostic,
    place_of_function,
    place_of_line,
    read_diagnostics,
)
from warpfront_port.compile.job_document import COPY, SOURCE
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
    names = check.details.get("kept")
    ptx = [files[name] for name in (names if isinstance(names, list) else ()) if name in files]
    message = partial(_message, check.name, files=files, texts=texts, renamed=renamed or {})
    diagnostics = (_with_source(diagnostic, ptx) for diagnostic in read_diagnostics(output))
    messages = tuple(map(message, diagnostics))
    errors = [one for one in messages if one.severity == "error"]
    reason = check.reason
    if check.outcome is Outcome.FAILED and errors:
        reason = f"{errors[0]}{f' (and {len(errors) - 1} more)' if len(errors) > 1 else ''}"
    elif check.outcome is Outcome.PASSED and messages:
        reason = counted(len(messages), "warning")
    dropped = {"kept", "output"} if messages else {"kept"}
    details = {name: value for name, value in check.details.items() if name not in dropped}
    details["messages"] = [dataclasses.asdict(one) for one in messages]
    return dataclasses.replace(check, reason=reason, details=details), messages


def _with_source(diagnostic: Diagnostic, ptx: Iterable[str]) -> Diagnostic:
    """Return a diagnostic with its place in the source, where ptxas named a function or a line
    of its own input.
    """
    place = diagnostic.place
    if place is not None and not place.path.endswith(".ptx"):
        return diagnostic
    places = (
        place_of_line(text, place.line) if place else place_of_function(text, diagnostic.message)
        for text in ptx
    )
    return dataclasses.replace(diagnostic, place=next(filter(None, places), place))


def _message(
    unit: str,
    diagnostic: Diagnostic,
    *,
    files: Mapping[str, str],
    texts: Mapping[str, str],
    renamed: Mapping[str, str],
) -> Message:
    """Return the message at its first place in the tree; else at the unit as a whole."""
    places = filter(None, (diagnostic.place, *diagnostic.via, *diagnostic.included))
    inside = ((tree_path(place.path, unit), place) for place in places)
    # hipify may have written the source under another name.
    inside = ((renamed.get(path, path), place) for path, place in inside)
    path, place = next(((path, place) for path, place in inside if path), (unit, None))
    text = diagnostic.message
    if diagnostic.place is not None and place is not diagnostic.place:
        text += f" (in {diagnostic.place.path}:{diagnostic.place.line})"
    line, column = (place.line, place.column) if place else (0, 0)
    translated, written = files.get(f"{HIPIFIED}{path}"), texts.get(path)
    if place and translated is not None and written is not None:
        # Both hipify tools add lines at the top of a file only.
        added = len(translated.splitlines()) - len(written.splitlines())
        line = max(1, line - max(0, added))
    severity = diagnostic.severity
    return Message(path=path, line=line, column=column, severity=severity, text=text, unit=unit)


def tree_path(path: str, unit: str) -> str:
    """Return a path in the container as one of the tree; "" for one outside it.

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
    return ""
