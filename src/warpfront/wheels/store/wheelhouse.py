"""The wheelhouse: every locked wheel's bytes, by their sha256, fetched once for all cells. Edge.

    <root>/sha256/ab/<hash>/<file name>          whole and verified, read-only; a variant without
                                                 its label, which installers do not read
    <root>/sha256/ab/<hash>/<file name>.part     on its way; the next run goes on from it

A wheel's bytes may come from anywhere the site has them: bytes that do not match their
hash are refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from warpfront.errors import BlockedError, WheelError, without_secrets
from warpfront.system.store import file_aside, folder_aside, scratch_folder, storing, try_lock
from warpfront.wheels.core_metadata import (
    Distribution,
    check_identity,
    info_folder,
    parse_metadata,
)
from warpfront.wheels.lock.values import LockedWheel
from warpfront.wheels.rocm import rocm_wheel
from warpfront.wheels.sources import Link, NoAnswer, Site, links, local_path

if TYPE_CHECKING:
    import requests

    from warpfront.wheels.transport import Transport

T = TypeVar("T")
PARALLEL = 4
PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0)
LONGEST_PAUSE_SECONDS = 60.0
_CHUNK_BYTES = 1 << 18
_LONGEST_FILE_BYTES = 1 << 33  # of files of unknown size
LONGEST_METADATA_BYTES = 1 << 24
UNREADABLE = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What `zipfile` raises of what is damaged, encrypted, or packed as it does not know."""
FORGED = "the file is damaged or forged: have its publisher make it anew, or lock another"

Progress = Callable[[str, int, int], None]
"""Called with (file name, bytes done, bytes in all), from several threads, one call at a time."""

Build = Callable[[Path, Path], Path]
"""Builds an sdist (first path) into a folder (second) and returns the wheel's path."""


class Wheelhouse:
    """A folder of verified wheels, safe for several processes; read-only will do if complete."""

    def __init__(self, root: Path, *, stall_seconds: float = 30.0) -> None:
        self.root = root
        self._stall_seconds = stall_seconds

    def path(self, wheel: LockedWheel) -> Path:
        """Return the path of the wheel's bytes, present or not."""
        return self._folder(wheel.sha256) / wheel.kept_as

    def archive(self, wheel: LockedWheel) -> Path:
        """Return the path of the source archive of a wheel that is built, present or not."""
        return self._folder(wheel.sdist_sha256) / wheel.sdist

    def missing(self, wheels: Iterable[LockedWheel]) -> tuple[LockedWheel, ...]:
        """Return the members of `wheels` that are not here with the bytes of their hash."""
        with storing(self.root):
            return tuple(
                wheel
                for wheel in wheels
                if not is_intact(self.path(wheel), wheel.size_bytes, wheel.sha256)
            )

    def fetch(
        self,
        wheels: Iterable[LockedWheel],
        site: Site,
        *,
        on_progress: Progress,
        build: Build | None = None,
    ) -> tuple[LockedWheel, ...]:
        """Bring every wheel here, verified; four at a time, resumed after a cut. Return those that
        were not here.

        Raise `WheelError` for a wheel that is nowhere intact and `StoreError` if it cannot be
        stored. `build` makes the wheels that their lock names an sdist for. After Ctrl-C only
        `.part` files remain.
        """
        absent = self.missing(dict.fromkeys(wheels))
        with site.transport(stall_seconds=self._stall_seconds) as transport:
            fetching = _Fetching(self, transport, on_progress, build)
            ordered = sorted(absent, key=lambda wheel: -wheel.size_bytes)
            tasks = [partial(fetching.fetch, wheel) for wheel in ordered]
            in_parallel(tasks, threads=PARALLEL, stop=fetching.interrupt)
        return absent

    def keep(self, source: Path) -> tuple[Path, str]:
        """Take a file in under its own hash; its path here and its sha256."""
        with storing(self.root):
            sha256 = sha256_of(source)
            target = self._folder(sha256) / source.name
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                _place(source, target)
        return target, sha256

    def bring(self, link: Link, transport: Transport, label: str) -> tuple[Path, str]:
        """Take in a file of an index, whatever its hash is; its path here and its sha256. Raise
        `BlockedError`, which begins with `label`.
        """
        with scratch_folder() as folder:
            path = folder / link.filename
            failure = save(link, path, transport)
            if failure is not None:
                raise BlockedError(f"{label}: {failure}")
            return self.keep(path)

    def view(self, wheels: Iterable[LockedWheel], folder: Path) -> Path:
        """Return `folder` with exactly these wheels under their own names (hard links where
        possible, else copies).

        A correct folder is not changed; any other is made aside and moved into place.
        """
        wheels_by_name = {wheel.kept_as: wheel for wheel in wheels}
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else None
        if names == set(wheels_by_name) and all(
            _same(folder / name, self.present(wheel)) for name, wheel in wheels_by_name.items()
        ):
            return folder
        with folder_aside(folder) as aside:
            for wheel in wheels_by_name.values():
                _place(self.present(wheel), aside / wheel.kept_as)
        return folder

    def _folder(self, sha256: str) -> Path:
        return self.root / "sha256" / sha256[:2] / sha256

    def drop_damaged(self, wheels: Iterable[LockedWheel], view: Path) -> tuple[LockedWheel, ...]:
        """Remove and return the members of `wheels` whose bytes differ from their hash, here or
        in a view of them, regardless of earlier notes. The next fetch brings them again.
        """
        damaged = []
        for wheel in wheels:
            stored, viewed = self.path(wheel), view / wheel.kept_as
            files = [file for file in (stored, viewed) if file.is_file()]
            read = {file.stat().st_ino: sha256_of(file) for file in files}  # most are one file
            wrong = [file for file in files if read[file.stat().st_ino] != wheel.sha256]
            if wrong:
                damaged.append(wheel)
            with storing(self.root):
                for file in wrong:
                    file.unlink()
        return tuple(damaged)

    def present(self, wheel: LockedWheel) -> Path:
        """Return the path of the wheel's bytes. Raise `WheelError` if they are not here."""
        if self.missing((wheel,)):
            raise WheelError(f"{wheel.filename}: not in the wheelhouse", hint="fetch it first")
        return self.path(wheel)


