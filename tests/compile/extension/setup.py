"""A module against whichever torch is here: with a kernel where torch has devices."""

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

if torch.version.cuda or torch.version.hip:
    module = CUDAExtension("twice", ["csrc/twice_device.cpp", "csrc/twice.cu"])
else:
    module = CppExtension("twice", ["csrc/twice.cpp"], extra_compile_args=["-O0"])

setup(name="twice", ext_modules=[module], cmdclass={"build_ext": BuildExtension})
