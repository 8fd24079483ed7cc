"""What a compiler's syntax passes add to a scan: rule CC701, and what was not compiled."""

from __future__ import annotations

import ast
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from releases import Quiet

from warpfront.errors import BlockedError, UnavailableError
from warpfront.wheels.sources import Site
from warpfront_port.commands import syntax_passes
from warpfront_port.commands.scanning import ScanRequest, scan_tree, verdict_of
from warpfront_port.commands.syntax_passes import MODULES, with_compiler
from warpfront_port.compile import syntax_job
from warpfront_port.compile.syntax_pass import claims_of, read_results, with_syntax
from warpfront_port.compile.units import definitions_of
from warpfront_port.finding_forms import verdict_text
from warpfront_port.scan.python.gates import Gates, Standing
from warpfront_port.scan.targets import read_target

KERNEL = "__global__ void k(float* o) { o[0] = 1; }\n"
HEADER = "/usr/include/hip/amd_detail/amd_warp_sync_functions.h"


def results(output: str, *codes: int) -> dict[str, object]:
    return {
        "compiler": "clang 22.1, HIP 7.2.4",
        "hip": {"hipMalloc": "cudaMalloc"},
        "units": [
            {"unit": "k.cu", "codes": list(codes), "output": output, "lines": {"k.cu": [1, 2, 3]}}
        ],
    }


def added(tmp_path: Path, output: str, *codes: int, text: str = KERNEL) -> tuple[str, list[str]]:
    """The first line with a compiler's answer, and what the errors are."""
    (tmp_path / "k.cu").write_text(text)
    found = scan_tree(ScanRequest(repo=tmp_path, target=read_target("gfx942")), processes=1)
    found = with_syntax(found, read_results(results(output, *codes), "/src"))
    errors = [f"{f.line} {f.rule} {f.message}" for f in found.findings if f.severity == "error"]
    return verdict_of(found, found.findings).line, errors


def test_a_source_that_compiles_runs_as_it_is(tmp_path: Path) -> None:
    assert added(tmp_path, "", 0, 0) == ("gfx942: runs as it is, nothing to check", [])


def test_an_error_of_the_project_is_a_cause_with_cudas_names(tmp_path: Path) -> None:
    output = "/src/k.cu:3:5: error: no matching function for call to 'hipMalloc'\n" * 2
    line, errors = added(tmp_path, output, 1, 1)
    assert line == "gfx942: will not build: 1 cause"
    assert errors == ["3 CC701 no matching function for call to 'cudaMalloc'"]


def test_an_error_in_a_header_is_said_where_the_project_asked_for_it(tmp_path: Path) -> None:
    output = (
        f"{HEADER}:205:3: error: static assertion failed: The mask must be a 64-bit integer\n"
        "/src/k.cu:7:9: note: in instantiation of function template specialization requested here\n"
    )
    line, errors = added(tmp_path, output, 1, 1)
    assert line == "gfx942: will not build: 1 cause"
    assert errors[0].startswith("7 CC701 static assertion failed")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("/src/k.cu:1:10: fatal error: 'torch/extension.h' file not found\n",
         "torch/extension.h is not there"),
        ("/shims/cublas_v2.h:5:2: error: warpfront: the environment lacks hipblas/hipblas.h\n",
         "the toolchain has no hipblas/hipblas.h"),
        ("/usr/include/thrust/x.h:1:1: error: bad\n", "an error outside of the project"),
    ],
)  # fmt: skip
def test_what_the_environment_lacks_is_not_determined(
    tmp_path: Path, output: str, reason: str
) -> None:
    line, errors = added(tmp_path, output, 1, 1)
    assert line.startswith("gfx942: not determined: 1 source not compiled: k.cu: ")
    assert reason in line
    assert errors == []


def test_a_header_that_only_cuda_has_is_an_error(tmp_path: Path) -> None:
    error = (
        "/absent/cuda/std/functional:4:2: error: warpfront: no environment has cuda/std/functional"
    )
    output = f"In file included from /src/k.cu:1:\n{error}\n/src/k.cu:3:1: error: no name 'x'\n"
    line, errors = added(tmp_path, output, 1, 1)
    assert line == "gfx942: will not build: 2 causes"
    assert errors[0] == "1 CU147 `cuda/std/functional` has no twin in HIP"
    through = output.replace("/src/k.cu:1:\n", "/usr/include/x.h:1:\n").partition("/src")[0]
    assert "cuda/std/functional is not there" in added(tmp_path, through, 1, 1)[0]


def test_a_pass_that_took_too_long_or_died_is_not_determined(tmp_path: Path) -> None:
    assert "took longer" in added(tmp_path, "", 124)[0]
    assert "without a diagnostic" in added(tmp_path, "", 139, 0)[0]


def test_a_rule_that_the_compiler_refutes_is_a_note_and_ptx_is_not(tmp_path: Path) -> None:
    mask = "__device__ int f(int v) { return __shfl_down_sync(0xffffffff, v, 1); }\n"
    assert added(tmp_path, "", 0, 0, text=mask) == ("gfx942: runs as it is, nothing to check", [])
    ptx = '__global__ void k(int* o) { asm("mov.u32 %0, %laneid;" : "=r"(o[0])); }\n'
    assert added(tmp_path, "", 0, 0, text=ptx)[0] == "gfx942: will not build: 1 cause"


def test_a_note_of_the_compiler_stands_in_for_no_rule(tmp_path: Path) -> None:
    mask = "__device__ int f(int v) { return __shfl_sync(0xffffffff, v, 0); }\n"
    (tmp_path / "k.cu").write_text(mask + KERNEL)
    output = "/src/k.cu:2:1: error: no matching function for call to 'f'\n"
    output += "/src/k.cu:1:1: note: candidate function not viable: call to __device__ function\n"
    found = scan_tree(ScanRequest(repo=tmp_path, target=read_target("gfx942")), processes=1)
    found = with_syntax(found, read_results(results(output, 1, 1), "/src"))
    assert [(f.line, f.rule) for f in found.findings] == [(1, "CC701"), (1, "CU108"), (2, "CC701")]


def test_shims_map_headers_and_the_names_that_sources_use(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "k.cu").write_text("#include <cublas_v2.h>\nvoid f() { cudaFree(0); }\n")
    (tmp_path / "src" / "CMakeLists.txt").write_text("set(CMAKE_CUDA_STANDARD 20)\n")
    tree = syntax_job.Tree(tmp_path / "src")
    names = {"cudaFree": "hipFree", "cudaMalloc": "hipMalloc"}
    forced = syntax_job.write_shims(
        tmp_path / "out", tree, names, {"cublas_v2.h": "hipblas/hipblas.h"}, ""
    )
    assert "#define cudaFree hipFree" in forced.read_text()
    assert "cudaMalloc" not in forced.read_text()
    shim = (tmp_path / "out" / "shims" / "cublas_v2.h").read_text()
    assert "#include <hipblas/hipblas.h>" in shim
    assert syntax_job.LACKS in shim
    assert tree.standard(17) == "-std=c++20"


