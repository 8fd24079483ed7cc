"""What a tree that has a port, or the beginning of one, says of its own lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from warpfront.system.trees import list_tree
from warpfront_port.commands.scanning import scan_tree
from warpfront_port.scan.findings import Gate, ScanFinding, Severity
from warpfront_port.scan.left_out import cudas_beside_amds
from warpfront_port.scan.structured import torchless
from warpfront_port.scan.targets import read_target

KERNEL = "__global__ void k() { unsigned m = __ballot_sync(0xffffffff, 1); }\n"
USE = '#include <hip/hip_runtime.h>\n#include "cuda/queue.cu"\n'
HIP = "#include <hip/hip_runtime.h>\nhipError_t run();\n"
IN_C = {"a.c": "int a;  // A_HAVE_CUDA\n"}
BEGUN = {f"old/part{number}.cc": "void f() { cudaFree(nullptr); }\n" for number in range(9)}


def found(root: Path, files: Mapping[str, str], target: str = "gfx942") -> tuple[ScanFinding, ...]:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return scan_tree(root, read_target(target), processes=1).findings


def loud(findings: tuple[ScanFinding, ...]) -> set[tuple[str, str]]:
    return {(one.path, one.rule) for one in findings if one.severity is not Severity.NOTE}


def test_cudas_part_beside_amds_is_for_nvidia(tmp_path: Path) -> None:
    alone = found(tmp_path, {"src/cuda/queue.cu": KERNEL, "main.cpp": USE} | BEGUN)
    assert ("src/cuda/queue.cu", "CU108") in loud(alone)
    beside = found(tmp_path, {"src/hip/queue.cpp": HIP})
    assert {path for path, _ in loud(beside)} == {"main.cpp", *BEGUN}
    assert {one.gate for one in beside if one.path.startswith("src/cuda")} == {Gate.LEFT_OUT}
    more = {f"src/{vendor}/part{i}.cpp": HIP for i in range(6) for vendor in ("cuda", "hip")}
    assert not loud(found(tmp_path, more))


@pytest.mark.parametrize(
    ("nvidia", "amd", "is_twin"),
    [
        ("src/cusolver.cpp", "src/rocsolver.cpp", True),
        ("cmake/run_cuda.cmake", "cmake/run_hip.cmake", True),
        ("lib/ptx/barrier.cpp", "lib/amdgpu/barrier.cpp", True),
        ("gpu/backend-cuda/mul.cu", "gpu/backend-hip/CMakeLists.txt", False),
        ("src/current.cpp", "src/hiprent.cpp", False),
        ("comms/ncclx/net.h", "comms/rcclx/transport.h", True),
        ("src/synclx.cpp", "src/syrclx.cpp", False),
        ("a/cuda/queue.cu", "b/hip/queue.cpp", False),
    ],
)
def test_a_twin_has_the_same_path_but_for_the_vendor(
    nvidia: str, amd: str, *, is_twin: bool
) -> None:
    assert cudas_beside_amds([nvidia, amd]) == ({nvidia} if is_twin else set())


def test_half_of_a_pair_of_macros_is_nvidias(tmp_path: Path) -> None:
    text = f"#if X_PASS_HIP\nint a;\n#endif\n#if X_PASS_CUDA\n{KERNEL}#endif\n"
    assert not loud(found(tmp_path, {"warp.hpp": text, "hip.cpp": HIP}))
    both = f"#if X_PASS_CUDA\n#if X_PASS_HIP\nint a;\n#endif\n{KERNEL}#endif\n"
    assert ("warp.hpp", "CU108") in loud(found(tmp_path, {"warp.hpp": both} | BEGUN))


@pytest.mark.parametrize(
    ("name", "code", "rule"),
    [
        ("a.cu", "__device__ void f() { __syncwarp(); }", "CU118"),
        ("b.hip", KERNEL, "CU108"),
        ("c.cu", '#include "cutlass/gemm/device/gemm.h"', "CU104"),
        ("d.cu", '__device__ void f() { asm("mov.u32 %0, %laneid;"); }', "CU107"),
    ],
)
def test_what_would_end_the_build_of_a_port_is_a_note_there(
    tmp_path: Path, name: str, code: str, rule: str
) -> None:
    assert (name, rule) in loud(found(tmp_path, {name: f"{code}\n"}))
    ported = found(tmp_path, {f"part{number}.cpp": HIP for number in range(6)})
    assert (name, rule) not in loud(ported)
    assert {one.gate for one in ported if one.rule == rule} == {Gate.PORTED}


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("__global__ void k() { unsigned m = __ballot(1); }", "CU109"),
        ("#ifdef __HIP_PLATFORM_HCC__\nint a;\n#endif", "CU155"),
    ],
)
def test_what_depends_on_the_target_or_on_rocm_is_said_despite_a_port(
    tmp_path: Path, code: str, rule: str
) -> None:
    parts = {f"part{number}.cpp": HIP for number in range(6)}
    assert loud(found(tmp_path, parts | {"a.hip": f"{HIP}{code}\n"})) == {("a.hip", rule)}
    unnamed = found(tmp_path, {"b.cuh": code.replace("HIP_PLATFORM", "OLD")})
    said = {one.severity for one in unnamed if (one.path, one.rule) == ("b.cuh", rule)}
    assert said == (set() if rule == "CU155" else {Severity.NOTE})


def test_a_function_that_a_file_defines_is_its_own(tmp_path: Path) -> None:
    call = "template <class T> __global__ void k(T* p) { *p = tex1D<T>(object, 1); }\n"
    assert ("a.hip", "CU135") in loud(found(tmp_path, {"a.hip": HIP + call} | BEGUN))
    own = "template <class T> __device__ ret_t<T> tex1D(texture_t t, int x) { return t[x]; }\n"
    assert ("a.hip", "CU135") not in loud(found(tmp_path, {"a.hip": HIP + own + call}))


def test_a_lane_is_shifted_into_64_bits_by_a_cast(tmp_path: Path) -> None:
    text = "__device__ uint64_t f(int lane) { uint64_t mask = (1 << lane) - 1; return mask; }\n"
    assert ("a.cu", "CU111") not in loud(found(tmp_path, {"a.cu": text} | BEGUN))
    elsewhere = text + "__device__ int g(int v) { return __shfl_down(v, 1); }\n"
    assert ("a.cu", "CU111") not in loud(found(tmp_path, {"a.cu": elsewhere}))
    text = text.replace("return mask", "return mask & __ballot(1)")
    assert ("a.cu", "CU111") in loud(found(tmp_path, {"a.cu": text}))
    cast = text.replace("(1 <<", "((uint64_t)1 <<")
    assert ("a.cu", "CU111") not in loud(found(tmp_path, {"a.cu": cast}))


def test_three_files_of_hip_among_many_are_no_port(tmp_path: Path) -> None:
    three = {f"{name}.cc": HIP for name in "abc"}
    assert loud(found(tmp_path, BEGUN | three)) == {(path, "CU101") for path in BEGUN}
    assert not loud(
        found(tmp_path, {"map.h": "#ifdef __HIP__\n#define cudaFree hipFree\n#endif\n"})
    )


@pytest.mark.parametrize("code", [HIP, "void f() { rocprofiler_start(1); }\n"])
def test_a_tree_with_half_as_much_for_amd_as_for_cuda_is_ported(tmp_path: Path, code: str) -> None:
    cmake = {"CMakeLists.txt": "find_package(hip)\n", "b.cc": BEGUN["old/part0.cc"]}
    assert loud(found(tmp_path, cmake | {"a.cc": BEGUN["old/part1.cc"], "d.cc": "int x;\n"}))
    assert not loud(found(tmp_path, {"d.cc": code}))


def test_a_build_or_six_modules_that_ask_for_rocm_are_a_port(tmp_path: Path) -> None:
    asks = "import torch\nHIP = torch.version.hip\n"
    five = {f"p/part{number}.py": asks for number in range(5)}
    assert ("old/part0.cc", "CU101") in loud(found(tmp_path, BEGUN))
    assert loud(found(tmp_path, five)) == {(path, "CU101") for path in BEGUN}
    assert not loud(found(tmp_path, {"p/part5.py": asks}))
    (tmp_path / "p/part5.py").unlink()
    assert loud(found(tmp_path, {}))
    assert not loud(found(tmp_path, {"setup.py": f"{asks}CUDAExtension = HIP\n"}))


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ('dependencies = ["{}"]', {"DP303"}),
        ("dependencies = [\"{}; sys_platform == 'win32'\"]", set()),
        ("dependencies = [\"{}; sys_platform=='darwin' and platform_machine=='arm64'\"]", set()),
        ("dependencies = [\"{}; platform_machine == 'aarch64'\"]", set()),
        ("dependencies = [\"{}; platform_machine == 'x86_64'\"]", {"DP303"}),
        ("dependencies = [\"{}; python_version < '3'\"]", {"DP303"}),
        ('optional-dependencies.macos = ["{}"]', set()),
        ('optional-dependencies.nvcc = ["{}"]', set()),
        ('optional-dependencies.x = ["a @ https://download.pytorch.org/whl/cu118/a.whl"]', set()),
        ('dependencies = ["a @ https://download.pytorch.org/whl/cu118/a.whl"]', {"DP314"}),
    ],
)
def test_what_is_required_elsewhere_or_by_choice_is_no_error(
    tmp_path: Path, group: str, said: set[str]
) -> None:
    project = f"[project]\nname = 'p'\n{group.format('nvidia-cublas')}\n"
    findings = found(tmp_path, {"pyproject.toml": project})
    assert {one.rule for one in findings if one.severity is Severity.ERROR} == said


@pytest.mark.parametrize(
    ("path", "severity"),
    [
        ("bench/fp8/transformer_engine/ddp.py", "note"),
        ("bench/nvshmem_ddp.py", "note"),
        ("bench/fp8/ddp.py", "error"),
        ("lib/rocm/ddp.py", "error"),
        ("lib/metal/ddp.py", ""),
    ],
)
def test_a_folder_says_whose_modules_it_holds(tmp_path: Path, path: str, severity: str) -> None:
    said = [one.severity for one in found(tmp_path, {path: "import tensorrt\n"})]
    assert said == [severity] * bool(severity)


def test_what_may_be_wrong_in_a_folder_for_amd_was_a_decision(tmp_path: Path) -> None:
    code = "import torch\ntorch.set_float32_matmul_precision('high')\n"
    assert loud(found(tmp_path, {"lib/a.py": code})) == {("lib/a.py", "PY008")}
    assert loud(found(tmp_path, {"lib/rocm/a.py": code})) == {("lib/a.py", "PY008")}


def test_a_table_of_dtypes_chooses_none(tmp_path: Path) -> None:
    code = "import torch\nTYPES = {{}}\n{} = torch.float8_e4m3fn\n"
    assert loud(found(tmp_path, {"a.py": code.format("FP8")})) == {("a.py", "PY037")}
    assert not loud(found(tmp_path, {"a.py": code.format("TYPES['f8']")}))


def test_a_copy_of_a_models_config_sets_nothing(tmp_path: Path) -> None:
    table = "import torch\nPHI = {{'_attn_implementation': 'flash_attention_2', '{}': 1}}\n"
    assert loud(found(tmp_path, {"a.py": table.format("rope")})) == {("a.py", "PY027")}
    assert not loud(found(tmp_path, {"a.py": table.format("transformers_version")}))


def test_a_build_that_hipifies_is_a_port(tmp_path: Path) -> None:
    assert loud(found(tmp_path, {"CMakeLists.txt": "find_package(hip)\n"} | BEGUN))
    step = "execute_process(COMMAND hipify-perl -inplace a.cc)\n"
    assert not loud(found(tmp_path, {"CMakeLists.txt": f"find_package(hip)\n{step}"}))


def test_a_script_that_names_hip_makes_no_port(tmp_path: Path) -> None:
    files = {"use.cpp": 'void f(Model m) { m.allocate("cuda"); }\n'}
    assert loud(found(tmp_path, files | {"install.sh": "CXX=hipcc make\n"})) == {
        ("use.cpp", "CU154")
    }
    assert not loud(found(tmp_path, {"Makefile": "CXX = hipcc\n"}))


def test_a_port_that_is_still_to_be_written_is_none(tmp_path: Path) -> None:
    arm = "#ifdef B_HAVE_CUBLAS\nint x;\n#elif defined(B_HAVE_ROCBLAS)\n{}\n#endif\n"
    other = f"{HIP}void f() {{ cudaFree(nullptr); }}\n"
    remark = {"a.cc": HIP + arm.format("// TODO: rocBLAS"), "b.cc": other}
    assert loud(found(tmp_path, remark)) >= {("a.cc", "CU156"), ("b.cc", "CU101")}
    written = {"a.cc": HIP + arm.format("int y;"), "b.cc": other}
    assert not loud(found(tmp_path, written))


def test_an_architecture_is_said_where_the_target_is_not_among_them(tmp_path: Path) -> None:
    files = {"rocm.cmake": "find_package(hip)\nset(GPU_TARGETS gfx908 gfx90a\n  gfx942)\n"}
    assert not loud(found(tmp_path, files))
    other = [one for one in found(tmp_path, files, "gfx1100") if one.rule == "BL203"]
    assert [(one.line, one.severity) for one in other] == [(2, Severity.NOTE)]


def test_a_project_has_macros_of_its_own_with_names_like_the_drivers(tmp_path: Path) -> None:
    own = "#define CUDA_TEST_ERROR() check()\n#define cudaSyncIfAsked() sync()\n"
    uses = {"use.cpp": "CUDA_TEST_ERROR();\n", "sync.cpp": "cudaSyncIfAsked();\n"}
    assert {path for path, rule in loud(found(tmp_path, uses)) if rule == "CU101"} == set(uses)
    assert "CU101" not in {rule for _, rule in loud(found(tmp_path, {"own.h": own}))}


@pytest.mark.parametrize(
    "declared",
    [
        "struct A { Handles* cudaHandles; };",
        "Handles *cudaHandles = nullptr;",
        "void f(const std::vector<int>& cudaHandles, int n);",
        "extern PFN_devices cudaHandles;",
        "auto& cudaHandles = all[0];",
        "int cudaHandles[4];",
    ],
)
def test_what_a_tree_declares_by_a_name_of_cudas_form_is_its_own(
    tmp_path: Path, declared: str
) -> None:
    files = {"own.h": f"{declared}\n", "use.cpp": "use(cudaHandles, 1);\n"}
    assert "CU101" not in {one.rule for one in found(tmp_path, files)}


def test_who_loads_the_driver_has_its_types_without_its_headers(tmp_path: Path) -> None:
    types = "typedef unsigned long long CUdeviceptr;\ntypedef struct CUmod_st* CUmodule;\n"
    uses = {"use.cpp": "int use(CUmodule a, CUdeviceptr b);\n"}
    assert "CU101" in {one.rule for one in found(tmp_path, uses)}
    assert "CU101" not in {one.rule for one in found(tmp_path, uses | {"loader.h": types})}


@pytest.mark.parametrize(
    "used",
    [
        "return cudaHandles;",
        "f(a, cudaHandles);",
        "n = a * cudaHandles;",
        "if (a && cudaHandles) g();",
        "x->cudaHandles = 1;",
        "#define HANDLES cudaHandles",
        "struct cudaHandles;",
        "case cudaHandles: break;",
        "void f(const cudaHandles, int);",
    ],
)
def test_what_a_tree_only_uses_is_cudas(tmp_path: Path, used: str) -> None:
    files = {"own.h": f"{used}\n", "use.cpp": "use(cudaHandles, 1);\n"}
    assert ("use.cpp", "CU101") in {(one.path, one.rule) for one in found(tmp_path, files)}


@pytest.mark.parametrize(
    ("path", "declared"),
    [
        ("other.cpp", "int cudaMemcpyDefault = 4;\n"),
        ("stub.h", "#ifndef __CUDACC__\nconst int cudaMemcpyDefault = 4;\n#endif\n"),
        ("cuda.h", "#ifndef __cuda_cuda_h__\nextern int cudaMemcpyDefault;\n#endif\n"),
    ],
)
def test_what_is_declared_for_one_file_or_in_place_of_cuda_is_nobody_elses(
    tmp_path: Path, path: str, declared: str
) -> None:
    files = {path: declared, "use.cpp": "use(cudaMemcpyDefault, 1);\n"}
    assert ("use.cpp", "CU101") in {(one.path, one.rule) for one in found(tmp_path, files)}


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        *(("typing", Severity.WARNING), ("mypy", Severity.WARNING), ("lint", Severity.WARNING)),
        ("base", Severity.ERROR),
    ],
)
def test_requirements_of_a_tool_that_runs_nothing_are_no_error(
    tmp_path: Path, name: str, severity: Severity
) -> None:
    (one,) = found(tmp_path, {f"requirements/{name}.txt": "torch==2.9.1\n"})
    assert (one.rule, one.severity) == ("DP302", severity)


def test_requirements_without_torch_bring_none(tmp_path: Path) -> None:
    step = {"Dockerfile": "FROM debian\nRUN pip install -r docs/list-requirements.txt\n"}
    assert not loud(found(tmp_path, step | {"docs/list-requirements.txt": "sphinx\n"}))
    more = found(tmp_path, {"docs/list-requirements.txt": "sphinx\ntimm\n"})
    assert ("Dockerfile", "DP318") in loud(more)
    assert torchless({"a/r.txt": "sphinx\n", "b/r.txt": "torch\n"}) == {"a/r.txt"}


def test_an_install_step_brings_what_the_files_that_it_copies_name(tmp_path: Path) -> None:
    step = (
        "COPY ./{}/requirements.txt /tmp/requirements.txt\nRUN uv pip sync /tmp/requirements.txt\n"
    )
    files = {
        "arm/requirements.txt": "numpy\n",
        "all/requirements.txt": "torch\n",
        "Dockerfile": step,
    }
    assert ("Dockerfile", "DP318") in loud(found(tmp_path, files))
    assert not loud(
        found(tmp_path, {"Dockerfile": step.format("arm"), "all/requirements.txt": "jax\n"})
    )
    more = {"Dockerfile": step.format("all"), "all/requirements.txt": "torch\n"}
    assert ("Dockerfile", "DP318") in loud(found(tmp_path, more))


def test_a_project_that_needs_no_torch_brings_none(tmp_path: Path) -> None:
    files = {
        "Dockerfile": "RUN pip install -e .\n",
        "setup.py": 'setup(install_requires=["numpy"])',
    }
    assert not loud(found(tmp_path, files | {"examples/requirements.txt": "vllm\n"}))
    assert ("Dockerfile", "DP318") in loud(found(tmp_path, {"requirements.txt": "torch\n"}))


ASKS = "import torch\nif torch.version.hip:\n    x = 1\n"


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("import apex\n", "PY030"),
        ("import torch\nnew = torch.cuda.get_device_capability()[0] >= 9\n", "PY019"),
        ("import torch\nx = torch.zeros(1).to(torch.float8_e4m3fn)\n", "PY037"),
        ("WARP_SIZE = 32\n", "PY055"),
    ],
)
def test_what_a_ported_tree_does_in_python_it_does_on_amd(
    tmp_path: Path, code: str, rule: str
) -> None:
    assert ("a.py", rule) in loud(found(tmp_path, {"a.py": code}))
    after = found(tmp_path, {"b.py": ASKS})
    assert [(one.rule, one.gate) for one in after] == [(rule, Gate.PORTED)]


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("import flashinfer\n", "PY035"),
        ("import torch\ntorch.hip.synchronize()\n", "PY023"),
        ("import torch\nf = torch.compile(g, mode='reduce-overhead')\n", "PY001"),
    ],
)
def test_what_no_port_shows_to_work_is_said_in_one(tmp_path: Path, code: str, rule: str) -> None:
    assert ("a.py", rule) in loud(found(tmp_path, {"a.py": code, "b.py": ASKS}))
    assert not loud(found(tmp_path, {"a.py": "", "examples/a.py": code}))


@pytest.mark.parametrize(
    ("files", "knows"),
    [
        ({f"m{number}.py": "# ROCm has none\n" for number in range(6)}, True),
        ({f"m{number}.py": "# ROCm has none\n" for number in range(5)}, False),
        ({f"m{number}.ipynb": '{"cells": [], "x": "rocm"}' for number in range(6)}, False),
        ({"docker/amd/Dockerfile": "FROM debian\n"}, True),
        ({"requirements/runtime_rocm.txt": "numpy\n"}, True),
        ({"scripts/run_rocm.sh": "make\n"}, False),
    ],
)
def test_what_names_rocm_says_that_a_tree_knows_amd(
    tmp_path: Path, files: Mapping[str, str], *, knows: bool
) -> None:
    said = found(tmp_path, {"a.py": "import apex\n"} | dict(files))
    assert (("a.py", "PY030") not in loud(said)) == knows


def test_a_capability_asked_of_amd_alone_is_its_own(tmp_path: Path) -> None:
    asked = "torch.cuda.get_device_capability() < (9, 4)"
    code = f"import torch\nif torch.version.hip:\n    old = {asked}\nelse:\n    new = {asked}\n"
    assert not found(tmp_path, {"a.py": code})
    open_to_all = found(tmp_path, {"a.py": f"import torch\nold = {asked}\n"})
    assert {one.rule for one in open_to_all} == {"PY019"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [(">= 9", "error"), (">= 8", "warning"), ("< 8", "warning"), ("== 8", "error")],
)
def test_what_every_gpu_of_amds_answers_is_a_warning(tmp_path: Path, asked: str, said: str) -> None:
    code = f"import torch\nnew = torch.cuda.get_device_capability()[0] {asked}\n"
    assert [str(one.severity) for one in found(tmp_path, {"a.py": code})] == [said]


@pytest.mark.parametrize(
    ("code", "rules"),
    [
        ("KINDS = {torch.float8_e4m3fn, torch.bfloat16}\n", set()),
        ("kind, largest = torch.float8_e4m3fn, 448\n", {"PY037"}),
        ("RATES = {'tf32': 156e12}\n", set()),
        ("SETTINGS = {'tf32': True}\n", {"PY008"}),
    ],
)
def test_a_list_of_dtypes_and_a_rate_choose_nothing(
    tmp_path: Path, code: str, rules: set[str]
) -> None:
    said = loud(found(tmp_path, {"a.py": f"import torch\n{code}"}))
    assert {rule for _, rule in said} == rules


@pytest.mark.parametrize(
    ("files", "is_loud"),
    [
        ({"requirements_npu.txt": "torch==2.7.1\n"}, False),
        ({"docker/docker-npu/Dockerfile": "RUN pip install -e .\n"}, False),
        ({"docker/input/Dockerfile": "RUN pip install -e .\n"}, True),
        ({"requirements.txt": "torch==2.7.1+xpu\n"}, False),
        ({"requirements.txt": "torch==2.7.1+cu128\n"}, True),
        ({"requirements.txt": "--index-url https://x.org/whl/rocm6.4\ntorch\n"}, False),
        ({"requirements.txt": "--index-url https://x.org/whl/nightly\ntorch\n"}, True),
        ({"helm/tests/a.yaml": 'limits:\n  nvidia.com/gpu: "1"\n'}, False),
        ({"helm/a.yaml": 'limits:\n  nvidia.com/gpu: "1"\n'}, True),
        (IN_C | {"Makefile": "USE_CUDA = FALSE\n"}, False),
        (IN_C | {"Makefile": "USE_CUDA = TRUE\n"}, True),
        (IN_C | {"Makefile": "EXTRA_DIST = run_dgemm_cuda.py\n"}, False),
        (IN_C | {"Makefile": "TAG = x$(CUDA_VERSION)\n"}, False),
        ({"a.c": "int a;\n", "Makefile": "USE_CUDA = TRUE\n"}, False),
        ({"a.c": "int a;\n", "tests/a.cu": KERNEL[:26] + "}\n", "Makefile": "CUDA = on\n"}, False),
        ({"docker/Dockerfile": "FROM nvidia/cuda:12.4.1-base\n"}, True),
        ({"docker/Dockerfile.cu124": "FROM nvidia/cuda:12.4.1-base\n"}, False),
        ({"examples/chat/requirements.txt": "torch==2.7.1\n"}, False),
        ({"chat/requirements.txt": "torch==2.7.1\n"}, True),
        ({"docker/rocm/Dockerfile": "RUN pip install -e .\n"}, False),
        ({"docker/rocm/Dockerfile": "FROM nvidia/cuda:12.4.1-base\n"}, True),
        ({"part/.github/workflows/a.yml": "steps:\n- run: pip install -e .\n"}, False),
        ({"part/workflows/a.yml": "steps:\n- run: pip install -e .\n"}, True),
        ({"examples/a.sh": "python a.py --attn_implementation flash_attention_2\n"}, False),
        ({"a.sh": "python a.py --attn_implementation flash_attention_2\n"}, True),
        ({"a.py": "import cupy\n"}, False),
        ({".devcontainer/Dockerfile": "RUN pip install -e .\n"}, False),
        ({".readthedocs.yaml": "build:\n  commands:\n    - pip install -e .\n"}, False),
        ({"docs/conf.py": "import tensorrt\n"}, False),
        ({"lib/conf.py": "import tensorrt\n"}, True),
        ({"a.sh": "pip install torch --extra-index-url https://x.org/whl/rocm6.4\n"}, False),
        ({"a.sh": "pip install ./b\n", "b/pyproject.toml": "[project]\nname = 'b'\n"}, False),
        ({"a.sh": "temps=$(nvidia-smi -q || true)\n"}, False),
        ({"a.sh": "temps=$(nvidia-smi -q)\n"}, True),
        ({"a.sh": "a=`` b=$()\n"}, False),
        ({"a.sh": "xz --threads 4 a.tar\n"}, False),
        ({"a.sh": "nvcc --threads 4 a.cu\n"}, True),
        ({"requirements.txt": "torch==2.7.1+cpu\n"}, False),
        ({"pyproject.toml": '[project.optional-dependencies]\nx = ["cuequivariance"]\n'}, False),
        ({"pyproject.toml": '[project.optional-dependencies]\nxpu = ["torch==2.7"]\n'}, False),
        ({"pyproject.toml": '[project.optional-dependencies]\nall = ["torch==2.7"]\n'}, True),
    ],
)
def test_what_is_packaged_for_a_third_vendor_is_not_amds(
    tmp_path: Path, files: Mapping[str, str], *, is_loud: bool
) -> None:
    assert bool(loud(found(tmp_path, files))) == is_loud


def test_an_image_of_cudas_is_one_in_a_ported_tree_without_another(tmp_path: Path) -> None:
    image = {"b.py": ASKS, "docker/Dockerfile": "FROM nvidia/cuda:12.4.1-base\n"}
    assert loud(found(tmp_path, image)) == {("docker/Dockerfile", "CT401")}
    aside = "docker run --gpus all debian\n"
    assert not loud(found(tmp_path, {"docker/Dockerfile": "", "tests/run.sh": aside}))
    assert loud(found(tmp_path, {"run.sh": aside})) == {("run.sh", "CT402")}
    (tmp_path / "run.sh").unlink()
    both = {"docker/Dockerfile": image["docker/Dockerfile"] + "FROM rocm/dev-ubuntu-22.04\n"}
    assert not loud(found(tmp_path, both))
    assert loud(found(tmp_path, image)) == {("docker/Dockerfile", "CT401")}
    assert not loud(found(tmp_path, {"images/rocm/Dockerfile": "FROM debian\n"}))


def test_a_third_partys_device_code_that_the_build_names_is_read(tmp_path: Path) -> None:
    for path in ("vendor/splat/a.cu", "vendor/glm/b.cu"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(KERNEL, encoding="utf-8")
    assert not list_tree(tmp_path).files
    (tmp_path / "CMakeLists.txt").write_text("add_library(s vendor/splat/a.cu)\n", encoding="utf-8")
    assert [one.path for one in list_tree(tmp_path).files] == [
        "CMakeLists.txt",
        "vendor/splat/a.cu",
    ]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('void f(cudaDeviceProp p) { out << p.major << "."; }', ""),
        ("bool f(cudaDeviceProp p) { return p.major != 9999; }", ""),
        ("bool f(cudaDeviceProp p) { return p.major < 9; }", "CU151"),
    ],
)
def test_a_capability_that_is_only_printed_decides_nothing(
    tmp_path: Path, text: str, rule: str
) -> None:
    rules = {one for _, one in loud(found(tmp_path, {"a.cu": text}))} & {"CU151"}
    assert rules == ({rule} if rule else set())


def test_warps_are_found_in_the_list_that_is_tried(tmp_path: Path) -> None:
    text = (
        "import triton\nC = [triton.Config({}, num_warps=n) for n in [4, 32]]\n"
        "@triton.autotune(C, key=[])\n@triton.jit\ndef k(x): pass\n"
    )
    assert loud(found(tmp_path, {"k.py": text})) == {("k.py", "PY038")}
    assert not loud(found(tmp_path, {"k.py": text.replace("32", "16")}))


def test_fp8_elsewhere_in_a_long_function_decides_nothing(tmp_path: Path) -> None:
    filler = "    x = 1\n" * 40
    text = (
        f"import torch\ndef f(fp8):\n{filler}    if torch.cuda.get_device_capability()[0] == 9:\n"
    )
    assert loud(found(tmp_path, {"k.py": f"{text}        pass\n"})) == {("k.py", "PY019")}
    assert loud(found(tmp_path, {"k.py": f"{text}        x = fp8\n"})) == {("k.py", "PY020")}


def test_a_switch_that_a_build_turns_off_is_no_part_for_cuda(tmp_path: Path) -> None:
    assert not loud(found(tmp_path, {"a.cmake": "set(ENABLE_CUDA Off CACHE BOOL x)\n"}))


def test_whoever_defines_an_intrinsic_does_it_for_amd(tmp_path: Path) -> None:
    files = {"k.h": KERNEL, "main.cpp": HIP + '#include "k.h"\n'} | BEGUN
    assert ("k.h", "CU108") in loud(found(tmp_path, files))
    shim = (
        "// HIP\ntemplate <typename T> __device__ T __ballot_sync(unsigned m, T v) { return v; }\n"
    )
    assert {path for path, _ in loud(found(tmp_path, {"shim.h": shim}))} == set(BEGUN)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "flags-hip.cmake",
            'if("${HIP_PLATFORM}" STREQUAL "nvidia")\nset(F "--use_fast_math")\nendif()',
        ),
        ("flags-cuda.cmake", 'set(F "--use_fast_math")'),
        ("hip.h", HIP + "template <typename T> void f(texture<T, hipTextureType2D> t);"),
        ("load.hip", HIP + '__device__ int f() __asm("llvm.amdgcn.raw.buffer.load.i32");'),
        ("solve.hip", HIP + "#ifdef CUSOLVER_AVAILABLE\nvoid f() { cusparseDestroy(h); }\n#endif"),
    ],
)
def test_what_is_nvidias_or_hips_own_is_no_warning(tmp_path: Path, path: str, text: str) -> None:
    assert not loud(found(tmp_path, {path: f"{text}\n"}))


@pytest.mark.parametrize(
    ("question", "is_nvidias"),
    [
        ("if gpu.vendor == 'nvidia' or gpu.vendor == 'nvidia-graphics':\n    {}\n", True),
        ("if CUDA_AVAILABLE:\n    {}\nelif HIP_AVAILABLE:\n    import amdsmi\n", True),
        ("if CUDA_AVAILABLE:\n    {}\nelif CPU_ONLY:\n    pass\n", False),
        ("if LOUD:\n    {}\nelif HIP_AVAILABLE:\n    pass\n", False),
    ],
)
def test_an_arm_for_cuda_beside_amds_is_nvidias(
    tmp_path: Path, question: str, *, is_nvidias: bool
) -> None:
    said = found(tmp_path, {"a.py": question.format("import pynvml")})
    assert is_nvidias == ("PY014" not in {one.rule for one in said})


def test_amd_smi_is_installed_without_torch(tmp_path: Path) -> None:
    step = "FROM rocm/dev\nRUN cd /opt/rocm/share/{} && \\\n    python3 -m pip install .\n"
    assert ("Dockerfile", "DP318") in loud(found(tmp_path, {"Dockerfile": step.format("tool")}))
    assert not loud(found(tmp_path, {"Dockerfile": step.format("amd_smi")}))


def test_a_home_that_is_only_printed_decides_nothing(tmp_path: Path) -> None:
    code = "from torch.utils.cpp_extension import ROCM_HOME\nx = {} if ROCM_HOME else 0\n"
    said = found(tmp_path, {"a.py": code.format("build()")})
    assert [(one.rule, one.gate) for one in said] == [("PY048", Gate.PORTED)]
    assert not found(tmp_path, {"a.py": code.format("'installed'")})


def test_nvml_is_an_error_where_its_header_is_needed(tmp_path: Path) -> None:
    use = "typedef int nvmlReturn_t;\nnvmlReturn_t (*nvmlInit) (void);\n"
    assert ("a.c", "CU132") not in loud(found(tmp_path, {"a.c": use}))
    assert ("a.c", "CU132") in loud(found(tmp_path, {"a.c": "#include <nvml.h>\n" + use}))


def test_several_packages_of_one_line_are_one_finding(tmp_path: Path) -> None:
    said = found(tmp_path, {"a.sh": "pip install torch torchvision torchaudio\n"})
    assert [one.rule for one in said] == ["DP302"]


SMI = "from subprocess import run\ntry:\n    run(['nvidia-smi', '-L'])\nexcept OSError:\n"
SETUP = "import shutil\nfrom setuptools import setup\n{}\nsetup()\n"


@pytest.mark.parametrize(
    ("path", "code", "rules"),
    [
        ("setup.py", SETUP.format("run('rocminfo')"), {"BL204"}),
        ("setup.py", SETUP.format("shutil.which('rocminfo')"), set()),
        ("setup.py", SETUP.format("run('pip install x -i https://a.org/whl/cu128')"), {"DP314"}),
        ("setup.py", SETUP.format("print('pip install x -i https://a.org/whl/cu128')"), set()),
        ("a.py", "import threading\nlock_of_nvml_ = threading.Lock()\n", set()),
        ("a.py", "handle_of_nvml_ = nvml_open()\n", {"PY064"}),
        ("a.py", "def f(a):\n    clocks_of_nvml_ = max(clocks_of_nvml_)\n", set()),
        ("a.py", "try:\n    run()\nexcept pynvml.NVMLError:\n    amdsmi_init()\n", set()),
        ("a.py", "try:\n    run()\nexcept pynvml.NVMLError:\n    stop()\n", {"PY064"}),
        ("a.py", "import torch\ntorch.cuda.profiler.start()\n", set()),
        ("a.py", "line = line.replace('--use_fast_math', '')\n", set()),
        ("a.py", f"{SMI}    run(['ls'])\n", {"PY016"}),
        ("a.py", f"{SMI}    run(['amd-smi', 'list'])\n", set()),
        ("a.py", "slow = '--use_fast_math' not in line\n", set()),
        ("a.py", "line = line.replace('-O3', '--use_fast_math')\n", {"PY041"}),
    ],
)
def test_what_is_only_looked_for_said_or_kept_is_no_question(
    tmp_path: Path, path: str, code: str, rules: set[str]
) -> None:
    assert {rule for _, rule in loud(found(tmp_path, {path: code}))} == rules


@pytest.mark.parametrize(
    ("assembly", "is_loud"),
    [("s_getreg_b32 $0, hwreg(4)", False), ("mov.u32 $0, %smid;", True)],
)
def test_assembly_of_amds_is_for_amd(tmp_path: Path, assembly: str, *, is_loud: bool) -> None:
    call = f"tl.inline_asm_elementwise('{assembly}', '=r', [], 1, True, 1)"
    code = f"import triton\nimport triton.language as tl\nx = {call}\n"
    assert bool(loud(found(tmp_path, {"a.py": code}))) == is_loud


@pytest.mark.parametrize(
    ("code", "is_loud"),
    [
        ("void g() { Kokkos::fence(); }", False),
        ("void g() { sycl::queue q; }", False),
        ("void g() { clEnqueueNDRangeKernel(q); }", True),
        ("void g() { vkCmdDispatch(b); }", True),
        ("int g;", True),
    ],
)
def test_who_comes_to_amds_devices_another_way_has_ported(
    tmp_path: Path, code: str, *, is_loud: bool
) -> None:
    files = BEGUN | {f"new{number}.cc": f"{code}\n" for number in range(3)}
    assert bool(loud(found(tmp_path, files))) == is_loud
    assert loud(found(tmp_path, {"old/more.cc": BEGUN["old/part0.cc"]}))


@pytest.mark.parametrize(
    ("said", "is_loud"),
    [
        ("It runs on NVIDIA and AMD GPUs.", False),
        ("Build with ROCm 6.4 for MI300X.", False),
        ("AMD GPUs are not supported.", True),
        ("- [ ] AMD GPUs", True),
        ("## More to come\n\n- ROCm support", True),
        ("## More to come\n\n- a server\n\n## Devices\n\n- ROCm", False),
        ("See whl/ROCm and x-HIP.", True),
        ("It runs on GPUs.", True),
    ],
)
def test_a_readme_says_what_a_tree_runs_on_that_has_begun(
    tmp_path: Path, said: str, *, is_loud: bool
) -> None:
    """It is no word of what hardly anything in the code knows of: that is to come."""
    (tmp_path / "README.md").write_text(f"# A project\n\n{said}\n", encoding="utf-8")
    assert loud(found(tmp_path, BEGUN))
    assert loud(found(tmp_path, {"a.cc": HIP}))
    assert bool(loud(found(tmp_path, {"b.cc": HIP, "c.cc": HIP}))) == is_loud
    for path in (*BEGUN, "a.cc", "b.cc", "c.cc"):
        (tmp_path / path).unlink()
    builds = "import torch\nfrom torch.utils.cpp_extension import CUDAExtension\n"
    tf32 = "torch.set_float32_matmul_precision('high')\n"
    assert bool(loud(found(tmp_path, {"a.py": builds + tf32}))) == is_loud


def test_a_build_that_asks_for_rocm_is_no_port_of_code_that_never_names_hip(tmp_path: Path) -> None:
    builds = "from torch.utils.cpp_extension import CUDAExtension\nrocm = torch.version.hip\n"
    asm = '__global__ void k() { asm("mov.u32 %%r1, %%smid;"); }\n'
    few = {f"a{number}.cu": asm for number in range(10)}
    assert not loud(found(tmp_path, {"setup.py": f"import torch\n{builds}"} | few))
    assert ("a0.cu", "CU107") in loud(found(tmp_path, {"a10.cu": asm}))
    assert not loud(found(tmp_path, {"b.cu": "#ifdef USE_ROCM\nint a;\n#endif\n"}))


def test_a_begun_port_says_nothing_of_files_that_do_not_know_of_it(tmp_path: Path) -> None:
    """`A_CUDA` is NVIDIA's where `A_HIP` stands beside it, and still to be done elsewhere."""
    begun = "#if A_CUDA\nvoid f() { cudaFree(p); }\n#elif A_HIP\nvoid f();\n#endif\n"
    rest = "#if A_CUDA\nvoid g() { cudaFree(p); }\n#endif\n"
    files = {"a.cc": begun, "b.cc": rest, "CMakeLists.txt": "find_package(hip)\n"} | BEGUN
    assert {path for path, rule in loud(found(tmp_path, files)) if rule == "CU101"} == {
        "b.cc",
        *BEGUN,
    }
    parts = {f"part{number}.cpp": HIP for number in range(6)}
    ported = [one for one in found(tmp_path, parts) if one.path == "b.cc"]
    assert {(one.rule, one.gate) for one in ported} == {("CU153", Gate.PORTED)}


