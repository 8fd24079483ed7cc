"""Arguments far out: where a function saturates or nearly overflows, a shortcut loses digits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.edge_cases.answers import (
    DOUBLE,
    FLOATS,
    Answer,
    CaseContext,
    Hazard,
    HazardClass,
    array,
    rows,
)

Numbers = Any
VECTORIZED_ERF: Callable[[Numbers], Numbers] = np.vectorize(math.erf, otypes=[float])
VECTORIZED_ERFC: Callable[[Numbers], Numbers] = np.vectorize(math.erfc, otypes=[float])
WIDE = (0.0, 1e-30, 1e-8, 1e-4, 0.1, 0.5, 1.0, 3.0, 7.5, 10.0, 15.0, 19.0, 40.0, 80.0, 87.0, 88.5)
FURTHER = (100.0, 700.0, 1e4, 3e4, 1e10, 1e30, math.inf)
# A gate at infinity multiplies zero by infinity.
FINITE = 1e30
# torch's CUDA kernels compute their 1/6 in float32, whatever the tensor's dtype.
SIXTHS = ("hardswish",)
# Each argument many times: kernels treat whole vectors and their remainders apart.
TIMES = 5


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A function of one number, its float64 value, and its derivative. `ulps` are float32's and
    float64's; `slack` is the error of sums inside, in roundings of 1 (or of `size`).
    """

    function: Callable[[Tensor], Tensor]
    value: Callable[[Numbers], Numbers]
    slope: Callable[[Numbers], Numbers] | None = None
    ulps: float = 4.0
    slack: float = 0.0
    slope_slack: float = 4.0
    positive: bool = False
    most: float = math.inf
    size: Callable[[Numbers], Numbers] | None = None


def _sigmoid(x: Numbers) -> Numbers:
    return np.where(
        x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))
    )


def _cdf(x: Numbers) -> Numbers:
    return VECTORIZED_ERFC(-x / math.sqrt(2)) / 2


def _density(x: Numbers) -> Numbers:
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _product(x: Numbers, gate: Numbers) -> Numbers:
    """Return x times a gate that reaches 0 faster than x grows."""
    return np.where(gate == 0, 0.0 * np.sign(x), np.where(np.isinf(x), x, x * gate))


