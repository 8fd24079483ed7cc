"""The line of the source that a line of ptxas' input was made from. Pure.

PTX that nvcc writes with `-lineinfo` names files (`.file 1 "a.cu"`) and positions (`.loc 1
7 5`): https://docs.nvidia.com/cuda/parallel-thread-execution/#debugging-directives
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from warpfront_port.compile.diagnostics import Place

_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"\n]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_FUNCTION = re.compile(r"(?:Entry f|F)unction '(\w+)'")


def place_of_line(ptx: str, line: int) -> Place | None:
    """Return the source position of line `line` (1-based) of `ptx`: the last one before it."""
    return _place(ptx, reversed(ptx.splitlines()[:line]))


def place_of_function(ptx: str, message: str) -> Place | None:
    """Return the first position in the function that `message` names (`Entry function '_Z1kPf'
    uses too much shared data`).
    """
    named = _FUNCTION.search(message)
    begin = named and re.search(rf"(?m)^.*\.(?:entry|func)\b.*\b{re.escape(named[1])}\b", ptx)
    return _place(ptx, ptx[begin.start() :].splitlines()) if begin else None


def _place(ptx: str, lines: Iterable[str]) -> Place | None:
    """Return the first position in `lines`, by the files that `ptx` names."""
    location = next(filter(None, map(_LOC.match, lines)), None)
    path = dict(_FILE.findall(ptx)).get(location[1]) if location else None
    if location is None or path is None:
        return None
    return Place(path=path, line=int(location[2]), column=int(location[3]))
