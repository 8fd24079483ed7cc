"""A program that compiles the sources of an image, mounted for the step that does. Pure."""

from __future__ import annotations

from collections.abc import Mapping

# What `compileall -j 0` does, which asks a process for each file by itself, and so takes half a
# millisecond for one that has its byte code already.
_COMPILER = """\
import compileall, functools, os, sys
from concurrent.futures import ProcessPoolExecutor


def sources(folder):
    for where, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if one != "__pycache__"]
        yield from (os.path.join(where, one) for one in names if one.endswith(".py"))


if __name__ == "__main__":
    folder, *chosen = sys.argv[1:]
    if chosen:
        with open(chosen[0], encoding="utf-8") as file:
            paths = [os.path.join(folder, path) for path in file.read().split("\\n")]
    else:
        paths = sorted(sources(folder))
    with ProcessPoolExecutor() as pool:
        list(pool.map(functools.partial(compileall.compile_file, quiet=2), paths, chunksize=8))
"""
BYTE_CODE_FILES: Mapping[str, str] = {"byte-code/compile.py": _COMPILER}
