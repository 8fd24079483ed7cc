"""Removal of the files of `slim:` in a RUN: a program mounted for the step that installs, and
its globs. Pure.

Layers of wheels are made without those files (`wheels.streamed`); both ways give the same files.
"""

from __future__ import annotations

from collections.abc import Iterable

# By RECORD, which is written anew: what it does not name was not installed.
_PROGRAM = """\
import csv, fnmatch, io, pathlib, site, sys

globs = pathlib.Path(sys.argv[1]).read_text("utf-8").split()
folder = pathlib.Path(site.getsitepackages()[0])
for record in folder.glob("*.dist-info/RECORD"):
    rows = list(csv.reader(io.StringIO(record.read_text("utf-8"), newline="")))
    gone = {row[0] for row in rows if any(fnmatch.fnmatchcase(row[0], one) for one in globs)}
    for path in gone:
        (folder / path).unlink()
    for parent in sorted({up for path in gone for up in (folder / path).parents}, reverse=True):
        if folder in parent.parents and parent.is_dir() and not any(parent.iterdir()):
            parent.rmdir()
    if gone:
        with record.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\\n").writerows(r for r in rows if r[0] not in gone)
"""


def slim_files(globs: Iterable[str]) -> dict[str, str]:
    """Return path in the build context -> text; none if nothing is removed."""
    lines = "".join(f"{glob}\n" for glob in globs)
    return {"slim/slim.py": _PROGRAM, "slim/globs.txt": lines} if lines else {}
