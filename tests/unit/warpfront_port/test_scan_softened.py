"""What makes a finding milder: the name of its file, an optional import, AMD's own arm."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from warpfront_port.scan.catalogue import Rule
from warpfront_port.scan.findings import Consequence, Gate, Match, Severity, SourceText
from warpfront_port.scan.severities import judge
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
    sides: Any = None,
    **facts: Any,
) -> str:
    """Severity and gate of one sighting of one rule; "" where it is no finding."""
    given: dict[str, Any] = {
        "engines": ("python",),
        "severities": {"rocm": Severity.ERROR, "hpu": Severity.ERROR},
        "consequence": Consequence.BUILD,
    }
    rule = Rule(
        id="XX001", title="t", phase=1, message="m", why="w", fix="f", sources=("s",),
        **(given | facts),
    )  # fmt: skip
    more = {} if sides is None else {"sides": sides}
    source = SourceText(path=PurePosixPath(path), text=TEXT)
    rule_match = Match(rule=rule.id, start=0, end=5, excerpt="x", gate=gate, **more)
    found = judge(source, [rule_match], read_target(target), {rule.id: rule}).findings
    return " ".join(f"{one.severity} {one.gate}" for one in found)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("docker/Dockerfile.cuda", "note test"),
        ("docker/cuda12.4/Dockerfile", "note test"),
        ("NVIDIA-requirements.txt", "note test"),
        ("cmake/FindCUDA.cmake", "note test"),
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


def test_an_import_that_may_be_missing_is_no_finding() -> None:
    assert weighed(Gate.AVAILABILITY, of_a_package=True) == ""
    assert weighed(Gate.AVAILABILITY) == "note availability"


def test_test_code_is_a_note_in_amd_s_arm_too() -> None:
    assert weighed(Gate.TEST, sides=AMD) == "note test"


def test_in_amd_s_own_arm_what_only_may_be_wrong_was_a_decision() -> None:
    warning: dict[str, Any] = {"severities": {"rocm": Severity.WARNING}}
    assert weighed(sides=AMD, **warning) == "note own-arm"
    assert weighed(sides=AMD) == "error own-arm"
