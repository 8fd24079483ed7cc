"""Which files of a tree count as AMD's, and because of which place."""

from __future__ import annotations

import pytest

from warpfront_port.scan.evidence import evidence_of
from warpfront_port.scan.project import read_project

KERNEL = "__global__ void k() {}\n"
CMAKE = (
    "find_package(hip)\nif(USE_HIP)\n  add_library(k k.cu)\n"
    "else()\n  add_library(k n.cu)\nendif()\n"
)

NEEDED = "if(NOT CUDA_FOUND)\n  message(FATAL_ERROR none)\nendif()\n"


def shown(texts: dict[str, str]) -> dict[str, tuple[str, str]]:
    found = evidence_of(texts, read_project(texts))
    return {path: (one.kind, one.place) for path, one in found.items()}


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("a.cu", "int a;\n#ifdef USE_ROCM\n#endif\n", 2),
        ("a.cu", "#if defined(__HIP_PLATFORM_AMD__)\n#endif\n", 1),
        ("a.h", "#include <hip/hip_runtime.h>\n", 1),
        ("a.hip", KERNEL, 1),
    ],
)
def test_a_file_shows_by_its_own_conditions_that_it_runs_on_amd(
    path: str, text: str, line: int
) -> None:
    assert shown({path: text}) == {path: ("amd", f"{path}:{line}")}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.cu", "// #ifdef USE_ROCM\n"),
        ("a.cu", "#ifdef USE_CHIP\n#endif\n"),
        ("a.py", "# torch.version.hip\n"),
        ("a.cpp", "#include <sycl/sycl.hpp>\n"),
        ("README.md", "runs on ROCm\n"),
    ],
)
def test_a_remark_or_another_device_shows_nothing(path: str, text: str) -> None:
    assert shown({path: text, "k.cu": KERNEL}) == {}


@pytest.mark.parametrize("layer", ["sycl::queue q;", "Kokkos::initialize();", "cl::Kernel k;"])
def test_a_layer_for_other_devices_says_nothing_of_the_cuda_part(layer: str) -> None:
    assert shown({"src/k.cu": KERNEL, "src/other.cpp": layer}) == {}


def test_a_build_for_hip_shows_the_files_that_it_lists() -> None:
    found = shown({"CMakeLists.txt": CMAKE, "k.cu": KERNEL, "n.cu": KERNEL, "o.cu": KERNEL})
    assert found == {
        "k.cu": ("amd", "CMakeLists.txt:3"),
        "n.cu": ("left-out", "CMakeLists.txt:5"),
    }


def test_a_build_that_only_adds_flags_for_rocm_shows_none_of_its_sources() -> None:
    build = (
        "import torch\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        "flags = ['-DUSE_ROCM'] if torch.version.hip else []\n"
        "CUDAExtension('k', ['k.cu'], extra_compile_args=flags)\n"
    )
    assert "k.cu" not in shown({"setup.py": build, "k.cu": KERNEL})
    listed = build.replace("['k.cu']", "['k.cu'] if torch.version.hip else ['n.cu']")
    found = shown({"setup.py": listed, "k.cu": KERNEL, "n.cu": KERNEL})
    assert (found["k.cu"][0], found["n.cu"][0]) == ("amd", "left-out")


