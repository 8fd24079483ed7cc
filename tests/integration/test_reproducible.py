"""The same lock, base and revision are the same image, to the byte, on two engines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from projects import REPOSITORY, Project, cell_id, reference, small_project, unique_image
from standins import Index

from warpfront.images.engine import embedded

pytestmark = [pytest.mark.docker, pytest.mark.process]
EPOCH = "1795000000"


def test_an_image_is_the_same_to_the_byte_on_two_engines(
    tmp_path: Path,
    alone: dict[str, str],
    another_engine: embedded.EnginePlace,
    index: Index,
) -> None:
    image = unique_image()
    root = small_project(tmp_path / "project", index.url, names=(image,))
    made = Project(root=root, environment=alone)

    def built(name: str, host: str, epoch: str) -> Path:
        ended = made.invoke("build", "--json", DOCKER_HOST=host, SOURCE_DATE_EPOCH=epoch)
        assert ended.expect(0).json[cell_id(image)]["reused"] is False
        path = tmp_path / name
        argv = ("docker", "--host", host, "save", reference(image), "-o", str(path))
        subprocess.run(argv, check=True)
        return path

    made.invoke("lock").expect(0)
    first = built("first.tar", alone["DOCKER_HOST"], EPOCH)
    script = REPOSITORY / "tools" / "reproduce"
    argv = [
        sys.executable,
        str(script),
        str(first),
        str(built("again.tar", another_engine.host, EPOCH)),
    ]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ended.stdout.endswith("the same image\n"), ended.stdout + ended.stderr
    argv[-1] = str(built("later.tar", another_engine.host, str(int(EPOCH) + 1)))
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "config: created" in ended.stdout
    assert not [line for line in ended.stdout.splitlines() if line.startswith("layer")]
