"""How far attention may be off, with a mask and with grouped heads: the rule of `operations`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from warpfront.inside.checks.operations import Arithmetic, Budgeted, C, budget


def expected(
    inputs: Sequence[Tensor], cotangent: Tensor, allowed: Tensor | None, how: Arithmetic
) -> tuple[Budgeted, ...]:
    """The output's budget and that of the gradient of each input, (batch, heads, length, width).

    As `operations.Attention`, with what is not allowed given no weight; the gradients of heads that
    several queries share are sums over these.
    """
    q, k, v = inputs
    group = q.shape[1] // k.shape[1]
    wide = [x.repeat_interleave(group, 1) for x in (k, v)]
    return tuple(
        _shared(one, group) if place > 1 else one
        for place, one in enumerate(_ungrouped((q, *wide), cotangent, allowed, how))
    )


def _shared(one: Budgeted, group: int) -> Budgeted:
    if group == 1:
        return one

    def summed(x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, group)).sum(2)

    # Libraries round each head's gradient before they are added up, or do not.
    bound = summed(one.bound + one.reference.abs() * _HEAD_ROUNDING)
    return Budgeted(reference=summed(one.reference), bound=bound)


_HEAD_ROUNDING = 2.0**-9


def _ungrouped(
    inputs: Sequence[Tensor], g: Tensor, allowed: Tensor | None, how: Arithmetic
) -> tuple[Budgeted, ...]:
    q, k, v = inputs
    unit, u_acc, width = how.unit, how.u_acc, q.shape[-1]
    scale, length = width**-0.5, k.shape[-2]
    scores = q @ k.mT * scale
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    p = torch.softmax(scores, dim=-1)
    y = p @ v
    # What scores in float32 are off by changes P by P times that, and the row's sum likewise.
    off = u_acc * (math.sqrt(width) * (q.abs() @ k.abs().mT) * scale + math.sqrt(length))
    p_off = p * (off + (p * off).sum(-1, keepdim=True))
    row_off = unit * _root_sum(g * y) + u_acc * math.sqrt(width) * (g * y).abs().sum(
        -1, keepdim=True
    )
    slope = g @ v.mT - (g * y).sum(-1, keepdim=True)
    slope_off = u_acc * math.sqrt(width) * (g.abs() @ v.abs().mT) + row_off
    ds, ds_off = p * slope, p * slope_off + p_off * slope.abs()
    rows = (
        (y, p @ v.abs(), p_off @ v.abs() + unit * (p**2 @ v**2).sqrt()),
        (scale * (ds @ k), scale * (ds.abs() @ k.abs()), scale * _through(ds, ds_off, k, unit)),
        (
            scale * (ds.mT @ q),
            scale * (ds.abs().mT @ q.abs()),
            scale * _through(ds.mT, ds_off.mT, q, unit),
        ),
        (p.mT @ g, p.mT @ g.abs(), _through(p.mT, p_off.mT, g, unit)),
    )
    return tuple(
        budget(
            reference,
            size,
            torch.full_like(reference, length),
            how=how,
            c=C["attention"],
            carried=carried,
        )
        for reference, size, carried in rows
    )


def _through(x: Tensor, off: Tensor, y: Tensor, unit: float) -> Tensor:
    return off @ y.abs() + unit * (x**2 @ y**2).sqrt()


def _root_sum(x: Tensor) -> Tensor:
    return x.square().sum(-1, keepdim=True).sqrt()
