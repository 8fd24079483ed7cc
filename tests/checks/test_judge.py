"""The judge's rules for bounds of each element, and the form of a sample's results. Needs torch, on
the CPU.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from warpfront_checks.cases.bounds import OVER, Bound, Tally, Verdict, judge, judge_by_all  # noqa: E402
from warpfront_checks.cases.case import Argument, Case  # noqa: E402
from warpfront_checks.cases.measured import Measured  # noqa: E402
from warpfront_checks.cases.run import Bounds, CaseResults, Reference, compared  # noqa: E402

BOUND = 1e-4
SHAPE = (2, 3)
ZEROS = torch.zeros(SHAPE, dtype=torch.float64)
ALL = "(6 of 6 are wrong), off by 1 of 0 allowed"


def judged(
    actual: list[Any],
    expected: list[Any],
    *,
    device: str = "cpu",
    dtype: str = "float32",
    gradients: tuple[list[Any], list[Any]] = ([], []),
    measured: dict[str, list[Any]] | None = None,
) -> list[str]:
    """The faults of a case with such results, by the record's bound or by one that is measured."""
    leaf = Argument(name="a", shape=SHAPE, drawn=SHAPE, values="small", leaf=True)
    leaves = tuple(replace(leaf, name="ab"[n]) for n in range(len(gradients[0])))
    text: dict[str, Any] = {"operation": "x", "code": "a", "definition": "a"}
    case = Case(**text, arguments=leaves, dtype=dtype, device=device)
    reference = Reference(expected=expected, rights=gradients[1], drawn={})
    results = CaseResults(
        case=case, reference=reference, actual=actual, gradients=gradients[0], after={}
    )
    bounds = Bounds(case, reference)
    if measured is not None:
        bounds = Measured(case, reference)
        vars(bounds).update({"peers": [], "plain": expected, "_moved": [], **measured})
    return [each.fault_by() for each in compared(results, bounds) if each.fault]


def test_each_result_is_reported_that_is_not_what_was_expected() -> None:
    x = torch.zeros(SHAPE)
    one = x + 1
    assert judged([x], [ZEROS], gradients=([x, None], [ZEROS, ZEROS])) == []
    assert judged([x], [ZEROS[0]], gradients=([one, None], [None, ZEROS + 1])) == [
        "result: shape (2, 3), expected (3,)",
        f"gradient of a: element [0, 0] is 1.0, right is 0.0 {ALL}",
        f"gradient of b: element [0, 0] is 0.0, right is 1.0 {ALL}",
    ]


def test_of_another_number_of_results_nothing_else_is_reported() -> None:
    x = torch.zeros(SHAPE)
    assert judged([x], [x, x], device="meta") == ["results: 1 results, expected 2"]
    assert judged([], []) == []


def test_results_that_are_elsewhere_or_of_another_dtype_are_reported() -> None:
    x = torch.zeros(SHAPE)
    assert judged([x], [ZEROS], device="cuda") == ["result: on cpu, expected on cuda"]
    assert judged([x.half()], [ZEROS]) == ["result: torch.float16, expected torch.float32"]
    peers = {"peers": [x.half()]}
    assert judged([x.half()], [ZEROS], measured=peers) == []
    assert judged([x.bfloat16()], [ZEROS], measured=peers) == [
        "result: torch.bfloat16, expected torch.float32"
    ]


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_a_result_that_the_cpu_has_no_kernel_for_is_of_its_kind_and_no_wider() -> None:
    half, waves = torch.zeros(SHAPE).half(), torch.zeros(SHAPE, dtype=torch.complex128)
    narrow: dict[str, Any] = {"dtype": "float16", "measured": {}}
    assert judged([waves.to(torch.complex32)], [waves], **narrow) == []
    assert judged([half.float()], [ZEROS], **narrow) == [
        "result: torch.float32, expected torch.float16"
    ]
    assert judged([half], [waves], **narrow) == ["result: torch.float16, expected torch.complex32"]


