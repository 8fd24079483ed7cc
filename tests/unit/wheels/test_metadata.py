"""A wheel's metadata is read out of the wheel where it lies."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest
from standins import serve_index, stand_in_wheel

from warpfront.wheels.core_metadata import requires_of
from warpfront.wheels.metadata import read_small_members
from warpfront.wheels.sources import Site

NEEDS = ("torch==2.8.0", "numpy>=1.26; python_version < '3.12'")


def wheel_in(folder: Path) -> Path:
    large = {"engine/data.bin": os.urandom(1 << 20)}
    return stand_in_wheel(folder, "engine", "1.0", requires=NEEDS, files=large)


def test_metadata_is_read_by_ranges_and_the_rest_stays_there(tmp_path: Path) -> None:
    wheel = wheel_in(tmp_path)
    with serve_index(tmp_path) as index, Site().transport() as transport:
        texts = read_small_members(f"{index.url}/{wheel.name}", transport, ("METADATA",))
        assert texts is not None
        assert requires_of(texts["METADATA"]) == NEEDS
        ranges = [one for one in index.downloads(wheel.name) if one]
    read = sum(int(last) - int(first) + 1 for first, last in (one[6:].split("-") for one in ranges))
    assert 0 < read < wheel.stat().st_size / 4


@pytest.mark.parametrize("name", ["engine-1.0-py3-none-any.whl", "missing-1.0-py3-none-any.whl"])
def test_where_there_are_no_ranges_or_no_wheel_nothing_is_made_up(
    tmp_path: Path, name: str
) -> None:
    wheel_in(tmp_path)
    with serve_index(tmp_path) as index, Site().transport() as transport:
        index.ranges = False
        assert read_small_members(f"{index.url}/{name}", transport, ("METADATA",)) is None


def test_a_file_that_is_no_wheel_has_no_metadata(tmp_path: Path) -> None:
    (tmp_path / "engine-1.0-py3-none-any.whl").write_bytes(b"x" * 5000)
    with serve_index(tmp_path) as index, Site().transport() as transport:
        url = f"{index.url}/engine-1.0-py3-none-any.whl"
        assert read_small_members(url, transport, ("METADATA",)) is None


class Endless:
    """An answer to a range that has no end."""

    status_code = 206

    def __init__(self) -> None:
        self.raw = self
        self.sent = 0

    def read1(self, _size: int, *, decode_content: bool) -> bytes:
        assert not decode_content
        self.sent += 1 << 18
        assert self.sent < 1 << 22, "nobody counts what comes"
        return bytes(1 << 18)

    @property
    def content(self) -> bytes:
        return b"".join(iter(lambda: self.read1(0, decode_content=False), b""))

    def close(self) -> None:
        """It never ends by itself."""


def test_a_range_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with Site().transport() as transport:
        monkeypatch.setattr(transport, "size_bytes", lambda _: 1 << 20)
        monkeypatch.setattr(transport, "open", lambda *_: Endless())
        assert (
            read_small_members("https://x.org/app-1-py3-none-any.whl", transport, ("METADATA",))
            is None
        )


def test_a_directory_that_is_as_long_as_a_disk_is_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size, directory = 1 << 32, 0xF0000000
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, directory, size - directory - 22, 0)

    def opened(_url: str, headers: dict[str, str]) -> SimpleNamespace:
        first, last = (int(one) for one in headers["Range"].removeprefix("bytes=").split("-"))
        assert last - first < 1 << 27
        body = io.BytesIO(bytes(last + 1 - first - len(end)) + end)
        raw = SimpleNamespace(read1=lambda size, **_: body.read(size))
        return SimpleNamespace(status_code=206, raw=raw, close=lambda: None)

    with Site().transport() as transport:
        monkeypatch.setattr(transport, "size_bytes", lambda _: size)
        monkeypatch.setattr(transport, "open", opened)
        assert (
            read_small_members("https://x.org/app-1-py3-none-any.whl", transport, ("METADATA",))
            is None
        )
