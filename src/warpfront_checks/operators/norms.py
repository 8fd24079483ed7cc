"""Normalisation, in training and in evaluation, and the losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.operations import BATCH_NORM, Norm, Operation, layer_norm
from warpfront_checks.operators.bounds import Derived, Elementwise, Spread
from warpfront_checks.operators.cases import Case, Cases, Maker, OperatorFamily

GROUPS = 2
Terms = Callable[..., "tuple[Tensor, Sequence[Tensor]]"]


def _group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply group norm. x, weight and bias come with their groups as an axis: (batch,
    groups, channels, ...).
    """
    flat = functional.group_norm(x.flatten(1, 2), x.shape[1], weight.flatten(), bias.flatten())
    return flat.reshape(x.shape)


def _instance_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.instance_norm(x, weight=weight, bias=bias)


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], weight, eps=1e-5)


def _normed(norm: Norm, *shapes: tuple[int, ...], bias: bool = True) -> Cases:
    def cases(maker: Maker) -> Iterator[Case]:
        for shape in shapes[: 1 if maker.quick else None]:
            along = [shape[axis] for axis in norm.along]
            tensors = [
                maker.normal(*shape, mean=0.5),
                maker.normal(*along, scale=0.2, mean=1.0),
                *([maker.normal(*along, scale=0.5)] if bias else []),
            ]
            name = "x".join(str(size) for size in shape)
            yield Case(name, norm, tuple(tensors), reduces=True)

    return cases


def _evaluated(x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return batch norm with running statistics; the statistics are not differentiated."""
    statistics = (mean.detach().flatten(), variance.detach().flatten())
    return functional.batch_norm(x, *statistics, weight.flatten(), bias.flatten(), training=False)


def _evaluated_size(
    x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    scale = weight.abs() * (variance + 1e-5).rsqrt()
    return (x.abs() + mean.abs()) * scale + bias.abs()


def _batch_norms(maker: Maker) -> Iterator[Case]:
    yield from _normed(BATCH_NORM, (5, 6, 9, 7), (3, 5, 17, 17), (65, 3, 1, 1))(maker)
    shape = (1, 6, 1, 1)
    statistics = (maker.normal(*shape), maker.positive(*shape))
    yield Case(
        "evaluation",
        Elementwise(function=_evaluated, size=_evaluated_size, kind="batch norm"),
        (
            maker.normal(5, 6, 9, 7),
            *statistics,
            maker.positive(*shape),
            maker.normal(*shape),
        ),
        backward=False,
    )


def _loss(function: Callable[..., Tensor], terms: Terms, second: str, kind: str = "loss") -> Cases:
    """Return cases of a mean of terms. `terms` yields them and the magnitude of each input's
    derivative of them.
    """

    def spreads(inputs: Sequence[Tensor], loss: Tensor, g: Tensor) -> Sequence[Spread]:
        del loss
        values, slopes = terms(*inputs)
        count = float(values.numel())
        rounded = (values**2).sum().sqrt() / count
        return (
            Spread(size=values.abs().mean(), length=count, carried=2 * rounded),
            *(Spread(size=s * g / count, carried=s * g / count / 2, factor=s) for s in slopes),
        )

    operation = Derived(function=function, spreads=spreads, kind=kind)

    def cases(maker: Maker) -> Iterator[Case]:
        for size in (67, *maker.edges):
            first, other = _pair(maker, second, size)
            yield Case(f"3x{size}", operation, (first, other), reduces=True)

    return cases


def _pair(maker: Maker, second: str, size: int) -> tuple[Tensor, Tensor]:
    if second == "probability":
        return maker.uniform(0.05, 0.95, 3, size), maker.uniform(0.05, 0.95, 3, size)
    if second == "logits":
        return maker.normal(3, size), maker.uniform(0.0, 1.0, 3, size)
    if second == "log probability":
        logits = maker.normal(3, size).double()
        return torch.log_softmax(logits, 1).to(maker.dtype), maker.uniform(0.05, 0.95, 3, size)
    return maker.normal(3, size), maker.normal(3, size)


def _mse(a: Tensor, b: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
    difference = a - b
    return difference**2, (2 * difference.abs(),) * 2


def _l1(a: Tensor, b: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
    return (a - b).abs(), (torch.ones_like(a),) * 2


def _smooth_l1(a: Tensor, b: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
    return functional.smooth_l1_loss(a, b, reduction="none"), (torch.ones_like(a),) * 2


def _bce(p: Tensor, t: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
    """Return the magnitude of two logarithms weighted and added; the derivative's (p - t)/(p(1
    - p)) cancels.
    """
    terms = t * p.log().abs() + (1 - t) * (1 - p).log().abs()
    return terms, ((p + t) / (p * (1 - p)), p.log().abs() + (1 - p).log().abs())


def _bce_logits(x: Tensor, t: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
    return x.abs() * (1 + t) + 1.0, (torch.sigmoid(x) + t, x.abs() + 1)


def _mean_divergence(x: Tensor, t: Tensor) -> Tensor:
    """Return the mean divergence; torch's own `mean` reduction warns that it will change."""
    return functional.kl_div(x, t, reduction="sum") / x.numel()


