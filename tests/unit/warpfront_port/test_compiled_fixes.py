"""Edits are offered only where a compiler at hand takes them, as diffs that git applies."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from warpfront_port.commands.port_work import compiled_fixes, fixes_of
from warpfront_port.commands.scanning import ScanRequest, scan_tree
from warpfront_port.compile.syntax_pass import read_results
from warpfront_port.finding_forms import Scan
from warpfront_port.scan.targets import read_target

MASKS = "__device__ float f(float v) { return __shfl_xor_sync(0xffffffff, v, 1); }\n"
FLAGS = (
    "from setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
    "setup(ext_modules=[CUDAExtension('k', ['k.cu'],\n"
    "    extra_compile_args={'nvcc': ['--use_fast_math']})])\n"
)


def scanned(root: Path) -> Scan:
    (root / "k.cu").write_text(MASKS)
    (root / "setup.py").write_text(FLAGS)
    found = scan_tree(ScanRequest(repo=root, target=read_target("gfx942")), processes=1)
    return replace(found, compiler="clang 22", compiled=("k.cu",), uncompiled={})


def takes_all(_root: Path, bare: Scan) -> Scan:
    return replace(bare, compiled=("k.cu",))


def refuses(root: Path, bare: Scan) -> Scan:
    assert (root / "k.cu").read_text() != MASKS
    unit = {"unit": "k.cu", "codes": [1, 0], "output": "/src/k.cu:1:1: error: a new error"}
    found = read_results({"units": [unit]}, "/src").findings
    return replace(bare, compiled=("k.cu",), findings=found)


def loses_the_unit(_root: Path, bare: Scan) -> Scan:
    return bare


@pytest.mark.parametrize(
    ("compiled", "paths", "refused"),
    [
        (takes_all, ["k.cu", "setup.py"], 0),
        (refuses, ["setup.py"], 1),
        (loses_the_unit, ["setup.py"], 1),
    ],
)
def test_an_edit_that_the_compiler_refuses_is_not_offered(
    tmp_path: Path, compiled: type, paths: list[str], refused: int
) -> None:
    scan = scanned(tmp_path)
    fixes, count = compiled_fixes(tmp_path, fixes_of(tmp_path), scan, compiled)
    assert ([str(fix.path) for fix in fixes], count) == (paths, refused)


def test_without_a_compiler_edits_are_offered_uncompiled(tmp_path: Path) -> None:
    scan = replace(scanned(tmp_path), compiler="")
    fixes, count = compiled_fixes(tmp_path, fixes_of(tmp_path), scan, refuses)
    assert (len(fixes), count) == (2, 0)


@pytest.mark.process
@pytest.mark.parametrize("extra", ["", "\x0c// a form feed\n", "// \u2028 a separator\n", "// end"])
def test_git_applies_the_patch(tmp_path: Path, extra: str) -> None:
    scanned(tmp_path)
    (tmp_path / "k.cu").write_text(MASKS + extra, newline="")
    fixes = fixes_of(tmp_path)
    patch = "".join(fix.patch for fix in fixes)
    command = ["git", "apply", "-"]
    subprocess.run(command, cwd=tmp_path, input=patch.encode(), check=True)
    for fix in fixes:
        assert (tmp_path / fix.path).read_bytes() == fix.after.encode()
    assert len(fixes) == 2
