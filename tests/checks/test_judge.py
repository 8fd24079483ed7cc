"""The judge's rules, over bounds that are chosen so that every verdict can be worked out by hand.
Needs torch, on the CPU.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from warpfront_checks.executing import Computed  # noqa: E402
from warpfront_checks.judge import (  # noqa: E402
    element_fault,
    form_fault,
    place_fault,
    rms_fault,
    structure_faults,
)
from warpfront_checks.operations import (  # noqa: E402
    FEW_NUMEL,
    R_SMALL,
    SMALL_NUMEL,
    Budgeted,
    R,
)

BOUND = 1e-4
SHAPE = (2, 3)
UNIT = 2.0**-24


def within(reference: Any, bound: float = BOUND) -> Budgeted:
    return Budgeted(reference=reference, bound=torch.full_like(reference, bound))


def test_what_has_the_wrong_form_or_is_elsewhere_is_told() -> None:
    found, single = torch.zeros(SHAPE), torch.float32
    assert form_fault(found, found.shape, single) == ""
    assert form_fault(None, found.shape, single) == "missing"
    assert form_fault(found[0], found.shape, single) == "shape (3,), expected (2, 3)"
    assert form_fault(found.half(), found.shape, single) == "torch.float16, expected torch.float32"
    assert form_fault(found.half(), None, None) == ""
    assert place_fault(("cpu", "cpu"), "cpu") == ""
    assert place_fault(("cpu", "meta"), "cpu") == "on meta, expected on cpu"
    assert place_fault((), "cpu") == "on no device, expected on cpu"


WHOLE = (torch.Size(SHAPE), torch.float32)
HALF = (torch.Size(SHAPE), torch.float16)


def test_each_result_is_told_that_is_not_what_was_asked_for() -> None:
    x = torch.zeros(SHAPE)
    run = Computed(outputs=(x,), gradients=(x, None), places=("cpu", "cpu"))
    assert list(structure_faults(run, (WHOLE, WHOLE, None), "cpu")) == []
    assert list(structure_faults(run, (HALF, None, WHOLE), "cpu")) == [
        "output: torch.float32, expected torch.float16",
        "gradient 0: not expected",
        "gradient 1: missing",
    ]


def test_of_another_number_of_results_nothing_else_is_said() -> None:
    run = Computed(outputs=(torch.zeros(SHAPE),), places=("meta",))
    assert list(structure_faults(run, (HALF, HALF), "cpu")) == ["1 results, expected 2"]
    assert list(structure_faults(Computed(outputs=()), (), "cpu")) == []


def test_results_that_are_elsewhere_are_told_beside_their_form() -> None:
    run = Computed(outputs=(torch.zeros(SHAPE),), places=("meta",))
    assert list(structure_faults(run, (HALF,), "cuda")) == [
        "output: torch.float32, expected torch.float16",
        "on meta, expected on cuda",
    ]


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
