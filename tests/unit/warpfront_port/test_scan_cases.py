"""Inputs that an earlier scanner judged wrongly, with the right answers (audit 3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpfront_port.commands.scanning import ScanRequest, scan_tree
from warpfront_port.scan.targets import read_target

TEXTURE = "__global__ void s(cudaTextureObject_t t, float* o) { o[0] = tex2D<float>(t, 0, 0); }"
CASES = [
    ("load.py", "gfx942", """
        import torch
        def plan(weights):
            major_minor = torch.cuda.get_device_capability()
            sm = major_minor[0] * 10 + major_minor[1]
            if sm == 90:
                weights = weights.t()
            return use_hopper(weights) if sm >= 90 else weights
     """, {("PY019", 6, "error"), ("PY019", 8, "error")}),
    ("tree.cu", "gfx942", """
        __global__ void evaluate(const float* in, float* out, int n) {
          float* stack = (float*)alloca(512 * sizeof(float));
          out[0] = stack[0];
        }
     """, {("CU170", 3, "warning")}),
    ("requirements.txt", "gfx942", "numpy\nspconv-cu126==2.3.7\nsomelib-cuda12==1.0\n",
     {("DP303", 2, "error"), ("DP303", 3, "error")}),
    ("t.cu", "gfx90a", TEXTURE,
     {("CU135", 1, "note")}),
    ("t.cu", "gfx942", TEXTURE,
     {("CU135", 1, "error")}),
    ("d.cu", "gfx942", """
        #define FULL 0xffffffffffffffffull
        __global__ void describe(const int* in, int* out, int n) {
          const int point = (blockIdx.x * blockDim.x + threadIdx.x) / 8;
          if (point >= n) return;
          int bits = in[point];
          bits |= __shfl_xor_sync(FULL, bits, 4);
          out[point] = bits;
        }
     """, {("CU171", 7, "warning")}),
    ("pool.cu", "gfx942", """
        __device__ unsigned smid() { unsigned r; asm("mov.u32 %0, %%smid;" : "=r"(r)); return r; }
        void run(int each) { cudaMalloc(&pool, sizeof(double) * p.multiProcessorCount * each); }
     """, {("CU107", 2, "error"), ("CU172", 3, "warning")}),
    ("f.cpp", "gfx942", "#include <opencv2/cudaimgproc.hpp>\n", {("CU147", 1, "error")}),
    ("setup.py", "gfx942", """
        from setuptools import setup
        from torch import cuda
        from torch.utils.cpp_extension import CUDAExtension
        FLAGS = ["-O3"] if cuda.is_available() else []
        setup(ext_modules=[CUDAExtension("ops", ["o.cu"], extra_compile_args={"nvcc": FLAGS})])
     """, set()),
    ("setup.py", "gfx942", """
        from setuptools import setup
        from torch import cuda
        from torch.utils.cpp_extension import CUDAExtension
        archs = cuda.get_gencode_flags().split()
        setup(ext_modules=[CUDAExtension("ops", ["o.cu"], extra_compile_args={"nvcc": archs})])
     """, {("BL202", 5, "error")}),
    ("watch.py", "gfx942", """
        import subprocess
        def watch(weights, verbose=False):
            if verbose:
                subprocess.run(["nvidia-smi"], check=True)
     """, {("PY016", 5, "error")}),
    ("plan.py", "gfx942", """
        import torch
        READY = False
        def set_ready(value):
            global READY
            READY = value
        def plan(weights):
            if READY:
                return torch.compile(weights, mode="reduce-overhead")
     """, {("PY001", 9, "error")}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "target", "text", "expected"), CASES)
def test_a_case_has_its_right_answer(
    tmp_path: Path, name: str, target: str, text: str, expected: set[tuple[str, int, str]]
) -> None:
    lines = text.split("\n")
    indent = " " * 8
    (tmp_path / name).write_text("\n".join(line.removeprefix(indent) for line in lines))
    found = scan_tree(ScanRequest(repo=tmp_path, target=read_target(target)), processes=1).findings
    assert {(one.rule, one.line, one.severity.value) for one in found} == expected