def test_python_that_writes_or_builds_for_cuda_is_said_where_nothing_is_for_amd(
    tmp_path: Path,
) -> None:
    code = "NAMES = ['cuda', 'cudart']\ndef to_cuda(kind): return kind\nbarracuda = 1\n"
    said = [one for one in found(tmp_path, BEGUN | {"a.py": code}) if one.path == "a.py"]
    assert [(one.line, one.rule, str(one.severity)) for one in said] == [
        (1, "CU154", "warning"),
        (2, "CU154", "warning"),
    ]
    aside = found(tmp_path, {"examples/a.py": code})
    assert "examples/a.py" not in {one.path for one in aside}
    of_torch = found(tmp_path, {"a.py": f"import torch\n{code}"})
    assert "CU154" not in {one.rule for one in of_torch}
    parts = {f"part{number}.cpp": HIP for number in range(6)}
    assert "CU154" not in {one.rule for one in found(tmp_path, parts | {"a.py": code})}


def test_the_last_include_is_where_a_stand_in_for_the_runtime_goes(tmp_path: Path) -> None:
    own = '#include <vector>\n#include "mesh.h"\nvoid f() { cudaFree(nullptr); }\n'
    said = [one.line for one in found(tmp_path, {"a.cc": own}) if one.rule == "CU101"]
    assert said == [2, 3]
    of_the_library = own.replace('"mesh.h"', "<map>")  # it brings none of CUDA's names
    said = [one.line for one in found(tmp_path, {"a.cc": of_the_library}) if one.rule == "CU101"]
    assert said == [3]
    direct = own.replace("<vector>", "<cuda_runtime.h>")
    said = [one.line for one in found(tmp_path, {"a.cc": direct}) if one.rule == "CU101"]
    assert said == [1, 3]


