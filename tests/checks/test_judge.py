"""The judge's rules, over bounds that are chosen so that every verdict can be worked out by hand.
Needs torch, on the CPU.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")


from warpfront_checks.executing import Computed  # noqa: E402
from warpfront_checks.judge import (  # noqa: E402
    element_fault,
    form_fault,
    place_fault,
    structure_faults,
)
from warpfront_checks.operations import (  # noqa: E402
    Budgeted,
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
