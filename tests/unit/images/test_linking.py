"""Blobs given to an engine by links, also where its folder is a mount of itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from warpfront.images.engine.docker import link_blobs

pytestmark = pytest.mark.process


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    made = tmp_path / "layers" / "abc"
    made.parent.mkdir()
    made.write_bytes(b"a layer")
    return made


@pytest.fixture(params=["a folder", "a mount"])
def mounted(request: pytest.FixtureRequest, tmp_path: Path, blob: Path) -> Iterator[Path]:
    root = tmp_path / "data"
    (root / "blobs").mkdir(parents=True)
    if request.param == "a folder":
        yield root
        return
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    subprocess.run(("mount", "--bind", root, root), check=True)
    with pytest.raises(OSError, match="cross-device"):
        (root / "blobs" / "plain").hardlink_to(blob)
    yield root
    subprocess.run(("umount", root), check=True)  # here it is as it was


def test_a_blob_is_there_once_under_two_names(blob: Path, mounted: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("an engine of our own is root's")
    (mounted / "blobs" / "other").write_bytes(b"there before")
    other = blob.with_name("other")
    other.write_bytes(b"what the engine has stays")
    link_blobs([other, blob.with_name("gone"), blob], mounted / "blobs", mounted=mounted)
    assert (mounted / "blobs" / "abc").stat().st_ino == blob.stat().st_ino
    assert (mounted / "blobs" / "other").read_bytes() == b"there before"
    assert len(list((mounted / "blobs").iterdir())) == 2


def test_where_nothing_can_be_linked_nothing_is(
    blob: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link_blobs([blob], tmp_path / "absent", mounted=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    link_blobs([blob], tmp_path, mounted=tmp_path)
    assert blob.stat().st_nlink == 1