def test_a_ballot_is_kept_whole_in_a_long_long_int(tmp_path: Path) -> None:
    kernel = "__global__ void k() {{ {} mask = __ballot(1); use(mask); }}\n"
    assert loud(found(tmp_path, {"a.cu": HIP + kernel.format("unsigned int")}))
    assert not loud(found(tmp_path, {"a.cu": HIP + kernel.format("unsigned long long int")}))


def test_a_name_is_looked_for_across_what_was_left_out(tmp_path: Path) -> None:
    gap = "//\n" * 20_000
    kernel = (
        f"__global__ void k() {{{{\n{gap} {{}} mask = f();\n{gap} __shfl_sync(mask, 1, 2); }}}}\n"
    )
    assert ("a.cu", "CU108") in loud(found(tmp_path, {"a.cu": kernel.format("unsigned *const")}))
    assert not loud(found(tmp_path, {"a.cu": HIP + kernel.format("unsigned long long")}))


@pytest.mark.parametrize(
    ("code", "is_loud"),
    [
        ("bool f(Tensor t) { return t.is_cuda(); }\n", False),
        ("bool f(Tensor t) { return t.on_cuda(); }\n", True),
        ("#if defined(A_OPENCL) || defined(A_CUDA)\nint a;\n#endif\n", False),
        ("#if defined(A_MPI) || defined(A_CUDA)\nint a;\n#endif\n", True),
    ],
)
def test_what_other_devices_share_is_not_cudas_alone(
    tmp_path: Path, code: str, *, is_loud: bool
) -> None:
    files = BEGUN | {"b.cc": code}
    assert ("b.cc" in {path for path, _ in loud(found(tmp_path, files))}) == is_loud


