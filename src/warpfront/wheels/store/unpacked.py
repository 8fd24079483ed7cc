"""Files of a wheel in site-packages: size and sha256 of each, from the wheel's own bytes. Edge.

A wheel's RECORD claims the same, but its author may write anything: the bytes are read once for
each wheel and compared with RECORD, and the result is stored with the wheel.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from warpfront.errors import StoreError, WheelError
from warpfront.system.store import write_text
from warpfront.wheels.core_metadata import installed_path, recorded_hash
from warpfront.wheels.lock.values import LockedWheel
from warpfront.wheels.store.wheelhouse import FORGED, Wheelhouse, opened_wheel
from warpfront_checks.guard.manifest import Measured
from warpfront_checks.guard.measuring import is_sealed

# Version of the unpacking rules: notes of other versions are not used.
_RULES = "1"
_CHUNK_BYTES = 1 << 18
_RECORD = re.compile(r"[^/]+\.dist-info/RECORD")


def stays(globs: Iterable[str]) -> Callable[[str], bool]:
    """Return a test for paths below site-packages that remain in an image without these globs."""
    every = tuple(globs)
    return lambda path: not any(fnmatchcase(path, pattern) for pattern in every)


def unpacked_files(
    wheelhouse: Wheelhouse, wheel: LockedWheel, slim: Iterable[str] = ()
) -> dict[str, Measured]:
    """Return path below site-packages -> size and sha256, without files that installers write
    anew and those of the globs `slim`. Read once for each wheel. Raise `WheelError` if RECORD
    contradicts the wheel.
    """
    path, stays_in = wheelhouse.present(wheel), stays(slim)
    digest, text = "", ""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        digest, _, text = _note(path).read_text("utf-8").partition("\n")
    if text and _digest(text) == digest:
        files = json.loads(text)
    else:  # missing or damaged
        files = read_unpacked(path)
        text = json.dumps(files, separators=(",", ":"), sort_keys=True)
        with contextlib.suppress(StoreError):  # a read-only wheelhouse is read each time
            write_text(_note(path), f"{_digest(text)}\n{text}")
    return {name: measured for name, measured in files.items() if stays_in(name)}


def _note(path: Path) -> Path:
    return path.with_name(f".{path.name}.unpacked-{_RULES}")


def read_members(path: Path) -> dict[str, Measured]:
    """Return the size and digest of each member of a wheel. Raise `WheelError`."""

    def measured(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Measured:
        digest, size = hashlib.sha256(), 0
        with archive.open(member) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
        return [size, digest.hexdigest()]

    with opened_wheel(path) as archive, ThreadPoolExecutor() as pool:
        members = [member for member in archive.infolist() if not member.is_dir()]
        # Unpacking and hashing release the interpreter's lock.
        sums = pool.map(partial(measured, archive), members)
        return {member.filename: digest for member, digest in zip(members, sums, strict=True)}


def read_unpacked(path: Path) -> dict[str, Measured]:
    """Return all files below site-packages. Raise `WheelError` if RECORD contradicts a member."""
    measured = read_members(path)
    try:
        with opened_wheel(path) as archive:
            problem = next(_record_problems(archive, measured), "")
    except (csv.Error, ValueError) as error:
        problem = f"its RECORD cannot be read: {error}"
    if problem:
        raise WheelError(f"{path.name}: {problem}", hint=FORGED)
    placed = ((installed_path(name), entry) for name, entry in sorted(measured.items()))
    return {name: entry for name, entry in placed if name and is_sealed(name)}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _record_problems(archive: zipfile.ZipFile, measured: Mapping[str, Measured]) -> Iterator[str]:
    names = [member.filename for member in archive.infolist() if not member.is_dir()]
    # Installers differ on which of two members of one name they take.
    twice, times = Counter(names).most_common(1)[0]
    if times > 1:
        yield f"holds {twice} {times} times"
    records = [name for name in names if _RECORD.fullmatch(name)]
    if len(records) != 1:
        yield f"holds {len(records)} RECORDs, not one"
    record = records[0]
    rows = csv.reader(io.StringIO(archive.read(record).decode("utf-8")), strict=True)
    recorded = {row[0]: row[1] if len(row) > 1 else "" for row in rows if row}
    for name, (_, sha256) in measured.items():
        if name in {record, f"{record}.jws", f"{record}.p7s"}:  # the signatures are of RECORD
            continue
        if name not in recorded:
            yield f"its RECORD does not list {name}"
        elif recorded[name].startswith("sha256=") and recorded[name] != recorded_hash(sha256):
            yield f"its RECORD says {recorded[name]} of {name}, which has another"
    gone = sorted(name for name in set(recorded) - set(measured) if not name.endswith(".pyc"))
    if gone:
        yield f"its RECORD lists {gone[0]}, which it does not hold"
