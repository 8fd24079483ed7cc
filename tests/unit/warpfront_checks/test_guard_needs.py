"""What the sealed stack needs of others is constrained as widely as its metadata says, and looked
at.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from guarded import TORCH, VISION, cpu_policy, findings, install, places_below, remove
from packaging.requirements import Requirement

from warpfront_checks.guard.channels import constraint_lines
from warpfront_checks.guard.places import Places
from warpfront_checks.guard.policy import read_policy
from warpfront_checks.guard.sealing import relax, seal

ASKED_FOR = (
    "filelock",
    "typing-extensions>=4.10.0",
    "sympy>=1.13.3",
    "setuptools<82; python_version >= '3.99'",
    "wheel>=0.40",
    "optree>=0.13; extra == 'optree'",
    "torchvision>=0.1",
    "pillow>=5.3",
)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """torch and torchvision with what real ones ask for, and what that asks for in turn."""
    found = places_below(tmp_path)
    packages = found.site_packages
    install(packages, "torch", "2.13.0+cpu", TORCH, requires=ASKED_FOR)
    install(packages, "torchvision", "0.28.0+cpu", VISION, requires=["torch", "pillow!=8.3"])
    install(packages, "filelock", "3.1", {})
    install(packages, "typing-extensions", "4.15.0", {})
    install(packages, "sympy", "1.14.0", {}, requires=["mpmath<1.4,>=1.1"])
    install(packages, "mpmath", "1.3.0", {})
    install(packages, "pillow", "12.0", {})
    install(packages, "wheel", "0.45", {})
    seal(cpu_policy(), found, python=sys.executable)
    return found


def replaced(places: Places, name: str, before: str, after: str) -> None:
    remove(places.site_packages, f"{name.replace('-', '_')}-{before}.dist-info")
    install(places.site_packages, name, after, {})


def test_what_the_stack_needs_is_held_within_what_it_accepts(places: Places) -> None:
    policy = read_policy(places.policy)
    assert policy.needed() == {
        "pillow": "!=8.3,>=5.3",
        "sympy": ">=1.13.3",
        "typing-extensions": ">=4.10.0",
        "wheel": ">=0.40",
    }
    lines = places.needs.read_text().splitlines()[1:]
    assert "wheel>=0.40" not in lines
    assert {"pillow!=8.3,>=5.3", "sympy>=1.13.3", "typing-extensions>=4.10.0"} <= set(lines)
    assert [str(Requirement(line)) for line in lines] == lines


def test_uv_gets_exact_constraints_only(places: Places) -> None:
    """With a range among them it refuses every requirement that has a hash, ours too."""
    lines = constraint_lines(read_policy(places.policy))
    assert lines
    assert all("==" in line for line in lines)


def test_what_is_pinned_already_is_constrained_once(places: Places) -> None:
    lines = places.constraints.read_text().splitlines()
    assert [line for line in lines if line.startswith("torchvision")] == ["torchvision==0.28.0+cpu"]


def test_a_sound_stack_with_needs_has_no_findings(places: Places) -> None:
    assert findings(places) == []


@pytest.mark.parametrize(
    ("name", "before", "after", "told"),
    [
        ("typing-extensions", "4.15.0", "4.5.0", "torch needs typing-extensions>=4.10.0"),
        ("sympy", "1.14.0", "1.5", "torch needs sympy>=1.13.3"),
        ("wheel", "0.45", "0.30", "torch needs wheel>=0.40"),
        ("pillow", "12.0", "8.3", "torchvision needs pillow!=8.3"),
        ("mpmath", "1.3.0", "1.4.0", "sympy needs mpmath<1.4,>=1.1"),
    ],
)
def test_what_the_stack_cannot_work_with_is_found(
    places: Places, name: str, before: str, after: str, told: str
) -> None:
    replaced(places, name, before, after)
    assert findings(places) == [f"needs: {name}: {after} is installed; {told}"]


def test_what_the_stack_needs_and_was_removed_is_found(places: Places) -> None:
    remove(places.site_packages, "filelock-3.1.dist-info")
    assert findings(places) == ["needs: filelock: not installed; torch needs filelock"]


def test_another_version_that_the_stack_accepts_is_no_finding(places: Places) -> None:
    replaced(places, "sympy", "1.14.0", "1.15")
    assert findings(places) == []


def test_a_need_can_be_given_up(places: Places) -> None:
    said = relax({"sympy": "we never compile"}, places)
    assert said[0].startswith("sympy is no longer protected")
    assert "sympy" not in places.constraints.read_text()
    replaced(places, "sympy", "1.14.0", "1.5")
    assert findings(places) == []


@pytest.mark.parametrize("text", ["", ">=", "1.0", ">=1;x", ">=1\n", ">=1,", "@ file:///x", ">= 1"])
def test_a_need_that_is_no_specifier_is_refused(places: Places, text: str) -> None:
    document = places.policy.read_text().replace('">=1.13.3"', repr(text).replace("'", '"'))
    places.policy.write_text(document)
    [line] = findings(places)
    assert line.startswith("guard: ")
