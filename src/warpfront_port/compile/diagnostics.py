"""The messages of compilers: clang's and GCC's, nvcc's and its parts', linkers'. Pure.

Recorded output of each is in tests/compile/said. Forms:
https://gcc.gnu.org/onlinedocs/gcc/Diagnostic-Message-Formatting-Options.html,
https://clang.llvm.org/docs/UsersManual.html#formatting-of-diagnostics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Severity = Literal["error", "warning"]
MOST = 200
"""The most diagnostics of one source: one missing header can cause thousands."""

_LONGEST = 10_000
_GNU = re.compile(
    r"(?P<path>[^:\n]{1,1000}):(?P<line>\d{1,8}):(?:(?P<column>\d{1,8}):)? "
    r"(?P<kind>fatal error|error|warning|note): (?P<message>.*)"
)
_NVCC = re.compile(
    r"(?P<path>[^\n]{1,1000}?)\((?P<line>\d{1,8})\): "
    r"(?P<kind>catastrophic error|error|warning)(?: #\d+(?:-[A-Z])?)?: (?P<message>.*)"
)
_PTXAS = re.compile(
    r"ptxas (?P<path>[^,\n]{1,1000}), line (?P<line>\d{1,8}); "
    r"(?P<kind>error|fatal|warning)\s*: (?P<message>.*)"
)
_PROGRAM = re.compile(
    r"(?:(?P<program>[\w+./-]{1,200})(?:: | ))?"
    r"(?P<kind>fatal error|fatal|error|warning|LLVM ERROR)\s*: (?P<message>.*)"
)
_LD = re.compile(r"(?P<program>(?:\S*/)?ld(?:\.\w+)?): (?P<message>\S.*)")
_INCLUDED = re.compile(
    r"(?:In file included from|\s{8,}from) (?P<path>[^:\n]{1,1000}):(?P<line>\d{1,8})"
)
_INSTANTIATED = re.compile(r".{0,8000}\bat line (?P<line>\d{1,8}) of (?P<path>[^\n]{1,1000})")
_REQUESTED = re.compile(r"in instantiation of|in call to|expanded from|required from")
# Messages that only repeat that something failed; reported if there are no others.
_ECHO = re.compile(
    r"aborted due to errors|command failed|linker command failed|ld returned|"
    r"compilation terminated|\d+ errors? (?:generated|detected)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line of a file, 1-based; `line` 0 = the file as a whole."""

    path: str
    line: int
    column: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """A message of a compiler. `place` is None where the compiler named none.

    `via` are the places that instantiate the code in question, `included` those that include its
    file; the nearest first.
    """

    severity: Severity
    message: str
    place: Place | None
    via: tuple[Place, ...] = ()
    included: tuple[Place, ...] = ()


def read_diagnostics(output: str) -> tuple[Diagnostic, ...]:
    """Return the errors and warnings of one source, each once, errors first."""
    diagnostics: list[Diagnostic] = []
    chain: list[Place] = []
    for raw in output.splitlines():
        line = raw[:_LONGEST]
        included = _INCLUDED.match(line)
        if included is not None:
            chain.append(_place(included))
            continue
        match = _GNU.match(line)
        if match is not None and match["kind"] == "note":
            diagnostics[-1:] = [_requested(diagnostic, match) for diagnostic in diagnostics[-1:]]
            continue
        diagnostic = _located(line, match, tuple(reversed(chain))) or _unplaced(line)
        if diagnostic is not None:
            diagnostics.append(diagnostic)
        elif diagnostics and (instantiated := _INSTANTIATED.match(line)) is not None:
            diagnostics[-1] = _also_via(diagnostics[-1], _place(instantiated))
        if not line.startswith(" "):
            chain.clear()
    return _distinct(diagnostics)


def _located(line: str, gnu: re.Match[str] | None, chain: tuple[Place, ...]) -> Diagnostic | None:
    match = gnu or _PTXAS.match(line) or _NVCC.match(line)
    if match is None:
        return None
    return Diagnostic(
        severity=_severity(match["kind"]),
        message=match["message"],
        place=_place(match),
        included=chain,
    )


def _unplaced(line: str) -> Diagnostic | None:
    """Return a program's message without a place: `ld.lld: error: ...`, `ptxas error : ...`."""
    match = _PROGRAM.fullmatch(line)
    if match is not None:
        return Diagnostic(severity=_severity(match["kind"]), message=match["message"], place=None)
    linked = _LD.fullmatch(line)
    if linked is not None and "warning" not in linked["message"]:
        return Diagnostic(severity="error", message=linked["message"], place=None)
    return None


def _requested(diagnostic: Diagnostic, note: re.Match[str]) -> Diagnostic:
    """Add the place that requested the faulty code, where the note names it."""
    if not _REQUESTED.search(note["message"]):
        return diagnostic
    return _also_via(diagnostic, _place(note))


def _also_via(diagnostic: Diagnostic, place: Place) -> Diagnostic:
    return replace(diagnostic, via=(*diagnostic.via, place))


def _place(match: re.Match[str]) -> Place:
    column = match.groupdict().get("column")
    return Place(path=match["path"].strip(), line=int(match["line"]), column=int(column or 0))


def _severity(kind: str) -> Severity:
    return "warning" if kind == "warning" else "error"


def _distinct(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return each message once: HIP compiles for host and device and repeats most of them."""
    distinct: dict[tuple[object, ...], Diagnostic] = {}
    for diagnostic in diagnostics:
        distinct.setdefault((diagnostic.severity, diagnostic.message, diagnostic.place), diagnostic)
    telling = [
        diagnostic for diagnostic in distinct.values() if not _ECHO.search(diagnostic.message)
    ]
    if not any(diagnostic.severity == "error" for diagnostic in telling):
        telling = list(distinct.values())
    return tuple(sorted(telling, key=lambda diagnostic: diagnostic.severity != "error")[:MOST])
