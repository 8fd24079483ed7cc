"""The judge of blocks, over operations whose budgets are chosen so that every verdict can be worked
out by hand. Needs torch, on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from warpfront.inside.checks.blocks import (  # noqa: E402
    Block,
    Inputs,
    Leaf,
    Node,
    Trace,
    execute,
)
from warpfront.inside.checks.effort import STRICT, profile_names  # noqa: E402
from warpfront.inside.checks.judge import (  # noqa: E402
    Baseline,
    Verdict,
    element_fault,
    judge,
    make_baseline,
    rms_fault,
)
from warpfront.inside.checks.operations import (  # noqa: E402
    FEW_NUMEL,
    R_SMALL,
    SMALL_NUMEL,
    Arithmetic,
    Budgeted,
    ExpectedResults,
    R,
)
from warpfront.inside.checks.opinions import Tally  # noqa: E402

BOUND = 1e-4
SHAPE = (2, 3)
UNIT = 2.0**-24


@dataclass(frozen=True, kw_only=True)
class Sum:
    """`factor` times the sum of its inputs, each element within `BOUND`."""

    kind: str
    factor: float = 1.0

    def __call__(self, *inputs: Any) -> Any:
        total = inputs[0]
        for one in inputs[1:]:
            total = total + one
        return total * self.factor

    def judge(self, inputs: Sequence[Any], cotangent: Any, how: Arithmetic) -> ExpectedResults:
        assert all(one.dtype == torch.float64 for one in (*inputs, cotangent))
        assert how.device == "cpu"
        return ExpectedResults(
            output=within(self(*inputs)),
            gradients=tuple(within(cotangent * self.factor) for _ in inputs),
        )


def within(reference: Any, bound: float = BOUND) -> Budgeted:
    return Budgeted(reference=reference, bound=torch.full_like(reference, bound))


# `a` is used twice, so two gradients are added: three times the cotangent.
BLOCK = Block(
    name="sums",
    leaves={"a": Leaf(SHAPE), "b": Leaf(SHAPE)},
    nodes=(
        Node("twice", Sum(kind="double", factor=2.0), ("a",)),
        Node("y", Sum(kind="add"), ("twice", "a", "b")),
    ),
    output=SHAPE,
)
ONES = torch.ones(SHAPE)
INPUTS = Inputs(
    leaves={"a": torch.arange(6.0).reshape(SHAPE), "b": ONES}, cotangent=torch.full(SHAPE, 2.0)
)
RIGHT = execute(BLOCK, INPUTS, "cpu")
BASELINE = make_baseline(BLOCK, INPUTS)
LABELS = {
    "twice (double)",
    "y (add)",
    "grad:twice (y add backward)",
    "grad:a (twice double, y add backward)",
    "grad:b (y add backward)",
}


def judged(trace: Trace = RIGHT, **options: Any) -> Verdict:
    return judge(BLOCK, INPUTS, trace, BASELINE, "cpu", **options)


def with_value(name: str, change: Callable[[Any], Any]) -> Trace:
    return replace(RIGHT, values={**RIGHT.values, name: change(RIGHT.values[name])})


def with_gradient(name: str, change: Callable[[Any], Any]) -> Trace:
    return replace(RIGHT, gradients={**RIGHT.gradients, name: change(RIGHT.gradients[name])})


def off(error: float, *, at: tuple[int, int] = (1, 2)) -> Callable[[Any], Any]:
    def change(tensor: Any) -> Any:
        changed = tensor.clone()
        changed[at] += error
        return changed

    return change


def without(entries: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if key != name}


def test_a_right_run_has_no_faults_and_uses_nothing_of_any_budget() -> None:
    verdict = judged()
    assert verdict.faults == ()
    assert dict(verdict.budget_used) == dict.fromkeys(LABELS, 0.0)
    assert dict(verdict.rms_ratio) == {"y": 0.0, "grad:a": 0.0, "grad:b": 0.0}
    assert verdict.tallies == dict.fromkeys(verdict.tallies, verdict.tallies[STRICT])
    assert verdict.tallies[STRICT] == Tally(accepted=5)
    assert set(verdict.tallies) == set(profile_names())


def test_the_baseline_is_the_same_run_in_float64_and_in_the_tested_dtype() -> None:
    assert {value.dtype for value in BASELINE.exact.values.values()} == {torch.float64}
    assert {value.dtype for value in BASELINE.exact.gradients.values()} == {torch.float64}
    assert {value.dtype for value in BASELINE.same_dtype.values.values()} == {torch.float32}
    assert torch.equal(BASELINE.exact.values["y"], RIGHT.values["y"].double())
    assert set(BASELINE.exact.devices.values()) == {"cpu"}
    assert set(BASELINE.same_dtype.devices.values()) == {"cpu"}


def test_how_much_of_a_budget_was_used_is_told_of_the_tensor_that_used_it() -> None:
    used = judged(with_gradient("b", off(BOUND / 2))).budget_used
    assert used["grad:b (y add backward)"] == pytest.approx(0.5, rel=1e-2)
    assert {name for name, share in used.items() if share} == {"grad:b (y add backward)"}


def test_a_wrong_element_is_told_where_it_is_made_and_not_excused_later() -> None:
    verdict = judged(with_value("twice", off(1.0)))
    assert verdict.faults[0] == (
        "twice (double): worst element [1, 2]: device 11, reference 10, error 1 over the bound "
        "0.0001; 1 of 6 elements are over theirs"
    )
    assert verdict.faults[1].startswith("y (add): worst element [1, 2]: device 16, reference 17")
    assert verdict.tallies[STRICT] == Tally(accepted=3, refused=2)


def test_a_gradient_of_a_value_used_twice_is_held_against_the_sum_of_both() -> None:
    (fault, rms) = judged(with_gradient("a", off(1.0))).faults
    assert fault.startswith("grad:a (twice double, y add backward): worst element [1, 2]: device 7")
    assert "reference 6, error 1 over the bound 0.0002" in fault
    assert rms.startswith("grad:a: RMS error ")
    name = "grad:a (twice double, y add backward)"
    allowed = 2 * BOUND + UNIT * 6
    assert judged(with_gradient("a", off(BOUND))).budget_used[name] == pytest.approx(
        BOUND / allowed, rel=1e-2
    )


def test_the_addition_of_gradients_is_itself_rounded() -> None:
    """With no bound of their own, all that is left is one rounding of the sum of sizes."""
    block = replace(BLOCK, nodes=tuple(node._replace(operation=Exact()) for node in BLOCK.nodes))
    trace = replace(RIGHT, values=execute(block, INPUTS, "cpu").values)
    trace = replace(trace, gradients={**RIGHT.gradients, "a": torch.full(SHAPE, 4.0)})
    inputs, baseline = INPUTS, make_baseline(block, INPUTS)
    right = judge(block, inputs, trace, baseline, "cpu")
    assert right.faults == ()
    nudged = replace(trace, gradients={**trace.gradients, "a": torch.full(SHAPE, 4.0 + 2.0**-21)})
    used = judge(block, inputs, nudged, baseline, "cpu").budget_used
    assert used["grad:a (twice exact, y exact backward)"] == pytest.approx(2.0**-21 / (UNIT * 4))


DEEPER = replace(
    BLOCK,
    nodes=(
        *(node._replace(name="sum") if node.name == "y" else node for node in BLOCK.nodes),
        Node("scaled", Sum(kind="third", factor=3.0), ("sum",)),
        Node("y", Sum(kind="half", factor=0.5), ("scaled",)),
    ),
)


def test_each_operation_is_judged_by_the_gradient_that_it_was_fed() -> None:
    trace, baseline = execute(DEEPER, INPUTS, "cpu"), make_baseline(DEEPER, INPUTS)
    verdict = judge(DEEPER, INPUTS, trace, baseline, "cpu")
    assert verdict.faults == ()
    assert set(verdict.rms_ratio) == {"y", "grad:a", "grad:b"}


def test_a_device_that_was_fed_something_else_than_was_sent_is_caught_at_the_last_operation() -> (
    None
):
    twice = Inputs(leaves=INPUTS.leaves, cotangent=2 * INPUTS.cotangent)
    trace, baseline = execute(DEEPER, twice, "cpu"), make_baseline(DEEPER, INPUTS)
    faults = judge(DEEPER, INPUTS, trace, baseline, "cpu").faults
    assert faults[0].startswith("grad:scaled (y half backward): worst element [0, 0]: device 2, ")


def test_an_operation_that_does_not_judge_every_gradient_is_a_mistake_of_ours() -> None:
    nodes = (BLOCK.nodes[0]._replace(operation=Forgetful(kind="x")), BLOCK.nodes[1])
    with pytest.raises(ValueError, match="shorter"):
        judge(replace(BLOCK, nodes=nodes), INPUTS, RIGHT, BASELINE, "cpu")


@dataclass(frozen=True, kw_only=True)
class Forgetful(Sum):
    """Says nothing of its gradients."""

    def judge(self, inputs: Sequence[Any], cotangent: Any, how: Arithmetic) -> ExpectedResults:
        return replace(Sum.judge(self, inputs, cotangent, how), gradients=())


@dataclass(frozen=True, kw_only=True)
class Exact(Sum):
    """A sum that may not be off at all."""

    kind: str = "exact"

    def judge(self, inputs: Sequence[Any], cotangent: Any, how: Arithmetic) -> ExpectedResults:
        del how
        return ExpectedResults(
            output=within(self(*inputs), 0.0),
            gradients=tuple(within(cotangent, 0.0) for _ in inputs),
        )


def test_an_input_that_did_not_arrive_as_it_was_sent_is_told_first() -> None:
    faults = judged(with_value("b", off(1.0))).faults
    assert faults[0] == "b: the device's copy differs from what was sent"


@pytest.mark.parametrize(
    ("trace", "fault"),
    [
        (replace(RIGHT, values=without(RIGHT.values, "y")), "y (add): missing"),
        (replace(RIGHT, gradients=without(RIGHT.gradients, "a")), "grad:a: missing"),
        (with_value("twice", lambda t: t[0]), "twice (double): shape (3,), expected (2, 3)"),
        (with_value("a", lambda t: t[:, :1]), "a: shape (2, 1), expected (2, 3)"),
        (with_gradient("twice", lambda t: t.half()),
         "grad:twice (double): torch.float16, expected torch.float32"),
        (replace(RIGHT, devices={**RIGHT.devices, "grad:b": "meta"}),
         "grad:b: on meta, expected on cpu"),
        (replace(RIGHT, devices=without(RIGHT.devices, "y")), "y (add): on None, expected on cpu"),
        (with_value("y", off(float("nan"))),
         "y (add): 1 of 6 elements are wrongly finite or not"),
        (with_gradient("a", lambda t: t / 0), "grad:a: 6 of 6 elements are wrongly finite or not"),
    ],
)  # fmt: skip
def test_what_has_the_wrong_form_is_told_and_nothing_is_compared(trace: Trace, fault: str) -> None:
    assert judged(trace) == Verdict(faults=(fault,), budget_used={}, rms_ratio={})


def test_every_tensor_of_the_wrong_form_is_told() -> None:
    trace = replace(RIGHT, values=without(without(RIGHT.values, "y"), "a"))
    assert judged(trace).faults == ("a: missing", "y (add): missing")


def test_an_infinity_that_should_be_there_is_right() -> None:
    inputs = Inputs(leaves={**INPUTS.leaves, "b": ONES / 0}, cotangent=INPUTS.cotangent)
    trace, baseline = execute(BLOCK, inputs, "cpu"), make_baseline(BLOCK, inputs)
    assert not any("finite" in one for one in judge(BLOCK, inputs, trace, baseline, "cpu").faults)
    faults = judge(BLOCK, inputs, RIGHT, baseline, "cpu").faults
    assert faults == tuple(
        f"{name}: 6 of 6 elements are wrongly finite or not" for name in ("b", "y (add)")
    )


def test_another_profile_decides_by_its_own_tolerance_and_tells_only_of_that() -> None:
    slightly = with_gradient("b", off(2 * BOUND))
    assert judged(slightly).faults[0].startswith("grad:b (y add backward): worst element")
    assert judged(slightly, profile="torch").faults == (
        "grad:b (y add backward): further off than torch allows",
    )
    hardly = with_gradient("b", off(BOUND / 10))
    verdict = judged(hardly, profile="torch")
    assert verdict.faults == ()
    assert verdict.rms_ratio["grad:b"] > R_SMALL
    assert [one.partition(":")[0] for one in judged(hardly).faults] == ["grad"]


def test_a_profile_that_says_nothing_of_a_dtype_refuses_nothing() -> None:
    block = replace(BLOCK, nodes=tuple(node._replace(operation=Exact()) for node in BLOCK.nodes))
    inputs = Inputs(
        leaves={name: leaf.double() for name, leaf in INPUTS.leaves.items()},
        cotangent=INPUTS.cotangent.double(),
    )
    trace = execute(block, inputs, "cpu")
    verdict = judge(block, inputs, trace, make_baseline(block, inputs), "cpu", profile="torch")
    silent = [tally.silent for name, tally in verdict.tallies.items() if name != STRICT]
    assert verdict.faults == ()
    assert max(silent) == 5


@pytest.mark.parametrize(
    ("error", "share"), [(0.0, 0.0), (BOUND / 4, 0.25), (BOUND, 1.0), (-BOUND / 2, 0.5)]
)
def test_the_largest_share_of_a_bound_decides_and_all_of_it_may_be_used(
    error: float, share: float
) -> None:
    exact = torch.zeros(SHAPE, dtype=torch.float64)
    found = exact.clone()
    found[0, 1], found[1, 1] = error, error / 2
    used, fault = element_fault("x", found, within(exact))
    assert used == pytest.approx(share)
    assert fault == ""


def test_an_element_over_its_bound_is_told_with_its_own_bound() -> None:
    exact = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
    bound = torch.tensor([[1.0, 1.0, 1.0], [0.25, 1.0, 1.0]], dtype=torch.float64)
    share, fault = element_fault("x", exact + 0.5, Budgeted(reference=exact, bound=bound))
    assert share == 2.0
    assert fault == (
        "x: worst element [1, 0]: device 4.5, reference 4, error 0.5 over the bound 0.25;"
        " 1 of 6 elements are over theirs"
    )


def test_an_element_that_uses_all_of_its_bound_is_not_over_it() -> None:
    exact = torch.zeros(2, dtype=torch.float64)
    found = torch.tensor([0.5, 1.0], dtype=torch.float64)
    assert element_fault("x", found, within(exact, 0.5))[1].endswith(
        "1 of 2 elements are over theirs"
    )


def test_a_bound_of_nothing_allows_nothing_and_is_no_division_by_zero() -> None:
    exact = torch.zeros(SHAPE, dtype=torch.float64)
    assert element_fault("x", exact, within(exact, 0.0)) == (0.0, "")
    share, fault = element_fault("x", exact + 1.0, within(exact, 0.0))
    assert share == 1e300
    assert fault.endswith("error 1 over the bound 0; 6 of 6 elements are over theirs")


def test_one_bound_may_serve_all_elements() -> None:
    exact = torch.zeros(SHAPE, dtype=torch.float64)
    one = torch.tensor(0.5, dtype=torch.float64)
    assert element_fault("x", exact + 0.25, Budgeted(reference=exact, bound=one)) == (0.5, "")
    share, fault = element_fault("x", exact + 1.0, Budgeted(reference=exact, bound=one))
    assert share == 2.0
    assert "worst element [0, 0]: device 1, reference 0, error 1 over the bound 0.5" in fault


def rms(
    device_error: float, cpu_error: float = 1.0, *, numel: int = 10, dtype: Any = None, **more: Any
) -> tuple[float, str]:
    """The rule over `numel` zeros, where the CPU and the device are off by the same everywhere."""
    exact = torch.zeros(numel, dtype=torch.float64)
    return rms_fault(
        "x", exact + device_error, exact, exact + cpu_error, dtype or torch.float32, **more
    )


FEW = 10
MANY = SMALL_NUMEL


@pytest.mark.parametrize(
    ("dtype", "numel", "limit"),
    [
        (torch.float32, MANY, 8.0),
        (torch.bfloat16, MANY, 3.0),
        (torch.float16, MANY, 3.0),
        (torch.float64, MANY, 8.0),
        (torch.float32, FEW, 8.0),
        (torch.bfloat16, FEW, 8.0),
        (torch.float16, MANY - 1, 8.0),
    ],
)
def test_a_device_may_be_this_many_times_as_far_off_as_the_cpu_and_no_more(
    dtype: Any, numel: int, limit: float
) -> None:
    ratio, fault = rms(limit, numel=numel, dtype=dtype)
    assert ratio == pytest.approx(limit)
    assert fault == ""
    ratio, fault = rms(limit * 1.01, numel=numel, dtype=dtype)
    assert ratio == pytest.approx(limit * 1.01)
    assert fault == (
        f"x: RMS error {limit * 1.01:.3g} is {limit * 1.01:.3g} times what the CPU's {dtype} gives"
        f" ({limit:g} allowed)"
    )


def test_the_limits_are_those_that_were_measured() -> None:
    assert {torch.float32: 8.0, torch.bfloat16: 3.0, torch.float16: 3.0} == R
    assert (R_SMALL, SMALL_NUMEL, FEW_NUMEL) == (8.0, 500, 8)


def test_one_rounding_of_the_result_is_always_allowed() -> None:
    exact = torch.full((FEW,), 3.0, dtype=torch.float64)
    ratio, fault = rms_fault("x", exact + 8 * 3 * UNIT, exact, exact, torch.float32)
    assert ratio == pytest.approx(8.0)
    assert fault == ""
    assert rms_fault("x", exact + 9 * 3 * UNIT, exact, exact, torch.float32)[1]


def test_the_larger_of_the_cpu_s_error_and_one_rounding_is_allowed() -> None:
    exact = torch.full((FEW,), 3.0, dtype=torch.float64)
    ratio, _ = rms_fault("x", exact + 4.0, exact, exact + 2.0, torch.float32)
    assert ratio == pytest.approx(2.0)


def test_the_error_is_a_root_mean_square_and_not_a_sum_or_a_largest() -> None:
    exact = torch.zeros(4, dtype=torch.float64)
    found = torch.tensor([4.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    assert rms_fault("x", found, exact, exact + 1.0, torch.float32) == (2.0, "")


def test_where_nothing_may_be_off_nothing_is_right_and_anything_else_is_wrong() -> None:
    assert rms(0.0, 0.0) == (0.0, "")
    ratio, fault = rms(1.0, 0.0)
    assert ratio == 1e300
    assert fault.startswith("x: RMS error 1 is 1e+300 times what the CPU's torch.float32 gives")


def test_a_ratio_without_end_is_cut_to_one_that_json_can_hold() -> None:
    assert rms(float("inf"))[0] == 1e300


def test_of_few_numbers_the_sums_behind_them_count_as_well() -> None:
    walk = torch.tensor(4.0, dtype=torch.float64)
    few, enough = FEW_NUMEL - 1, FEW_NUMEL
    assert rms(32.0, numel=few, walk=walk) == (8.0, "")
    assert rms(33.0, numel=few, walk=walk)[1]
    assert rms(32.0, numel=enough, walk=walk)[0] == 32.0
    assert rms(32.0, numel=enough, walk=walk)[1] == (
        "x: RMS error 32 is 32 times what the CPU's torch.float32 gives (8 allowed)"
    )
    assert rms(8.0, 1.0, numel=few, walk=walk / 8)[0] == 8.0


errors = st.floats(1e-3, 1e3)


@given(errors, errors, st.floats(1.0, 10.0))
def test_a_device_that_is_further_off_never_gets_a_better_ratio(
    cpu: float, device: float, more: float
) -> None:
    ratio, fault = rms(device, cpu)
    worse, worse_fault = rms(device * more, cpu)
    assert worse >= ratio or worse == pytest.approx(ratio)
    assert not fault or worse_fault


def test_the_ends_of_a_block_are_held_against_their_own_exact_run() -> None:
    """The baseline is asked for the output and each leaf's gradient, not for another tensor."""
    exact = replace(
        BASELINE.exact,
        values={**BASELINE.exact.values, "y": BASELINE.exact.values["y"] + 1.0},
        gradients={**BASELINE.exact.gradients, "b": BASELINE.exact.gradients["b"] + 1.0},
    )
    shifted = Baseline(exact=exact, same_dtype=BASELINE.same_dtype)
    ratios = judge(BLOCK, INPUTS, RIGHT, shifted, "cpu").rms_ratio
    assert ratios == {"y": 1.0, "grad:a": 0.0, "grad:b": 1.0}
