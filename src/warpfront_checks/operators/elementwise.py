"""Arithmetic, activations, comparisons and choices: one output element from one of each input.

Units in the last place per operation: the documented limits of vendors' mathematical libraries,
rounded up (CUDA C++ Programming Guide, "Mathematical Functions"). The CPU and an H100 were within
the same limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.operations import Operation, Pointwise
from warpfront_checks.operators.bounds import Elementwise
from warpfront_checks.operators.cases import Case, Cases, Maker, OperatorFamily, View

Layout = tuple[str, tuple[int, ...], "View | None"]


def layouts(maker: Maker) -> Iterator[Layout]:
    """Yield shapes and strides that kernels treat differently: name, shape to send,
    view to take.
    """
    yield "67x129", (67, 129), None
    for size in maker.edges:
        yield f"{size}", (size,), None
    yield "no elements", (0, 3), None
    yield "0-dim", (), None
    yield "one element", (1,), None
    yield "every second column", (33, 130), lambda x: x[:, ::2]
    yield "transposed", (33, 65), lambda x: x.mT
    yield "channels last", (2, 5, 7, 9), lambda x: x.contiguous(memory_format=torch.channels_last)
    yield "expanded", (33, 1), lambda x: x.expand(-1, 65)


def _over(operation: Operation, *makes: str, special: bool = True, backward: bool = True) -> Cases:
    """Return cases of an operation in every layout; `makes` name the maker's method
    for each input.
    """

    def cases(maker: Maker) -> Iterator[Case]:
        differentiable = backward and maker.floating
        for name, shape, view in layouts(maker):
            tensors = tuple(getattr(maker, make)(*shape) for make in makes)
            views = (view,) * len(makes)
            yield Case(name, operation, tensors, views=views, backward=differentiable)
        if len(makes) > 1:
            yield _broadcast(operation, maker, makes, backward=differentiable)
        if special and maker.floating:
            yield from _specials(operation, maker, len(makes))

    return cases


def _broadcast(operation: Operation, maker: Maker, makes: Sequence[str], *, backward: bool) -> Case:
    shapes = ((9, 1, 65), (33, 1), (9, 33, 65))[: len(makes)]
    tensors = tuple(getattr(maker, m)(*s) for m, s in zip(makes, shapes, strict=True))
    return Case("broadcast", operation, tensors, backward=backward)


def _specials(operation: Operation, maker: Maker, arity: int) -> Iterator[Case]:
    """Return a case of each special number with each other one; derivatives there
    are not defined.
    """
    special = maker.special()
    grids = torch.meshgrid(*([special] * arity), indexing="ij") if arity > 1 else (special,)
    yield Case(
        "special numbers", operation, tuple(grid.contiguous() for grid in grids), backward=False
    )


def _unary(function: Callable[[Tensor], Tensor], *, make: str = "normal", **rule: Any) -> Cases:
    return _over(Elementwise(function=function, **rule), make)


def _binary(function: Callable[..., Tensor], *makes: str, **rule: Any) -> Cases:
    return _over(Elementwise(function=function, **rule), *(makes or ("normal", "normal")))


def _comparison(function: Callable[[Tensor, Tensor], Tensor]) -> Cases:
    """Return cases of halves of small integers: many are equal, in every dtype."""

    def compare(a: Tensor, b: Tensor) -> Tensor:
        if not a.is_floating_point():
            return function(a, b)
        return function((a * 2).round(), (b * 2).round())

    return _over(Elementwise(function=compare), "normal", "normal", backward=False)


def _gelu(maker: Maker) -> Iterator[Case]:
    """Return both forms. A gate's own rounding scales with its input, not with its output."""
    for form, function in (
        ("", functional.gelu),
        (", tanh form", lambda x: functional.gelu(x, approximate="tanh")),
    ):
        gate = Pointwise(function=function)
        for case in _over(gate, "normal", special=False)(maker):
            yield Case(case.name + form, gate, case.tensors, views=case.views)


def _pow_slopes(x: Tensor, y: Tensor) -> Sequence[Tensor]:
    power = torch.pow(x, y)
    return (y.abs() * power / x, power * (x.log().abs() + torch.finfo(torch.float32).eps))


ELEMENTWISE = OperatorFamily(
    name="elementwise",
    cases={
        "add": _binary(torch.add),
        "sub": _binary(torch.sub),
        "mul": _binary(torch.mul),
        "div": _binary(torch.div, "normal", "positive", ulps=2.0),
        "pow": _over(
            Elementwise(function=torch.pow, ulps=16.0, slope=_pow_slopes),
            "positive",
            "normal",
            special=False,
        ),
        "max_binary": _binary(torch.max, ulps_half=0.0),
        "min_binary": _binary(torch.min, ulps_half=0.0),
        "neg": _unary(torch.neg, ulps_half=0.0),
        "abs": _unary(torch.abs, ulps_half=0.0),
        "sqrt": _unary(torch.sqrt, make="positive", ulps=2.0),
        "rsqrt": _unary(torch.rsqrt, make="positive", ulps=4.0),
        "exp": _unary(torch.exp, ulps=4.0),
        "log": _unary(torch.log, make="positive", ulps=4.0),
        "sin": _unary(torch.sin, ulps=4.0),
        "cos": _unary(torch.cos, ulps=4.0),
        "tanh": _unary(torch.tanh, ulps=4.0, slope=lambda x: (1 + torch.tanh(x) ** 2,)),
        "relu": _unary(torch.relu, ulps_half=0.0),
        "leaky_relu": _unary(functional.leaky_relu, ulps=1.0),
        "sigmoid": _unary(torch.sigmoid, ulps=4.0, slope=lambda x: (torch.sigmoid(x),)),
        "gelu": _gelu,
        "silu": _over(Pointwise(function=functional.silu), "normal", special=False),
        "eq": _comparison(torch.eq),
        "ne": _comparison(torch.ne),
        "lt": _comparison(torch.lt),
        "le": _comparison(torch.le),
        "gt": _comparison(torch.gt),
        "ge": _comparison(torch.ge),
        "less": _comparison(torch.less),
        "where": _binary(lambda a, b: torch.where(a > 0, a, b), ulps_half=0.0),
        "maximum": _binary(torch.maximum, ulps_half=0.0),
        "minimum": _binary(torch.minimum, ulps_half=0.0),
        "clamp": _unary(lambda x: torch.clamp(x, -1, 1), ulps_half=0.0),
    },
)
