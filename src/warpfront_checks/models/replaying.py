"""Judges a pass: every layer from the numbers that the device itself fed into it, then the whole.

A layer is run again on the CPU, in float64 and in the tested dtype, from the arguments and the
output gradient that the device had. What the device may be off by is a multiple of what the CPU is
off by in the same dtype, in root mean square and at the worst element; in the networks of
`numerics`, whose layers are known operations, what is derived for each element. So an error is
found at the layer that makes it, and later layers, which only inherit it, are not accused.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from warpfront_checks.cases.bounds import Bound, Verdict, judge
from warpfront_checks.check_options import STRICT
from warpfront_checks.executing import converted
from warpfront_checks.models.layers import derivation_of
from warpfront_checks.models.watching import Call, Pass, tensors_of
from warpfront_checks.operations import (
    HALF,
    R_SMALL,
    SMALL_NUMEL,
    Arithmetic,
    Budgeted,
    R,
    floor_of,
    rounding_unit,
)
from warpfront_checks.tolerance_profiles import opinions

# The worst element may be off by this many times the CPU's worst, or its own size's rounding. Like
# R larger in float32, where the order of summation decides: the gradient of an attention's queries
# was off by 5.1 times the CPU's worst on an H200, a batch norm's bias in bfloat16 by 4.3.
WORST = {torch.float32: 16.0, torch.bfloat16: 8.0, torch.float16: 8.0}
# The CPU is a yardstick, not an authority: what it may be off by counts up to this many roundings
# of the result's root mean square (for sums into a vector: of what was added). Beyond it, the CPU
# itself computes wrong.
YARDSTICK = 64.0
# float32 and mixed precision after one step; later steps get a band that widens with each.
LOSS_BAND = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 5e-3}


@dataclass(frozen=True, kw_only=True)
class Precision:
    """The precision of a pass: `dtype` of tensors (pure), or of the autocast region (`mixed`).
    `derived` is the device type whose derived bounds its layers have to meet, if any has.
    """

    dtype: torch.dtype
    mixed: bool = False
    derived: str = ""

    def autocast(self, device: str) -> contextlib.AbstractContextManager[object]:
        if not self.mixed:
            return contextlib.nullcontext()
        region: contextlib.AbstractContextManager[object] = torch.autocast(device, dtype=self.dtype)
        return region

    @property
    def parameters(self) -> torch.dtype:
        return torch.float32 if self.mixed else self.dtype


def judge_layers(
    calls: tuple[Call, ...],
    reference_layers: Mapping[str, nn.Module],
    passed: Pass,
    precision: Precision,
) -> list[Verdict]:
    """Return one row a tensor: outputs in the order of execution, then gradients in the order
    of the backward pass. `sent` are the layers as sent to the device, on the CPU in float32
    or the tested dtype.
    """
    forward, backward = [], []
    layers = reference_layers.values()
    owners = Counter(id(p) for layer in layers for p in layer.parameters(recurse=False))
    for call in calls:
        layer = reference_layers[call.layer]
        # What several layers share has one gradient for all of them: the whole model's business.
        shared = {f"gradient of {n}" for n, p in layer.named_parameters() if owners[id(p)] > 1}
        judged = _judge_call(call, layer, passed, precision)
        rows = [row for row in judged if row.name not in shared]
        forward += rows[:1]
        backward.append(rows[1:])
    return forward + [row for rows in reversed(backward) for row in rows]


def judge_whole(passed: Pass, exact: Pass, same_dtype: Pass, precision: Precision) -> list[Verdict]:
    """Logits and each parameter's gradient against float64 from the inputs on, and the loss."""
    ends = _ends(passed, exact, same_dtype)
    rows = [_row("whole model", "", name, tensors, precision) for name, tensors in ends]
    missing = sorted(set(exact.gradients) - set(passed.gradients))
    rows += [Verdict.failed(f"gradient of {n}", "missing", layer="whole model") for n in missing]
    return [*rows, judge_loss(passed.loss, exact.loss, precision, step=1)]


def judge_loss(loss: float, exact: float, precision: Precision, *, step: int) -> Verdict:
    """After step n the band is n times as wide: steps add up."""
    actual, expected = torch.tensor([[loss], [exact]], dtype=torch.float64)
    verdict = judge(actual, expected, Bound(slack=LOSS_BAND[precision.dtype] * step * abs(exact)))
    profiles = opinions(actual, expected, precision.dtype, strict=not verdict.fault)
    return replace(verdict, layer="loss", name=f"step {step}", profiles=profiles)


def first_over(rows: list[Verdict], profile: str = STRICT) -> Verdict | None:
    """Return the row that is over its budget first, in the order of computation."""
    return next((row for row in rows if row.fault_by(profile)), None)