def read_wheel_metadata(wheel: Path) -> Distribution:
    """Return a wheel's own METADATA. Raise `WheelError` for a file that is no readable wheel,
    and for one whose METADATA, WHEEL or dist-info folder contradicts its file name.
    """
    try:
        with opened_wheel(wheel) as archive:
            members = [member for member in archive.namelist() if not member.endswith("/")]
            info = info_folder(wheel.name, members)
            metadata = parse_metadata(_member_text(archive, f"{info}/METADATA"))
            check_identity(wheel.name, metadata, _member_text(archive, f"{info}/WHEEL"))
            return metadata
    except ValueError as error:
        raise WheelError(f"{wheel.name}: {error}", hint=FORGED) from error


@contextlib.contextmanager
def opened_wheel(wheel: Path) -> Iterator[zipfile.ZipFile]:
    """Raise `WheelError` for what is no readable zip file, or lacks a member that is read."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    except (*UNREADABLE, KeyError) as error:
        raise WheelError(f"{wheel.name}: not a readable wheel: {error}", hint=FORGED) from error


def _member_text(archive: zipfile.ZipFile, member: str) -> str:
    if archive.getinfo(member).file_size > LONGEST_METADATA_BYTES:
        raise zipfile.BadZipFile(f"{member} is longer than metadata is")
    return archive.read(member).decode("utf-8", errors="replace")


def final_requires(metadata: str) -> tuple[str, ...] | None:
    """Return a PKG-INFO's `Requires-Dist`; None if a build may change it (PEP 643)."""
    from packaging.metadata import parse_email  # noqa: PLC0415 - see above

    fields = parse_email(metadata)[0]
    version = fields.get("metadata_version", "1")
    dynamic = {field.lower() for field in fields.get("dynamic", ())}
    if version in {"1", "1.0", "1.1", "1.2", "2.0", "2.1"} or "requires-dist" in dynamic:
        return None
    return tuple(fields.get("requires_dist", ()))


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class Interrupted(Exception):  # noqa: N818 - not an error: another task failed, or Ctrl-C
    """Stop this task's thread. What it has of a wheel stays as `.part`."""