@pytest.mark.parametrize(
    ("package", "is_loud"), [("torch.utils.cpp_extension", False), ("a", True)]
)
def test_options_that_torch_hands_on_are_for_both(
    tmp_path: Path, package: str, *, is_loud: bool
) -> None:
    code = f"from {package} import Extension\nmake = Extension(with_cuda=True)\n"
    assert bool(loud(found(tmp_path, {"setup.py": code}))) == is_loud


def test_examples_for_cuda_say_nothing_of_how_far_a_port_is(tmp_path: Path) -> None:
    wrap = "#if A_CUDA\n#include <cuda_runtime.h>\n#else\n#include <hip/hip_runtime.h>\n#endif\n"
    use = "void f() { cudaFree(nullptr); }\n"
    files = {"src/runtime.hpp": wrap} | {f"examples/e{i}.cpp": use for i in range(4)}
    assert not loud(found(tmp_path, files))
    in_product = {f"src/e{i}.cpp": use for i in range(4)}
    assert set(in_product) <= {path for path, _ in loud(found(tmp_path, in_product))}


NVIDIAS_HEADER = """/*
 * Copyright 1993-2024 NVIDIA Corporation.  All rights reserved.
 * These Licensed Deliverables contained herein are PROPRIETARY
 */
cudaError_t cudaSetDevice(int device);
"""


