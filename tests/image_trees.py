"""What is in an image, file by file, and how two images differ."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from warpfront.images.engine.protocol import Engine, RunRequest

# What the engine puts into every container, and what is no part of an image.
_LISTING = """
import hashlib, json, os, stat
apart = {"/proc", "/sys", "/dev", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/.dockerenv"}
for where, folders, names in os.walk("/"):
    folders[:] = [one for one in folders if os.path.join(where, one) not in apart]
    for name in [*folders, *names]:
        path = os.path.join(where, name)
        if path in apart:
            continue
        found = os.lstat(path)
        kind, content = stat.filemode(found.st_mode), ""
        if stat.S_ISREG(found.st_mode):
            with open(path, "rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        elif stat.S_ISLNK(found.st_mode):
            content = os.readlink(path)
        print(json.dumps([path, [kind, found.st_uid, found.st_gid, int(found.st_mtime), content]]))
"""

Tree = Mapping[str, list[object]]


@dataclass(frozen=True, slots=True)
class Allowed:
    """A difference that is known: which paths, in what (`content`, `age`, `presence`), and why."""

    path: str
    what: str
    why: str


def read_allowed(path: Path) -> tuple[Allowed, ...]:
    document = tomllib.loads(path.read_text("utf-8"))
    return tuple(Allowed(**one) for one in document["difference"])


def tree_of(engine: Engine, image: str) -> Tree:
    """Path -> type and mode, owner, age, and the content's hash or the link's target."""
    lines: list[str] = []
    request = RunRequest(
        image=image, command=("python3.11", "-I", "-c", _LISTING), time_limit_seconds=900
    )
    assert engine.run(request, on_line=lines.append).exit_code == 0, lines[-5:]
    return dict(json.loads(line) for line in lines)


def differences(one: Tree, other: Tree) -> set[tuple[str, str]]:
    """(path, what differs) of all that differs."""
    found = {(path, "presence") for path in set(one) ^ set(other)}
    for path in set(one) & set(other):
        (kind, user, group, age, content), theirs = one[path], other[path]
        if [kind, user, group] != theirs[:3]:
            found.add((path, "mode"))
        if age != theirs[3]:
            found.add((path, "age"))
        if content != theirs[4]:
            found.add((path, "content"))
    return found


def unexplained(
    found: set[tuple[str, str]], allowed: tuple[Allowed, ...]
) -> tuple[set[tuple[str, str]], set[Allowed]]:
    """The differences that nobody allowed, and what is allowed and does not occur."""
    used: set[Allowed] = set()
    left = set()
    for path, what in found:
        fitting = [one for one in allowed if one.what == what and fnmatchcase(path, one.path)]
        used.update(fitting)
        if not fitting:
            left.add((path, what))
    return left, set(allowed) - used
