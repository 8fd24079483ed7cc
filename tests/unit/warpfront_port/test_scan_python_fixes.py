"""Fixes of Python: AMD gets another value, NVIDIA the same tree, and nothing else goes quiet."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath

import pytest

from warpfront_port.scan.findings import SourceText
from warpfront_port.scan.isolation import isolation_rule_matches
from warpfront_port.scan.python_fixes import FIXED_IN_PYTHON, fix_python

FIXED = {
    "PY001": (
        "import torch\nf = torch.compile(g, mode='reduce-overhead')\n",
        "mode=(\"default\" if torch.version.hip else 'reduce-overhead')",
    ),
    "PY002": (
        "import torch as t\nMODE = 'max-autotune'\nf = t.compile(g, mode=MODE)\n",
        "MODE = (\"max-autotune-no-cudagraphs\" if t.version.hip else 'max-autotune')",
    ),
    "PY001 by hand": (
        "import torch\nimport torch._inductor.config as c\nc.triton.cudagraphs = True\n",
        "c.triton.cudagraphs = (False if torch.version.hip else True)",
    ),
    "PY004": (
        "import torch\nf = torch.compile(g, options={'memory_planning': True})\n",
        "{'memory_planning': (False if torch.version.hip else True)}",
    ),
    "PY008": (
        "import torch\nis_rocm = bool(torch.version.hip)\ntorch.backends.cudnn.allow_tf32 = True\n",
        "allow_tf32 = (False if is_rocm else True)",
    ),
    "PY010": (
        "import os, torch\nos.environ['A_ALLOC_CONF'] = 'a:b,max_split_size_mb:64'\n",
        "('a:b' if torch.version.hip else 'a:b,max_split_size_mb:64')",
    ),
    "PY025": (
        "import torch\nm = load(attn_implementation='flash_attention_2')\n",
        "attn_implementation=(\"sdpa\" if torch.version.hip else 'flash_attention_2')",
    ),
    "BL201": (
        "import torch\nfrom setuptools import setup\nFLAGS = ['-O3', '--use_fast_math']\n",
        "['-O3', *([] if torch.version.hip else ['--use_fast_math'])]",
    ),
    "BL201 of a module that does not import torch": (
        (
            "from setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
            "E = CUDAExtension('k', ['k.cu'], extra_compile_args={'nvcc': ['--use_fast_math']})\n"
        ),
        "import torch\nfrom torch.utils.cpp_extension import CUDAExtension\n",
    ),
    "BL202": (
        "import torch\nimport setuptools\nF = ['-gencode', 'arch=compute_80,code=sm_80']\n",
        "*([] if torch.version.hip else ['-gencode'])",
    ),
    "PY047": (
        (
            "import torch\nfrom torch.utils.cpp_extension import CUDA_HOME\n"
            "with_gpu = CUDA_HOME is not None\n"
        ),
        "import CUDA_HOME, ROCM_HOME\n",
    ),
}


def source(text: str) -> SourceText:
    return SourceText(path=PurePosixPath("train.py"), text=text)


def test_every_rule_that_is_fixed_has_an_example() -> None:
    assert {rule.split()[0] for rule in FIXED} == FIXED_IN_PYTHON


@pytest.mark.parametrize("rule", FIXED)
def test_amd_gets_another_value_and_nvidia_the_same_tree(rule: str) -> None:
    text, wanted = FIXED[rule]
    fix = fix_python(source(text))
    assert fix is not None
    assert rule.split(maxsplit=1)[0] in fix.rules
    assert wanted in fix.after
    ast.parse(fix.after)
    assert isolation_rule_matches(source(text), source(fix.after)) == ()
    assert fix_python(source(fix.after)) is None  # nothing is mended twice


LEFT_ALONE = {
    "no torch to ask": "import os\nos.environ['A_ALLOC_CONF'] = 'max_split_size_mb:64'\n",
    "torch comes later": (
        "import os\nos.environ['A_ALLOC_CONF'] = 'max_split_size_mb:64'\nimport torch\n"
    ),
    "gated already": (
        "import torch\nif torch.version.hip is None:\n"
        "    torch.backends.cuda.matmul.allow_tf32 = True\n"
    ),
    "NVML": "import torch\nimport pynvml\ndef f():\n    return pynvml.nvmlDeviceGetCount()\n",
    "an import": (
        "import torch\nfrom flash_attn import flash_attn_func\ny = flash_attn_func(q, k, v)\n"
    ),
    "inside an f-string": "import torch\nf = torch.compile(g, mode=f'{\"reduce-overhead\"}')\n",
    "no Python": "import torch\nf = torch.compile(g, mode='reduce-overhead'\n",
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_cannot_be_gated_is_left_alone(case: str) -> None:
    assert fix_python(source(LEFT_ALONE[case])) is None


def test_a_fix_hides_nothing_that_it_did_not_mend() -> None:
    text = FIXED["PY001"][0] + "import pynvml\npynvml.nvmlInit()\ntorch.hip.synchronize()\n"
    fix = fix_python(source(text))
    assert fix is not None
    assert fix.rules == ("PY001",)
    assert fix.after.endswith("import pynvml\npynvml.nvmlInit()\ntorch.hip.synchronize()\n")


def test_an_import_of_a_second_home_is_offered_only_with_its_use() -> None:
    head = "import torch\nfrom torch.utils.cpp_extension import CUDA_HOME\n"
    assert fix_python(source(f"{head}if not CUDA_HOME.is_dir():\n    raise SystemExit\n")) is None
    asked = f"{head}built = torch.cuda.is_available() and CUDA_HOME is not None\n"
    fixed = fix_python(source(asked))
    assert fixed is not None
    assert "import CUDA_HOME, ROCM_HOME\n" in fixed.after
    assert "(CUDA_HOME or ROCM_HOME) is not None" in fixed.after


def test_an_arm_that_leaves_the_extension_out_asks_for_either_home() -> None:
    fixed = fix_python(
        source(
            "import torch\nfrom torch.utils.cpp_extension import CUDA_HOME, CUDAExtension\n"
            "parts = []\nif CUDA_HOME is not None:\n    parts += [CUDAExtension('k', ['k.cu'])]\n"
        )
    )
    assert fixed is not None
    assert "if (CUDA_HOME or ROCM_HOME) is not None:\n" in fixed.after