def test_a_copy_of_the_toolkits_header_is_no_code_to_port(tmp_path: Path) -> None:
    own = "cudaError_t cudaSetDevice(int device);\n"
    assert loud(found(tmp_path, {"include/cuda_runtime_api.h": own}))
    assert loud(found(tmp_path, {"include/cuda_runtime_api.h": "", "api.h": NVIDIAS_HEADER}))
    copied = {"include/cuda_runtime_api.h": NVIDIAS_HEADER, "api.h": ""}
    assert not [one for one in found(tmp_path, copied) if one.rule == "CU101"]


@pytest.mark.parametrize(
    ("name", "licence", "said"),
    [
        ("dcgm_errors.h", "Copyright (c) 2022, NVIDIA CORPORATION.\n * Apache License", False),
        ("dcgm_errors.h", "Copyright (c) 2022, Somebody.\n * Apache License", True),
        ("errors.h", "Copyright (c) 2022, NVIDIA CORPORATION.\n * Apache License", True),
    ],
)
def test_a_copy_of_a_header_of_nvidias_tools_is_no_code_to_port(
    tmp_path: Path, name: str, licence: str, *, said: bool
) -> None:
    files = {name: f"/* {licence} */\nenum e {{ DCGM_BAD_CUDA_ENV = 28 }};\n", "b.cu": KERNEL}
    assert ((name, "CU154") in loud(found(tmp_path, files))) is said


