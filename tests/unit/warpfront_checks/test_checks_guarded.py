"""The check that looks at a guard from outside: an image's guard cannot vouch for itself."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from guarded import GUARD, cpu_policy, sealed_cpu

from warpfront_checks import guarded
from warpfront_checks.guard.channels import environment_channels
from warpfront_checks.guard.places import Places
from warpfront_checks.guard.policy import Policy, Shim
from warpfront_checks.guarded import check_guard, policy_differences
from warpfront_checks.results import FAILED, PASSED, CheckFinding


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    # Where these tests run beside a torch of their own, that one is not the image's.
    monkeypatch.setattr(sys, "path", [one for one in sys.path if not Path(one, "torch").exists()])
    places = sealed_cpu(tmp_path)
    shutil.copytree(
        GUARD,
        places.library / "warpfront_guard",
        ignore=shutil.ignore_patterns("__pycache__"),
        dirs_exist_ok=True,
    )
    monkeypatch.setattr(guarded, "read_start", lambda _: [])
    for name, value in environment_channels(places).items():
        monkeypatch.setenv(name, value)
    return places


def check(places: Places, policy: Policy | None = None) -> CheckFinding:
    return check_guard((policy or cpu_policy()).document(), places)


def test_a_guard_as_claimed_passes(places: Places) -> None:
    found = check(places)
    assert (found.outcome, found.reason) == (
        PASSED,
        "torch 2.13.0+cpu: as it was sealed; 3 names protected",
    )


def test_a_channel_that_only_the_start_of_python_put_back_is_a_finding(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = SimpleNamespace(inherited={"PIP_CONSTRAINT": ""})
    monkeypatch.setitem(sys.modules, "warpfront_guard.startup", started)
    found = check(places)
    assert (found.outcome, found.reason.partition(":")[0]) == (FAILED, "channel")
    assert "PIP_CONSTRAINT: not set to" in found.reason


def test_an_image_without_a_guard_fails(places: Places) -> None:
    shutil.rmtree(places.folder)
    found = check(places)
    assert found.outcome == FAILED
    assert found.reason.startswith("no guard to speak of")


def test_a_guard_whose_code_was_changed_fails_though_it_finds_nothing_itself(
    places: Places,
) -> None:
    (places.library / "warpfront_guard" / "verification.py").write_text("def verify(): return []\n")
    (places.library / "warpfront_guard" / "more.py").write_text("")
    found = check(places)
    assert found.outcome == FAILED
    assert "verification.py is not the one" in found.reason
    assert "more.py is not the one" in found.reason


def test_needs_other_than_those_of_the_sealed_distributions_fail(places: Places) -> None:
    """The policy that is claimed cannot know them, and the constraints follow the image's."""
    text = places.policy.read_text()
    places.policy.write_text(text.replace('"needs": {', '"needs": {"sympy": ">=1"'))
    assert "the policy's needs are not what the sealed" in check(places).reason


def test_a_changed_stack_fails(places: Places) -> None:
    (places.site_packages / "torch" / "version.py").write_text("")
    assert "torch/version.py: 0 bytes" in check(places).reason


@pytest.mark.parametrize(
    "claimed",
    [
        {"protected": {"torch": "2.14.0+cpu", "torchvision": "0.28.0+cpu"}},
        {"sentinels": {}},
        {"companions": {}},
        {"relaxed": {"vllm": "we know"}},
        {"cell": "another"},
    ],
)
def test_a_policy_other_than_the_claimed_one_fails(places: Places, claimed: dict[str, Any]) -> None:
    found = check(places, cpu_policy(**claimed))
    assert found.outcome == FAILED
    assert f"the policy's {next(iter(claimed))}" in found.reason


ADOPTED = Policy(
    cell="gaudi",
    title="adopted",
    protected={"torch": "2.9.0a0+git1", "habana-torch-plugin": "1.24"},
    sentinels={"cuda-toolkit": "no.cuda"},
    adopt=("torch", "habana-*"),
    shims=(Shim(name="triton", version="3+x", requires="pytorch-triton==3"),),
)
CLAIMED = replace(ADOPTED, protected={}, shims=())


def test_what_was_adopted_is_known_by_its_patterns() -> None:
    assert policy_differences(ADOPTED, CLAIMED) == []


@pytest.mark.parametrize(
    "found",
    [
        replace(ADOPTED, protected={"habana-torch-plugin": "1.24"}),
        replace(ADOPTED, protected={"torch": "2.9", "six": "1"}),
        replace(ADOPTED, sentinels={}),
        replace(ADOPTED, adopt=("torch",)),
        replace(ADOPTED, title="x"),
    ],
)
def test_an_adopted_policy_that_is_not_the_claimed_one_is_told(found: Policy) -> None:
    assert policy_differences(found, CLAIMED) != []
