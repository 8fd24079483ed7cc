"""The modules that a program did not find, from the traceback that it ended with. Pure.

Only the last exception counts: a library may try an import and do without it. Python prints a
chain of exceptions in one piece, the first above, so that "install einops" after a failed import
is still that import.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.utils import canonicalize_name

from warpfront_port.trying.trial import Miss

_TRACEBACK = "Traceback (most recent call last):"
# torchrun, accelerate and ray put the rank before each line.
_PREFIX = re.compile(
    r"^\s*(?:\[[^\]\n]{1,40}\]:?\s?|\([^)\n]{1,40}\)\s)+(?=Traceback|\s*File |\w+(?:\.\w+)*Error)"
)
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '(?P<module>[\w.]+)'")
_NO_METADATA = re.compile(
    r"^importlib\.metadata\.PackageNotFoundError: No package metadata was found for (?P<name>\S+)"
)
_FRAME = re.compile(r'^\s*File "(?P<path>[^"\n]+)", line (?P<line>[0-9]{1,9})\b')
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


def read_misses(output: str) -> tuple[Miss, ...]:
    """Return the modules that the last traceback of `output` reports as missing, each once."""
    lines = [_PREFIX.sub("", line) for line in output.splitlines()]
    misses: dict[str, Miss] = {}
    frame: Mapping[str, str] = {}
    for line in _last_chain(lines):
        text = line.strip()
        if match := _FRAME.match(line):
            frame = match.groupdict()
        elif match := _MISSING.match(text) or _NO_METADATA.match(text):
            named = match.groupdict()
            miss = Miss(
                module=named.get("module", ""),
                distribution=canonicalize_name(named.get("name", "")),
                path=frame.get("path", ""),
                line=int(frame.get("line", 0)),
            )
            misses.setdefault(miss.top or miss.distribution, miss)
    return tuple(misses.values())


def _last_chain(lines: list[str]) -> list[str]:
    """Return the last traceback with those whose handling raised it."""
    starts = [n for n, line in enumerate(lines) if line.strip() == _TRACEBACK]
    if not starts:
        return []
    first = len(starts) - 1
    while first and any(
        line.strip().startswith(_CHAINED) for line in lines[starts[first - 1] : starts[first]]
    ):
        first -= 1
    return lines[starts[first] :]
