"""The first line of a scan: which verdict, and what decides it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront_port.commands.scanning import ScanRequest, scan_tree, verdict_of
from warpfront_port.finding_forms import (
    Scan,
    verdict_json,
    verdict_markdown,
    verdict_sarif,
    verdict_text,
)
from warpfront_port.scan.catalogue import catalogue
from warpfront_port.scan.findings import Severity
from warpfront_port.scan.targets import read_target
from warpfront_port.scan.verdict import Verdict

KERNEL = "__global__ void k(float* o) { o[0] = 1; }\n"
PTX = '__global__ void k(int* o) { asm("mov.u32 %0, %laneid;" : "=r"(o[0])); }\n'
MASK = "#define FULL 0xffffffff\n" + "".join(
    f"__device__ int f{n}(int v) {{ return __shfl_down_sync(FULL, v, {n}); }}\n"
    for n in (1, 2, 4, 8)
)
NVML = "import pynvml\n"
CUDA = "cmake_minimum_required(VERSION 3.20)\nproject(p LANGUAGES CXX CUDA)\nadd_library(p k.cu)\n"
CUDA_LANGUAGE = "enable_language(CUDA)\n"
HIP = "cmake_minimum_required(VERSION 3.21)\nproject(p LANGUAGES CXX HIP)\nadd_library(p k.cu)\n"
EXTENSION = (
    "from setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
    "setup(ext_modules=[CUDAExtension('k', ['k.cu'], extra_compile_args={'nvcc': [FLAGS]})])\n"
)


def judged(root: Path, files: Mapping[str, str], target: str = "gfx942") -> tuple[Verdict, Scan]:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    found = scan_tree(ScanRequest(repo=root, target=read_target(target)), processes=1)
    return verdict_of(found, found.findings), found


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({"a.py": "import torch\n"}, "gfx942: runs as it is, nothing to check"),
        ({"CMakeLists.txt": CUDA, "k.cu": KERNEL}, "gfx942: will not build: 1 cause"),
        ({"k.cu": PTX}, "gfx942: will not build: 1 cause"),
        ({"a.py": "import pynvml\n"}, "gfx942: will fail at run time: 1 cause"),
        (
            {"k.hip": "__global__ void k(int* o) { unsigned m = __ballot(1); o[0] = m; }\n"},
            "gfx942: may compute wrongly: 1 cause",
        ),
        (
            {"src/p/__init__.py": "", "src/p/bench/run.py": NVML}
            | {"pyproject.toml": "[project]\nname = 'p'\n"},
            "gfx942: runs as it is, nothing to check",
        ),
        (
            {"CMakeLists.txt": f"{HIP}include(check)\n", "cmake/check.cmake": CUDA_LANGUAGE},
            "gfx942: runs as it is, 1 thing to check",
        ),
        (
            {"CMakeLists.txt": "project(p LANGUAGES CXX)\n", "python/tool.py": NVML},
            "gfx942: runs as it is, 1 thing to check",
        ),
        (
            {"k.hip": "__device__ int f(unsigned m) { m = BALLOT(m); return __ffs(m); }\n"},
            "gfx942: runs as it is, nothing to check",
        ),
        (
            {"k.hip": "__device__ int f(unsigned m) { m = __ballot(m); return __ffs(m); }\n"},
            "gfx942: may compute wrongly: 2 causes",
        ),
        (
            {"a.py": "", "docker/setup.sh": "nvidia-smi\n"},
            "gfx942: runs as it is, 1 thing to check",
        ),
        (
            {"k.cu": KERNEL},
            "gfx942: not determined: 1 source not compiled: k.cu: no HIP toolchain",
        ),
        (
            {"setup.py": EXTENSION.replace("FLAGS", "'-O3'"), "k.cu": KERNEL},
            "gfx942: not determined: 1 source not compiled: k.cu: no HIP toolchain",
        ),
        (
            {"setup.py": EXTENSION.replace("FLAGS", "'--use_fast_math'"), "k.cu": KERNEL},
            "gfx942: will not build: 1 cause",
        ),
        ({"CMakeLists.txt": HIP, "k.cu": KERNEL}, "gfx942: runs as it is, nothing to check"),
    ],
)
def test_the_first_line_is_the_verdict(tmp_path: Path, files: dict[str, str], line: str) -> None:
    verdict, found = judged(tmp_path, files)
    assert verdict.line == line
    assert verdict_text(verdict, found).splitlines()[0] == line


def test_a_module_named_for_cuda_is_an_offer_unless_it_is_what_the_project_is_for(
    tmp_path: Path,
) -> None:
    kernels = "from numba import cuda\n@cuda.jit\ndef add(x):\n    x[0] = 1\n"
    assert judged(tmp_path, {"soft_dtw_cuda.py": kernels})[0].answer == "will fail at run time"
    rest = {"soft_dtw.py": "import torch\n" + "x = 1\n" * 20}
    assert judged(tmp_path, rest)[0].answer == "runs as it is"


@pytest.mark.parametrize(
    ("files", "line"),
    [
        (["main.go", "internal/smi.go", "deploy/run.py"], "not determined: 2 Go files not read"),
        (["src/main.rs", "build.F90", "src/lib.rs"], "not determined: 2 Rust files not read"),
        (["package.json", "index.ts"], "not determined: 1 JavaScript file not read"),
        (["index.ts", "pages/a.vue", "app.py"], "runs as it is, nothing to check"),
        (["package.json", "setup.py", "a.ts", "b.js", "p.py"],
         "runs as it is, nothing to check"),
        (["main.py", "proxy.go"], "runs as it is, nothing to check"),
        (["main.py", "tests/a.go", "tests/b.go"], "runs as it is, nothing to check"),
    ],
)  # fmt: skip
def test_sources_mostly_in_a_language_that_is_not_read_give_no_grounds(
    tmp_path: Path, files: list[str], line: str
) -> None:
    assert judged(tmp_path, dict.fromkeys(files, ""))[0].line == f"gfx942: {line}"
    if "not read" in line:
        stronger = {"app.py": NVML, "b.py": "", "c.py": ""}
        assert judged(tmp_path, stronger)[0].answer == "will fail at run time"


def test_a_page_s_long_line_decides_nothing_beside_python(tmp_path: Path) -> None:
    setup = "from setuptools import setup\nsetup(name='app', packages=['app'])\n"
    page = {"app/bundle.min.js": "name = " * 9_000}
    files = {"setup.py": setup, "app/__init__.py": "import torch\n", **page}
    assert judged(tmp_path, files)[0].line == "gfx942: runs as it is, nothing to check"


def test_a_word_for_rocm_in_a_build_script_makes_no_kernel_run(tmp_path: Path) -> None:
    build = EXTENSION.replace("FLAGS", "'-O3'") + "import torch\nHIP = torch.version.hip\n"
    assert judged(tmp_path, {"setup.py": build, "k.cu": PTX})[0].answer == "will not build"
    (tmp_path / "k.cu").write_text(KERNEL)
    assert judged(tmp_path, {})[0].answer == "not determined"


TWO = (
    "if(USE_HIP)\n  enable_language(HIP)\n  add_library(p k.hip)\nelse()\n"
    "  enable_language(CUDA)\n  add_library(p k.cu)\nendif()\n"
)


def test_a_branch_for_amd_beside_cuda_s_needs_a_compiler(tmp_path: Path) -> None:
    files = {"CMakeLists.txt": TWO, "k.cu": KERNEL, "k.hip": KERNEL}
    verdict, _ = judged(tmp_path, files)
    assert verdict.line == (
        "gfx942: not determined: 1 source not compiled: k.cu: no HIP toolchain, "
        "and a branch for AMD is no proof"
    )


def test_a_branch_of_tests_alone_decides_nothing(tmp_path: Path) -> None:
    build = "find_package(hip)\nenable_language(CUDA)\nadd_executable(t tests/t.cu)\n"
    files = {"CMakeLists.txt": "project(p LANGUAGES CXX)\n" + build, "tests/t.cu": KERNEL}
    verdict, _ = judged(tmp_path, files)
    assert verdict.answer == "runs as it is"


def test_another_device_s_layer_beside_cuda_silences_nothing(tmp_path: Path) -> None:
    alone = {"CMakeLists.txt": CUDA, "src/k.cu": PTX}
    verdict, _ = judged(tmp_path, alone)
    beside, _ = judged(tmp_path, {"src/other.cpp": "#include <sycl/sycl.hpp>\nsycl::queue q;\n"})
    assert beside.line == verdict.line
    assert len(beside.causes) == len(verdict.causes) == 2


def test_one_definition_is_one_cause_with_its_uses(tmp_path: Path) -> None:
    verdict, found = judged(tmp_path, {"u.cuh": MASK})
    (cause,) = verdict.causes
    assert (cause.rule, cause.uses) == ("CU108", 4)
    assert cause.places == ("u.cuh:1", "u.cuh:2", "u.cuh:3", "u.cuh:4", "u.cuh:5")
    (finding,) = [one for one in found.findings if one.severity is Severity.ERROR]
    assert (finding.line, finding.uses) == (1, (2, 3, 4, 5))
    text = verdict_text(verdict, found)
    assert "(4 uses): u.cuh:1, u.cuh:2, u.cuh:3, ... 2 more" in text


@pytest.mark.parametrize(
    ("build", "answer"),
    [(HIP, "nothing to check"), (f"{HIP}add_subdirectory(examples)\n", "1 thing to check")],
)
def test_errors_of_examples_are_things_to_check_where_the_build_adds_them(
    tmp_path: Path, build: str, answer: str
) -> None:
    verdict, found = judged(
        tmp_path, {"CMakeLists.txt": build, "k.cu": KERNEL, "examples/e.cu": PTX + PTX}
    )
    assert verdict.line == f"gfx942: runs as it is, {answer}"
    if answer.startswith("nothing"):  # a count, with the lines
        (note,) = found.findings
        assert (note.severity, len(note.uses)) == (Severity.NOTE, PTX.count("asm") * 2)


def test_a_script_of_a_folder_decides_nothing(tmp_path: Path) -> None:
    script = "nvcc -arch=sm_80 --expt-relaxed-constexpr k.cu\n"
    files = {"CMakeLists.txt": "enable_language(HIP)\n", "src/k.hip": KERNEL, "src/run.sh": script}
    assert judged(tmp_path, files)[0].line == "gfx942: runs as it is, 3 things to check"
    build = {"src/Makefile": f"a:\n\t{script}"}
    assert judged(tmp_path, build)[0].line == "gfx942: runs as it is, 4 things to check"


SPARE = {
    "ops/fast/setup.py": (
        "from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension('fast_ops', ['k.cu'])\n"
    ),
    "ops/fast/k.cu": PTX,
    "ops/fast/fast.py": "import fast_ops\n",
}


GOES_ON = "try:\n    from ops.fast.fast import f\nexcept ImportError:\n    "
BUILDS_IT = "from torch.utils.cpp_extension import load\n    f = load('x', ['ops/fast/k.cu'])\n"


@pytest.mark.parametrize(
    ("importer", "line"),
    [
        (f"{GOES_ON}f = None\n", "runs as it is"),
        (f"{GOES_ON}raise\n", "will not build"),
        (f"{GOES_ON}{BUILDS_IT}", "will not build"),
        ("from ops.fast.fast import f\n", "will not build"),
    ],
)
def test_an_extension_that_its_users_go_on_without_decides_nothing(
    tmp_path: Path, importer: str, line: str
) -> None:
    verdict, _ = judged(tmp_path, {**SPARE, "model.py": importer})
    assert verdict.line.startswith(f"gfx942: {line}")


PYTHON_PACKAGE = {
    "setup.py": "from setuptools import setup\nsetup(packages=['p'])\n",
    "p/__init__.py": "x = 1\n",
}


@pytest.mark.parametrize("place", ["playground/a.ipynb", "a.ipynb"])
def test_a_broken_notebook_beside_a_package_decides_nothing(tmp_path: Path, place: str) -> None:
    broken = '{"cells": [{"cell_type": "code", "source": "cd x y ="}]}'
    beside = judged(tmp_path, {**PYTHON_PACKAGE, place: broken})[0]
    assert beside.line == "gfx942: runs as it is, nothing to check"
    (tmp_path / "setup.py").unlink()
    assert judged(tmp_path, {})[0].line.startswith("gfx942: not determined")


def test_sources_of_other_distributions_alone_are_none_of_the_root_s(tmp_path: Path) -> None:
    root = {"setup.py": PYTHON_PACKAGE["setup.py"].replace("import", "import Extension,", 1)}
    other = {"projects/b/setup.py": EXTENSION, "projects/b/k.cu": KERNEL}
    verdict, _ = judged(tmp_path, {**PYTHON_PACKAGE, **root, **other})
    assert verdict.project.units == ()
    assert verdict.line.startswith("gfx942: runs as it is")


def test_a_setting_of_a_test_is_no_finding(tmp_path: Path) -> None:
    setting = "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n"
    found = judged(tmp_path, {"tests/test_a.py": setting, "train.py": setting})[1].findings
    assert [(one.path, one.rule) for one in found] == [("train.py", "PY008")]


def test_a_build_file_decides_where_sources_lie_below_it(tmp_path: Path) -> None:
    files = {"Makefile": "a:\n\thipcc k.hip\n", "k.hip": KERNEL}
    files |= {"bindings/go/Makefile": "all:\n\tcc -lcudart\n"}
    assert judged(tmp_path, files)[0].line == "gfx942: runs as it is, 1 thing to check"
    below = {"bindings/go/k.hip": KERNEL}
    assert judged(tmp_path, below)[0].line == "gfx942: will not build: 1 cause"


def test_renames_are_a_count_and_those_without_twin_are_named(tmp_path: Path) -> None:
    text = "void f() { cudaMalloc(0, 1); cudaFree(0); cudaFree(0); }\n"
    verdict, found = judged(tmp_path, {"a.cpp": text})
    (renames,) = verdict.project.renames
    assert (renames.path, renames.names, renames.uses) == ("a.cpp", 2, 3)
    assert "names: 2 CUDA names (3 uses) in 1 file" in verdict_text(verdict, found)
    assert not found.findings
    many = {f"b{n}.cpp": text for n in range(6)}
    verdict, found = judged(tmp_path, {"a.cpp": text * 2, **many})
    lines = verdict_text(verdict, found).splitlines()
    assert lines[-6:-4] == ["  a.cpp: 2 names (6 uses)", "  b0.cpp: 2 names (3 uses)"]
    assert lines[-1] == "  ... and 2 more files (--all lists them)"


def test_a_build_of_an_extension_is_no_pure_python(tmp_path: Path) -> None:
    verdict, _ = judged(tmp_path, {"setup.py": EXTENSION.replace("FLAGS", "'--use_fast_math'")})
    assert verdict.line == "gfx942: will not build: 1 cause"
    assert verdict.project.way.startswith("a torch extension")


@pytest.mark.parametrize(
    ("files", "gates"),
    [
        ({"k.cu": PTX}, {"any", "build"}),
        ({"a.py": "import pynvml\n"}, {"any", "runtime"}),
        ({"a.py": "import torch\n"}, set()),
        ({"k.cu": KERNEL}, set()),
    ],
)
def test_a_gate_chooses_by_consequence(
    tmp_path: Path, files: dict[str, str], gates: set[str]
) -> None:
    verdict, _ = judged(tmp_path, files)
    assert {gate for gate in ("any", "build", "wrong", "runtime") if verdict.reaches(gate)} == gates


def test_all_forms_are_of_one_value(tmp_path: Path) -> None:
    verdict, found = judged(tmp_path, {"CMakeLists.txt": CUDA, "k.cu": PTX})
    document = verdict_json(verdict)
    assert json.loads(json.dumps(document))["line"] == verdict.line
    assert document["counts"] == {"build": 2, "wrong": 0, "runtime": 0, "check": 0}
    assert verdict_markdown(verdict).splitlines()[0] == f"### Scan: {verdict.line}"
    sarif = verdict_sarif(verdict, found.findings, catalogue())
    assert verdict.line in sarif


def test_sources_that_nothing_compiled_show_how_many_are_taken_for_amd_s(tmp_path: Path) -> None:
    shown = {"CMakeLists.txt": HIP, "k.cu": KERNEL}
    assert "compiled: none of 1 CUDA source; 1 taken for AMD's\n" in verdict_text(
        *judged(tmp_path / "a", shown)
    )
    assert "compiled: none of 1 CUDA source\n" in verdict_text(
        *judged(tmp_path / "b", {"k.cu": KERNEL})
    )


def test_evidence_is_printed_with_its_place(tmp_path: Path) -> None:
    arm = "#ifdef USE_ROCM\n#endif\n"
    verdict, found = judged(tmp_path, {"k.cu": arm + PTX})
    assert verdict.line == "gfx942: runs as it is, 1 thing to check"
    text = verdict_text(verdict, found)
    assert "taken for AMD's: 1 file, because k.cu:1: its own condition for AMD" in text
    assert verdict.causes[0].taken == ("k.cu:1",)


OVERLOAD = (
    "#ifdef USE_ROCM\n#endif\n__device__ Half __shfl_sync(const unsigned mask, Half v, int lane)"
    " {\n  return BODY;\n}\n"
)


@pytest.mark.parametrize(
    ("body", "answer"),
    [("__shfl_sync(mask, v.plain(), lane)", "will not build"), ("taken(v, lane)", "runs as it is")],
)
def test_no_evidence_of_a_file_lowers_what_its_own_lanes_refuse(
    tmp_path: Path, body: str, answer: str
) -> None:
    # What it shows may be of another device or an older ROCm. An overload that calls its own name
    # forwards to the function of HIP.
    verdict, _ = judged(tmp_path, {"k.cu": OVERLOAD.replace("BODY", body)})
    assert verdict.answer == answer


@pytest.mark.parametrize(
    ("name", "text", "hips"),
    [
        ("k.hip.cpp", KERNEL, True),
        ("k.cpp", "#include <hip/hip_runtime.h>\n" + KERNEL, True),
        ("k.cpp", "#include <rocprim/rocprim.hpp>\n// was cudaMalloc\n" + KERNEL, True),
        ("k.cpp", "#include <rccl/rccl.h>\nvoid f() { ncclCommAbort(c); }\n" + KERNEL, True),
        ("k.hip.cpp", KERNEL + "void f() { cudaDeviceSynchronize(); }\n", False),
        ("k.hip.cpp", "#include <cuda_runtime.h>\n" + KERNEL, False),
        ("k.cpp", "// #include <hip/hip_runtime.h>\n" + KERNEL, False),
        ("chip.cu", KERNEL, False),
    ],
)
def test_a_source_of_hip_s_own_is_no_cuda_source(
    tmp_path: Path, name: str, text: str, *, hips: bool
) -> None:
    cmake = (
        "option(USE_HIP 'HIP' ON)\nif(USE_HIP)\n  enable_language(HIP)\n"
        f"  add_library(p {name})\nelse()\n  enable_language(CUDA)\nendif()\n"
    )
    verdict, found = judged(tmp_path, {"CMakeLists.txt": cmake, name: text})
    assert (verdict.answer == "runs as it is") is hips, verdict.line
    language = "HIP" if hips else "CUDA"
    assert f"compiled: none of 1 {language} source" in verdict_text(verdict, found)


@pytest.mark.parametrize(
    ("requirement", "module", "answer"),
    [
        ("bitsandbytes==0.40.0", "import bitsandbytes\n", "will fail at run time"),
        ("bitsandbytes<0.45", "import bitsandbytes\n", "will fail at run time"),
        ("bitsandbytes>=0.40", "import bitsandbytes\n", "runs as it is"),
        ("bitsandbytes==0.49.2", "import bitsandbytes\n", "runs as it is"),
        ("bitsandbytes==0.44.*", "import bitsandbytes\n", "will fail at run time"),
        ("bitsandbytes===local-1", "import bitsandbytes\n", "will fail at run time"),
        ("bitsandbytes==0.40.0", "import torch\n", "runs as it is"),
        ("minkowskiengine", "import MinkowskiEngine\n", "will not build"),
        ("", "import ctranslate2\n", "will fail at run time"),
        ("cupy-cuda12x", "import numpy\n", "runs as it is"),
    ],
)
def test_files_on_pypi_show_which_versions_have_libraries_for_rocm(
    tmp_path: Path, requirement: str, module: str, answer: str
) -> None:
    files = {"requirements.txt": requirement, "main.py": module}
    assert judged(tmp_path, files)[0].answer == answer


def test_each_row_of_packages_has_its_evidence() -> None:
    text = resources.files("warpfront_port").joinpath("data", "vendor-packages.txt").read_text()
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    assert rows
    for name, modules, version, rocm, evidence in rows:
        assert ":" in name or name == canonicalize_name(name)
        assert modules
        assert rocm == "-" or not Version(rocm).is_prerelease
        place = re.fullmatch(r"[\w.-]+/[\w.-]+(?:@[0-9a-f]{8})?", version)
        assert place or not Version(version).is_prerelease
        assert place or evidence.startswith(("wheel: ", "source: "))
        assert evidence


@pytest.mark.parametrize(
    ("files", "answer"),
    [
        ({"setup.py": "setup(install_requires=['flash-attn==0.2.8'])\n"}, "will not build"),
        ({"setup.py": "setup(install_requires=['flash-attn>=2'])\n"}, "runs as it is"),
        ({"setup.py": "setup(extras_require={'f': ['flash-attn==0.2.8']})\n"}, "runs as it is"),
        ({"setup.py": "setup(install_requires=['warp-lang'])\n"}, "runs as it is"),
        ({"setup.py": "setup()\n", "b/setup.py": "setup(install_requires=['flash-attn==0.2.8'])\n"},
         "runs as it is"),
        ({"requirements.txt": "flash-attn==0.2.8\n"}, "runs as it is"),
        ({"requirements.txt": "torch-points-kernels==0.6\n"}, "runs as it is"),
        ({"requirements.txt": "flash-attn==0.2.8\n", "main.py": "import flash_attn\n"},
         "will not build"),
    ],
)  # fmt: skip
def test_what_an_installation_builds_for_cuda_ends_it(
    tmp_path: Path, files: dict[str, str], answer: str
) -> None:
    assert judged(tmp_path, {"main.py": "import torch\n", **files})[0].answer == answer


GO_NVML = 'import (\n\t"fmt"\n\tnvml "github.com/NVIDIA/go-nvml/pkg/nvml"\n)\n'


@pytest.mark.parametrize(
    ("files", "fails"),
    [
        ({"main.go": GO_NVML}, True),
        ({"main.go": "package main\n", "rest.go": "\n" * 40, "nvml/a.go": GO_NVML}, False),
        ({"main.go": "package main\n" + "\n" * 40, "gpu.go": GO_NVML}, False),
        ({"main.go": f"//go:build nvml\n{GO_NVML}"}, False),
        ({"main.go": f"//go:build linux && cgo\n{GO_NVML}"}, True),
        ({"main.go": "package main\n", "gpu_test.go": GO_NVML}, False),
        ({"main.go": GO_NVML, "a.py": "", "b.py": ""}, False),
        ({"main.go": 'var c = exec.Command("nvidia-smi", "-q")\n'}, True),
        ({"main.go": "// not nvidia-smi\n"}, False),
        ({"main.go": "// #cgo linux LDFLAGS: -L/usr/lib -lcuda\n"}, True),
        ({"src/main.rs": "use nvml_wrapper::{Nvml, Device};\n"}, True),
        ({"src/main.rs": "use warp::Filter;\n"}, False),
        ({"src/P.jl": "module P\nusing CUDA\nend\n"}, True),
        ({"src/sys.rs": "pub fn cudaMalloc(p: *mut P) -> E;\n", "src/a.rs": "\n"}, True),
        ({"pkg/nvml/lib.go": 'const name = "libnvidia-ml.so.1"\n'}, True),
        ({"a.go": GO_NVML, **dict.fromkeys(("b/b.go", "c/c.go"), "// NVIDIA\n" * 9)}, True),
        ({"a.go": GO_NVML, "b/b.go": 'x := exec("rocm-smi")\n' + "// NVIDIA\n" * 9}, False),
    ],
)
def test_a_program_in_a_language_that_is_not_read_is_what_it_needs(
    tmp_path: Path, files: dict[str, str], *, fails: bool
) -> None:
    answer = judged(tmp_path, files)[0].answer
    assert answer == ("will fail at run time" if fails else
                      "runs as it is" if "a.py" in files else "not determined")  # fmt: skip


@pytest.mark.parametrize(
    ("files", "answer"),
    [
        ({"Project.toml": "[deps]\nAdapt = '1'\n"}, "runs as it is"),
        ({"sub/Project.toml": "[deps]\nAdapt = '1'\n"}, "not determined"),
        ({"Project.toml": "[weakdeps]\nCUDA = '1'\n"}, "not determined"),
        ({"Project.toml": "[weakdeps]\nCUDA = '1'\nAMDGPU = '1'\n"}, "runs as it is"),
        ({"Project.toml": "", "src/cuda.jl": "# like CUDA\n" * 9}, "not determined"),
        ({"Project.toml": "", "ext/E.jl": "using CUDA\n"}, "not determined"),
    ],
)
def test_a_manifest_names_all_that_a_program_may_import(
    tmp_path: Path, files: dict[str, str], answer: str
) -> None:
    own = {"src/P.jl": "module P\nusing Adapt\nend\n", "src/rest.jl": "\n" * 9}
    assert judged(tmp_path, own | files)[0].answer == answer


OPTION = 'cmake_minimum_required(VERSION 3.20)\nproject(p)\noption(COMPARE "compare" OFF)\n'


@pytest.mark.parametrize(
    ("files", "answer"),
    [
        ({"a.cpp": "int a;\n" * 9, "test/k.cu": KERNEL}, "runs as it is"),
        ({"a.h": "int a;\n", "test/k.cu": KERNEL * 9}, "not determined"),
        ({"CMakeLists.txt": OPTION + "install(DIRECTORY include DESTINATION .)\n"
          "if(${COMPARE})\n  add_subdirectory(perf)\nendif()\n",
          "a.h": "int a;\n", "perf/k.cu": KERNEL,
          "perf/CMakeLists.txt": "if(HAVE_CUDA)\nadd_executable(k ${k}.cu)\nendif()\n"},
         "runs as it is"),
    ],
)  # fmt: skip
def test_cuda_that_a_library_is_compared_with_decides_nothing(
    tmp_path: Path, files: dict[str, str], answer: str
) -> None:
    assert judged(tmp_path, files)[0].answer == answer


ENGINE = "https://github.com/NVIDIA/TransformerEngine.git"
IMPORT = {"lib/a.py": "from megatron.transformer_engine import Norm\n"}


@pytest.mark.parametrize(
    ("readme", "files", "answer"),
    [
        (f"```\npip install git+{ENGINE}@stable\n```\n", IMPORT, "will not build"),
        (f"    git clone {ENGINE}\n", IMPORT, "will not build"),
        ("- `pip install cupy-cuda12x`\n", {"a.ipynb": '{"cells": []}\n', "b.py": "import cupy\n"},
         "will fail at run time"),
        (f"pip install git+{ENGINE}@stable\n", {"lib/a.py": "import torch\n"}, "runs as it is"),
        (f"pip install git+{ENGINE}@stable\n",
         {"a.py": "try:\n    import transformer_engine\nexcept ImportError:\n    pass\n"},
         "runs as it is"),
        (f"For ROCm take another.\npip install git+{ENGINE}\n", IMPORT, "runs as it is"),
        ("pip install git+https://github.com/ROCm/TransformerEngine\n", IMPORT, "runs as it is"),
        ("pip install flash-attn==2.4.1\n", {"a.py": "import flash_attn\n"}, "runs as it is"),
    ],
)  # fmt: skip
def test_what_a_readme_installs_and_a_module_imports_is_required(
    tmp_path: Path, readme: str, files: dict[str, str], answer: str
) -> None:
    assert judged(tmp_path, {"README.md": readme, **files})[0].answer == answer
    below = {"lib/README.md": readme, "README.md": ""}
    assert judged(tmp_path, below)[0].answer == "runs as it is"


def test_cuda_sources_that_a_distribution_does_not_build_are_named(tmp_path: Path) -> None:
    program = {"pyproject.toml": "[project]\nname = 'p'\n", "p/__init__.py": "import torch\n"}
    named = "not built, so not judged: 1 CUDA source: extra/k.cu"
    assert named not in verdict_text(*judged(tmp_path, program))
    verdict, found = judged(tmp_path, {"extra/k.cu": KERNEL})
    assert verdict.line == "gfx942: runs as it is, nothing to check"
    assert named in verdict_text(verdict, found)


def test_a_module_named_for_nvidia_that_a_condition_imports_decides_nothing(tmp_path: Path) -> None:
    files = {
        "run.py": "import models\nif args.trt:\n    import models.clip_tensorrt\n" + "x = 1\n" * 20,
        "models/__init__.py": "",
        "models/clip_tensorrt.py": "import tensorrt\n",
    }
    assert judged(tmp_path, files)[0].answer == "runs as it is"
    required = files["run.py"].replace("if args.trt:\n    ", "")
    assert judged(tmp_path, {"run.py": required})[0].answer == "will fail at run time"


def test_what_nobody_acts_on_is_no_finding(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "torch>=2.2\ntorchvision\ntorchaudio==2.6.0\n",
        ".github/workflows/a.yml": "jobs:\n  a:\n    steps:\n    - run: pip install torch==2.1.0\n",
        "main.py": "try:\n    import flash_attn\nexcept ImportError:\n    flash_attn = None\n",
    }
    found = judged(tmp_path, files)[1].findings
    assert [(one.path, one.line) for one in found] == [("requirements.txt", 3)]


def test_a_refusal_of_tensors_that_are_not_on_the_device_names_no_vendor(tmp_path: Path) -> None:
    module = (
        "from torch.utils.cpp_extension import load\nk = load('k', ['k.cu'])\n"
        "def f(a, b):\n    assert a.is_cuda and b.is_cuda, 'must be on CUDA'\n"
        "    if not a.is_cuda:\n        raise ValueError('must be on CUDA')\n"
    )
    found = judged(tmp_path, {"main.py": module, "k.cu": KERNEL})[1].findings
    assert "BL216" not in {one.rule for one in found}


def test_a_source_that_the_listed_ones_do_not_include_is_a_note(tmp_path: Path) -> None:
    files = {"setup.py": EXTENSION.replace("FLAGS", ""), "k.cu": KERNEL}
    lanes = "__global__ void k(int* o) { o[0] = __shfl_down_sync(0xffffffff, o[1], 1); }\n"
    found = judged(tmp_path, {**files, "k_backup.cu": lanes})[1].findings
    assert {one.severity for one in found if one.path == "k_backup.cu"} == {Severity.NOTE}


def test_a_capability_is_followed_through_each_value_of_a_name(tmp_path: Path) -> None:
    module = (
        "import torch\nmajor = None\nif torch.cuda.is_available():\n"
        "    major, minor = torch.cuda.get_device_capability()\nif major == 8:\n    f()\n"
    )
    findings = judged(tmp_path, {"main.py": module})[1].findings
    assert [(one.rule, one.line) for one in findings] == [("PY019", 5)]


@pytest.mark.parametrize(
    ("function", "found"), [("fast_powf", True), ("float2int_rn", True), ("rint", False)]
)
def test_a_function_of_libdevice_that_hip_lacks_fails(
    tmp_path: Path, function: str, *, found: bool
) -> None:
    module = f"from triton.language.extra import libdevice\n\ny = libdevice.{function}(x)\n"
    assert (
        "PY039" in {one.rule for one in judged(tmp_path, {"k.py": module})[1].findings}
    ) is found


MEMBER = """
#include <cuda_runtime.h>
struct A { A(Lib l) : cublasLib_(l) {} void f() { cublasLib_.go(); } Lib cublasLib_; };
"""


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"a.cu": MEMBER}, False),
        ({"a.cu": '#include "mma.h"\n' + KERNEL}, True),
        ({"a.cu": '#include "mma.h"\n' + KERNEL, "mma.h": "inline int m() { return 1; }\n"}, False),
        ({"a.cu": '#include "nvml.h"\n' + KERNEL, "nvml.h": "int nvmlFake();\n"}, False),
    ],
)
def test_what_the_tree_has_itself_is_no_name_of_cudas(
    tmp_path: Path, files: dict[str, str], *, found: bool
) -> None:
    assert ("CU147" in {one.rule for one in judged(tmp_path, files)[1].findings}) is found


@pytest.mark.parametrize(("own", "found"), [("warp.py", False), ("tools/warp.py", True)])
def test_a_module_at_the_root_is_no_library_of_nvidia_s(
    tmp_path: Path, own: str, *, found: bool
) -> None:
    files = {"main.py": "import warp\n\nwarp.init()\n", own: "def init(): ...\n"}
    assert ("PY035" in {one.rule for one in judged(tmp_path, files)[1].findings}) is found


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("if '--fast' in sys.argv:\n", "runs as it is"),
        ("if '--plain' not in sys.argv:\n", "will not build"),
    ],
)  # fmt: skip
def test_what_an_option_of_a_setup_py_adds_is_a_thing_to_check_with_its_headers(
    tmp_path: Path, asked: str, answer: str
) -> None:
    files = {
        "setup.py": f"import sys\nfrom setuptools import setup\n"
        "from torch.utils.cpp_extension import CUDAExtension\nmodules = []\n"
        f"{asked}    modules.append(CUDAExtension('k', ['csrc/k.cu']))\n"
        "setup(ext_modules=modules)\n",
        "p/__init__.py": "",
        "csrc/k.cu": '#include "k.h"\n',
        "csrc/k.h": PTX,
    }
    assert judged(tmp_path, files)[0].answer == answer


def test_a_distribution_that_requires_itself_requires_nothing_of_nvidias(tmp_path: Path) -> None:
    project = (
        "[project]\nname = 'nvidia-tool'\ndependencies = ['nvidia_tool[all]', 'nvidia-nvml']\n"
    )
    _, found = judged(tmp_path, {"pyproject.toml": project})
    assert [one.message for one in found.findings] == ["requirement nvidia-nvml"]


WHEEL = "https://x.org/v2/flash_attn-2.5.8+cu122torch2.3cxx11abiFALSE-cp310-cp310-linux_x86_64.whl"


@pytest.mark.parametrize(
    ("required", "answer"),
    [
        ("flash-attn", "runs as it is"),
        ("flash-attn==2.5.8+rocm7.2", "runs as it is"),
        ("flash-attn==2.5.8+cu122", "will fail at run time"),
        (f"flash-attn @ {WHEEL}", "will fail at run time"),
        (WHEEL.replace("+", "%2B"), "will fail at run time"),
        ("flash-attn==2.5.8+cu122 ; sys_platform == 'win32'", "runs as it is"),
        ("other==2.5.8+cu122", "runs as it is"),
    ],
)
def test_a_wheel_that_was_built_for_cuda_fails_what_imports_it(
    tmp_path: Path, required: str, answer: str
) -> None:
    files = {"requirements.txt": f"{required}\n", "main.py": "import flash_attn\n"}
    assert judged(tmp_path, files)[0].answer == answer


@pytest.mark.parametrize(
    ("test", "arm", "answer"),
    [
        ("CUDA < 12.4", "raise RuntimeError(CUDA)", "will fail at run time"),
        ("not version.cuda", "sys.exit('no CUDA')", "will fail at run time"),
        ("CUDA >= 12.4", "pass\nelse:\n    raise RuntimeError(CUDA)", "will fail at run time"),
        ("CUDA < 12.4", "print(CUDA)", "runs as it is"),
        ("CUDA > 12.4", "raise RuntimeError(CUDA)", "runs as it is"),
        ("CUDA < 12.4 and not version.hip", "raise RuntimeError(CUDA)", "runs as it is"),
    ],
)
def test_a_program_fails_where_the_arm_that_amd_takes_ends_with_an_error(
    tmp_path: Path, test: str, arm: str, answer: str
) -> None:
    text = (
        "import sys\nfrom torch import version\n"
        f"CUDA = float(version.cuda) if version.cuda else 0\nif {test}:\n    {arm}\n"
    )
    assert judged(tmp_path, {"main.py": text})[0].answer == answer
