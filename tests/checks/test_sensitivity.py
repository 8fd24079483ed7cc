"""How far an entry's exact results move by one rounding of what it gets."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from warpfront_checks.opinfo.adapter import Entry, Sample, load_database  # noqa: E402
from warpfront_checks.opinfo.entry_verdicts import disturbed, execute_entry  # noqa: E402
from warpfront_checks.opinfo.expecting import Expected, expect_sample  # noqa: E402
from warpfront_checks.opinfo.sweep import samples_for  # noqa: E402

UNIT = 2.0**-24
# One of three matrices by which the rounding of each number alone explained too little, and a seed
# of the cotangents (EPYC of family 25, torch 2.13).
REFUSED = ("linalg.eigh", 2, 232327793)


def eigenvectors() -> tuple[Entry, Sample]:
    name, number, _ = REFUSED
    entry = next(one for one in load_database() if one.name == name)
    samples = samples_for(entry, torch.float32, device="cpu", how="backward", quick=False)
    return entry, list(samples)[number]


def test_a_matrix_that_is_decomposed_moves_by_its_own_rounding() -> None:
    x = torch.tensor([[1e6, 1.5e-6], [0.5, 2.5]], dtype=torch.float64)
    sample = Sample(input=x, args=(), kwargs={}, settle=lambda result: result)
    alone, _ = disturbed(sample, None, torch.float32, 0)
    by_matrix, _ = disturbed(sample, None, torch.float32, 0, by_matrix=True)
    assert (alone.input - x).abs()[0, 1] <= 1.5e-6 * 2 * UNIT
    assert 1e-6 < (by_matrix.input - x).abs()[0, 1] < 1e6 * 2 * UNIT


def test_eigenvectors_whose_gradient_amplifies_a_rounding_are_right_and_a_thousandth_is_not() -> (
    None
):
    entry, sample = eigenvectors()
    expected = expect_sample(entry, sample, torch.float32, REFUSED[-1], backward=True)
    assert expected is not None
    found = execute_entry(entry, sample, expected.cotangents, "cpu")
    assert expected.judge(found, "cpu").faults == ()
    (gradient,) = found.gradients
    assert gradient is not None
    gradient.data.mul_(1.001)
    assert expected.judge(found, "cpu").faults


@pytest.mark.parametrize(
    ("name", "dtype"), [("masked.var", "complex64"), ("masked.std", "float16")]
)
def test_a_gradient_that_cancels_or_underflows_on_the_way_is_right_and_more_is_not(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here g is mostly imaginary, or g / count is subnormal: no rounding of an input shows it."""
    entry = next(one for one in load_database() if one.name == name)
    kind = getattr(torch, dtype)
    samples = samples_for(entry, kind, device="cpu", how="backward", quick=False)
    expected = expect_sample(entry, sample := next(samples), kind, 202561462, backward=True)
    assert expected is not None
    found = execute_entry(entry, sample, expected.cotangents, "cpu")
    assert expected.judge(found, "cpu").faults == ()
    with monkeypatch.context() as without:
        without.setattr(Expected, "steps_rounded", lambda _: ())
        assert expected.judge(found, "cpu").faults
    (gradient,) = found.gradients
    assert gradient is not None
    gradient.data.mul_(1.5 if dtype == "float16" else 1.01)
    assert expected.judge(found, "cpu").faults