def _kl_div(x: Tensor, t: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
    """Return the magnitude of t*log(t) - t*x: two products of different signs."""
    return t * (t.log().abs() + x.abs()), (t, t.log().abs() + x.abs() + 1)


def _classes(function: Callable[..., Tensor], *, normalised: bool) -> Cases:
    """Return cases of losses over classes: cross entropy from logits, negative likelihood
    from their logarithms.
    """

    def cases(maker: Maker) -> Iterator[Case]:
        for classes in (67, *maker.edges):
            logits = maker.normal(17, classes)
            if normalised:
                logits = torch.log_softmax(logits.double(), 1).to(maker.dtype)
            target = maker.indices(classes, 17)
            yield Case(
                f"17x{classes}",
                _class_loss(function, target, normalised=normalised),
                (logits,),
                reduces=not normalised,
            )

    return cases


def _class_loss(function: Callable[..., Tensor], target: Tensor, *, normalised: bool) -> Operation:
    """Return the loss of a class. In low precision the logarithms of the probabilities are
    rounded in between.
    """

    def loss(x: Tensor) -> Tensor:
        return function(x, target.to(x.device))

    def spreads(inputs: Sequence[Tensor], value: Tensor, g: Tensor) -> Sequence[Spread]:
        del value
        (x,) = inputs
        batch, length = x.shape
        logs = x if normalised else torch.log_softmax(x, 1)
        chosen = logs.gather(1, target[:, None])
        hit = torch.zeros_like(x).scatter_(1, target[:, None], 1.0)
        p = torch.zeros_like(x) if normalised else logs.exp()
        gradient = (p * (1 + logs.abs()) + hit) * g.abs() / batch
        size = (chosen.abs() + (0 if normalised else x.abs().amax(1, keepdim=True) + 1)).mean()
        rounded = (chosen**2).sum().sqrt() / batch
        return (
            Spread(size=size, length=float(length + batch), carried=2 * rounded),
            Spread(size=gradient, length=float(length), carried=gradient),
        )

    return Derived(function=loss, spreads=spreads, kind="loss")


NORMS = OperatorFamily(
    name="norms",
    cases={
        "batch_norm": _batch_norms,
        "layer_norm": _normed(layer_norm(3), (3, 9, 67), (2, 5, 64), (2, 3, 1025)),
        "group_norm": _normed(
            Norm(kind="group norm", function=_group_norm, over=(2, 3), along=(1, 2)),
            (5, GROUPS, 3, 33),
            (3, 3, 5, 65),
        ),
        "instance_norm": _normed(
            Norm(kind="instance norm", function=_instance_norm, over=(2,), along=(1,)),
            (5, 6, 67),
            (3, 5, 129),
        ),
        "rms_norm": _normed(
            Norm(kind="rms norm", function=_rms_norm, over=(2,), along=(2,), centred=False),
            (3, 9, 67),
            (2, 3, 1025),
            bias=False,
        ),
    },
)
LOSSES = OperatorFamily(
    name="losses",
    cases={
        "cross_entropy": _classes(functional.cross_entropy, normalised=False),
        "nll": _classes(functional.nll_loss, normalised=True),
        "mse": _loss(functional.mse_loss, _mse, "normal"),
        "l1": _loss(functional.l1_loss, _l1, "normal"),
        "smooth_l1": _loss(functional.smooth_l1_loss, _smooth_l1, "normal"),
        "bce": _loss(functional.binary_cross_entropy, _bce, "probability"),
        "bce_with_logits": _loss(
            functional.binary_cross_entropy_with_logits, _bce_logits, "logits"
        ),
        "kl_div": _loss(_mean_divergence, _kl_div, "log probability"),
    },
)
