"""hipify's tables are data of the package: which names have twins is known on any install."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpfront_port.commands.scanning import ScanRequest, scan_tree
from warpfront_port.scan.hipify_names import hipify_names, read_names
from warpfront_port.scan.targets import read_target

TABLE = """\
# a comment of more words
cudaMalloc
CUBLAS_OP_N HIPBLAS_OP_N
cub/cub.cuh hipcub/hipcub.hpp
! cudaGLMapFlags
"""


def test_a_line_is_a_twin_a_regular_twin_a_header_or_none() -> None:
    table = read_names(TABLE)
    assert table.twins == {"cudaMalloc": "hipMalloc", "CUBLAS_OP_N": "HIPBLAS_OP_N"}
    assert table.headers == {"cub/cub.cuh": "hipcub/hipcub.hpp"}
    assert table.twinless == {"cudaGLMapFlags"}


def test_the_table_that_ships_knows_common_names_and_contradicts_itself_nowhere() -> None:
    table = hipify_names()
    assert table.twins["cublasHandle_t"] == "hipblasHandle_t"
    assert table.twins["cudaStreamLegacy"] == "hipStreamLegacy"
    assert "__vminu4" in table.twinless
    assert not table.twinless & table.twins.keys()
    assert len(table.twins) > 5000
    assert len(table.twinless) > 3000


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("void f() { cudaMalloc(0, 1); cublasHandle_t h; }", []),
        ("__device__ int f(int a) { return __vminu4(a, a); }", ["`__vminu4`"]),
        ("void f() { cublasNewerThanTheTable(h); }", []),
    ],
)
def test_a_name_without_twin_is_an_error_and_one_with_a_twin_is_none(
    tmp_path: Path, code: str, found: list[str]
) -> None:
    (tmp_path / "a.cu").write_text(f"#include <cublas_v2.h>\n{code}\n", encoding="utf-8")
    findings = scan_tree(
        ScanRequest(repo=tmp_path, target=read_target("gfx942")), processes=1
    ).findings
    errors = [finding for finding in findings if finding.severity == "error"]
    assert [finding.message.split(" has ")[0] for finding in errors] == found