def test_a_copy_for_amd_stands_for_one_file() -> None:
    found = shown({"cuda/queue.cu": KERNEL, "hip/queue.cpp": "", "cuda/other.cu": KERNEL})
    assert found == {"cuda/queue.cu": ("left-out", "hip/queue.cpp:1")}
    camel = shown({"src/cuda/CUDAStream.cu": KERNEL, "src/hip/HIPStream.cpp": ""})
    assert camel["src/cuda/CUDAStream.cu"] == ("left-out", "src/hip/HIPStream.cpp:1")
    inner = shown({"a/myCudaKernels.cu": KERNEL, "a/myHipKernels.hip.cpp": ""})
    assert inner["a/myCudaKernels.cu"] == ("left-out", "a/myHipKernels.hip.cpp:1")
    assert "a/barracudas.cu" not in shown({"a/barracudas.cu": KERNEL, "a/barrahips.cpp": ""})
    assert shown({"src/current.cu": KERNEL, "src/hiprent.cu": KERNEL}) == {}
    includes = '#ifdef USE_HIP\n#include "k_hip.hip.hpp"\n#else\n#include "k_cuda.cuh"\n#endif\n'
    both = {"both.cu": includes}
    headers = shown(both | {"k_cuda.cuh": KERNEL, "k_hip.hip.hpp": KERNEL})
    assert headers["k_cuda.cuh"] == ("left-out", "k_hip.hip.hpp:1")
    modules = {"gpu/nvidia.py": "import pynvml\n", "gpu/nvidia_old.py": ""}
    assert shown(modules | {"gpu/amd.py": ""}) == {"gpu/nvidia.py": ("left-out", "gpu/amd.py:1")}
    assert shown(modules) == {}
    both_named = shown({"hipLib/cuda/a.h": "int a;\n", "hipLib/hip/a.h": "int a;\n"})
    assert both_named["hipLib/cuda/a.h"] == ("left-out", "hipLib/hip/a.h:1")


def test_a_source_for_amd_shows_the_headers_that_it_includes() -> None:
    texts = {"a.hip": f'#include "a.h"\n{KERNEL}', "a.h": '#include "b.h"\n', "b.h": "int b;\n"}
    assert shown(texts) == dict.fromkeys(texts, ("amd", "a.hip:1"))


def test_a_module_of_cmake_s_is_amd_s_where_its_build_is() -> None:
    texts = {"CMakeLists.txt": "project(p LANGUAGES HIP)\ninclude(flags)\n"}
    texts |= {"cmake/flags.cmake": "enable_language(CUDA)\n"}
    assert shown(texts) == {"cmake/flags.cmake": ("amd", "CMakeLists.txt:1")}
    assert shown(texts | {"CMakeLists.txt": "include(flags)\n"}) == {}


IGNORING = (
    "from torch.utils.cpp_extension import BuildExtension, CUDAExtension\n"
    "class Ignoring(BuildExtension):\n    def build_extensions(self):\n        try:\n"
    "            super().build_extensions()\n        except Exception:\n            FAILED\n"
    "ext = [CUDAExtension('p.c', ['k.cu'])]\n"
)
LOADED = (
    "from torch.utils.cpp_extension import load\ndef get():\n    try:\n"
    "        return load(name='c', sources=['k.cu'])\n    except Exception:\n        FAILED\n"
)
ASKED = (
    "import os, torch\nfrom torch.utils.cpp_extension import CUDAExtension\nsources = ['c.cpp']\n"
    "cudas = ['k.cu']\nif os.getenv('FORCE_CUDA', '0') FAILED:\n    sources += cudas\n"
    "ext = CUDAExtension('p.c', sources)\n"
)


@pytest.mark.parametrize(
    ("build", "spared", "needed"),
    [(IGNORING, "self.extensions = []", "raise"),
     (ASKED, "== '1'", "!= '1'"),
     (ASKED.replace("'0')", "'0').casefold()"), "== '1'", "!= '1'")],
)  # fmt: skip
def test_a_source_that_a_build_goes_on_without_is_optional(
    build: str, spared: str, needed: str
) -> None:
    texts = {"setup.py": build.replace("FAILED", spared), "k.cu": KERNEL}
    assert shown(texts)["k.cu"][0] == "optional"
    assert "k.cu" not in shown(texts | {"setup.py": build.replace("FAILED", needed)})


def test_a_load_whose_failure_is_hidden_says_nothing_of_what_is_left_without_it() -> None:
    for ending in ("return None", "raise"):
        texts = {"setup.py": LOADED.replace("FAILED", ending), "k.cu": KERNEL}
        assert "k.cu" not in shown(texts)


