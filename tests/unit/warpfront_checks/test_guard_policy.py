"""The policy file reads back as it was written, and takes nothing that could slip a line into the
files that pip and uv read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from guarded import cpu_policy, rocm_policy

from warpfront_checks.guard.channels import constraint_lines
from warpfront_checks.guard.policy import GuardError, Policy, normalized, policy_from, read_policy


@pytest.mark.parametrize(
    "policy",
    [
        cpu_policy(),
        rocm_policy().relax("vllm", "its pin on torch is too narrow"),
        Policy(cell="", title="adopted", adopt=("torch", "rocm-sdk-*")),
    ],
)
def test_a_policy_reads_back_as_it_was_written(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy.document()))
    assert read_policy(path) == policy


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema", 2),
        ("surprise", 1),
        ("cell", "x\ntorch==9"),
        ("title", "x\ntorch==9"),
        ("title", "x\rtorch==9"),
        ("title", "x\x85torch==9"),
        ("title", None),
        ("index", "https://a.test/\n--pre"),
        ("index", "https://a.test/';reboot;'"),
        ("index", "https://a.test/$(reboot)"),
        ("index", "https://a.test/\x1b]0;title\x07"),
        ("index", "https://a.test/\x7f"),
        ("protected", []),
        ("protected", {"torch": None}),
        ("protected", {"torch": "2.13.0\nnumpy==1"}),
        ("protected", {"torch": "2.13.0 ; python_version > '3'"}),
        ("protected", {"torch": "2.13.0 --hash=sha256:00"}),
        ("protected", {"Torch": "2.13.0"}),
        ("protected", {"torch @ https://evil.test/torch.whl": "1"}),
        ("protected", {"../torch": "1"}),
        ("companions", {"torchaudio": ""}),
        ("sentinels", {"nvidia-cublas": "why not\n-r /etc/passwd"}),
        ("adopt", "torch"),
        ("adopt", [1]),
        ("relaxed", {"vllm": "two\nlines"}),
        ("relaxed", {"not a name": "why"}),
        ("relaxed", {"vllm": 1}),
        ("shims", {}),
        ("shims", 1),
        ("shims", [1]),
        ("shims", [{"name": "triton", "version": "1"}]),
        ("shims", [{"name": 1, "version": "1", "requires": "a==1"}]),
        ("shims", [{"name": "../x", "version": "1", "requires": "a==1"}]),
        ("shims", [{"name": "triton", "version": "../../x", "requires": "a==1"}]),
        ("shims", [{"name": "triton", "version": "1", "requires": "a==1\rRequires-Dist: b"}]),
        ("shims", [{"name": "triton", "version": "1", "requires": ""}]),
    ],
)
def test_a_hostile_value_is_refused(field: str, value: Any) -> None:
    document = {**cpu_policy().document(), field: value}
    with pytest.raises(GuardError):
        policy_from(document)


@pytest.mark.parametrize("text", ["", "[]", "nonsense", "{}"])
def test_a_file_that_is_no_policy_is_refused_by_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(text)
    with pytest.raises(GuardError, match=r"policy\.json: "):
        read_policy(tmp_path / "policy.json")


def test_a_policy_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(GuardError, match=r"policy\.json: No such file"):
        read_policy(tmp_path / "policy.json")


def test_pins_hold_companions_and_shims_and_leave_out_what_is_relaxed() -> None:
    pinned = rocm_policy().relax("torchvision", "why").pinned()
    assert list(pinned) == ["pytorch-triton-rocm", "torch", "torchaudio", "triton"]
    assert pinned["triton"] == "3.4.0+pytorch.triton.rocm"


def test_a_relaxed_sentinel_is_not_forbidden() -> None:
    policy = cpu_policy().relax("nvidia-cublas-cu12", "for its headers")
    assert policy.forbidden() == {}
    assert "nvidia" not in "".join(constraint_lines(policy))


def test_a_policy_names_its_torch_for_a_sentence() -> None:
    assert cpu_policy().holds() == "torch 2.13.0+cpu"
    assert Policy(cell="", title="", adopt=("torch",)).holds() == "the torch of its base"


@pytest.mark.parametrize(
    "name", ["PyTorch_Triton.ROCm", "pytorch-triton-rocm", "pytorch__triton-.rocm"]
)
def test_names_are_compared_as_pep_503_says(name: str) -> None:
    assert normalized(name) == "pytorch-triton-rocm"
