"""Real compilers over real sources: hipcc of two suites and nvcc, without a GPU. Each has a seeded
error too, which has to be reported at its line.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from projects import REPOSITORY, Project
from rule_files import read_proofs

from warpfront.images.engine.protocol import Bind, Engine, RunRequest
from warpfront.matrix.cell import CompilerCall
from warpfront_port.compile.job_document import CompileRequest, job_document
from warpfront_port.compile.units import SourceUnit

pytestmark = [pytest.mark.docker, pytest.mark.network, pytest.mark.timeout(900)]

SOURCES = REPOSITORY / "tests" / "compile"
SWEPT = pytest.mark.exhaustive
USUAL = ("hip-experimental", "gfx942")
# The compilers of HIP, what each calls itself, and the targets. One of each language always.
HIPCC = {"hip-experimental": ("7.2", "HIP version: 7.2"), "hip-sid": ("6.4", "HIP version: 6.4")}
HIP_TARGETS = ("gfx942", "gfx90a", "gfx950", "gfx1100", "gfx1201")
ON_HIP = [
    pytest.param(compiler, target, marks=() if (compiler, target) == USUAL else SWEPT)
    for compiler in HIPCC
    for target in HIP_TARGETS
]
CUDA_TARGETS = [pytest.param("sm_80", marks=SWEPT), "sm_90", pytest.param("sm_100", marks=SWEPT)]


def compiled(project: Project, repo: Path, *arguments: str, code: int) -> dict[str, Any]:
    """The compilation as `invoke compile --json` prints it."""
    ended = project.invoke(
        "compile", "--repo", str(repo), "--json", *arguments, timeout=800.0
    ).expect(code)
    found: dict[str, Any] = ended.json
    return found


def outcomes(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    checks = found["verification"]["checks"]
    return {check["name"]: (check["outcome"], check["reason"]) for check in checks}


def seeded(source: Path, copy: Path, old: str, new: str) -> None:
    """A copy of a source with one wrong word."""
    text = source.read_text()
    assert text.count(old) == 1
    copy.write_text(text.replace(old, new))


@pytest.mark.parametrize(("compiler", "target"), ON_HIP)
def test_a_kernel_and_a_library_in_hip_compile_and_a_seeded_error_is_at_its_line(
    own_project: Project, tmp_path: Path, compiler: str, target: str
) -> None:
    repo = tmp_path / "hip"
    shutil.copytree(SOURCES / "hip", repo)
    seeded(repo / "src/sum.hip", repo / "src/wrong.hip", "[size_t(", "[size_y(")
    with_it = ("--only", f"compiler-{compiler}", "--target", target)
    found = compiled(own_project, repo, *with_it, code=7)
    said = outcomes(found)
    outcome, reason = said.pop("src/wrong.hip")
    assert outcome == "failed"
    assert reason.startswith("src/wrong.hip:9:21: error: use of undeclared identifier 'size_y'")
    assert set(said) == {"compiler", "axpy.hip", "src/softmax.hip", "src/sum.hip"}
    assert {outcome for outcome, _ in said.values()} == {"passed"}
    assert HIPCC[compiler][1] in found["notes"][0]


@SWEPT  # needs both compilers
def test_hip_s_limits_are_those_of_the_target(own_project: Project, tmp_path: Path) -> None:
    """160 KiB of LDS on gfx950, 64 KiB on gfx942."""
    (tmp_path / "lds.hip").write_text(
        "#include <hip/hip_runtime.h>\n"
        "__global__ void k(float* y) {\n"
        "    __shared__ float all[20000];\n"
        "    all[threadIdx.x] = y[threadIdx.x];\n"
        "    __syncthreads();\n"
        "    y[threadIdx.x] = all[threadIdx.x ^ 1];\n"
        "}\n"
    )
    found = compiled(own_project, tmp_path, "--target", "gfx942", code=7)
    assert outcomes(found)["lds.hip"][1].startswith("lds.hip:2:17: error: local memory (80000)")
    assert compiled(own_project, tmp_path, "--target", "gfx950", code=0)


def test_a_compiler_that_does_not_know_a_target_is_no_pass_and_no_failure(
    own_project: Project, tmp_path: Path
) -> None:
    matrix = own_project.root / "matrix.yaml"
    project = Project(root=tmp_path / "project", environment=own_project.environment)
    shutil.copytree(own_project.root, project.root)
    text = matrix.read_text()
    old = 'targets: [gfx90a, gfx942, gfx950, gfx1100, gfx1201]\n    python: "3.14"\n    bootstrap:'
    new = old.replace("gfx1201]", "gfx1201, gfx1399]")
    assert text.count(old) == len(HIPCC)
    (project.root / "matrix.yaml").write_text(text.replace(old, new))
    found = compiled(project, SOURCES / "hip", "--target", "gfx1399", code=11)
    assert {outcome for outcome, _ in outcomes(found).values()} == {"unavailable"}
    reason = outcomes(found)["compiler"][1]
    assert "cannot compile for gfx1399" in reason
    assert "unsupported HIP gpu architecture: gfx1399" in reason


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


def test_cuda_is_hipified_in_a_copy_and_what_that_leaves_is_named(
    own_project: Project, tmp_path: Path
) -> None:
    repo = tmp_path / "unported"
    shutil.copytree(SOURCES / "unported", repo)
    before = (repo / "sum.cu").read_bytes()
    plain = compiled(own_project, repo, "--target", "gfx942", code=7)
    assert "'cuda_runtime.h' file not found" in outcomes(plain)["sum.cu"][1]

    sarif = tmp_path / "out.sarif"
    found = compiled(
        own_project, repo, "--target", "gfx942", "--hipify", "--sarif", str(sarif), code=7
    )
    said = outcomes(found)
    assert said["hipify"] == ("passed", "hipify-perl over 1 files")
    # CUDA's names are HIP's now; the shuffle that hipify leaves is at its own line.
    assert said["sum.cu"][1].startswith("sum.cu:6:18: error: static assertion failed")
    assert "The mask must be a 64-bit" in said["sum.cu"][1]
    assert "CU108" in {one["rule"] for one in found["left"]}
    assert (repo / "sum.cu").read_bytes() == before
    results = json.loads(sarif.read_text())["runs"][0]["results"]
    assert {one["ruleId"] for one in results} >= {"compile-gfx942", "CU108"}


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


PROOFS = read_proofs()


def proven(rule: str, kind: str, toolkit: str, target: str) -> str:
    """What the compiler of that toolkit has to make of one example."""
    proof = PROOFS[rule]
    is_accepted = target in proof.get("accepted_on", ()) or Version(toolkit) < Version(
        proof.get("refused_from", "0")
    )
    return "failed" if kind == "refused" and not is_accepted else "passed"


@SWEPT  # 17 compilations each
@pytest.mark.parametrize(("compiler", "target"), ON_HIP)
def test_compilers_agree_with_the_rules(
    own_project: Project, tmp_path: Path, compiler: str, target: str
) -> None:
    """What the scanner calls an error hipcc refuses, and what it calls none hipcc takes."""
    expected = {}
    for rule, proof in PROOFS.items():
        for kind in proof.keys() & {"refused", "seen", "accepted"}:
            (tmp_path / f"{rule}_{kind}.hip").write_text(proof[kind])
            expected[f"{rule}_{kind}.hip"] = proven(rule, kind, HIPCC[compiler][0], target)
    with_it = ("--only", f"compiler-{compiler}", "--target", target)
    found = outcomes(compiled(own_project, tmp_path, *with_it, code=7))
    assert {name: outcome for name, (outcome, _) in found.items() if name in expected} == expected
