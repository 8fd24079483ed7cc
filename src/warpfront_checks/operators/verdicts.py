"""Compares one run of a case with its expectation: structure, elements, root mean square."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from warpfront_checks.check_options import STRICT
from warpfront_checks.executing import Computed
from warpfront_checks.judge import (
    CaseVerdict,
    Form,
    element_fault,
    rms_fault,
    structure_faults,
)
from warpfront_checks.operations import EVERY, FEW_NUMEL, Arithmetic, Budgeted
from warpfront_checks.operators.cases import Case, execute_case
from warpfront_checks.tolerance_profiles import Tally, opinions, tally, total

# Kinds for which the CPU's error is no baseline: its own draw; and, in fused patterns, on
# which side of ReLU's kink its rounding fell.
WITHOUT_BASELINE = frozenset({"random", "fused"})


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The expected results of a case: budgets from float64 (none for integers, which are
    compared with the CPU bit for bit). The CPU's run in the same dtype is None where it has
    no such kernel.
    """

    cotangent: Tensor | None
    budgets: tuple[Budgeted, ...]
    same_dtype: Computed | None
    dtype: torch.dtype


def expect(case: Case, dtype: torch.dtype, device: str, seed: int) -> Expectation:
    """Return the float64 reference from the case's own numbers, and the CPU's result in
    the same dtype.
    """
    exact_inputs = [x.double() if x.is_floating_point() else x for x in case.tensors]
    inputs = [x.detach() for x in case.inputs(exact_inputs)]
    reference = case.operation(*inputs)
    cotangent = _cotangent(case, reference, dtype, seed)
    budgets: tuple[Budgeted, ...] = ()
    if reference.is_floating_point() and dtype.is_floating_point:
        grad_output = torch.zeros_like(reference) if cotangent is None else cotangent.double()
        judgement = case.operation.judge(
            inputs, grad_output, Arithmetic(dtype=dtype, device=device)
        )
        gradients = judgement.gradients if cotangent is not None else ()
        budgets = (judgement.output, *gradients)
    return Expectation(
        cotangent=cotangent,
        budgets=budgets,
        same_dtype=_same_dtype(case, cotangent),
        dtype=dtype,
    )


def judge_case(
    case: Case, outcome: Computed, expected: Expectation, device: str, profile: str = STRICT
) -> CaseVerdict:
    """Judge one run by a profile; structure counts in every profile."""
    faults = list(_structure_faults(case, outcome, expected, device))
    if faults:
        refused = {name: Tally(refused=1) for name in total([])}
        return CaseVerdict(faults=tuple(faults), tallies=refused)
    if not expected.budgets:
        return _judge_exactly(outcome, expected)
    used, ratio, tallies = 0.0, 0.0, []
    for name, actual, budgeted, same in _pairs(
        outcome, expected, alone=_alone(case, expected.dtype, device)
    ):
        share, relative, message = _judge_tensor(name, actual, budgeted, same, expected.dtype)
        opinion = opinions(actual.double(), budgeted.reference, expected.dtype, strict=not message)
        tallies.append(tally(opinion))
        used, ratio = max(used, share), max(ratio, relative)
        if profile == STRICT:
            faults += message
        elif opinion[profile] is False:
            faults.append(f"{name}: further off than {profile} allows")
    return CaseVerdict(
        faults=tuple(faults), budget_used=used, rms_ratio=ratio, tallies=total(tallies)
    )


def _alone(case: Case, dtype: torch.dtype, device: str) -> bool:
    """Return whether the CPU's error in the same dtype is no baseline for the device: see
    `WITHOUT_BASELINE`. It is none either where the device rounds every addition, which the
    CPU may not.
    """
    kind, arithmetic = case.operation.kind, Arithmetic(dtype=dtype, device=device)
    rounded = {arithmetic.rounding_of(kind), arithmetic.rounding_of(f"{kind} output")}
    return kind in WITHOUT_BASELINE or EVERY in rounded


def _cotangent(case: Case, reference: Tensor, dtype: torch.dtype, seed: int) -> Tensor | None:
    if not (case.backward and reference.is_floating_point() and dtype.is_floating_point):
        return None
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn(reference.shape, generator=generator).to(dtype)