def _judge_call(
    call: Call, layer: nn.Module, passed: Pass, precision: Precision
) -> Iterator[Verdict]:
    kind = type(layer).__name__
    once = call.gradient_out is not None and call.times == 1
    gradient = call.gradient_out if once else None
    bounds = _derived(call, layer, gradient, precision.derived)
    exact = {name: bound.reference for name, bound in bounds.items()}
    cpu = {name: reference.to(precision.dtype) for name, reference in exact.items()}
    if not bounds:
        exact = _replay(layer, call, gradient, torch.float64, precision)
        cpu = _replay(layer, call, gradient, None, precision)
    assert call.output is not None
    parameter_gradients = {f"gradient of {name}" for name, _ in layer.named_parameters()}
    device = {"output": call.output, **(_gradients_found(call, layer, passed) if once else {})}
    for name, reference in exact.items():
        if name not in device:
            yield Verdict.failed(name, "missing", layer=call.layer, kind=kind)
            continue
        tensors = _Tensors(
            found=device[name],
            exact=reference,
            cpu=cpu[name],
            added=_added(gradient, reference) if name in parameter_gradients else 0.0,
            walk=_walk(gradient, reference, layer) if name in parameter_gradients else 0.0,
            bound=bounds.get(name),
        )
        yield _row(call.layer, kind, name, tensors, precision)


def _derived(
    call: Call, layer: nn.Module, gradient: Tensor | None, device: str
) -> dict[str, Budgeted]:
    """Return the bounds of a layer whose operation is known, by the names of `_replay`."""
    tensors = tensors_of(call.arguments, call.options)
    operation = derivation_of(layer, next(iter(tensors.values())).dim()) if device else None
    if operation is None or gradient is None:
        return {}
    arithmetic = Arithmetic(dtype=gradient.dtype, device=device)
    named = {**tensors, **{name: p.detach() for name, p in layer.named_parameters()}}
    sources = [x.double() for x in named.values()]
    judged = operation.judge(sources, gradient.double(), arithmetic)
    names = ("output", *(f"gradient of {name}" for name in named))
    return dict(zip(names, judged, strict=True))


def _gradients_found(call: Call, layer: nn.Module, passed: Pass) -> dict[str, Tensor]:
    """Return the device's gradients of a layer's inputs and parameters, as `_replay` names them."""
    gradients = {f"gradient of {name}": gradient for name, gradient in call.gradients_in.items()}
    for name, _ in layer.named_parameters():
        gradient = passed.gradients.get(f"{call.layer}.{name}")
        if gradient is not None:
            gradients[f"gradient of {name}"] = gradient
    return gradients


def _replay(
    layer: nn.Module,
    call: Call,
    gradient: Tensor | None,
    dtype: torch.dtype | None,
    precision: Precision,
) -> dict[str, Tensor]:
    """Return the CPU's output and gradients in float64, or (None) as the device computed."""
    layer_copy = copy.deepcopy(layer) if dtype is None else copy.deepcopy(layer).to(dtype)
    layer_copy.zero_grad(set_to_none=True)

    def prepare(value: Tensor) -> Tensor:
        wide = value.is_floating_point() and dtype is not None
        return value.detach().to(dtype if wide else value.dtype).clone()

    arguments, options = converted(call.arguments, prepare), converted(call.options, prepare)
    tensors = tensors_of(arguments, options)
    leaves = {name: tensors[name] for name in call.wanted} if gradient is not None else {}
    for leaf in leaves.values():
        leaf.requires_grad_()
    region = precision.autocast("cpu") if dtype is None else contextlib.nullcontext()
    with region, torch.set_grad_enabled(gradient is not None):
        output = layer_copy(*arguments, **options)
        output = output[0] if isinstance(output, tuple) else output
    results = {"output": output.detach()}
    if gradient is not None:
        output.backward(gradient.to(output.dtype))
        leaves.update(layer_copy.named_parameters())
    computed = {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    return results | {f"gradient of {name}": grad for name, grad in computed.items()}


def _ends(passed: Pass, exact: Pass, same_dtype: Pass) -> Iterator[tuple[str, _Tensors]]:
    """Judge from end to end, where errors grow as the model lets them, on the CPU as well: it
    is the only yardstick, and single elements are judged in their layers.
    """

    def tensors(device: Tensor, reference: Tensor, cpu: Tensor) -> _Tensors:
        return _Tensors(found=device, exact=reference, cpu=cpu, yardstick=math.inf, elements=False)

    yield "logits", tensors(passed.logits, exact.logits, same_dtype.logits)
    for name, reference in exact.gradients.items():
        if name in passed.gradients:
            three = tensors(passed.gradients[name], reference, same_dtype.gradients[name])
            yield f"gradient of {name}", three


@dataclass(frozen=True, kw_only=True)
class _Tensors:
    """The same tensor from the device, in float64, and from the CPU in the tested dtype; what of
    the CPU's error counts (`YARDSTICK`), and whether single elements are judged. `added` is the
    size of what was added up to each element, where it may have cancelled, `walk` of partial sums.
    `bound` is what is derived for each element, and then decides.
    """

    found: Tensor
    exact: Tensor
    cpu: Tensor
    yardstick: float = YARDSTICK
    elements: bool = True
    added: float = 0.0
    walk: float = 0.0
    bound: Budgeted | None = None


# Their parameters belong to the second axis of what comes back, all others' to the last.
OF_CHANNELS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.Conv1d, nn.Conv2d, nn.GroupNorm)


