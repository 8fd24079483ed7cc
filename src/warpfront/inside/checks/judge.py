"""Compares what a device computed with what it should have: every value and every gradient of a
block.

Each operation is judged from the device's own numbers that went into it, so an error is found where
it is made and not excused by errors made before it. The block as a whole is then judged against a
float64 run from the leaves, by root mean square against what the CPU manages in the same dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from warpfront.inside.checks.blocks import Block, Inputs, Node, Trace, execute
from warpfront.inside.checks.effort import STRICT
from warpfront.inside.checks.operations import (
    FEW_NUMEL,
    R_SMALL,
    SMALL_NUMEL,
    Arithmetic,
    Budgeted,
    R,
    rounding_unit,
)
from warpfront.inside.checks.opinions import Tally, opinions, tally, total


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What the CPU says of the same inputs: in float64, and in the tested dtype."""

    exact: Trace
    same_dtype: Trace


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Faults in words, and how much of each budget was used (1 = all of it), per tensor."""

    faults: tuple[str, ...]
    budget_used: Mapping[str, float]
    rms_ratio: Mapping[str, float]
    tallies: Mapping[str, Tally] = field(default_factory=dict)


def make_baseline(block: Block, inputs: Inputs) -> Baseline:
    """Both CPU runs of a block; the float64 one starts from the same rounded numbers."""
    exact = Inputs(
        leaves={name: leaf.double() for name, leaf in inputs.leaves.items()},
        cotangent=inputs.cotangent.double(),
    )
    return Baseline(exact=execute(block, exact, "cpu"), same_dtype=execute(block, inputs, "cpu"))


def judge(
    block: Block,
    inputs: Inputs,
    trace: Trace,
    baseline: Baseline,
    device: str,
    *,
    profile: str = STRICT,
) -> Verdict:
    """Judge one run of a block on a device. Structure first: values of the wrong shape
    are not compared.
    """
    dtype = inputs.cotangent.dtype
    faults = list(_structure_faults(block, trace, baseline, device, dtype))
    if faults:
        return Verdict(faults=tuple(faults), budget_used={}, rms_ratio={})
    faults += [
        f"{name}: the device's copy differs from what was sent"
        for name, leaf in inputs.leaves.items()
        if not torch.equal(trace.values[name], leaf)
    ]
    used: dict[str, float] = {}
    tallies: list[dict[str, Tally]] = []
    for name, found, budgeted in _budgets(
        block, inputs, trace, Arithmetic(dtype=dtype, device=device)
    ):
        used[name], fault = element_fault(name, found, budgeted)
        said = opinions(found, budgeted.reference, dtype, strict=not fault)
        tallies.append(tally(said))
        faults += _faults_by(profile, name, fault, said)
    ratios: dict[str, float] = {}
    for name, found, exact, same in _ends(block, trace, baseline):
        ratios[name], fault = rms_fault(name, found.double(), exact, same.double(), dtype)
        faults += [fault] if fault and profile == STRICT else []
    return Verdict(faults=tuple(faults), budget_used=used, rms_ratio=ratios, tallies=total(tallies))


def form_fault(found: Tensor | None, shape: torch.Size | None, dtype: torch.dtype | None) -> str:
    """How a result is not of the form that was asked for, or nothing. None: any will do."""
    if found is None:
        return "missing"
    if shape is not None and found.shape != shape:
        return f"shape {tuple(found.shape)}, expected {tuple(shape)}"
    if dtype is not None and found.dtype != dtype:
        return f"{found.dtype}, expected {dtype}"
    return ""


def place_fault(places: Sequence[str], device: str) -> str:
    """Where results were found, if not all on the device; nothing found is nowhere."""
    wrong = [place for place in places if place != device] if places else ["no device"]
    return f"on {wrong[0]}, expected on {device}" if wrong else ""


def _faults_by(profile: str, name: str, fault: str, said: Mapping[str, bool | None]) -> list[str]:
    """Our own fault in words, or that the profile which decides refuses the tensor."""
    if profile == STRICT:
        return [fault] if fault else []
    return [f"{name}: further off than {profile} allows"] if said[profile] is False else []


def _structure_faults(
    block: Block, trace: Trace, baseline: Baseline, device: str, dtype: torch.dtype
) -> Iterator[str]:
    for kind, found, expected in (
        ("", trace.values, baseline.exact.values),
        ("grad:", trace.gradients, baseline.exact.gradients),
    ):
        for name, reference in expected.items():
            label = f"{kind}{name}{_operation_of(block, name)}"
            value = found.get(name)
            if fault := form_fault(value, reference.shape, dtype):
                yield f"{label}: {fault}"
            elif value is None:
                continue
            elif trace.devices.get(f"{kind}{name}") != device:
                yield f"{label}: on {trace.devices.get(f'{kind}{name}')}, expected on {device}"
            elif not torch.equal(value.isfinite(), reference.isfinite()):
                bad = int((value.isfinite() != reference.isfinite()).sum())
                yield f"{label}: {bad} of {value.numel()} elements are wrongly finite or not"


def _budgets(
    block: Block, inputs: Inputs, trace: Trace, how: Arithmetic
) -> Iterator[tuple[str, Tensor, Budgeted]]:
    """Every node's output and every gradient, each with its budget. A value used n times gets
    n gradients added.
    """
    last = block.nodes[-1].name
    parts: dict[str, list[Budgeted]] = {}
    makers: dict[str, list[str]] = {}
    for node in block.nodes:
        cotangent = inputs.cotangent if node.name == last else trace.gradients[node.name]
        sources = [trace.values[name].double() for name in node.inputs]
        judgement = node.operation.judge(sources, cotangent.double(), how)
        yield (
            f"{node.name} ({node.operation.kind})",
            trace.values[node.name].double(),
            judgement.output,
        )
        for name, gradient in zip(node.inputs, judgement.gradients, strict=True):
            parts.setdefault(name, []).append(gradient)
            makers.setdefault(name, []).append(_label(node))
    for name, found in trace.gradients.items():
        if name != last:
            label = f"grad:{name} ({', '.join(dict.fromkeys(makers[name]))} backward)"
            yield label, found.double(), _added(parts[name], how)


def _added(parts: list[Budgeted], how: Arithmetic) -> Budgeted:
    """The budget of a sum of separately rounded gradients: each addition rounds once more."""
    size = sum((part.reference.abs() for part in parts), start=torch.zeros(()).double())
    rounding = (len(parts) - 1) * how.unit * size
    return Budgeted(
        reference=torch.stack([part.reference for part in parts]).sum(0),
        bound=torch.stack([part.bound for part in parts]).sum(0) + rounding,
    )


def element_fault(name: str, found: Tensor, budgeted: Budgeted) -> tuple[float, str]:
    """The largest share of its bound that any element used, and the fault in words if that
    is over 1.
    """
    error = (found - budgeted.reference).abs()
    tiny = torch.finfo(torch.float64).smallest_normal
    shares = torch.where(
        error == 0, torch.zeros_like(error), error / budgeted.bound.clamp(min=tiny)
    )
    position = int(shares.argmax())
    share = float(shares.flatten()[position])
    if share <= 1:
        return share, ""
    index = [int(i) for i in torch.unravel_index(torch.tensor(position), found.shape)]
    values = (
        t.expand_as(found).flatten()[position]
        for t in (found, budgeted.reference, error, budgeted.bound)
    )
    device, reference, worst, bound = (float(value) for value in values)
    return min(share, 1e300), (
        f"{name}: worst element {index}: device {device:.8g}, reference {reference:.8g},"
        f" error {worst:.3g} over the bound {bound:.3g};"
        f" {int((shares > 1).sum())} of {found.numel()} elements are over theirs"
    )


def _ends(
    block: Block, trace: Trace, baseline: Baseline
) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """The block's output and the gradient of every leaf: device, float64, CPU in the same dtype."""
    last = block.nodes[-1].name
    yield last, trace.values[last], baseline.exact.values[last], baseline.same_dtype.values[last]
    for name in block.leaves:
        yield (
            f"grad:{name}",
            trace.gradients[name],
            baseline.exact.gradients[name],
            baseline.same_dtype.gradients[name],
        )


