"""Cases of operations: inputs made on the CPU, the same numbers on every device.

A case is one call of one operation on given tensors. Families yield cases. `execute_case` runs one
on the device, and tests replace it by faulty functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from warpfront_checks.executing import Computed, computed
from warpfront_checks.operations import Operation

View = Callable[[Tensor], Tensor]
# Warps have 32 lanes, wavefronts 64: sizes around them and around the blocks made of them.
WAVE_EDGES = (31, 32, 33, 63, 64, 65, 127, 129, 1023, 1025)
QUICK_EDGES = (33, 65, 1025)
# Steps along up to five axes, modulo 251, that give no two places of a small window one value.
LATTICE = (97, 61, 37, 11, 5)


@dataclass(frozen=True)
class Case:
    """One call. `views` turn the sent tensors into the inputs on the device itself, so that
    strides survive the transfer. `strides` means that the output's strides are compared too.

    `backward` is False where a derivative does not exist or is not defined (NaN, infinities).
    """

    name: str
    operation: Operation
    tensors: tuple[Tensor, ...]
    views: tuple[View | None, ...] = ()
    backward: bool = True
    strides: bool = False
    reduces: bool = False

    def inputs(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sent tensors, each through its view."""
        views = self.views or (None,) * len(tensors)
        return [view(x) if view else x for view, x in zip(views, tensors, strict=True)]


Execute = Callable[[Case, "Tensor | None", str], Computed]


@dataclass(frozen=True, kw_only=True)
class Maker:
    """Random numbers of one dtype from one seed. Integers are small, so that sums of them fit."""

    dtype: torch.dtype
    generator: torch.Generator
    quick: bool = False

    @property
    def floating(self) -> bool:
        return bool(self.dtype.is_floating_point)

    @property
    def edges(self) -> tuple[int, ...]:
        return QUICK_EDGES if self.quick else WAVE_EDGES

    def normal(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> Tensor:
        """Return normal numbers; small integers or booleans where the dtype is one of those."""
        if self.dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=self.generator).bool()
        if not self.floating:
            return torch.randint(-9, 10, shape, generator=self.generator).to(self.dtype)
        return (torch.randn(shape, generator=self.generator) * scale + mean).to(self.dtype)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        return (torch.rand(shape, generator=self.generator) * (high - low) + low).to(self.dtype)

    def positive(self, *shape: int) -> Tensor:
        """Return numbers between 1/2 and 5/2; integers from 1 to 9."""
        if not self.floating:
            return torch.randint(1, 10, shape, generator=self.generator).to(self.dtype)
        return self.uniform(0.5, 2.5, *shape)

    def distinct(self, *shape: int) -> Tensor:
        """Return numbers without equals within 251 in a row or near each other in a window, in
        any dtype. Between equals, devices may choose freely.
        """
        position = torch.zeros(shape, dtype=torch.long)
        for axis, size in enumerate(shape):
            along = [-1 if i == axis else 1 for i in range(len(shape))]
            position = position + torch.arange(size).reshape(along) * LATTICE[axis - len(shape)]
        values = torch.randperm(251, generator=self.generator) - 125
        result = values[position % 251]
        return (result / 16).to(self.dtype) if self.floating else result.to(self.dtype)

    def indices(self, high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=self.generator)

    def special(self) -> Tensor:
        """Return NaN, infinities, both zeros, the extremes, and numbers too small to be normal."""
        info = torch.finfo(self.dtype)
        tiny, subnormal = info.smallest_normal, info.smallest_normal * info.eps
        bounds = (info.max, tiny, subnormal, tiny / 2)
        signed = [sign * x for x in (float("inf"), 0.0, 1.0, *bounds) for sign in (1.0, -1.0)]
        return torch.tensor([float("nan"), *signed], dtype=torch.float64).to(self.dtype)


Cases = Callable[[Maker], Iterator[Case]]


@dataclass(frozen=True, kw_only=True)
class OperatorFamily:
    """The operations that one module makes cases for, by the names of `table.json`."""

    name: str
    cases: Mapping[str, Cases] = field(default_factory=dict)


def make_maker(dtype: torch.dtype, seed: int, *, quick: bool = False) -> Maker:
    return Maker(dtype=dtype, generator=torch.Generator().manual_seed(seed), quick=quick)


def execute_case(case: Case, cotangent: Tensor | None, device: str) -> Computed:
    """Compute a case on a device, with gradients if there is a cotangent (on the CPU)."""
    floating = [x.is_floating_point() for x in case.tensors]
    arguments = [
        x.detach().to(device).requires_grad_(is_float and cotangent is not None)
        for x, is_float in zip(case.tensors, floating, strict=True)
    ]
    inputs = case.inputs(arguments)
    leaves = [x for x, is_float in zip(inputs, floating, strict=True) if is_float]
    grad_outputs = None if cotangent is None else [cotangent.to(device)]
    return computed(lambda: case.operation(*inputs), leaves, grad_outputs)
