"""Build `row_sum`: a kernel for CUDA or ROCm where torch has one of these, plain C++ elsewhere."""

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

if torch.version.cuda or torch.version.hip:
    # torch's own hipify turns csrc/row_sum.cu into HIP where torch is ROCm's.
    flags = [] if torch.version.hip else ["--use_fast_math"]
    extension = CUDAExtension(
        "row_sum",
        ["csrc/row_sum.cpp", "csrc/row_sum.cu"],
        extra_compile_args={"cxx": ["-DWITH_GPU"], "nvcc": flags},
    )
else:
    extension = CppExtension("row_sum", ["csrc/row_sum.cpp"])

setup(
    name="row_sum",
    version="1.0",
    ext_modules=[extension],
    cmdclass={"build_ext": BuildExtension},
)