@dataclass
class _Fetching:
    """A run of `Wheelhouse.fetch`: brings one wheel at a time, in any thread."""

    wheelhouse: Wheelhouse
    transport: Transport
    on_progress: Progress
    build: Build | None
    _stop: threading.Event = field(default_factory=threading.Event)
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _answers: set[requests.Response] = field(default_factory=set)

    def fetch(self, wheel: LockedWheel) -> None:
        """Bring `wheel` from the first source that has it, and report its end to `on_progress`."""
        ended_bytes = 0
        target = self.wheelhouse.path(wheel)
        aside = target.with_name(f"{target.name}.part")
        try:
            with storing(self.wheelhouse.root):
                target.parent.mkdir(parents=True, exist_ok=True)
                with _locked(aside, self._stop) as part:
                    if part is None:  # another process brought it meanwhile
                        return
                    if self.wheelhouse.missing((wheel,)):
                        target.unlink(missing_ok=True)  # damaged: no link to it may be taken for it
                        self._fill(wheel, part, target)
                        if not target.exists():
                            aside.chmod(0o444)
                            aside.rename(target)
                        note_intact(target)
                    aside.unlink(missing_ok=True)
            ended_bytes = wheel.size_bytes
        finally:
            self._report(wheel, ended_bytes, ended_bytes)

    def interrupt(self) -> None:
        """Wake the threads that wait for bytes."""
        self._stop.set()
        for answer in tuple(self._answers):
            # It ended by itself meanwhile; urllib3 has several errors for that.
            with contextlib.suppress(ValueError, OSError, RuntimeError):
                answer.raw.shutdown()

    def _fill(self, wheel: LockedWheel, part: FileIO, target: Path) -> None:
        """Place a local file with the wheel's bytes at `target`, or write them into `part`."""
        refused: list[str] = []
        offers = self._offers(wheel.name, wheel.filename, wheel.index, refused)
        if wheel.source and not wheel.sdist:  # its own address first, where it has one
            address = Link(url=wheel.source, filename=wheel.filename)
            offers = itertools.chain([(wheel.source, address)], offers)
        for source, link in offers:
            if link.sha256 not in {"", wheel.sha256}:
                refused.append(f"{source}: offers other bytes (sha256 {link.sha256[:12]}...)")
                continue
            local = local_path(link.url)
            if local is not None:
                failure = _placed_intact(wheel, local, target, link.url)
            else:
                failure = self._bring(wheel, link, part)
            if failure is None:
                return
            refused.append(str(failure))
        if not wheel.sdist:
            raise _out_of_reach(wheel.filename, refused)
        # One that is made for targets needs no tools.
        targets = wheel.targets
        build = partial(rocm_wheel, targets=targets) if targets else self.build
        if build is None:
            raise WheelError(
                f"{wheel.filename}: is built from {wheel.sdist}, and nothing here builds it",
                hint="warpfront lock",
            )
        with tempfile.TemporaryDirectory(dir=self.wheelhouse.root) as folder:
            built = build(self._fetched_sdist(wheel, Path(folder)), Path(folder) / "built")
            _placed_intact(wheel, built, target, f"the wheel built from {wheel.sdist}")

    def _offers(
        self, name: str, filename: str, index: str, refused: list[str]
    ) -> Iterator[tuple[str, Link]]:
        """Yield (source, link) where the file is offered, nearest first; collect refusals."""
        site = self.transport.site
        sources = list(site.sources)
        if index and not site.no_index and index not in site.indexes:
            sources.append((index, False))
        for source, is_flat in sources:
            ask = partial(links, source, name, self.transport, flat=is_flat)
            offered = _retried(ask, self._pause)
            if isinstance(offered, NoAnswer):
                refused.append(str(offered))
                continue
            matching = [link for link in offered if link.filename == filename]
            if not matching:
                refused.append(f"{source}: does not have it")
            yield from ((source, link) for link in matching)

    def _bring(self, wheel: LockedWheel, link: Link, part: FileIO) -> NoAnswer | None:
        """Write the bytes of `link` into `part`, verified; return why it does not give them. It is
        tried again for as long as bytes keep coming; five times without any are enough.
        """
        resumed = (before := _size(part)) > 0
        until = self.transport.deadline(wheel.size_bytes)
        once = partial(self._download, wheel, link, part, until)
        while before != wheel.size_bytes and (failure := _retried(once, self._pause)):
            if failure.lasting or _size(part) <= before:
                return failure
            before = _size(part)
        try:
            _verify(wheel, part, link.url)
        except WheelError:
            part.truncate(0)
            if resumed:  # the old bytes may be what was wrong: once more from the start
                return self._bring(wheel, link, part)
            raise
        return None

    def _download(
        self, wheel: LockedWheel, link: Link, part: FileIO, until: float
    ) -> NoAnswer | None:
        have = _size(part)
        headers = {"Range": f"bytes={have}-"} if have else {}
        answer = self.transport.open(link.url, headers)
        if isinstance(answer, NoAnswer):
            if answer.status == 416:
                part.truncate(0)
                return NoAnswer(url=link.url, reason=answer.reason, status=416)
            return answer
        # Else it starts from the first byte.
        if not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            part.truncate(0)
        self._answers.add(answer)
        try:
            take = partial(self._take, wheel, part)
            failure = self.transport.receive(link.url, answer, take, until=until)
        finally:
            self._answers.discard(answer)
        if failure is not None:
            return failure
        is_page = answer.headers.get("Content-Type", "").startswith("text/html")
        if is_page and _size(part) < wheel.size_bytes:
            part.truncate(0)
            return NoAnswer(url=link.url, reason="sent a page, not a wheel", lasting=True)
        return None

    def _fetched_sdist(self, wheel: LockedWheel, folder: Path) -> Path:
        refused: list[str] = []
        sdist = self.wheelhouse.archive(wheel)
        if sdist.is_file():
            return sdist
        for _, link in self._offers(wheel.name, wheel.sdist, wheel.index, refused):
            path = folder / wheel.sdist
            failure = save(link, path, self.transport)
            if failure is None and sha256_of(path) == wheel.sdist_sha256:
                return path
            refused.append(str(failure or f"{link.url}: other bytes than locked"))
        raise _out_of_reach(wheel.sdist, refused)

    def _take(self, wheel: LockedWheel, part: FileIO, chunk: bytes) -> None:
        if self._stop.is_set():
            raise Interrupted
        unwritten = memoryview(chunk)
        while unwritten:  # a disk that is nearly full takes some of it, and fails at the next write
            unwritten = unwritten[part.write(unwritten) :]
        size = _size(part)
        if size > wheel.size_bytes:
            part.truncate(0)
            raise WheelError(
                f"{wheel.filename}: longer than the {wheel.size_bytes} bytes its lock says",
                hint="the source serves another file under this name",
            )
        if size < wheel.size_bytes:
            self._report(wheel, size, wheel.size_bytes)

    def _report(self, wheel: LockedWheel, done_bytes: int, total_bytes: int) -> None:
        with self._turn:
            self.on_progress(wheel.filename, done_bytes, total_bytes)

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(min(seconds, LONGEST_PAUSE_SECONDS)):
            raise Interrupted


