"""The answer by folder, rule and phase; what is NVIDIA's alone; where to begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpfront.errors import NothingSelectedError
from warpfront_port.commands.port_work import users_of
from warpfront_port.scan.catalogue import catalogue
from warpfront_port.scan.findings import ScanFinding, Severity
from warpfront_port.scan.targets import read_target
from warpfront_port.scan_views import nvidias_folders, parts, summary_text, totals, view_text

RULES = catalogue()


def finding(rule: str, path: str, line: int, severity: str) -> ScanFinding:
    return ScanFinding(
        path=path, line=line, column=1, end_line=line, end_column=2, rule=rule,
        severity=Severity(severity), message="m",
    )  # fmt: skip


FOUND = [
    *(finding("CU107", "csrc/ptx/mma.cuh", line, "error") for line in range(1, 5)),
    finding("PY014", "src/a.py", 3, "error"),
    finding("PY008", "src/b.py", 9, "warning"),
    finding("BL201", "setup.py", 7, "error"),
    finding("PY009", "src/c.py", 1, "note"),
]


def test_folders_are_ordered_by_what_they_cost() -> None:
    folders = parts(FOUND, RULES, "folder")
    assert [(one.name, one.errors, one.warnings, one.notes) for one in folders] == [
        ("csrc/ptx", 4, 0, 0),
        ("src", 1, 1, 1),
        (".", 1, 0, 0),
    ]
    assert folders[1].first == "src/a.py:3 (PY014)"
    assert parts(FOUND, RULES, "rule")[0].name == "CU107 Inline PTX"
    phases = [one.name for one in parts(FOUND, RULES, "phase")]
    assert phases == sorted(phases)
    assert totals(FOUND) == {"errors": 6, "warnings": 1, "notes": 1}


def test_a_folder_of_ptx_is_nvidias_alone_and_its_users_are_counted(tmp_path: Path) -> None:
    assert nvidias_folders(FOUND, RULES) == ("csrc/ptx",)
    for path, text in {
        "csrc/ptx/mma.cuh": '#include "ptx/other.cuh"\n',
        "csrc/a.cu": '#include "ptx/mma.cuh"\n',
        "csrc/b.cu": '// #include "ptx/mma.cuh"\n',
        "csrc/c.cu": "#include <vector>\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    users = users_of(tmp_path, ("csrc/ptx",))
    assert users == {"csrc/ptx": 1}
    text = view_text(FOUND, RULES, "folder", users)
    assert "csrc/ptx is NVIDIA's alone (4 of 4 errors): leave it out or rewrite it; 1 files" in text
    assert "src is NVIDIA's" not in text


def test_the_summary_says_where_to_begin() -> None:
    text = summary_text(FOUND, RULES, {"csrc/ptx": 0})
    assert text.startswith("start with phase ")
    assert "by folder\n      4 errors     0 warnings  csrc/ptx, first csrc/ptx/mma.cuh:1" in text
    assert "NVIDIA's alone" in text
    assert summary_text(FOUND[-1:], RULES, {}) == "nothing above a note\n"


def test_equal_lines_of_a_renamed_file_keep_their_fingerprint() -> None:
    before, after = finding("PY014", "a.py", 1, "error"), finding("PY014", "b/c.py", 9, "error")
    assert before.fingerprint == after.fingerprint
    assert finding("PY016", "a.py", 1, "error").fingerprint != before.fingerprint


def test_a_rule_may_depend_on_the_rocm_that_is_built_with() -> None:
    severities = [
        RULES["CU116"].severity_for(read_target("gfx942", toolkit))
        for toolkit in ("6.4", "7.0", "")
    ]
    assert severities == [Severity.NOTE, Severity.ERROR, Severity.ERROR]
    assert read_target("gaudi3", "6.4").classes == ("gaudi3", "hpu")
    with pytest.raises(NothingSelectedError, match="no rules for ROCm"):
        read_target("gfx942", "3.1")