def _walk(gradient: Tensor | None, exact: Tensor, layer: nn.Module) -> float:
    """Return for a vector of parameters the largest partial sum of the additions to one of
    them. Kernels that store partial sums in 16 bits round those, however small the result is
    (`SUMS_ROUNDED`); the worst error is where the most was added. Additions of one sample have
    mostly one sign, and only different samples are a random walk.
    """
    axis = 1 if isinstance(layer, OF_CHANNELS) else -1
    if gradient is None or exact.dim() != 1 or gradient.shape[axis] != exact.numel():
        return 0.0
    terms = gradient.double().movedim(axis, 0)
    samples = terms.flatten(2).sum(2) if terms.dim() > 2 else terms
    sizes = (each.flatten(1).square().sum(1) for each in (terms, samples))
    return float(torch.maximum(*sizes).sqrt().max())


def _added(gradient: Tensor | None, exact: Tensor) -> float:
    """Return for a vector of parameters how much gradient was added to each, without signs."""
    if gradient is None or exact.dim() != 1:
        return 0.0
    total = float(gradient.double().abs().sum())
    return total / float(exact.numel())


def _row(layer: str, kind: str, tensor: str, of: _Tensors, precision: Precision) -> Verdict:
    if fault := _structure_fault(of, precision):
        return Verdict.failed(tensor, fault, layer=layer, kind=kind)
    if not of.exact.is_floating_point():
        verdict = judge(of.found, of.exact, Bound())
        return replace(verdict, name=tensor, layer=layer, kind=kind)
    verdict = judge(of.found.double(), of.exact, _bound(of, precision))
    strict = not verdict.fault
    profiles = opinions(of.found.double(), of.exact, of.found.dtype, strict=strict)
    return replace(verdict, name=tensor, layer=layer, kind=kind, profiles=profiles)


def _structure_fault(of: _Tensors, precision: Precision) -> str:
    tensor, exact, cpu = of.found, of.exact, of.cpu
    if tensor.shape != exact.shape:
        return f"shape {tuple(tensor.shape)}, expected {tuple(exact.shape)}"
    # Which layers autocast leaves in float32 is the device type's own list.
    if tensor.dtype != cpu.dtype and not (precision.mixed and tensor.is_floating_point()):
        return f"{tensor.dtype}, expected {cpu.dtype}"
    return ""


def _bound(of: _Tensors, precision: Precision) -> Bound:
    """Return what is derived for each element, or what the CPU's error in the dtype allows."""
    if of.bound is not None:
        return Bound(slack=of.bound.bound)
    # In a mixed pass float32 gradients come out of products of rounded numbers.
    dtypes = [precision.dtype] if precision.mixed else [of.found.dtype, of.cpu.dtype]
    dtype = max(dtypes, key=rounding_unit)
    good = of.exact.isfinite()
    exact = of.exact[good]
    off, unit = (of.cpu.double() - of.exact)[good].abs(), rounding_unit(dtype)
    # Below it a result is zero but for cancellation.
    floor = floor_of(dtype) + torch.finfo(torch.float64).eps
    worst = WORST[dtype] if of.elements else math.inf
    limit = R[dtype] if exact.numel() >= SMALL_NUMEL else R_SMALL
    rounding, peak_rounding = unit * _rms(exact), unit * _peak(exact)
    base = max(min(_rms(off), of.yardstick * max(rounding, unit * of.added)), rounding, floor)
    counted = of.yardstick * max(peak_rounding, unit * of.added)
    # `c` of `operations` times a rounding of a partial sum, as `worst` times half of one.
    stored = unit * of.walk / 2 if dtype in HALF else 0.0
    peak = max(min(_peak(off), counted), peak_rounding, floor, stored)
    return Bound(slack=worst * peak, rms=limit * base)


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt()) if values.numel() else 0.0


def _peak(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0
