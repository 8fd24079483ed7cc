"""A wheel's metadata is read out of the wheel where it lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from standins import serve_index, stand_in_wheel

from warpfront.wheels.metadata import read_remote_requires
from warpfront.wheels.sources import Site

NEEDS = ("torch==2.8.0", "numpy>=1.26; python_version < '3.12'")


def wheel_in(folder: Path) -> Path:
    large = {"engine/data.bin": os.urandom(1 << 20)}
    return stand_in_wheel(folder, "engine", "1.0", requires=NEEDS, files=large)


def test_metadata_is_read_by_ranges_and_the_rest_stays_there(tmp_path: Path) -> None:
    wheel = wheel_in(tmp_path)
    with serve_index(tmp_path) as index, Site().transport() as transport:
        assert read_remote_requires(f"{index.url}/{wheel.name}", transport) == NEEDS
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
        assert read_remote_requires(f"{index.url}/{name}", transport) is None


def test_a_file_that_is_no_wheel_has_no_metadata(tmp_path: Path) -> None:
    (tmp_path / "engine-1.0-py3-none-any.whl").write_bytes(b"x" * 5000)
    with serve_index(tmp_path) as index, Site().transport() as transport:
        url = f"{index.url}/engine-1.0-py3-none-any.whl"
        assert read_remote_requires(url, transport) is None
