"""Sources as archives: the files of a folder or commit as a tar that depends on nothing else. Edge.

Compression, times, owners and the order of a file system do not go into it, so that its sha256
shows whether the files are the same. Of a source archive of an index, the few files can be read
that say what its package demands.

Wheels are written uncompressed: two machines' zlib need not make the same bytes of the same file. A
wheel of metadata alone has what sources state before they are built: PKG-INFO, or static fields of
pyproject.toml. No code of theirs runs.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import stat
import tomllib
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename
from packaging.version import Version

try:
    from backports import tarfile
except ImportError:
    import tarfile  # since 3.11.4 it refuses members that lead out of a folder, too

from warpfront.errors import CommandFailedError, LockError, StoreError
from warpfront.system.process import Command, run
from warpfront.system.store import read_text, scratch_folder, storing
from warpfront.wheels.core_metadata import (
    Distribution,
    metadata_text,
    parse_metadata,
    recorded_hash,
)

# Results of builds, tests and version control among sources; and our own locks, which change when
# what they lock does.
LEFT_OUT = (
    "__pycache__",
    "*.pyc",
    "*.egg-info",
    "build",
    "dist",
    "node_modules",
    ".git",
    ".hg",
    ".venv",
    "venv",
    ".nox",
    ".tox",
    ".*_cache",
    "images/locks",
)
_EPOCH_SECONDS = 315532800  # 1980, the first year that a wheel's zip can say
_GIT_SECONDS = 600


def folder_sha256(folder: Path) -> str:
    """Return the sha256 of the archive of a folder."""
    digest = hashlib.sha256()
    _write_archive(folder, SimpleNamespace(write=digest.update))
    return digest.hexdigest()


def archive_folder(folder: Path, target: Path) -> Path:
    """Return the files of `folder` as the tar `target`, without `LEFT_OUT`."""
    with storing(target), target.open("wb") as stream:
        _write_archive(folder, stream)
    return target


def archive_commit(url: str, commit: str, target: Path, *, subdirectory: str) -> Path:
    """Return the files of a commit of the git repository at `url`, its submodules' included, as
    the tar `target`. Raise `CommandFailedError` with git's own words.
    """
    with scratch_folder() as folder:
        for arguments in (
            ("init", "--quiet"),
            ("fetch", "--quiet", "--depth=1", url, commit),
            ("checkout", "--quiet", "--detach", commit),
            ("submodule", "--quiet", "update", "--init", "--recursive", "--depth=1"),
        ):
            # Without anybody's hooks, prompts or settings of its user's repositories.
            command = Command(
                argv=("git", "-c", "core.hooksPath=/dev/null", *arguments),
                cwd=folder,
                environment={"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"},
                timeout_seconds=_GIT_SECONDS,
                unset=("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"),
            )
            run(command).check(hint=f"is {commit} a commit of {url}?")
        chosen = folder / subdirectory
        if not chosen.is_dir():
            raise CommandFailedError(f"{url}@{commit} has no folder {subdirectory}")
        return archive_folder(chosen, target)


def unpack(archive: Path, folder: Path) -> Path:
    """Return the project in an archive, in `folder`: an sdist's own folder, or all of our tar."""
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with tarfile.open(archive) as opened:
                opened.extractall(folder, filter="data")
        except tarfile.TarError as error:
            raise LockError(f"{archive.name}: not an archive of sources: {error}") from error
        paths = list(folder.iterdir())
        return paths[0] if len(paths) == 1 and paths[0].is_dir() else folder


def _write_archive(folder: Path, stream: Any) -> None:
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder", hint="a requirements file names it")
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(_files(folder)):
            # Its bytes, its name, and whether it is executable.
            status = (folder / path).lstat()
            member = tarfile.TarInfo(path)
            member.mtime = _EPOCH_SECONDS
            if stat.S_ISLNK(status.st_mode):
                member.type, member.linkname = tarfile.SYMTYPE, str((folder / path).readlink())
                archive.addfile(member)
            elif stat.S_ISREG(status.st_mode):
                member.size = status.st_size
                member.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
                with (folder / path).open("rb") as content:
                    archive.addfile(member, content)


def _files(folder: Path) -> Iterator[str]:
    """Return every file and link below `folder` that is a source."""
    for place, folders, names in os.walk(folder):
        below = Path(place).relative_to(folder)
        folders[:] = [name for name in folders if not _left_out(below / name)]
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        yield from (
            (below / name).as_posix() for name in (*names, *links) if not _left_out(below / name)
        )


def _left_out(path: Path) -> bool:
    return any(fnmatch(path.name, pattern) or path.as_posix() == pattern for pattern in LEFT_OUT)


LONGEST_ARCHIVE_BYTES = 32 * 2**20
_LONGEST_FILE_BYTES = 2**20
_LONGEST_UNPACKED_BYTES = 512 * 2**20
_UNREADABLE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
)
# At its top: metadata, the files of a project; and lists of requirements, two folders deep at most.
_WANTED = re.compile(
    r"[^/]+/(PKG-INFO|pyproject\.toml|setup\.(cfg|py)|([^/]+/){0,2}[^/]+\.(txt|in))\Z"
)


