"""The fetched toolchain, over a tree that CMake builds: real clang, ROCm's real headers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.network, pytest.mark.process, pytest.mark.timeout(600)]

BUILD = """\
cmake_minimum_required(VERSION 3.20)
project(p LANGUAGES CXX CUDA)
find_package(CUDAToolkit REQUIRED)
add_library(p SHARED k.cu)
target_compile_definitions(p PRIVATE SHIFT=4)
target_link_libraries(p CUDA::cublas)
"""
KERNEL = """\
#include <cublas_v2.h>
#include <cub/cub.cuh>
#include <cuda_runtime.h>
__global__ void k(float* o) { o[0] = __shfl_down(o[0], SHIFT); }
int main() { cublasHandle_t h; cublasCreate(&h); k<<<1, 64>>>(nullptr); return cudaGetLastError(); }
"""


def scanned(root: Path) -> subprocess.CompletedProcess[str]:
    """The scan of a tree. Debian's experimental suite drops a version when the next one comes; a
    machine that then reaches no snapshot of it can show nothing here.
    """
    words = ("port", "scan", str(root), "--target", "gfx942", "--compiler", "fetched")
    argv = [sys.executable, "-m", "warpfront", *words]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=root)
    if "none can be fetched" in ended.stderr:
        pytest.skip(ended.stderr.strip().splitlines()[-1])
    return ended


def test_a_tree_is_compiled_by_the_fetched_toolchain(tmp_path: Path) -> None:
    """What CMake defines is known, and what nobody defines is the only error."""
    wrong = "__global__ void m(float* o) { o[0] = M; }\n"
    (tmp_path / "k.cu").write_text(KERNEL.replace("int main", f"{wrong}int main"))
    (tmp_path / "CMakeLists.txt").write_text(BUILD)
    ended = scanned(tmp_path)
    assert ended.returncode == 15, ended.stderr  # a build for CUDA alone
    assert "compiled: 1 of 1 CUDA source by clang version 22" in ended.stdout
    assert "reached: 1 CUDA source, by CMake" in ended.stdout
    assert ended.stdout.count("CC701 use of undeclared identifier 'M': k.cu:5") == 1
    assert ended.stdout.count("CC701") == 1


HOST = "#include <hip/hip_runtime.h>\n#include <mpi.h>\nint *f(void *p) { int *q = p; return q; }\n"
OF_TWO_VENDORS = """\
cmake_minimum_required(VERSION 3.21)
project(p LANGUAGES C CXX)
option(P_HIP "for AMD" OFF)
if(P_HIP)
  enable_language(HIP)
  find_package(hip REQUIRED)
  add_library(p hip/k.hip hip/host.c)
  target_compile_features(p PRIVATE c_std_11)
  target_compile_definitions(p PRIVATE SHIFT=4)
else()
  enable_language(CUDA)
  add_library(p cuda/k.cu)
endif()
"""


@pytest.mark.parametrize(("shift", "code", "answer"), [("SHIFT", 0, "runs"), ("M", 15, "will not")])
def test_a_build_for_hip_is_compiled_as_it_is(
    tmp_path: Path, shift: str, code: int, answer: str
) -> None:
    own = KERNEL.replace("SHIFT", shift).partition("__global__")[2].partition("int main")[0]
    sources = {"cuda/k.cu": KERNEL, "hip/k.hip": f"#include <hip/hip_runtime.h>\n__global__{own}"}
    sources |= {"hip/host.c": HOST, "CMakeLists.txt": OF_TWO_VENDORS}  # in C, not C++
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    ended = scanned(tmp_path)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert ended.stdout.startswith(f"gfx942: {answer}")
    assert "compiled: 2 of 2 CUDA or HIP sources" in ended.stdout
