"""Kernels that are wrong about places: results in memory with gaps, formats of one, two and three
axes; and about whole numbers that no float has.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpfront.inside.checks.hazards.seeding import Kernel, KernelFault

DESTINATIONS, AXES, WHOLE = "destinations", "axes", "whole numbers"


def _strides_guessed(right: Kernel, *args: Any, out: Tensor, **how: Any) -> Tensor:
    """What is right lies as if the memory had neither gaps nor another order."""
    right(*args, out=out, **how)
    if out.numel() and not out.is_contiguous():
        values = out.clone(memory_format=torch.contiguous_format)
        there = out.as_strided((out.numel(),), (1,))
        there.copy_(values.flatten()) if _room(out) >= out.numel() else out.zero_()
    return out


def _room(x: Tensor) -> int:
    return int(x.untyped_storage().nbytes() // x.element_size() - x.storage_offset())


def _last_unwritten(right: Kernel, x: Tensor, *more: Any, **how: Any) -> Tensor:
    if x.dim() < 2 or x.is_contiguous():
        return right(x, *more, **how)
    before = x[..., -1].clone()
    right(x, *more, **how)
    x[..., -1] = before
    return x


def _cut_off(right: Kernel, x: Tensor, y: Tensor, *, rounding_mode: str | None) -> Tensor:
    return right(x, y, rounding_mode=rounding_mode and "trunc")


def _one_further(right: Kernel, x: Tensor, k: int, *more: Any, **how: Any) -> Any:
    return right(x, min(k + 1, x.shape[-1]), *more, **how)


def _channels_by_factor(right: Kernel, x: Tensor, factor: int) -> Tensor:
    if x.dim() == 4 and not x.is_contiguous():
        x = x.unflatten(1, (factor**2, -1)).transpose(1, 2).flatten(1, 2)
    return right(x, factor)


def _depth_for_height(right: Kernel, x: Tensor, size: Any, *more: Any, **how: Any) -> Tensor:
    found = right(x, size, *more, **how)
    found[:, :, 1] = found[:, :, 0]
    return found


def _overlaps_lost(right: Kernel, grad: Tensor, x: Tensor, *more: Any, **how: Any) -> Tensor:
    found = right(grad, x, *more, **how)
    places = more[-1].flatten(2)
    alone = torch.zeros_like(x, memory_format=torch.contiguous_format).flatten(2)
    alone.scatter_(2, places, grad.flatten(2))
    return found.copy_(alone.view(x.shape))


def _corner_lost(right: Kernel, grad: Tensor, x: Tensor, padding: Any, **how: Any) -> Tensor:
    cut = grad.clone()
    cut[..., 0, 0, 0] = 0
    return right(cut, x, padding, **how)


def _last_group_lost(right: Kernel, grad: Tensor, x: Tensor, weight: Tensor, *more: Any) -> Any:
    found = right(grad, x, weight, *more)
    groups = more[6]
    if x.dim() == 3 and groups > 1 and found[1] is not None:
        found[1][-(weight.shape[0] // groups) :] = 0
    return found


def _through_float(right: Kernel, x: Tensor, y: Tensor, *, rounding_mode: str | None) -> Tensor:
    found = right(x, y, rounding_mode=rounding_mode)
    if found.is_floating_point() or rounding_mode != "floor":
        return found
    return found.copy_((x.float() / y.float()).floor())


def _added_in_double(right: Kernel, x: Tensor, y: Tensor, **how: Any) -> Tensor:
    found = right(x, y, **how)
    if found.dtype != torch.int64 or x.dim() < 2:
        return found
    return found.copy_(torch.where(found.abs() > 2**53, found & -1024, found))


PLACE_FAULTS: tuple[KernelFault, ...] = (
    KernelFault(
        "bmm guesses the strides of its output",
        ("bmm.out",),
        _strides_guessed,
        DESTINATIONS,
        ("bmm into memory",),
        like="aiter#5385",
    ),
    KernelFault(
        "cat guesses the strides of its output",
        ("cat.out",),
        _strides_guessed,
        DESTINATIONS,
        ("cat into memory",),
        like="aiter#5385",
    ),
    KernelFault(
        "exp in place leaves a column", ("exp_",), _last_unwritten, DESTINATIONS, ("exp in place",)
    ),
    KernelFault(
        "a quotient in place is cut off, not rounded down",
        ("div_.Tensor_mode",),
        _cut_off,
        DESTINATIONS,
        ("floor of a quotient in place",),
    ),
    KernelFault(
        "kthvalue is the next one",
        ("kthvalue.values",),
        _one_further,
        DESTINATIONS,
        ("kthvalue into memory",),
    ),
    KernelFault(
        "pixel_shuffle takes other channels from channels_last",
        ("pixel_shuffle",),
        _channels_by_factor,
        AXES,
        ("pixel_shuffle, two axes",),
    ),
    KernelFault(
        "trilinear repeats the first depth",
        ("upsample_trilinear3d",),
        _depth_for_height,
        AXES,
        ("trilinear, three axes",),
    ),
    KernelFault(
        "max_pool3d's gradient where windows overlap is one of them",
        ("max_pool3d_with_indices_backward",),
        _overlaps_lost,
        AXES,
        ("max_pool3d, overlapping",),
        like="MIOpen#1325",
    ),
    KernelFault(
        "a replicated corner gives no gradient",
        ("replication_pad3d_backward",),
        _corner_lost,
        AXES,
        ("replicated, three axes",),
    ),
    KernelFault(
        "the last group of conv1d gives no gradient",
        ("convolution_backward",),
        _last_group_lost,
        AXES,
        ("conv1d of groups",),
    ),
    KernelFault(
        "whole numbers are divided as floats",
        ("div.Tensor_mode",),
        _through_float,
        WHOLE,
        ("floor",),
    ),
    KernelFault(
        "whole numbers are added in float64",
        ("add.Tensor",),
        _added_in_double,
        WHOLE,
        ("add a large number",),
    ),
)