def unpack_project_files(archive: Path, folder: Path) -> Path | None:
    """Write these files of an sdist (`.tar.gz` or `.zip`) below `folder`. Return the project's
    folder; None where the archive has none or cannot be read.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                for entry in packed.infolist():
                    if _is_wanted(entry.filename, entry.file_size):
                        packed.extract(entry, folder)
        else:
            with tarfile.open(archive, "r:gz") as opened:
                for member in opened:
                    if member.offset_data > _LONGEST_UNPACKED_BYTES:
                        return None
                    if member.isreg() and _is_wanted(member.name, member.size):
                        opened.extract(member, folder, filter="data")
    except _UNREADABLE:
        return None
    return next((path for path in sorted(folder.iterdir()) if path.is_dir()), None)


def _is_wanted(name: str, size_bytes: int) -> bool:
    is_inside = _WANTED.match(name) is not None and ".." not in name
    return is_inside and size_bytes <= _LONGEST_FILE_BYTES


_EPOCH = (1980, 1, 1, 0, 0, 0)
_WHEEL = "Wheel-Version: 1.0\nGenerator: warpfront\nRoot-Is-Purelib: true\n"
_CHUNK_BYTES = 1 << 20


def write_wheel(path: Path, metadata: str, content: Mapping[str, bytes] | None = None) -> Path:
    """Return the wheel `path` with this METADATA and these files, for the tags of its name."""
    info = "-".join(path.name.split("-")[:2]) + ".dist-info"
    tags = sorted(map(str, parse_wheel_filename(path.name)[3]))
    wheel = _WHEEL + "".join(f"Tag: {tag}\n" for tag in tags)
    texts = {f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": wheel.encode()}
    return pack_wheel(path, {**(content or {}), **texts}, info=info)


def write_stand_in(filename: str, folder: Path, *, requires: Iterable[str] = ()) -> Path:
    """Return a wheel of nothing but its demands."""
    name, version, _, _ = parse_wheel_filename(filename)
    metadata = Distribution(name=name, version=str(version), requires=tuple(requires))
    return write_wheel(folder / filename, metadata_text(metadata))


def pack_wheel(path: Path, content: Mapping[str, bytes | Path], *, info: str) -> Path:
    """Return the wheel `path` with these files, in their order, and their RECORD below `info`."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        rows.writerows(_add(archive, name, source) for name, source in content.items())
        rows.writerow((f"{info}/RECORD", "", ""))
        _add(archive, f"{info}/RECORD", text.getvalue().encode())
    return path


def _add(archive: zipfile.ZipFile, name: str, source: bytes | Path) -> tuple[str, str, int]:
    """Add a file, and return its row of RECORD."""
    entry, digest = zipfile.ZipInfo(name, _EPOCH), hashlib.sha256()
    is_program = isinstance(source, Path) and source.stat().st_mode & stat.S_IXUSR
    entry.external_attr = (0o100755 if is_program else 0o100644) << 16
    entry.file_size = source.stat().st_size if isinstance(source, Path) else len(source)
    opened = source.open("rb") if isinstance(source, Path) else io.BytesIO(source)
    with opened, archive.open(entry, "w") as target:
        while chunk := opened.read(_CHUNK_BYTES):
            digest.update(chunk)
            target.write(chunk)
    return name, recorded_hash(digest.hexdigest()), entry.file_size


PKG_INFO, PYPROJECT = "PKG-INFO", "pyproject.toml"
_UNKNOWN_VERSION = "0"


def metadata_wheel(archive: Path, name: str, folder: Path) -> tuple[Path, str]:
    """Return a wheel without files for the sources in `archive`, to resolve with, and the file that
    states its metadata. Where none does: version 0, no demands and "".
    """
    metadata, stated_by = _stated(unpack(archive, folder / "unpacked"), name)
    filename = f"{name.replace('-', '_')}-{metadata.version}-py3-none-any.whl"
    return write_wheel(folder / filename, metadata_text(replace(metadata, name=name))), stated_by


def _stated(root: Path, name: str) -> tuple[Distribution, str]:
    try:
        metadata = parse_metadata(read_text(root / PKG_INFO, missing_ok=True) or "")
        return _normal(metadata), PKG_INFO
    except ValueError:  # there is none, or an incomplete one
        pass
    try:
        document = tomllib.loads(read_text(root / PYPROJECT, missing_ok=True) or "")
        return _normal(_of_project(document["project"], name)), PYPROJECT
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return Distribution(name=name, version=_UNKNOWN_VERSION), ""


def _normal(metadata: Distribution) -> Distribution:
    """Return the metadata with its version in normal form. Raise `ValueError` for none."""
    requires = tuple(str(Requirement(text)) for text in metadata.requires)
    return replace(metadata, version=str(Version(metadata.version)), requires=requires)


def _of_project(project: Mapping[str, Any], name: str) -> Distribution:
    """Return static metadata. Raise `KeyError` where a field that is needed is dynamic."""
    if {"dependencies", "optional-dependencies"} & {*project.get("dynamic", ())}:
        raise KeyError("dependencies")
    optional: Mapping[str, list[str]] = project.get("optional-dependencies", {})
    requires = [*project.get("dependencies", ())]
    for extra, texts in optional.items():
        for requirement in map(Requirement, texts):
            condition = f"({requirement.marker}) and " if requirement.marker else ""
            requirement.marker = Marker(f'{condition}extra == "{extra}"')
            requires.append(str(requirement))
    return Distribution(
        name=name,
        version=project["version"],
        requires=tuple(requires),
        requires_python=project.get("requires-python", ""),
        extras=tuple(optional),
    )
