"""What stands before the watch in an interpreter that has just started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_SECONDS = 60.0
# Python's own finders, by module and name; what else comes before the watch could answer for torch.
_PROBE = """
import json, sys
finders = []
for finder in sys.meta_path:
    kind = finder if isinstance(finder, type) else type(finder)
    if kind.__module__ == "warpfront_guard.startup":
        break
    finders.append(kind.__module__ + "." + kind.__qualname__)
else:
    finders = None
print(json.dumps([finders, sorted(sys.modules)]))
"""


@dataclass(frozen=True, kw_only=True)
class Start:
    """An interpreter that has just started: the `finders` that are asked before the watch, None
    where there is no watch, and the `modules` it has loaded.
    """

    finders: tuple[str, ...] | None
    modules: tuple[str, ...]


def import_findings(start: Start, packages: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(subject, what is wrong): finders asked before the watch, and protected packages that are
    there before anybody imported them.
    """
    if start.finders is None:
        yield "sys.meta_path", "the watch is not in it: imports of torch are not looked at"
    for finder in start.finders or ():
        yield finder, "it is asked for torch before the watch is"
    for package in sorted(set(packages) & set(start.modules)):
        yield package, "it is in sys.modules when Python starts, before anybody imported it"


def read_start() -> Start:
    """Asked of a new interpreter: this one has done more than start."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    try:
        finders, modules = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return Start(finders=None, modules=())
    return Start(finders=None if finders is None else tuple(finders), modules=tuple(modules))
