"""What HIP's headers lack: read from CUDA's headers, held against what the scan's rules see."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from projects import REPOSITORY


@pytest.fixture(name="names")
def _names() -> ModuleType:
    path = str(REPOSITORY / "tools" / "device-names")
    loader = importlib.machinery.SourceFileLoader("device_names", path)
    spec = importlib.util.spec_from_loader("device_names", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


HEADER = """
/* __DEVICE_FUNCTIONS_DECL__ int __commented(int); */
__SM_32_INTRINSICS_DECL__ void __stcs(float *p, float v) ;
__device__ __cudart_builtin__ int __nv_internal(int);
__CUDA_FP16_DECL__ __half htanh(const __half a);
__device__ double fmin(double, double);
__device__ int __hidden_CASE(int); extern int __plain(int);
"""


def test_names_are_read_where_a_device_function_is_declared(
    names: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "sm_32_intrinsics.h").write_text(HEADER)
    assert names.declared(tmp_path) == {"__stcs", "htanh", "__hidden_CASE"}
    assert set(names.seen_by_rules(["__stcs", "htanh", "__vadd4", "__fadd_rz", "__ldg"])) == {
        *("__stcs", "htanh", "__vadd4", "__fadd_rz")
    }


@pytest.mark.parametrize("missing", [True, False])
def test_a_rule_about_a_name_that_hip_has_is_wrong(
    names: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, missing: bool
) -> None:
    said = "error: no member named '__stcs' in the global namespace" if missing else ""

    def run(command: list[str], **given: Any) -> subprocess.CompletedProcess[str]:
        assert command[:1] == ["hipcc"]
        assert "using ::__stcs;" in given["input"]
        return subprocess.CompletedProcess(command, 0, stdout="", stderr=said)

    (tmp_path / "sm_32_intrinsics.h").write_text(
        "__SM_32_INTRINSICS_DECL__ void __stcs(float *p, float v);\n"
    )
    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr("sys.argv", ["device-names", str(tmp_path), "hipcc"])
    with pytest.raises(SystemExit) as ended:
        names.main()
    assert ended.value.code == (not missing)


def test_a_compiler_that_fails_otherwise_is_no_answer(
    names: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess(["hipcc"], 1, stdout="", stderr="hipcc: not found")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: done)
    with pytest.raises(SystemExit, match="not found"):
        names.lacking(["__stcs"], ["hipcc"])
