"""What pip and uv are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from guarded import cpu_policy, places_below, rocm_policy
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from warpfront_checks.guard.channels import (
    channel_files,
    constraint_lines,
    requirement,
    uv_settings,
)


def test_a_labelled_version_is_pinned_by_equality() -> None:
    assert requirement("torch", "2.13.0+cpu") == "torch==2.13.0+cpu"


def test_a_version_without_a_label_is_pinned_by_identity_since_equality_takes_any_label() -> None:
    assert requirement("torch", "2.14.1") == "torch===2.14.1"
    assert Requirement("torch==2.14.1").specifier.contains("2.14.1+cpu")
    assert not Requirement("torch===2.14.1").specifier.contains("2.14.1+cpu")


def test_a_fork_of_torch_is_pinned_at_its_commit() -> None:
    pin = Requirement(requirement("torch", "2.9.0a0+git1234abc"))
    assert pin.specifier.contains("2.9.0a0+git1234abc", prereleases=True)
    assert not pin.specifier.contains("2.9.0")


def test_protected_companions_shims_and_sentinels_are_all_constrained() -> None:
    assert constraint_lines(rocm_policy()) == [
        "pytorch-triton-rocm===3.4.0",
        "torch==2.8.0+rocm6.4",
        "torchaudio==2.8.0+rocm6.4",
        "torchvision==0.23.0+rocm6.4",
        "triton==3.4.0+pytorch.triton.rocm",
        "nvidia-cublas-cu12==0+rocm.image.has.no.cuda",
        "pytorch-triton==0+rocm.image.has.another.triton",
    ]


@pytest.mark.parametrize("name", ["triton", "torchvision", "nvidia-cublas-cu12"])
def test_a_relaxed_name_is_left_out(name: str) -> None:
    policy = rocm_policy().relax(name, "on purpose")
    left = {canonicalize_name(Requirement(line).name) for line in constraint_lines(policy)}
    assert name not in left
    assert len(left) == len(constraint_lines(rocm_policy())) - 1


def test_every_line_is_a_requirement_without_a_hash(tmp_path: Path) -> None:
    places = places_below(tmp_path)
    text = channel_files(rocm_policy(), places)[places.constraints]
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert [str(Requirement(line)) for line in lines] == lines
    assert "--hash" not in text


def test_overrides_hold_pins_alone(tmp_path: Path) -> None:
    places = places_below(tmp_path)
    text = channel_files(cpu_policy(), places)[places.overrides]
    assert [line for line in text.splitlines() if line[0] != "#"] == [
        "torch==2.13.0+cpu",
        "torchaudio==2.11.0+cpu",
        "torchvision==0.28.0+cpu",
    ]


def test_uv_builds_see_the_same_torch() -> None:
    settings = uv_settings(cpu_policy())
    assert "torch==2.13.0+cpu" in settings["build-constraint-dependencies"]
    assert "nvidia-cublas-cu12==0+cpu.image.has.no.cuda" in settings["constraint-dependencies"]
