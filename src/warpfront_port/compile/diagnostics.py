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
_DECLARED = re.compile(
    r"candidate function(?:\Z| not viable: call to __)"
    r"|.*\b(?:declared|defined|(?:defini|declara)tion is) here"
)
# Messages that only repeat that something failed; reported if there are no others.
_ECHO = re.compile(
    r"aborted due to errors|command failed|linker command failed|ld returned|"
    r"compilation terminated|\d+ errors? (?:generated|detected)"
)
# PTX that nvcc writes with `-lineinfo` names files (`.file 1 "a.cu"`) and positions (`.loc 1 7 5`):
# https://docs.nvidia.com/cuda/parallel-thread-execution/#debugging-directives
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"\n]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_FUNCTION = re.compile(r"(?:Entry f|F)unction '(\w+)'")


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
    file; the nearest first. `declared` are the declarations that it is about.
    """

    severity: Severity
    message: str
    place: Place | None
    via: tuple[Place, ...] = ()
    included: tuple[Place, ...] = ()
    declared: tuple[Place, ...] = ()


def read_diagnostics(output: str) -> tuple[Diagnostic, ...]:
    """Return the errors and warnings of one source, each once, errors first."""
    diagnostics: list[Diagnostic] = []
    chain: list[Place] = []
    for raw in output.splitlines():
        line = raw[:_LONGEST]
        if included := _INCLUDED.match(line):
            chain.append(_place(included))
            continue
        gnu, place = _GNU.match(line), None
        note = gnu is not None and gnu["kind"] == "note"
        diagnostic = None if note else _diagnostic(line, gnu, tuple(reversed(chain)))
        if diagnostic is not None:
            diagnostics.append(diagnostic)
        elif gnu is not None:
            # The place that requested the faulty code, where the note names it.
            place = _place(gnu) if _REQUESTED.search(gnu["message"]) else None
            if place is None and diagnostics and _DECLARED.match(gnu["message"]):
                last = diagnostics[-1]
                diagnostics[-1] = replace(last, declared=(*last.declared, _place(gnu)))
        elif instantiated := _INSTANTIATED.match(line):
            place = _place(instantiated)
        if place and diagnostics:
            diagnostics[-1] = replace(diagnostics[-1], via=(*diagnostics[-1].via, place))
        if not note and not line.startswith(" "):
            chain.clear()
    return _distinct(diagnostics)


def _diagnostic(
    line: str, gnu: re.Match[str] | None, chain: tuple[Place, ...]
) -> Diagnostic | None:
    """Return the message of a line; a program's own has no place: `ld.lld: error: ...`."""
    match = gnu or _PTXAS.match(line) or _NVCC.match(line)
    place = _place(match) if match else None
    match = match or _PROGRAM.fullmatch(line) or _LD.fullmatch(line)
    if match is None:
        return None
    kind = match.groupdict().get("kind")
    if kind is None and "warning" in match["message"]:
        return None
    severity: Severity = "warning" if kind == "warning" else "error"
    included = chain if place else ()
    return Diagnostic(severity=severity, message=match["message"], place=place, included=included)


def _place(match: re.Match[str]) -> Place:
    column = match.groupdict().get("column")
    return Place(path=match["path"].strip(), line=int(match["line"]), column=int(column or 0))


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


def place_of_line(ptx: str, line: int) -> Place | None:
    """Return the source position of line `line` (1-based) of `ptx`: the last one before it."""
    return _ptx_place(ptx, reversed(ptx.splitlines()[:line]))


def place_of_function(ptx: str, message: str) -> Place | None:
    """Return the first position in the function that `message` names (`Entry function '_Z1kPf'
    uses too much shared data`).
    """
    named = _FUNCTION.search(message)
    begin = named and re.search(rf"(?m)^.*\.(?:entry|func)\b.*\b{re.escape(named[1])}\b", ptx)
    return _ptx_place(ptx, ptx[begin.start() :].splitlines()) if begin else None


def _ptx_place(ptx: str, lines: Iterable[str]) -> Place | None:
    """Return the first position in `lines`, by the files that `ptx` names."""
    location = next(filter(None, map(_LOC.match, lines)), None)
    path = dict(_FILE.findall(ptx)).get(location[1]) if location else None
    if location is None or path is None:
        return None
    return Place(path=path, line=int(location[2]), column=int(location[3]))
