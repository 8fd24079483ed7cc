"""A module against whichever torch is here, with no more of it than links."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

module = CppExtension("twice", ["csrc/twice.cpp"], extra_compile_args=["-O0"])

setup(name="twice", ext_modules=[module], cmdclass={"build_ext": BuildExtension})
