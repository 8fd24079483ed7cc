"""What is expected of a case and what is said of a run of it, by one operation whose every bound
can be worked out by hand: twice its input, off by half at most. Needs torch, on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from warpfront_checks.executing import Computed  # noqa: E402
from warpfront_checks.judge import CaseVerdict  # noqa: E402
from warpfront_checks.operations import (  # noqa: E402
    FEW_NUMEL,
    Arithmetic,
    Budgeted,
    ExpectedResults,
)
from warpfront_checks.operators.cases import Case  # noqa: E402
from warpfront_checks.operators.verdicts import (  # noqa: E402
    Expectation,
    expect,
    judge_case,
    lacks_kernel,
)
from warpfront_checks.tolerance_profiles import Tally  # noqa: E402

SINGLE = torch.float32
X = torch.arange(1.0, 11.0)
BOUND = 0.5


@dataclass
class Twice:
    """`asked` is what the judge was given."""

    kind: str = "twice"
    error: Exception | None = None
    asked: list[Any] = field(default_factory=list)

    def __call__(self, x: Any) -> Any:
        if self.error and x.dtype != torch.float64:
            raise self.error
        return 2 * x

    def judge(self, inputs: Any, cotangent: Any, arithmetic: Arithmetic) -> ExpectedResults:
        self.asked.append((inputs, cotangent, arithmetic))
        return ExpectedResults(output=budget(2 * inputs[0]), gradients=(budget(2 * cotangent),))


def budget(reference: Any, **more: Any) -> Budgeted:
    return Budgeted(reference=reference, bound=torch.full_like(reference, BOUND), **more)


def a_case(x: Any = X, operation: Twice | None = None, **more: Any) -> Case:
    return Case(name="twice", operation=operation or Twice(), tensors=(x,), **more)


def test_the_reference_is_made_in_float64_of_the_case_s_own_numbers() -> None:
    operation = Twice()
    expected = expect(a_case(operation=operation), SINGLE, "cuda", 3)
    ((inputs, fed, arithmetic),) = operation.asked
    assert (inputs[0].dtype, fed.dtype) == (torch.float64, torch.float64)
    assert torch.equal(inputs[0], X.double())
    assert arithmetic == Arithmetic(dtype=SINGLE, device="cuda")
    cotangent = expected.cotangent
    assert cotangent is not None
    assert (cotangent.dtype, cotangent.shape, expected.dtype) == (SINGLE, X.shape, SINGLE)
    assert torch.equal(fed, cotangent.double())
    assert [one.reference.tolist() for one in expected.budgets] == [
        (2 * X).tolist(),
        (2 * fed).tolist(),
    ]
    same = expected.same_dtype
    assert same is not None
    assert torch.equal(same.outputs[0], 2 * X)
    (gradient,) = same.gradients
    assert gradient is not None
    assert torch.equal(gradient, 2 * cotangent)


def test_a_cotangent_is_the_seed_s() -> None:
    one, same, other = (expect(a_case(), SINGLE, "cpu", seed).cotangent for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    half = expect(a_case(X.half()), torch.float16, "cpu", 3).cotangent
    assert half is not None
    assert half.dtype == torch.float16


def test_what_has_no_derivative_is_expected_to_give_an_output_alone() -> None:
    operation = Twice()
    expected = expect(a_case(operation=operation, backward=False), SINGLE, "cpu", 3)
    assert expected.cotangent is None
    assert len(expected.budgets) == 1
    assert expected.same_dtype is not None
    assert expected.same_dtype.gradients == ()
    ((_, fed, _),) = operation.asked
    assert torch.equal(fed, torch.zeros(10, dtype=torch.float64))


def test_whole_numbers_have_no_bounds_and_stay_what_they_are() -> None:
    operation = Twice()
    expected = expect(a_case(X.long(), operation), torch.int64, "cpu", 3)
    assert (expected.budgets, expected.cotangent, operation.asked) == ((), None, [])
    assert expected.same_dtype is not None
    assert torch.equal(expected.same_dtype.outputs[0], 2 * X.long())
    assert expect(a_case(X.long()), SINGLE, "cpu", 3).budgets == ()
    # A result in real numbers of a dtype that has none is nobody's to judge by a bound.
    assert expect(a_case(X), torch.int64, "cpu", 3).budgets == ()


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (NotImplementedError("any"), True),
        (RuntimeError('"twice" not implemented for Half'), True),
        (RuntimeError("complex is not supported here"), True),
        (RuntimeError("Unsupported dtype"), True),
        (RuntimeError("mismatch in dtype"), True),
        (RuntimeError("`fused=True` requires Tensors of supported devices: ['cpu']"), True),
        (RuntimeError("DispatchStub: missing kernel for hpu"), True),
        (RuntimeError("out of memory"), False),
    ],
)
def test_a_kernel_that_the_cpu_lacks_is_no_kernel_that_broke(
    error: Exception, *, lacks: bool
) -> None:
    assert lacks_kernel(error) is lacks
    case = a_case(operation=Twice(error=error))
    if lacks:
        assert expect(case, SINGLE, "cpu", 3).same_dtype is None
    else:
        with pytest.raises(RuntimeError, match="out of memory"):
            expect(case, SINGLE, "cpu", 3)


def expectation(x: Any = X, *, off: float = 0.25, dtype: Any = None, **more: Any) -> Expectation:
    """Of the output alone; the CPU is `off` everywhere."""
    same = Computed(outputs=(x * 2 + off,), places=("cpu",), strides=(1,))
    return Expectation(
        cotangent=None,
        budgets=(budget(2 * x.double(), **more),),
        same_dtype=same,
        dtype=dtype or x.dtype,
    )


def found(output: Any, *gradients: Any) -> Computed:
    return Computed(outputs=(output,), gradients=gradients, places=("cpu",), strides=(1,))


def judged(output: Any, expected: Expectation | None = None, **more: Any) -> CaseVerdict:
    kind = more.pop("kind", "twice")
    case = a_case(operation=Twice(kind=kind), strides=more.pop("strides", False))
    return judge_case(case, found(output), expected or expectation(), "cpu", **more)


def test_a_run_within_its_bounds_says_how_much_of_them_it_used() -> None:
    verdict = judged(2 * X + 0.125)
    assert (verdict.faults, verdict.budget_used, verdict.rms_ratio) == ((), 0.25, 0.5)
    assert verdict.tallies["strict"] == Tally(accepted=1)
    assert verdict.tallies["torch"] == Tally(refused=1)
    assert verdict.tallies["float32-only"] == Tally(refused=1)


def test_the_largest_shares_of_all_tensors_count() -> None:
    two = expectation()
    fed = torch.ones(10)
    same = replace(two.same_dtype, gradients=(fed + 0.125,))  # type: ignore[type-var]
    both = replace(two, budgets=(*two.budgets, budget(fed.double())), same_dtype=same)
    verdict = judge_case(a_case(), found(2 * X + 0.25, fed + 0.125), both, "cpu")
    assert (verdict.faults, verdict.budget_used, verdict.rms_ratio) == ((), 0.5, 1.0)
    assert verdict.tallies["strict"] == Tally(accepted=2)
    verdict = judge_case(a_case(), found(2 * X, fed + 1.0), both, "cpu")
    assert verdict.budget_used == 2.0
    assert verdict.faults[0].startswith("gradient 0: worst element [0]: device 2, reference 1")
    verdict = judge_case(a_case(), found(2 * X + 1.0, fed + 1.0), both, "cpu")
    assert [one.partition(": worst")[0] for one in verdict.faults] == ["output", "gradient 0"]
    short = replace(both, same_dtype=two.same_dtype)
    with pytest.raises(ValueError, match="zip"):  # else the gradient would go unjudged
        judge_case(a_case(), found(2 * X, fed), short, "cpu")


def test_what_is_over_its_bound_and_far_from_the_cpu_is_told_twice() -> None:
    verdict = judged(2 * X + 4.0)
    first, second = verdict.faults
    assert first.startswith("output: worst element [0]: device 6, reference 2, error 4 over")
    assert second.startswith("output: RMS error 4 is 16 times what the CPU's torch.float32 gives")
    assert (verdict.budget_used, verdict.rms_ratio) == (8.0, 16.0)
    assert verdict.tallies["strict"] == Tally(refused=1)


def test_another_profile_has_its_own_say_and_no_other() -> None:
    near, far = judged(2 * X + 0.01, profile="torch"), judged(2 * X + 4.0, profile="five-percent")
    assert near.faults == ("output: further off than torch allows",)
    assert far.faults == ("output: further off than five-percent allows",)
    assert judged(2 * X, profile="torch").faults == ()
    # Of a dtype that a profile does not name it says nothing.
    wide = expectation(X.double())
    assert judged(2 * X.double() + 0.1, wide, profile="float32-only").faults == ()


def test_structure_counts_in_every_profile() -> None:
    for profile in ("strict", "five-percent"):
        verdict = judged(2 * X.half(), profile=profile)
        assert verdict.faults == ("output: torch.float16, expected torch.float32",)
        assert set(verdict.tallies.values()) == {Tally(refused=1)}
    elsewhere = judge_case(a_case(), found(2 * X), expectation(), "cuda")
    assert elsewhere.faults == ("on cpu, expected on cuda",)


def test_strides_count_where_they_are_part_of_the_answer() -> None:
    assert expectation().same_dtype is not None
    strided = replace(expectation().same_dtype, strides=(2,))  # type: ignore[type-var]
    expected = replace(expectation(), same_dtype=strided)
    assert judged(2 * X, expected).faults == ()
    assert judged(2 * X, expected, strides=True).faults == ("strides (1,), expected (2,)",)
    assert judged(2 * X, replace(expected, same_dtype=None), strides=True).faults == ()
    assert judged(2 * X, strides=True).faults == ()


def test_whole_numbers_are_the_cpu_s_to_the_bit() -> None:
    whole = X.long()
    exact = Expectation(cotangent=None, budgets=(), same_dtype=found(2 * whole), dtype=torch.int64)
    right = judged(2 * whole, exact)
    assert (right.faults, set(right.tallies.values())) == ((), {Tally(accepted=1)})
    odd = 2 * whole
    odd[:2] += 1
    wrong = judged(odd, exact)
    assert wrong.faults == ("output: 2 of 10 elements differ from the exact ones",)
    assert set(wrong.tallies.values()) == {Tally(refused=1)}
    assert judged(whole.int(), exact).faults == ("output: torch.int32, expected torch.int64",)
    assert judged(odd, replace(exact, same_dtype=None)).faults == ()


def test_what_is_wrongly_finite_or_not_is_counted_before_any_distance() -> None:
    x = X.clone()
    x[0], x[1], x[2] = float("nan"), float("inf"), -float("inf")
    expected = expectation(x)
    right = judged(2 * x + 0.25, expected)
    assert (right.faults, right.budget_used, right.rms_ratio) == ((), 0.5, 0.0)
    for at, value in ((0, 1.0), (1, 1.0), (1, -float("inf")), (5, float("nan"))):
        odd = 2 * x
        odd[at] = value
        verdict = judged(odd, expected)
        assert verdict.faults == ("output: 1 of 10 elements are wrongly finite, infinite or NaN",)
        assert (verdict.budget_used, verdict.rms_ratio) == (1e300, 1e300)
    # What float32 cannot hold is infinite there, and the reference is not.
    huge = expectation(X)
    budgets = (budget(torch.full((10,), 1e300, dtype=torch.float64)),)
    assert judged(torch.full((10,), float("inf")), replace(huge, budgets=budgets)).faults == ()


def test_nothing_is_right() -> None:
    empty = expectation(X[:0])
    verdict = judged(X[:0], empty)
    assert (verdict.faults, verdict.budget_used, verdict.rms_ratio) == ((), 0.0, 0.0)


@pytest.mark.parametrize("kind", ["random", "fused"])
def test_of_its_own_draw_the_cpu_s_error_says_nothing(kind: str) -> None:
    assert judged(2 * X + 0.5, expectation(off=0.001), kind=kind).faults == ()
    assert judged(2 * X + 0.5, expectation(off=0.001)).faults != ()


def test_the_cpu_says_nothing_of_a_device_that_rounds_every_addition() -> None:
    half = X.half()
    expected = expectation(half, off=0.0)
    far = 2 * half + 0.5
    assert judged(far, expected).rms_ratio > 8
    assert judged(far, expected, kind="product").rms_ratio == 0.0


def test_without_a_cpu_s_run_and_in_float64_the_bound_alone_judges() -> None:
    near = expectation(off=0.001)
    assert judged(2 * X + 0.5, replace(near, same_dtype=None)).faults == ()
    wide = judged(2 * X.double() + 0.5, expectation(X.double(), off=0.001))
    assert (wide.faults, wide.budget_used, wide.rms_ratio) == ((), 1.0, 0.0)


@pytest.mark.parametrize(
    ("count", "more", "compared"),
    [
        (FEW_NUMEL, {}, True),
        (FEW_NUMEL - 1, {}, False),
        (FEW_NUMEL - 1, {"errors": FEW_NUMEL}, True),
        (FEW_NUMEL, {"errors": FEW_NUMEL - 1}, False),
        (FEW_NUMEL - 1, {"walk": torch.tensor(0.001, dtype=torch.float64)}, True),
    ],
)
def test_of_few_errors_there_is_no_sample(
    count: int, more: dict[str, Any], *, compared: bool
) -> None:
    x = X[:count]
    verdict = judged(2 * x + 0.5, expectation(x, off=0.001, **more))
    assert bool(verdict.faults) is compared
    assert (verdict.rms_ratio > 0) is compared
    assert verdict.budget_used == 1.0


def test_the_sums_behind_few_numbers_are_allowed_for() -> None:
    x, walk = X[:3], torch.tensor(0.25, dtype=torch.float64)
    verdict = judged(2 * x + 0.5, expectation(x, off=0.001, walk=walk))
    assert (verdict.faults, verdict.rms_ratio) == ((), 2.0)
    many = judged(2 * X + 0.5, expectation(off=0.25, walk=walk * 100, errors=FEW_NUMEL - 1))
    assert many.rms_ratio == pytest.approx(0.02)
