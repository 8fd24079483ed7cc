"""Along axes of one number, beside them, and along long ones of which there is one: shapes by which
kernels leave an axis out, forward and backward, against float64 on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor

from warpfront.inside.checks.hazards.answers import Answer, Ground, Hazards, array, rows

LONE_SHAPES = (
    (1,),
    (1, 7),
    (7, 1),
    (1, 1),
    (2, 1, 5),
    (1, 4, 1),
    (3, 1, 1, 4),
    (1, 2050),
    (2050, 1),
)
Along = Callable[[Tensor, int], Tensor]
ALONG: Mapping[str, Along] = {
    "flip": lambda x, axis: x.flip(axis),
    "roll": lambda x, axis: x.roll(1, axis),
    "turned by a quarter": lambda x, axis: x.unsqueeze(0).rot90(1, (0, axis + 1)),
    "sum": lambda x, axis: x.sum(axis),
    "mean": lambda x, axis: x.mean(axis, keepdim=True),
    "amax": lambda x, axis: x.amax(axis),
    "min": lambda x, axis: x.min(axis).values,
    "prod": lambda x, axis: (1 + x / 2**20).prod(axis),
    "deviation": lambda x, axis: x.var(axis, correction=0),
    "norm": lambda x, axis: torch.linalg.vector_norm(x, dim=axis),
    "logsumexp": lambda x, axis: (x / 64).logsumexp(axis),
    "softmax": lambda x, axis: (x / 64).softmax(axis),
    "log_softmax": lambda x, axis: (x / 64).log_softmax(axis),
    "cumsum": lambda x, axis: x.cumsum(axis),
    "cumprod": lambda x, axis: (1 + x / 2**20).cumprod(axis),
    "cummax": lambda x, axis: x.cummax(axis).values,
    "sort": lambda x, axis: x.sort(axis, descending=True).values,
    "topk": lambda x, axis: x.topk(1, axis, largest=False).values,
    "median": lambda x, axis: x.median(axis).values,
    "kthvalue": lambda x, axis: x.kthvalue(x.shape[axis], axis).values,
    "gathered": lambda x, axis: x.gather(axis, _places(x, axis)),
    "scattered": lambda x, axis: x.scatter_add(axis, _places(x, axis), x * 2),
    "index_select": lambda x, axis: x.index_select(axis, _twice(x, axis)),
    "index_add": lambda x, axis: x.index_add(axis, _twice(x, axis), torch.cat([x, x], axis)),
    "joined": lambda x, axis: torch.cat([x, x * 2, x.narrow(axis, 0, 1)], axis),
    "stacked": lambda x, axis: torch.stack([x, x * 2], axis),
    "repeated": lambda x, axis: x.repeat_interleave(3, axis),
    "tiled": lambda x, axis: x.repeat(*(3 if one == axis else 1 for one in range(x.dim()))),
    "expanded": lambda x, axis: x.unsqueeze(axis).expand(*x.shape[:axis], 5, *x.shape[axis:]) * 2,
    "moved": lambda x, axis: x.movedim(axis, 0).contiguous() * 2,
    "windows": lambda x, axis: x.unfold(axis, 1, 1) * 2,
}


def _places(x: Tensor, axis: int) -> Tensor:
    """Backwards along an axis."""
    shape = [-1 if one == axis else 1 for one in range(x.dim())]
    places = torch.arange(x.shape[axis], device=x.device).flip(0)
    return places.view(shape).expand(x.shape)


def _twice(x: Tensor, axis: int) -> Tensor:
    places = torch.arange(x.shape[axis], device=x.device)
    return torch.cat([places, places.flip(0)])


def _along_each(along: Along, ground: Ground) -> Iterator[Answer]:
    for shape in LONE_SHAPES:
        # No two alike, so that each largest and each order is one.
        count = torch.Size(shape).numel()
        x = torch.randperm(count, generator=ground.generator).view(shape).double() - count // 2
        for axis in range(len(shape)):
            exact, leaf = x.clone().requires_grad_(), ground.send(x).requires_grad_()
            right, found = along(exact, axis), along(leaf, axis)
            fed = ground.whole(*right.shape)
            right.backward(fed)
            found.backward(ground.send(fed))
            pairs = (("output", found, right), ("gradient", leaf.grad, exact.grad))
            for name, mine, its in pairs:
                assert mine is not None
                assert its is not None
                slack = 64 * ground.eps * float(its.abs().max())
                said = f"{name} along {axis} of {shape}"
                yield Answer(said, mine, array(its), ulps=1, slack=slack)


LONE_AXES: Hazards = rows(
    {f"{name}, axes of one": partial(_along_each, along) for name, along in ALONG.items()},
    dtypes=("float32",),
    once=True,
)