def test_only_hip_s_own_language_has_the_compiler_s_macro(tmp_path: Path) -> None:
    """torch's headers take `__CUDACC__` for a device's compiler, and a .cpp has the host's."""
    (tmp_path / "k.cpp").write_text("#ifdef __CUDACC__\n#endif\n")
    tree, names = syntax_job.Tree(tmp_path), {"__CUDACC__": "__HIPCC__", "cudaFree": "hipFree"}
    text = syntax_job.write_shims(tmp_path / "out", tree, names, {}, "/torch").read_text()
    (defined,) = (n for n, line in enumerate(text.splitlines()) if "define __CUDACC__" in line)
    assert text.splitlines()[defined + 1] == "#endif"
    assert text.count("#ifdef __HIP__") == 1
    assert "#define cudaFree hipFree" in text


def test_a_header_that_no_environment_has_is_an_error_of_its_own(tmp_path: Path) -> None:
    source, torch, out = tmp_path / "src", tmp_path / "torch", tmp_path / "out"
    (torch / "ATen" / "cuda").mkdir(parents=True)
    (torch / "ATen" / "cuda" / "Atomic.cuh").touch()
    source.mkdir()
    (source / "cuda_mine.h").touch()
    included = (
        "cuda/std/atomic", "cuda.h", "cuda_mine.h", "vector", "THC/THC.h", "ATen/cuda/Atomic.cuh",
        "ATen/hip/Atomic.cuh", "ATen/cuda/Gone.cuh", "thrust/system/cuda/vector.h",
    )  # fmt: skip
    (source / "k.cu").write_text("".join(f"#include <{name}>\n" for name in included))
    tree = syntax_job.Tree(source)
    options = syntax_job.tree_options(tree, out, {"cuda.h"}, str(torch))
    written = (path for path in out.rglob("absent/**/*") if path.is_file())
    assert {path.relative_to(out / "absent").as_posix() for path in written} == {
        "cuda/std/atomic", "THC/THC.h", "ATen/cuda/Gone.cuh", "thrust/system/cuda/vector.h",
    }  # fmt: skip
    shim = (out / "absent" / "THC" / "THC.h").read_text()
    assert f"#error {syntax_job.ABSENT}THC/THC.h" in shim
    back_end = (out / "absent" / "thrust" / "system" / "cuda" / "vector.h").read_text()
    assert "#include_next <thrust/system/hip/vector.h>" in back_end
    assert options[2:] == ["-include", str(out / "back_end.h")]
    assert syntax_job.tree_options(tree, tmp_path / "cpu", {"cuda.h"}, "")
    assert not (tmp_path / "cpu" / "absent" / "THC").exists()


def test_a_header_of_a_library_whose_whole_has_a_twin_is_part_of_that(tmp_path: Path) -> None:
    source, table = tmp_path / "src", {"cub/cub.cuh": "hipcub/hipcub.hpp"}
    source.mkdir()
    (source / "k.cu").write_text("#include <cub/block/block_radix_sort.cuh>\n")
    tree = syntax_job.Tree(source)
    for torch, included in (("", "#include <cub/cub.cuh>"), ("/torch", syntax_job.ABSENT)):
        out = tmp_path / f"out{len(torch)}"  # torch's hipify renames those of its table alone
        syntax_job.tree_options(tree, out, table, torch)
        assert included in (out / "absent/cub/block/block_radix_sort.cuh").read_text()


CONFINED = """
import socket, sys
from pathlib import Path
from warpfront_port.compile.syntax_job import confine

def refused(act):
    try:
        act()
    except PermissionError:
        return True
    return False

readable, writable, secret, port = sys.argv[1:]
assert confine([readable, "/dev/null"], [writable])
Path(writable, "made").write_text(Path(readable, "k.cu").read_text())
assert refused(Path(readable, "k.cu").unlink)
assert refused(Path(secret).read_text)
assert refused(lambda: socket.create_connection(("127.0.0.1", int(port))))
"""


@pytest.mark.process
def test_a_confined_job_reaches_no_other_file_and_no_network(tmp_path: Path) -> None:
    readable, writable, secret = tmp_path / "tree", tmp_path / "out", tmp_path / "secret"
    readable.mkdir()
    writable.mkdir()
    secret.write_text("s")
    (readable / "k.cu").write_text(KERNEL)
    with socket.create_server(("127.0.0.1", 0)) as server:
        places = (readable, writable, secret, server.getsockname()[1])
        argv = [sys.executable, "-c", CONFINED, *map(str, places)]
        completed = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    assert (writable / "made").read_text() == KERNEL


def test_a_compiler_names_no_hip_that_it_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"V": "V 7 . 2 . 4"}
    monkeypatch.setattr(syntax_job, "_installed_compilers", lambda: iter(["clang++"]))
    monkeypatch.setattr(syntax_job, "_compiled", lambda *_: (0, answers["V"]))
    monkeypatch.setattr(syntax_job, "_run", lambda *_: (0, "clang 22\n"))
    known = syntax_job.Compiler("clang++", "clang 22, HIP 7.2.4", "7.2.4")
    assert syntax_job.find_compiler("gfx942") == known
    answers["V"] = ""
    assert syntax_job.find_compiler("gfx942") == syntax_job.Compiler("clang++", "clang 22", "0.0")


