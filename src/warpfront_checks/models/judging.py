"""Judges a pass: every layer from the numbers that the device itself fed into it, then the whole.

A layer is run again on the CPU, in float64 and in the tested dtype, from the arguments and the
output gradient that the device had. What the device may be off by is a multiple of what the CPU is
off by in the same dtype (`Limits.by_cpu`). So an error is actual at the layer that makes it, and
later layers, which only inherit it, are not accused.

Optimizer steps are judged from the device's own gradients, and their loss by float64's.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from warpfront_checks.cases.bounds import Bound, Verdict, judge, judge_by_all, rounding_unit
from warpfront_checks.cases.measured import R_STEPS, Limits
from warpfront_checks.models.passes import Pass, Precision, Specimen
from warpfront_checks.models.provider import LayerCall

# float32 and mixed precision after one step; later steps get a band that widens with each.
LOSS_BAND = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 5e-3}


def judge_layers(
    reference_layers: Mapping[str, nn.Module],
    passed: Pass,
    specimen: Specimen,
    *,
    keeps: Callable[[str, str], bool] = lambda _layer, _tensor: True,
    left_out: dict[str, str] | None = None,
) -> list[Verdict]:
    """Return one row a tensor that `keeps` names by layer and name: outputs in the order of
    execution, then gradients in the order of the backward pass. The layers are the CPU's, as they
    were sent to the device. With `left_out`, one that cannot be run again is named there.
    """
    forward, backward = [], []
    layers = reference_layers.values()
    owners = Counter(id(p) for layer in layers for p in layer.parameters(recurse=False))
    for call in passed.calls:
        if call.output is None and left_out is not None:
            continue
        layer = reference_layers[call.layer]
        # What several layers share has one gradient for all of them: the whole model's business.
        shared = {f"gradient of {n}" for n, p in layer.named_parameters() if owners[id(p)] > 1}
        try:
            mine = LayerCall(call=call, layer=layer, specimen=specimen)
            judged = list(mine.verdicts(passed))
        except Exception as error:
            if left_out is None:
                raise
            reason = first_line(error.__cause__ or error)
            left_out.setdefault(call.layer, f"not run again: {reason}")
            continue
        rows = [row for row in judged if row.name not in shared and keeps(call.layer, row.name)]
        forward += rows[:1]
        backward.append(rows[1:])
    return forward + [row for rows in reversed(backward) for row in rows]


def first_line(error: BaseException) -> str:
    """Return an exception's type and the beginning of its message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def judge_ends(passed: Pass, specimen: Specimen) -> list[Verdict]:
    """Judge from end to end: logits and each parameter's gradient against float64 from the inputs
    on, and the loss. Errors grow as the model lets them, on the CPU as well: it is the only
    yardstick, and single elements are judged in their layers. If much cancels, the CPU's own errors
    may be small by luck: excess is compared with passes in float64 that round each step.
    """
    exact, precision = specimen.exact, specimen.precision
    rows = [_end("logits", passed, specimen)]
    for name in exact.gradients:
        row = Verdict.failed(f"gradient of {name}", "missing")
        rows.append(_end(name, passed, specimen) if name in passed.gradients else row)
    rows = [replace(row, layer="whole model") for row in rows]
    return [*rows, judge_loss(passed.loss, exact.loss, precision, step=1)]


def _end(name: str, passed: Pass, specimen: Specimen) -> Verdict:
    def of(each: Pass) -> Tensor:
        return each.logits if name == "logits" else each.gradients[name]

    actual, exact, cpu = (of(each) for each in (passed, specimen.exact, specimen.same_dtype))
    label = name if name == "logits" else f"gradient of {name}"
    precision = specimen.precision
    if fault := precision.fault_of(actual, cpu):
        return Verdict.failed(label, fault)
    if actual.shape != exact.shape:
        return Verdict.failed(label, judge(actual, exact, Bound()).fault)
    limits = Limits.by_cpu(actual, exact, cpu, precision.kind(cpu), most=math.inf)
    bound = Bound(slack=math.inf, rms=limits.bound.rms)
    verdict = judge_by_all(actual, exact, bound, actual.dtype)
    if verdict.fault:
        limits = limits.eased([of(each) for each in specimen.rounded], exact, R_STEPS)
        bound = replace(bound, rms=limits.bound.rms)
        verdict = judge_by_all(actual, exact, bound, actual.dtype)
    return replace(verdict, name=label)