CURVES: dict[str, Curve] = {
    "exp": Curve(function=torch.exp, value=np.exp, slope=np.exp, slope_slack=0),
    "exp2": Curve(function=torch.exp2, value=np.exp2),
    "expm1": Curve(function=torch.expm1, value=np.expm1),
    "log": Curve(function=torch.log, value=np.log, slope=lambda x: 1 / x, positive=True),
    "log2": Curve(function=torch.log2, value=np.log2, positive=True),
    "log10": Curve(function=torch.log10, value=np.log10, positive=True),
    "log1p": Curve(
        function=torch.log1p, value=np.log1p, slope=lambda x: 1 / (1 + x), positive=True
    ),
    "sqrt": Curve(function=torch.sqrt, value=np.sqrt, positive=True),
    "rsqrt": Curve(function=torch.rsqrt, value=lambda x: 1 / np.sqrt(x), positive=True),
    "reciprocal": Curve(function=torch.reciprocal, value=lambda x: 1 / x, positive=True),
    "sigmoid": Curve(
        function=torch.sigmoid, value=_sigmoid, slope=lambda x: _sigmoid(x) * _sigmoid(-x)
    ),
    "log sigmoid": Curve(
        function=functional.logsigmoid,
        value=lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
        slope=lambda x: _sigmoid(-x),
        slack=2,
    ),
    "tanh": Curve(
        function=torch.tanh, value=np.tanh, slope=lambda x: 1 / np.cosh(np.clip(x, -350, 350)) ** 2
    ),
    "erf": Curve(
        function=torch.erf,
        value=VECTORIZED_ERF,
        # A 16-bit one may return 0 for results far below its rounding of 1.
        slack=1e-5,
        slope=lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    ),
    "erfc": Curve(function=torch.erfc, value=VECTORIZED_ERFC, ulps=16.0, most=9.0),
    "gelu": Curve(
        function=functional.gelu,
        value=lambda x: _product(x, _cdf(x)),
        slope=lambda x: _cdf(x) + _product(x, _density(x)),
        slack=2,
        size=np.abs,
        most=FINITE,
    ),
    "gelu, tanh form": Curve(
        function=partial(functional.gelu, approximate="tanh"),
        value=lambda x: _product(
            x, _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
        ),
        slack=4,
        size=np.abs,
        most=1e10,
    ),
    "silu": Curve(
        function=functional.silu,
        value=lambda x: _product(x, _sigmoid(x)),
        slope=lambda x: _sigmoid(x) + _product(x, _sigmoid(x) * _sigmoid(-x)),
        slack=2,
        size=np.abs,
        most=FINITE,
    ),
    "softplus": Curve(
        function=functional.softplus,
        value=lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
        slope=_sigmoid,
        # Above its threshold of 20 it is x by definition.
        slack=64,
    ),
    "elu": Curve(
        function=functional.elu,
        value=lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
        slope=lambda x: np.where(x > 0, 1.0, np.exp(np.minimum(x, 0))),
        slack=2,
    ),
    "mish": Curve(
        function=functional.mish,
        value=lambda x: _product(x, np.tanh(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))),
        slack=8,
        size=np.abs,
        most=FINITE,
    ),
    "hardswish": Curve(
        function=functional.hardswish,
        value=lambda x: _product(x, np.clip(x + 3, 0, 6) / 6),
        slack=4,
        size=np.abs,
        most=FINITE,
    ),
    "softsign": Curve(
        function=functional.softsign,
        value=lambda x: np.where(np.isinf(x), np.nan, x / (1 + np.abs(x))),
    ),
    "sinh": Curve(function=torch.sinh, value=np.sinh, ulps=8),
    "cosh": Curve(function=torch.cosh, value=np.cosh, ulps=8),
    "asinh": Curve(function=torch.asinh, value=np.arcsinh, ulps=8, slack=1),
    "atan": Curve(function=torch.atan, value=np.arctan),
    "sin": Curve(function=torch.sin, value=np.sin, slack=4, most=1e5),
    "cos": Curve(function=torch.cos, value=np.cos, slack=4, most=1e5),
    "lgamma": Curve(
        function=torch.lgamma,
        value=np.vectorize(lambda x: math.lgamma(x) if 0 < x < 1e300 else math.inf, otypes=[float]),
        ulps=16,
        slack=8,
        positive=True,
    ),
    "lgamma about nought": Curve(
        function=torch.lgamma,
        value=np.vectorize(lambda x: math.lgamma(x) if x else math.inf, otypes=[float]),
        ulps=8.0,
        most=0.5,
    ),
    "digamma": Curve(
        function=torch.digamma,
        value=lambda x: torch.digamma(torch.from_numpy(x)).numpy(),
        ulps=16,
        slack=8,
        positive=True,
    ),
    "square": Curve(function=torch.square, value=np.square, slope=lambda x: 2 * x, slope_slack=0),
    "cube": Curve(function=lambda x: x**3, value=lambda x: x**3, ulps=8),
}


def _arguments(ground: CaseContext, curve: Curve) -> Tensor:
    magnitudes = torch.tensor([x for x in (*WIDE, *FURTHER) if x <= curve.most]).double()
    arguments = magnitudes if curve.positive else torch.cat([magnitudes, -magnitudes])
    # Rounded to the dtype: the device gets exactly these numbers.
    rounded = arguments.to(ground.dtype).double()
    return (rounded if curve.most == math.inf else rounded[rounded.isfinite()]).repeat(TIMES)


def _curve(curve: Curve, ground: CaseContext) -> Iterator[Answer]:
    x = _arguments(ground, curve)
    on_device = ground.send(x).requires_grad_(curve.slope is not None)
    node = curve.function(on_device)
    with np.errstate(all="ignore"):
        expected = curve.value(array(x))
        size = np.ones(1) if curve.size is None else curve.size(array(x))
        slack = np.nan_to_num(curve.slack * ground.eps * size, posinf=0.0)
        yield Answer("value", node, expected, ulps=curve.ulps, slack=slack)
        if curve.slope is None:
            return
        node.sum().backward()
        slope = curve.slope(array(x))
        scale = np.nan_to_num(1 + (np.abs(array(x)) if curve.size else 0.0), posinf=0.0)
        defined = np.isfinite(array(x)) & (array(x) != 0)
        off = np.where(defined, curve.slope_slack * ground.eps * scale, np.inf)
        yield Answer(
            "derivative",
            on_device.grad,
            np.where(defined, slope, 0.0),
            ulps=8,
            slack=off,
        )


