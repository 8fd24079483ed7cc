"""Lines of files that may be large, packed, cut short or hostile, in bounded memory. Edge."""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from warpfront.errors import InputError
from warpfront.system.store import storing

LONGEST_LINE_BYTES = 16_384
# Carriage returns that a log service (rsyslog: https://www.rsyslog.com/doc/concepts/messageparser.html)
# or `cat -v` wrote as text.
_ENDS = re.compile(rb"(\r|\n|#015|\^M(?![a-z]))")
_CUT_END = re.compile(rb"(?:#|#0|#01|\^|\^M)\Z")
_CHUNK_BYTES = 256 * 1024
_PACKED = b"\x1f\x8b"
_SHORTEST_PACKED = 18
_MARKS_OF_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_MARK_OF_UTF8 = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """A line, from 1 on; not whole if it was too long, or if the file ends in it."""

    number: int
    text: str
    whole: bool = True


def identity_of(path: Path) -> tuple[str, int]:
    """Return the sha256 and the size of a file's bytes as they lie there."""
    with _opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()  # type: ignore[arg-type]


def length_of(path: Path) -> int:
    """Return the number of bytes to read, for progress; of an archive, the size in its trailer."""
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size < _SHORTEST_PACKED or file.read(2) != _PACKED:
            return size
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")


@contextlib.contextmanager
def standard_input() -> Iterator[Path]:
    """Return stdin as a file that can be read twice."""
    with tempfile.NamedTemporaryFile(prefix="warpfront-stdin-") as aside, storing(Path(aside.name)):
        shutil.copyfileobj(sys.stdin.buffer, aside)
        aside.flush()
        yield Path(aside.name)


def read_start(path: Path, most_bytes: int) -> bytes:
    """Return the first bytes, unpacked, and one more than `most_bytes` where there are more."""
    head = bytearray()
    for chunk in _chunks(path):
        head += chunk
        if len(head) > most_bytes:
            break
    return bytes(head[: most_bytes + 1])


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file, unpacked where it is gzip's. A carriage return ends one, too, also
    where it was written as text (`#015`, `^M`), and counts none; bytes that are not UTF-8 become
    U+FFFD; a longer line than `LONGEST_LINE_BYTES` is cut. An archive that is cut short ends in
    a line that is not whole. Raise `InputError` and `StoreError`.
    """
    number, state, is_cut, end = 1, b"", False, b""
    for chunk in _whole_ends(_chunks(path)):
        for piece, line_end in _pieces(chunk):
            is_cut = is_cut or len(state) + len(piece) > LONGEST_LINE_BYTES
            state += piece[: LONGEST_LINE_BYTES - len(state)]
            if not line_end:
                continue
            if state or end + line_end != b"\r\n":
                yield Line(number, state.decode("utf-8", "replace"), not is_cut)
            number += line_end == b"\n"
            state, is_cut, end = b"", False, line_end
    if state:
        yield Line(number, state.decode("utf-8", "replace"), whole=False)


def _pieces(chunk: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the text of each line and its end; the last line has no end."""
    if any(end in chunk for end in (b"\r", b"#015", b"^M")):
        *parts, last = _ENDS.split(chunk)
        yield from zip(parts[::2], parts[1::2], strict=True)
    else:
        *lines, last = chunk.split(b"\n")
        yield from ((line, b"\n") for line in lines)
    yield last, b""


def _whole_ends(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield chunks that no end of a line crosses."""
    partial = b""
    for chunk in chunks:
        whole = partial + chunk
        cut = _CUT_END.search(whole, len(whole) - 3)
        partial = cut[0] if cut else b""
        yield whole.removesuffix(partial) if partial else whole
    yield partial


def _chunks(path: Path) -> Iterator[bytes]:
    """Yield the bytes, unpacked, without a mark of UTF-8."""
    with _opened(path) as file:
        start = file.read(3)
        file.seek(0)
        if start[:2] in _MARKS_OF_UTF16:
            hint = "iconv -f UTF-16 -t UTF-8 makes it readable"
            raise InputError(f"{path}: UTF-16 text", hint=hint)
        if start == _MARK_OF_UTF8:
            file.seek(3)
        read: Callable[[], bytes] = functools.partial(file.read, _CHUNK_BYTES)
        if start[:2] == _PACKED:
            read = gzip.GzipFile(fileobj=file).read1
        # An archive that is truncated or damaged ends there.
        with contextlib.suppress(EOFError, gzip.BadGzipFile, zlib.error):
            while chunk := read():
                yield chunk


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Yield a regular file, without waiting for one that is none."""
    with storing(path):
        if not path.exists():
            raise InputError(f"{path}: no such file")
        if not path.is_file():
            raise InputError(f"{path}: no regular file")
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            yield file
