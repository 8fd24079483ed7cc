"""Optimizer steps: each judged from the device's own gradients, and the loss against float64's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from warpfront_checks.cases.bounds import Bound, Verdict, judge, rounding_unit
from warpfront_checks.models.replaying import judge_loss
from warpfront_checks.models.specimens import Specimen

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
    losses = _exact_losses(specimen)
    optimizer, shadow = device_optimizer(model), _Shadow(model)
    rows: list[Verdict] = []
    for step in range(1, STEPS + 1):
        optimizer.zero_grad(set_to_none=True)
        with specimen.precision.autocast(device):
            _, loss = model(*inputs)
        (loss * specimen.scale).backward()
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad /= specimen.scale
        rows.append(
            judge_loss(float(loss.detach()), losses[step - 1], specimen.precision, step=step)
        )
        shadow.take(model)
        optimizer.step()
        rows += shadow.judge(model, step)
    return rows


class _Shadow:
    """The same parameters in float64 on the CPU, set to the device's before every step, with an
    optimizer that remembers all gradients since the first.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = copy.deepcopy(model).cpu().double()
        self._optimizer = make_optimizer(self._model)
        self._before: dict[str, Tensor] = {}

    def take(self, model: nn.Module) -> None:
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                parameter.copy_(parameters[name].detach().cpu().double())
                gradient = parameters[name].grad
                parameter.grad = None if gradient is None else gradient.detach().cpu().double()
        self._before = {name: p.detach().clone() for name, p in self._model.named_parameters()}

    def judge(self, model: nn.Module, step: int) -> Iterator[Verdict]:
        self._optimizer.step()
        unit = rounding_unit(torch.float32)
        for name, parameter in model.named_parameters():
            exact = self._model.get_parameter(name).detach()
            update = (exact - self._before[name]).abs()
            bound = unit * (_C_PARAMETER * exact.abs() + _C_UPDATE * (update + RATE))
            verdict = judge(parameter.detach().cpu().double(), exact, Bound(slack=bound))
            place = f"{name} after step {step}"
            yield replace(verdict, layer="optimizer", kind="AdamW", name=place)


def _exact_losses(specimen: Specimen) -> list[float]:
    """Return the losses of the same steps, in float64 from the start."""
    model = copy.deepcopy(specimen.model).double()
    inputs = tuple(x.double() if x.is_floating_point() else x for x in specimen.inputs)
    optimizer, losses = make_optimizer(model), []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        with specimen.wide():
            _, loss = model(*inputs)
            loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses
