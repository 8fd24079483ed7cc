"""Requirements of an image's file: distributions of an index, and sources. Pure.

A source is a folder of the project, a commit of a git repository, or one wheel by its address. Each
is pinned by content (a hash, a commit), never by its place.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from urllib.parse import parse_qs, unquote, urldefrag, urlsplit

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from warpfront.errors import LockError
from warpfront.matrix.cell import RequirementList, Source
from warpfront.wheels.core_metadata import (
    EDITABLE,
    INCLUDES,
    foreign_requirement,
    read_lines,
    split_label,
    wheel_name,
)

_PATH = re.compile(r"(?P<path>\.{1,2}(?:/[^\[\];\s]*)?)(?:\[(?P<extras>[^\]]*)\])?\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_URL = re.compile(r"[a-z+]+:(//|/)?")


def read_requirements(
    path: str,
    read: Callable[[str], str],
    *,
    inside: Callable[[str], bool],
    within: tuple[str, ...] = (),
) -> RequirementList:
    """Return the requirements of a file and of those that it includes with `-r`, each in its place.

    `path` is below the project; `read` returns the text of such a path, and `inside` whether it is
    in the project once its links are resolved; `within` are the files that include this one.
    Nothing outside is read. `-e` means the same as the path after it: an image has no live source
    tree. All other options (`-c`, `--index-url`, `--hash` ...) are refused: a lock has one list of
    requirements and the matrix's indexes.
    """
    if not within and not inside(path):
        raise _outside(path, "the file")
    requirements: list[str] = []
    sources: list[Source] = []
    for line in read_lines(read(path)):
        where = f"{path}:{line.start}"
        option, value = line.option
        if option in INCLUDES and value:
            outer = (*within, path)
            below = posixpath.normpath(posixpath.join(posixpath.dirname(path), value))
            if below.startswith(("..", "/")) or _URL.match(value) or not inside(below):
                raise _outside(where, without_query(value))
            if below in outer:
                raise LockError(f"{where}: {value} includes itself: {' -> '.join((*outer, below))}")
            more = read_requirements(below, read, inside=inside, within=outer)
            requirements += more.requirements
            sources += more.sources
            continue
        text = value if option in EDITABLE and value else line.text
        parsed = _read_line(text, path=path, where=where)
        if isinstance(parsed, Source):
            if (folder := _here(parsed)) and not inside(folder):
                raise _outside(where, without_query(text))
            sources.append(parsed)
        else:
            requirements.append(parsed)
    return RequirementList(requirements=tuple(requirements), sources=tuple(sources))


def _outside(where: str, subject: str) -> LockError:
    return LockError(
        f"{where}: {subject} is outside the project, or a link that leads out of it",
        hint="keep the file or folder in the project, or name a commit: git+https://...@<commit>",
    )


def _here(source: Source) -> str:
    """Return the path of a source that lies on this machine; "" for others."""
    if source.kind == "folder":
        return source.location
    parts = urlsplit(source.location)
    return unquote(parts.path) if parts.scheme == "file" else ""


def _read_line(line: str, *, path: str, where: str) -> str | Source:
    option = next((word for word in line.split() if word.startswith("-")), None)
    if option is not None:
        raise LockError(
            f"{where}: {option.partition('=')[0]} is an option, not a requirement",
            hint="write requirements only: indexes come from matrix.yaml and pip's configuration, "
            "hashes from the lock",
        )
    folder = _PATH.match(line)
    if folder is not None:
        below = posixpath.normpath(posixpath.join(posixpath.dirname(path), folder["path"]))
        if below.startswith(".."):
            raise _outside(where, folder["path"])
        named = (extra.strip() for extra in (folder["extras"] or "").split(","))
        return Source(kind="folder", location=below, extras=tuple(sorted(filter(None, named))))
    if _URL.match(line):
        return _read_address(line, name="", extras=(), where=where)
    try:
        requirement = foreign_requirement(line)
    except InvalidRequirement as error:
        raise LockError(f"{where}: not a requirement: {str(error).splitlines()[0]}") from error
    if not requirement.url:
        return str(requirement)
    if requirement.marker is not None:
        raise LockError(
            f"{where}: a source with a marker", hint="an image has one platform: drop the marker"
        )
    extras = tuple(sorted(requirement.extras))
    name = canonicalize_name(requirement.name)
    return _read_address(requirement.url, name=name, extras=extras, where=where)


def _read_address(url: str, *, name: str, extras: tuple[str, ...], where: str) -> Source:
    if "@" in urlsplit(url).netloc:
        raise LockError(
            f"{where}: an address with a user name or password",
            hint="git takes them from its credential helper, pip from netrc",
        )
    bare, fragment = urldefrag(url)
    facts = {key: values[-1] for key, values in parse_qs(fragment).items()}
    name = name or canonicalize_name(facts.get("egg", ""))
    if bare.startswith("git+"):
        location, separator, commit = bare.removeprefix("git+").rpartition("@")
        if not separator or not _COMMIT.match(commit):
            raise LockError(
                f"{where}: {bare} names no commit",
                hint="branches and tags move: write @ and the 40 digits of the commit",
            )
        if not location.startswith(("https://", "file:///")):
            raise LockError(
                f"{where}: {bare}: only git+https:// is fetched", hint="use its address"
            )
        subdirectory = facts.get("subdirectory", "")
        if subdirectory and (
            ".." in PurePosixPath(subdirectory).parts or subdirectory.startswith("/")
        ):
            raise LockError(f"{where}: subdirectory {subdirectory} is outside its repository")
        return Source(
            kind="git",
            location=location,
            name=name,
            extras=extras,
            subdirectory=subdirectory,
            pin=commit,
        )
    if bare.startswith(("https://", "http://", "file://")) and bare.endswith(".whl"):
        return _read_wheel_address(bare, facts, extras=extras, where=where)
    raise LockError(
        f"{where}: {without_query(url)} is neither a wheel nor a git repository",
        hint="write a path (./package), git+https://...@<commit>, or https://....whl#sha256=...",
    )


def _read_wheel_address(
    url: str, facts: dict[str, str], *, extras: tuple[str, ...], where: str
) -> Source:
    plain, label = split_label(unquote(urlsplit(url).path.rpartition("/")[2]))
    if label:
        name, version, *_ = plain.split("-")
        raise LockError(
            f"{where}: {name} of the variant {label} by its address: a cell's target chooses its "
            "variant",
            hint=f"write {name}=={version} here; in matrix.yaml `allow_variants: [{name}]`, and "
            "its index below `indexes:` (docs/locks.md, Wheel variants)",
        )
    sha256 = facts.get("sha256", "")
    if not _SHA256.match(sha256):
        raise LockError(
            f"{where}: {url} has no hash", hint="add #sha256= and the 64 digits of the wheel's hash"
        )
    name = wheel_name(url)
    if not name:
        raise LockError(f"{where}: {without_query(url)} does not end in a wheel's name")
    return Source(kind="wheel", location=url, name=name, extras=extras, pin=sha256)


def without_query(url: str) -> str:
    """Return `url` without the parts that may contain a token."""
    return url.partition("?")[0].partition("#")[0]
