"""Calls and tensors that kernels of several topics have."""

from __future__ import annotations

import math

import torch

from .kernel import DOUBLES, drawn

BF16 = torch.bfloat16
WAVE = 64
GRID = 65_535
CHUNK = 65_536


SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)


def extent(x):
    steps = zip(x.shape, x.stride(), strict=True)
    return 1 + int(sum((size - 1) * step for size, step in steps))


def as_if_whole(x):
    """Return the numbers that a kernel reads if it assumes that x is contiguous."""
    flat = x.as_strided((extent(x),), (1,), x.storage_offset())
    size = x.numel()
    return flat.repeat(-(-size // max(1, flat.numel())))[:size].reshape(x.shape)


def formatted(x):
    odd = x.dim() == 4 and x.shape[1] % 2 == 1 and x.shape[1] > 1
    return odd and bool(x.stride(1) == 1)


def is_last(x):
    return (
        x.dim() == 4
        and x.shape[1] > 1
        and not x.is_contiguous()
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def as_it_lies(x):
    """A dense tensor's memory read as if it were contiguous."""
    strides = [math.prod(x.shape[i + 1 :]) for i in range(x.dim())]
    return x.as_strided(x.shape, strides, x.storage_offset())


aten = torch.ops.aten


def each(values, count):
    values = list(values)
    return values * count if len(values) == 1 else values


def is_dense_2(x):
    """Every element of its stretch of memory is one of `x`, once."""
    strides = sorted((s, n) for s, n in zip(x.stride(), x.shape, strict=True) if n > 1)
    expected = 1
    for stride, size in strides:
        if stride != expected:
            return False
        expected *= size
    return bool(x.numel())


def is_dense(x):
    order = sorted(range(x.dim()), key=lambda d: (x.stride(d), x.shape[d]))
    return bool(x.permute(order[::-1]).is_contiguous())


def narrow(x):
    """Any dtype but double and its complex one."""
    return x.dtype not in DOUBLES


def packed(x):
    """What is read of `x` if its strides are not: as many elements from where it begins."""
    held = x.untyped_storage().nbytes() // x.element_size()
    if x.is_contiguous() or x.storage_offset() + x.numel() > held:
        return x
    strides = [math.prod(x.shape[i + 1 :]) for i in range(x.dim())]
    return x.as_strided(x.shape, strides, x.storage_offset())


def pair(values, otherwise=None):
    values = list(values) or list(otherwise)
    return (values[0], values[-1])


def pair_2(numbers):
    return (int(numbers[0]), int(numbers[-1]))


def read_packed(x):
    """What lies at a tensor's place, read as if the tensor were contiguous."""
    end = x.storage_offset() + x.numel()
    if x.is_contiguous() or end * x.element_size() > x.untyped_storage().nbytes():
        return x
    strides = torch.empty(x.shape, device="meta").stride()
    return x.as_strided(x.shape, strides, x.storage_offset())


def write_as_contiguous(out):
    """The values are stored in their order, as if the strides were those of a contiguous tensor."""
    if out.numel() and not out.is_contiguous() and is_dense(out):
        values = out.contiguous().reshape(-1)
        out.as_strided((out.numel(),), (1,), out.storage_offset()).copy_(values)


def written_in_order(x):
    """The elements of `x` are put in its memory one after the other, whatever its strides."""
    inside = x.as_strided((x.numel(),), (1,), x.storage_offset())
    inside.copy_(x.clone(memory_format=torch.contiguous_format).reshape(-1))


def flat(x):
    """What is read in the order of memory, but only if that is not the order of the elements."""
    return x if x.is_contiguous() else as_if_whole(x)


def axis_of(x, dim):
    return dim % x.dim() if x.dim() else 0


def grads_of(result, *leaves):
    return torch.autograd.grad(result.square().sum(), leaves)


def drawn_complex(*shape, seed=0):
    return torch.complex(drawn(*shape, seed=seed), drawn(*shape, seed=seed + 1))
