"""The images under attack: this repository's own, and a ROCm image of stand-ins, built for it."""

from __future__ import annotations

import os
from pathlib import Path

from adversary.stacks import ROCM, Stack
from projects import REPOSITORY, Project, write_project
from standins import rocm64_stand_ins, serve_index

# Each kind's cell in matrix.yaml, as `--only` takes it.
CELLS = {"cpu": "cpu-x86_64-py311-torch2130-torch", "cuda": "nvidia-cuda130-*-torch2141-torch"}
_ROCM_IMAGE = ROCM.reference.rpartition("/")[2].partition(":")[0]


def build(stack: Stack, folder: Path, docker_host: str) -> None:
    """Build the image of `stack`, or find it built. `folder` holds what that needs meanwhile."""
    environment = {**os.environ, "DOCKER_HOST": docker_host}
    if stack.kind != "rocm":
        own = Project(root=REPOSITORY, environment=environment)
        own.invoke("build", "--locked", "--only", CELLS[stack.kind], timeout=1200).expect(0)
        return
    with serve_index(rocm64_stand_ins(folder / "wheels"), name="rocm6.4") as index:
        row: dict[str, object] = {
            "vendor": "amd",
            "toolkit": "6.4",
            "targets": ["gfx942"],
            "torch": ROCM.public,
            "companions": ["torchvision"],
        }
        image = {"template": "torch", "title": "ROCm, of stand-ins", "packages": ["pip", "uv"]}
        root = write_project(
            folder / "project",
            rows=[row],
            images={_ROCM_IMAGE: image},
            indexes={"rocm6.4": index.url},
        )
        project = Project(root=root, environment=environment)
        project.invoke("lock").expect(0)
        project.invoke("build").expect(0)
