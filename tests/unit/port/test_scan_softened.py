"""What makes a finding milder beside the condition before it: the file's name and what is said of
the whole file, a tree that was ported, a rule's own word, a folder where it was said before.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from warpfront_port.scan.catalogue import Rule
from warpfront_port.scan.findings import Gate, Match, ScanFinding, Severity, SourceText
from warpfront_port.scan.severities import judge, said_once
from warpfront_port.scan.targets import read_target

ROCM = read_target("gfx942")
TEXT = "built for gfx942, gfx90a\n"
NVIDIA_AND_AMD: Any = frozenset({"nvidia", "amd"})
AMD: Any = frozenset({"amd"})


def weighed(
    gate: Gate = Gate.OPEN,
    *,
    path: str = "a/module.py",
    target: str = "gfx942",
    whole: Gate = Gate.OPEN,
    ported: bool = False,
    sides: Any = None,
    **facts: Any,
) -> str:
    """Severity and gate of one sighting of one rule; "" where it is no finding."""
    given: dict[str, Any] = {
        "engines": ("python",),
        "severities": {"rocm": Severity.ERROR, "hpu": Severity.ERROR},
    }
    rule = Rule(
        id="XX001", title="t", phase=1, message="m", why="w", fix="f", sources=("s",),
        **(given | facts),
    )  # fmt: skip
    more = {} if sides is None else {"sides": sides}
    source = SourceText(path=PurePosixPath(path), text=TEXT)
    rule_match = Match(rule=rule.id, start=0, end=5, what="x", gate=gate, **more)
    tree: dict[str, Any] = {"ported": True} if ported else {}
    found = judge(
        source, [rule_match], read_target(target), {rule.id: rule}, gate=whole, **tree
    ).findings
    return " ".join(f"{one.severity} {one.gate}" for one in found)


@pytest.mark.parametrize(
    ("whole", "gate", "said"),
    [
        (Gate.TEST, Gate.OPEN, "note test"),
        (Gate.TEST, Gate.AVAILABILITY, "warning availability"),
        (Gate.LEFT_OUT, Gate.OPEN, "note left-out"),
        (Gate.LEFT_OUT, Gate.AVAILABILITY, "note left-out"),
        (Gate.LEFT_OUT, Gate.WRAPPED, "note wrapped"),
        (Gate.OPEN, Gate.UNPROVEN, "warning unproven"),
    ],
)
def test_what_stands_before_a_whole_file_counts_where_nothing_closer_does(
    whole: Gate, gate: Gate, said: str
) -> None:
    assert weighed(gate, whole=whole) == said


@pytest.mark.parametrize(
    ("gate", "facts", "said"),
    [
        (Gate.OPEN, {"engines": ("cuda",)}, "note ported"),
        (Gate.OPEN, {"engines": ("structured",)}, "note ported"),
        (Gate.OPEN, {"engines": ("cuda",), "despite_a_port": True}, "error open"),
        (Gate.UNPROVEN, {}, "note ported"),
        (Gate.UNPROVEN, {"despite_a_port": True}, "note ported"),
        (Gate.UNPROVEN, {"sides": NVIDIA_AND_AMD}, "note ported"),
        (Gate.AVAILABILITY, {}, "note ported"),
        (Gate.OPEN, {"engines": ("cuda",), "sides": AMD}, "note ported"),
        (Gate.OPEN, {"sides": AMD, "despite_a_port": True}, "error own-arm"),
    ],
)
def test_what_a_port_shows_to_work_is_a_note(gate: Gate, facts: dict[str, Any], said: str) -> None:
    assert weighed(gate, ported=True, **facts) == said
    assert "ported" not in weighed(gate, **facts)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("docker/Dockerfile.cuda", "note nvidias"),
        ("docker/cuda12.4/Dockerfile", "note nvidias"),
        ("NVIDIA-requirements.txt", "note nvidias"),
        ("cmake/FindCUDA.cmake", "note nvidias"),
        ("barracuda/Dockerfile", "error open"),
        ("cuda/setup.py", "error open"),
        ("tests/requirements-dev.txt", "note test"),
        ("testing/constraints.txt", "note test"),
        ("attests/requirements.txt", "error open"),
    ],
)
def test_the_name_of_a_file_for_packaging_says_what_is_in_it(path: str, said: str) -> None:
    assert weighed(path=path, engines=("structured",)) == said
    assert weighed(path=path, engines=("cuda",)) == "error open"


def test_a_file_that_names_the_target_has_no_finding_of_some_rules() -> None:
    assert weighed(unless_named=True) == ""
    assert weighed(unless_named=True, target="gfx1100") == "error open"
    assert weighed() == "error open"


def test_an_import_that_may_be_missing_is_a_note() -> None:
    assert weighed(Gate.AVAILABILITY, of_a_package=True) == "note availability"
    assert weighed(Gate.UNPROVEN, of_a_package=True) == "warning unproven"


def test_behind_a_question_for_cuda_s_device_gaudi_s_own_way_is_missing_and_not_wrong() -> None:
    of_devices: dict[str, Any] = {"severities": {"rocm": Severity.NONE, "hpu": Severity.ERROR}}
    assert weighed(target="gaudi3", sides=NVIDIA_AND_AMD, **of_devices) == "note unreached"
    assert weighed(target="gaudi3", sides=NVIDIA_AND_AMD) == ""
    assert weighed(target="gaudi3", sides=AMD, **of_devices) == ""
    everywhere: dict[str, Any] = {"severities": {"rocm": Severity.NONE, "cpu": Severity.ERROR}}
    assert weighed(target="cpu", sides=NVIDIA_AND_AMD, **everywhere) == ""


def test_nobody_has_to_prove_who_comes_where_amd_alone_does_or_where_nothing_is_amd_s() -> None:
    assert weighed(Gate.UNPROVEN, sides=AMD) == "error own-arm"
    assert weighed(Gate.UNPROVEN, sides=NVIDIA_AND_AMD) == "warning unproven"
    assert weighed(Gate.UNPROVEN, target="gaudi3") == "error open"
    assert weighed(Gate.TEST, sides=AMD) == "note test"


def test_in_amd_s_own_arm_what_only_may_be_wrong_was_a_decision() -> None:
    warning: dict[str, Any] = {"severities": {"rocm": Severity.WARNING}}
    assert weighed(sides=AMD, **warning) == "note own-arm"
    assert weighed(sides=AMD) == "error own-arm"


def a_finding(path: str, severity: Severity, rule: str = "ONCE") -> ScanFinding:
    return ScanFinding(
        path=path, line=1, column=1, end_line=1, end_column=2, rule=rule, severity=severity,
        message="m", gate=Gate.OPEN, gate_line=0, excerpt="x",
    )  # fmt: skip


def test_a_fact_of_a_folder_is_said_at_its_first_place_there_for_each_severity() -> None:
    base: dict[str, Any] = {
        "title": "t", "engines": ("python",), "phase": 1, "severities": {}, "message": "m",
        "why": "w", "fix": "f", "sources": ("s",),
    }  # fmt: skip
    rules = {
        "ONCE": Rule(id="ONCE", of_a_folder=True, **base), "EACH": Rule(id="EACH", **base)
    }  # fmt: skip
    error, warning, note = Severity.ERROR, Severity.WARNING, Severity.NOTE
    given = [
        *(a_finding("a/x", error), a_finding("a/y", error), a_finding("a/y", warning)),
        *(a_finding("a/z", note), a_finding("a/z", note), a_finding("a/b/x", error)),
        *(a_finding("a/x", error, "EACH"), a_finding("a/y", error, "EACH")),
    ]
    said = [(one.severity, one.gate) for one in said_once(given, rules)]
    first, again = Gate.OPEN, Gate.REPEATED
    assert said == [
        *((error, first), (note, again), (warning, first)),
        *((note, first), (note, first), (error, first), (error, first), (error, first)),
    ]