def save(link: Link, path: Path, transport: Transport) -> NoAnswer | None:
    """Save the bytes of `link` as `path`, unverified; return why that failed after a few tries."""
    local = local_path(link.url)
    if local is not None:
        shutil.copyfile(local, path)
        return None
    from warpfront.system.http_answers import read_count  # noqa: PLC0415 - see `Site.transport`

    def saved_once() -> NoAnswer | None:
        answer = transport.open(link.url)
        if isinstance(answer, NoAnswer):
            return answer
        announced = read_count(answer.headers.get("Content-Length", "")) or 0
        most = _LONGEST_FILE_BYTES
        until = transport.deadline(min(announced, most))
        with path.open("wb") as stream:
            return transport.receive(link.url, answer, stream.write, until=until, limit_bytes=most)

    return _retried(saved_once, lambda seconds: time.sleep(min(seconds, LONGEST_PAUSE_SECONDS)))


def _retried(ask: Callable[[], T | NoAnswer], pause: Callable[[float], None]) -> T | NoAnswer:
    """Return the first answer, or the reason that is lasting or that the last try gave."""
    for seconds in PAUSES_SECONDS:
        answer = ask()
        if not isinstance(answer, NoAnswer) or answer.lasting:
            return answer
        pause(max(seconds, answer.after_seconds))
    return ask()


