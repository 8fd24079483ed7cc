"""Lines of files whatever is in them: long, packed, cut short, not text."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from warpfront.errors import InputError
from warpfront.system import lines as module
from warpfront.system.lines import (
    LONGEST_LINE_BYTES,
    Line,
    identity_of,
    length_of,
    read_lines,
    read_start,
    standard_input,
)


def lines_of(folder: Path, content: bytes) -> list[Line]:
    path = folder / "a.log"
    path.write_bytes(content)
    return list(read_lines(path))


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"", []),
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"10%\r20%\r30%\n", ["10%", "20%", "30%"]),
        (b"10%\r" * 5000 + b"100%\n", ["10%"] * 5000 + ["100%"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        (b"a\x00b\n\xff\xfe\n", ["a\x00b", "��"]),
        (gzip.compress(b"a\nb\n", mtime=0), ["a", "b"]),
        (b"\n\n", ["", ""]),
    ],
)
def test_lines_are_read_whatever_ends_them(
    tmp_path: Path, content: bytes, texts: list[str]
) -> None:
    assert [line.text for line in lines_of(tmp_path, content)] == texts


def test_an_end_of_two_bytes_between_two_chunks_ends_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", 3)
    assert lines_of(tmp_path, b"ab\r\nc\r\nd\n") == [Line(1, "ab"), Line(2, "c"), Line(3, "d")]


def test_an_archive_says_how_much_is_in_it(tmp_path: Path) -> None:
    packed, plain, short = (tmp_path / name for name in ("a.gz", "b", "c.gz"))
    packed.write_bytes(gzip.compress(b"x" * 70_000))
    plain.write_bytes(b"x" * 700)
    short.write_bytes(b"\x1f\x8b")
    assert [length_of(path) for path in (packed, plain, short)] == [70_000, 700, 2]


def test_a_line_without_an_end_is_not_whole(tmp_path: Path) -> None:
    assert [line.whole for line in lines_of(tmp_path, b"a\nb")] == [True, False]


def test_a_line_is_cut_where_it_is_too_long_and_the_next_is_read(tmp_path: Path) -> None:
    first, second = lines_of(tmp_path, b"x" * 3_000_000 + b"\nb\n")
    assert (len(first.text), first.whole) == (LONGEST_LINE_BYTES, False)
    assert second == Line(2, "b")


def test_no_more_of_a_long_line_is_held_than_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 MB in one line, served as a stream that counts how far ahead it was asked."""
    asked: list[int] = []

    class Stream(io.RawIOBase):
        left = 20_000_000

        def read(self, size: int = -1) -> bytes:
            asked.append(size)
            Stream.left -= size
            return b"x" * size if Stream.left > 0 else b""

        def seek(self, *_: int) -> int:
            return 0

    def opened(_path: Path) -> Iterator[Stream]:
        yield Stream()

    monkeypatch.setattr(module, "_opened", contextlib.contextmanager(opened))
    (line,) = read_lines(tmp_path)
    assert len(line.text) == LONGEST_LINE_BYTES
    assert max(asked) <= module._CHUNK_BYTES


@pytest.mark.parametrize("left", [-8, -40, 12])
def test_what_an_archive_that_is_cut_short_held_before_is_read(tmp_path: Path, left: int) -> None:
    content = gzip.compress(os.urandom(20_000).hex().encode() + b"\n")[:left]
    assert [line.whole for line in lines_of(tmp_path, content)] in ([False], [])


def test_an_archive_with_a_broken_middle_ends_there(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"".join(b"line %d\n" % n for n in range(5_000))))
    packed[len(packed) // 2] ^= 0xFF
    found = lines_of(tmp_path, bytes(packed))
    assert len(found) <= 5_000


def test_utf_16_is_named_and_not_read_as_noise(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="UTF-16"):
        lines_of(tmp_path, "step 1\n".encode("utf-16"))


def test_what_is_no_file_is_an_error_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, match in (("none", "no such file"), (".", "no regular file"), ("fifo", "no regular")):
        with pytest.raises(InputError, match=match):
            list(read_lines(tmp_path / name))


def test_a_file_is_known_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(gzip.compress(b"a\n", mtime=0))
    assert identity_of(path)[1] == path.stat().st_size
    assert (read_start(path, 1), read_start(path, 10)) == (b"a\n", b"a\n")


def test_stdin_can_be_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
    with standard_input() as path:
        assert [len(list(read_lines(path))) for _ in range(2)] == [2, 2]
    assert not path.exists()


@pytest.mark.parametrize("end", ["#015", "^M", "\r"])
def test_a_carriage_return_that_was_written_as_text_ends_a_line(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"head\n{end}  0%| | 0/9{end} 11%|# | 1/9{end} 22%|## | 2/9\ntail ^Model\n"
    path = tmp_path / "syslog"
    path.write_text(text)
    right = [(1, "head"), (2, "  0%| | 0/9"), (2, " 11%|# | 1/9"), (2, " 22%|## | 2/9")]
    for size in range(1, len(text)):
        monkeypatch.setattr(module, "_CHUNK_BYTES", size)
        read = [(line.number, line.text) for line in read_lines(path) if line.text]
        assert read == [*right, (3, "tail ^Model")]
