"""The same lock, base and revision are the same image, to the byte, on an engine that knows nothing
of the first time.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import docker
import pytest
from projects import REPOSITORY, Project, cell_id, reference, small_project, unique_image
from standins import Index

from warpfront.images.engine import embedded

pytestmark = [pytest.mark.docker, pytest.mark.process]
EPOCH = "1795000000"


def forget_everything(host: str) -> None:
    """Images, layers, and what BuildKit copied and cached: as on another engine."""
    client = docker.DockerClient(base_url=host)
    try:
        for image in client.images.list():
            client.images.remove(str(image.id), force=True)
        client.api.prune_builds(all=True)
        assert client.images.list() == []
    finally:
        client.close()


def test_an_image_is_the_same_to_the_byte_when_nothing_is_left_of_the_first(
    tmp_path: Path, alone: dict[str, str], own_engine: embedded.EnginePlace, index: Index
) -> None:
    image = unique_image()
    root = small_project(tmp_path / "project", index.url, names=(image,))
    made = Project(root=root, environment={**alone, "DOCKER_HOST": own_engine.host})

    def built(name: str, **changes: Any) -> Path:
        answer = made.invoke("build", "--json", **changes).expect(0).json[cell_id(image)]
        assert answer["reused"] is False
        path = tmp_path / name
        argv = ("docker", "--host", own_engine.host, "save", reference(image), "-o", str(path))
        subprocess.run(argv, check=True)
        return path

    made.invoke("lock").expect(0)
    first = built("first.tar", SOURCE_DATE_EPOCH=EPOCH)
    forget_everything(own_engine.host)
    script = REPOSITORY / "scripts" / "reproduce"
    argv = [
        sys.executable,
        str(script),
        str(first),
        str(built("again.tar", SOURCE_DATE_EPOCH=EPOCH)),
    ]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ended.stdout.endswith("the same image\n"), ended.stdout + ended.stderr
    argv[-1] = str(built("later.tar", SOURCE_DATE_EPOCH=str(int(EPOCH) + 1)))
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "config: created" in ended.stdout
    assert not [line for line in ended.stdout.splitlines() if line.startswith("layer")]
