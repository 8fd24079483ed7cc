"""A root file system becomes the same image wherever it is loaded."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from warpfront.images.engine.bases import image_archive

LABELS = {"b": 'quo"te $HOME \\ back', "a": "1"}


def a_tar(path: Path, *times: int, content: bytes = b"x" * 700) -> Path:
    with tarfile.open(path, "w") as tar:
        for number, time in enumerate(times):
            member = tarfile.TarInfo(f"file{number}")
            member.mtime, member.size = time, len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def archived(tar: Path, **changes: Any) -> bytes:
    facts: dict[str, Any] = {"architecture": "amd64", "labels": LABELS, "environment": {"A": "b"}}
    return b"".join(image_archive(tar, "localhost/x/a:1", **facts | changes))


def read(archive: bytes) -> tuple[list[dict[str, Any]], dict[str, Any], bytes]:
    """Manifest, config and layer, by the names that the manifest gives."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        content = {name: tar.extractfile(name) for name in tar.getnames()}
        read = {name: file.read() for name, file in content.items() if file}
    manifest = json.loads(read["manifest.json"])
    layer = read[manifest[0]["Layers"][0]]
    return manifest, json.loads(read[manifest[0]["Config"]]), layer


def test_what_is_loaded_is_the_tar_with_labels_and_environment_as_they_are(tmp_path: Path) -> None:
    tar = a_tar(tmp_path / "a.tar", 1_000_000_000)
    manifest, config, layer = read(archived(tar))
    assert gzip.decompress(layer) == tar.read_bytes()
    assert manifest[0]["RepoTags"] == ["localhost/x/a:1"]
    assert config["config"] == {"Env": ["A=b"], "Labels": LABELS}
    assert (config["architecture"], config["os"]) == ("amd64", "linux")


def test_an_image_is_as_old_as_its_newest_file(tmp_path: Path) -> None:
    tar = a_tar(tmp_path / "a.tar", 1_795_000_000, 1_000_000_000)
    _, config, _ = read(archived(tar))
    assert config["created"] == "2026-11-18T11:06:40Z"
    assert config["history"][0]["created"] == config["created"]


def test_the_same_tar_is_the_same_archive_and_another_is_not(tmp_path: Path) -> None:
    tar = a_tar(tmp_path / "a.tar", 1)
    again = a_tar(tmp_path / "b.tar", 1)
    assert archived(tar) == archived(again, labels=dict(reversed(LABELS.items())))
    assert archived(tar) != archived(a_tar(tmp_path / "c.tar", 1, content=b"y" * 700))


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513])
def test_an_archive_ends_on_whole_blocks_whatever_is_in_it(tmp_path: Path, size: int) -> None:
    archive = archived(a_tar(tmp_path / "a.tar", 1, content=b"x" * size))
    assert len(archive) % tarfile.BLOCKSIZE == 0
    assert read(archive)[1]["rootfs"]["diff_ids"][0].startswith("sha256:")
