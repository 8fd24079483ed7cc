"""Destinations of results: in place, and existing memory that has gaps, is transposed or too small.

Expected results are float64's on the CPU, of the same numbers. Numbers are integers or eighths, so
that most results are exact. For functions that round, every library documents fewer than 16 units
in the last place here. A result at a wrong address is off by far more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.edge_cases.answers import USUAL, Answer, CaseContext, HazardClass, array, rows
from warpfront_checks.edge_cases.layouts import PICTURES, Change

Call = Callable[..., Any]
# From numbers that are -16 to 16, no two of a row equal, the operands of a call.
Operands = Callable[[Tensor], tuple[Any, ...]]
FORMS = ("spread", "window", "swapped")
nn: Any = torch._C._nn


def _nothing(x: Tensor) -> Tensor:
    """Return memory that has to grow."""
    return torch.empty(0, dtype=x.dtype, device=x.device)


FORM: Mapping[str, Change] = {**PICTURES, "nothing": _nothing}


def _eighths(x: Tensor) -> tuple[Any, ...]:
    return (x / 8,)


def _two(x: Tensor) -> tuple[Any, ...]:
    return x / 8, x.flip(0) / 8


def _divided(x: Tensor) -> tuple[Any, ...]:
    return x, x.flip(0).abs() % 5 + 1


def _positive(x: Tensor) -> tuple[Any, ...]:
    return x.abs() / 8 + 0.5, x.flip(0).abs() / 8 + 0.5


def _row(x: Tensor) -> Tensor:
    """Return every second index of a row, none of them twice."""
    return torch.arange(0, x.shape[1], 2, device=x.device)


def _sent_to(x: Tensor) -> Tensor:
    """Return a permutation of each row's indices."""
    return torch.arange(x.shape[1], device=x.device).flip(0).expand(x.shape)