def test_a_kernel_that_cannot_confine_runs_no_build_file(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(KERNEL)
    (tmp_path / "CMakeLists.txt").write_text("project(p LANGUAGES CXX CUDA)\n")
    compiler = syntax_job.Compiler("clang++", "clang 22, HIP 7.2.4", "7.2.4")
    job = {"units": ["k.cu"], "modules": str(MODULES), "runs_builds": False}
    tree = syntax_job.Tree(tmp_path)
    configured, reached, _ = syntax_job.chosen_build(compiler, tree, job, tmp_path)
    assert (reached, "cannot confine CMake" in configured.reason) == ([], True)


HIP_BUILD = """
cmake_minimum_required(VERSION 3.21)
project(p LANGUAGES C CXX)
option(P_HIP "for AMD" OFF)
option(P_HIP_GRAPHS "graphs" OFF)
set(P_BACKEND P_CUDA CACHE STRING "the device")
set(P_GPU OFF CACHE STRING "the device")
set_property(CACHE P_GPU PROPERTY STRINGS OFF CUDA ROCM)
if(P_HIP)
  enable_language(HIP)
  find_package(rocthrust REQUIRED)
  get_property(headers TARGET roc::rocthrust PROPERTY INTERFACE_INCLUDE_DIRECTORIES)
  find_package(hip REQUIRED)
  add_library(hip::own INTERFACE IMPORTED)
  add_library(p k.cu own.cpp)
  set_source_files_properties(k.cu PROPERTIES LANGUAGE HIP)
  target_compile_features(p PUBLIC hip_std_17 c_std_11)
  target_compile_definitions(p PRIVATE BACKEND=${P_BACKEND} GPU=${P_GPU})
  target_compile_definitions(p PRIVATE OF=${HIP_PLATFORM} GRAPHS=$<BOOL:${P_HIP_GRAPHS}>)
  target_link_libraries(p hip::device)
elseif(P_BACKEND STREQUAL P_CUDA)
  enable_language(CUDA)
  add_library(p k.cu)
endif()
"""


@pytest.mark.process
def test_the_build_for_hip_is_the_one_that_is_configured(tmp_path: Path) -> None:
    root = tmp_path / "src"
    root.mkdir()
    (root / "k.cu").write_text(KERNEL)
    (root / "own.cpp").write_text("#include <hip/hip_runtime.h>\n")
    (root / "CMakeLists.txt").write_text(HIP_BUILD)
    compiler = syntax_job.Compiler(str(shutil.which("c++")), "clang 22, HIP 7.2.4", "7.2.4")
    tree = syntax_job.Tree(root)
    assert tree.of_hip() == {"own.cpp"}
    default = syntax_job.configure(compiler, tree, str(MODULES), tmp_path)
    assert (default.reason, list(default.flags)) == ("", ["k.cu"])
    for_hip = syntax_job.configure_for_hip(default, root, tmp_path)
    assert (for_hip.reason, sorted(for_hip.flags)) == ("", ["k.cu", "own.cpp"])
    options = syntax_job.unit_options(for_hip.flags["k.cu"])
    assert {"-DBACKEND=P_HIP", "-DGPU=ROCM", "-DGRAPHS=0", "-DOF=amd"} <= set(options)


def test_a_source_is_a_part_of_another_one_whose_passes_compiled_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone a part would not compile; an include that no pass met compiles nothing."""
    includes = '#include "part.cu"\n#ifdef NEVER\n#include "off.cu"\n#endif\n'
    for name, text in {"all.cu": includes, "part.cu": "T f();\n", "off.cu": "T g();\n"}.items():
        (tmp_path / name).write_text(text)
    compiler = syntax_job.Compiler("/bin/false", "clang 22, HIP 7.2.4", "7.2.4")
    monkeypatch.setattr(syntax_job, "find_compiler", lambda *_: compiler)
    passed: list[str] = []

    def recorded(_argv: object, _root: object, unit: str, *_: object, **__: object) -> object:
        passed.append(unit)
        lines = {"part.cu": [1]} if unit == "all.cu" else {}
        output = f"{tmp_path}/{unit}:1:1: error: unknown type name 'T'\n" * (unit == "off.cu")
        return {"unit": unit, "codes": [int(bool(output))] * 2, "output": output, "lines": lines}

    monkeypatch.setattr(syntax_job, "passes", recorded)
    job = {
        "target": "gfx942", "root": str(tmp_path), "units": ["all.cu", "off.cu", "part.cu"],
        "names": {}, "headers": {}, "torch": "", "python": "/usr/include", "jobs": 1,
        "seconds": 1, "cache": "",
    }  # fmt: skip
    result = read_results(syntax_job.run_job(job), str(tmp_path))
    assert passed == ["all.cu", "off.cu"]
    assert sorted(result.compiled) == ["all.cu", "off.cu", "part.cu"]
    assert [finding.path for finding in result.findings] == ["off.cu"]
    # No pass begins when the time for all of them is over.
    monkeypatch.setattr(syntax_job, "_MOST_SECONDS", -1)
    late = read_results(syntax_job.run_job(job), str(tmp_path))
    assert (passed, late.compiled) == (["all.cu", "off.cu"], ())
    assert set(late.uncompiled.values()) == {"the compiler took longer than its limit"}


def test_a_part_of_a_source_that_was_not_compiled_is_not_determined(tmp_path: Path) -> None:
    entry = {
        "unit": "all.cu", "codes": [1, 1], "lines": {"part.cu": [1]},
        "output": f"{tmp_path}/all.cu:1:10: fatal error: 'x.h' file not found\n",
    }  # fmt: skip
    part = syntax_job._as_parts(lambda _: {}, [entry], ["part.cu"], 1)
    result = read_results({"compiler": "clang 22", "units": [entry, *part]}, str(tmp_path))
    assert (result.compiled, set(result.uncompiled)) == ((), {"all.cu", "part.cu"})


def test_a_host_s_source_of_a_torch_extension_decides_by_its_errors_alone(tmp_path: Path) -> None:
    build = (
        "import glob\nfrom torch.utils.cpp_extension import CUDAExtension\nroot = 'src'\n"
        "files = glob.glob('{}/*.cpp'.format(root)) + glob.glob('{}/*.cu'.format(root))\n"
        "CUDAExtension('k', files)\n"
    )
    (tmp_path / "src").mkdir()
    (tmp_path / "setup.py").write_text(build)
    (tmp_path / "src" / "k.cu").write_text(KERNEL)
    (tmp_path / "src" / "b.cpp").write_text("#include <torch/extension.h>\nAT_CHECK(1);\n")
    found = scan_tree(ScanRequest(repo=tmp_path, target=read_target("gfx942")), processes=1)
    assert (found.project.units, found.project.hosts) == (("src/k.cu",), ("src/b.cpp",))
    kernel = {"unit": "src/k.cu", "codes": [0, 0], "output": ""}
    for error, line in (
        ("use of undeclared identifier 'AT_CHECK'", "gfx942: will not build: 1 cause"),
        ("'omp.h' file not found", "gfx942: runs as it is, nothing to check"),
    ):
        output = f"/src/src/b.cpp:2:1: error: {error}\n"
        host = {"unit": "src/b.cpp", "codes": [1], "output": output, "is_host": True}
        document = {"compiler": "clang", "units": [kernel, host]}
        judged = with_syntax(found, read_results(document, "/src"))
        assert judged.compiled == ("src/k.cu",)
        assert verdict_of(judged, judged.findings).line == line


def test_a_stored_result_is_that_of_this_place_and_of_all_that_is_included(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paths of its diagnostics are those of the tree that was compiled."""
    compiler = syntax_job.Compiler("/bin/false", "clang 22, HIP 7.2.4", "7.2.4")
    monkeypatch.setattr(syntax_job, "find_compiler", lambda *_: compiler)

    def error_at(root: Path) -> list[str]:
        job = {
            "target": "gfx942", "root": str(root), "units": ["k.cu"], "names": {}, "headers": {},
            "torch": "", "python": "/usr/include", "jobs": 1, "seconds": 1,
            "cache": str(tmp_path / "cache"),
        }  # fmt: skip
        (tmp_path / "cache").mkdir(exist_ok=True)
        result = read_results(syntax_job.run_job(job), str(root))
        assert result.uncompiled == {}
        return [finding.message for finding in result.findings]

    def passed(_argv: object, root: Path, unit: str, *_: object, **__: object) -> object:
        output = f"{root}/{unit}:1:1: error: {(root / 'names.def').read_text()}\n"
        return {"unit": unit, "codes": [1, 1], "output": output, "lines": {}}

    monkeypatch.setattr(syntax_job, "passes", passed)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "k.cu").write_text('#include "names.def"\n')
        (tmp_path / name / "names.def").write_text("T f();")
        assert error_at(tmp_path / name) == ["T f();"]
    (tmp_path / "other" / "names.def").write_text("U f();")
    assert error_at(tmp_path / "other") == ["U f();"]
    for stored in (tmp_path / "cache").glob("*.json"):
        stored.write_text('{"unit": "k.cu", "codes"')  # as a full disk once left it
    assert error_at(tmp_path / "other") == ["U f();"]