@pytest.mark.parametrize(
    ("define", "said"),
    [("cudaFree hipFree", False), ("cudaFree my_free", True), ("cudaFree chipFree", True)],
)
def test_a_header_of_names_for_hip_is_a_port_whoever_includes_it(
    tmp_path: Path, define: str, *, said: bool
) -> None:
    files = {"to_hip.h": f"#define {define}\n", "check.h": "#define CUDA_CHECK(x) check(x)\n"}
    files |= {"setup.py": "run('hipcc a.cu')\n", "a.cu": "void f() { CUDA_CHECK(cudaFree(p)); }\n"}
    assert (("a.cu", "CU154") in loud(found(tmp_path, files | BEGUN))) is said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#define NOINLINE __noinline__\n", True),
        ("#define BOTH __host__ __device__\n", False),
        ("#ifdef USE_HIP\nint a;\n#endif\n", False),
    ],
)
def test_a_compilers_macro_in_code_without_devices_is_no_knowledge_of_amd(
    tmp_path: Path, text: str, *, said: bool
) -> None:
    header = f"#if defined(__HIP_PLATFORM_HCC__)\n{text}#endif\n"
    own = {
        "a.cpp": '#include "cuda_alike.h"\nint a;\n',
        "cuda_alike.h": "#include <cuda_runtime.h>\n",
    }
    assert (("a.cpp", "CU154") in loud(found(tmp_path, own | {"portability.h": header}))) is said


