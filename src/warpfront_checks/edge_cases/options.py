"""Options of operations, forward and backward: values other than the defaults are rarely tested.

Each call is made with every combination of its options. The expected results and gradients are
float64's on the CPU, of the same numbers. Rounded results may be off by 64 roundings of the largest
number. In 16 bits it is 16, where the whole is rounded once or twice, and sums are in float32.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.cases.known import KnownDefect
from warpfront_checks.edge_cases.answers import (
    USUAL,
    Answer,
    CaseContext,
    Hazard,
    HazardClass,
    array,
)

Options = Mapping[str, Sequence[Any]]
REDUCTIONS: Sequence[Any] = ("none", "mean", "sum")


class WithOptions:
    """A call of tensors. Those of the shapes `floats` are drawn and differentiated, `given` are
    fixed. The options follow by name, with the values of each.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        floats: tuple[tuple[int, ...], ...] = ((5, 7),),
        given: tuple[Tensor, ...] = (),
        *,
        # Maps the numbers drawn, -2 to 2 by quarters, to arguments of the call.
        fit: Callable[[Tensor], Tensor] = lambda x: x,
        backward: bool = True,
        # Not where rounding in 16 bits decides on which side of a kink a number is.
        halves: bool = True,
        # False where a kernel rejects slices.
        slices: bool = True,
        known: tuple[KnownDefect, ...] = (),
        **options: Sequence[Any],
    ) -> None:
        self.call, self.floats, self.given = call, floats, given
        self.fit, self.backward, self.halves, self.options = fit, backward, halves, options
        self.slices, self.known = slices, known

    def widened(self) -> WithOptions:
        """Return this call with rows longer than a block has threads, of no power of two, and
        with the first options.
        """
        wide = copy.copy(self)
        wide.floats = tuple((2, 1030) for _ in self.floats)
        wide.options = {name: values[:1] for name, values in self.options.items()}
        return wide


ROWS, TWO, THREE = (((5, 7),) * count for count in (1, 2, 3))


def _loss(call: Callable[..., Any], *tensors: Any, **kwargs: Any) -> WithOptions:
    return WithOptions(call, *tensors, **kwargs, reduction=REDUCTIONS)