def _same_dtype(case: Case, cotangent: Tensor | None) -> Computed | None:
    try:
        return execute_case(case, cotangent, "cpu")
    except (RuntimeError, NotImplementedError) as error:
        if lacks_kernel(error):
            return None
        raise


def lacks_kernel(error: Exception) -> bool:
    """Return whether an error means that torch has no kernel for a dtype or a device, not
    that one broke.
    """
    text = str(error)
    return isinstance(error, NotImplementedError) or any(
        phrase in text
        for phrase in (
            "not implemented for",
            "not supported",
            "Unsupported",
            "mismatch in dtype",
            "Tensors of supported devices",  # fused optimizers
            "missing kernel for",  # DispatchStub, of a device that registers itself
        )
    )


def _structure_faults(
    case: Case, outcome: Computed, expected: Expectation, device: str
) -> Iterator[str]:
    same = expected.same_dtype
    exact = None if same is None else same.outputs[0]
    forms: list[Form] = [(None, None) if exact is None else (exact.shape, exact.dtype)]
    if expected.budgets:
        forms = [(budget.reference.shape, expected.dtype) for budget in expected.budgets]
    yield from structure_faults(outcome, forms, device)
    if case.strides and same is not None and outcome.strides != same.strides:
        yield f"strides {outcome.strides}, expected {same.strides}"


def _judge_exactly(outcome: Computed, expected: Expectation) -> CaseVerdict:
    """Compare integers and booleans with the CPU's, bit for bit, without any tolerance."""
    same = expected.same_dtype
    wrong = 0 if same is None else int((outcome.outputs[0] != same.outputs[0]).sum())
    correct = tally(dict.fromkeys(total([]), not wrong))
    if not wrong:
        return CaseVerdict(tallies=correct)
    fault = f"output: {wrong} of {outcome.outputs[0].numel()} elements differ from the exact ones"
    return CaseVerdict(faults=(fault,), tallies=correct)


def _pairs(
    outcome: Computed, expected: Expectation, *, alone: bool
) -> Iterator[tuple[str, Tensor, Budgeted, Tensor | None]]:
    same = None if alone else expected.same_dtype
    peers = same.all if same else (None,) * len(outcome.all)
    for name, x, budgeted, peer in zip(
        outcome.names, outcome.all, expected.budgets, peers, strict=True
    ):
        if x is not None:
            yield name, x, budgeted, peer


def _judge_tensor(
    name: str, actual: Tensor, budgeted: Budgeted, same: Tensor | None, dtype: torch.dtype
) -> tuple[float, float, list[str]]:
    """Return the share of the bound, RMS ratio, and faults of one tensor."""
    values, reference = actual.double(), budgeted.reference
    if not actual.numel():
        return 0.0, 0.0, []
    rounded = reference.to(dtype).double()
    agree = (values.isnan() & rounded.isnan()) | (values == rounded)
    finite = values.isfinite() & rounded.isfinite()
    wrong = int((~finite & ~agree).sum())
    if wrong:
        return (
            1e300,
            1e300,
            [f"{name}: {wrong} of {actual.numel()} elements are wrongly finite, infinite or NaN"],
        )
    nothing = torch.zeros_like(values)
    near = Budgeted(
        reference=torch.where(finite, reference, nothing),
        bound=torch.where(finite, budgeted.bound.expand_as(values), nothing),
    )
    values = torch.where(finite, values, nothing)
    share, fault = element_fault(name, values, near)
    faults = [fault] if fault else []
    if same is None or dtype == torch.float64 or not bool(finite.all()):
        return share, 0.0, faults
    if budgeted.walk is None and (budgeted.errors or reference.numel()) < FEW_NUMEL:
        # No sample of the CPU's errors, and nothing is known of their spread: two single roundings
        # are 8 times apart once in 13 pairs. The element's own bound has judged.
        return share, 0.0, faults
    ratio, fault = rms_fault(
        name,
        values,
        reference,
        same.double(),
        dtype,
        walk=budgeted.walk,
        errors=budgeted.errors,
    )
    return share, ratio, [*faults, *([fault] if fault else [])]