UNARY: Mapping[Operands, str] = {
    _eighths: "abs ceil floor round trunc neg sign sgn square sin cos tanh atan asinh sinh cosh"
    " erf erfc exp exp2 expm1 sigmoid frac sinc deg2rad rad2deg nan_to_num logical_not",
    lambda x: (x.abs() / 8 + 0.5,): "sqrt rsqrt log log2 log10 log1p reciprocal",
    lambda x: (x / 32,): "acos asin atanh erfinv",
    lambda x: (x.abs() / 32 + 0.125,): "logit",
    lambda x: (x.abs() / 8 + 2,): "acosh",
}
BINARY: Mapping[Operands, str] = {
    _two: "add sub mul atan2 copysign heaviside eq ne lt le gt ge logical_and logical_or"
    " logical_xor",
    _divided: "div fmod remainder floor_divide",
    _positive: "pow hypot xlogy",
    lambda x: (x.long(), x.flip(0).long()): "bitwise_and bitwise_or bitwise_xor gcd lcm",
    lambda x: (x.long(), x.flip(0).long().abs() % 5): "bitwise_left_shift bitwise_right_shift",
    lambda x: (x, -1, 2): "clamp",
    lambda x: (x, x.flip(0)): "clamp_min clamp_max",
    lambda x: (x, x.flip(0), x.flip(1)): "addcmul lerp",
    lambda x: (x, x.flip(1), x.abs() + 1): "addcdiv",
    lambda x: (x, x[:, :9], x[:9].contiguous()): "addmm",
    lambda x: (x[:, 0], x, x[0]): "addmv",
    lambda x: (x, x[:, 0], x[0]): "addr",
    lambda x: (x, x[None, :, :9], x[None, :9]): "addbmm",
    lambda x: (x.view(1, *x.shape), x[None, :, :9], x[None, :9]): "baddbmm",
    lambda x: (x % 2, 1): "cumsum cumprod",
    lambda x: (x, 2): "tril triu",
    lambda x: (x, 1, _row(x), x[:, _row(x)] * 2): "index_add index_copy",
    lambda x: (x, 1, _sent_to(x), x * 2): "scatter scatter_add",
    lambda x: (x, 1, _row(x), 7): "index_fill",
}
# In place alone.
CHANGED: Mapping[str, tuple[Call, Call, Operands]] = {
    "floor of a quotient": (
        partial(torch.div, rounding_mode="floor"),
        lambda x, y: x.div_(y, rounding_mode="floor"),
        _divided,
    ),
    "quotient cut off": (
        partial(torch.div, rounding_mode="trunc"),
        lambda x, y: x.div_(y, rounding_mode="trunc"),
        _divided,
    ),
    "masked_fill": (torch.masked_fill, Tensor.masked_fill_, lambda x: (x, x > 3, 9)),
    "masked_scatter": (
        torch.masked_scatter,
        Tensor.masked_scatter_,
        lambda x: (x, x[:1] > 3, x.flip(1).contiguous()),
    ),
    "scatter_reduce": (
        torch.scatter_reduce,
        Tensor.scatter_reduce_,
        lambda x: (x, 1, _sent_to(x), x.flip(0), "amax"),
    ),
    "index_reduce": (
        torch.index_reduce,
        Tensor.index_reduce_,
        lambda x: (x, 1, _row(x), x[:, _row(x)] * 2, "amin"),
    ),
    "put": (torch.put, Tensor.put_, lambda x: (x, _row(x), x[0, _row(x)] * 3)),
    "index_put": (
        torch.index_put,
        Tensor.index_put_,
        lambda x: (x, (_row(x) % 17, _row(x)), x[0, _row(x)] * 3),
    ),
    "renorm": (torch.renorm, Tensor.renorm_, lambda x: (x, 1, 0, 20)),
    "fill_diagonal": (
        lambda x: x.clone().fill_diagonal_(40),
        lambda x: x.fill_diagonal_(40),
        lambda x: (x,),
    ),
    "relu": (torch.relu, torch.relu_, _eighths),
    "leaky_relu": (nn.leaky_relu, nn.leaky_relu_, _eighths),
    "elu": (nn.elu, nn.elu_, _eighths),
    "silu": (nn.silu, nn.silu_, _eighths),
    "mish": (nn.mish, nn.mish_, _eighths),
    "hardtanh": (nn.hardtanh, nn.hardtanh_, _eighths),
    "hardswish": (nn.hardswish, nn.hardswish_, _eighths),
    "hardsigmoid": (nn.hardsigmoid, nn.hardsigmoid_, _eighths),
    "gelu": (nn.gelu, nn.gelu_, _eighths),
    "threshold": (torch.threshold, torch.threshold_, lambda x: (x, 1, 20)),
}
# Along a row.
ROUNDED = "sum mean amax amin argmax argmin logsumexp softmax logcumsumexp var std nansum"
CHOSEN = "max min sort cummax cummin median nanmedian all any"
# Into memory alone.
PUT: Mapping[str, tuple[Call, Operands]] = {
    **{n: (partial(getattr(torch, n), dim=1), _eighths) for n in ROUNDED.split()},
    **{n: (partial(getattr(torch, n), dim=1), lambda x: (x,)) for n in CHOSEN.split()},
    "norm": (partial(torch.linalg.vector_norm, dim=1), lambda x: (x,)),
    "prod": (partial(torch.prod, dim=1), lambda x: (x % 3 - 1,)),
    "topk": (torch.topk, lambda x: (x, 5)),
    "kthvalue": (torch.kthvalue, lambda x: (x, 5)),
    "mm": (torch.mm, lambda x: (x, x.mT.contiguous())),
    "bmm": (torch.bmm, lambda x: (x.view(1, *x.shape).expand(3, -1, -1), x.mT.expand(3, -1, -1))),
    "matmul": (torch.matmul, lambda x: (x.view(1, *x.shape).expand(3, -1, -1), x.mT)),
    "mv": (torch.mv, lambda x: (x, x[0])),
    "outer": (torch.outer, lambda x: (x[0], x[1])),
    "cat": (lambda *x, **kwargs: torch.cat(x, 1, **kwargs), lambda x: (x, x.flip(0), x[:, :3])),
    "stack": (lambda *x, **kwargs: torch.stack(x, 1, **kwargs), lambda x: (x, x.flip(0))),
    "gather": (torch.gather, lambda x: (x, 1, _sent_to(x))),
    "index_select": (torch.index_select, lambda x: (x, 1, _row(x))),
    "take": (torch.take, lambda x: (x, _sent_to(x))),
    "where": (torch.where, lambda x: (x > 0, x, -x)),
    "searchsorted": (
        lambda row, x, **kwargs: torch.searchsorted(row, x, right=True, **kwargs),
        lambda x: (x[0].sort().values, x),
    ),
    "bucketize": (torch.bucketize, lambda x: (x, x[0].sort().values)),
    "isin of signs": (torch.signbit, lambda x: (x,)),
    "maximum": (torch.maximum, _two),
    "fmin": (torch.fmin, _two),
    "floor of a quotient": (partial(torch.div, rounding_mode="floor"), _divided),
    "logaddexp": (torch.logaddexp, _two),
    "diag": (torch.diag, lambda x: (x,)),
    "avg_pool2d": (partial(nn.avg_pool2d, kernel_size=2), lambda x: (x[None],)),
    "adaptive_avg_pool2d": (
        partial(nn.adaptive_avg_pool2d, output_size=(4, 8)),
        lambda x: (x[None, :16, :32].contiguous(),),
    ),
    "max_pool2d": (partial(nn.max_pool2d_with_indices, kernel_size=2), lambda x: (x[None],)),
    "nearest": (
        lambda x, **kwargs: nn.upsample_nearest2d(x, (34, 66), 2.0, 2.0, **kwargs),
        lambda x: (x[None, None],),
    ),
    "bilinear": (
        lambda x, **kwargs: nn.upsample_bilinear2d(x, (34, 66), False, 2.0, 2.0, **kwargs),
        lambda x: (x[None, None],),
    ),
    "reflected": (
        lambda x, **kwargs: nn.reflection_pad2d(x, (1, 2, 3, 1), **kwargs),
        lambda x: (x[None],),
    ),
    **{name: (getattr(nn, name), _eighths) for name in ("elu", "silu", "softplus", "mish")},
    "glu": (nn.glu, lambda x: (x[:, :32] / 8,)),
}
BY_NAME = {
    name: operands
    for table in (UNARY, BINARY)
    for operands, names in table.items()
    for name in names.split()
}
IN_PLACE: Mapping[str, tuple[Call, Call, Operands]] = {
    **{n: (getattr(Tensor, n), getattr(Tensor, f"{n}_"), o) for n, o in BY_NAME.items()},
    **CHANGED,
}
INTO: Mapping[str, tuple[Call, Operands]] = {
    **{n: (getattr(torch, n), o) for n, o in BY_NAME.items() if n != "index_fill"},
    **PUT,
}


