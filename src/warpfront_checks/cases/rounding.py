"""What one rounding does to a float64 call: operands that are off by one, or each step's result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from warpfront_checks.cases.bounds import floor_of, rounding_unit
from warpfront_checks.executing import DispatchMode

# aten's derivative of a fused attention on the CPU.
FUSED_BACKWARD = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"


class RoundedSteps(DispatchMode):
    """A mode that rounds the result of each step of a float64 call to a dtype, up or down by
    chance (Monte Carlo arithmetic: D. S. Parker, UCLA CSD-970002, 1997), or a `share` of the way.

    Results that the dtype represents, such as selected or copied numbers, stay as they are.

    Of a fused attention's output each number is, for the backward, a whole rounding off, all to one
    side of the gradient. The kernel takes its product with the gradient from what was given to each
    key; keys are alike, and what that product is off by is multiplied by what they have in common.
    On an H200 the gradients of queries were 3 to 9 times as far off as with single steps, by that.
    """

    def __init__(self, dtype: torch.dtype, seed: int, share: float = 1.0) -> None:
        super().__init__()
        self.share = share
        self.real = torch.empty(0, dtype=dtype).real.dtype
        self.generator = torch.Generator().manual_seed(seed)

    def computed(self, operator: Any, args: Any, kwargs: Any) -> Any:
        if operator.name() == FUSED_BACKWARD:
            args = self._one_sided(*args)
        dispatch = operator(*args, **kwargs)
        aliases = [result.alias_info for result in operator._schema.returns]
        if any(alias is not None and not alias.is_write for alias in aliases):
            return dispatch
        # Not in the modes around this one: an oracle would compute each of its steps by numpy.
        with torch._C._DisableTorchDispatch():
            for x in dense_in(dispatch):
                if x.dtype in {torch.float64, torch.complex128}:
                    self._round(x.data)
        return dispatch

    def _one_sided(
        self, gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, *more: Any
    ) -> tuple[Any, ...]:
        side = torch.randint(2, (), generator=self.generator) * 2 - 1
        off = rounding_unit(self.real) * side * output.abs() * gradient.sign()
        return gradient, q, k, v, output + off, *more

    def _round(self, x: Tensor) -> None:
        numbers = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
        down = numbers.to(self.real).double()
        noise = torch.rand(down.shape, generator=self.generator, dtype=torch.float64) - 0.5
        step = 2 * (rounding_unit(self.real) * numbers.abs() + floor_of(self.real))
        rounded = (numbers + noise * step).to(self.real).double()
        rounded = rounded if self.share == 1 else numbers.lerp(rounded, self.share)
        rounded = torch.where((down == numbers) | ~numbers.isfinite(), numbers, rounded)
        x.copy_(torch.view_as_complex(rounded) if x.is_complex() else rounded)


class LargestStep(DispatchMode):
    """A mode that keeps the largest finite number of all results of a float64 call's steps."""

    largest = 0.0

    def computed(self, operator: Any, args: Any, kwargs: Any) -> Any:
        dispatch = operator(*args, **kwargs)
        for x in dense_in(dispatch):
            if x.dtype == torch.float64:
                numbers = x.detach().abs().nan_to_num(posinf=0.0)
                self.largest = max(self.largest, float(numbers.max()))
        return dispatch


def disturbed(
    x: Tensor,
    dtype: torch.dtype,
    generator: torch.Generator,
    *,
    by_matrix: bool = False,
    integers: bool = False,
    share: float = 1.0,
) -> Tensor:
    """Move every number by up to one rounding of `dtype`, or a `share` of it, of its matrix's root
    mean square with `by_matrix`. Without `integers` these stay: they may be classes or signs.
    """
    if not differentiable(x) or x.layout != torch.strided:
        return x
    noise = torch.rand(x.shape, generator=generator, dtype=torch.float64) * 2 - 1
    size = x
    if by_matrix and x.dim() > 1:
        size = size.abs()
        size = size.maximum(size.square().mean((-2, -1), keepdim=True).sqrt())
    moved = x + share * rounding_unit(dtype) * noise * size
    # The sum of zeros of two signs is one without.
    moved = torch.where(moved == 0, x, moved)
    return moved if integers or x.is_complex() else torch.where(x == x.round(), x, moved)


def dense_in(value: Any) -> Iterator[Tensor]:
    """Yield the dense tensors with numbers. A zero tensor, as some gradients are, has no memory."""
    for x in tree_leaves(value):
        dense = isinstance(x, Tensor) and x.layout == torch.strided and x.numel()
        if dense and not x._is_zerotensor():
            yield x


def differentiable(x: Tensor) -> bool:
    """Return whether a tensor has real or complex numbers."""
    return bool(x.is_floating_point() or x.is_complex())


def rms_of(x: Tensor) -> float:
    """Return the root mean square, 0 of nothing."""
    return float(x.square().mean().sqrt()) if x.numel() else 0.0