def rms_fault(
    name: str,
    found: Tensor,
    exact: Tensor,
    same_dtype: Tensor,
    dtype: torch.dtype,
    *,
    walk: Tensor | None = None,
    errors: int = 0,
) -> tuple[float, str]:
    """The device's root mean square error over the CPU's in the same dtype, or over one rounding
    (for few independent errors also of the sums behind them, see `Budgeted`) if that is larger.
    """
    allowed = max(_rms(same_dtype - exact), rounding_unit(dtype) * _rms(exact))
    if walk is not None and (errors or exact.numel()) < FEW_NUMEL:
        allowed = max(allowed, _rms(walk.expand_as(exact)))
    error, limit = (
        _rms(found - exact),
        R.get(dtype, R_SMALL) if exact.numel() >= SMALL_NUMEL else R_SMALL,
    )
    ratio = error / allowed if allowed else (0.0 if error == 0 else 1e300)
    if ratio <= limit:
        return ratio, ""
    return min(ratio, 1e300), (
        f"{name}: RMS error {error:.3g} is {ratio:.3g} times what the CPU's {dtype} gives"
        f" ({limit:g} allowed)"
    )


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def _operation_of(block: Block, name: str) -> str:
    return next((f" ({node.operation.kind})" for node in block.nodes if node.name == name), "")


def _label(node: Node) -> str:
    return f"{node.name} {node.operation.kind}"