def test_an_optional_extension_of_torch_ends_its_build_all_the_same() -> None:
    setup = "CUDAExtension('p.c', ['k.cu'], optional=True)"
    assert "k.cu" not in shown({"setup.py": f"setup(ext_modules=[{setup}])\n", "k.cu": KERNEL})


def test_a_list_that_only_another_vendor_s_arm_takes_is_left_out() -> None:
    setup = ASKED.replace("FAILED", "== '1'")
    setup += "if torch.version.hip:\n    sources += ['h.cu']\n"
    texts = {"setup.py": setup, "k.cu": KERNEL, "h.cu": KERNEL, "c.cpp": ""}
    assert shown(texts)["k.cu"][0] == "optional"
    assert shown(texts)["h.cu"] == ("amd", "setup.py:9")


def test_what_a_build_installs_is_no_list_of_its_sources() -> None:
    build = 'enable_language(HIP)\ninstall(DIRECTORY a FILES_MATCHING PATTERN "*.h")\n'
    assert shown({"CMakeLists.txt": build, "a/k.h": "int a;\n"}) == {}


def test_a_list_of_sources_counts_where_its_variable_is_used() -> None:
    build = (
        "find_package(hip)\nset(CUDAS k.cu)\nset(HIPS h.cpp)\n"
        "if(USE_HIP)\n  add_library(k ${HIPS})\nelse()\n  add_library(k ${CUDAS})\nendif()\n"
    )
    found = shown({"CMakeLists.txt": build, "k.cu": KERNEL, "h.cpp": KERNEL})
    assert found["k.cu"] == ("left-out", "CMakeLists.txt:2")
    assert found["h.cpp"] == ("amd", "CMakeLists.txt:3")


def test_examples_beside_a_distribution_stand_beside_it() -> None:
    package = {"pyproject.toml": "[project]", "pkg/__init__.py": ""}
    files = package | {"examples/run.py": "", "bench/k.cu": KERNEL}
    aside = ("aside", "pyproject.toml:1")
    assert shown(files) == {"examples/run.py": aside, "bench/k.cu": aside}
    assert shown({"examples/run.py": "", "bench/a.py": ""}) == {}


def test_a_benchmark_beside_what_is_built_decides_nothing_without_a_build_at_the_root() -> None:
    cuda = "project(b LANGUAGES CUDA)\nadd_executable(b b.cu)\n"
    files = {"bench/CMakeLists.txt": cuda, "bench/b.cu": KERNEL, "bench/Makefile": "NVCC=nvcc\n"}
    aside = ("aside", "lib/k.cu:1")
    assert shown(files | {"lib/k.cu": KERNEL}) == dict.fromkeys(files, aside)
    assert shown(files) == {}


def test_a_distribution_beside_the_roots_decides_nothing() -> None:
    root = {"pyproject.toml": "[project]", "pkg/__init__.py": "import torch\n"}
    model = {"models/a/pyproject.toml": "[project]", "models/a/Dockerfile": "FROM nvidia/cuda\n"}
    found = shown(root | model | {"docker/Dockerfile": "FROM nvidia/cuda\n"})
    assert found == dict.fromkeys(model, ("aside", "pyproject.toml:1"))


def test_a_build_that_pythons_own_does_not_start_decides_nothing() -> None:
    setup = (
        "from setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        "setup(name='k', ext_modules=[CUDAExtension('k', ['k.cu'])])\n"
    )
    files = {"setup.py": setup, "k.cu": KERNEL, "CMakeLists.txt": "project(k LANGUAGES CUDA)\n"}
    assert shown(files) == {"CMakeLists.txt": ("aside", "setup.py:1")}
    assert shown(files | {"setup.py": f"{setup}run(['cmake', '.'])\n"}) == {}