def test_the_cpus_own_result_is_the_cpus_where_the_call_names_a_device() -> None:
    text: dict[str, Any] = {
        "code": "torch.ones(2, device='meta')",
        "definition": "torch.ones(2, device='cpu')",
    }
    case = Case(operation="ones", **text, arguments=(), dtype="float32", device="meta")
    peers = Measured(case, Reference(expected=[], rights=[], drawn={})).peers
    assert [x.tolist() for x in peers if x is not None] == [[1.0, 1.0]]


def test_the_cpu_computes_its_own_result_only_for_an_error_that_needs_one() -> None:
    text: dict[str, Any] = {"operation": "x", "code": "a", "definition": "a"}
    case = Case(**text, arguments=(), dtype="float32", device="meta")
    for right, found, computed in ((3.0, 3.0, []), (3.0, 3.0000002, []), (3.0, 4.0, ["peers"])):
        exact = torch.tensor([right], dtype=torch.float64)
        bounds = Measured(case, Reference(expected=[], rights=[], drawn={"a": exact}))
        vars(bounds).update({"plain": [None], "_moved": [], "_rounded": []})
        bounds.judge(0, torch.tensor([found]), exact)
        assert [name for name in vars(bounds) if name == "peers"] == computed


@pytest.mark.parametrize(
    ("error", "share"), [(0.0, 0.0), (BOUND / 4, 0.25), (BOUND, 1.0), (-BOUND / 2, 0.5)]
)
def test_the_largest_share_of_a_bound_decides_and_all_of_it_may_be_used(
    error: float, share: float
) -> None:
    found = ZEROS.clone()
    found[0, 1], found[1, 1] = error, error / 2
    verdict = judge(found, ZEROS, Bound(slack=torch.full(SHAPE, BOUND, dtype=torch.float64)))
    assert verdict.share == pytest.approx(share)
    assert verdict.fault == ""


def test_an_element_over_its_bound_is_reported_with_its_own_bound() -> None:
    exact = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
    bound = torch.tensor([[1.0, 1.0, 1.0], [0.25, 1.0, 1.0]], dtype=torch.float64)
    verdict = judge(exact + 0.5, exact, Bound(slack=bound))
    assert verdict.share == 2.0
    assert verdict.fault == (
        "element [1, 0] is 4.5, right is 4.0 (1 of 6 are wrong), off by 0.5 of 0.25 allowed"
    )


def test_a_bound_of_nothing_allows_nothing_and_is_no_division_by_zero() -> None:
    assert judge(ZEROS, ZEROS, Bound()).share == 0.0
    verdict = judge(ZEROS + 1.0, ZEROS, Bound())
    assert verdict.share == 1e300
    assert "6 of 6 are wrong" in verdict.fault


def test_a_root_mean_square_may_be_too_large_where_no_element_is() -> None:
    bound = Bound(slack=1.0, rms=0.25)
    right = judge(ZEROS + 0.25, ZEROS, bound)
    assert (right.fault, right.share, right.rms) == ("", 0.25, 1.0)
    wrong = judge(ZEROS + 0.5, ZEROS, bound)
    assert wrong.rms == 2.0
    assert wrong.fault.startswith("RMS error 0.5, 2 times what is allowed; element [0, 0] is 0.5")


def test_squares_beyond_the_largest_number_are_no_fault_where_no_root_is_bounded() -> None:
    far = ZEROS + 1e300
    assert judge(far * (1 + 2**-50), far, Bound(slack=1e290)).fault == ""
    assert judge(ZEROS + 1.0, ZEROS, Bound(slack=math.inf)).fault == ""


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_bound_allows_what_is_wrongly_not_finite(value: float) -> None:
    found = ZEROS.clone()
    found[1, 2] = value
    verdict = judge(found, ZEROS, Bound(slack=1e30, rms=1e30))
    assert verdict.fault.startswith("element [1, 2] is")
    assert judge(found, found.clone(), Bound()).fault == ""