def _log_sum(x: Numbers, axis: int) -> Numbers:
    top = x.max(axis, keepdims=True)
    return top + np.log(np.exp(x - top).sum(axis, keepdims=True))


OFFSETS = (0.0, 100.0, -100.0, 1e4, -1e4, 3e4, -3e4)


def _logits(ground: CaseContext, width: int) -> Tensor:
    """Return rows whose numbers are all far from 0, one that spans the range, and one with a
    single finite number.
    """
    wide = 2e-3 if not ground.half else 0.25
    body = [ground.normal(width).mul(max(1.0, abs(o) * wide)).add(o) for o in OFFSETS]
    span = torch.linspace(-3e4, 3e4, width).double()
    alone = torch.full((width,), -math.inf).double()
    alone[width // 2] = 5.0
    # The widest of thousands would leave float16's range.
    logits = torch.stack(body).clamp(-6e4, 6e4)
    return torch.cat([logits, torch.stack([span, alone])]).to(ground.dtype).double()


def _softmax(ground: CaseContext) -> Iterator[Answer]:
    for width in (5, 67, 1025, 4099):
        x = _logits(ground, width)
        on_device = ground.send(x).requires_grad_()
        expected = np.exp(array(x) - _log_sum(array(x), 1))
        actual = functional.softmax(on_device, dim=1)
        # An exponent is off by the rounding of its argument.
        below = np.abs(array(x) - array(x).max(1, keepdims=True))
        unit = 1.2e-7 if ground.half else ground.eps
        slack = np.nan_to_num(unit * expected * (8 + 2 * below), posinf=0.0, nan=0.0)
        yield Answer(f"softmax of {width}", actual, expected, ulps=1, slack=slack)
        grad_output = ground.normal(*x.shape)
        actual.backward(ground.send(grad_output))
        g = array(grad_output)
        projected = (g * expected).sum(1, keepdims=True)
        size = expected * (np.abs(g) + (np.abs(g) * expected).sum(1, keepdims=True))
        yield Answer(
            f"gradient of softmax of {width}",
            on_device.grad,
            expected * (g - projected),
            ulps=1,
            slack=16 * ground.eps * size + slack * (np.abs(g) + np.abs(projected)),
        )


def _log_softmax(ground: CaseContext) -> Iterator[Answer]:
    for width in (5, 67, 1025, 4099):
        x = _logits(ground, width)
        expected = array(x) - _log_sum(array(x), 1)
        size = np.abs(array(x)).clip(max=1e5) + np.abs(_log_sum(array(x), 1))
        # The CPU keeps the sum in 16 bits, and its logarithm is off by that rounding.
        slack = (4e-7 * size + ground.eps) if ground.half else 4 * ground.eps * size
        actual = functional.log_softmax(ground.send(x), dim=1)
        yield Answer(f"log_softmax of {width}", actual, expected, ulps=1, slack=slack)
        actual = torch.logsumexp(ground.send(x), dim=1)
        expected, slack = (
            _log_sum(array(x), 1)[:, 0],
            2 * ground.eps * np.abs(_log_sum(array(x), 1))[:, 0],
        )
        yield Answer(
            f"logsumexp of {width}",
            actual,
            expected,
            ulps=2,
            slack=slack + 4 * ground.eps,
        )
        target = ground.index(width, len(x))
        target[-1] = width // 2
        loss = functional.cross_entropy(ground.send(x), target.to(ground.device), reduction="none")
        expected = _log_sum(array(x), 1)[:, 0] - array(x)[np.arange(len(x)), array(target)]
        slack = 4 * ground.eps * (np.abs(expected) + np.abs(_log_sum(array(x), 1)[:, 0]))
        if ground.half:
            slack = slack / 2
        yield Answer(
            f"cross_entropy of {width}",
            loss,
            expected,
            ulps=2,
            slack=slack + 4 * ground.eps,
        )


def _log_add(ground: CaseContext) -> Iterator[Answer]:
    x = torch.tensor(OFFSETS).double().to(ground.dtype).double()
    a, b = (t.flatten() for t in torch.meshgrid(x, x + 1, indexing="ij"))
    b = b.to(ground.dtype).double()
    slack = 4 * ground.eps * (1 + np.abs(array(a)) + np.abs(array(b)))
    actual = torch.logaddexp(ground.send(a), ground.send(b))
    yield Answer("logaddexp", actual, np.logaddexp(array(a), array(b)), slack=slack)


def _logits_loss(ground: CaseContext) -> Iterator[Answer]:
    x = (
        torch.tensor([*WIDE, *[-w for w in WIDE], 1e4, -1e4, 3e4])
        .double()
        .to(ground.dtype)
        .double()
    )
    t = torch.tensor([0.0, 1.0, 0.5]).double()
    logits, targets = (grid.flatten() for grid in torch.meshgrid(x, t, indexing="ij"))
    for weight in (None, 3.0):
        on_device = ground.send(logits).requires_grad_()
        scaled = None if weight is None else ground.send(torch.tensor(weight))
        actual = functional.binary_cross_entropy_with_logits(
            on_device, ground.send(targets), pos_weight=scaled, reduction="none"
        )
        z, y, w = array(logits), array(targets), weight or 1.0
        soft = np.log1p(np.exp(-np.abs(z)))
        expected = (1 - y) * z + (1 + (w - 1) * y) * (soft + np.maximum(-z, 0))
        slack = 8 * ground.eps * (1 + np.abs(z) * w)
        yield Answer(f"value, weight {weight}", actual, expected, ulps=2, slack=slack)
        actual.sum().backward()
        slope = (1 - y) - (1 + (w - 1) * y) * _sigmoid(-z)
        yield Answer(
            f"derivative, weight {weight}",
            on_device.grad,
            slope,
            ulps=2,
            slack=8 * ground.eps * w,
        )


def _far_mean(ground: CaseContext) -> Iterator[Answer]:
    """Check the variance of numbers that are far from 0: the mean of squares less the square of
    the mean has no digit remaining.
    """
    offset = 4096.0 if ground.dtype == torch.float32 else 1e7 if not ground.half else 64.0
    x = (ground.whole(7, 999) + offset).to(ground.dtype).double()
    on_device, a = ground.send(x), array(x)
    # One pass that follows the mean loses a rounding for each deviation that the mean is away, and
    # walks; the difference of two means of squares loses the square of that.
    away = np.sqrt(1 + (offset / a.std(1)) ** 2)
    slack = math.sqrt(a.shape[1]) * min(ground.eps, 1.2e-7) * away * a.var(1, ddof=1)
    yield Answer("var", on_device.var(1), a.var(1, ddof=1), ulps=2, slack=slack)
    yield Answer("std", on_device.std(1), a.std(1, ddof=1), ulps=2, slack=slack)
    variance, mean = torch.var_mean(on_device, 1, correction=0)
    yield Answer("var_mean", variance, a.var(1), ulps=2, slack=slack)
    yield Answer("var_mean's mean", mean, a.mean(1), ulps=2)


def _far_norms(ground: CaseContext) -> Iterator[Answer]:
    offset = 4096.0 if ground.dtype == torch.float32 else 1e6 if not ground.half else 32.0
    x = (ground.whole(6, 8, 33) + offset).to(ground.dtype).double()
    on_device, a = ground.send(x), array(x)
    for label, actual, axes in _norms_of(on_device):
        mean, deviation = a.mean(axes, keepdims=True), np.sqrt(a.var(axes, keepdims=True) + 1e-5)
        expected = (a - mean) / deviation
        # The mean, rounded to the dtype or to float32, moves everything by that over the deviation;
        # one that is followed through the terms walks, and so does its variance.
        slack = 4 * ground.eps * (1 + np.abs(expected)) + 4 * ground.eps * offset / deviation
        walk = math.sqrt(a.size / mean.size) * min(ground.eps, 1.2e-7) * offset / deviation
        slack = slack + walk * (1 + np.abs(expected))
        yield Answer(label, actual, expected, ulps=2, slack=slack)


def _large_norms(ground: CaseContext) -> Iterator[Answer]:
    """Check norms of numbers whose squares overflow float16: kernels have to store their
    divisor in a wider dtype.
    """
    x = (ground.whole(6, 8, 33) * (700.0 if ground.half else 1e15)).to(ground.dtype).double()
    a = array(x)
    for label, actual, axes in _norms_of(ground.send(x)):
        expected = (a - a.mean(axes, keepdims=True)) / np.sqrt(a.var(axes, keepdims=True) + 1e-5)
        yield Answer(label, actual, expected, ulps=2, slack=8 * ground.eps * (1 + np.abs(expected)))


def _norms_of(on_device: Tensor) -> Iterator[tuple[str, Tensor, tuple[int, ...]]]:
    """Yield each norm of an input of 6 by 8 by 33, with its label and the axes that it reduces."""
    yield "layer_norm", functional.layer_norm(on_device, (33,)), (2,)
    yield "group_norm", functional.group_norm(on_device, 8), (2,)
    yield "instance_norm", functional.instance_norm(on_device), (2,)
    yield "batch_norm", functional.batch_norm(on_device, None, None, training=True), (0, 2)


def _attention(ground: CaseContext) -> Iterator[Answer]:
    """Check scores of some hundreds, and keys of which all but one are masked."""
    q, k = (ground.whole(2, 3, 65, 32) for _ in range(2))
    v = ground.whole(2, 3, 65, 32)
    for label, mask in (("large scores", None), ("all but one hidden", torch.eye(65).bool())):
        on_device = [ground.send(x) for x in (q * 4, k * 4, v)]
        hidden = None if mask is None else mask.to(ground.device)
        actual = functional.scaled_dot_product_attention(*on_device, attn_mask=hidden)
        scores = array(q * 4) @ array(k * 4).swapaxes(-1, -2) / math.sqrt(32)
        if mask is not None:
            scores = np.where(array(mask), scores, -np.inf)
        p = np.exp(scores - _log_sum(scores, -1))
        # Queries and keys are rounded, each by its share of the scale (the same numbers alike, so
        # that errors add up), and so are sums: of a score, and of the row's largest, that many.
        terms = np.abs(array(q * 4)) @ np.abs(array(k * 4)).swapaxes(-1, -2) / math.sqrt(32)
        moved = 4 * 2.0**-24 * (terms + terms.max(-1, keepdims=True))
        slack = (p * (moved + 4 * ground.eps)) @ np.abs(array(v)) + 1e-30
        yield Answer(label, actual, p @ array(v), ulps=2, slack=slack)


def _powers(ground: CaseContext) -> Iterator[Answer]:
    base = torch.tensor([0.5, 2.0, -2.0, 10.0, 0.0, 1.0, -1.0]).double()
    power = torch.tensor([-20.0, -3.0, 0.0, 1.0, 2.0, 3.0, 10.0, 15.0]).double()
    a, b = (t.flatten() for t in torch.meshgrid(base, power, indexing="ij"))
    actual = torch.pow(ground.send(a), ground.send(b))
    with np.errstate(all="ignore"):
        expected = np.power(array(a), array(b))
    yield Answer("pow", actual, expected, ulps=16)


def _whole_quotients(ground: CaseContext) -> Iterator[Answer]:
    """Check rounding towards minus infinity, and remainders with the sign of either operand."""
    far = [] if ground.half else [1e9, -1e9, 123_456_789.0]
    a = torch.tensor([7.0, -7.0, 7.5, -7.5, 0.0, 1e4, -1e4, 3.0, *far]).double()
    b = torch.tensor([2.0, -2.0, 3.0, -3.0, 0.5, -0.25]).double()
    x, y = (t.flatten() for t in torch.meshgrid(a, b, indexing="ij"))
    x = x.to(ground.dtype).double()
    on_device = ground.send(x), ground.send(y)
    p, q = array(x), array(y)
    yield Answer("floor_divide", torch.floor_divide(*on_device), np.floor_divide(p, q), ulps=2)
    yield Answer("remainder", torch.remainder(*on_device), np.mod(p, q), ulps=1)
    yield Answer("fmod", torch.fmod(*on_device), np.fmod(p, q), ulps=1)
    trunc = torch.div(*on_device, rounding_mode="trunc")
    yield Answer("trunc", trunc, np.trunc(p / q), ulps=2)


def _beyond_the_range(ground: CaseContext) -> Iterator[Answer]:
    """Check sums that leave float16's range on the way to a result within it: 16 bits
    are added wider.
    """
    x = torch.full((3, 4099), 60.0).double()
    x[1] *= -1
    on_device, a = ground.send(x), array(x)
    yield Answer("mean", on_device.mean(1), a.mean(1), ulps=1)
    yield Answer("mean of all", on_device.abs().mean(), 60.0, ulps=1)
    yield Answer(
        "norm", torch.linalg.vector_norm(on_device, dim=1), np.sqrt((a * a).sum(1)), ulps=1
    )
    yield Answer("var", (on_device - 5).var(1), np.zeros(3), slack=ground.eps)
    squares = functional.mse_loss(on_device, torch.zeros_like(on_device))
    yield Answer("mse_loss", squares, 3600.0, ulps=1)
    yield Answer("avg_pool1d", functional.avg_pool1d(on_device, 4099)[:, 0], a.mean(1), ulps=1)
    normal = functional.rms_norm(on_device, (4099,))
    yield Answer("rms_norm", normal, np.sign(a), ulps=2)
    rise = torch.cat([torch.full((2048,), 100.0), torch.full((2048,), -100.0)]).double()
    both = ground.send(rise.expand(5, -1)), ground.send(torch.full((4096, 7), 100.0))
    yield Answer("matmul", both[0] @ both[1], np.zeros((5, 7)))
    yield Answer("linear", functional.linear(both[0], both[1].mT.contiguous()), np.zeros((5, 7)))
    q = ground.send(torch.full((1, 2, 9, 64), 40.0))
    actual = functional.scaled_dot_product_attention(q, q, ground.send(torch.ones(1, 2, 9, 64)))
    yield Answer("attention", actual, np.ones((1, 2, 9, 64)), ulps=2)


def _moved_away(ground: CaseContext) -> Iterator[Answer]:
    """Check integers that are all far from zero. Results of their differences have no digits at
    that size, so they equal those of unshifted numbers.
    """
    for width, axis, away in itertools.product((5, 67, 1025), (0, 1), (2.0**16, -(2.0**18))):
        x = ground.whole(7, width) if axis else ground.whole(width, 7)
        on_device = ground.send(x + away)
        # A sum of so many is added up first, one by one at worst.
        slack = (16 + width / 16) * ground.eps
        label = f"{width} along {axis}, {away:.0f} away"
        for name, call in MOVED_AWAY.items():
            yield Answer(
                f"{name} of {label}", call(on_device, axis), array(call(x, axis)), slack=slack
            )


MOVED_AWAY: Mapping[str, Callable[[Tensor, int], Tensor]] = {
    "log_softmax": lambda x, axis: x.log_softmax(axis),
    "softmax": lambda x, axis: x.softmax(axis),
    "cross_entropy": lambda x, axis: functional.cross_entropy(
        x if axis else x.mT, torch.arange(7, device=x.device) % 5, reduction="none"
    ),
}
FAR_OUT = HazardClass(
    name="far out",
    asks="are arguments right where a function saturates, nearly overflows or cancels",
    hazards=(
        *rows(
            {name: partial(_curve, curve) for name, curve in CURVES.items() if name not in SIXTHS},
            DOUBLE,
        ),
        *rows({name: partial(_curve, CURVES[name]) for name in SIXTHS}, FLOATS),
        *rows(
            {
                "softmax": _softmax,
                "logarithms of sums": _log_softmax,
                "logaddexp": _log_add,
                "loss of logits": _logits_loss,
                "variance far from 0": _far_mean,
                "normalisation far from 0": _far_norms,
                "attention": _attention,
            },
            FLOATS,
            each_seed=True,
        ),
        *rows({"normalisation of large numbers": _large_norms}, FLOATS),
        *rows({"moved away from 0": _moved_away}),
        Hazard(name="beyond the range", answers=_beyond_the_range, dtypes=FLOATS),
        Hazard(name="powers", answers=_powers, dtypes=FLOATS),
        Hazard(name="whole quotients", answers=_whole_quotients, dtypes=FLOATS),
    ),
)
