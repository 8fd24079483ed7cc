"""Variants of a sample of the database: of a single zero, long, with NaN and infinities, and
with one gradient where there are several. Needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Generator, Tensor

from warpfront_checks.executing import tensors_in
from warpfront_checks.opinfo.adapter import Entry, Sample
from warpfront_checks.opinfo.entry_verdicts import convert_sample

# In these every number is by itself, or every row: any length fits, and none of it is a place.
ANY_LENGTH = ("UnaryUfuncInfo", "BinaryUfuncInfo", "ReductionOpInfo")
# They convert NaN to the largest of their dtype, or to the result of the machine's
# conversion, which C does not define.
OWN_DTYPE = ("nan_to_num", "byte", "char", "int", "long", "short")
# Beyond the blocks of every kernel that was looked at, and no multiple of any.
LONG = 16_411
MOST_ALONE = 4
BROKEN = (math.nan, math.inf, -math.inf, 0.0, -0.0)
ENDS = (255, 254, 128, 127)


def takes_any_length(entry: Entry) -> bool:
    return type(entry.raw).__name__ in ANY_LENGTH and entry.name not in OWN_DTYPE


def otherwise(sample: Sample) -> Iterator[Sample]:
    """Yield the variants of a sample of an entry that takes any length."""
    x = sample.input
    tensors = list(tensors_in([x, sample.args, sample.kwargs]))
    odd = any(tensor.layout != torch.strided or not tensor.numel() for tensor in tensors)
    if odd or not isinstance(x, Tensor):
        return
    generator = Generator().manual_seed(x.numel())
    if x.is_floating_point():
        # Integer division by zero raises.
        yield convert_sample(
            sample, lambda argument: torch.zeros([1] * argument.dim(), dtype=argument.dtype)
        )
    yield convert_sample(sample, lambda argument: _broken(argument, generator))
    if x.dim():
        long = convert_sample(sample, lambda argument: _long(argument, x.shape[-1], generator))
        yield long
        yield convert_sample(long, lambda argument: _broken(argument, generator))


def each_alone(sample: Sample) -> Iterator[Sample]:
    """Yield the sample with the gradient of one tensor only, for each tensor in turn."""
    leaves = [x for x in tensors_in([sample.input, sample.args, sample.kwargs]) if x.requires_grad]

    def kept(leaf: Tensor, x: Tensor) -> Tensor:
        return x if x is leaf else x.detach()

    for leaf in leaves if 1 < len(leaves) <= MOST_ALONE else ():
        yield convert_sample(sample, partial(kept, leaf))


def folded(entry: Entry, sample: Sample) -> Sample:
    """Return a row as a table, so that its memory layout can vary."""
    x = sample.input
    row = type(entry.raw).__name__ == "UnaryUfuncInfo" and x.dim() == 1 and x.numel() % 4 == 0
    if not row or not x.numel() or x.layout != torch.strided:
        return sample
    table = x.detach().reshape(4, -1).clone().requires_grad_(x.requires_grad)
    return replace(sample, input=table)


def _long(x: Tensor, length: int, generator: Generator) -> Tensor:
    """Return a tensor with a longer last axis, if that is as long as the input's; no two
    numbers are equal.
    """
    if not x.dim() or x.shape[-1] != length:
        return x
    shape = [*x.shape[:-1], -(-LONG // math.prod(x.shape[:-1]))]
    long = x.detach().flatten()[torch.randint(x.numel(), shape, generator=generator)]
    if not x.is_floating_point():
        return long
    return (long * (1 - torch.rand(shape, generator=generator) / 8)).to(x.dtype)


def _broken(x: Tensor, generator: Generator) -> Tensor:
    """Replace some numbers by NaN, infinities or zeros, of bytes by large ones; never all
    of a table.
    """
    broken = x.detach().clone(memory_format=torch.contiguous_format)
    planted = BROKEN if x.is_floating_point() else ENDS if x.dtype == torch.uint8 else ()
    if planted:
        index = torch.randint(x.numel(), (min(len(planted), x.numel()),), generator=generator)
        broken.view(-1)[index] = torch.tensor(planted[: len(index)]).to(x.dtype)
    return broken
