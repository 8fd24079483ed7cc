"""The choice of a log's format. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from warpfront.bench.logs import FORMATS
from warpfront.bench.logs.facts import Format
from warpfront.bench.logs.fields import cleaned

ENOUGH_LINES = 200
_KEPT = 120
_NEAR = re.compile(r"iteration|step|elapsed|tokens|loss", re.IGNORECASE)
_MOST_NEAR = 3


def choose(
    document: str | None, lines: Iterable[tuple[int, str]]
) -> tuple[Format, str] | list[str]:
    """Return the format of a log and the reason: the one that has most of the lines, or of the
    document, that only one format has. Without such a line, return those that look nearly right.
    """
    counts: Counter[str] = Counter()
    first: dict[str, tuple[int, str]] = {}
    near: list[str] = []
    for name, log_format in FORMATS.items() if document is not None else ():
        if log_format.is_document and log_format.marks(document or ""):
            counts[name], first[name] = 1, (1, "its own names stand in it")
    readers = {name: each for name, each in FORMATS.items() if not each.is_document}
    for number, text in () if counts else lines:
        line = cleaned(text)
        # The first that has it: Megatron's mark is less strict than Primus's, which comes before.
        if name := next((name for name, each in readers.items() if each.marks(line)), ""):
            counts[name] += 1
            first.setdefault(name, (number, line.strip()[:_KEPT]))
        elif not counts and len(near) < _MOST_NEAR and _NEAR.search(line):
            near.append(f"{number}: {line.strip()[:_KEPT]}")
        if counts.total() >= ENOUGH_LINES:
            break
    if not counts:
        return near
    trainers = [name for name in counts if not FORMATS[name].fallback]
    name = max((n for n in FORMATS if n in (trainers or counts)), key=counts.__getitem__)
    number, line = first[name]
    others = [f"{count} {other}'s" for other, count in counts.items() if other != name]
    also = f" (and {', '.join(others)})" if others else ""
    return FORMATS[name], f"{counts[name]} of {name}'s lines{also}, line {number}: {line}"
