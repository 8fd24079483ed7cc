"""The visible way out changes what it names, keeps the reason, and breaks nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from builders import A_PROJECT, A_RESOLVED_BASE, a_cell, a_lock
from guarded import findings, install, sealed_cpu, sealed_rocm

from warpfront.images.labels import image_labels
from warpfront.system.tree_files import Provenance
from warpfront_checks.guard.places import Places
from warpfront_checks.guard.policy import GuardError, read_policy
from warpfront_checks.guard.sealing import read_reasons, relax


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return sealed_cpu(tmp_path)


def constrained(places: Places) -> set[str]:
    lines = places.constraints.read_text().splitlines()
    return {line.partition("=")[0] for line in lines if not line.startswith("#")}


def test_a_protected_package_is_constrained_no_more(places: Places) -> None:
    said = relax({"torchvision": "we bring our own"}, places)
    assert "torchvision" not in constrained(places)
    assert "torch" in constrained(places)
    assert said == [
        "torchvision is no longer protected: pip and uv may bring, replace or remove it.",
        "Still at their versions: torch, torchaudio.",
    ]
    assert read_policy(places.policy).relaxed == {"torchvision": "we bring our own"}
    assert findings(places) == []


def test_torch_takes_along_what_goes_with_it(places: Places) -> None:
    """Another torch loads other libraries: to hold this one's would refuse it."""
    said = relax({"torch": "we bring our own"}, places)
    assert constrained(places) == set()
    assert said[:2] == [
        "torch is no longer protected: pip and uv may bring, replace or remove it,",
        "and what goes with it: torchaudio, torchvision.",
    ]
    assert read_policy(places.policy).relaxed == {"torch": "we bring our own"}
    assert findings(places) == []


def test_the_labels_that_relax_names_are_those_of_our_images(places: Places) -> None:
    said = relax({"torch": "we bring our own"}, places)
    labels = [word.partition("=")[0] for word in said[-1].split()[1:]]
    ours = image_labels(
        a_cell(),
        project=A_PROJECT,
        lock=a_lock(),
        base=A_RESOLVED_BASE,
        content_hash="",
        provenance=Provenance(revision="", created=""),
        uv="",
    )
    assert set(labels) <= set(ours)


def test_after_torch_there_is_nothing_left_to_relax_and_no_advice_for_it(places: Places) -> None:
    relax({"torch": "we bring our own"}, places)
    assert relax({"vllm": "why"}, places) == [
        "recorded: vllm. torch is relaxed, so nothing holds it here."
    ]


def test_a_sentinel_lets_its_name_come(places: Places) -> None:
    relax({"nvidia-cublas-cu12": "for its headers"}, places)
    install(places.site_packages, "nvidia-cublas-cu12", "12.8.4", {})
    assert "nvidia-cublas-cu12" not in constrained(places)
    assert findings(places) == []


def test_a_shim_can_be_given_up(tmp_path: Path) -> None:
    places = sealed_rocm(tmp_path)
    relax({"triton": "we build our own"}, places)
    assert "triton" not in constrained(places)
    assert "pytorch-triton-rocm" in constrained(places)


def test_any_other_package_is_recorded_and_the_way_to_install_it_told(places: Places) -> None:
    before = places.constraints.read_text()
    said = relax({"vllm": "its pin on torch is too narrow"}, places)
    assert places.constraints.read_text() == before
    assert read_policy(places.policy).relaxed == {"vllm": "its pin on torch is too narrow"}
    assert f"  uv pip install --override {places.overrides} vllm" in said
    assert "  pip install --no-deps vllm" in said


def test_a_name_may_be_written_in_any_way(places: Places) -> None:
    relax({" NVIDIA_cublas.cu12 ": "why\n  not"}, places)
    assert read_policy(places.policy).relaxed == {"nvidia-cublas-cu12": "why not"}


@pytest.mark.parametrize("reason", ["", "  ", "\n"])
def test_without_a_reason_nothing_is_relaxed(places: Places, reason: str) -> None:
    before = places.policy.read_bytes()
    with pytest.raises(GuardError, match="torch: a reason is needed"):
        relax({"torch": reason}, places)
    assert places.policy.read_bytes() == before


@pytest.mark.parametrize("name", ["", "not a name", "torch==2.9", "../torch", "-r", "töörch"])
def test_what_is_no_name_is_refused_before_it_can_spoil_the_policy(
    places: Places, name: str
) -> None:
    before = places.policy.read_bytes()
    with pytest.raises(GuardError, match="no normalized distribution name"):
        relax({name: "why"}, places)
    assert places.policy.read_bytes() == before


def test_of_several_names_all_are_relaxed_or_none(places: Places) -> None:
    with pytest.raises(GuardError):
        relax({"vllm": "too narrow", "torch": ""}, places)
    assert read_policy(places.policy).relaxed == {}


def test_without_the_right_to_write_nothing_is_relaxed(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != places.etc)
    before = places.policy.read_bytes(), places.constraints.read_bytes()
    with pytest.raises(GuardError, match=r"no right to write in .*: run this as root"):
        relax({"torch": "why"}, places)
    assert (places.policy.read_bytes(), places.constraints.read_bytes()) == before


def test_without_a_guard_there_is_nothing_to_relax(places: Places) -> None:
    places.policy.unlink()
    with pytest.raises(GuardError, match=r"policy\.json: No such file"):
        relax({"torch": "why"}, places)


def test_reasons_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "relaxed.json"
    path.write_text(json.dumps({"vllm": "too narrow"}))
    assert read_reasons(path) == {"vllm": "too narrow"}


@pytest.mark.parametrize("text", [None, "", "[]", '{"vllm": 1}'])
def test_a_file_without_reasons_is_refused_by_name(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "relaxed.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(GuardError, match=r"relaxed\.json: "):
        read_reasons(path)
