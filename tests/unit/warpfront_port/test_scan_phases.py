"""The phases of a port follow from the findings and from whether there are kernels."""

from __future__ import annotations

from pathlib import PurePosixPath

from warpfront_port.scan.catalogue import catalogue
from warpfront_port.scan.findings import ScanFinding, Severity
from warpfront_port.scan.phases import Phase, phases_text, plan_port


def finding(rule: str, severity: Severity = Severity.ERROR, path: str = "a.py") -> ScanFinding:
    return ScanFinding(
        path=path, line=3, column=1, end_line=3, end_column=2, rule=rule, severity=severity,
        message="",
    )  # fmt: skip


def planned(findings: list[ScanFinding], *paths: str) -> tuple[Phase, ...]:
    return plan_port(findings, catalogue(), [PurePosixPath(path) for path in paths])


def states(phases: tuple[Phase, ...]) -> str:
    return "".join(phase.state[0] for phase in phases)


def test_a_tree_of_python_skips_translation_architecture_and_build() -> None:
    assert states(planned([], "a.py", "b/c.py")) == "ccsssccc" + "o"


def test_a_tree_with_kernels_skips_nothing() -> None:
    assert states(planned([], "a.py", "csrc/k.cu")) == "cccccccc" + "o"


def test_cuda_in_a_string_of_python_is_translated_too() -> None:
    phases = planned([finding("CU107")], "a.py")
    assert phases[2].state == "open"
    assert phases[3].state == "skipped"


def test_notes_leave_a_phase_clear_and_say_so() -> None:
    phases = planned([finding("CU147", Severity.NOTE, "k.cu")], "k.cu")
    assert phases[2].state == "clear"
    assert phases[2].why == "nothing above a note; 1 notes"


def test_what_to_do_comes_errors_first_with_a_place() -> None:
    phases = planned(
        [
            finding("CU113", Severity.WARNING, "k.cu"),
            finding("CU113", Severity.WARNING, "k.cu"),
            finding("CU108", Severity.ERROR, "k.cu"),
        ],
        "k.cu",
    )
    steps = phases[3].steps
    assert [(step.rule, step.errors, step.warnings, step.first) for step in steps] == [
        ("CU108", 1, 0, "k.cu:3"),
        ("CU113", 0, 2, "k.cu:3"),
    ]
    assert phases[3].why == "1 errors and 2 warnings in 1 files"


def test_a_scan_alone_verifies_nothing() -> None:
    assert planned([], "a.py")[8].state == "open"
    assert "after phases 5" in planned([finding("PY014")], "a.py")[8].why


def test_the_text_names_every_phase_once() -> None:
    text = phases_text(planned([finding("PY014")], "a.py"))
    assert [line.split()[1] for line in text.splitlines() if line.startswith("phase ")] == list(
        "012345678"
    )
    assert "PY014" in text
