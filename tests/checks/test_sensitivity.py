"""How far an entry's exact results move by one rounding of what it gets."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from warpfront_checks.cases.axes import Drawing, build  # noqa: E402
from warpfront_checks.cases.bounds import Verdict  # noqa: E402
from warpfront_checks.cases.case import Case  # noqa: E402
from warpfront_checks.cases.catalogue import CATALOGUE  # noqa: E402
from warpfront_checks.cases.measured import Measured  # noqa: E402
from warpfront_checks.cases.operation import Operation  # noqa: E402
from warpfront_checks.cases.rounding import disturbed  # noqa: E402
from warpfront_checks.cases.run import (  # noqa: E402
    CaseResults,
    Reference,
    compared,
    reference_of,
    results_of,
    run_case,
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
    sweep = Sweep(dtype=dtype, device="cpu", effort=CheckOptions(), backward=True)
    sample = list(samples_for(entry, getattr(torch, dtype), sweep))[number]
    how: dict[str, Any] = {"dtype": dtype, "device": "cpu", "seed": seed}
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


def test_a_zero_keeps_its_sign() -> None:
    zeros = torch.full((64,), -0.0, dtype=torch.float64)
    moved = disturbed(zeros, torch.float32, torch.Generator().manual_seed(0), integers=True)
    assert bool(moved.signbit().all())


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


def case_of(name: str, lengths: dict[str, int], **choices: Any) -> Case:
    """A case of an operation whose first operand is the same number along what is normalised."""
    return built(CATALOGUE[name], lengths, **{"memory a": "expanded", **choices})


def built(operation: Operation, lengths: dict[str, int], **choices: Any) -> Case:
    drawing = Drawing(operation, ("float32",), random.Random(0))
    first = {axis: values[0] for axis, values in drawing.axes.items()}
    chosen = drawing.constrained({**first, **choices})
    return build(operation, {**chosen, "lengths": lengths, "seed": 7, "wide": 0}, "cpu")


def wrong(case: Case, function: Callable[..., Any]) -> list[str]:
    return [verdict.name for verdict in run_case(case, function=function) if verdict.fault]


def test_a_mean_may_be_off_by_roundings_where_all_numbers_are_equal() -> None:
    """The gradient of the weight is 0, a sum of differences from the mean that are all alike."""
    choices = {"values": "normal", "option eps": 0.01, "absent": "c"}
    case = case_of("instance_norm", {"b": 3, "c": 6, "x": 1031}, rank=0, **choices)

    def norm(off: float, a: Any, b: Any) -> Any:
        far = a - a.mean(-1, keepdim=True) * (1 + off)
        return far * (far.square().mean(-1, keepdim=True) + 0.01).rsqrt() * b.view(1, -1, 1)

    assert wrong(case, partial(norm, 8 * UNIT)) == []
    assert "gradient of b" in wrong(case, partial(norm, 2.0**-9))


def test_an_inner_transform_may_be_off_by_roundings_of_what_is_then_dropped() -> None:
    """Of equal numbers all of the spectrum is in the first number, which the inverse is not of."""
    case = case_of("irfft", {"m": 3, "n": 4099}, rank=0, values="normal", **{"option first": 1})
    noise = torch.randn(3, 2050, generator=torch.Generator().manual_seed(0))

    def transform(off: float, a: Any) -> Any:
        spectrum = torch.fft.rfft(a)
        size = spectrum.detach().abs().square().mean(-1, keepdim=True).sqrt()
        return torch.fft.irfft((spectrum + off * size * noise)[..., 1:], 7)

    assert wrong(case, partial(transform, 2 * UNIT)) == []
    assert wrong(case, partial(transform, 2.0**-9)) == ["result"]


def test_a_rounding_that_decides_a_result_explains_no_error() -> None:
    """A half is rounded to the even number; a rounding of it could lead to either."""
    code, values = "torch.round(a * 2).sum(-1)", ("quarters",)
    rounding = Operation(name="halves", code=code, values=values, exact=False, roundings=24, walk=1)
    case = built(rounding, {"m": 5, "n": 64}, gradient="none")
    assert case.summed
    assert wrong(case, lambda a: torch.round(a * 2).sum(-1)) == []
    assert wrong(case, lambda a: torch.floor(a * 2 + 0.5).sum(-1)) == ["result"]


def test_numbers_far_from_zero_have_exact_differences_and_no_eased_bound() -> None:
    """Their own roundings, which are in no result, would explain an error of a hundredth."""
    lengths = {"n": 5, "k": 1031}
    case = built(CATALOGUE["layer_norm far from 0"], lengths, **{"option eps": 0.125})
    assert not case.summed
    assert case.arguments[0].values == "away"
    assert built(CATALOGUE["layer_norm without weights"], lengths, rank=0).summed


def test_equal_shares_of_a_row_that_is_looked_up_often_round_to_one_side() -> None:
    """As atomic additions do, one after the other, where a row has half of all look-ups."""
    operation, lengths = CATALOGUE["embedding"], {"k": 2, "d": 3, "n": 13_001}
    case = built(operation, lengths, rank=0, layout="expanded", **{"option scaled": True})
    shares = np.full(6500, 1 / 6500, np.float32)
    off = abs(float(shares.cumsum(dtype=np.float32)[-1]) - 1)
    assert 64 * 2 * UNIT * 1.125 < off < case.roundings * 2 * UNIT * 1.125
