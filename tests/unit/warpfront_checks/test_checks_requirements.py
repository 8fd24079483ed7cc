from __future__ import annotations

import pytest

from warpfront_checks.distributions import (
    Installed,
    closure_conflicts,
    duplicates,
    foreign_toolkit,
    version_differences,
)
from warpfront_checks.guard.policy import normalized


def judge(line: str, *, extras: str = "", **versions: str) -> tuple[int, int]:
    """How many conflicts, and how many lines that cannot be read, one requirement leads to."""
    found = closure_conflicts(
        Installed(
            versions={name: (n,) for name, n in {"root": "1", "demo": "1", **versions}.items()},
            requirements={"root": (f"demo[{extras}]",), "demo": (line,)},
        ),
        ["Root"],
    )
    return len(found.conflicts), len(found.unread)


@pytest.mark.parametrize(
    ("line", "version", "conflicts"),
    [
        ("other>=1.0", "1.0", 0),
        ("other>=1.0", "1.0rc1", 1),
        ("other<2", "2.0.dev1", 1),
        ("other (>=1,<2)", "1.5", 0),
        ("other~=3.8.0", "3.9.0", 1),
        ("other==2.13.0", "2.13.0+cpu", 0),
        ("other==2.13.0+cu130", "2.13.0+cpu", 1),
        ("other!=1.*", "1.4", 1),
        ("other>9; sys_platform == 'win32'", "1", 0),
        ("other>9; os_name == 'posix' and python_version > '3'", "1", 1),
        ("other>9; extra == 'Cu_DNN'", "1", 0),
    ],
)
def test_a_requirement_is_met_or_not(line: str, version: str, conflicts: int) -> None:
    assert judge(line, other=version) == (conflicts, 0)


def test_an_extra_applies_only_where_it_is_asked_for() -> None:
    line = "other>9; extra == 'Cu_DNN'"
    assert judge(line, other="1") == (0, 0)
    assert judge(line, extras="cu-dnn", other="1") == (1, 0)


@pytest.mark.parametrize(
    "line",
    [
        "x @ https://x.test/d.whl",
        "x ==",
        "",
        "x >>1",
        'x; moon_phase == "full"',
        "x; os_name ~= 'y'",
        f"x; {'(' * 5000}os_name == 'x'{')' * 5000}",
    ],
)
def test_what_cannot_be_read_is_listed_not_guessed(line: str) -> None:
    assert judge(line) == (0, 1)


def test_names_are_compared_as_pep_503_says() -> None:
    assert normalized("Cu_DNN.x--y") == "cu-dnn-x-y"


STACK = Installed(
    versions={"torch": ("2.14.1",), "filelock": ("3.0",), "triton": ("3.8.0",)},
    requirements={"torch": ("filelock", "triton~=3.8.0; platform_system == 'Linux'")},
)


def with_version(name: str, *versions: str) -> Installed:
    return Installed(versions={**STACK.versions, name: versions}, requirements=STACK.requirements)


def test_a_fitting_closure_has_no_conflicts() -> None:
    found = closure_conflicts(STACK, ["torch"])
    assert (found.conflicts, found.unread) == ((), ())
    assert found.checked == ("filelock", "torch", "triton")


def test_a_dependency_of_the_wrong_version_is_a_conflict() -> None:
    (conflict,) = closure_conflicts(with_version("triton", "3.9.0"), ["torch"]).conflicts
    assert "triton~=3.8.0" in conflict
    assert "triton is 3.9.0" in conflict


def test_a_missing_dependency_is_a_conflict() -> None:
    alone = Installed(versions={"torch": ("2.14.1",)}, requirements=STACK.requirements)
    assert len(closure_conflicts(alone, ["torch"]).conflicts) == 2


def test_a_package_off_the_lock_is_named_with_both_versions() -> None:
    claimed = {"torch": "2.14.1", "Triton": "3.8.1", "numpy": "2.4.0"}
    assert version_differences(STACK, claimed) == [
        "Triton is 3.8.0, the lock has 3.8.1",
        "numpy is not installed, the lock has 2.4.0",
    ]


def test_another_label_is_another_version() -> None:
    assert version_differences(with_version("torch", "2.14.1+cu132"), {"torch": "2.14.1"})


def test_a_distribution_that_is_there_twice_is_found() -> None:
    assert duplicates(STACK, ["torch"]) == []
    (found,) = duplicates(with_version("torch", "2.14.1", "2.15.0"), ["Torch"])
    assert "2.14.1, 2.15.0" in found


def test_two_owners_of_triton_are_found() -> None:
    (found,) = duplicates(with_version("triton-rocm", "3.8.0"), [])
    assert found == "triton and triton-rocm both own triton/"


@pytest.mark.parametrize(
    ("name", "toolkit", "version", "wrong"),
    [
        ("nvidia-cublas", "cuda", "13.0", False),
        ("nvidia-cudnn-cu13", "cuda", "13.0", False),
        ("nvidia-cudnn-cu12", "cuda", "13.0", True),
        ("nvidia-cublas-cu12", "rocm", "6.4", True),
        ("cuda-bindings", "cpu", "", True),
        ("rocm-sdk-core", "cuda", "13.0", True),
        ("pytorch-triton-rocm", "cpu", "", True),
        ("rocm-sdk-core", "rocm", "7.14", False),
        ("nvidia-ml-py", "rocm", "6.4", False),
    ],
)
def test_toolkits_do_not_mix(name: str, toolkit: str, version: str, *, wrong: bool) -> None:
    assert bool(foreign_toolkit(with_version(name, "1"), toolkit, version)) is wrong
