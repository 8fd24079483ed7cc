"""Faulty results of the catalogue's cases, and devices that are wrong in a property."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from warpfront_checks.cases.bounds import Bound, Tally, errors_and_bounds
from warpfront_checks.cases.operation import Operation
from warpfront_checks.cases.run import (
    Bounds,
    NoOracleError,
    bound_of,
    lacks_kernel,
    listed,
    reference_of,
    results_of,
)
from warpfront_checks.cases.special import properties
from warpfront_checks.cases.special.properties import (
    Results,
    Run,
    check_gradients,
    check_memory,
    check_repeats,
    plain_case,
)

from .mutations import MutationTally, Seeded, parts_of, seed_results

SUITE = "cases"
# What is kept of each run of them is kept twice in 21 runs.
FEW = 5


def seed_case_faults(
    operations: Iterable[Operation], dtype: str, device: str, ledger: MutationTally
) -> None:
    """Mutate each result and gradient of the plain case of each operation, one at a time."""
    for operation in operations:
        case = plain_case(operation, dtype, device)
        try:
            results = results_of(case, reference_of(case))
        except NoOracleError:
            continue
        except (RuntimeError, NotImplementedError) as error:
            if not lacks_kernel(error):
                raise
            continue

        rightly = parts_of(results.reference.expected, results.reference.rights)
        bound = bound_of(case)
        told = {
            place: relative_of(part, rightly[place], bound)
            for place, part in parts_of(results.actual, results.gradients).items()
            if rightly.get(place) is not None
        }
        of = Seeded(mutation="", suite=SUITE, check=operation.name, dtype=dtype, device=device)
        seed_results(results, Bounds(case, results.reference), of, ledger, told)


def seed_property_faults(operations: list[Operation], device: str, ledger: MutationTally) -> None:
    """Seed a wrong derivative, a device that never returns the same result twice, and one
    that leaks memory.
    """
    cache: list[Tensor] = []
    reports = {
        "another answer each time": altered("_run", _noisy(), check_repeats, operations, device),
        "memory kept": altered(
            "_run", partial(_keeping, cache, device), check_memory, operations[:FEW], device
        ),
        "derivative 3 percent too large": altered(
            "_call", _steeper, check_gradients, operations, device
        ),
    }
    for mutation, report in reports.items():
        seed = Seeded(
            mutation=mutation, suite="properties", check="all", dtype="float32", device=device
        )
        together = mutation == "memory kept" and device != "cuda"
        count = 1 if together else report.cases - len(report.excluded)
        for place in range(count):
            ledger.enter(seed, caught=place < len(report.faults))


def altered(
    name: str, alter: Callable[[Any], Any], check: Callable[..., Tally], *arguments: Any
) -> Tally:
    """Return the report of a check whose calls of cases, `_run` or `_call`, are altered."""
    right = getattr(properties, name)

    def call(case: Any, names: Any, *leaves: Tensor) -> Any:
        return alter(partial(right, case, names))(*leaves)

    with mock.patch.object(properties, name, call):
        return check(*arguments)


def _noisy() -> Callable[[Run], Run]:
    calls = iter(range(1_000_000))

    def noisy(run: Run) -> Run:
        number = next(calls) % 2
        return lambda: [None if x is None else torch.full_like(x, number) for x in run()]

    return noisy


def _keeping(cache: list[Tensor], device: str, run: Run) -> Run:
    """Return a run with a cache in device memory that is never emptied."""

    def keeping() -> Results:
        cache.append(torch.ones(512 * 1024, device=device))  # more than pages given back
        return run()

    return keeping


class _Steeper(torch.autograd.Function):
    """The identity, with a derivative of 1.03."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004 - torch's signature
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004 - as above
        return gradients[0] * 1.03


def _steeper(call: Callable[..., Any]) -> Callable[..., Any]:
    def steeper(*inputs: Tensor) -> Any:
        results = call(*inputs)
        if isinstance(results, Tensor):
            return _Steeper.apply(results)
        return tuple(_Steeper.apply(x) if x.is_floating_point() else x for x in listed(results))

    return steeper


def relative_of(actual: Tensor, expected: Tensor, bound: Bound) -> float:
    """Return the least factor of a whole tensor, less 1, that the bound tells from right."""
    if not (actual.is_floating_point() or actual.is_complex()):
        return 0.0
    actual, expected = (
        torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
        for x in (actual.detach().cpu(), expected.detach())
    )
    expected = expected.double()
    _, allowed = errors_and_bounds(actual, expected, bound)
    judged = expected.isfinite() & (expected != 0)
    shares = allowed[judged] / expected[judged].abs()
    return float(shares.min()) if shares.numel() else 0.0
