"""How far an entry's exact results move by one rounding of what it gets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from warpfront_checks.cases.bounds import Verdict  # noqa: E402
from warpfront_checks.cases.case import Case  # noqa: E402
from warpfront_checks.cases.measured import Measured, disturbed  # noqa: E402
from warpfront_checks.cases.run import (  # noqa: E402
    CaseResults,
    Reference,
    compared,
    reference_of,
    results_of,
)
from warpfront_checks.check_options import CheckOptions  # noqa: E402
from warpfront_checks.opinfo.adapter import load_database  # noqa: E402
from warpfront_checks.opinfo.provider import cases_of_sample  # noqa: E402
from warpfront_checks.opinfo.sweep import Sweep, samples_for  # noqa: E402

UNIT = 2.0**-24
# One of three matrices by which the rounding of each number alone explained too little, and a seed
# of the cotangents (EPYC of family 25, torch 2.13).
REFUSED = ("linalg.eigh", 2, 232327793)


def computed(name: str, number: int, dtype: str, seed: int) -> CaseResults:
    """The first case of a sample of a backward sweep, computed on the CPU."""
    entry = next(one for one in load_database() if one.name == name)
    sweep = Sweep(dtype=dtype, device="cpu", effort=CheckOptions(), mode="backward")
    sample = list(samples_for(entry, getattr(torch, dtype), sweep))[number]
    how: dict[str, Any] = {"dtype": dtype, "device": "cpu", "seed": seed, "variants": False}
    case, *_ = next(cases_of_sample(entry, sample, **how))
    return results_of(case, reference_of(case, nullcontext()))


def faults(results: CaseResults, bounds: Callable[[Case, Reference], Measured]) -> list[Verdict]:
    judged = compared(results, bounds(results.case, results.reference))
    return [verdict for verdict in judged if verdict.fault]


def test_a_matrix_that_is_decomposed_moves_by_its_own_rounding() -> None:
    x = torch.tensor([[1e6, 1.5e-6], [0.5, 2.5]], dtype=torch.float64)
    g = torch.Generator().manual_seed(2)
    alone = disturbed(x, torch.float32, g)
    by_matrix = disturbed(x, torch.float32, g, by_matrix=True)
    assert (alone - x).abs()[0, 1] <= 1.5e-6 * 2 * UNIT
    assert 1e-6 < (by_matrix - x).abs()[0, 1] < 1e6 * 2 * UNIT


def test_eigenvectors_whose_gradient_amplifies_a_rounding_are_right_and_a_thousandth_is_not() -> (
    None
):
    name, number, seed = REFUSED
    found = computed(name, number, "float32", seed)
    assert faults(found, Measured) == []
    (gradient,) = found.gradients
    gradient.data.mul_(1.001)
    assert faults(found, Measured)


class Unrounded(Measured):
    """Bounds without the roundings of steps."""

    _rounded: Any = ()


@pytest.mark.parametrize(
    ("name", "dtype"), [("masked.var", "complex64"), ("masked.std", "float16")]
)
def test_a_gradient_that_cancels_or_underflows_on_the_way_is_right_and_more_is_not(
    name: str, dtype: str
) -> None:
    """Here g is mostly imaginary, or g / count is subnormal: no rounding of an input shows it."""
    seeds = range(202561462, 202561482)
    results = (computed(name, 0, dtype, seed) for seed in seeds)
    found = next(each for each in results if faults(each, Unrounded))
    assert faults(found, Measured) == []
    (gradient,) = found.gradients
    gradient.data.mul_(1.5 if dtype == "float16" else 1.01)
    assert faults(found, Measured)