def test_rccl_has_the_names_of_nccl_but_not_its_header(tmp_path: Path) -> None:
    names = "ncclResult_t f(ncclComm_t c) { cublasHandle_t h; return ncclSuccess; }\n"
    include = '#include <nccl.h>\n#include "nccl_own_memory.h"\nint a;\n'
    files = {"a.cpp": names, "b.cpp": include, "cuda.cu": KERNEL}
    said = [one for one in found(tmp_path, files) if one.severity is not Severity.NOTE]
    assert [one.excerpt for one in said if one.path == "b.cpp"] == ["#include <nccl.h>"]
    about = [one.message for one in said if one.rule == "CU102" and one.path == "a.cpp"]
    assert about == ["CUDA library `cublasHandle_t`"]


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("if (WARP_SIZE == 64) { f(); } else { @ }", False),
        ("if constexpr (warpSize > 32) { f(); } else { @ }", False),
        ("if (kWarpSize == 32) { @ }", False),
        ("if (WARP_SIZE == 64) { @ } else { f(); }", True),
        ("if (WARP_SIZE == 32) { f(); } else { @ }", True),
        ("if (count == 32) { @ }", True),
        ("if (WARP_SIZE == 64) { f(); } @", True),
    ],
)
def test_what_waves_of_64_do_not_come_to_is_not_said(
    tmp_path: Path, condition: str, *, said: bool
) -> None:
    code = condition.replace(
        "@", "unsigned b = (1u << lane) - 1; m = __shfl_sync(0xffffffff, v, 0);"
    )
    files = {"a.hip": f"{HIP}__device__ void k(int lane, int v, int m) {{ {code} }}\n"}
    assert ("CU111" in {one.rule for one in found(tmp_path, files)}) is said


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("defined(WS) && (WS == 64)", False),
        ("WARP_SIZE > 32", False),
        ("__AMDGCN_WAVEFRONT_SIZE == 64", False),
        ("WARP_SIZE == 32", True),
        ("ROWS == 64", True),
    ],
)
def test_the_arm_beside_one_for_waves_of_64_is_for_others(
    tmp_path: Path, condition: str, *, said: bool
) -> None:
    arms = f"#if {condition}\nf();\n#else\nint m = __ballot(p);\n#endif\n"
    files = {"a.hip": f"{HIP}__device__ void k(bool p) {{\n{arms}}}\n"}
    assert (("a.hip", "CU109") in loud(found(tmp_path, files))) is said


@pytest.mark.parametrize(("width", "said"), [("WS == 64", False), ("WS == 32", True)])
def test_what_a_ballot_of_32_lanes_gave_in_its_arm_is_counted_right(
    tmp_path: Path, width: str, *, said: bool
) -> None:
    wide = "int m = lane < 32 ? (int)v : (int)(v >> 32);"
    arms = f"#if {width}\n{wide}\n#else\nint m = __ballot(p);\n#endif\nv = __popc(m);"
    files = {"a.hip": f"{HIP}__device__ void k(bool p) {{\n{arms}\n}}\n"}
    assert (("a.hip", "CU111") in loud(found(tmp_path, files))) is said


@pytest.mark.parametrize(("tool", "said"), [("HIPIFY", False), ("SIMPLIFY", True)])
def test_what_is_given_to_hipify_is_ported(tmp_path: Path, tool: str, *, said: bool) -> None:
    remark = f"#if !defined(__HIPCC__)\n#include <cuda/atomic>  // not replaced by {tool}\n#endif\n"
    files = {"a.h": remark, "b.cu": "void f() { cudaFree(p); }\n"} | BEGUN
    assert (("b.cu", "CU101") in loud(found(tmp_path, files))) is said


