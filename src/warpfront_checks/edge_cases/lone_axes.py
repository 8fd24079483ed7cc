"""Shapes by which kernels omit or fold an axis, forward and backward, against float64 on the
CPU. They are axes of one number, single long axes, each axis of many, and large planes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.edge_cases.answers import Answer, CaseContext, Hazards, array, rows

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
# More axes than kernels have numbers for, so that some are folded.
MANY_AXES = ((2, 3, 2, 4, 3), (2, 1, 3, 2, 2, 3), (2, 2, 1, 3, 1, 2, 2))
# More numbers in a plane than a grid has blocks along an axis.
PLANES = ((3, 1, 256, 257),)
Along = Callable[[Tensor, int], Tensor]
# Operations that move numbers: of planes as well.
MOVED: Mapping[str, Along] = {
    "padded": lambda x, axis: functional.pad(x, [*[0, 0] * (x.dim() - 1 - axis), 1, 2], value=7.0),
    "cut": lambda x, axis: functional.pad(x, [*[0, 0] * (x.dim() - 1 - axis), 2, -1]),
    "put": lambda x, axis: x.scatter(axis, _places(x, axis), x * 2),
    "index_copy": lambda x, axis: x.index_copy(axis, _twice(x, axis)[: x.shape[axis]], x * 2),
    "index_fill": lambda x, axis: x.index_fill(axis, _twice(x, axis)[:1], 7.0),
    "parts swapped": lambda x, axis: torch.cat(list(x.chunk(2, axis))[::-1], axis),
    "a part": lambda x, axis: x.narrow(axis, x.shape[axis] // 2, 1) * 2,
    "unbound": lambda x, axis: torch.stack(x.unbind(axis)[::-1], axis),
    "with its neighbour": lambda x, axis: x.transpose(axis, axis - 1).contiguous() * 2,
    "tril": lambda x, axis: x.tril(axis - 1) if x.dim() > 1 else x,
    "triu": lambda x, axis: x.triu(axis - 1) if x.dim() > 1 else x,
}
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
    **MOVED,
    "gathered": lambda x, axis: x.gather(axis, _places(x, axis)),
    "scattered": lambda x, axis: x.scatter_add(axis, _places(x, axis), x * 2),
    "index_select": lambda x, axis: x.index_select(axis, _twice(x, axis)),
    "index_add": lambda x, axis: x.index_add(axis, _twice(x, axis), torch.cat([x, x], axis)),
    "joined": lambda x, axis: torch.cat([x, x * 2, x.narrow(axis, 0, 1)], axis),
    "stacked": lambda x, axis: torch.stack([x, x * 2], axis),
    "repeated": lambda x, axis: x.repeat_interleave(3, axis),
    "tiled": lambda x, axis: x.repeat(*(3 if place == axis else 1 for place in range(x.dim()))),
    "expanded": lambda x, axis: x.unsqueeze(axis).expand(*x.shape[:axis], 5, *x.shape[axis:]) * 2,
    "moved": lambda x, axis: x.movedim(axis, 0).contiguous() * 2,
    "windows": lambda x, axis: x.unfold(axis, 1, 1) * 2,
}


def _places(x: Tensor, axis: int) -> Tensor:
    """Return a permutation along an axis, another for each line."""
    generator = torch.Generator().manual_seed(axis)
    noise = torch.rand(x.shape, generator=generator, dtype=torch.float64)
    return noise.argsort(axis).to(x.device)


def _twice(x: Tensor, axis: int) -> Tensor:
    places = torch.arange(x.shape[axis], device=x.device)
    return torch.cat([places, places.flip(0)])


def _backwards(x: Tensor) -> Tensor:
    """Return the same numbers with the first axis contiguous in memory."""
    order = tuple(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order)


def _with_gaps(x: Tensor) -> Tensor:
    """Return the same numbers as a view of twice as many along each axis but the first."""
    wide = x
    for axis in range(1, x.dim()):
        wide = wide.repeat_interleave(2, axis)
    return wide[(slice(None), *[slice(None, None, 2)] * (x.dim() - 1))]


FORMS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "turned": _backwards,
    "spread": _with_gaps,
}


def _along_each(
    along: Along, shapes: tuple[tuple[int, ...], ...], forms: Sequence[str], ground: CaseContext
) -> Iterator[Answer]:
    for shape, form in product(shapes, forms):
        # No two alike, so that each largest and each order is one.
        count = torch.Size(shape).numel()
        x = torch.randperm(count, generator=ground.generator).view(shape).double() - count // 2
        for axis in range(len(shape)):
            exact, leaf = x.clone().requires_grad_(), ground.send(x).requires_grad_()
            expected, actual = along(exact, axis), along(FORMS[form](leaf), axis)
            grad_output = ground.whole(*expected.shape)
            expected.backward(grad_output)
            actual.backward(FORMS[form](ground.send(grad_output)))
            pairs = (("output", actual, expected), ("gradient", leaf.grad, exact.grad))
            for name, mine, reference in pairs:
                assert mine is not None
                assert reference is not None
                slack = 64 * ground.eps * float(reference.abs().max())
                label = f"{name} along {axis} of {shape}, {form}"
                yield Answer(label, mine, array(reference), ulps=1, slack=slack)


LONE_AXES: Hazards = rows(
    {
        f"{name}, {label}": partial(_along_each, along, shapes, forms)
        for label, shapes, calls, forms in (
            ("axes of one", LONE_SHAPES, ALONG, ("contiguous",)),
            ("many axes", MANY_AXES, ALONG, tuple(FORMS)),
            ("planes", PLANES, MOVED, ("contiguous",)),
        )
        for name, along in calls.items()
    }
)
