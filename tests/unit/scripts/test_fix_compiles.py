"""What compiled before the scan's fixes and does not after ends `tools/fix-compiles` with 1."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from projects import REPOSITORY

KERNEL = """#include "sum.h"
__global__ void k(float* y) { y[0] = __shfl_down_sync(0xffffffff, y[0], 1) + plus(y[1]); }
"""
HEADER = "__device__ inline float plus(float x) { return x; }\n"


@pytest.fixture(name="script")
def _script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader(
        "fix_compiles", str(REPOSITORY / "tools" / "fix-compiles")
    )
    spec = importlib.util.spec_from_loader("fix_compiles", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "fix_compiles", module)
    loader.exec_module(module)
    for name, text in {"a.cu": KERNEL, "sum.h": HEADER, "b.cu": HEADER}.items():
        (tmp_path / "tree").mkdir(exist_ok=True)
        (tmp_path / "tree" / name).write_text(text)
    monkeypatch.setattr("sys.argv", ["fix-compiles", str(tmp_path / "tree")])
    return module


@pytest.mark.process
@pytest.mark.parametrize(
    ("broken", "nvidias", "code"), [(False, False, 0), (True, False, 1), (False, True, 1)]
)
def test_what_no_longer_compiles_or_is_another_for_nvidia_is_said(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    broken: bool,
    nvidias: bool,
    code: int,
) -> None:
    def compiled(folder: Path, kernels: Any, target: str, _asked: Any) -> dict[str, str]:
        assert list(kernels) == ["a.cu"]  # the other has no edit
        assert {one.name for one in folder.iterdir()} == {"a.cu", "sum.h"}
        bad = folder.name == "after" and (nvidias if target == "sm_90" else broken)
        return {"a.cu": "a.cu:1: error: no" if bad else ""}

    monkeypatch.setattr(script, "compiled", compiled)
    assert script.main() == code
    row = capsys.readouterr().out.splitlines()[-1]
    assert (" 1 | 0 | 1 | 0 |" in row) is broken
    assert ("CHANGED" in row) is nvidias


@pytest.mark.process
def test_an_edit_that_nvidia_sees_is_seen(script: ModuleType) -> None:
    path, rules = Path("a.cu"), ("CU108",)
    hidden = script.Fix(
        path=path, before="int a;\n", after="#if 0\nb\n#endif\nint a;\n", rules=rules
    )
    shown = script.Fix(path=path, before="int a;\n", after="int b;\n", rules=rules)
    assert script.reads_same(hidden)
    assert not script.reads_same(shown)