def test_a_source_is_read_in_the_language_that_its_build_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch gives a .cpp of an extension to the host's compiler: it need not be HIP's language."""
    extension = "#include <torch/extension.h>\n"
    for name in ("of_host.cpp", "of_none.cpp", "kernel.cu", "plain.c"):
        (tmp_path / name).write_text("" if name == "plain.c" else extension)
    compiler = syntax_job.Compiler("/bin/false", "clang 22, HIP 7.2.4", "7.2.4")
    monkeypatch.setattr(syntax_job, "find_compiler", lambda *_: compiler)
    seen: dict[str, list[str]] = {}

    def passed(argv: list[str], _root: Path, unit: str, *_: object, **more: object) -> object:
        language = argv[argv.index("-x") + 1]
        offload = any(word.startswith("--offload-arch") for word in argv)
        seen.setdefault(unit, []).append(language)
        assert offload == (language == "hip") == (len(more["sides"]) == 2)  # type: ignore[arg-type]
        refused = (unit, language) in {("of_host.cpp", "hip"), ("kernel.cu", "hip")}
        codes = [int(refused or unit == "of_none.cpp")] * len(more["sides"])  # type: ignore[arg-type]
        output = f"{tmp_path}/{unit}:1:1: error: {language}\n" * any(codes)
        return {"unit": unit, "codes": codes, "output": output, "lines": {}}

    monkeypatch.setattr(syntax_job, "passes", passed)
    job = {
        "target": "gfx942", "root": str(tmp_path), "names": {}, "headers": {}, "torch": "",
        "units": ["kernel.cu", "of_host.cpp", "of_none.cpp", "plain.c"], "cache": "",
        "python": "/usr/include", "jobs": 1, "seconds": 1,
    }  # fmt: skip
    monkeypatch.setattr(syntax_job, "torch_headers", lambda: "")
    result = read_results(syntax_job.run_job(job), str(tmp_path))
    assert seen == {
        "kernel.cu": ["hip"], "of_host.cpp": ["c++"], "of_none.cpp": ["c++"], "plain.c": ["c"],
    }  # fmt: skip
    assert [(f.path, f.message) for f in result.findings] == [
        ("kernel.cu", "hip"), ("of_none.cpp", "c++"),
    ]  # fmt: skip


@pytest.mark.parametrize(("code", "is_stored"), [(0, True), (1, True), (124, False), (-2, False)])
def test_a_pass_that_a_signal_or_the_clock_ended_is_made_again(
    tmp_path: Path, code: int, *, is_stored: bool
) -> None:
    made: list[int] = []

    def make() -> dict[str, object]:
        made.append(code)
        return {"codes": [0, code]}

    for _ in range(2):
        syntax_job._stored({"cache": str(tmp_path)}, "k.cu", make)
    assert len(made) == (1 if is_stored else 2)


def test_what_projects_of_one_torch_share_is_that_of_this_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = syntax_job.Compiler("clang++", "clang 22, HIP 7.2.4", "7.2.4")
    job = {"torch": str(tmp_path), "cache": str(tmp_path / "cache"), "target": "gfx942"}
    folders = {syntax_job._folder_of_torch(compiler, job, "-std=c++20", {}) for _ in range(2)}
    (tmp_path / "later.py").write_text("an edit of what it writes\n")
    monkeypatch.setattr(syntax_job, "__file__", str(tmp_path / "later.py"))
    folders.add(syntax_job._folder_of_torch(compiler, job, "-std=c++20", {}))
    assert len(folders) == 2


def test_stored_passes_are_kept_for_a_month(tmp_path: Path) -> None:
    folder = syntax_passes._stored_passes(tmp_path)
    for name, days in {"old.json": 31, "new.json": 29, "torch-old/torch.pch": 31}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
        for path in {folder / name, (folder / name).parent} - {folder}:
            os.utime(path, (time.time() - days * 86400,) * 2)
    assert [path.name for path in syntax_passes._stored_passes(tmp_path).iterdir()] == ["new.json"]


def test_a_hip_source_that_the_compiler_could_not_take_is_not_determined(tmp_path: Path) -> None:
    build = "if(H)\n enable_language(HIP)\n add_library(p hip/k.hip)\n"
    build = f"project(p)\n{build}else()\n enable_language(CUDA)\n add_library(p k.cpp)\nendif()\n"
    for name, text in {"CMakeLists.txt": build, "hip/k.hip": KERNEL}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    scan = scan_tree(ScanRequest(repo=tmp_path, target=read_target("gfx942")), processes=1)
    assert verdict_of(scan, scan.findings).answer == "runs as it is"
    output = "/src/hip/k.hip:1:10: fatal error: 'x.h' file not found\n"
    entry = {"unit": "hip/k.hip", "codes": [1, 1], "output": output, "lines": {}}
    document = {**results(""), "units": [entry], "reached": ["hip/k.hip"]}
    scan = with_syntax(scan, read_results(document, "/src"))
    assert "1 source not compiled: hip/k.hip: x.h is not" in verdict_of(scan, scan.findings).line


HIPIFY = """
def processKernelLaunches(text, statistics):
    if "odd" in text:
        raise ValueError("a launch that is not closed")
    return text.replace("<<<1, 1>>>(", "LAUNCH(")
