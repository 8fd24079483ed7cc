"""Stages of a Dockerfile that layers can replace. Pure.

The stage `installed` follows `environment` and adds the wheels. It is replaced as a whole, and only
if its text is the known one: a project's own fragment is run as written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

EMPTY_STAGE = "environment"
WHEELS_STAGE = "installed"
# `_shared/wheels.j2` between the two stages, rendered; a test compares them.
_INSTALLS = r"""
FROM environment AS installed
RUN --network=none \
    --mount=type=bind,source=requirements.txt,target=/run/requirements.txt \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=tools,target=/tools \
    start=$(date +%s) && \
    /tools/uv pip install --no-config --offline --no-index --find-links /wheels --no-deps --require-hashes \
      --no-cache --python /opt/venv/bin/python --requirement /run/requirements.txt && \
    site=$(/opt/venv/bin/python -c 'import site; print(site.getsitepackages()[0])') && \
    find "$site" -name uv_cache.json -newermt "@$((start - 1))" -execdir sed -i '/\/uv_cache\.json,/d' RECORD \; -delete && \
    find "$site" -name '*.py' -newermt "@$((start - 1))" -exec touch -d @315532800 {} + && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }

FROM installed
"""  # noqa: E501
# Additional lines of that step with `slim:`.
_SLIMS = (
    "    --mount=type=bind,source=slim,target=/run/slim \\\n",
    "    /opt/venv/bin/python /run/slim/slim.py /run/slim/globs.txt && \\\n",
)
# Not where the step behind the stage has it: this is what these steps are known by.
COMPILER = "/run/sources/compile.py"
# Compiles the sources of one set of wheels: the same byte code that the step behind the stage makes
# of all of them.
_COMPILES = r"""RUN --network=none --mount=type=bind,target=/run/sources start=$(date +%s) && \
    site=$(/opt/venv/bin/python -c 'import site; print(site.getsitepackages()[0])') && \
    { PYTHONHASHSEED=0 /opt/venv/bin/python COMPILER "$site" /run/sources/SET || true; } && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
"""
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
_MAKES_ENVIRONMENT = re.compile(
    r"/tools/uv venv [^\n]* /opt/venv && \\\n"
    r" +mv /opt/venv/lib/python3\.\* /opt/venv/lib/python3 && \\\n"
    r" +ln -s python3 /opt/venv/lib/python3\.\d+ && \\\n"
)


def before_wheels(dockerfile: str) -> str | None:
    """Return a Dockerfile's text before the stage of wheels; None if layers cannot replace it."""
    for line in _SLIMS:
        dockerfile = dockerfile.replace(line, "")
    before, parts, _ = dockerfile.partition(_INSTALLS)
    if not parts or dockerfile.count(f"AS {WHEELS_STAGE}\n") != 1:
        return None
    names_it = re.search(rf"^FROM \S+ AS {EMPTY_STAGE}$", before, re.MULTILINE)
    return before if names_it and _MAKES_ENVIRONMENT.search(before) else None


def byte_code_context(sets: Sequence[Iterable[str]]) -> dict[str, str]:
    """Return the build after the stage with the wheels: a layer of byte code for each set of
    sources (paths below site-packages), in their order.
    """
    names = [f"{index}.txt" for index in range(len(sets))]
    steps = (_COMPILES.replace("COMPILER", COMPILER).replace("SET", name) for name in names)
    lists = {name: "\n".join(sorted(paths)) for name, paths in zip(names, sets, strict=True)}
    return {
        "Dockerfile": f"FROM {WHEELS_STAGE}\n{''.join(steps)}",
        "compile.py": _COMPILER,
        **lists,
    }


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