def _in_place(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return an in-place call that is differentiable: a leaf may not change in place, but a
    result of it may.
    """
    return lambda x, **kwargs: call(x * 1 if kwargs.get("inplace") else x, **kwargs)


def _classes(count: int, *shape: int) -> tuple[Tensor]:
    return (torch.arange(torch.Size(shape).numel()).view(shape) % count,)


def _signed(
    name: str, floats: tuple[tuple[int, ...], ...], signs: tuple[int, ...], **kwargs: Any
) -> WithOptions:
    """Return a loss whose labels are signs, one per number or one per row."""

    def call(*tensors: Tensor, **options: Any) -> Tensor:
        *inputs, labels = tensors
        return getattr(functional, name)(*inputs, labels.to(inputs[0].dtype), **options)

    numbers = 1.0 - 2 * (torch.arange(torch.Size(signs).numel()).view(signs) % 3 == 0)
    return _loss(call, floats, (numbers,), **kwargs)


BOTH = (False, True)
ACTIVE: Mapping[str, Mapping[str, Any]] = {
    "elu": {"alpha": (0.5, 2.0), "inplace": BOTH},
    "celu": {"alpha": (0.5, 2.0), "inplace": BOTH},
    "selu": {"inplace": BOTH},
    "leaky_relu": {"negative_slope": (0.25, 1.5), "inplace": BOTH},
    "hardtanh": {"min_val": (-0.625, -1.0), "max_val": (0.375, 1.0), "inplace": BOTH},
    "relu6": {"inplace": BOTH},
    "silu": {"inplace": BOTH},
    "mish": {"inplace": BOTH},
    "hardswish": {"inplace": BOTH},
    "hardsigmoid": {"inplace": BOTH},
    "threshold": {"threshold": (0.125,), "value": (7.0, -7.0), "inplace": BOTH},
    "softplus": {"beta": (0.05, 0.5, 3), "threshold": (0.5, 1, 20)},
    "hardshrink": {"lambd": (0.125, 0.625)},
    "softshrink": {"lambd": (0.125, 0.625)},
    "gelu": {"approximate": ("none", "tanh")},
    "logsigmoid": {},
    "softsign": {},
    "tanhshrink": {},
    "softmin": {"dim": (0, 1)},
    "softmax": {"dim": (0, 1)},
    "log_softmax": {"dim": (0, 1)},
    "normalize": {"p": (1.0, 2.0, 3.0), "dim": (0, 1)},
}
ACTIVATIONS: Mapping[str, WithOptions] = {
    **{
        name: WithOptions(_in_place(getattr(functional, name)), **options)
        for name, options in ACTIVE.items()
    },
    "glu": WithOptions(functional.glu, ((6, 8),), dim=(0, 1)),
    "glu of long rows": WithOptions(functional.glu, ((2, 1030),), dim=(1,)),
    "long softmax": WithOptions(functional.softmax, ((600, 7),), dim=(0,)),
    "large softplus": WithOptions(
        functional.softplus, fit=lambda x: x * 16, beta=(0.05, 0.5), threshold=(1, 20)
    ),
}
PAIRED: Mapping[str, Mapping[str, Any]] = {
    "mse_loss": {"reduction": REDUCTIONS},
    "l1_loss": {"reduction": REDUCTIONS},
    "smooth_l1_loss": {"beta": (0.375, 2.125), "reduction": REDUCTIONS},
    "huber_loss": {"delta": (0.375, 2.125), "reduction": REDUCTIONS},
    "poisson_nll_loss": {"log_input": (True,), "reduction": REDUCTIONS},
    "pairwise_distance": {"p": (1.0, 2.0, 3.0), "keepdim": BOTH},
    "cosine_similarity": {"dim": (0, 1)},
}
LOSSES: Mapping[str, WithOptions] = {
    **{
        name: WithOptions(getattr(functional, name), TWO, **options)
        for name, options in PAIRED.items()
    },
    "kl_div": WithOptions(
        lambda x, y, **kwargs: functional.kl_div(x, y.log_softmax(1), log_target=True, **kwargs),
        TWO,
        reduction=(*REDUCTIONS, "batchmean"),
    ),
    "binary_cross_entropy": _loss(
        lambda x, w, **kwargs: functional.binary_cross_entropy(
            x.sigmoid(), (w.detach() > 0).to(x.dtype), **kwargs
        ),
        TWO,
        backward=False,
    ),
    # Logarithms of zero are -100 there.
    "binary_cross_entropy of certainties": _loss(
        lambda x, w, **kwargs: functional.binary_cross_entropy(
            x, (w.detach() > 0).to(x.dtype), **kwargs
        ),
        TWO,
        fit=lambda x: (x > 0).to(x.dtype),
        backward=False,
    ),
    "with logits": _loss(
        lambda x, y, **kwargs: functional.binary_cross_entropy_with_logits(
            x,
            (y.detach() > 0).to(x.dtype),
            weight=y[0].detach().abs(),
            pos_weight=y[1].detach().abs() + 1,
            **kwargs,
        ),
        TWO,
    ),
    "hinge_embedding_loss": _signed("hinge_embedding_loss", ROWS, (5, 7), margin=(0.375, 1.625)),
    "soft_margin_loss": _signed("soft_margin_loss", ROWS, (5, 7)),
    "margin_ranking_loss": _signed("margin_ranking_loss", TWO, (5, 7), margin=(0.375, 1.625)),
    "cosine_embedding_loss": _signed(
        "cosine_embedding_loss", TWO, (5,), halves=False, margin=(-0.5, 0.25)
    ),
    "triplet_margin_loss": _loss(
        functional.triplet_margin_loss,
        THREE,
        # Of quarters, two distances are equal every few seeds, and which is nearer is rounding's.
        fit=lambda x: x + x.sin() / 7,
        halves=False,
        margin=(0.53, 9.0),
        p=(1.0, 2.0),
        swap=BOTH,
    ),
    "multi_margin_loss": _loss(
        functional.multi_margin_loss, given=_classes(7, 5), p=(1, 2), margin=(0.375, 1.625)
    ),
    "multilabel_margin_loss": _loss(
        functional.multilabel_margin_loss, given=(torch.tensor([[3, 0, -1, 4, 1, 2, 5]] * 5),)
    ),
    "nll_loss": _loss(
        lambda x, w, target, **kwargs: functional.nll_loss(x, target, w.detach().abs(), **kwargs),
        ((5, 7), (7,)),
        given=_classes(7, 5),
        backward=False,
        ignore_index=(-100, 0, 3),
    ),
    "nll_loss of pictures": _loss(
        functional.nll_loss, ((2, 4, 3, 3),), given=_classes(4, 2, 3, 3), ignore_index=(-100, 0, 3)
    ),
    "cross_entropy of pictures": _loss(
        functional.cross_entropy,
        ((2, 4, 3, 3),),
        given=_classes(4, 2, 3, 3),
        ignore_index=(-100, 3),
        label_smoothing=(0.0, 0.25),
    ),
}


def _bags(
    weight: Tensor, each: Tensor, *, mode: str, weighted: bool, last: bool, padding: Any
) -> Tensor:
    """Sum bags of three rows, none, two, one that is padding, and five."""
    index = torch.tensor([0, 2, 2, 1, 3, 2, 0, 4, 4, 2, 1], device=weight.device)
    starts = torch.tensor([0, 3, 3, 5, 6, *[11] * last], device=weight.device)
    return functional.embedding_bag(
        index,
        weight,
        starts,
        mode=mode,
        per_sample_weights=each if weighted and mode == "sum" else None,
        include_last_offset=last,
        padding_idx=padding,
    )


def _by_labels(x: Tensor, *, blank: int, reduction: str, zero_infinity: bool) -> Tensor:
    """Return the loss of targets of two labels, of one twice, of none, and one longer
    than its input.
    """
    targets = torch.tensor([[1, 2, 0], [2, 2, 1], [1, 1, 1], [2, 1, 2]], device=x.device)
    targets = torch.where(targets == blank, 3, targets)
    heard, target_lengths = torch.tensor([6, 6, 5, 2]), torch.tensor([2, 3, 0, 3])
    if not zero_infinity:
        x, targets, heard, target_lengths = x[:, :3], targets[:3], heard[:3], target_lengths[:3]
    return functional.ctc_loss(
        x.log_softmax(2),
        targets,
        heard.to(x.device),
        target_lengths.to(x.device),
        blank=blank,
        reduction=reduction,
        zero_infinity=zero_infinity,
    )


def _reduced(x: Tensor, source: Tensor, *, by: str, how: str, own: bool, axis: int) -> Tensor:
    """Reduce many numbers to one index, one to another, none to a third."""
    index = torch.tensor([0, 2, 2, 0, 0], device=x.device)
    if by == "index":
        part = source.narrow(axis, 0, 5)
        return x.index_reduce(axis, index, part, how.replace("sum", "mean"), include_self=own)
    shape = [1] * source.dim()
    shape[axis] = 5
    part = source.narrow(axis, 0, 5)
    return x.scatter_reduce(axis, index.view(shape).expand(part.shape), part, how, include_self=own)


def _searched(x: Tensor, *, side: str, ordered: bool, narrow: bool) -> Tensor:
    row = x[0].sort().values if ordered else x[0]
    sorter = None if ordered else x[0].argsort()
    return torch.searchsorted(row, x[1:], side=side, sorter=sorter, out_int32=narrow)


def _scattered(x: Tensor, source: Tensor, *, wide: bool) -> Tensor:
    """Scatter by a mask of the same shape, or of one row for all rows."""
    mask = (torch.arange(35, device=x.device).view(5, 7) % 3 == 0)[: 5 if wide else 1]
    return (x * 1).masked_scatter_(mask, source)


# A row that is looked up twice is scaled twice: 5,029 of 219,680 times on an H200 that others used
# as well (2.11), never in 103,200 on one that was alone.
LIMITED_TWICE = KnownDefect(
    thread="pytorch#85377", label="max_norm 0.75", device="cuda", before=None
)
# The stride of rows is taken for their length.
MEASURED_WHOLE = KnownDefect(thread="pytorch#195208", label="max_norm", device="cuda", before=None)
PLACED: Mapping[str, WithOptions] = {
    "embedding_bag": WithOptions(
        _bags,
        ((5, 7), (11,)),
        backward=False,
        mode=("sum", "mean", "max"),
        weighted=BOTH,
        last=BOTH,
        padding=(None, 2, 4),
    ),
    "embedding": WithOptions(
        lambda w, i, **kwargs: functional.embedding(i, w, **kwargs),
        given=(torch.tensor([[1, 1, 0], [1, 3, 4]]),),
        padding_idx=(None, 1, 4),
        scale_grad_by_freq=BOTH,
    ),
    "embedding of limited rows": WithOptions(
        lambda w, i, **kwargs: functional.embedding(i, w * 1, **kwargs),
        given=(torch.tensor([[4, 1, 0], [3, 1, 4]]),),
        known=(LIMITED_TWICE,),
        max_norm=(0.75, 100.0),
        norm_type=(1.0, 2.0),
    ),
    "embedding of limited rows of a slice": WithOptions(
        lambda w, i, **kwargs: functional.embedding(i, torch.cat([w, w * 3], 1)[:, :7], **kwargs),
        given=(torch.tensor([[4, 1, 0], [3, 1, 4]]),),
        known=(MEASURED_WHOLE,),
        max_norm=(0.75, 100.0),
        norm_type=(1.0, 2.0),
    ),
    "ctc_loss": WithOptions(
        _by_labels, ((6, 4, 4),), blank=(0, 2), reduction=REDUCTIONS, zero_infinity=BOTH
    ),
    "reduced by places": WithOptions(
        _reduced,
        TWO,
        backward=False,
        by=("index", "scatter"),
        how=("sum", "prod", "mean", "amax", "amin"),
        own=BOTH,
        axis=(0, 1),
    ),
    "searchsorted": WithOptions(
        _searched, backward=False, side=("left", "right"), ordered=BOTH, narrow=BOTH
    ),
    "masked_scatter": WithOptions(_scattered, ((5, 7), (40,)), wide=BOTH),
    "nothing scattered": WithOptions(
        lambda x, i: x.scatter(1, i, x[:, :0]),
        given=(torch.zeros(5, 0, dtype=torch.int64),),
        backward=False,
    ),
    "repeat_interleave": WithOptions(
        lambda x, counts, **kwargs: x.repeat_interleave(counts, **kwargs),
        given=(torch.tensor([1, 0, 0, 3, 1]),),
        dim=(0,),
    ),
    "index_add": WithOptions(
        lambda x, y, i, **kwargs: x.index_add(0, i, y, **kwargs),
        TWO,
        given=(torch.tensor([1, 1, 0, 4, 1]),),
        alpha=(1, -2.5),
    ),
    "index_put": WithOptions(
        lambda x, y, i, **kwargs: x.index_put((i,), y, **kwargs),
        TWO,
        given=(torch.tensor([1, 1, 0, 4, 1]),),
        accumulate=(True,),
    ),
    "a part of a source": WithOptions(
        lambda x, y, i: x.scatter_add(0, i, y),
        TWO,
        given=(torch.tensor([[0, 1], [2, 0], [4, 4]]),),
        backward=False,
    ),
    "a mask of a column": WithOptions(
        lambda x, mask: (x * 1).masked_fill_(mask, 5.0),
        given=(torch.arange(5)[:, None] % 2 == 0,),
    ),
    "indices from the end": WithOptions(
        lambda x, i, j: x[i, j], given=(torch.tensor([0, 3, -1]), torch.tensor([-1, 2, -7]))
    ),
    "diagonal": WithOptions(torch.diagonal, offset=(-3, 0, 2)),
    "diag_embed": WithOptions(torch.diag_embed, offset=(-1, 2), dim1=(0, 1)),
    "triu": WithOptions(torch.triu, diagonal=(-2, 0, 3)),
    "roll": WithOptions(torch.roll, shifts=((2, -9), (-1, 3)), dims=((0, 1),)),
    "rot90": WithOptions(torch.rot90, k=(-1, 1, 2, 3)),
}


def _distances(x: Tensor, y: Tensor, *, p: float) -> Tensor:
    """Return distances, of which one is zero: of a point from itself. There is no kernel
    for 16 bits.
    """
    x, y = (t.float() if t.dtype.itemsize < 4 else t for t in (x, y))
    return torch.cdist(x, torch.cat([x[:1].detach(), y]), p=p)


def _biased_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, *, shared: bool, **kwargs: Any
) -> Tensor:
    """Apply attention with a fixed bias: if the bias alone requires a gradient, torch 2.11
    refuses it on CUDA.
    """
    mask = bias.detach()[:1, :, :1] if shared else bias.detach()
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **kwargs)


def _batch_normed(x: Tensor, w: Tensor, b: Tensor, *, training: bool, eps: float) -> Tensor:
    """Apply batch norm with running statistics, which training ignores."""
    statistics = torch.arange(4, device=x.device, dtype=x.dtype) / 4
    return functional.batch_norm(x, statistics, statistics + 0.5, w, b, training, eps=eps)


def _normed_weight(x: Tensor, of_rows: Tensor, of_columns: Tensor, *, axis: int) -> Tensor:
    return torch._weight_norm(x, (of_rows, of_columns)[axis], axis)


def _resized(x: Tensor, *, long: int, wide: int, **kwargs: Any) -> Tensor:
    """Resize one side to a point, shorter, or many times as long."""
    return functional.interpolate(x, size=(*[wide] * (x.dim() - 3), long), **kwargs)


MEASURED: Mapping[str, WithOptions] = {
    "var": WithOptions(torch.var, dim=(0, 1, None), correction=(0, 1, 2)),
    "var of one": WithOptions(
        lambda x, **kwargs: torch.var(x[:, :1], 1, **kwargs), backward=False, correction=(0, 1, 2)
    ),
    "std": WithOptions(torch.std, dim=(0, 1, None), correction=(0, 1, 2)),
    "quantile": WithOptions(
        lambda x, **kwargs: torch.quantile(x.float() if x.dtype.itemsize < 4 else x, 0.3, **kwargs),
        backward=False,
        dim=(0, 1),
        interpolation=("linear", "lower", "higher", "midpoint"),
    ),
    "histc": WithOptions(
        lambda x, **kwargs: torch.histc(x.float() if x.dtype.itemsize < 4 else x, **kwargs),
        backward=False,
        bins=(4, 16),
        min=(-2, 0),
        max=(1, 2),
    ),
    "cdist": WithOptions(_distances, ((5, 7), (4, 7)), p=(0.0, 1.0, 2.0, 3.0, float("inf"))),
    "renorm": WithOptions(torch.renorm, p=(1, 2), dim=(0, 1), maxnorm=(1.5,)),
    "clamp": WithOptions(torch.clamp, min=(None, -0.625), max=(0.375, 1.0)),
    "addcmul": WithOptions(torch.addcmul, THREE, value=(1, -2.5)),
    "addcdiv": WithOptions(
        lambda x, y, z, **kwargs: torch.addcdiv(x, y, z.square() + 1, **kwargs),
        THREE,
        value=(1, -2.5),
    ),
    "lerp": WithOptions(torch.lerp, TWO, weight=(0.25, 0.75, 1.5)),
    # Numbers that 16 bits have, none of them where it is clamped.
    "logit": WithOptions(torch.logit, fit=lambda x: x / 8 + 0.5, eps=(None, 0.3)),
    **{
        name: WithOptions(call, alpha=(1, -2.5))
        for name, call in (
            ("add of a number", lambda x, alpha: torch.add(x, 3, alpha=alpha)),
            ("sub of a number", lambda x, alpha: torch.sub(x, 3, alpha=alpha)),
            ("rsub", lambda x, alpha: torch.rsub(x, 3, alpha=alpha)),
            ("add_ of a number", lambda x, alpha: (x * 1).add_(3, alpha=alpha)),
        )
    },
    "sub_": WithOptions(lambda x, y, alpha: (x * 1).sub_(y, alpha=alpha), TWO, alpha=(1, -2.5)),
    "renorm_": WithOptions(
        lambda x, **kwargs: x.clone().renorm_(**kwargs),
        backward=False,
        p=(1, 2),
        dim=(0, 1),
        maxnorm=(1.5, 20.0),
    ),
    "logit_": WithOptions(
        lambda x, eps: (x * 1).logit_(eps),
        fit=lambda x: x / 8 + 0.5,
        backward=False,
        eps=(None, 0.3),
    ),
    "gelu_": WithOptions(
        lambda x, approximate: torch._C._nn.gelu_(x.clone(), approximate=approximate),
        backward=False,
        approximate=("none", "tanh"),
    ),
    "topk, in whatever order": WithOptions(
        lambda x, dim, **kwargs: x.topk(3, dim, **kwargs).values.sort(dim).values,
        backward=False,
        dim=(0, 1),
        largest=BOTH,
        sorted=BOTH,
    ),
    "unique's places and counts": WithOptions(
        lambda x, dim, part: torch.unique(
            x.round(), dim=dim, return_inverse=True, return_counts=True
        )[part],
        backward=False,
        dim=(None, 0, 1),
        part=(0, 1, 2),
    ),
    "nearest-exact by 1.7": WithOptions(
        lambda x, **kwargs: functional.interpolate(x, mode="nearest-exact", **kwargs),
        ((2, 3, 6, 5),),
        scale_factor=(1.7, (0.6, 2.3)),
        recompute_scale_factor=(None, True),
    ),
    "sub": WithOptions(torch.sub, TWO, alpha=(1, -2.5)),
    "layer_norm": WithOptions(
        lambda x, w, b, eps: functional.layer_norm(x, (7,), w, b, eps),
        ((70, 7), (7,), (7,)),
        eps=(1e-5, 0.5),
    ),
    "rms_norm": WithOptions(
        lambda x, w, eps: functional.rms_norm(x, (7,), w, eps), ((70, 7), (7,)), eps=(1e-5, 0.5)
    ),
    "layer_norm of two axes": WithOptions(
        lambda x, w, b, eps: functional.layer_norm(x, (5, 7), w, b, eps),
        ((6, 5, 7), (5, 7), (5, 7)),
        eps=(1e-5, 0.5),
    ),
    **{
        f"batch_norm of {label}": WithOptions(
            _batch_normed, (shape, (4,), (4,)), halves=False, training=BOTH, eps=(1e-5, 0.5)
        )
        for label, shape in (
            ("rows", (9, 4)),
            ("lines", (70, 4, 5)),
            ("pictures", (5, 4, 3, 3)),
            ("volumes", (3, 4, 2, 3, 2)),
        )
    },
    "group_norm, scaled": WithOptions(
        lambda x, w, b, groups, eps: functional.group_norm(x, groups, w, b, eps),
        ((2, 6, 5, 4), (6,), (6,)),
        halves=False,
        groups=(2, 3),
        eps=(1e-5, 0.5),
    ),
    "instance_norm": WithOptions(
        lambda x, w, b, eps: functional.instance_norm(x, weight=w, bias=b, eps=eps),
        ((3, 4, 5, 3), (4,), (4,)),
        halves=False,
        eps=(1e-5, 0.5),
    ),
    "linear": WithOptions(functional.linear, ((70, 7), (5, 7), (5,))),
    "conv2d of 7": WithOptions(
        functional.conv2d,
        ((2, 2, 9, 11), (3, 2, 7, 7), (3,)),
        halves=False,
        stride=(1, 2),
        padding=(0, 3),
    ),
    **{
        f"{name} of {kernel}": WithOptions(
            getattr(functional, name),
            ((2, 4, 5, 6, 7)[: 2 + dims], (6, 4, *[kernel] * dims), (6,)),
            halves=(dims, kernel) == (2, 3),
            stride=(1, 2),
            padding=(0, 1),
        )
        for dims, name in enumerate(("conv1d", "conv2d", "conv3d"), start=1)
        for kernel in (1, 3)
    },
    **{
        f"{name} of {kernel}": WithOptions(
            getattr(functional, name),
            ((2, 4, 5, 6, 7)[: 2 + dims], (4, 6, *[kernel] * dims), (6,)),
            halves=False,
            stride=(1, 2),
            padding=(0, 1),
        )
        for dims, name in enumerate(
            ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), start=1
        )
        for kernel in (1, 3)
    },
    "attention": WithOptions(
        functional.scaled_dot_product_attention,
        ((2, 2, 17, 8),) * 3,
        halves=False,
        slices=False,
        is_causal=BOTH,
    ),
    "attention with a bias": WithOptions(
        _biased_attention,
        ((2, 2, 17, 8),) * 3 + ((2, 1, 17, 17),),
        halves=False,
        slices=False,
        scale=(None, 0.5),
        shared=BOTH,
    ),
    "weight_norm": WithOptions(
        _normed_weight, ((5, 7), (5, 1), (1, 7)), fit=lambda x: x + 0.125, axis=(0, 1)
    ),
    **{
        f"resized, {mode}": WithOptions(
            partial(_resized, mode=mode),
            ((1, 2, 3, 4, 5)[: 2 + dims],),
            halves=False,
            long=(1, 2, 41, 97),
            wide=(3, 31),
            align_corners=BOTH,
        )
        for mode, dims in (("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3))
    },
    **{
        # Not to a single column: where the height changes too, the CPU's kernel of torch 2.13, the
        # reference here, gives another image than the definition and than Pillow.
        f"resized, {mode}, smooth": WithOptions(
            partial(_resized, mode=mode, antialias=True),
            ((1, 2, 4, 5),),
            halves=False,
            long=(2, 41, 97),
            wide=(3, 31),
            align_corners=BOTH,
        )
        for mode in ("bilinear", "bicubic")
    },
    "cdist of many": WithOptions(
        lambda x, y, **kwargs: torch.cdist(
            *(z.float() if z.dtype.itemsize < 4 else z for z in (x, y)), **kwargs
        ),
        ((30, 7), (40, 7)),
        # No two points are near each other.
        fit=lambda x: x + 4 * torch.arange(x.shape[0])[:, None] + (x.shape[0] > 30) * 2,
        halves=False,
        compute_mode=(
            "use_mm_for_euclid_dist_if_necessary",
            "use_mm_for_euclid_dist",
            "donot_use_mm_for_euclid_dist",
        ),
    ),
    "bilinear": WithOptions(functional.bilinear, ((5, 3), (5, 4), (6, 3, 4), (6,))),
    "pixel_shuffle": WithOptions(functional.pixel_shuffle, ((2, 12, 3, 5),), upscale_factor=(1, 2)),
    "pixel_unshuffle": WithOptions(
        functional.pixel_unshuffle, ((2, 3, 4, 6),), downscale_factor=(1, 2)
    ),
    "channel_shuffle": WithOptions(
        functional.channel_shuffle, ((2, 6, 3, 5),), backward=False, slices=False, groups=(1, 2, 3)
    ),
    "group_norm": WithOptions(
        functional.group_norm, ((2, 6, 5),), num_groups=(1, 2, 6), eps=(1e-5, 0.5)
    ),
    "lp_pool2d": WithOptions(
        functional.lp_pool2d,
        ((1, 2, 5, 7),),
        fit=torch.abs,
        backward=False,
        norm_type=(1, 2),
        kernel_size=(2, (2, 3)),
        ceil_mode=BOTH,
    ),
    "unfold": WithOptions(
        functional.unfold,
        ((1, 2, 5, 7),),
        kernel_size=((2, 3),),
        dilation=(1, 2),
        padding=(0, 1),
        stride=(1, 2),
    ),
    "padded and cut": WithOptions(
        functional.pad,
        ((2, 3, 6, 7),),
        pad=((1, 2, 0, 1), (-1, 2, 1, -2), (2, -1, -2, 0)),
        mode=("constant", "reflect", "replicate", "circular"),
    ),
    "affine_grid": WithOptions(
        functional.affine_grid, ((2, 2, 3),), size=((2, 1, 3, 5),), align_corners=BOTH
    ),
}


def _triangular(x: Tensor, b: Tensor, *, upper: bool, left: bool, unit: bool) -> Tensor:
    square = x @ x.mT / 16 + 4 * torch.eye(5, device=x.device, dtype=x.dtype)
    return torch.linalg.solve_triangular(
        square, b if left else b.mT, upper=upper, left=left, unitriangular=unit
    )


SOLVED: Mapping[str, WithOptions] = {
    "polygamma": WithOptions(
        lambda x, order: torch.polygamma(order, x), fit=lambda x: x.abs() + 0.5, order=(0, 1, 2)
    ),
    "solve_triangular": WithOptions(
        _triangular, ((5, 7), (5, 3)), upper=BOTH, left=BOTH, unit=BOTH
    ),
    "norms of order": WithOptions(
        torch.linalg.vector_norm,
        fit=lambda x: x + 0.125,
        backward=False,
        ord=(0.5, 1, 2, 3, float("inf")),
        dim=(0, 1, None),
    ),
    "matrix norms": WithOptions(
        torch.linalg.matrix_norm, backward=False, ord=("fro", 1, -1, float("inf"))
    ),
    "cross": WithOptions(torch.linalg.cross, ((3, 5, 3), (3, 1, 3)), dim=(0, -1)),
    "tensordot": WithOptions(torch.tensordot, ((3, 5), (5, 3)), dims=(1, ([0, 1], [1, 0]))),
}


def combined(options: Options, *, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield every combination of values; in a quick run, the first values, and the second ones."""
    values: Iterator[Any] = itertools.product(*options.values())
    if quick:
        values = (tuple(some[i % len(some)] for some in options.values()) for i in range(2))
    for chosen in values:
        yield dict(zip(options, chosen, strict=True))


def _tried(of: WithOptions, ground: CaseContext) -> Iterator[Answer]:
    if ground.half and (ground.quick or not of.halves):
        return
    inputs = [of.fit(ground.whole(*shape, most=8) / 4) for shape in of.floats]
    for arguments in combined(of.options, quick=ground.quick):
        label = ", ".join(f"{name} {value}" for name, value in arguments.items())
        reference = _called(of, inputs, [x.clone() for x in of.given], arguments, None)
        on_device = [ground.send(x) for x in inputs]
        extras = [x.to(ground.device, copy=True) for x in of.given]
        actual = _called(of, on_device, extras, arguments, reference[0])
        parts = _of_slices(of, ground, on_device, extras, arguments, reference[0])
        afterwards = zip([*on_device, *extras], [*inputs, *of.given], strict=True)
        for place, (after, before) in enumerate(afterwards):
            yield Answer(f"input {place} afterwards, {label}", after, array(before))
        for place, (mine, expected) in enumerate(zip(actual, reference, strict=True)):
            name = f"gradient {place - 1}" if place else "output"
            if not expected.is_floating_point():
                yield Answer(f"{name}, {label}", mine, array(expected))
                continue
            most = float(expected.abs().max()) if expected.numel() else 0.0
            slack = (16 if ground.half else 64) * ground.eps * (1 + most)
            yield Answer(f"{name}, {label}", mine, array(expected), ulps=4, slack=slack)
            if place and len(inputs) > 1:
                # Training a part of a model computes no other gradient.
                alone = _called(of, on_device, extras, arguments, reference[0], only=place - 1)
                for counterpart in alone[place : place + 1]:
                    yield Answer(
                        f"{name} alone, {label}", counterpart, array(expected), ulps=4, slack=slack
                    )
            for counterpart in parts[place : place + 1]:
                yield Answer(
                    f"{name} of slices, {label}", counterpart, array(expected), ulps=4, slack=slack
                )


def _of_slices(
    of: WithOptions,
    ground: CaseContext,
    on_device: Sequence[Tensor],
    extras: Sequence[Tensor],
    arguments: Mapping[str, Any],
    like: Tensor,
) -> list[Tensor]:
    """Return output and gradients of the same numbers as slices of larger tensors, where the
    call supports it.
    """
    if not of.slices or ground.quick or ground.half:
        return []
    return _called(of, [_slice(x) for x in on_device], extras, arguments, like, parted=True)


def _slice(x: Tensor) -> Tensor:
    """Return the same numbers as a slice, with others between their rows and behind them."""
    return (
        torch.cat([x, torch.full_like(x, 9.0)[..., :3]], -1)[..., : x.shape[-1]] if x.dim() else x
    )


def _called(
    of: WithOptions,
    numbers: list[Tensor],
    extras: Sequence[Tensor],
    arguments: Mapping[str, Any],
    like: Tensor | None,
    only: int | None = None,
    *,
    parted: bool = False,
) -> list[Tensor]:
    """Return output and gradients, or only that of the argument `only`. The output's gradient
    is the same for both, by index, and with `parted` a slice of something larger.
    """
    leaves = [
        x.detach().requires_grad_(of.backward and only in {None, place})
        for place, x in enumerate(numbers)
    ]
    output = of.call(*leaves, *extras, **arguments)
    if not (of.backward and output.requires_grad):
        return [output.detach()]
    shape = output.shape if like is None else like.shape
    grad_output = (
        (torch.arange(max(shape.numel(), 1)) % 5 - 2.0).add(0.5)[: shape.numel()].view(shape)
    )
    grad_output = grad_output.to(output.device, output.dtype)
    grad_output = _slice(grad_output) if parted else grad_output
    trainable = [x for x in leaves if x.requires_grad]
    results = iter(torch.autograd.grad(output, trainable, grad_output, allow_unused=True))
    gradients = [next(results) if x.requires_grad else None for x in leaves]
    return [
        output.detach(),
        *[g if g is not None else x * 0 for g, x in zip(gradients, numbers, strict=True)],
    ]


WIDE = {
    f"{name} of long rows": operation.widened()
    for name, operation in {**ACTIVATIONS, **LOSSES}.items()
    if set(operation.floats) == {ROWS[0]} and operation.halves and not operation.given
}
ALL: Mapping[str, WithOptions] = {**ACTIVATIONS, **LOSSES, **WIDE, **PLACED, **MEASURED, **SOLVED}
OPTIONS = HazardClass(
    name="options",
    asks="is every option of an operation heeded, forward and backward",
    seen_on=("cpu", "cuda"),
    hazards=tuple(
        Hazard(
            name=f"options of {name}",
            answers=partial(_tried, operation),
            dtypes=USUAL,
            known=operation.known,
        )
        for name, operation in ALL.items()
    ),
)
