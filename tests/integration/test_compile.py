"""Real compilers of HIP over real sources: hipcc of two suites, without a GPU. Each has a seeded
error too, which has to be reported at its line. nvcc and a torch's own compiler, whose images are
others, are beside this: no file waits for the images of another.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from compilations import SOURCES, SWEPT, compiled, outcomes, seeded
from packaging.version import Version
from projects import Project
from rule_files import read_proofs

pytestmark = [pytest.mark.docker, pytest.mark.network, pytest.mark.timeout(900)]

USUAL = ("hip-experimental", "gfx942")
# The compilers of HIP, what each calls itself, and the targets. One of each language always.
HIPCC = {"hip-experimental": ("7.2", "HIP version: 7.2"), "hip-sid": ("6.4", "HIP version: 6.4")}
HIP_TARGETS = ("gfx942", "gfx90a", "gfx950", "gfx1100", "gfx1201")
ON_HIP = [
    pytest.param(compiler, target, marks=() if (compiler, target) == USUAL else SWEPT)
    for compiler in HIPCC
    for target in HIP_TARGETS
]


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
