"""torch's own tables are read as text: torch is never imported, and need not be there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from warpfront_port.hipify_tables import read_identifiers

TABLES = """
from .constants import *
raise RuntimeError("executed")
MATH = collections.OrderedDict([
    ("__nv_bfloat16", ("__hip_bfloat16", CONV_TYPE)),
    ("cudaMalloc", ("hipMalloc", CONV_MEM, API_RUNTIME)),
])
OTHER = {"cublasHandle_t": ("hipblasHandle_t", CONV_TYPE), "x": 3, "CUDAStream": "HIPStream"}
"""


def a_torch(folder: Path, tables: str | None) -> None:
    package = folder / "torch"
    place = package / "utils" / "hipify"
    place.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    if tables is not None:
        (place / "cuda_to_hip_mappings.py").write_text(tables)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return tmp_path


def test_names_are_read_from_every_form_of_table_without_running_it(site: Path) -> None:
    a_torch(site, TABLES)
    assert read_identifiers() == {
        "__nv_bfloat16": "__hip_bfloat16",
        "cudaMalloc": "hipMalloc",
        "cublasHandle_t": "hipblasHandle_t",
        "CUDAStream": "HIPStream",
    }


@pytest.mark.parametrize("tables", [None, ""], ids=["no tables", "empty tables"])
def test_a_torch_without_tables_gives_no_names(site: Path, tables: str | None) -> None:
    a_torch(site, tables)
    assert read_identifiers() == {}


@pytest.mark.usefixtures("site")
def test_no_torch_gives_no_names() -> None:
    assert read_identifiers() == {}