# No documented name of these has `out`, and CUDA's write there as if memory had no gaps, as
# pytorch#84577 tells of others.
WITHOUT_GAPS = {"avg_pool2d", "adaptive_avg_pool2d", "max_pool2d", "reflected"}


def _numbers(ground: CaseContext) -> Tensor:
    rows_of = [torch.randperm(33, generator=ground.generator) for _ in range(17)]
    return torch.stack(rows_of).double() - 16


def _several(actual: Any) -> tuple[Tensor, ...]:
    return (actual,) if isinstance(actual, Tensor) else tuple(actual)


def _answer(label: str, actual: Tensor, expected: Tensor, ground: CaseContext) -> Answer:
    """Return an answer: integers are exact, and a sum of a row in 16 bits is rounded
    at each step.
    """
    if not expected.is_floating_point():
        return Answer(label, actual, array(expected))
    most = float(expected.abs().max())
    return Answer(label, actual, array(expected), ulps=16, slack=8 * ground.eps * most)


def _forms(expected: Tensor, ground: CaseContext) -> tuple[str, ...]:
    if ground.quick:
        return () if ground.half else FORMS[:1]
    return FORMS if expected.dim() > 1 else FORMS[:2]


def _in_place(name: str, ground: CaseContext) -> Iterator[Answer]:
    plain, changing, operands = IN_PLACE[name]
    if ground.quick and name not in CHANGED:
        return
    exact = _numbers(ground)
    expected = plain(*operands(exact))
    if expected.dtype == torch.bool:
        expected = expected.double()
    for form in _forms(expected, ground):
        first, *rest = operands(ground.send(exact))
        destination = PICTURES[form](first)
        changing(destination, *rest)
        yield _answer(form, destination, expected, ground)


def _into(name: str, ground: CaseContext) -> Iterator[Answer]:
    if ground.quick and name not in PUT:
        return
    call, operands = INTO[name]
    exact = _numbers(ground)
    expected = _several(call(*operands(exact)))
    x = operands(ground.send(exact))
    forms = _forms(expected[0], ground)
    if name in WITHOUT_GAPS and ground.device != "cpu":
        forms = ()
    for form in (*forms, *["nothing"] * (not ground.quick)):
        kinds = [
            ground.dtype if reference.is_floating_point() else reference.dtype
            for reference in expected
        ]
        destination = [
            FORM[form](torch.ones(reference.shape, dtype=kind, device=ground.device))
            for reference, kind in zip(expected, kinds, strict=True)
        ]
        call(*x, out=destination[0] if len(destination) == 1 else tuple(destination))
        for place, (actual, reference) in enumerate(zip(destination, expected, strict=True)):
            yield _answer(f"result {place} into {form}", actual, reference, ground)


DESTINATIONS = HazardClass(
    name="destinations",
    asks="are results right in place, and in memory that is there, with gaps or too small",
    hazards=(
        *rows({f"{name} in place": partial(_in_place, name) for name in IN_PLACE}, USUAL),
        *rows({f"{name} into memory": partial(_into, name) for name in INTO}, USUAL),
    ),
)