def test_modules_named_for_nvidia_that_nothing_needs_are_left_out() -> None:
    files = {
        "pyproject.toml": "[project]",
        "pkg/__init__.py": "import torch\nif found:\n    from pkg.ops import cuda\n"
        + "x = 1\n" * 9,
        "pkg/ops/__init__.py": "",
        "pkg/ops/cuda.py": "s = 1\n",
        "pkg/ops/triton.py": "s = 1\n",
    }
    assert shown(files) == {"pkg/ops/cuda.py": ("left-out", "pkg/ops/cuda.py:1")}
    needed = files | {"pkg/ops/triton.py": "from pkg.ops.cuda import s\n"}
    assert shown(needed) == {}
    assert shown({"dtw_cuda.py": "from numba import cuda\n", "run.py": "x = 1\n"}) == {}


@pytest.mark.parametrize(
    ("option", "kinds"),
    [
        ('option(WITH_T "tests" OFF)', {"tests/t.cu": "optional", "more/m.cu": "optional"}),
        ('option(WITH_T "tests")', {"tests/t.cu": "optional", "more/m.cu": "optional"}),
        ('option(WITH_T "tests" ON)', {}),
        ("set(WITH_T OFF)", {}),
    ],
)
def test_a_folder_that_an_option_adds_which_is_off_decides_nothing(
    option: str, kinds: dict[str, str]
) -> None:
    added = "if(WITH_T)\n  add_subdirectory(tests)\n  add_subdirectory(more)\nendif()\n"
    texts = {"CMakeLists.txt": f"{option}\n{added}", "k.cu": KERNEL}
    found = shown(texts | {"tests/t.cu": KERNEL, "more/m.cu": KERNEL})
    assert {path: kind for path, (kind, _) in found.items()} == kinds
    del texts["k.cu"]
    alone = shown(texts | {"more/m.cu": KERNEL})
    assert "more/m.cu" not in alone


@pytest.mark.parametrize(
    ("search", "is_optional"),
    [
        ("find_package(CUDA)\nif(CUDA_FOUND)\n", True),
        ("check_language(CUDA)\nif(CMAKE_CUDA_COMPILER)\n", True),
        ("find_package(CUDA REQUIRED)\nif(CUDA_FOUND)\n", False),
        (f"find_package(CUDA)\n{NEEDED}if(CUDA_FOUND)\n", False),
        ("option(USE_HIP hip OFF)\nif(USE_HIP)\n", False),
    ],
)
def test_what_a_build_leaves_out_where_it_finds_no_cuda_decides_nothing(
    search: str, *, is_optional: bool
) -> None:
    added = "  add_subdirectory(gpu)\nendif()\n"
    texts = {
        "CMakeLists.txt": f"add_library(main m.cpp)\n{search}{added}",
        "m.cpp": "int m;\n",
        "gpu/k.cu": f'#include "k.h"\n{KERNEL}',
        "k.h": "int h;\n",
    }
    parts = {"gpu/k.cu", "k.h"}
    left_out = {path for path, (kind, _) in shown(texts).items() if kind == "optional"}
    assert left_out == (parts if is_optional else set())
    texts["CMakeLists.txt"] = f"{search}{added}install(TARGETS a)\n"  # nothing is left without it
    assert not any(kind == "optional" for kind, _ in shown(texts).values())


def test_a_header_that_nothing_includes_is_none_that_the_build_needs() -> None:
    texts = {"k.cu": f'#include "used.h"\n{KERNEL}', "used.h": "int a;\n", "left.h": "int b;\n"}
    found = shown(texts)
    assert {path: kind for path, (kind, _) in found.items()} == {"left.h": "optional"}
    assert shown({"api.h": "int a;\n"}) == {}  # a library of headers
    ported = {"CMakeLists.txt": "project(p LANGUAGES CXX HIP)\n"}
    assert shown(texts | ported)["left.h"][0] == "optional"
