"""What is compiled in an image that has torch, by torch's own tools."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from compilations import SOURCES, SWEPT, compiled, outcomes, seeded
from projects import REPOSITORY, Project

from warpfront.images.engine.protocol import Bind, Engine, RunRequest
from warpfront.matrix.cell import CompilerCall
from warpfront_port.compile.job_document import CompileRequest, job_document
from warpfront_port.compile.units import SourceUnit

pytestmark = [pytest.mark.docker, pytest.mark.network, pytest.mark.timeout(900)]


@pytest.mark.parametrize("folder", ["extension_in_c", pytest.param("extension", marks=SWEPT)])
def test_an_extension_is_built_against_the_cell_s_own_torch_and_imported(
    own_project: Project, tmp_path: Path, folder: str
) -> None:
    """With one of torch's headers in seconds; with all of them in a minute a compilation."""
    own_project.invoke("build", "--image", "devel", "--vendor", "cpu", timeout=800.0).expect(0)
    arguments = ("--target", "cpu", "--sources", "setup.py")
    found = compiled(own_project, SOURCES / folder, *arguments, code=0)
    assert outcomes(found) == {"compiler": ("passed", ""), "setup.py": ("passed", "")}
    assert found["verification"]["environment"]["torch"]["version"].startswith("2.13.0")
    output = found["verification"]["checks"][1]["details"]["output"]
    assert "imported twice" in output

    wrong = tmp_path / "seeded"
    shutil.copytree(SOURCES / folder, wrong)
    seeded(SOURCES / folder / "csrc/twice.cpp", wrong / "csrc/twice.cpp", "x + x", "x + y")
    found = compiled(own_project, wrong, *arguments, code=7)
    lines = (wrong / "csrc/twice.cpp").read_text().partition("x + y")[0].split("\n")
    place = f"csrc/twice.cpp:{len(lines)}:{len(lines[-1]) + 5}: error: 'y' was not"
    assert outcomes(found)["setup.py"][1].startswith(place)


def test_torch_s_own_hipify_is_used_where_the_image_has_torch(
    engine: Engine, cpu_image: str, tmp_path: Path
) -> None:
    """In the CPU image, whose torch has the same tool: only the hipify step counts here. The
    compiler is a stand-in (`true`), for no image with ROCm's torch can be built without its wheels.
    """
    results = tmp_path / "results"
    results.mkdir()
    stand_in = CompilerCall(argv=("true",), kernel=("-x",), plain=("-x",), version=("true",))
    unit = SourceUnit(path="sum.cu", kind="kernel", torch=False)
    asked = CompileRequest(repo=tmp_path, target="gfx942")
    job = job_document(asked, stand_in, [unit], ["sum.cu"], hipified=["sum.cu"])
    (tmp_path / "job.json").write_text(json.dumps(job))
    package = REPOSITORY / "src" / "warpfront_checks"
    request = RunRequest(
        image=cpu_image,
        command=(
            "python3",
            "-m",
            "warpfront_checks.compiling",
            "--job",
            "/job.json",
            "--results",
            "/results",
        ),
        binds=(
            Bind(source=package, target="/warpfront/src/warpfront_checks"),
            Bind(source=SOURCES / "unported", target="/source"),
            Bind(source=tmp_path / "job.json", target="/job.json"),
            Bind(source=results, target="/results", writable=True),
        ),
        environment={"PYTHONPATH": "/warpfront/src", "HOME": "/tmp"},
        user=f"{os.getuid()}:{os.getgid()}",
        time_limit_seconds=300.0,
    )
    assert engine.run(request, on_line=print).exit_code == 0
    made = (results / "hipified" / "sum.cu").read_text()
    assert "hipError_t launch(" in made
    # What neither tool translates.
    assert "__shfl_down_sync(0xffffffff, total, offset)" in made
