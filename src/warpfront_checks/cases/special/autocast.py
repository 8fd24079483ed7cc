"""Autocast: the dtype of results by torch's documentation, their values, and a changed weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.cases.bounds import Bound, judge
from warpfront_checks.cases.catalogue import CATALOGUE
from warpfront_checks.cases.run import execute, listed
from warpfront_checks.cases.special.properties import PropertyReport, plain_case, prepared

# docs/source/amp.rst of torch: what all its kinds of device have in common, then CUDA's and ROCm's.
LOWER = "mm bmm addmm baddbmm matmul linear conv1d conv2d attention"
FULL = "mse_loss l1_loss smooth_l1_loss cross_entropy kl_div"
FULL_ON_CUDA = "exp log softmax log_softmax sum cumsum prod layer_norm group_norm rsqrt softplus"
LOW = ("bfloat16", "float16")
Run = Callable[[], Sequence[Tensor]]


def _as_it_is(run: Run) -> Run:
    return run


def check_autocast(device: str, *, alter: Callable[[Run], Run] = _as_it_is) -> PropertyReport:
    """Check operations that autocast computes in 16 bits and in float32, then a weight that changes
    between two casts. `alter` replaces a call, in tests.
    """
    full = f"{FULL} {FULL_ON_CUDA}" if device == "cuda" else FULL
    report = PropertyReport(faults=list(_stale_weights(device, alter)), tried=1)
    for low in LOW:
        for names, dtype, expected in ((LOWER, "float32", low), (full, low, "float32")):
            for name in names.split():
                report.faults += _cast_faults(name, dtype, expected, low, device, alter)
                report.tried += 1
    return report


def _cast_faults(
    name: str, dtype: str, expected: str, low: str, device: str, alter: Callable[[Run], Run]
) -> Iterator[str]:
    """Yield how a result in the autocast dtype `low` differs from one in `expected`."""
    operation = CATALOGUE[name]
    values = "few" if "few" in operation.values else "quarters"
    case = plain_case(operation, dtype, device, values=values, gradient="none", destination="")
    space = prepared(case)

    def run() -> list[Tensor]:
        execute(case.call(), space)
        return listed(space["found"])

    with torch.autocast(device, dtype=getattr(torch, low)):
        (result,) = alter(run)()
    if result.dtype != getattr(torch, expected):
        yield f"{name} in {low}: {result.dtype}, expected torch.{expected}"
    bound = Bound(ulps=4, roundings=64, least=1.0, unit=getattr(torch, low))
    if fault := judge(result, space["right"], bound).fault:
        yield f"{name} in {low}: {fault}"


def _stale_weights(device: str, alter: Callable[[Run], Run]) -> Iterator[str]:
    """Yield the steps after which a weight's cast is that of an earlier step."""
    x = torch.ones(3, 8, device=device)
    weight = torch.zeros(5, 8, device=device, requires_grad=True)

    def run() -> list[Tensor]:
        return [functional.linear(x, weight)]

    for step in range(3):
        with torch.autocast(device, dtype=torch.bfloat16):
            (result,) = alter(run)()
        if not bool((result == 8 * step).all()):
            yield f"linear after {step} changes of its weight: an earlier weight's result"
        with torch.no_grad():
            weight.add_(1)