def _out_of_reach(filename: str, refused: list[str]) -> WheelError:
    return WheelError(
        f"{filename}: no source has it intact\n"
        + "\n".join(f"    {line}" for line in dict.fromkeys(refused)),
        hint="make one of these reachable, or put the file into a find-links folder of pip",
    )


def in_parallel(
    tasks: Iterable[Callable[[], T]], *, threads: int | None, stop: Callable[[], None]
) -> list[T]:
    """Return the results of tasks, begun in their order. The first failure, or Ctrl-C, stops the
    others where they are: after `stop` they raise `Interrupted`.
    """
    with ThreadPoolExecutor(threads) as pool:
        try:
            futures = [pool.submit(task) for task in tasks]
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
    for future in futures:
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, Interrupted):
            raise error
    return [future.result() for future in futures]


@contextlib.contextmanager
def _locked(path: Path, stop: threading.Event) -> Iterator[FileIO | None]:
    """Yield `path` open for appending and ours alone; None if another process finished it."""
    while True:
        with path.open("ab+", buffering=0) as stream:
            while not try_lock(stream.fileno()):
                if stop.wait(0.1):
                    raise Interrupted
            try:
                ours = os.fstat(stream.fileno()).st_ino == path.stat().st_ino
            except FileNotFoundError:
                ours = False
            if ours:
                yield stream
                return
            if path.with_suffix("").exists():
                yield None
                return


def _size(part: FileIO) -> int:
    return os.fstat(part.fileno()).st_size


def _verify(wheel: LockedWheel, part: FileIO, source: str) -> None:
    size = _size(part)
    if size != wheel.size_bytes:
        raise WheelError(
            f"{wheel.filename}: {without_secrets(source)} has {size} bytes of it, its lock says "
            f"{wheel.size_bytes}",
            hint="the source holds a truncated or another file; remove it there",
        )
    part.seek(0)
    sha256 = hashlib.file_digest(part, "sha256").hexdigest()
    if sha256 != wheel.sha256:
        raise WheelError(
            f"{wheel.filename}: wrong bytes from {without_secrets(source)}\n"
            f"    its lock says sha256 {wheel.sha256}\n"
            f"    the bytes are    sha256 {sha256}",
            hint="do not use that source until you know why",
        )


def _placed_intact(wheel: LockedWheel, source: Path, target: Path, label: str) -> NoAnswer | None:
    """Place a file as the wheel's, verified; return why it cannot be read."""
    if not os.access(source, os.R_OK):
        reason = "cannot be read" if source.exists() else "no such file"
        return NoAnswer(url=str(source), reason=reason, lasting=True)
    _place(source, target)
    try:
        with target.open("rb", buffering=0) as placed:
            _verify(wheel, placed, label)
    except WheelError:
        target.unlink()
        raise
    return None


def _place(source: Path, target: Path) -> None:
    """`target` as a hard link to `source`, or a copy moved into place."""
    with contextlib.suppress(OSError):  # another filesystem, or not allowed: copied below
        os.link(source, target)
        return
    with file_aside(target) as aside:
        shutil.copyfile(source, aside)
        aside.chmod(0o444)
        os.utime(aside, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))


def _same(first: Path, other: Path) -> bool:
    """Return true for the same file, or an unchanged copy of it."""
    if not first.is_file():
        return False
    mine, theirs = first.stat(), other.stat()
    return (mine.st_size, mine.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns)


def _identity(path: Path) -> str:
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


def is_intact(path: Path, size_bytes: int, sha256: str) -> bool:
    """Return true if a file has this size and hash; it is read again only if it changed."""
    if not path.is_file() or path.stat().st_size != size_bytes:
        return False
    with contextlib.suppress(OSError):
        if _mark(path).read_bytes() == _identity(path).encode():
            return True
    if sha256_of(path) != sha256:
        return False
    note_intact(path)
    return True


def note_intact(path: Path) -> None:
    """Record that this file has the bytes of its folder's name."""
    with contextlib.suppress(OSError):  # a read-only wheelhouse is hashed each time
        _mark(path).write_text(_identity(path), "utf-8")


def _mark(path: Path) -> Path:
    return path.with_name(f".{path.name}.intact")
