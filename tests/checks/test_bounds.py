"""The comparison of a result with its oracle, number by number. Needs torch, on the CPU."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from warpfront_checks.cases.bounds import (  # noqa: E402
    OVER,
    Bound,
    Verdict,
    errors_and_bounds,
    judge,
    spacing,
)

INF, NAN = math.inf, math.nan
EPS = torch.finfo(torch.float32).eps
MOST = torch.finfo(torch.float32).max
SMALL = torch.finfo(torch.float32).smallest_normal


def doubles(*values: float) -> Any:
    return torch.tensor(values, dtype=torch.float64)


def floats(*values: float) -> Any:
    return torch.tensor(values, dtype=torch.float32)


@pytest.mark.parametrize(
    ("values", "most"),
    [((1.0, -3.0), 3.0), ((), 0.0), ((-INF, -3.0, NAN), 3.0), ((INF,), 0.0), ((NAN,), 0.0)],
)
def test_roundings_are_of_the_largest_finite_number(values: tuple[float, ...], most: float) -> None:
    bound = Bound(roundings=6.0, least=0.5, slack=0.25)
    assert float(bound.allowed(doubles(*values))) == 0.25 + 6 * EPS * (0.5 + most)


def test_a_bound_without_roundings_is_its_slack() -> None:
    assert float(Bound(slack=0.25).allowed(doubles(7.0))) == 0.25
    each = Bound(slack=[0.1, 0.2]).allowed(doubles(7.0, 8.0))
    assert (each.dtype, each.tolist()) == (torch.float64, [0.1, 0.2])
    half = Bound(roundings=2.0, unit=torch.float16).allowed(doubles(3.0))
    assert float(half) == 2 * torch.finfo(torch.float16).eps * 3


@pytest.mark.parametrize(
    ("value", "units"),
    [(1.0, 1), (1.99, 1), (2.0, 2), (-4.0, 4), (0.5, 0.5), (0.0, SMALL), (INF, 2.0**127), (NAN, 1)],
)
def test_the_spacing_is_one_unit_in_the_last_place(value: float, units: float) -> None:
    assert float(spacing(doubles(value), torch.float32)) == units * EPS


def errors(found: Any, right: Any, **bound: Any) -> tuple[list[float], list[float]]:
    off, allowed = errors_and_bounds(found, right, Bound(**bound))
    return off.tolist(), allowed.tolist()


def test_errors_are_distances_and_bounds_add_up() -> None:
    off, allowed = errors(floats(1.5, -2.0), doubles(1.0, 2.0), slack=0.25)
    assert (off, allowed) == ([0.5, 4.0], [0.25, 0.25])
    _, allowed = errors(floats(1.0, 1.0), doubles(1.0, 4.0), ulps=3.0, slack=0.25)
    assert allowed == [3 * EPS + 0.25 + SMALL, 12 * EPS + 0.25 + SMALL]
    _, allowed = errors(floats(1.0).half(), doubles(0.0), ulps=1.0)
    smallest = torch.finfo(torch.float16).smallest_normal
    eps = torch.finfo(torch.float16).eps
    assert smallest * eps < allowed[0] < smallest + smallest * eps
    _, allowed = errors(floats(INF, -INF), doubles(INF, -INF), ulps=1.0)
    assert allowed == [float(spacing(doubles(MOST), torch.float32)) + SMALL] * 2


@pytest.mark.parametrize(
    ("found", "right", "off"),
    [
        (INF, INF, 0.0),
        (-INF, INF, INF),
        (NAN, NAN, 0.0),
        (NAN, 1.0, INF),
        (1.0, NAN, INF),
        (1.0, INF, INF),
        (INF, 1.0, MOST - 1),
        (-INF, 1.0, MOST + 1),
        # Beyond the largest number both ends are right.
        (INF, 2.0 * MOST, 0.0),
        (MOST, 2.0 * MOST, MOST),
        (NAN, 2.0 * MOST, INF),
        (-MOST, -2.0 * MOST, MOST),
    ],
)
def test_what_is_infinite_or_no_number_on_one_side_alone_is_off(
    found: float, right: float, off: float
) -> None:
    ((first, other), _) = errors(floats(found, 3.0), doubles(right, 5.0))
    assert (first, other) == (off, 2.0)


def test_the_worst_element_is_described() -> None:
    found, right = floats(1.0, 2.5, 9.0, 4.0).reshape(2, 2), doubles(1, 2, 3, 4).reshape(2, 2)
    assert judge(found, right, Bound(slack=0.25)) == Verdict(
        fault="element [1, 0] is 9.0, right is 3.0 (2 of 4 are wrong), off by 6 of 0.25 allowed",
        share=24.0,
        index=(1, 0),
    )
    nan = judge(floats(NAN, 5.0), doubles(1.0, 1.0), Bound(slack=1.0))
    assert (nan.share, nan.index) == (OVER, (0,))
    assert "(2 of 2 are wrong)" in nan.fault
    none = judge(floats(2.0), doubles(1.0), Bound())
    assert none.share == OVER
    assert "(1 of 1 are wrong)" in none.fault
    whole = judge(torch.tensor([1, 2, 4]), torch.tensor([1, 3, 3]), Bound(slack=9.0))
    assert whole == Verdict(
        fault="element [1] is 2, right is 3 (2 of 3 are wrong)",
        share=OVER,
        index=(1,),
    )


def test_shapes_are_compared_first() -> None:
    assert judge(floats(1.0), doubles(1.0, 2.0), Bound()) == Verdict(
        fault="shape (1,), expected (2,)", share=OVER
    )


@pytest.mark.parametrize(
    ("found", "right"),
    [
        (floats(), doubles()),
        (floats(0.1), doubles(0.1)),
        (torch.tensor([1, 2]), torch.tensor([1.0, 2.0])),
        (torch.tensor([True]), torch.tensor([True])),
        (torch.tensor([1 + 2j]), torch.tensor([1 + 2j], dtype=torch.complex128)),
        (torch.tensor([2 + 0j]), doubles(2.0)),
        (floats(2.0), torch.tensor([2 + 0j], dtype=torch.complex128)),
        (torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j], dtype=torch.complex128)),
    ],
)
def test_equal_values_are_no_fault_whatever_their_dtypes(found: Any, right: Any) -> None:
    assert judge(found, right, Bound()) == Verdict()


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_complex_numbers_of_16_bits_are_compared() -> None:
    found = torch.tensor([1 + 2j]).to(torch.complex32)
    assert judge(found, torch.tensor([1 + 2j]), Bound()) == Verdict()
    assert judge(found, found, Bound()) == Verdict()
    assert judge(found, torch.tensor([1 + 3j]), Bound(ulps=1.0)).index == (0, 1)


def test_parts_of_complex_numbers_are_compared() -> None:
    verdict = judge(torch.tensor([1 + 2j]), torch.tensor([1 + 4j], dtype=torch.complex128), Bound())
    assert verdict.index == (0, 1)
    imaginary = judge(floats(2.0), torch.tensor([2 + 1j], dtype=torch.complex128), Bound())
    assert imaginary.index == (0, 1)


@pytest.mark.parametrize(
    ("limit", "rms", "fault"), [(4.0, 0.5, ""), (2.0, 1.0, ""), (1.0, 2.0, "RMS error 2, 2 times")]
)
def test_the_root_mean_square_has_a_limit_of_its_own(limit: float, rms: float, fault: str) -> None:
    found, right = floats(2.0, -2.0), doubles(0.0, 0.0)
    verdict = judge(found, right, Bound(slack=4.0, rms=limit))
    assert (verdict.share, verdict.rms) == (0.5, rms)
    assert verdict.fault.startswith(fault)
    assert bool(verdict.fault) is bool(fault)
    assert judge(found, right, Bound(slack=4.0)).rms == 0.0
    both = judge(found, right, Bound(slack=1.0, rms=2.0))
    assert both.fault == (
        "element [0] is 2.0, right is 0.0 (2 of 2 are wrong), off by 2 of 1 allowed"
    )
