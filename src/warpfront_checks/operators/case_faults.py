"""Faulty devices for single operations: each mutation on the output and on every gradient, and
devices that are wrong as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.executing import Computed
from warpfront_checks.mutations import (
    UNCHANGED,
    MutationTally,
    Narrowed,
    Seeded,
    changes,
    seed_results,
    tf32,
)
from warpfront_checks.operators.cases import Case, Execute, execute_case
from warpfront_checks.operators.properties import (
    PropertyReport,
    check_gradients,
    check_memory,
    check_repeats,
)
from warpfront_checks.operators.table import Operator
from warpfront_checks.operators.verdicts import Expectation, expect, judge_case, lacks_kernel
from warpfront_checks.precision import computes_float64

SUITE = "operators"
STALE_SEED = 999
NO_REDUCTION = "it adds nothing up"
NO_PRODUCT = "no product inside"
NOT_FLOATING = "no lower precision than its own"
PRODUCTS = frozenset({"linear", "convolution", "transposed convolution", "broadcast product"})
# A refused derivative is worked out again number by number: too slow for all of them.
LARGEST = 64
CasesOf = Callable[[int], Iterator[Case]]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One check that faults are seeded into: the plain case of an operation in a dtype."""

    check: str
    dtype: str
    device: str
    cases: CasesOf

    def seeded(self, mutation: str) -> Seeded:
        return Seeded(
            mutation=mutation,
            suite=SUITE,
            check=self.check,
            dtype=self.dtype,
            device=self.device,
        )


def seed_faults(subject: Subject, seed: int, ledger: MutationTally) -> None:
    """Seed every fault into one subject. A failed clean run is recorded as a miss
    too, as `clean`.
    """
    case = next(iter(subject.cases(seed)))
    try:
        expected = expect(case, getattr(torch, subject.dtype), subject.device, seed)
        clean = execute_case(case, expected.cotangent, subject.device)
    except (RuntimeError, NotImplementedError) as error:
        if lacks_kernel(error):
            return
        raise
    verdict = judge_case(case, clean, expected, subject.device)
    if verdict.faults:
        ledger.missed.append(f"clean: {subject.check} {subject.dtype}: {verdict.faults[0]}")
        return
    judge = partial(judge_case, case, expected=expected, device=subject.device)
    seed_results(clean, judge, subject.seeded("all"), ledger)
    for name, outcome in _on_devices(subject, case, expected, seed, ledger):
        if not _differs(clean, outcome):
            ledger.excuse(name, UNCHANGED)
            continue
        judged = judge(outcome)
        ledger.enter(subject.seeded(name), caught=bool(judged.faults), said=judged.tallies)


def _on_devices(
    subject: Subject, case: Case, expected: Expectation, seed: int, ledger: MutationTally
) -> Iterator[tuple[str, Computed]]:
    run = partial(execute_case, cotangent=expected.cotangent, device=subject.device)
    other = next(iter(subject.cases(seed + STALE_SEED)))
    yield "answers of the run before", run(replace(case, tensors=other.tensors))
    if case.reduces:
        yield "wrong reduction length", run(replace(case, tensors=_shortened(case.tensors)))
    else:
        ledger.excuse("wrong reduction length", NO_REDUCTION)
    narrow = {"float32": torch.bfloat16, "float64": torch.float32}.get(subject.dtype)
    if narrow is None:
        ledger.excuse("low precision inside", NOT_FLOATING)
    else:
        inside = Narrowed(operation=case.operation, inside=narrow, outside=expected.dtype)
        with _forgiven(ledger, "low precision inside", "no kernel of lower precision"):
            yield "low precision inside", run(replace(case, operation=inside))
    if subject.device != "cpu":
        name = "computed on the CPU instead"
        with _forgiven(ledger, name, "the CPU has no such kernel"):
            yield name, execute_case(case, expected.cotangent, "cpu")
    if subject.device == "cuda" and subject.dtype == "float32":
        if case.operation.kind in PRODUCTS:
            with tf32():
                outcome = run(case)
            yield "TF32 inside", outcome
        else:
            ledger.excuse("TF32 inside", NO_PRODUCT)


@contextmanager
def _forgiven(ledger: MutationTally, mutation: str, reason: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        if not lacks_kernel(error):
            raise
        ledger.excuse(mutation, reason)


def _shortened(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Read the last element of each row of the first input as zero: a loop that ends early."""
    first = tensors[0].clone()
    if first.dim() and first.shape[-1]:
        first[..., -1] = 0
    return (first, *tensors[1:])


def _differs(clean: Computed, outcome: Computed) -> bool:
    if clean.places != outcome.places:
        return True
    pairs = zip(clean.all, outcome.all, strict=True)
    return any(a is not None and b is not None and changes(a, b) for a, b in pairs)


def seed_property_faults(chosen: Sequence[Operator], device: str, ledger: MutationTally) -> None:
    """Seed a wrong derivative, a device that never returns the same result twice, and one
    that leaks memory.
    """
    steady = [operator for operator in chosen if operator.name != "dropout"]
    computeds: list[Computed] = []
    tries: dict[str, tuple[str, Callable[[], PropertyReport]]] = {
        "repeats": (
            "another answer each time",
            partial(check_repeats, steady, device, run=_noisy(device)),
        ),
        "memory": (
            "memory kept",
            partial(check_memory, chosen, device, run=_keeping(computeds, device)),
        ),
    }
    if computes_float64(device):
        tries["derivatives"] = (
            "derivative 3 percent too large",
            partial(check_gradients, chosen, device, alter=_steeper, largest=LARGEST),
        )
    for check, (mutation, report) in tries.items():
        subject = Seeded(
            mutation=mutation, suite=SUITE, check=check, dtype="float32", device=device
        )
        outcome = report()
        expected = (
            1 if check == "memory" and device != "cuda" else outcome.tried - len(outcome.exempt)
        )
        for i in range(expected):
            ledger.enter(subject, caught=i < len(outcome.faults))
        computeds.clear()


def _noisy(device: str) -> Execute:
    calls = iter(range(1_000_000))

    def run(case: Case, cotangent: Tensor | None, _device: str) -> Computed:
        outcome = execute_case(case, cotangent, device)
        flat = outcome.outputs[0].clone().flatten()
        flat[0] = (next(calls) % 2) == 0
        return outcome.but("output", flat.reshape(outcome.outputs[0].shape))

    return run


def _keeping(cache: list[Any], device: str) -> Execute:
    """Return a run with a cache in device memory that is never emptied."""

    def run(case: Case, cotangent: Tensor | None, _device: str) -> Computed:
        outcome = execute_case(case, cotangent, device)
        cache.append(torch.ones(512 * 1024, device=device))  # more than pages given back
        return outcome

    return run


class _Steeper(torch.autograd.Function):  # type: ignore[misc]
    """The identity, with a derivative of 1.03."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004 - torch's signature
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004 - as above
        return gradients[0] * 1.03


def _steeper(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(*inputs: Tensor) -> Tensor:
        return _Steeper.apply(function(*inputs))

    return call