def test_a_sample_may_overflow_where_a_step_of_it_does() -> None:
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    found = torch.tensor([1.0, math.inf]).half()
    reached = torch.tensor([1.0, math.inf], dtype=torch.float64)
    how: dict[str, Any] = {"dtype": "float16"}
    assert judged([found], [exact], measured={"saturated": [reached]}, **how) == []
    for none in (exact, None):
        assert len(judged([found], [exact], measured={"saturated": [none]}, **how)) == 1


def test_integers_are_equal_or_wrong_and_the_cpus_own_are_right() -> None:
    exact = torch.tensor([3.0, 300.0], dtype=torch.float64)
    right, wrong = torch.tensor([3, 44]).to(torch.uint8), torch.tensor([3, 45]).to(torch.uint8)
    how: dict[str, Any] = {"dtype": "uint8"}
    assert judged([right], [exact], measured={}, **how) == []
    assert judged([wrong], [exact], measured={}, **how) == [
        "result: element [1] is 45, right is 44 (1 of 2 are wrong)"
    ]


def test_a_verdict_names_its_layer_its_tensor_and_its_fault() -> None:
    fault = Verdict.failed("output", "shape (1,)", layer="mlp", kind="Linear")
    assert (fault.share, fault.used) == (OVER, OVER)
    assert fault.fault_by() == "mlp (Linear): output: shape (1,)"
    assert replace(fault, kind="").fault_by() == "mlp: output: shape (1,)"
    assert replace(fault, kind="", layer="").fault_by() == "output: shape (1,)"
    assert Verdict(name="output", layer="mlp").fault_by() == ""
    raised = Verdict.raised(ValueError("  first\nsecond"))
    assert raised.fault_by() == "raised: ValueError: first"
    assert Verdict.raised(KeyError()).fault == "KeyError: "
    assert Verdict.raised(ValueError("a" * 301)).fault == f"ValueError: {'a' * 300}"


def test_a_profile_of_tolerances_decides_where_it_has_an_answer() -> None:
    ours = Verdict(name="x", fault="off", profiles={"loose": True, "tight": False, "none": None})
    assert ours.fault_by() == "x: off"
    assert ours.fault_by("loose") == ours.fault_by("none") == ""
    assert ours.fault_by("tight") == "x: further off than tight allows"
    assert replace(ours, fault="").fault_by("tight") == "x: further off than tight allows"
    assert replace(ours, profiles={}).fault_by("loose") == "x: off"


def test_a_tally_counts_faults_known_defects_and_the_largest_share() -> None:
    tally = Tally()
    assert not tally.enter(Verdict(share=0.25), "none")
    assert not tally.enter(Verdict(share=0.5), "none")
    assert not tally.enter(Verdict(fault="off", share=9.0), "known", "torch#1")
    assert tally.enter(Verdict(fault="off", share=9.0), "new")
    assert (tally.largest, tally.faults) == (0.5, ["new"])
    assert tally.defects == {"torch#1": 1}


def test_parts_of_a_tally_are_added_up() -> None:
    profile = next(iter(Tally().profiles))
    parts = []
    for share in (0.25, 0.75):
        part = Tally(cases=2, refused=1, largest=share, faults=["a"])
        part.excluded["why"] += 1
        part.enter_profiles(Verdict(profiles={profile: True}))
        parts.append(part.as_json())
    assert "first" not in parts[0]
    whole = Tally(largest=0.5)
    for one in parts:
        whole.add_part(one)
    assert (whole.cases, whole.refused, whole.largest) == (4, 2, 0.75)
    assert whole.faults == ["a", "a"]
    assert whole.excluded == {"why": 2}
    assert max(whole.profiles[profile].values()) == 2


def test_a_result_is_judged_by_its_bound_and_by_each_profile() -> None:
    expected = torch.ones(4, dtype=torch.float64)
    near, far = (expected + off for off in (1e-9, 1.0))
    kind = torch.float32
    right, wrong = (judge_by_all(x.float(), expected, Bound(slack=0.5), kind) for x in (near, far))
    assert right.fault == ""
    assert wrong.fault.startswith("element [0] is 2.0, right is 1.0 (4 of 4 are wrong)")
    assert set(right.profiles.values()) == {True}
    assert set(wrong.profiles.values()) == {False}
