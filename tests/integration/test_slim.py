"""An image without the files that nothing in it uses still loads, and computes."""

from __future__ import annotations

from pathlib import Path

import pytest
from projects import Project, unique_image, write_project

from warpfront.images.engine import Engine, RunRequest

pytestmark = [pytest.mark.docker, pytest.mark.process, pytest.mark.network]

# What imports most of torch, and compiles.
THROUGH_TORCH = ("load", "models")


def test_an_image_without_what_nothing_in_it_uses_is_verified(
    here: dict[str, str], engine: Engine, tmp_path: Path
) -> None:
    slim = ["tests", "protoc", "headers", "static-libraries"]
    image = {"template": "torch", "title": "PyTorch", "packages": ["numpy", "pip"], "slim": slim}
    write_project(
        tmp_path / "project",
        rows=[{"vendor": "cpu", "targets": "x86_64", "torch": "2.13.0"}],
        images={unique_image(): image},
        indexes={},
    )
    project = Project(root=tmp_path / "project", environment=here)
    (built,) = project.invoke("build", "--json", timeout=900).expect(0).json.values()
    gone = ("torch/include", "torch/test", "torch/bin/protoc")
    look = f"cd /opt/venv/lib/python3/site-packages; ls -d {' '.join(gone)} torch/nn || true"
    lines: list[str] = []
    request = RunRequest(
        image=built["image_id"], command=("sh", "-ec", look), time_limit_seconds=120
    )
    assert engine.run(request, lines.append).exit_code == 0
    assert "torch/nn" in lines
    assert not {*gone} & {*lines}
    project.verify(THROUGH_TORCH, "--quick", timeout=900).expect(0)
