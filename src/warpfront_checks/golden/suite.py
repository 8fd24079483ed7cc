"""The golden suite: single operations on small tensors, forward and backward.

Single operations, because two devices can only be compared on the same numbers: then the difference
of two correct answers is at most the sum of their budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.operations import (
    BATCH_NORM,
    LINEAR,
    Arithmetic,
    Attention,
    Budgeted,
    Operation,
    Pointwise,
    convolution,
    layer_norm,
)

Inputs = tuple[Tensor, ...]
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class GoldenCase:
    """An operation, and for each input its shape, deviation and mean."""

    name: str
    operation: Operation
    inputs: tuple[tuple[tuple[int, ...], float, float], ...]

    def make(self, dtype: torch.dtype, seed: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return inputs and the gradient for the output, rounded to the dtype, on the CPU."""
        generator = torch.Generator().manual_seed(seed)
        drawn = [
            (torch.randn(s, generator=generator) * scale + mean) for s, scale, mean in self.inputs
        ]
        inputs = tuple(x.to(dtype) for x in drawn)
        output = self.operation(*(x.double() for x in inputs))
        return inputs, torch.randn(output.shape, generator=generator).to(dtype)

    def expect(self, inputs: Inputs, cotangent: Tensor, device: str) -> dict[str, Budgeted]:
        """Return float64 and the budget of a device type, for `out` and `grad/N`."""
        arithmetic = Arithmetic(dtype=cotangent.dtype, device=device)
        sources = [x.double() for x in inputs]
        output, *gradients = self.operation.judge(sources, cotangent.double(), arithmetic)
        return {"out": output, **{f"grad/{n}": budget for n, budget in enumerate(gradients)}}


Compute = Callable[[Operation, Inputs, Tensor, str], Tensors]


def compute(operation: Operation, inputs: Inputs, cotangent: Tensor, device: str) -> Tensors:
    """Return `out` and `grad/N` of a device, where they are. Tests put faulty ones here."""
    leaves = [x.to(device).detach().requires_grad_() for x in inputs]
    output = operation(*leaves)
    gradients = torch.autograd.grad(output, leaves, cotangent.to(device))
    return {"out": output.detach(), **{f"grad/{n}": g for n, g in enumerate(gradients)}}


CASES = (
    GoldenCase(
        "linear", LINEAR, (((17, 33), 1.0, 0.0), ((9, 33), 33**-0.5, 0.0), ((9,), 0.5, 0.0))
    ),
    GoldenCase("linear of 513 terms", LINEAR, (((2, 513), 1.0, 0.0), ((3, 513), 513**-0.5, 0.0))),
    GoldenCase(
        "convolution",
        convolution(padding=1, stride=2),
        (((2, 3, 7, 7), 1.0, 0.0), ((5, 3, 3, 3), 27**-0.5, 0.0), ((5,), 0.5, 0.0)),
    ),
    GoldenCase("gelu", Pointwise(function=functional.gelu), (((129,), 2.0, 0.0),)),
    GoldenCase("silu", Pointwise(function=functional.silu), (((127,), 2.0, 0.0),)),
    GoldenCase(
        "layer norm", layer_norm(2), (((7, 65), 1.0, 0.5), ((65,), 0.2, 1.0), ((65,), 0.5, 0.0))
    ),
    GoldenCase(
        "batch norm", BATCH_NORM, (((3, 5, 5, 5), 1.0, 0.5), ((5,), 0.2, 1.0), ((5,), 0.5, 0.0))
    ),
    GoldenCase("attention", Attention(heads=2), tuple(((1, 33, 32), 1.0, 0.0) for _ in range(3))),
)
BY_NAME = {case.name: case for case in CASES}
