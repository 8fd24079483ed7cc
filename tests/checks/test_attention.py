"""The attention session: what computes right passes, and each way of being wrong is seen."""

from __future__ import annotations

import itertools
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from claimed import CPU  # noqa: E402

from warpfront_checks.attention import backends, provider  # noqa: E402
from warpfront_checks.attention.backends import fallback_text  # noqa: E402
from warpfront_checks.attention.provider import TIERS, Tier, cases_of  # noqa: E402
from warpfront_checks.cases.run import reference_of  # noqa: E402
from warpfront_checks.check_options import CheckOptions  # noqa: E402
from warpfront_checks.children import CRASHED, DONE, HUNG, Begun, Returned  # noqa: E402
from warpfront_checks.claims import DEVICES  # noqa: E402
from warpfront_checks.explaining import explained  # noqa: E402
from warpfront_checks.precision import computes_float64  # noqa: E402
from warpfront_checks.results import CheckFinding, Recorder  # noqa: E402

QUICK = CheckOptions(quick=True)
FLASH = TIERS["sdpa flash"]
# A way whose softmax has lost its scale.
HALF = """
def {function}(q, k, v, causal, mask):
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return torch.softmax(q @ k.mT, -1) @ v
"""


def fake(name: str) -> Tier:
    return Tier(
        name=f"fake {name}",
        way="fake",
        options={"name": name},
        kernels=FLASH.kernels,
        operators=FLASH.operators,
        devices=("cpu",),
    )


def cases(device: str, effort: CheckOptions = QUICK) -> list[dict[str, Any]]:
    return list(cases_of(FLASH, device, effort))


def test_every_device_has_lengths_dtypes_and_a_way_to_compute() -> None:
    for table in (provider.LENGTHS, backends.TIMED_LENGTHS, provider.DTYPES_OF):
        assert set(table) == set(DEVICES)
    for device in DEVICES:
        assert any(not tier.absence(device) for tier in TIERS.values())
        assert cases(device)


@pytest.mark.parametrize(("cores", "lanes"), [(8, [2, 1]), (1, [1, 1]), (0, [1, 1])])
def test_what_takes_long_to_begin_has_several_children_where_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, lanes: list[int]
) -> None:
    told: list[int] = []

    def begin(_: str, __: Any, *, lanes: int, **___: Any) -> Begun:
        told.append(lanes)
        return Begun(())

    monkeypatch.setattr(backends, "begin_beside", begin)
    monkeypatch.setattr(backends, "lanes_for", lambda _: cores)
    names = ("sdpa cudnn", "sdpa flash")
    monkeypatch.setattr(backends, "TIERS", {name: TIERS[name] for name in names})
    recorder = Recorder(session="attention", target="cuda", folder=tmp_path)
    backends.record_attention(replace(CPU, device="cuda"), recorder, CheckOptions())
    assert told == [*lanes, 1], "the backends of the names, and their times"
    told.clear()
    backends.record_attention(replace(CPU, device="cuda"), recorder, QUICK)
    assert set(told) == {1}


def test_float64_is_asked_of_no_gaudi() -> None:
    assert computes_float64("cpu")
    assert not computes_float64("hpu")


def test_a_quick_run_takes_every_two_values_together_and_few_more() -> None:
    names = ("dtype", "width", "mask", "grouped", "backward")
    for device, most in (("cpu", 18), ("cuda", 20)):
        whole, quick = cases(device, CheckOptions()), cases(device)
        assert 15 <= len(quick) <= most < len(whole) / 5
        for one, other in itertools.combinations(names, 2):
            assert {(x[one], x[other]) for x in quick} == {(x[one], x[other]) for x in whole}


def found_of(tier: Tier) -> CheckFinding:
    """Every quick case, in this process."""
    returned = (
        Returned(item=item, place=0, outcome=DONE, seconds=0.0, document=backends.do_item(item))
        for item in cases_of(tier, "cpu", QUICK)
    )
    return backends.find_tier(tier, returned, {})


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", here, prepend=":")
    part = "from fake_tiers import {name} as {function}\n"
    monkeypatch.setitem(provider.PARTS, "fake", part)


@pytest.mark.parametrize("name", ["sdpa flash", "sdpa math"])
def test_what_torch_has_for_the_cpu_computes_every_case(name: str) -> None:
    finding = found_of(TIERS[name])
    assert finding.outcome == "passed", finding.reason
    assert finding.details["outcomes"] == {"computed": len(cases("cpu"))}
    assert 0.001 < float(str(finding.details["largest_share"])) < 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wrong", ", forward: wrong: result: RMS error"),
        ("wrong_backward", ", backward: wrong: gradient of a: RMS error"),
        ("another", "width 64, none, equal heads, forward: another kernel: not its own kernel"),
    ],
)
def test_a_way_that_is_wrong_or_answers_by_another_kernel_fails(name: str, said: str) -> None:
    finding = found_of(fake(name))
    assert finding.outcome == "failed"
    assert said in finding.reason
    assert name != "wrong" or "width 512" in finding.reason


def test_a_refusal_is_an_answer_and_has_its_reason() -> None:
    finding = found_of(fake("refuses"))
    assert finding.outcome == "passed"
    asked = cases("cpu")
    refused = sum(one["mask"] == "mask" or one["width"] == 512 for one in asked)
    assert finding.details["refused"] == {"head_dim must be 256 at most, without a mask": refused}
    computed = len(asked) - refused
    assert finding.reason == f"{computed} of {len(asked)} cases computed, {refused} refused"


@pytest.mark.process
@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(
    ("name", "how", "seconds"), [("crashes", CRASHED, 60.0), ("hangs", HUNG, 1.0)]
)
def test_a_case_that_ends_its_process_costs_itself_only(
    name: str, how: str, seconds: float
) -> None:
    """The limit is one for the second case alone: each other is the first of its child."""
    wanted = {"dtype": "float32", "width": 128, "backward": False, "grouped": 4}
    items = [
        item
        for item in cases_of(fake(name), "cpu", CheckOptions())
        if wanted.items() <= item.items()
    ]
    found: backends.Runs = {}
    returned = backends._children("cpu", items, seconds)
    finding = backends.find_tier(fake(name), returned, found)
    assert [one["outcome"] for one in found[f"fake {name}"]] == ["computed", how, "computed"]
    assert finding.outcome == "failed"
    assert ("SIGSEGV" in finding.reason) == (how == CRASHED)


@pytest.mark.process
@pytest.mark.usefixtures("forks")
def test_the_session_says_which_ways_are_not_here_and_writes_an_example_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = next(cases_of(FLASH, "cpu", QUICK))
    monkeypatch.setattr(backends, "cases_of", lambda tier, *_: iter([_for(tier, first)]))
    monkeypatch.setitem(backends.TIMED_LENGTHS, "cpu", 64)
    recorder = Recorder(session="attention", target="cpu", folder=tmp_path)
    backends.record_attention(CPU, recorder, QUICK)
    assert recorder.finish()
    assert recorder.planned == ("tier sdpa flash", "tier sdpa math", "order")
    example = runpy.run_path(str(tmp_path / backends.EXAMPLE))
    q, k, v = torch.randn(3, 2, 4, 9, 8).unbind(0)
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(example["attention"](q, k, v, causal=True), plain, atol=1e-5)
    assert len(example["WAYS"]) == 2


def _for(tier: Tier, item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "tier": tier}


def test_the_example_is_in_the_measured_order_and_ends_with_what_takes_everything() -> None:
    measured = [("sdpa math", 9e-3), ("aiter", 2e-3), ("sdpa flash", 1e-3), ("flash-attn", 3e-3)]
    text = fallback_text("gfx942", measured)
    assert "WAYS = (by_sdpa_flash, by_aiter, by_sdpa_math,)" in text
    assert "measured order on gfx942" in text
    assert "* sdpa flash: 1 ms\n* aiter: 2 ms" in text
    compile(text, "example", "exec")


def test_what_is_expected_is_what_autograd_gives_and_heads_that_are_shared_are_added_up() -> None:
    wanted = {"mask": "causal", "grouped": 2, "backward": True, "dtype": "float32", "width": 64}
    items = cases_of(FLASH, "cpu", CheckOptions())
    case = provider.case_of(next(item for item in items if wanted.items() <= item.items()))
    reference = reference_of(case)
    leaves = [reference.drawn[name].double().requires_grad_() for name in "abc"]
    output = torch.nn.functional.scaled_dot_product_attention(
        *leaves, is_causal=True, enable_gqa=True
    )
    right = (output, *torch.autograd.grad(output, leaves, reference.drawn["fed"]))
    found = (*reference.expected, *reference.rights)
    for one, other in zip(found, right, strict=True):
        assert torch.allclose(one, other)


@pytest.mark.process
def test_a_wrong_case_is_made_small_and_is_a_script_of_torch_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "_DESCRIBED", set())
    monkeypatch.setitem(provider.PARTS, "dot_product", HALF)
    recorder = Recorder(session="attention", target="cpu", folder=tmp_path)
    math = TIERS["sdpa math"]
    item = next(cases_of(math, "cpu", QUICK))
    document = backends.do_item(item)
    wrong = Returned(item=item, place=0, outcome=DONE, seconds=0.0, document=document)
    recorder.run({"tier": lambda: backends.find_tier(math, [wrong], {})})
    recorder.finish()
    script = explained(recorder.path, "tier")
    frame = [line for line in script.splitlines() if line.startswith("# ")]
    assert frame[0] == "# sdpa math: result is wrong on cpu"
    assert "#   a: shape (2, 2, 2, 2), float32, contiguous" in frame
    assert 10 <= len(script.splitlines()) <= 40
    assert "warpfront" not in script
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True
    )
    assert "largest difference" in done.stdout
