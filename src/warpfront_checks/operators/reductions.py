"""Reductions, softmax and running sums: many terms into one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from warpfront_checks.operations import Multilinear, Operation
from warpfront_checks.operators.bounds import Derived, Moved, Spread
from warpfront_checks.operators.cases import Case, Cases, Maker, OperatorFamily

LONG = 100_003
INTEGER_TERMS = 15


def _along(
    operation: Callable[[int, float], Operation],
    make: str = "normal",
    *,
    empty: bool = True,
    long: bool = True,
) -> Cases:
    """Return cases over the last, the first and a strided axis; `operation` takes
    axis and length.
    """

    def cases(maker: Maker) -> Iterator[Case]:
        result = getattr(maker, make)
        for name, shape, axis in _shapes(maker, empty=empty, long=long):
            operated = operation(axis, float(shape[axis]) if shape else 1.0)
            backward = maker.floating
            yield Case(name, operated, (result(*shape),), backward=backward, reduces=shape != ())
        if maker.floating:
            view = (lambda x: x[:, ::2],)
            yield Case(
                "every second column",
                operation(1, 65.0),
                (result(9, 130),),
                views=view,
                reduces=True,
            )

    return cases


def _shapes(maker: Maker, *, empty: bool, long: bool) -> Iterator[tuple[str, tuple[int, ...], int]]:
    yield "5x67 along rows", (5, 67), 1
    for size in maker.edges:
        yield f"{size}", (3, size), 1
    yield "down columns", (129, 33), 0
    yield "middle axis", (5, 65, 7), 1
    yield "one term", (33, 1), 1
    yield "0-dim", (), 0
    if empty:
        yield "no terms", (3, 0), 1
        yield "no sums", (0, 3), 1
    if long and not maker.quick:
        yield "long", (2, LONG), 1


def _added(kind: str, function: Callable[..., Tensor]) -> Callable[[int, float], Operation]:
    return lambda axis, _: Multilinear(kind=kind, function=partial(function, dim=axis))


def _mean(axis: int, length: float) -> Operation:
    function = partial(torch.mean, dim=axis)
    return Multilinear(kind="reduction", function=function, length=length)


def _extreme(function: Callable[..., Tensor]) -> Callable[[int, float], Operation]:
    return lambda axis, _: Moved(function=partial(function, dim=axis))


def _prod(axis: int, length: float) -> Operation:
    def spreads(inputs: Sequence[Tensor], product: Tensor, g: Tensor) -> Sequence[Spread]:
        (x,) = inputs
        wide = g * product
        whole = (wide.unsqueeze(axis) if x.dim() else wide) / x
        # All of a row's gradients are its product over a factor, and share its error.
        root, rows = length**0.5, product.numel()
        return (
            Spread(
                size=product,
                length=length,
                carried=product,
                squares=product**2,
                walk=root * product,
                errors=rows,
            ),
            Spread(
                size=whole,
                length=length,
                carried=2 * whole,
                squares=whole**2,
                walk=root * whole,
                errors=rows,
            ),
        )

    return Derived(function=partial(torch.prod, dim=axis), spreads=spreads, kind="product")


def _softmax(axis: int, length: float) -> Operation:
    """Return cases of softmax. An exponent may be off by the rounding of its argument. Backward
    reads the rounded output.
    """

    def spreads(inputs: Sequence[Tensor], y: Tensor, g: Tensor) -> Sequence[Spread]:
        below = (inputs[0] - inputs[0].amax(axis, keepdim=True)).abs()
        mixed = (y * g.abs()).sum(axis, keepdim=True)
        projected = (y * g).sum(axis, keepdim=True).abs()
        rounded = ((y * g) ** 2).sum(axis, keepdim=True).sqrt()
        return (
            Spread(size=y * (1 + below), length=length),
            Spread(
                size=y * (1 + below) * (g.abs() + mixed),
                length=length,
                carried=y * (g.abs() + projected + rounded),
            ),
        )

    return Derived(function=partial(torch.softmax, dim=axis), spreads=spreads, kind="softmax")


def _log_softmax(axis: int, length: float) -> Operation:
    def spreads(inputs: Sequence[Tensor], y: Tensor, g: Tensor) -> Sequence[Spread]:
        x = inputs[0]
        top = x.amax(axis, keepdim=True)
        norm = torch.logsumexp(x - top, axis, keepdim=True)
        total, p = g.abs().sum(axis, keepdim=True), torch.exp(y)
        return (
            Spread(size=x.abs() + top.abs() + norm + 1, length=length),
            Spread(
                size=g.abs() + p * (1 + y.abs()) * total,
                length=length,
                carried=p * y.abs() * g.sum(axis, keepdim=True).abs(),
            ),
        )

    function = partial(torch.log_softmax, dim=axis)
    return Derived(function=function, spreads=spreads, kind="softmax")


def _near_one(maker: Maker) -> Iterator[Case]:
    """Yield cases whose products of up to a thousand factors stay within float16's range;
    of few integers.
    """
    make = _along(_prod, "positive", long=False)
    for case in make(maker):
        x = case.tensors[0]
        if not maker.floating:
            x = x[..., :INTEGER_TERMS] if x.dim() == 2 and x.shape[0] < x.shape[1] else x
            if x.numel() > 3 * INTEGER_TERMS:
                continue
        else:
            x = (1 + (x - 1.5) / 12).to(maker.dtype)
        yield replace(case, tensors=(x,), backward=maker.floating)


REDUCTIONS = OperatorFamily(
    name="reductions",
    cases={
        "softmax": _along(_softmax, empty=False, long=False),
        "log_softmax": _along(_log_softmax, empty=False, long=False),
        "sum": _along(_added("reduction", torch.sum)),
        "mean": _along(_mean, empty=False),
        "max": _along(_extreme(torch.amax), "distinct", empty=False, long=False),
        "min": _along(_extreme(torch.amin), "distinct", empty=False, long=False),
        "prod": _near_one,
        "cumsum": _along(_added("running sum", torch.cumsum), long=False),
    },
)