def judge_places(passed: Pass, device: str) -> list[Verdict]:
    """Judge that everything was computed on the device."""
    elsewhere = ", ".join(sorted(passed.places - {device}))
    fault = f"computed on {elsewhere}, not on {device}"
    return [Verdict.failed("all", fault, layer="device") if elsewhere else Verdict(layer="device")]


def judge_loss(loss: float, exact: float, precision: Precision, *, step: int) -> Verdict:
    """After step n the band is n times as wide: steps add up."""
    actual, expected = torch.tensor([[loss], [exact]], dtype=torch.float64)
    bound = Bound(slack=LOSS_BAND[precision.dtype] * step * abs(exact))
    verdict = judge_by_all(actual, expected, bound, precision.dtype)
    return replace(verdict, layer="loss", name=f"step {step}")


def first_over(rows: list[Verdict]) -> Verdict | None:
    """Return the row that is over its budget first, in the order of computation."""
    return next((row for row in rows if row.fault_by()), None)


STEPS = 3
RATE = 1e-3
# AdamW in float32 against float64: the parameter is rounded by its decay and by its update (at most
# 1.07 of twice a rounding was seen on the CPU), the update is a quotient of two running means and
# carries some twenty roundings, of the step's size where those means cancel.
_C_PARAMETER, _C_UPDATE = 4.0, 64.0


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)


def judge_training(
    specimen: Specimen,
    device: str,
    tamper: Callable[[nn.Module], None],
    device_optimizer: Callable[[nn.Module], torch.optim.Optimizer] = make_optimizer,
) -> list[Verdict]:
    """Judge `STEPS` steps of AdamW with float32 parameters. Rows: every parameter after every
    step, from the gradients that the device itself computed, and the loss of every step.
    """
    model, inputs = specimen.sent(device)
    tamper(model)
    # The same steps in float64 from the start, for their losses.
    exact_model = copy.deepcopy(specimen.model).double()
    exact_inputs = tuple(x.double() if x.is_floating_point() else x for x in specimen.inputs)
    # The device's parameters before each step, and an optimizer that remembers its gradients.
    shadow = copy.deepcopy(model).cpu().double()
    optimizers = [make_optimizer(exact_model), make_optimizer(shadow), device_optimizer(model)]
    pairs = [(name, p, shadow.get_parameter(name)) for name, p in model.named_parameters()]
    unit = rounding_unit(torch.float32)
    rows: list[Verdict] = []
    for step in range(1, STEPS + 1):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        with specimen.wide():
            _, exact_loss = exact_model(*exact_inputs)
            exact_loss.backward()
        with specimen.precision.autocast(device):
            _, loss = model(*inputs)
        (loss * specimen.scale).backward()
        losses = float(loss.detach()), float(exact_loss.detach())
        rows.append(judge_loss(*losses, specimen.precision, step=step))
        for _, parameter, exact in pairs:
            exact.data.copy_(parameter.detach().cpu().double())
            if parameter.grad is not None:
                parameter.grad /= specimen.scale
                exact.grad = parameter.grad.detach().cpu().double()
        before = {name: exact.detach().clone() for name, _, exact in pairs}
        for optimizer in optimizers:
            optimizer.step()
        for name, parameter, exact in pairs:
            update = (exact.detach() - before[name]).abs()
            bound = unit * (_C_PARAMETER * exact.detach().abs() + _C_UPDATE * (update + RATE))
            verdict = judge(parameter.detach().cpu().double(), exact.detach(), Bound(slack=bound))
            place = f"{name} after step {step}"
            rows.append(replace(verdict, layer="optimizer", kind="AdamW", name=place))
    return rows
