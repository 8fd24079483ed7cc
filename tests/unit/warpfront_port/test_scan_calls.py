"""The modules that always call a function with a finding: they cannot run without it either."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpfront_port.commands.scanning import ScanRequest, scan_tree, verdict_of
from warpfront_port.scan.calls import callers_of
from warpfront_port.scan.targets import read_target

HELPER = """
@triton.jit
def rounded(x):
    return tl.inline_asm_elementwise("cvt.rna.tf32.f32 $0, $1;", "=r,r", [x])
"""
KERNEL = """
from .helper import rounded as f

@triton.jit
def kernel(x):
    {call}

class Op:
    def forward(self, x):
        kernel[(1,)](x)
    def show(self):
        other()
"""
KERNEL_OF = {
    "always": "y = f(x)",
    "a condition": "y = f(x) if tl.constexpr(ROUNDED) else x",
    "a try": "try:\n        f(x)\n    except Exception:\n        pass",
}


@pytest.mark.parametrize(
    ("how", "answer"),
    [("always", "will fail at run time"), ("a condition", "runs as it is"), ("a try", "runs")],
)
def test_ptx_in_a_helper_decides_where_most_of_the_project_always_calls_it(
    tmp_path: Path, how: str, answer: str
) -> None:
    kernel = KERNEL.format(call=KERNEL_OF[how]) + "\n" * 60
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "p"\n')
    (tmp_path / "p").mkdir()
    imports = "import triton\nimport triton.language as tl\n"
    for name, text in {"__init__": "", "helper": HELPER, "kernel": kernel}.items():
        (tmp_path / "p" / f"{name}.py").write_text(imports * bool(text) + text)
    (tmp_path / "p" / "__init__.py").write_text("from .kernel import Op\n" + "\n" * 30)
    scan = scan_tree(ScanRequest(repo=tmp_path, target=read_target("gfx942")), processes=1)
    assert verdict_of(scan, scan.findings).answer.startswith(answer)


def test_callers_are_followed_through_imports_and_the_methods_that_a_use_runs() -> None:
    texts = {
        "p/helper.py": HELPER,
        "p/kernel.py": KERNEL.format(call="f(x)"),
        "p/use.py": "from p.kernel import Op\ndef run(x):\n    Op()\n",
        "p/other.py": "def rounded(x):\n    pass\ndef g():\n    rounded(1)\n",  # its own
        "p/broken.py": "def (",
    }
    found = callers_of(texts, [("p/helper.py", 4), ("p/other.py", 4), ("p/broken.py", 1)])
    assert found["p/helper.py", 4] == {"p/helper.py", "p/kernel.py", "p/use.py"}
    assert found["p/other.py", 4] == {"p/other.py"}
    assert found["p/broken.py", 1] == frozenset()
