"""The golden suite: single operations on small tensors, forward and backward.

Single operations, because two devices can only be compared on the same numbers: then the difference
of two correct answers is at most twice their bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.cases.bounds import Bound
from warpfront_checks.cases.measured import Limits
from warpfront_checks.executing import differentiated

Inputs = tuple[Tensor, ...]
Tensors = Mapping[str, Tensor]
Operation = Callable[..., Tensor]
HEADS = 2


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

    def expect(self, inputs: Inputs, cotangent: Tensor) -> dict[str, tuple[Tensor, Bound]]:
        """Return float64 and the bound of each tensor, for `out` and `grad/N`."""
        exact = differentiated(self.operation, [x.double() for x in inputs], cotangent.double())
        cpu = differentiated(self.operation, inputs, cotangent)
        terms = float(cotangent.double().abs().sum())
        bounds = [
            Limits.by_cpu(x, wide, x, x.dtype, added=terms / wide.numel() * (n > 0)).bound
            for n, (x, wide) in enumerate(zip(cpu, exact, strict=True))
        ]
        return dict(zip(names_of(len(inputs)), zip(exact, bounds, strict=True), strict=True))


def names_of(inputs: int) -> tuple[str, ...]:
    """Return the names of the output and of the gradient of each input."""
    return ("out", *(f"grad/{n}" for n in range(inputs)))


Compute = Callable[[Operation, Inputs, Tensor, str], Tensors]


def compute(operation: Operation, inputs: Inputs, cotangent: Tensor, device: str) -> Tensors:
    """Return `out` and `grad/N` of a device, where they are. Tests put faulty ones here."""
    computed = differentiated(operation, [x.to(device) for x in inputs], cotangent.to(device))
    return dict(zip(names_of(len(inputs)), computed, strict=True))


def _batch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.batch_norm(x, None, None, weight, bias, training=True)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias)


def _attention(*inputs: Tensor) -> Tensor:
    q, k, v = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in inputs)
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)


CASES = (
    GoldenCase(
        "linear",
        functional.linear,
        (((17, 33), 1.0, 0.0), ((9, 33), 33**-0.5, 0.0), ((9,), 0.5, 0.0)),
    ),
    GoldenCase(
        "linear of 513 terms",
        functional.linear,
        (((2, 513), 1.0, 0.0), ((3, 513), 513**-0.5, 0.0)),
    ),
    GoldenCase(
        "convolution",
        partial(functional.conv2d, padding=1, stride=2),
        (((2, 3, 7, 7), 1.0, 0.0), ((5, 3, 3, 3), 27**-0.5, 0.0), ((5,), 0.5, 0.0)),
    ),
    GoldenCase("gelu", functional.gelu, (((129,), 2.0, 0.0),)),
    GoldenCase("silu", functional.silu, (((127,), 2.0, 0.0),)),
    GoldenCase(
        "layer norm", _layer_norm, (((7, 65), 1.0, 0.5), ((65,), 0.2, 1.0), ((65,), 0.5, 0.0))
    ),
    GoldenCase(
        "batch norm", _batch_norm, (((3, 5, 5, 5), 1.0, 0.5), ((5,), 0.2, 1.0), ((5,), 0.5, 0.0))
    ),
    GoldenCase("attention", _attention, tuple(((1, 33, 32), 1.0, 0.0) for _ in range(3))),
)
BY_NAME = {case.name: case for case in CASES}
