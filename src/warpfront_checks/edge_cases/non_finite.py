"""NaN and infinity: through every reduction, comparison and choice, wherever they stand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.edge_cases.answers import (
    FALSE,
    FLOATS,
    Answer,
    CaseContext,
    Hazard,
    HazardClass,
    array,
    rows,
)

Numbers = Any
Pair = tuple[Callable[[Tensor], Tensor], Callable[[Numbers], Numbers]]
# Ends and edges of lanes, waves, blocks, and of one thread's elements.
PLACES = (0, 1, 31, 32, 63, 64, 127, 511, 1023, 1024, 2049, 4095, 5001)
WIDTH = 5002
SPECIAL = (math.nan, math.inf, -math.inf)

# Along the last axis; integers, so that unaffected results are exact.
REDUCTIONS: dict[str, Pair] = {
    "sum": (lambda x: x.sum(-1), lambda a: a.sum(-1)),
    "mean": (lambda x: x.mean(-1), lambda a: a.mean(-1)),
    "nansum": (lambda x: x.nansum(-1), lambda a: np.nansum(a, -1)),
    "amax": (lambda x: x.amax(-1), lambda a: a.max(-1)),
    "amin": (lambda x: x.amin(-1), lambda a: a.min(-1)),
    "max": (lambda x: x.max(-1).values, lambda a: a.max(-1)),
    "min": (lambda x: x.min(-1).values, lambda a: a.min(-1)),
    "largest of": (lambda x: x.gather(-1, x.argmax(-1, keepdim=True))[:, 0], lambda a: a.max(-1)),
    "smallest of": (lambda x: x.gather(-1, x.argmin(-1, keepdim=True))[:, 0], lambda a: a.min(-1)),
    "where the largest is": (
        lambda x: x.gather(-1, x.max(-1).indices[:, None])[:, 0],
        lambda a: a.max(-1),
    ),
    "where the smallest is": (
        lambda x: x.gather(-1, x.min(-1).indices[:, None])[:, 0],
        lambda a: a.min(-1),
    ),
    "aminmax": (
        lambda x: torch.stack(torch.aminmax(x, dim=-1)),
        lambda a: np.stack([a.min(-1), a.max(-1)]),
    ),
    "median": (lambda x: x.median(-1).values, lambda a: _median(a)),
    "last of cumsum": (lambda x: x.cumsum(-1)[:, -1], lambda a: a.sum(-1)),
    "last of cummax": (lambda x: x.cummax(-1).values[:, -1], lambda a: a.max(-1)),
    "last of cummin": (lambda x: x.cummin(-1).values[:, -1], lambda a: a.min(-1)),
    "cummax": (lambda x: x.cummax(-1).values, lambda a: np.maximum.accumulate(a, -1)),
    "cummin": (lambda x: x.cummin(-1).values, lambda a: np.minimum.accumulate(a, -1)),
    "sort": (lambda x: x.sort(-1).values, lambda a: np.sort(a, -1)),
    "descending sort": (
        lambda x: x.sort(-1, descending=True).values,
        lambda a: (
            np.concatenate([a[np.isnan(a)], -np.sort(-a[~np.isnan(a)])]).reshape(a.shape)
            if len(a) == 1
            else np.stack([_falling(row) for row in a])
        ),
    ),
    "topk": (lambda x: x.topk(5).values, lambda a: np.stack([_falling(row)[:5] for row in a])),
    "kthvalue": (lambda x: x.kthvalue(17).values, lambda a: np.sort(a, -1)[:, 16]),
    "any NaN": (lambda x: x.isnan().any(-1), lambda a: np.isnan(a).any(-1)),
    "all finite": (lambda x: x.isfinite().all(-1), lambda a: np.isfinite(a).all(-1)),
    "count of not zero": (lambda x: x.count_nonzero(-1), lambda a: np.count_nonzero(a, -1)),
    "norm is finite": (
        lambda x: torch.linalg.vector_norm(x, dim=-1).isfinite(),
        lambda a: np.isfinite(a).all(-1),
    ),
    "norm of order infinity": (
        lambda x: torch.linalg.vector_norm(x, math.inf, dim=-1),
        lambda a: np.abs(a).max(-1),
    ),
    "var is finite": (lambda x: x.var(-1).isfinite(), lambda a: np.isfinite(a).all(-1)),
    "softmax has NaN": (
        lambda x: x.softmax(-1).isnan().all(-1),
        lambda a: np.isnan(a).any(-1) | (a == np.inf).any(-1),
    ),
    "log_softmax has NaN": (
        lambda x: x.log_softmax(-1).isnan().any(-1),
        lambda a: np.isnan(a).any(-1) | (a == np.inf).any(-1),
    ),
    "logsumexp": (
        lambda x: torch.where(x.logsumexp(-1).isfinite(), 0.0, x.logsumexp(-1)),
        lambda a: np.where(
            np.isnan(a).any(-1), np.nan, np.where((a == np.inf).any(-1), np.inf, 0.0)
        ),
    ),
    "layer_norm has NaN": (
        lambda x: functional.layer_norm(x, x.shape[-1:]).isnan().all(-1),
        lambda a: ~np.isfinite(a).all(-1),
    ),
    "sum down columns": (lambda x: x.mT.contiguous().sum(0), lambda a: a.sum(-1)),
    "amax down columns": (lambda x: x.mT.contiguous().amax(0), lambda a: a.max(-1)),
    "amin down columns": (lambda x: x.mT.contiguous().amin(0), lambda a: a.min(-1)),
}


def _each(reduce: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a reduction of each row as a tensor of its own, without an axis."""
    return lambda x: torch.stack([reduce(row) for row in x])


