"""Places where a module names NVIDIA's devices, and where that name means AMD's too."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from warpfront_port.scan.engines import Scope, scan_source
from warpfront_port.scan.findings import Context, ScanFinding, Severity, SourceText
from warpfront_port.scan.targets import read_target

TORCH = "import torch\n"
SCOPE = Scope(target=read_target("gfx942"), context=Context())


def findings_of(text: str) -> tuple[ScanFinding, ...]:
    return scan_source(SourceText(path=PurePosixPath("m.py"), text=text), SCOPE).findings


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import flash_attn_interface\ndef f(q):\n    return flash_attn_interface.f(q)\n", [3]),
        ('import re\nWHEEL = re.compile(r"pytorch[.]org/whl/(cpu|cu\\d+)/")\n', [2]),
        ("def is_nvidia_system(): ...\nuse = is_nvidia_system()\n", [1, 2]),
        (f"{TORCH}from mine import frameworks\nversion = frameworks.get_cuda_ver()\n", [3]),
        (f"{TORCH}space = ExecutionSpace.Cuda\n", [2]),
        ("from triton._C.libtriton import nvidia\n", [1]),
        ("def install(cuda_version): ...\ninstall(cuda_version=None)\n", [1, 2]),
        (f"{TORCH}from mine import has_cuda_capability\n", [2]),
        ("import triton\nSM_80_FILES = ()\nk.asm['ptx'], helper.init_tma_descriptor\n", [2, 3]),
        ('def f(error):\n    return "CUDA error: no kernel" in str(error)\n', [2]),
        ('def tag(major, minor):\n    return f"sm_{major}{minor}", f"gfx{major}"\n', [2]),
        (f"{TORCH}print(torch.version.cuda)\n", [2]),
        (f'{TORCH}fatal = ["CUDA out of memory", "no memory"]\n', [2]),
        ("def profile_with_nsight(): ...\n", [1]),
        ('order = ["CUDAExecutionProvider", "ROCMExecutionProvider"]\n', [1]),
        ("import triton\nflags = ['-lnvidia-ml', '-code=sm_%s']\nsource = 'gpu_burn.cu'\n", [2, 3]),
    ],
)  # fmt: skip
def test_a_name_for_nvidia_is_one_note_with_its_lines(text: str, lines: list[int]) -> None:
    found = [f for f in findings_of(text) if f.rule == "PY064"]
    assert [f.severity for f in found] == [Severity.NOTE]
    assert [line for f in found for line in (f.uses or (f.line,))] == lines


@pytest.mark.parametrize(
    "text",
    [
        f'{TORCH}use_cuda = torch.cuda.is_available()\ndevice = "cuda:0" if use_cuda else "cpu"\n',
        f"{TORCH}num_cuda_devices = torch.cuda.device_count()\n",
        f"{TORCH}kinds = [torch.profiler.ProfilerActivity.CUDA]\n",
        'parser.add_argument("--no-cuda")\n',
        'order = ["CUDAExecutionProvider", "MIGraphXExecutionProvider"]\n',
        'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\n',
        "def is_nvidia_system(): ...\ndef is_rocm_system(): ...\n",
        'if backend == "nvidia":\n    a()\nelif backend in ("amd", "hip"):\n    b()\n',
        f'{TORCH}devices = ["cuda", "cpu", "mps"]\nif device == "cuda":\n    run()\n',
        f'{TORCH}own = {{"rocm": 1}}\nif device in ("cuda", "rocm"):\n    run()\n',
        'print("CUDA", "is not there")\nwhy = "CUDA is not available"\n',
        'model = "nvidia/Nemotron-4"\n',
        "import torch.backends.cudnn as cudnn\ncudnn.benchmark = True\n",
        "from numba import types\nkey = types.int64\n",
        'def peak(name):\n    return "H100" in name or "AMD Instinct" in name\n',
        'schema = "a100"\nsizes = {"v10": 1}\nTensor = tmap\n',
        "try:\n    import flashinfer\nexcept ImportError:\n    flashinfer = None\n",
    ],
)
def test_what_means_amds_devices_too_is_none(text: str) -> None:
    assert [f.line for f in findings_of(text) if f.rule == "PY064"] == []


def test_a_line_with_a_finding_of_another_rule_needs_no_note() -> None:
    text = "import subprocess\nsubprocess.run(['nvidia-smi'])\nname = 'nvidia-smi'\n"
    assert [(f.rule, f.line) for f in findings_of(text)] == [("PY016", 2), ("PY064", 3)]


@pytest.mark.parametrize(
    ("test", "arms", "severity"),
    [
        (
            "== (8, 0)",
            "    m = 128\nelif size > 9:\n    m = 64\nelse:\n    m = 32\n",
            Severity.NOTE,
        ),
        # An MI300 says (9, 4): it gets the sizes that are Hopper's.
        (">= (9, 0)", "    m = 256\nelse:\n    m = 32\n", Severity.WARNING),
        ("== (8, 0)", "    m = 128\nelse:\n    raise RuntimeError\n", Severity.ERROR),
        ("== (8, 0)", "    fast = True\nelse:\n    fast = False\n", Severity.ERROR),
    ],
)
def test_a_capability_by_which_numbers_are_chosen_fails_nowhere(
    test: str, arms: str, severity: Severity
) -> None:
    text = f"{TORCH}size = 9\nif torch.cuda.get_device_capability() {test}:\n{arms}"
    assert [f.severity for f in findings_of(text) if f.rule == "PY019"] == [severity]


def test_a_number_is_chosen_in_an_expression_too() -> None:
    text = f"{TORCH}n = 64 if torch.cuda.get_device_capability() == (8, 6) else 32\n"
    assert [f.severity for f in findings_of(text) if f.rule == "PY019"] == [Severity.NOTE]


@pytest.mark.parametrize(
    ("name", "ending", "decides"),
    [
        ("start", "device = 'cpu'", True),
        ("start", "n_gpus = 0", True),
        ("has_gpu", "return False", True),
        ("start", "return False", False),
        ("start", "started = False", False),
    ],
)
def test_nvml_decides_about_a_gpu_where_its_failure_says_so(
    name: str, ending: str, *, decides: bool
) -> None:
    text = (
        f"def {name}(pynvml):\n    try:\n        pynvml.nvmlInit()\n        return True\n"
        f"    except Exception:\n        {ending}\n"
    )
    assert any(f.rule == "PY015" for f in findings_of(text)) is decides


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "import triton\nC = [\n    triton.Config({}, num_stages=s)\n    for s in (2, 3)\n]\n",
            [4],
        ),
        ("import triton\nC = triton.Config({}, num_stages=0)\n", [2]),
        ("import triton\nC = triton.Config({}, num_stages=2)\n", []),
        ("net = dict(depth=50, num_stages=4)\n", []),
    ],
)
def test_stages_of_a_triton_kernel_are_notes(text: str, lines: list[int]) -> None:
    found = [f for f in findings_of(text) if f.rule == "PY066"]
    assert all(f.severity is Severity.NOTE for f in found)
    assert [line for f in found for line in (f.uses or (f.line,))] == lines


def test_a_program_of_nvidias_is_started_behind_variables() -> None:
    start = "import subprocess\nsubprocess.check_output({!r}, shell=True)\n"
    commands = ("BYPASS=1 A='' nvidia-smi -L", "echo BYPASS=1 nvidia-smi")
    found = [[f.rule for f in findings_of(start.format(c)) if f.rule == "PY016"] for c in commands]
    assert found == [["PY016"], []]


@pytest.mark.parametrize(
    ("code", "severity"),
    [
        ("bytes.view(torch.float8_e4m3fn)", Severity.NOTE),
        ("bytes.to(torch.float8_e4m3fn)", Severity.WARNING),
    ],
)
def test_a_view_gives_bytes_a_format_and_computes_nothing(code: str, severity: Severity) -> None:
    found = findings_of(f"{TORCH}scales = {code}\n")
    assert [(f.rule, f.severity) for f in found] == [("PY037", severity)]
