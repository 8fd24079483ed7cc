"""An edit that keeps to AMD's side is no finding; one that NVIDIA reaches is, at its line."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from warpfront.errors import StoreError
from warpfront_port.commands.scanning import ScanRequest, scan_tree
from warpfront_port.scan.findings import Gate, SourceText
from warpfront_port.scan.isolation import isolation_rule_matches
from warpfront_port.scan.targets import read_target

TUNED = '    y = torch.compile(x, mode="max-autotune")\n'
MODULE = """\
import torch

def build(x):
    y = torch.compile(x, mode="max-autotune")
    if y:
        return y
    return x
"""
KERNEL = """\
#include "a.h"
__global__ void k(float* y) {
    y[0] = __shfl_sync(0xffffffff, y[1], 0);
}
"""


def changed(before: str, after: str, name: str = "m.py") -> list[tuple[int, str]]:
    """(line, message) of what an edit changed for NVIDIA."""
    path = PurePosixPath(name)
    found = isolation_rule_matches(
        SourceText(path=path, text=before), SourceText(path=path, text=after)
    )
    return [(after.count("\n", 0, one.start) + 1, one.excerpt) for one in found]


@pytest.mark.parametrize(
    "edit",
    [
        # An arm of its own, NVIDIA's statement in the other.
        f"    if torch.version.hip:\n        y = x\n    else:\n    {TUNED}",
        # A choice within the statement.
        '    y = torch.compile(x, mode="default" if torch.version.hip else "max-autotune")\n',
        # A way out that NVIDIA does not take.
        f"    if torch.version.hip is not None:\n        return x\n{TUNED}",
        # A name for the question, and new imports.
        f"    import os\n    is_rocm = torch.version.hip is not None\n{TUNED}",
        # Comments and white space.
        '    # as before\n    y = torch.compile(x,   mode="max-autotune")\n',
    ],
)
def test_an_edit_that_keeps_to_amds_side_is_none(edit: str) -> None:
    assert TUNED in MODULE
    assert changed(MODULE, MODULE.replace(TUNED, edit)) == []


def test_a_condition_narrowed_for_amd_alone_is_the_same_for_nvidia() -> None:
    assert changed(MODULE, MODULE.replace("if y:", "if y and not torch.version.hip:")) == []
    assert changed(MODULE, MODULE.replace("if y:", "if y or torch.version.hip:")) == []


def test_a_new_function_is_no_change_until_something_calls_it() -> None:
    helper = "\ndef helper():\n    return 3\n"
    assert changed(MODULE, MODULE + helper) == []
    called = MODULE.replace("    return x\n", "    return helper()\n") + helper
    assert changed(MODULE, called) == [(7, "`return helper()` is new for NVIDIA")]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        (
            '"max-autotune"',
            '"default"',
            4,
            "`y = torch.compile(x, mode='default')` is new for NVIDIA",
        ),
        ("    if y:", "    if x:", 5, "`if x:` is new for NVIDIA"),
        ("        return y\n", "        pass\n", 7, "`return y` is gone for NVIDIA"),
        (
            "    if y:",
            "    if torch.version.hip is None:\n        y = 1\n    if y:",
            6,
            "`y = 1` is new for NVIDIA",
        ),
    ],
)
def test_an_edit_that_nvidia_reaches_is_a_finding_at_its_line(
    old: str, new: str, line: int, message: str
) -> None:
    assert MODULE.count(old) == 1
    assert changed(MODULE, MODULE.replace(old, new)) == [(line, message)]


def test_in_cuda_the_arms_of_the_preprocessor_are_gates() -> None:
    mask = "    y[0] = __shfl_sync(0xffffffff, y[1], 0);\n"
    amd = "#ifdef USE_ROCM\n    y[0] = __shfl(y[1], 0);\n#else\n" + mask + "#endif\n"
    assert changed(KERNEL, KERNEL.replace(mask, amd), "k.cu") == []
    wide = KERNEL.replace("0xffffffff", "FULL_MASK")
    assert changed(KERNEL, wide, "k.cu") == [
        (3, "`y[0] = __shfl_sync(FULL_MASK, y[1], 0);` is new for NVIDIA")
    ]
    assert changed(KERNEL, "// a port\n\n" + KERNEL.replace("float* y", "float*  y"), "k.cu") == []


def test_what_is_gone_to_the_end_and_what_cannot_be_read_are_no_crash() -> None:
    assert changed("x = 1\n", "") == [(1, "`x = 1` is gone for NVIDIA")]
    assert changed("x = 1\n", "x = (\n") == []
    assert changed("x = (\n", "x = 1\n") == []
    assert changed("a: 1\n", "a: 2\n", "m.yaml") == []


def test_an_edit_of_test_code_is_a_note() -> None:
    path = PurePosixPath("tests/test_m.py")
    before, after = (SourceText(path=path, text=text) for text in ("x = 1\n", "x = 2\n"))
    assert {one.gate for one in isolation_rule_matches(before, after)} == {Gate.TEST}


def test_a_scan_with_the_tree_before_says_it_and_one_without_does_not(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for folder, text in ((before, MODULE), (after, MODULE.replace("if y:", "if x:"))):
        folder.mkdir()
        (folder / "m.py").write_text(text)
    (after / "new.py").write_text("x = 1\n")
    target = read_target("gfx942")
    assert "PY058" not in {
        one.rule for one in scan_tree(ScanRequest(repo=after, target=target)).findings
    }
    found = scan_tree(ScanRequest(repo=after, target=target, before=before)).findings
    assert [(one.path, one.line) for one in found if one.rule == "PY058"] == [("m.py", 5)]
    accepted = MODULE.replace("if y:", "if x:  # warpfront: ignore[PY058] the same in effect")
    (after / "m.py").write_text(accepted)
    found = scan_tree(ScanRequest(repo=after, target=target, before=before)).findings
    assert {one.rule for one in found} & {"PY058", "SC001", "SC002"} == set()
    with pytest.raises(StoreError, match="nowhere is no folder"):
        scan_tree(ScanRequest(repo=after, target=target, before=tmp_path / "nowhere"))
