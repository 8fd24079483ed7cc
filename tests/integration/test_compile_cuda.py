"""nvcc over a real source, without a GPU, and over errors seeded into it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from compilations import SOURCES, SWEPT, compiled, outcomes, seeded
from projects import Project

pytestmark = [pytest.mark.docker, pytest.mark.network, pytest.mark.timeout(900)]

CUDA_TARGETS = [pytest.param("sm_80", marks=SWEPT), "sm_90", pytest.param("sm_100", marks=SWEPT)]


@pytest.mark.parametrize("target", CUDA_TARGETS)
def test_a_cuda_kernel_compiles_and_seeded_errors_are_at_their_lines(
    own_project: Project, tmp_path: Path, target: str
) -> None:
    repo = tmp_path / "cuda"
    shutil.copytree(SOURCES / "cuda", repo)
    # Of the language, and of PTX, which only ptxas reads.
    seeded(repo / "axpy.cu", repo / "language.cu", "a * x[i]", "b * x[i]")
    seeded(repo / "axpy.cu", repo / "ptx.cu", "%%laneid;", "%%laneidx;")
    found = compiled(own_project, repo, "--target", target, code=7)
    said = outcomes(found)
    assert said["axpy.cu"][0] == "passed"
    assert "release 13.0" in found["notes"][0]
    assert said["language.cu"][1] == 'language.cu:3: error: identifier "b" is undefined'
    assert said["ptx.cu"][1].startswith("ptx.cu:8:5: error: ")