"""


def test_launches_are_read_as_torch_s_hipify_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "torch" / "utils" / "hipify"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "hipify_python.py").write_text(HIPIFY)
    monkeypatch.setattr(sys, "path", [*sys.path])
    root = tmp_path / "src"
    root.mkdir()
    launch = "void f() { k<<<1, 1>>>(o); }\n"
    for name, text in {"a.cu": '#include "b.cuh"\n', "b.cuh": launch, "c.cu": launch}.items():
        (root / name).write_text(text)
    (root / "odd.cu").write_text(f"// odd\n{launch}")
    tree, torch = syntax_job.Tree(root), str(tmp_path / "torch" / "include")
    option, overlay = syntax_job.launches_overlay(tree, ["a.cu", "odd.cu"], torch, tmp_path)
    assert option == "-ivfsoverlay"
    (file,) = json.loads(Path(overlay).read_text())["roots"]
    assert file["name"] == str(root / "b.cuh")
    assert Path(file["external-contents"]).read_text() == "void f() { kLAUNCH(o); }\n"
    assert syntax_job.launches_overlay(tree, ["c.cu"], str(tmp_path / "none" / "x"), tmp_path) == []


def test_a_toolchain_that_cannot_be_fetched_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k.cu").write_text(KERNEL)
    found = scan_tree(ScanRequest(repo=tmp_path, target=read_target("gfx942")), processes=1)

    def refused(*_: object) -> None:
        raise BlockedError("h.deb: no source has it: no route to host")

    monkeypatch.setattr(syntax_passes, "fetched_toolchain", refused)
    monkeypatch.setattr(syntax_passes, "read_site", Site)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    request = ScanRequest(repo=tmp_path, target=read_target("gfx942"))
    scanned = with_compiler(found, request, None, Quiet())
    line = verdict_of(scanned, scanned.findings).line
    assert "no HIP toolchain, and none can be fetched: h.deb: no source has it" in line
    with pytest.raises(UnavailableError, match=r"h\.deb"):
        with_compiler(found, replace(request, compiler="fetched"), None, Quiet())
    with pytest.raises(UnavailableError, match=r"no matrix\.yaml"):
        with_compiler(found, replace(request, compiler="matrix"), None, Quiet())


@pytest.mark.parametrize("of_host", ["", "clang 17.0.6, HIP 5.7.1"])
def test_a_host_whose_hip_is_old_or_compiles_nothing_takes_the_fetched_toolchain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_host: str
) -> None:
    (tmp_path / "k.cu").write_text(KERNEL)
    found = scan_tree(ScanRequest(repo=tmp_path, target=read_target("gfx942")), processes=1)
    taken: list[str] = []

    def here(_scan: object, _request: object, toolchain: str, _: object) -> object:
        taken.append(toolchain)
        compiler = "clang 22, HIP 7.2.4" if toolchain else of_host
        return {**results("", 0, 0), "compiler": compiler, "root": "/src"}

    monkeypatch.setattr(syntax_passes, "_here", here)
    monkeypatch.setattr(syntax_passes, "fetched_toolchain", lambda *_: Path("/fetched"))
    monkeypatch.setattr(syntax_passes, "read_site", Site)
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/hipcc")
    request = ScanRequest(repo=tmp_path, target=read_target("gfx942", "7.0"))
    assert with_compiler(found, request, None, Quiet()).compiled == ("k.cu",)
    assert taken == ["", "/fetched"]
    asked = replace(request, compiler="host")
    if of_host:  # an older release was asked for, or this one by name
        older = replace(request, target=read_target("gfx942", "5.7"))
        with_compiler(found, older, None, Quiet())
        assert with_compiler(found, asked, None, Quiet()).compiler == of_host
        assert taken == ["", "/fetched", "", ""]
    else:
        with pytest.raises(UnavailableError, match="no HIP toolchain"):
            with_compiler(found, asked, None, Quiet())


def test_without_a_choice_for_hip_the_build_is_the_default(tmp_path: Path) -> None:
    cache = (("P_CUDA", "BOOL", "ON"), ("P_TESTS", "BOOL", "ON"), ("P_NAME", "STRING", "p"))
    default = syntax_job.Configured({}, [], cache=cache)
    assert syntax_job.configure_for_hip(default, tmp_path, tmp_path) is default


def test_an_error_of_a_build_for_hip_counts_where_that_was_configured(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(KERNEL)
    found = scan_tree(ScanRequest(repo=tmp_path, target=read_target("gfx942")), processes=1)
    document = results("/src/k.cu:3:5: error: no type named 'T'\n", 1, 1)
    document["units"] = [{**unit, "is_native": True} for unit in document["units"]]  # type: ignore[attr-defined]
    bare = with_syntax(found, read_results(document, "/src"))
    assert "its own build for HIP was not configured" in verdict_of(bare, bare.findings).line
    built = with_syntax(found, read_results({**document, "reached": ["k.cu"]}, "/src"))
    assert verdict_of(built, built.findings).line == "gfx942: will not build: 1 cause"


def test_no_option_of_a_build_gives_a_structure_of_hip_another_member() -> None:
    def judged(message: str, *, is_native: bool = True) -> tuple[int, int]:
        output = f"/s/k.cpp:3:5: error: {message}\n/s/k.cpp:4:5: error: unknown type name 'T'\n"
        unit = {"unit": "k.cpp", "codes": [1, 1], "output": output, "is_native": is_native}
        result = read_results({"compiler": "clang", "units": [unit]}, "/s")
        return len(result.findings), len(result.uncompiled)

    lost = "no member named 'gcnArch' in 'hipDeviceProp_tR0600'"
    assert judged(lost) == (1, 0)
    assert judged("no member named 'width' in 'Options'") == (0, 1)
    assert judged(lost, is_native=False) == (2, 0)  # a source of CUDA's keeps its other errors


def test_a_rule_is_no_surer_than_a_compiler_of_an_unconfigured_source(tmp_path: Path) -> None:
    text = "__global__ void k(hipTextureObject_t t, float* o) { o[0] = tex2D<float>(t, 0, 0); }\n"
    (tmp_path / "k.hip").write_text(f"#include <hip/hip_runtime.h>\n{text}")
    found = scan_tree(ScanRequest(repo=tmp_path, target=read_target("gfx942")), processes=1)
    assert verdict_of(found, found.findings).line == "gfx942: will not build: 1 cause"
    output = "/src/k.hip:2:9: error: 'tex2D' is unavailable\n"
    unit = {"unit": "k.hip", "codes": [1, 1], "output": output, "is_native": True}
    document = {"compiler": "clang", "units": [unit]}
    unsure = with_syntax(found, read_results(document, "/src"))
    assert "its own build for HIP was not configured" in verdict_of(unsure, unsure.findings).line
    assert [(f.rule, f.severity) for f in unsure.findings] == [("CU135", "warning")]


def test_options_of_a_build_come_after_the_system_s_folders() -> None:
    words = ["clang++", "-Iinc", "-isystem", "lib", "-D", "X=1", "-DY", "-O2", "-c", "k.cu"]
    assert syntax_job.unit_options(words) == [
        "-iquote", "inc", "-idirafter", "inc", "-idirafter", "lib", "-DX=1", "-DY",
    ]  # fmt: skip


def test_without_cmake_a_project_is_named_unconfigured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = syntax_job.Compiler("clang++", "clang 22, HIP 7.2.4", "7.2.4")
    options = syntax_job.emulation(compiler.hip, "torch", tmp_path)
    assert "-DTORCH_HIP_VERSION=702" in options
    (tmp_path / "CMakeLists.txt").write_text("project(p LANGUAGES CXX CUDA)\n")
    monkeypatch.setattr("shutil.which", lambda _name: None)
    configured = syntax_job.configure(compiler, syntax_job.Tree(tmp_path), "modules", tmp_path)
    assert configured.reason == "no cmake beside the compiler"


def test_each_folder_with_a_build_of_its_own_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/k.cu", "a/old.cu", "b/deep/k.cu", "c/k.cu", "d/k.cu", "k.cu"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(KERNEL)
    for build in ("a", "b/deep", "c", "d", "nothing"):
        (tmp_path / build).mkdir(exist_ok=True)
        (tmp_path / build / "CMakeLists.txt").write_text("")
    tree = syntax_job.Tree(tmp_path)
    units = sorted(path for path in tree.texts if path.endswith(".cu"))
    assert tree.cmake_builds(units) == ["a", "c", "d", "b/deep"]
    flags: dict[str, dict[str, list[str]]] = {
        "a": {"a/k.cu": ["-DA"]},
        "b/deep": {"b/deep/k.cu": []},
    }

    def configure(_compiler: object, _tree: object, _modules: str, _: Path, build: str) -> object:
        return syntax_job.Configured(flags.get(build, {}), [], f"{build} failed" * (build == "c"))

    monkeypatch.setattr(syntax_job, "configure", configure)
    compiler = syntax_job.Compiler("clang++", "clang 22, HIP 7.2.4", "7.2.4")
    job = {"units": units, "modules": "m"}
    configured, reached, _ = syntax_job.chosen_build(compiler, tree, job, tmp_path)
    assert reached == ["a/k.cu", "b/deep/k.cu", "c/k.cu", "d/k.cu", "k.cu"]  # a leaves one out
    assert configured.flags == {"a/k.cu": ["-DA"], "b/deep/k.cu": []}
    assert configured.reason == "c failed; no build of CMake that was configured has c/k.cu"
    (tmp_path / "CMakeLists.txt").write_text("")
    assert tree.cmake_builds(units) == [""]


def test_a_default_build_for_amd_leaves_out_what_is_cudas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {
        "lib.h": "#include <hip/hip_runtime.h>\n", "amd/lib.cpp": '#include "lib.h"\n',
        "nvidia/lib.cpp": "#include <curand.h>\n", "plain.cpp": "", "CMakeLists.txt": "",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    default = syntax_job.Configured(
        {"amd/lib.cpp": [], "plain.cpp": []}, [], cache=[("P_HIP", "BOOL", "ON")]
    )
    monkeypatch.setattr(syntax_job, "configure", lambda *_: default)
    failed = syntax_job.Configured({}, [], "cmake: no")
    monkeypatch.setattr(syntax_job, "configure_for_hip", lambda *_: failed)
    compiler = syntax_job.Compiler("clang++", "clang 22, HIP 7.2.4", "7.2.4")
    job = {"units": ["nvidia/lib.cpp"], "modules": "m", "builds_hip": True}
    tree = syntax_job.Tree(tmp_path)
    configured, reached, native = syntax_job.chosen_build(compiler, tree, job, tmp_path)
    assert (configured.reason, reached, native) == ("", ["amd/lib.cpp"], {"amd/lib.cpp"})


def test_a_default_build_without_the_tree_s_hip_sources_is_none_for_amd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("use.cpp", "k.hip", "CMakeLists.txt"):
        (tmp_path / name).write_text("")
    cpu = syntax_job.Configured({"use.cpp": []}, [], cache=[("P_TESTS", "BOOL", "ON")])
    monkeypatch.setattr(syntax_job, "configure", lambda *_: cpu)
    compiler = syntax_job.Compiler("clang++", "clang 22, HIP 7.2.4", "7.2.4")
    job = {"units": ["use.cpp", "k.hip"], "modules": "m", "builds_hip": True}
    tree = syntax_job.Tree(tmp_path)
    configured, reached, _ = syntax_job.chosen_build(compiler, tree, job, tmp_path)
    assert (configured.reason, reached) == ("no build has k.hip", [])


def test_what_a_configured_build_leaves_out_decides_nothing(tmp_path: Path) -> None:
    ptx = '__global__ void k(int* o) { asm("mov.u32 %0, %laneid;" : "=r"(o[0])); }\n'
    (tmp_path / "k.cu").write_text(KERNEL)
    (tmp_path / "old.cu").write_text(ptx)
    found = scan_tree(ScanRequest(repo=tmp_path, target=read_target("gfx942")), processes=1)
    document = {
        "compiler": "clang 22",
        "units": [{"unit": "k.cu", "codes": [0, 0], "output": ""}],
        "reached": ["k.cu"],
    }
    judged = with_syntax(found, read_results(document, "/src"))
    verdict = verdict_of(judged, judged.findings)
    assert verdict.line == "gfx942: runs as it is, 1 thing to check"
    assert "reached: 1 CUDA source, by CMake" in verdict_text(verdict, judged)
    unread = with_syntax(found, read_results({**document, "unconfigured": "cmake: X"}, "/src"))
    assert "not configured: cmake: X" in verdict_text(verdict, unread)


@pytest.mark.process
@pytest.mark.skipif(
    shutil.which("cmake") is None or shutil.which("c++") is None, reason="no CMake with a compiler"
)
def test_cmake_configures_a_cuda_project_without_cuda(tmp_path: Path) -> None:
    root = tmp_path / "src"
    root.mkdir()
    (root / "k.cu").write_text(KERNEL)
    (root / "old.cu").write_text(KERNEL)
    (root / "made.h.in").write_text("#define W @W@\n")
    (root / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(p LANGUAGES CXX CUDA)\n"
        "find_package(CUDAToolkit 12.0 REQUIRED)\nset(W 4)\nconfigure_file(made.h.in inc/made.h)\n"
        "add_library(p SHARED k.cu)\ntarget_compile_definitions(p PRIVATE X=1)\n"
        "target_include_directories(p PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/inc)\n"
        "target_link_libraries(p CUDA::cublas)\n"
    )
    compiler = syntax_job.Compiler(str(shutil.which("c++")), "", "0.0")
    configured = syntax_job.configure(compiler, syntax_job.Tree(root), str(MODULES), tmp_path)
    assert configured.reason == ""
    assert list(configured.flags) == ["k.cu"]
    options = syntax_job.unit_options(configured.flags["k.cu"])
    assert "-DX=1" in options
    assert f"{tmp_path}/default/build/inc" in options
    (root / "CMakeLists.txt").write_text('project(p CXX)\nmessage(FATAL_ERROR "no CPU")\n')
    assert (
        "no CPU"
        in syntax_job.configure(
            compiler, syntax_job.Tree(root), str(MODULES), tmp_path / "b"
        ).reason
    )


@pytest.mark.process
@pytest.mark.skipif(
    shutil.which("cmake") is None or shutil.which("c++") is None, reason="no CMake with a compiler"
)
def test_cmake_configures_what_lacks_packages_and_writes_into_its_tree(tmp_path: Path) -> None:
    root = tmp_path / "src"
    (root / "tests").mkdir(parents=True)
    (root / "k.cu").write_text(KERNEL)
    (root / "f.f90").write_text("end\n")
    (root / "made.h.in").write_text("#define W 4\n")
    (root / "tests" / "CMakeLists.txt").write_text("get_target_property(x gtest TYPE)\n")
    (root / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(p LANGUAGES CXX CUDA)\n"
        "enable_language(Fortran)\ninclude(FortranCInterface)\n"
        "FortranCInterface_HEADER(inc/names.h MACRO_NAMESPACE FC_)\nadd_library(f SHARED f.f90)\n"
        "find_package(NotHere 1.2 REQUIRED core)\nfind_package(Neither QUIET)\n"
        "find_library(LIBRARY not-here REQUIRED)\nfind_path(HEADERS not-here.h)\ninclude(CTest)\n"
        "include(FetchContent)\nFetchContent_Declare(gtest URL http://127.0.0.1:1/x.zip)\n"
        "FetchContent_MakeAvailable(gtest)\nadd_subdirectory(submodule)\nadd_subdirectory(tests)\n"
        "configure_file(made.h.in ${CMAKE_CURRENT_SOURCE_DIR}/inc/made.h)\nadd_library(p k.cu)\n"
        "target_compile_definitions(p PRIVATE V=${NotHere_VERSION} C=${NotHere_core_FOUND}\n"
        "  O=${Neither_FOUND} H=$<BOOL:${HEADERS}>)\n"
        "target_include_directories(p PRIVATE ${NotHere_INCLUDE_DIRS} inc)\n"
        "target_link_libraries(p PRIVATE NotHere::core)\nnot_here_embed(p k.cu)\n"
    )
    compiler = syntax_job.Compiler(str(shutil.which("c++")), "", "0.0")
    configured = syntax_job.configure(compiler, syntax_job.Tree(root), str(MODULES), tmp_path)
    assert configured.reason == "NotHere, gtest, not_here_embed: absent here, taken as empty"
    options = syntax_job.unit_options(configured.flags["k.cu"])
    assert {"-DV=1.2", "-DC=TRUE", "-DO=0", "-DH=0", f"{root}/inc"} <= {*options}
    assert str(tmp_path / "default" / "tree" / "inc") in configured.folders
    assert not (root / "inc").exists()
    # A check of the project's own stops nothing, and is named.
    stopped = (root / "CMakeLists.txt").read_text() + 'message(FATAL_ERROR "no GPU")\n'
    (root / "CMakeLists.txt").write_text(stopped)
    configured = syntax_job.configure(compiler, syntax_job.Tree(root), str(MODULES), tmp_path / "b")
    assert "k.cu" in configured.flags
    assert "message(FATAL_ERROR)" in configured.reason


def test_sources_of_torch_are_those_that_reach_its_headers(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text('#include "b.h"\n')
    (tmp_path / "b.h").write_text("#include <ATen/ATen.h>\n")
    (tmp_path / "c.cu").write_text("#include <cuda.h>\n")
    (tmp_path / "d.h").write_text("#ifndef W\n# error no W\n#endif\n")
    tree = syntax_job.Tree(tmp_path)
    assert tree.stops() == ["d.h:2"]
    assert tree.reading(syntax_job._OF_TORCH, ["a.cu", "c.cu"]) == {"a.cu"}


@pytest.mark.process
def test_a_pass_that_takes_too_much_processor_time_ends() -> None:
    assert syntax_job._run([sys.executable, "-c", "while True: pass"], 1)[0] == 124


def test_an_error_directive_counts_where_the_build_was_configured() -> None:
    output = "/src/k.cu:1:2: error: define WIDTH\n/src/k.cu:2:2: error: unknown type name 'W'\n"
    unit = {"unit": "k.cu", "codes": [1, 1], "output": output}
    document = {"compiler": "c", "units": [unit], "stops": ["k.cu:1"]}
    alone = read_results(document, "/src")
    assert alone.findings == ()
    assert alone.uncompiled["k.cu"].startswith("#error define WIDTH, and its build was not")
    built = read_results({**document, "reached": ["k.cu"]}, "/src")
    assert [finding.line for finding in built.findings] == [1, 2]
    partly = {**document, "reached": ["k.cu"], "unconfigured": "X: absent here"}
    assert read_results(partly, "/src").findings == ()


def test_an_error_that_follows_from_another_one_is_no_cause() -> None:
    def errors(*messages: str, **more: object) -> list[str]:
        output = "".join(f"/s/k.cu:{n}:1: error: {m}\n" for n, m in enumerate(messages, 1))
        unit = {"unit": "k.cu", "codes": [1, 1], "output": output}
        document = {"compiler": "clang", "units": [unit], "reached": ["k.cu"], **more}
        findings = read_results(document, "/s").findings
        return [finding.message for finding in findings if finding.severity == "error"]

    grid, parsed = "unknown type name '__grid_constant__'", "expected ')'"
    own, other = "use of undeclared identifier 'query'", "use of undeclared identifier '__hmax2'"
    # A parser that lost its way does not see what the tree declares.
    assert errors(grid, parsed, own, other, own=["query"]) == [grid, other]
    # The first one follows from nothing, or from a macro of a build that was not configured.
    assert errors(own, own=["query"]) == [own]
    assert errors(own, own=["query"], reached=[]) == []
    assert errors(own, own=["query"], reached=[], by_python=True) == [own]
    assert errors(grid, own) == [grid, own]
    # What a missing header would declare is missing with it.
    header = "warpfront: no environment has cuda/atomic"
    included = f"In file included from /s/k.cu:1:\n/t/cuda/atomic:4:2: error: {header}\n"
    named = "/s/k.cu:5:1: error: use of undeclared identifier 'cuda'\n"
    builtin = f"/s/k.cu:6:1: error: {other}\n"
    unit = {"unit": "k.cu", "codes": [1, 1], "output": included + named + builtin}
    first, note, second = read_results({"compiler": "clang", "units": [unit]}, "/s").findings
    assert [first.message, second.message] == ["`cuda/atomic` has no twin in HIP", other]
    assert (note.severity, note.line) == ("note", 5)
    # A line has one error.
    twice = {"unit": "k.cu", "codes": [1, 1], "output": builtin + builtin.replace("hmax2", "hmin2")}
    (one,) = read_results({"compiler": "clang", "units": [twice]}, "/s").findings
    assert one.message == other


def test_the_declarations_that_errors_are_about_are_a_note_of_their_file() -> None:
    output = (
        "/s/k.cu:9:1: error: no matching function for call to 'f'\n"
        "/s/a.h:3:5: note: candidate function not viable: call to __host__ function from __device__"
        " function\n"
        "/s/a.h:5:5: note: candidate function not viable: no known conversion from 'V' to 'W'\n"
        "/s/k.cu:12:1: error: reference to __host__ function 'g' in __global__ function\n"
        "/s/a.h:8:5: note: 'g' declared here\n"
        "/usr/include/hip/h.h:8:5: note: 'h' declared here\n"
    )
    unit = {"unit": "k.cu", "codes": [1, 1], "output": output}
    note, *errors = read_results({"compiler": "clang", "units": [unit]}, "/s").findings
    assert (note.path, note.severity, note.uses) == ("a.h", "note", (3, 8))
    assert [error.line for error in errors] == [9, 12]


def test_a_tree_s_own_names_are_those_that_it_declares(tmp_path: Path) -> None:
    lines = ("struct A;", "int f(int query) { return lost; }", "#define M 1", "auto g = h<B>(C);")
    (tmp_path / "a.cu").write_text("\n".join([*lines, "typedef struct { int a; } T;\n"]))
    names = ["A", "query", "lost", "M", "B", "g", "T"]
    assert syntax_job.Tree(tmp_path).own(names) == ["A", "T", "g", "query"]


def test_a_name_that_the_build_files_have_counts_where_the_build_was_configured() -> None:
    output = "/src/k.cu:3:9: error: use of undeclared identifier 'COMPILE_CUDA'"
    unit = {"unit": "k.cu", "codes": [1], "output": output}
    document = {"compiler": "clang", "units": [unit], "build_words": ["COMPILE_CUDA"]}
    alone = read_results(document, "/src")
    assert alone.findings == ()
    assert alone.uncompiled == {
        "k.cu": "its build may define COMPILE_CUDA, and was not wholly configured"
    }
    for other in ({"reached": ["k.cu"]}, {"build_words": ["COMPILE"]}):
        assert len(read_results({**document, **other}, "/src").findings) == 1


def test_a_branch_for_amd_whose_sources_the_compiler_could_not_take_is_not_determined(
    tmp_path: Path,
) -> None:
    (tmp_path / "k.cu").write_text("#include <ATen/ATen.h>\n")
    (tmp_path / "setup.py").write_text(
        "import torch\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        "flags = [] if torch.version.hip else ['-O2']\n"
        "CUDAExtension('k', ['k.cu'], extra_compile_args={'nvcc': flags})\n"
    )
    output = "/src/k.cu:1:10: fatal error: 'ATen/ATen.h' file not found"
    unit = {"unit": "k.cu", "codes": [1], "output": output}
    scanned = with_syntax(
        scan_tree(ScanRequest(repo=tmp_path, target=read_target("gfx942"))),
        read_results({"compiler": "clang", "units": [unit]}, "/src"),
    )
    verdict = verdict_of(scanned, scanned.findings)
    assert "1 source not compiled: k.cu: ATen/ATen.h is not there" in str(verdict)


def test_a_build_for_the_cpu_reaches_no_cuda_source() -> None:
    flags: dict[str, list[str]] = {"version.cpp": [], "k.cu": []}
    assert syntax_job.reached_units(["k.cu", "old.cu", "version.cpp"], flags) == [
        "k.cu",
        "version.cpp",
    ]
    assert syntax_job.reached_units(["old.cu", "version.cpp"], flags) == []
    assert syntax_job.reached_units(["version.cpp", "other.cpp"], flags) == ["version.cpp"]


def test_a_claim_about_a_file_that_no_unit_reads_is_put_to_a_source_that_does(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.cu").write_text('#include "inc/a.h"\n')
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "a.h").touch()
    (tmp_path / "inc" / "host.h").touch()
    for name in ("one.cpp", "two.cpp"):
        (tmp_path / name).write_text('#include "inc/host.h"\n')
    tree = syntax_job.Tree(tmp_path)
    assert tree.witnesses(["inc/a.h"], ["a.cu"]) == []
    assert tree.witnesses(["inc/host.h", "one.cpp"], ["a.cu"]) == ["one.cpp"]
    assert tree.witnesses(["two.cpp"], ["a.cu"]) == ["two.cpp"]


@pytest.mark.parametrize(
    ("output", "lines", "errors"),
    [
        ("", {"host.h": [1]}, 0),
        ("", {}, 1),
        ("", {"host.h": [2]}, 1),
        ("/src/host.h:9:1: error: bad\n", {"host.h": [1]}, 1),
        ("/src/other.h:1:10: fatal error: 'x.h' file not found\n", {"host.h": [1]}, 1),
    ],
)
def test_a_header_is_taken_where_a_source_compiles_its_line(
    tmp_path: Path, output: str, lines: dict[str, list[int]], errors: int
) -> None:
    (tmp_path / "k.cu").write_text(KERNEL)
    (tmp_path / "host.cpp").write_text('#include "host.h"\n')
    (tmp_path / "host.h").write_text("inline int f() { return cudaLaunchKernelEx(nullptr, g); }\n")
    scanned = scan_tree(ScanRequest(repo=tmp_path, target=read_target("gfx942")), processes=1)
    assert claims_of(scanned) == ["host.h"]
    unit = {"unit": "k.cu", "codes": [0, 0], "output": ""}
    witness = {"unit": "host.cpp", "codes": [bool(output)] * 2, "output": output, "lines": lines}
    document = {"compiler": "c", "units": [unit], "witnesses": [witness]}
    judged = with_syntax(scanned, read_results(document, "/src"))
    assert len([f for f in judged.findings if f.severity == "error"]) == errors
    assert "not determined" not in verdict_of(judged, judged.findings).line


def test_a_fatal_error_refutes_nothing_after_it(tmp_path: Path) -> None:
    mask = "__device__ int f(int v) { return __shfl_down_sync(0xffffffff, v, 1); }\n"
    output = "/src/k.cu:1:10: fatal error: 'glm/glm.hpp' file not found\n"
    _, errors = added(tmp_path, output, 1, 1, text=f"\n{mask}")
    assert [error.split()[1] for error in errors] == ["CU108"]


def test_a_line_that_no_pass_compiled_is_refuted_by_a_configured_build_alone(
    tmp_path: Path,
) -> None:
    mask = "__device__ int f(int v) { return __shfl_down_sync(0xffffffff, v, 1); }"
    (tmp_path / "k.cu").write_text(f"{KERNEL}#ifdef FAST\n{mask}\n#endif\n")
    (tmp_path / "README.md").write_text("Compile it with -DFAST.\n")
    scanned = scan_tree(ScanRequest(repo=tmp_path, target=read_target("gfx942")), processes=1)
    unit = {"unit": "k.cu", "codes": [0, 0], "output": "", "lines": {"k.cu": [1, 2]}}
    document = {"compiler": "c", "units": [unit]}
    for more, errors in (({}, 1), ({"reached": ["k.cu"]}, 0)):
        judged = with_syntax(scanned, read_results({**document, **more}, "/src"))
        assert len([f for f in judged.findings if f.severity == "error"]) == errors


@pytest.mark.process
@pytest.mark.skipif(shutil.which("c++") is None, reason="no compiler with a preprocessor")
def test_lines_between_conditions_are_compiled_where_one_is_printed(tmp_path: Path) -> None:
    text = "#define M(x) x\n#ifdef A\nint a;\n#else\nint b = M(\n  1);\n#endif\n"
    (tmp_path / "k.h").write_text(text)
    (tmp_path / "k.cpp").write_text('#include "k.h"\n')
    argv = ["c++", "-E", "-dD", str(tmp_path / "k.cpp")]
    printed = syntax_job._run(argv, 20)[1]
    kept = {line for _, line in syntax_job.compiled_lines(printed, tmp_path, {"k.h": text})}
    assert {1, 5, 6} <= kept
    assert kept.isdisjoint({3, 4})


def test_macros_that_a_python_build_defines_for_amd_are_options() -> None:
    text = (
        "import os, torch\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        "macros = []\nflags = {'cxx': ['-DWITH=1', '-O3']}\n"
        "if torch.cuda.is_available():\n    macros += [('WITH_CUDA', None), ('N', '4')]\n"
        "if torch.version.hip is None:\n    macros += [('NVIDIA', None)]\n"
        "if os.getenv('DEBUG'):\n    macros += [('DEBUG', None)]\n"
        "CUDAExtension('k', ['k.cu'], define_macros=macros, extra_compile_args=flags)\n"
    )
    assert {*definitions_of("setup.py", text)} == {"-DWITH=1", "-DWITH_CUDA", "-DN=4"}


def test_a_value_of_many_paths_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[object]()
    standing = Gates.standing

    def counted(gates: Gates, node: ast.AST) -> Standing:
        asked.append(node)
        return standing(gates, node)

    monkeypatch.setattr(Gates, "standing", counted)
    text = "a = ['-DX=1']\n" + "".join(
        f"{name} = use({', '.join([before] * 9)})\n" for before, name in pairwise("abcdef")
    )
    assert [*definitions_of("setup.py", text)] == ["-DX=1"]
    assert len(asked) < 9 * 5


def test_what_amd_s_build_leaves_out_is_open_only_until_a_compiler_took_the_rest(
    tmp_path: Path,
) -> None:
    (tmp_path / "k.cu").write_text(KERNEL)
    (tmp_path / "ptx.cu").write_text(KERNEL)
    (tmp_path / "setup.py").write_text(
        "import torch\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        "files = ['k.cu']\nif not torch.version.hip:\n    files.append('ptx.cu')\n"
        "CUDAExtension('k', files)\n"
    )
    scanned = scan_tree(ScanRequest(repo=tmp_path, target=read_target("gfx942")), processes=1)
    assert "not determined" in verdict_of(scanned, scanned.findings).line
    unit = {"unit": "k.cu", "codes": [0, 0], "output": ""}
    judged = with_syntax(scanned, read_results({"compiler": "c", "units": [unit]}, "/src"))
    assert verdict_of(judged, judged.findings).line == "gfx942: runs as it is, nothing to check"
