"""The line of the source that a line of ptxas' input was made from. Pure.

PTX that nvcc writes with `-lineinfo` names files (`.file 1 "a.cu"`) and positions (`.loc 1
7 5`): https://docs.nvidia.com/cuda/parallel-thread-execution/#debugging-directives
"""

from __future__ import annotations

import re

from warpfront_port.compile.diagnostics import Place

_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"\n]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_FUNCTION = re.compile(r"(?:Entry f|F)unction '(\w+)'")


def place_of_line(ptx: str, line: int) -> Place | None:
    """Return the source position of line `line` (1-based) of `ptx`: the last one before it."""
    return _last_place(ptx, ptx.splitlines()[:line])


def place_of_function(ptx: str, message: str) -> Place | None:
    """Return the first position in the function that `message` names (`Entry function '_Z1kPf'
    uses too much shared data`).
    """
    named = _FUNCTION.search(message)
    if named is None:
        return None
    begin = re.compile(rf"\.(?:entry|func)\b.*\b{re.escape(named[1])}\b")
    lines = ptx.splitlines()
    start = next((index for index, line in enumerate(lines) if begin.search(line)), len(lines))
    first = next((line for line in lines[start:] if _LOC.match(line)), None)
    return None if first is None else _last_place(ptx, [first])


def _last_place(ptx: str, lines: list[str]) -> Place | None:
    location = next(
        (match for match in map(_LOC.match, reversed(lines)) if match is not None), None
    )
    if location is None:
        return None
    files = dict(_FILE.findall(ptx))
    path = files.get(location[1])
    if path is None:
        return None
    return Place(path=path, line=int(location[2]), column=int(location[3]))