OF_ALL: dict[str, Pair] = {
    f"{name} of all": (_each(call), numbers)
    for name, call, numbers in (
        ("sum", torch.sum, lambda a: a.sum(-1)),
        ("max", torch.max, lambda a: a.max(-1)),
        ("min", torch.min, lambda a: a.min(-1)),
        ("amax", torch.amax, lambda a: a.max(-1)),
        ("amin", torch.amin, lambda a: a.min(-1)),
        ("median", torch.median, lambda a: _median(a)),
        ("largest", lambda x: x[x.argmax()], lambda a: a.max(-1)),
        ("smallest", lambda x: x[x.argmin()], lambda a: a.min(-1)),
        (
            "bounds",
            lambda x: torch.stack(torch.aminmax(x)),
            lambda a: np.stack([a.min(-1), a.max(-1)], -1),
        ),
        ("any", torch.any, lambda a: (a != 0).any(-1)),
        ("all", torch.all, lambda a: (a != 0).all(-1)),
    )
}


def _falling(row: Numbers) -> Numbers:
    """Sort in descending order; NaN counts as the largest."""
    return np.concatenate([row[np.isnan(row)], -np.sort(-row[~np.isnan(row)])])


def _median(a: Numbers) -> Numbers:
    """Return NaN if there is one, else the median: of two in the middle the lower."""
    return np.where(np.isnan(a).any(-1), np.nan, np.sort(a, -1)[:, (a.shape[-1] - 1) // 2])


def _reduction(pair: Pair, ground: CaseContext) -> Iterator[Answer]:
    """Check a NaN or infinity at each index in turn, a row each, with rows without any."""
    function, numbers = pair
    for name, most in (("whole numbers", 1), ("below 0", 0)):
        base = ground.whole(len(PLACES) + 1, WIDTH, most=most) - (0 if most else 1)
        for special in SPECIAL:
            x = base.clone()
            for row, place in enumerate(PLACES):
                x[row, place] = special
            node = function(ground.send(x))
            with np.errstate(all="ignore"):
                expected = numbers(array(x))
            yield Answer(f"{special} among {name}", node, expected, ulps=4 if ground.half else 1)


# More of them than a block or two cover, and none that is larger.
ALIKE = (-0.0, 0.0, -3.0, math.inf, -math.inf, math.nan)
ALIKE_COUNT = 20_011
# Rows of -infinity alone have results that no other row of these tables has.
NOT_OF_NOTHING = ("softmax has NaN", "log_softmax has NaN", "logsumexp")


def _alike(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Reduce one number repeated many times: the initial value of a reduction must not
    be its result.
    """
    function, numbers = {**REDUCTIONS, **OF_ALL}[name]
    for number in ALIKE:
        if number == -math.inf and name in NOT_OF_NOTHING:
            continue
        x = torch.full((2, ALIKE_COUNT), number, dtype=torch.float64)
        with np.errstate(all="ignore"):
            expected = numbers(array(x))
        yield Answer(f"{number} alone", function(ground.send(x)), expected, ulps=1)


ELEMENTS: dict[
    str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Numbers, Numbers], Numbers]]
] = {
    "maximum": (torch.maximum, np.maximum),
    "minimum": (torch.minimum, np.minimum),
    "fmax": (torch.fmax, np.fmax),
    "fmin": (torch.fmin, np.fmin),
    "clamp to tensors": (lambda x, y: torch.clamp(x, y), np.maximum),
    "clamp below tensors": (lambda x, y: torch.clamp(x, max=y), np.minimum),
    "eq": (torch.eq, np.equal),
    "ne": (torch.ne, np.not_equal),
    "lt": (torch.lt, np.less),
    "le": (torch.le, np.less_equal),
    "gt": (torch.gt, np.greater),
    "ge": (torch.ge, np.greater_equal),
    "add": (torch.add, np.add),
    "mul": (torch.mul, np.multiply),
    "div": (torch.div, np.divide),
    "sub": (torch.sub, np.subtract),
    "where": (lambda x, y: torch.where(x > y, x, y), lambda a, b: np.where(a > b, a, b)),
    "hypot": (torch.hypot, np.hypot),
    "isclose": (
        lambda x, y: torch.isclose(x, y, equal_nan=True),
        lambda a, b: np.isclose(a, b, equal_nan=True),
    ),
    "logical_and": (torch.logical_and, np.logical_and),
}


def _elements(
    function: Callable[[Tensor, Tensor], Tensor],
    numbers: Callable[[Numbers, Numbers], Numbers],
    ground: CaseContext,
) -> Iterator[Answer]:
    values = torch.tensor([*SPECIAL, 0.0, -0.0, 1.0, -1.0, 2.0]).double()
    x, y = (t.flatten().repeat(9) for t in torch.meshgrid(values, values, indexing="ij"))
    with np.errstate(all="ignore"):
        expected = numbers(array(x), array(y))
    yield Answer("", function(ground.send(x), ground.send(y)), expected, ulps=1)


def _kept(x: Numbers, low: float, high: float) -> Numbers:
    return np.clip(x, low, high)


CHOICES: dict[str, Pair] = {
    "relu": (functional.relu, lambda a: np.maximum(a, 0)),
    "relu6": (functional.relu6, lambda a: _kept(a, 0, 6)),
    "leaky_relu": (
        lambda x: functional.leaky_relu(x, 0.5),
        lambda a: np.where(a > 0, a, a * 0.5),
    ),
    "hardtanh": (functional.hardtanh, lambda a: _kept(a, -1, 1)),
    "clamp": (lambda x: torch.clamp(x, -1, 1), lambda a: _kept(a, -1, 1)),
    "clamp from below": (lambda x: torch.clamp(x, min=-1), lambda a: np.maximum(a, -1)),
    "clamp from above": (lambda x: torch.clamp(x, max=1), lambda a: np.minimum(a, 1)),
    "clamp in place": (lambda x: x.clone().clamp_(-1, 1), lambda a: _kept(a, -1, 1)),
    "hardsigmoid": (functional.hardsigmoid, lambda a: _kept(a + 3, 0, 6) / 6),
    "threshold": (
        lambda x: functional.threshold(x, 0.5, 7.0),
        lambda a: np.where(a <= 0.5, 7.0, a),
    ),
    "abs": (torch.abs, np.abs),
    "isnan": (torch.isnan, np.isnan),
    "isinf": (torch.isinf, np.isinf),
    "isfinite": (torch.isfinite, np.isfinite),
    "nan_to_num": (
        lambda x: torch.nan_to_num(x, nan=3.0, posinf=4.0, neginf=-4.0),
        lambda a: np.nan_to_num(a, nan=3.0, posinf=4.0, neginf=-4.0),
    ),
    "floor": (torch.floor, np.floor),
    "ceil": (torch.ceil, np.ceil),
    "trunc": (torch.trunc, np.trunc),
    "round": (torch.round, np.round),
    "exp": (torch.exp, np.exp),
    "tanh": (torch.tanh, np.tanh),
    "erf": (torch.erf, np.vectorize(math.erf, otypes=[float])),
    "negative square root": (torch.sqrt, np.sqrt),
    "negative logarithm": (torch.log, np.log),
}


def _choice(pair: Pair, ground: CaseContext) -> Iterator[Answer]:
    function, numbers = pair
    values = torch.tensor([*SPECIAL, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.5, 7.0, -7.0]).double()
    # Whole vectors, their remainders, and one that is not aligned.
    for count in (1, 11, 97):
        x = values.repeat(count)
        on_device = ground.send(torch.cat([values[:1], x]))[1:]
        with np.errstate(all="ignore"):
            expected = numbers(array(x))
        yield Answer(f"{len(x)}", function(on_device), expected, ulps=4)


def _products(ground: CaseContext) -> Iterator[Answer]:
    """Check that a NaN affects its row and its column and no others, and that zero times
    infinity is NaN.
    """
    a, b = ground.whole(65, 129, most=2), ground.whole(129, 67, most=2)
    for special in (math.nan, math.inf):
        for row, k in ((0, 0), (64, 128), (33, 64)):
            lhs = a.clone()
            lhs[row, k] = special
            with np.errstate(all="ignore"):
                expected = array(lhs) @ array(b)
            for label, actual in (
                ("matmul", ground.send(lhs) @ ground.send(b)),
                ("linear", functional.linear(ground.send(lhs), ground.send(b.mT.contiguous()))),
                ("bmm", (ground.send(lhs)[None] @ ground.send(b)[None])[0]),
            ):
                yield Answer(f"{label}, {special} at {row}, {k}", actual, expected, ulps=1)
    # With beta = 0 its operand is not read.
    spoiled = torch.full((65, 67), math.nan).double()
    actual = torch.addmm(ground.send(spoiled), ground.send(a), ground.send(b), beta=0)
    yield Answer("addmm, beta 0", actual, array(a @ b), ulps=1)


def _windows(ground: CaseContext) -> Iterator[Answer]:
    """Check a NaN in an image: it reaches maxima and sums of the windows around it,
    and no others.
    """
    x = ground.whole(2, 3, 12, 12)
    # AVX-512 takes channels of 16 bits in pairs: of an odd one, a neighbour's number times zero.
    reach = 2 if ground.half and ground.device == "cpu" else 1
    for place in ((0, 0, 0, 0), (1, 2, 11, 11), (0, 1, 5, 6)):
        for special in SPECIAL:
            spoiled = x.clone()
            spoiled[place] = special
            tiles = array(spoiled).reshape(2, 3, 6, 2, 6, 2)
            on_device = ground.send(spoiled)
            with np.errstate(all="ignore"):
                for label, actual, expected in (
                    ("max_pool2d", functional.max_pool2d(on_device, 2), tiles.max((3, 5))),
                    (
                        "adaptive_max_pool2d",
                        functional.adaptive_max_pool2d(on_device, 6),
                        tiles.max((3, 5)),
                    ),
                    ("avg_pool2d", functional.avg_pool2d(on_device, 2), tiles.mean((3, 5))),
                ):
                    yield Answer(f"{label}, {special} at {place}", actual, expected, ulps=1)
            last = on_device.contiguous(memory_format=torch.channels_last)
            actual = functional.max_pool2d(last, 2)
            yield Answer(f"channels_last, {special} at {place}", actual, tiles.max((3, 5)))
            weight = torch.ones(1, 3, 3, 3).double()
            actual = functional.conv2d(on_device, ground.send(weight), padding=1).isfinite()
            near = _around(place, 1)
            reached = near | ~_around(place, reach)
            yield Answer(f"conv2d, {special} at {place}", actual.cpu()[reached], ~near[reached])


def _around(place: tuple[int, ...], reach: int) -> Tensor:
    """Return the windows of one channel that contain an index, or have it within reach."""
    near = torch.zeros(2, 1, 12, 12).bool()
    n, _, i, j = place
    near[n, 0, max(0, i - reach) : i + reach + 1, max(0, j - reach) : j + reach + 1] = True
    return near


def _derivatives(ground: CaseContext) -> Iterator[Answer]:
    """Check that a NaN in the output's gradient comes out as NaN, and only there."""
    x = ground.whole(7, 65)
    grad_output = ground.whole(7, 65)
    grad_output[3, 33] = math.nan
    for name, function in (
        ("mul", lambda t: t * 2),
        ("neg", torch.neg),
        ("clone", torch.clone),
        ("transpose", lambda t: t.mT.contiguous().mT),
    ):
        on_device = ground.send(x).requires_grad_()
        function(on_device).backward(ground.send(grad_output))
        yield Answer(name, on_device.grad.isnan(), grad_output.isnan())
    on_device = ground.send(x).requires_grad_()
    functional.softmax(on_device, 1).backward(ground.send(grad_output))
    yield Answer("softmax", on_device.grad.isnan().any(1), grad_output.isnan().any(1))


def _slopes(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Compare gradients at NaN, infinity, zero and the ends of slopes with float64 on the CPU."""
    ends = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 6.0, -3.0, 3.0, 1.0, -1.0, 0.5])
    x = ends.double().repeat(9)
    exact, on_device = x.clone().requires_grad_(), ground.send(x).requires_grad_()
    SLOPES[name](exact).backward(torch.full_like(exact, 2.0))
    SLOPES[name](on_device).backward(torch.full_like(on_device, 2.0))
    yield Answer(name, on_device.grad, array(exact.grad), ulps=8, slack=8 * ground.eps)


SLOPES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "relu6": functional.relu6,
    "hardtanh": functional.hardtanh,
    "leaky_relu": functional.leaky_relu,
    "elu": functional.elu,
    "selu": functional.selu,
    "celu": functional.celu,
    "softplus": functional.softplus,
    "hardsigmoid": functional.hardsigmoid,
    "hardswish": functional.hardswish,
    "hardshrink": functional.hardshrink,
    "softshrink": functional.softshrink,
    "threshold": lambda x: functional.threshold(x, 0.5, 7.0),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "logsigmoid": functional.logsigmoid,
    "softsign": functional.softsign,
    "abs": torch.abs,
    "clamp": lambda x: x.clamp(-1, 3),
    "sign": torch.sign,
    "nan_to_num": torch.nan_to_num,
    "maximum": lambda x: torch.maximum(x, torch.full_like(x, 0.5)),
    "minimum": lambda x: torch.minimum(x, torch.full_like(x, 0.5)),
    "where": lambda x: torch.where(x > 0, x, x * 3),
}


# CUDA's kernels pass the output's gradient through where the argument is NaN.
PASSED_ON = ("relu6", "hardtanh", "elu", "selu", "celu", "hardswish", "hardshrink", "softshrink")


SIGNS: Mapping[str, Mapping[str, Pair]] = {
    "signs of nought": {
        "round": (torch.round, np.round),
        "trunc": (torch.trunc, np.trunc),
        "ceil": (torch.ceil, np.ceil),
        "floor": (torch.floor, np.floor),
        "neg": (torch.neg, np.negative),
        "abs": (torch.abs, np.abs),
        "mul": (lambda x: x * 0.0, lambda a: a * 0.0),
        "div": (lambda x: 0.0 / (x - 2), lambda a: 0.0 / (a - 2)),
        "add": (lambda x: x + torch.full_like(x, -0.0), lambda a: a + -0.0),
        "copysign": (lambda x: torch.zeros_like(x).copysign(x), lambda a: np.copysign(0.0, a)),
    },
    "signs of curves": {
        "sin": (torch.sin, np.sin),
        "tan": (torch.tan, np.tan),
        "tanh": (torch.tanh, np.tanh),
        "atan": (torch.atan, np.arctan),
        "asinh": (torch.asinh, np.arcsinh),
        "expm1": (torch.expm1, np.expm1),
        "fmod": (lambda x: x.fmod(1), lambda a: np.fmod(a, 1)),
    },
}


def _signs(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Check the sign of zeros that result from rounding, shrinking or copying."""
    x = torch.tensor([-0.0, 0.0, -0.25, 0.25, -1.0, 1.0]).double().repeat(9)
    for label, (call, numbers) in SIGNS[name].items():
        actual, expected = call(ground.send(x)), numbers(array(x))
        yield Answer(label, actual.signbit(), np.signbit(expected))


def _logarithms(ground: CaseContext) -> Iterator[Answer]:
    """Check cumulative sums of exponentials that begin with zeros, or have a run of them."""
    x = ground.whole(5, 257)
    x[0, ::3], x[1, 5:9], x[2, :70], x[3], x[4, 100] = *[-math.inf] * 4, math.inf
    actual = torch.logcumsumexp(ground.send(x), 1)
    with np.errstate(all="ignore"):
        expected = np.logaddexp.accumulate(array(x), 1)
    # A rounding of some numbers near 8 for each of 257 steps, which walk.
    slack = 16 * ground.eps * math.sqrt(257) * 8
    yield Answer("logcumsumexp", actual, expected, ulps=4, slack=slack)
    down = torch.logcumsumexp(ground.send(x.mT.contiguous()), 0).mT
    yield Answer("logcumsumexp down", down, expected, ulps=4, slack=slack)


def _clipping(ground: CaseContext) -> Iterator[Answer]:
    """Check that a norm is not finite where one gradient is infinite or NaN."""
    for special in (math.inf, math.nan):
        gradients = [ground.whole(65), ground.whole(1025)]
        gradients[1][1000] = special
        parameters = [ground.send(g).requires_grad_() for g in gradients]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = ground.send(gradient)
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        yield Answer(f"clip_grad_norm_, {special}", norm.isfinite(), FALSE)


DROPS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "triu": lambda x: x.triu(1),
    "tril": lambda x: x.tril(-1),
    "masked_fill": lambda x: x.masked_fill(~x.isfinite(), 7),
    "where": lambda x: torch.where(x.isfinite(), x, 7),
    "nan_to_num": lambda x: x.nan_to_num(7, 7, 7),
    "cut off": lambda x: functional.pad(x[:, 1:], (-1, -1)),
    "scattered over": lambda x: x.scatter(1, _everywhere(x), 7.0),
    "filled": lambda x: x.index_fill(0, torch.arange(9, device=x.device), 7),
    "written over": lambda x: x.clone().copy_(torch.full_like(x, 7)),
    "erased": lambda x: x.clone().zero_(),
}


def _everywhere(x: Tensor) -> Tensor:
    return torch.arange(x.shape[1], device=x.device).expand(x.shape)


def _payloads(ground: CaseContext) -> Iterator[Answer]:
    """Check that a NaN of low mantissa bits does not become infinite in a narrower dtype."""
    codes = torch.tensor([0x7F800001, 0x7F80FFFF, 0x7F810000, 0x7FC00000, 0x7FFFFFFF])
    both = torch.cat([codes, codes - 2**31]).to(torch.int32).repeat(7)
    on_device = both.to(ground.device).view(torch.float32)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        yield Answer(f"to {dtype}", on_device.to(dtype).isnan(), np.ones(len(both), dtype=bool))
    yield Answer("added to", (on_device + 1).isnan(), np.ones(len(both), dtype=bool))


def _signed(ground: CaseContext) -> Iterator[Answer]:
    """Check that a NaN has a sign."""
    for dtype, codes in {
        torch.float32: torch.tensor([0x7FC00000, -0x400000], dtype=torch.int32),
        torch.bfloat16: torch.tensor([0x7FC0, -0x40], dtype=torch.int16),
        torch.float16: torch.tensor([0x7E00, -0x200], dtype=torch.int16),
    }.items():
        on_device = codes.repeat(17).to(ground.device).view(dtype)
        negative = array(codes.repeat(17) < 0)
        signs = torch.copysign(torch.ones_like(on_device), on_device)
        yield Answer(f"copysign, {dtype}", signs, np.where(negative, -1.0, 1.0))
        yield Answer(f"signbit, {dtype}", on_device.signbit(), negative)


def _dropped(drop: Callable[[Tensor], Tensor], ground: CaseContext) -> Iterator[Answer]:
    """Check that dropped or overwritten elements leave no trace in the result,
    whatever their value.
    """
    x = ground.whole(9, 9)
    for special in SPECIAL:
        spoiled = torch.where(torch.eye(9).bool() | (x == 2), special, x)
        yield Answer(f"{special}", drop(ground.send(spoiled)), array(drop(spoiled)))


NON_FINITE = HazardClass(
    name="NaN and infinity",
    asks="do they come through reductions, comparisons and choices, and spoil nothing else",
    hazards=(
        *rows(
            {name: partial(_reduction, pair) for name, pair in {**REDUCTIONS, **OF_ALL}.items()},
            FLOATS,
        ),
        *rows({f"{name}, alike": partial(_alike, name) for name in {**REDUCTIONS, **OF_ALL}}),
        *rows({name: partial(_elements, *pair) for name, pair in ELEMENTS.items()}, FLOATS),
        *rows(
            {f"element {name}": partial(_choice, pair) for name, pair in CHOICES.items()}, FLOATS
        ),
        *rows(
            {
                "products": _products,
                "windows": _windows,
                "derivatives": _derivatives,
                "clipping": _clipping,
            },
            FLOATS,
        ),
        *rows({name: partial(_signs, name) for name in SIGNS}, FLOATS),
        *rows({"logarithms": _logarithms}),
        *rows({"last bits": _payloads}),
        # CUDA's float16 has none (2.11 on an H200).
        *rows({"signs of no number": _signed}, devices=("cpu",)),
        *(
            Hazard(
                name=f"gradient of {name}",
                answers=partial(_slopes, name),
                devices=("cpu",) if name in PASSED_ON else (),
            )
            for name in SLOPES
        ),
        *rows(
            {f"dropped, {name}": partial(_dropped, drop) for name, drop in DROPS.items()}, FLOATS
        ),
    ),
)