@pytest.mark.parametrize(("define", "said"), [("-D__HIP_PLATFORM_HCC__", False), ("-DHCC", True)])
def test_an_old_macro_of_hips_that_a_files_own_flags_set_is_there(
    tmp_path: Path, define: str, *, said: bool
) -> None:
    code = f"// flags: {define}\n#if !defined(__HIP_PLATFORM_HCC__)\n#include <cuda.h>\n#endif\n"
    assert (("a.hpp", "CU155") in loud(found(tmp_path, {"a.hpp": code, "b.cpp": HIP}))) is said


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("m = (1 << bitplane_index) - 1", False),
        ("m = 1 << LOG_COUNTER_LANES", False),
        ("m = 1u << (lane_id)", True),
        ("m = 1 << warplane", True),
        ("m = 1 << mylane", True),
        ("m = 1 << sublane", False),
    ],
)
def test_a_plane_is_no_lane(tmp_path: Path, code: str, *, said: bool) -> None:
    kernel = f"{HIP}__device__ bool k(int lane, int m) {{ {code}; return __ballot(1) & m; }}\n"
    assert (("a.hip", "CU111") in loud(found(tmp_path, {"a.hip": kernel}))) is said


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.sh", 'case "$V" in\n  cu121)\n    @\n    ;;\nesac\n', False),
        ("a.sh", 'case "$V" in\n  cu121) echo a ;;\n  *)\n    @\n    ;;\nesac\n', True),
        ("a.sh", 'case "$V" in\n  cu121) echo $(date) ;;\nesac\n@\n', True),
        ("a.sh", 'case "$V" in\n  rocm*) echo a ;;\n  cuda*) if x; then y; fi; @ ;;\nesac', False),
    ],
)
def test_an_arm_of_case_for_cudas_version_is_nvidias(
    tmp_path: Path, name: str, text: str, *, said: bool
) -> None:
    files = {name: text.replace("@", "export TORCH_CUDA_ARCH_LIST=8.0")}
    assert ((name, "BL208") in loud(found(tmp_path, files))) is said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ('echo "nvidia-ctk found at: $(command -v "$X")"', False),
        ('echo "found: $(nvidia-smi -L) here"', True),
        ('x="`nvidia-smi -L | wc -l`"', True),
    ],
)
def test_only_what_is_substituted_is_a_command(tmp_path: Path, command: str, *, said: bool) -> None:
    assert (("a.sh", "SH501") in loud(found(tmp_path, {"a.sh": command + "\n"}))) is said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("$<$<COMPILE_LANGUAGE:CUDA>: --use_fast_math --expt-relaxed-constexpr>", False),
        ("$<${with_cuda}: $<${debug}: -O0 > --use_fast_math>", False),
        ("$<$<COMPILE_LANGUAGE:CUDA>: -O3> --use_fast_math", True),
        ("$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>: --use_fast_math>", True),
    ],
)
def test_what_cmake_hands_to_cudas_language_alone_is_nvidias(
    tmp_path: Path, words: str, *, said: bool
) -> None:
    files = {"CMakeLists.txt": f"target_compile_options(a PRIVATE {words})\n"}
    assert (("CMakeLists.txt", "BL201") in loud(found(tmp_path, files))) is said


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("CMakeLists.txt", "project(cudawrappers)\noption(CUDAWRAPPERS_TESTS ON)\n", set()),
        ("CMakeLists.txt", "project(cudawrappers)\noption(WITH_CUDA ON)\n", {"option"}),
        ("FindOpenCL.cmake", "find_path(X PATHS C:/CUDA)\n", set()),
        ("FindX.cmake", "find_path(X PATHS C:/CUDA)\n", {"find_path"}),
        ("CMakeLists.txt", 'if(A STREQUAL "CUDA")\nelseif(A STREQUAL "ROCM")\nendif()\n', set()),
        ("CMakeLists.txt", 'if(A STREQUAL "CUDA")  # no ROCM\nendif()\n', {"if"}),
    ],
)
def test_a_builds_word_for_cuda_is_no_name_and_no_path_and_stands_alone(
    tmp_path: Path, name: str, text: str, said: set[str]
) -> None:
    findings = found(tmp_path, {name: text, "a.cu": KERNEL})
    about = {one.excerpt.partition("(")[0] for one in findings if one.rule == "BL217"}
    assert about == said


def test_torchs_own_words_for_cuda_are_rocms_too(tmp_path: Path) -> None:
    code = "auto t = torch::DeviceType::CUDA; bool own = has_cuda();\n"
    plain = found(tmp_path, {"a.cpp": code, "b.cu": KERNEL})
    assert ("a.cpp", "CU154") in loud(plain)
    assert ("a.cpp", "CU154") not in loud(
        found(tmp_path, {"a.cpp": f"#include <torch/all.h>\n{code}"})
    )


def test_a_second_try_in_the_handler_forgives_as_well(tmp_path: Path) -> None:
    text = (
        "try:\n    import flash_attn_3.interface as f\nexcept ImportError:\n    try:\n"
        "        import flash_attn_interface as f\n    except ImportError:\n        f = None\n"
    )
    assert not [o for o in found(tmp_path, {"a.py": text}) if o.severity is Severity.ERROR]
    sure = text.replace(
        "    except ImportError:\n        f = None\n", "    finally:\n        pass\n"
    )
    assert [o for o in found(tmp_path, {"a.py": sure}) if o.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("text", "rule", "said"),
    [
        ("int f() { return cuIpcGetMemHandle(&h, p); }", "CU101", True),
        ("int f() { return cuMemcpyDtoH(a, b, n); }", "CU101", True),
        ("int f() { return cuDriverless(a, b, n); }", "CU101", False),
        ('#include "util/util_cudnn.hpp"\nint a;', "CU154", True),
        ('#include "util/cucumber.hpp"\nint a;', "CU154", False),
        ("#if defined(A_BOUNDS) && !defined(__CUDA_ARCH__)\nint a;\n#endif", "CU123", True),
        ("#if !defined(__CUDA_ARCH__) && defined(A_BOUNDS)\nint a;\n#endif", "CU123", True),
        ("#if A && !defined(__CUDA_ARCH__) && !__HIP_DEVICE_COMPILE__\n#endif", "CU123", False),
        ("#if !__CUDACC__ && !defined(__OPTIMIZE__)\nint a;\n#endif", "CU124", False),
        ("#if !__CUDACC__ && !defined(A_SLOW)\nint a;\n#endif", "CU124", True),
    ],
)
def test_kinds_of_lines_that_ports_change_are_said(
    tmp_path: Path, text: str, rule: str, *, said: bool
) -> None:
    files = {"a.cpp": f"{text}\n", "b.cu": KERNEL}
    assert (("a.cpp", rule) in loud(found(tmp_path, files))) is said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("CUDAExtension('a', libraries=['cublas'])", True),
        ("libraries.append('cublas')", True),
        ("CUDAExtension('a', sources=['cublas'])", False),
        ("CUDAExtension('a', libraries=['blas'])", False),
    ],
)
def test_a_library_of_nvidias_is_said_where_a_build_links_it(
    tmp_path: Path, line: str, *, said: bool
) -> None:
    text = f"from torch.utils.cpp_extension import CUDAExtension\nlibraries = []\n{line}\n"
    assert (("setup.py", "BL207") in loud(found(tmp_path, {"setup.py": text}))) is said


@pytest.mark.parametrize(
    ("vector", "said"),
    [("__m256i v = _mm256_set1_epi32(1);", False), ("int v = 1;", True)],
)
def test_lanes_of_a_cpus_vectors_are_no_warps(tmp_path: Path, vector: str, *, said: bool) -> None:
    code = f"inline int k(int lane) {{ {vector} return 1 << lane & __ballot(1); }}\n"
    files = {"a.hpp": f"#include <cuda_runtime.h>\n{code}"}
    assert (("a.hpp", "CU111") in loud(found(tmp_path, files))) is said


@pytest.mark.parametrize(("by", "said"), [("load_inline", False), ("compile_with_nvcc", True)])
def test_what_torch_translates_when_it_loads_it_is_not_written_for_cuda(
    tmp_path: Path, by: str, *, said: bool
) -> None:
    text = f'source = "cudaFree(x);"\n{by}(cuda_sources=source)\n'
    assert (("a.py", "PY065") in loud(found(tmp_path, {"a.py": text}))) is said


@pytest.mark.parametrize(("name", "said"), [("is_cuda", False), ("own_cuda_part", True)])
def test_a_tensors_own_word_for_a_gpu_is_no_part_for_cuda(
    tmp_path: Path, name: str, *, said: bool
) -> None:
    build = "from torch.utils.cpp_extension import load\n"
    code = f"{build}def f(x):\n    return load('a', ['b.cu'])(x.{name})\n"
    other = f"{code}def setup(fabric):\n    return fabric.setup()\n"
    said_of = loud(found(tmp_path, {"setup.py": code, "a.py": other}))
    assert {path for path, rule in said_of if rule == "BL217"} == ({"setup.py"} if said else set())
