"""What the root's build reaches decides; other builds of a tree are things to check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warpfront_port.commands.scanning import ScanRequest, scan_tree, verdict_of
from warpfront_port.scan.project import read_project
from warpfront_port.scan.reach import read_commands
from warpfront_port.scan.targets import read_target

PTX = '__global__ void k(int* o) { asm("mov.u32 %0, %laneid;" : "=r"(o[0])); }\n'
KERNEL = "__global__ void k(float* o) { o[0] = 1; }\n"
SETUP = (
    "import torch\nfrom setuptools import setup\n"
    "from torch.utils.cpp_extension import CUDAExtension\n"
    "macros = []\nif torch.version.hip:\n    macros += [('ON_AMD', None)]\n"
    "setup(ext_modules=[CUDAExtension('k', ['csrc/k.cu'], define_macros=macros)])\n"
)


def line(root: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    found = scan_tree(ScanRequest(repo=root, target=read_target("gfx942")), processes=1)
    return verdict_of(found, found.findings).line


@pytest.mark.parametrize(
    ("files", "begins"),
    [
        ({"csrc/k.cu": KERNEL}, "gfx942: not determined: 1 source"),
        ({"csrc/k.cu": PTX}, "gfx942: will not build"),
        ({"csrc/k.cu": KERNEL, "other/p.cu": PTX}, "gfx942: not determined: 1 source"),
        ({"csrc/k.cu": '#include "p.h"\n', "csrc/p.h": PTX}, "gfx942: will not build"),
        (
            {"csrc/k.cu": KERNEL, "z/setup.py": SETUP, "z/csrc/k.cu": PTX},
            "gfx942: not determined: 1 source",
        ),
    ],
)
def test_what_the_root_lists_decides(tmp_path: Path, files: dict[str, str], begins: str) -> None:
    assert line(tmp_path, {"setup.py": SETUP, **files}).startswith(begins)


@pytest.mark.parametrize(
    ("described", "module", "answer"),
    [
        ("An extension to p", "", "runs as it is"),
        ("An extension to p", "NVCC_FLAGS = ['-gencode']\n", "will not build"),
        ("Its setup.py has an Extension(...)", "", "not determined"),
    ],
)
def test_a_package_that_builds_nothing_fails_when_its_compiler_is_started(
    tmp_path: Path, described: str, module: str, answer: str
) -> None:
    files = {
        "pyproject.toml": f"[project]\nname = 'p'\ndescription = '{described}'\n",
        "p/__init__.py": "from p import a\n",
        "p/a.py": module,
        "p/templates/k.cu": KERNEL,
    }
    assert answer in line(tmp_path, files)


def test_a_build_without_a_branch_for_amd_is_not_determined(tmp_path: Path) -> None:
    plain = SETUP.replace("torch.version.hip", "torch.version.cuda")
    assert "not determined" in line(tmp_path, {"setup.py": plain, "csrc/k.cu": KERNEL})


def test_modules_outside_of_the_packages_are_things_to_check(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": "[project]\nname = 'p'\n",
        "p/__init__.py": "",
        "jobs/a.py": "import pynvml\n",
    }
    assert line(tmp_path, files).startswith("gfx942: runs as it is")
    assert "run time" in line(tmp_path, {"p/b.py": "import pynvml\n"})


def test_without_a_build_at_the_root_all_distributions_decide(tmp_path: Path) -> None:
    files = {"a/setup.py": SETUP, "a/csrc/k.cu": KERNEL, "b/setup.py": SETUP, "b/csrc/k.cu": PTX}
    assert line(tmp_path, files).startswith("gfx942: will not build")


def test_compile_commands_say_what_is_reached_and_how(tmp_path: Path) -> None:
    root = str(tmp_path.resolve())
    entries = [
        {
            "directory": f"{root}/build",
            "command": f"nvcc -I../inc -DX=1 -O2 -std=c++17 -c {root}/a.cu",
            "file": f"{root}/a.cu",
        },
        {"directory": root, "command": "nvcc /elsewhere/b.cu", "file": "/elsewhere/b.cu"},
    ]
    commands = read_commands(json.dumps(entries), root)
    assert commands == {"a.cu": (f"-I{root}/build/../inc", "-DX=1", "-std=c++17")}
    files = {"a.cu": KERNEL, "old/p.cu": PTX, "build/compile_commands.json": json.dumps(entries)}
    assert "not determined" in line(tmp_path, files)


def test_the_nearest_header_of_a_name_is_the_one_that_is_included() -> None:
    texts = {
        "setup.py": SETUP,
        "csrc/k.cu": '#include "u.h"\n',
        "csrc/u.h": "",
        "other/u.h": PTX,
    }
    product = read_project(texts).product
    assert product.code == frozenset({"csrc/k.cu", "csrc/u.h"})
    assert product.basis == "setup.py"


def test_cuda_in_a_conda_environment_is_a_thing_to_check(tmp_path: Path) -> None:
    """It comes beside a torch that the image has."""
    environment = "name: x\ndependencies:\n  - cudatoolkit=11.3\n"
    found = line(tmp_path, {"a.py": "import torch\n", "environment.yml": environment})
    assert found.endswith("runs as it is, 1 thing to check")


TOML = {"pyproject.toml": "[project]\nname = 'p'\n"}
SMI = "import subprocess\ndef used():\n    subprocess.run(['nvidia-smi'])\n"
LONG = "import torch\n" + "x = torch.zeros(1)\n" * 40


@pytest.mark.parametrize(
    ("files", "begins"),
    [
        ({"p/__init__.py": "from .a import b\n", "p/a.py": "import pynvml\n"}, "will fail"),
        ({"p/__init__.py": "__version__ = '1'\n", "p/c.py": "import pynvml\n"}, "will fail"),
        ({"pyproject.toml": "[project]\nname = 'p'\n[project.scripts]\nrun = 'p.cli:main'\n",
          "p/__init__.py": "from .a import b\n", "p/a.py": LONG,
          "p/cli.py": "def main():\n    from p import c\n", "p/c.py": "import pynvml\n"},
         "will fail"),
        ({"p/__init__.py": "from .a import used\n", "p/a.py": SMI}, "will fail"),
        ({"p/__init__.py": "from . import a, b\n", "p/a.py": SMI, "p/b.py": LONG},
         "runs as it is"),
        ({"p/__init__.py": "from . import a, b\n", "p/a.py": f"{SMI}used()\n", "p/b.py": LONG},
         "will fail"),
    ],
)  # fmt: skip
def test_what_an_import_or_a_command_runs_decides(
    tmp_path: Path, files: dict[str, str], begins: str
) -> None:
    assert line(tmp_path, TOML | files).startswith(f"gfx942: {begins}")


@pytest.mark.parametrize(("folder", "decides"), [("kernels_bench", False), ("benchkernels", True)])
def test_a_folder_is_named_by_its_last_word(tmp_path: Path, folder: str, *, decides: bool) -> None:
    files = {"run.py": "import torch\n", f"{folder}/t.py": "import tensorrt\n"}
    assert line(tmp_path, files).startswith("gfx942: will fail") is decides


def test_an_extension_of_another_folder_counts_where_the_package_imports_it(
    tmp_path: Path,
) -> None:
    files = {"p/__init__.py": "", "csrc/setup.py": SETUP.replace("csrc/k.cu", "k.cu")}
    files |= {"csrc/k.cu": PTX}
    assert "runs as it is" in line(tmp_path / "a", TOML | files)
    files |= {"p/__init__.py": "import k\n"}
    assert "will not build" in line(tmp_path / "b", TOML | files)


def test_a_name_is_first_that_of_a_module_beside_the_one_that_imports_it(tmp_path: Path) -> None:
    files = {
        "setup.py": SETUP.replace("CUDAExtension('k', ['csrc/k.cu']", "Extension('p', []"),
        "p/__init__.py": "", "p/train.py": "", "tools/bench.py": "from train import run\n",
        "other/setup.py": SETUP, "other/train.py": "import k\n", "other/csrc/k.cu": PTX,
    }  # fmt: skip
    assert "will not build" in line(tmp_path, files)
    assert "runs as it is" in line(tmp_path, {"tools/train.py": "def run():\n    pass\n"})


def test_a_helper_that_a_script_at_the_root_calls_decides(tmp_path: Path) -> None:
    files = {"lib/gpu.py": SMI, "lib/rest.py": LONG, "run.py": "import lib\n"}
    assert "runs as it is" in line(tmp_path / "a", files)
    files |= {"run.py": "from lib.gpu import used\nused()\n"}
    assert "will fail at run time" in line(tmp_path / "b", files)


TRIED = (
    "from subprocess import call\nfrom setuptools import setup\n"
    "from torch.utils.cpp_extension import CppExtension, CUDAExtension\n"
    "def has_nvcc():\n    try:\n        call(['nvcc'])\n        return True\n"
    "    except FileNotFoundError:\n        return False\n"
    "modules = [CppExtension('p.k', ['k.cpp'])]\n"
    "if has_nvcc():\n    modules.append(CUDAExtension('p.k_cuda', ['k.cu']))\n"
    "setup(packages=['p'], ext_modules=modules)\n"
)
SET = TRIED.replace("has_nvcc():\n    m", "shutil.which('nvcc'):\n    m")
OWN = "from . import k_cuda\n"
RAISES = (
    "try:\n    from .k_cuda import f\nexcept ImportError:\n"
    "    def f(x):\n        raise ImportError('no extension')\n"
)


@pytest.mark.parametrize(
    ("build", "module", "answer"),
    [
        (TRIED, OWN, "will fail at run time: 1 cause"),
        (SET, OWN, "will fail at run time: 1 cause"),
        (TRIED.replace("has_nvcc():\n    m", "torch.version.cuda:\n    m"), OWN, "will fail at"),
        (TRIED, RAISES, "will fail at run time: 1 cause"),
        (TRIED.replace("has_nvcc():\n    m", "has_nvcc() or hip:\n    m"), OWN, "not determined"),
        (TRIED.replace("'nvcc'", "'cmake'"), OWN, "not determined"),
        (TRIED + "setup(ext_modules=[CUDAExtension('p.k', ['k.cu'])])\n", OWN, "not determined"),
        (TRIED.replace("if has_nvcc():\n", "if not has_nvcc():\n    raise OSError\nif modules:\n"),
         OWN, "will not build: 1 cause"),
    ],
)  # fmt: skip
def test_an_extension_that_a_rocm_machine_leaves_out_is_missed_by_what_needs_it(
    tmp_path: Path, build: str, module: str, answer: str
) -> None:
    build = "import shutil\nimport torch\n" + build
    files = {"setup.py": build, "k.cu": KERNEL, "k.cpp": "int k;\n", "p/__init__.py": module}
    files["tests/test_k.py"] = "from p import k_cuda\n"
    assert line(tmp_path, files).startswith(f"gfx942: {answer}")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("build.sh", "hipcc -O3 --offload-arch=gfx1100 k.hip -o k\n"),
        ("Makefile", "all:\n\thipcc --offload-arch=gfx1100:xnack- k.hip -o k\n"),
    ],
)
def test_a_build_for_other_devices_of_amd_fails_when_a_kernel_starts(
    tmp_path: Path, name: str, text: str
) -> None:
    kernel = {"k.hip": f"#include <hip/hip_runtime.h>\n{KERNEL}"}
    assert "will fail at run time: 1" in line(tmp_path, {**kernel, name: text})
    both = text.replace("--offload", "--offload-arch=gfx942 --offload")
    assert "runs as it is" in line(tmp_path, {name: both})
    assert "runs as it is" in line(tmp_path, {name: text.replace("gfx1100", "$(ARCH)")})
