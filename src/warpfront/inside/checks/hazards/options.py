"""Every option of an operation, forward and backward: what is not the default is tried by few.

Each call is made with every combination of its options; the right answer and gradients are
float64's on the CPU, of the same numbers. What rounds may be off by 64 roundings of the largest
number (16 in 16 bits, where the whole is rounded once or twice, and sums are kept in float32).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from warpfront.inside.checks.hazards.answers import Answer, Ground, Hazard, HazardClass, array

Options = Mapping[str, Sequence[Any]]
REDUCTIONS: Sequence[Any] = ("none", "mean", "sum")


@dataclass(frozen=True, kw_only=True)
class WithOptions:
    """A call of tensors: those of `floats` are drawn and differentiated, `given` are as they are
    (a function of the device), and after them come the options.
    """

    call: Callable[..., Any]
    floats: tuple[tuple[int, ...], ...] = ((5, 7),)
    given: Callable[[str], tuple[Any, ...]] = lambda _: ()
    options: Options = field(default_factory=dict)
    # What is done to the numbers drawn, -2 to 2 by quarters, to be arguments of it.
    fit: Callable[[Tensor], Tensor] = lambda x: x
    backward: bool = True
    # Not where rounding in 16 bits decides on which side of a kink a number is.
    halves: bool = True


def _in_place(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A leaf may not be changed in place: what is computed from it may."""
    return lambda x, **how: call(x * 1, **how)


def _classes(count: int, *shape: int) -> Callable[[str], tuple[Any, ...]]:
    return lambda device: (torch.arange(torch.Size(shape).numel()).view(shape).to(device) % count,)


def _signs(*shape: int) -> Callable[[str], tuple[Any, ...]]:
    return lambda device: (
        1.0 - 2 * (torch.arange(torch.Size(shape).numel()).view(shape).to(device) % 3 == 0),
    )


BOTH = (False, True)
ACTIVE: Mapping[str, Options] = {
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
        name: WithOptions(call=_in_place(getattr(functional, name)), options=options)
        for name, options in ACTIVE.items()
    },
    "glu": WithOptions(call=functional.glu, floats=((6, 8),), options={"dim": (0, 1)}),
    "long softmax": WithOptions(call=functional.softmax, floats=((600, 7),), options={"dim": (0,)}),
    "large softplus": WithOptions(
        call=functional.softplus,
        fit=lambda x: x * 16,
        options={"beta": (0.05, 0.5), "threshold": (1, 20)},
    ),
}
PAIRED: Mapping[str, Options] = {
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
        name: WithOptions(call=getattr(functional, name), floats=((5, 7), (5, 7)), options=options)
        for name, options in PAIRED.items()
    },
    "kl_div": WithOptions(
        call=lambda x, y, **how: functional.kl_div(x, y.log_softmax(1), log_target=True, **how),
        floats=((5, 7), (5, 7)),
        options={"reduction": (*REDUCTIONS, "batchmean")},
    ),
    "binary_cross_entropy": WithOptions(
        call=lambda x, w, **how: functional.binary_cross_entropy(
            x.sigmoid(), (w.detach() > 0).to(x.dtype), **how
        ),
        floats=((5, 7), (5, 7)),
        options={"reduction": REDUCTIONS},
        backward=False,
    ),
    # Logarithms of nought are -100 there.
    "binary_cross_entropy of certainties": WithOptions(
        call=lambda x, w, **how: functional.binary_cross_entropy(
            x, (w.detach() > 0).to(x.dtype), **how
        ),
        floats=((5, 7), (5, 7)),
        fit=lambda x: (x > 0).to(x.dtype),
        options={"reduction": REDUCTIONS},
        backward=False,
    ),
    "with logits": WithOptions(
        call=lambda x, y, **how: functional.binary_cross_entropy_with_logits(
            x,
            (y.detach() > 0).to(x.dtype),
            weight=y[0].detach().abs(),
            pos_weight=y[1].detach().abs() + 1,
            **how,
        ),
        floats=((5, 7), (5, 7)),
        options={"reduction": REDUCTIONS},
    ),
    "hinge_embedding_loss": WithOptions(
        call=lambda x, y, **how: functional.hinge_embedding_loss(x, y.to(x.dtype), **how),
        given=_signs(5, 7),
        options={"margin": (0.375, 1.625), "reduction": REDUCTIONS},
    ),
    "soft_margin_loss": WithOptions(
        call=lambda x, y, **how: functional.soft_margin_loss(x, y.to(x.dtype), **how),
        given=_signs(5, 7),
        options={"reduction": REDUCTIONS},
    ),
    "margin_ranking_loss": WithOptions(
        call=lambda x, z, y, **how: functional.margin_ranking_loss(x, z, y.to(x.dtype), **how),
        floats=((5, 7), (5, 7)),
        given=_signs(5, 7),
        options={"margin": (0.375, 1.625), "reduction": REDUCTIONS},
    ),
    "cosine_embedding_loss": WithOptions(
        call=lambda x, z, y, **how: functional.cosine_embedding_loss(x, z, y.to(x.dtype), **how),
        floats=((5, 7), (5, 7)),
        given=_signs(5),
        options={"margin": (-0.5, 0.25), "reduction": REDUCTIONS},
        halves=False,
    ),
    "triplet_margin_loss": WithOptions(
        call=functional.triplet_margin_loss,
        floats=((5, 7),) * 3,
        options={"margin": (0.53, 9.0), "p": (1.0, 2.0), "swap": BOTH, "reduction": REDUCTIONS},
        # Of quarters, two distances are equal every few seeds, and which is nearer is rounding's.
        fit=lambda x: x + x.sin() / 7,
        halves=False,
    ),
    "multi_margin_loss": WithOptions(
        call=functional.multi_margin_loss,
        given=_classes(7, 5),
        options={"p": (1, 2), "margin": (0.375, 1.625), "reduction": REDUCTIONS},
    ),
    "multilabel_margin_loss": WithOptions(
        call=functional.multilabel_margin_loss,
        given=lambda device: (torch.tensor([[3, 0, -1, 4, 1, 2, 5]] * 5, device=device),),
        options={"reduction": REDUCTIONS},
    ),
    "nll_loss": WithOptions(
        call=lambda x, w, target, **how: functional.nll_loss(x, target, w.detach().abs(), **how),
        floats=((5, 7), (7,)),
        given=_classes(7, 5),
        options={"ignore_index": (-100, 0, 3), "reduction": REDUCTIONS},
        backward=False,
    ),
    "nll_loss of pictures": WithOptions(
        call=functional.nll_loss,
        floats=((2, 4, 3, 3),),
        given=_classes(4, 2, 3, 3),
        options={"ignore_index": (-100, 0, 3), "reduction": REDUCTIONS},
    ),
    "cross_entropy of pictures": WithOptions(
        call=functional.cross_entropy,
        floats=((2, 4, 3, 3),),
        given=_classes(4, 2, 3, 3),
        options={
            "ignore_index": (-100, 3),
            "label_smoothing": (0.0, 0.25),
            "reduction": REDUCTIONS,
        },
    ),
}


def _bags(
    weight: Tensor, each: Tensor, *, mode: str, weighted: bool, last: bool, padding: Any
) -> Tensor:
    """Bags of three, none, two, one alone that is padding, and five."""
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
    """Targets of two labels, of one twice, of none, and one that is longer than what was heard."""
    targets = torch.tensor([[1, 2, 0], [2, 2, 1], [1, 1, 1], [2, 1, 2]], device=x.device)
    targets = torch.where(targets == blank, 3, targets)
    heard, said = torch.tensor([6, 6, 5, 2]), torch.tensor([2, 3, 0, 3])
    if not zero_infinity:
        x, targets, heard, said = x[:, :3], targets[:3], heard[:3], said[:3]
    return functional.ctc_loss(
        x.log_softmax(2),
        targets,
        heard.to(x.device),
        said.to(x.device),
        blank=blank,
        reduction=reduction,
        zero_infinity=zero_infinity,
    )


def _reduced(x: Tensor, source: Tensor, *, by: str, how: str, own: bool, axis: int) -> Tensor:
    """Many to one place, one to another, none to a third."""
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
    """By a mask of the same shape, or of a row for all rows."""
    mask = (torch.arange(35, device=x.device).view(5, 7) % 3 == 0)[: 5 if wide else 1]
    return (x * 1).masked_scatter_(mask, source)


PLACED: Mapping[str, WithOptions] = {
    "embedding_bag": WithOptions(
        call=_bags,
        floats=((5, 7), (11,)),
        options={
            "mode": ("sum", "mean", "max"),
            "weighted": BOTH,
            "last": BOTH,
            "padding": (None, 2, 4),
        },
        backward=False,
    ),
    "embedding": WithOptions(
        call=lambda w, i, **how: functional.embedding(i, w, **how),
        given=lambda device: (torch.tensor([[1, 1, 0], [1, 3, 4]], device=device),),
        options={"padding_idx": (None, 1, 4), "scale_grad_by_freq": BOTH},
    ),
    "embedding of limited rows": WithOptions(
        call=lambda w, i, **how: functional.embedding(i, w * 1, **how),
        given=lambda device: (torch.tensor([[4, 1, 0], [3, 1, 4]], device=device),),
        options={"max_norm": (0.75, 100.0), "norm_type": (1.0, 2.0)},
    ),
    "ctc_loss": WithOptions(
        call=_by_labels,
        floats=((6, 4, 4),),
        options={"blank": (0, 2), "reduction": REDUCTIONS, "zero_infinity": BOTH},
    ),
    "reduced by places": WithOptions(
        call=_reduced,
        floats=((5, 7), (5, 7)),
        options={
            "by": ("index", "scatter"),
            "how": ("sum", "prod", "mean", "amax", "amin"),
            "own": BOTH,
            "axis": (0, 1),
        },
        backward=False,
    ),
    "searchsorted": WithOptions(
        call=_searched,
        options={"side": ("left", "right"), "ordered": BOTH, "narrow": BOTH},
        backward=False,
    ),
    "masked_scatter": WithOptions(call=_scattered, floats=((5, 7), (40,)), options={"wide": BOTH}),
    "nothing scattered": WithOptions(
        call=lambda x, i: x.scatter(1, i, x[:, :0]),
        given=lambda device: (torch.zeros(5, 0, dtype=torch.int64, device=device),),
        backward=False,
    ),
    "repeat_interleave": WithOptions(
        call=lambda x, counts, **how: x.repeat_interleave(counts, **how),
        given=lambda device: (torch.tensor([1, 0, 0, 3, 1], device=device),),
        options={"dim": (0,)},
    ),
    "index_add": WithOptions(
        call=lambda x, y, i, **how: x.index_add(0, i, y, **how),
        floats=((5, 7), (5, 7)),
        given=lambda device: (torch.tensor([1, 1, 0, 4, 1], device=device),),
        options={"alpha": (1, -2.5)},
    ),
    "index_put": WithOptions(
        call=lambda x, y, i, **how: x.index_put((i,), y, **how),
        floats=((5, 7), (5, 7)),
        given=lambda device: (torch.tensor([1, 1, 0, 4, 1], device=device),),
        options={"accumulate": (True,)},
    ),
    "a part of a source": WithOptions(
        call=lambda x, y, i: x.scatter_add(0, i, y),
        floats=((5, 7), (5, 7)),
        given=lambda device: (torch.tensor([[0, 1], [2, 0], [4, 4]], device=device),),
        backward=False,
    ),
    "a mask of a column": WithOptions(
        call=lambda x, mask: (x * 1).masked_fill_(mask, 5.0),
        given=lambda device: (torch.arange(5, device=device)[:, None] % 2 == 0,),
    ),
    "indices from the end": WithOptions(
        call=lambda x, i, j: x[i, j],
        given=lambda device: tuple(
            torch.tensor(places, device=device) for places in ([0, 3, -1], [-1, 2, -7])
        ),
    ),
    "diagonal": WithOptions(call=torch.diagonal, options={"offset": (-3, 0, 2)}),
    "diag_embed": WithOptions(call=torch.diag_embed, options={"offset": (-1, 2), "dim1": (0, 1)}),
    "triu": WithOptions(call=torch.triu, options={"diagonal": (-2, 0, 3)}),
    "roll": WithOptions(call=torch.roll, options={"shifts": ((2, -9), (-1, 3)), "dims": ((0, 1),)}),
    "rot90": WithOptions(call=torch.rot90, options={"k": (-1, 1, 2, 3)}),
}


def _distances(x: Tensor, y: Tensor, *, p: float) -> Tensor:
    """One of them is none: of a point from itself. There is no kernel for 16 bits."""
    x, y = (t.float() if t.dtype.itemsize < 4 else t for t in (x, y))
    return torch.cdist(x, torch.cat([x[:1].detach(), y]), p=p)


def _biased_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, *, shared: bool, **how: Any
) -> Tensor:
    """The bias is given: of one that is learned alone torch 2.11 refuses the gradient on CUDA."""
    mask = bias.detach()[:1, :, :1] if shared else bias.detach()
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **how)


def _batch_normed(x: Tensor, w: Tensor, b: Tensor, *, training: bool, eps: float) -> Tensor:
    """With statistics of what was before, which training does not look at."""
    known = torch.arange(4, device=x.device, dtype=x.dtype) / 4
    return functional.batch_norm(x, known, known + 0.5, w, b, training, eps=eps)


def _normed_weight(x: Tensor, of_rows: Tensor, of_columns: Tensor, *, axis: int) -> Tensor:
    return torch._weight_norm(x, (of_rows, of_columns)[axis], axis)


def _resized(x: Tensor, *, long: int, wide: int, **how: Any) -> Tensor:
    """One side becomes a point, shorter, or many times as long."""
    return functional.interpolate(x, size=(*[wide] * (x.dim() - 3), long), **how)


MEASURED: Mapping[str, WithOptions] = {
    "var": WithOptions(call=torch.var, options={"dim": (0, 1, None), "correction": (0, 1, 2)}),
    "var of one": WithOptions(
        call=lambda x, **how: torch.var(x[:, :1], 1, **how),
        options={"correction": (0, 1, 2)},
        backward=False,
    ),
    "std": WithOptions(call=torch.std, options={"dim": (0, 1, None), "correction": (0, 1, 2)}),
    "quantile": WithOptions(
        call=lambda x, **how: torch.quantile(x.float() if x.dtype.itemsize < 4 else x, 0.3, **how),
        options={"dim": (0, 1), "interpolation": ("linear", "lower", "higher", "midpoint")},
        backward=False,
    ),
    "histc": WithOptions(
        call=lambda x, **how: torch.histc(x.float() if x.dtype.itemsize < 4 else x, **how),
        options={"bins": (4, 16), "min": (-2, 0), "max": (1, 2)},
        backward=False,
    ),
    "cdist": WithOptions(
        call=_distances,
        floats=((5, 7), (4, 7)),
        options={"p": (0.0, 1.0, 2.0, 3.0, float("inf"))},
    ),
    "renorm": WithOptions(
        call=torch.renorm, options={"p": (1, 2), "dim": (0, 1), "maxnorm": (1.5,)}
    ),
    "clamp": WithOptions(call=torch.clamp, options={"min": (None, -0.625), "max": (0.375, 1.0)}),
    "addcmul": WithOptions(call=torch.addcmul, floats=((5, 7),) * 3, options={"value": (1, -2.5)}),
    "addcdiv": WithOptions(
        call=lambda x, y, z, **how: torch.addcdiv(x, y, z.square() + 1, **how),
        floats=((5, 7),) * 3,
        options={"value": (1, -2.5)},
    ),
    "lerp": WithOptions(
        call=torch.lerp, floats=((5, 7),) * 2, options={"weight": (0.25, 0.75, 1.5)}
    ),
    # Numbers that 16 bits have, none of them where it is clamped.
    "logit": WithOptions(call=torch.logit, fit=lambda x: x / 8 + 0.5, options={"eps": (None, 0.3)}),
    **{
        name: WithOptions(call=call, options={"alpha": (1, -2.5)})
        for name, call in (
            ("add of a number", lambda x, alpha: torch.add(x, 3, alpha=alpha)),
            ("sub of a number", lambda x, alpha: torch.sub(x, 3, alpha=alpha)),
            ("rsub", lambda x, alpha: torch.rsub(x, 3, alpha=alpha)),
            ("add_ of a number", lambda x, alpha: (x * 1).add_(3, alpha=alpha)),
        )
    },
    "sub_": WithOptions(
        call=lambda x, y, alpha: (x * 1).sub_(y, alpha=alpha),
        floats=((5, 7),) * 2,
        options={"alpha": (1, -2.5)},
    ),
    "renorm_": WithOptions(
        call=lambda x, **how: x.clone().renorm_(**how),
        options={"p": (1, 2), "dim": (0, 1), "maxnorm": (1.5, 20.0)},
        backward=False,
    ),
    "logit_": WithOptions(
        call=lambda x, eps: (x * 1).logit_(eps),
        fit=lambda x: x / 8 + 0.5,
        options={"eps": (None, 0.3)},
        backward=False,
    ),
    "gelu_": WithOptions(
        call=lambda x, approximate: torch._C._nn.gelu_(x.clone(), approximate=approximate),
        options={"approximate": ("none", "tanh")},
        backward=False,
    ),
    "topk, in whatever order": WithOptions(
        call=lambda x, dim, **how: x.topk(3, dim, **how).values.sort(dim).values,
        options={"dim": (0, 1), "largest": BOTH, "sorted": BOTH},
        backward=False,
    ),
    "unique's places and counts": WithOptions(
        call=lambda x, dim, part: torch.unique(
            x.round(), dim=dim, return_inverse=True, return_counts=True
        )[part],
        options={"dim": (None, 0, 1), "part": (0, 1, 2)},
        backward=False,
    ),
    "nearest-exact by 1.7": WithOptions(
        call=lambda x, **how: functional.interpolate(x, mode="nearest-exact", **how),
        floats=((2, 3, 6, 5),),
        options={"scale_factor": (1.7, (0.6, 2.3)), "recompute_scale_factor": (None, True)},
    ),
    "sub": WithOptions(call=torch.sub, floats=((5, 7),) * 2, options={"alpha": (1, -2.5)}),
    "layer_norm": WithOptions(
        call=lambda x, w, b, eps: functional.layer_norm(x, (7,), w, b, eps),
        floats=((70, 7), (7,), (7,)),
        options={"eps": (1e-5, 0.5)},
    ),
    "rms_norm": WithOptions(
        call=lambda x, w, eps: functional.rms_norm(x, (7,), w, eps),
        floats=((70, 7), (7,)),
        options={"eps": (1e-5, 0.5)},
    ),
    "layer_norm of two axes": WithOptions(
        call=lambda x, w, b, eps: functional.layer_norm(x, (5, 7), w, b, eps),
        floats=((6, 5, 7), (5, 7), (5, 7)),
        options={"eps": (1e-5, 0.5)},
    ),
    **{
        f"batch_norm of {said}": WithOptions(
            call=_batch_normed,
            floats=(shape, (4,), (4,)),
            options={"training": BOTH, "eps": (1e-5, 0.5)},
            halves=False,
        )
        for said, shape in (
            ("rows", (9, 4)),
            ("lines", (70, 4, 5)),
            ("pictures", (5, 4, 3, 3)),
            ("volumes", (3, 4, 2, 3, 2)),
        )
    },
    "group_norm, scaled": WithOptions(
        call=lambda x, w, b, groups, eps: functional.group_norm(x, groups, w, b, eps),
        floats=((2, 6, 5, 4), (6,), (6,)),
        options={"groups": (2, 3), "eps": (1e-5, 0.5)},
        halves=False,
    ),
    "instance_norm": WithOptions(
        call=lambda x, w, b, eps: functional.instance_norm(x, weight=w, bias=b, eps=eps),
        floats=((3, 4, 5, 3), (4,), (4,)),
        options={"eps": (1e-5, 0.5)},
        halves=False,
    ),
    "linear": WithOptions(call=functional.linear, floats=((70, 7), (5, 7), (5,))),
    "conv2d of 7": WithOptions(
        call=functional.conv2d,
        floats=((2, 2, 9, 11), (3, 2, 7, 7), (3,)),
        options={"stride": (1, 2), "padding": (0, 3)},
        halves=False,
    ),
    **{
        f"{name} of {kernel}": WithOptions(
            call=getattr(functional, name),
            floats=((2, 4, 5, 6, 7)[: 2 + dims], (6, 4, *[kernel] * dims), (6,)),
            options={"stride": (1, 2), "padding": (0, 1)},
            halves=(dims, kernel) == (2, 3),
        )
        for dims, name in enumerate(("conv1d", "conv2d", "conv3d"), start=1)
        for kernel in (1, 3)
    },
    **{
        f"{name} of {kernel}": WithOptions(
            call=getattr(functional, name),
            floats=((2, 4, 5, 6, 7)[: 2 + dims], (4, 6, *[kernel] * dims), (6,)),
            options={"stride": (1, 2), "padding": (0, 1)},
            halves=False,
        )
        for dims, name in enumerate(
            ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), start=1
        )
        for kernel in (1, 3)
    },
    "attention": WithOptions(
        call=functional.scaled_dot_product_attention,
        floats=((2, 2, 17, 8),) * 3,
        options={"is_causal": BOTH},
        halves=False,
    ),
    "attention with a bias": WithOptions(
        call=_biased_attention,
        floats=((2, 2, 17, 8),) * 3 + ((2, 1, 17, 17),),
        options={"scale": (None, 0.5), "shared": BOTH},
        halves=False,
    ),
    "weight_norm": WithOptions(
        call=_normed_weight,
        floats=((5, 7), (5, 1), (1, 7)),
        options={"axis": (0, 1)},
        fit=lambda x: x + 0.125,
    ),
    **{
        f"resized, {mode}": WithOptions(
            call=partial(_resized, mode=mode),
            floats=((1, 2, 3, 4, 5)[: 2 + dims],),
            options={"long": (1, 2, 41, 97), "wide": (3, 31), "align_corners": BOTH},
            halves=False,
        )
        for mode, dims in (("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3))
    },
    **{
        # Not to a single column: where the height changes too, the CPU's kernel of torch 2.13, the
        # reference here, gives another picture than the definition and than Pillow.
        f"resized, {mode}, smooth": WithOptions(
            call=partial(_resized, mode=mode, antialias=True),
            floats=((1, 2, 4, 5),),
            options={"long": (2, 41, 97), "wide": (3, 31), "align_corners": BOTH},
            halves=False,
        )
        for mode in ("bilinear", "bicubic")
    },
    "cdist of many": WithOptions(
        call=lambda x, y, **how: torch.cdist(
            *(z.float() if z.dtype.itemsize < 4 else z for z in (x, y)), **how
        ),
        floats=((30, 7), (40, 7)),
        options={
            "compute_mode": (
                "use_mm_for_euclid_dist_if_necessary",
                "use_mm_for_euclid_dist",
                "donot_use_mm_for_euclid_dist",
            )
        },
        # No two points are near each other.
        fit=lambda x: x + 4 * torch.arange(x.shape[0])[:, None] + (x.shape[0] > 30) * 2,
        halves=False,
    ),
    "bilinear": WithOptions(call=functional.bilinear, floats=((5, 3), (5, 4), (6, 3, 4), (6,))),
    "pixel_shuffle": WithOptions(
        call=functional.pixel_shuffle, floats=((2, 12, 3, 5),), options={"upscale_factor": (1, 2)}
    ),
    "pixel_unshuffle": WithOptions(
        call=functional.pixel_unshuffle,
        floats=((2, 3, 4, 6),),
        options={"downscale_factor": (1, 2)},
    ),
    "channel_shuffle": WithOptions(
        call=functional.channel_shuffle,
        floats=((2, 6, 3, 5),),
        options={"groups": (1, 2, 3)},
        backward=False,
    ),
    "group_norm": WithOptions(
        call=functional.group_norm,
        floats=((2, 6, 5),),
        options={"num_groups": (1, 2, 6), "eps": (1e-5, 0.5)},
    ),
    "lp_pool2d": WithOptions(
        call=functional.lp_pool2d,
        floats=((1, 2, 5, 7),),
        fit=torch.abs,
        options={"norm_type": (1, 2), "kernel_size": (2, (2, 3)), "ceil_mode": BOTH},
        backward=False,
    ),
    "unfold": WithOptions(
        call=functional.unfold,
        floats=((1, 2, 5, 7),),
        options={
            "kernel_size": ((2, 3),),
            "dilation": (1, 2),
            "padding": (0, 1),
            "stride": (1, 2),
        },
    ),
    "padded and cut": WithOptions(
        call=functional.pad,
        floats=((2, 3, 6, 7),),
        options={
            "pad": ((1, 2, 0, 1), (-1, 2, 1, -2), (2, -1, -2, 0)),
            "mode": ("constant", "reflect", "replicate", "circular"),
        },
    ),
    "affine_grid": WithOptions(
        call=functional.affine_grid,
        floats=((2, 2, 3),),
        options={"size": ((2, 1, 3, 5),), "align_corners": BOTH},
    ),
}


def _triangular(x: Tensor, b: Tensor, *, upper: bool, left: bool, unit: bool) -> Tensor:
    square = x @ x.mT / 16 + 4 * torch.eye(5, device=x.device, dtype=x.dtype)
    return torch.linalg.solve_triangular(
        square, b if left else b.mT, upper=upper, left=left, unitriangular=unit
    )


SOLVED: Mapping[str, WithOptions] = {
    "solve_triangular": WithOptions(
        call=_triangular,
        floats=((5, 7), (5, 3)),
        options={"upper": BOTH, "left": BOTH, "unit": BOTH},
    ),
    "norms of order": WithOptions(
        call=torch.linalg.vector_norm,
        options={"ord": (0.5, 1, 2, 3, float("inf")), "dim": (0, 1, None)},
        fit=lambda x: x + 0.125,
        backward=False,
    ),
    "matrix norms": WithOptions(
        call=torch.linalg.matrix_norm, options={"ord": ("fro", 1, -1, float("inf"))}, backward=False
    ),
    "cross": WithOptions(
        call=torch.linalg.cross, floats=((3, 5, 3), (3, 1, 3)), options={"dim": (0, -1)}
    ),
    "tensordot": WithOptions(
        call=torch.tensordot, floats=((3, 5), (5, 3)), options={"dims": (1, ([0, 1], [1, 0]))}
    ),
}


def combined(options: Options, *, quick: bool) -> Iterator[dict[str, Any]]:
    """Every value with every other; quickly, the first values, and the second ones."""
    values: Iterator[Any] = itertools.product(*options.values())
    if quick:
        values = (tuple(some[i % len(some)] for some in options.values()) for i in range(2))
    for chosen in values:
        yield dict(zip(options, chosen, strict=True))


def _tried(of: WithOptions, ground: Ground) -> Iterator[Answer]:
    if ground.half and (ground.quick or not of.halves):
        return
    drawn = [of.fit(ground.whole(*shape, most=8) / 4) for shape in of.floats]
    for how in combined(of.options, quick=ground.quick):
        label = ", ".join(f"{name} {value}" for name, value in how.items())
        wanted = _called(of, drawn, of.given("cpu"), how, None)
        sent, given = [ground.send(x) for x in drawn], of.given(ground.device)
        found = _called(of, sent, given, how, wanted[0])
        afterwards = zip([*sent, *given], [*drawn, *of.given("cpu")], strict=True)
        for place, (after, before) in enumerate(afterwards):
            yield Answer(f"input {place} afterwards, {label}", after, array(before))
        for place, (mine, right) in enumerate(zip(found, wanted, strict=True)):
            name = f"gradient {place - 1}" if place else "output"
            if not right.is_floating_point():
                yield Answer(f"{name}, {label}", mine, array(right))
                continue
            most = float(right.abs().max()) if right.numel() else 0.0
            slack = (16 if ground.half else 64) * ground.eps * (1 + most)
            yield Answer(f"{name}, {label}", mine, array(right), ulps=4, slack=slack)
            if place and len(drawn) > 1:
                # Whoever trains a part of a model asks for no other gradient.
                alone = _called(of, sent, given, how, wanted[0], only=place - 1)
                for one in alone[place : place + 1]:
                    yield Answer(f"{name} alone, {label}", one, array(right), ulps=4, slack=slack)


def _called(
    of: WithOptions,
    numbers: list[Tensor],
    given: tuple[Any, ...],
    how: Mapping[str, Any],
    like: Tensor | None,
    only: int | None = None,
) -> list[Tensor]:
    """Output and gradients, of the argument `only` if that is given; what is fed back is the same
    for both, by place.
    """
    leaves = [
        x.detach().requires_grad_(of.backward and only in {None, place})
        for place, x in enumerate(numbers)
    ]
    output = of.call(*leaves, *given, **how)
    if not (of.backward and output.requires_grad):
        return [output.detach()]
    shape = output.shape if like is None else like.shape
    fed = (torch.arange(max(shape.numel(), 1)) % 5 - 2.0).add(0.5)[: shape.numel()].view(shape)
    fed = fed.to(output.device, output.dtype)
    asked = [x for x in leaves if x.requires_grad]
    results = iter(torch.autograd.grad(output, asked, fed, allow_unused=True))
    gradients = [next(results) if x.requires_grad else None for x in leaves]
    return [
        output.detach(),
        *[g if g is not None else x * 0 for g, x in zip(gradients, numbers, strict=True)],
    ]


ALL: Mapping[str, WithOptions] = {**ACTIVATIONS, **LOSSES, **PLACED, **MEASURED, **SOLVED}
OPTIONS = HazardClass(
    name="options",
    asks="is every option of an operation heeded, forward and backward",
    seen_on=("cpu", "cuda"),
    hazards=tuple(
        Hazard(
            name=f"options of {name}",
            answers=partial(_tried, one),
            dtypes=("float32", "bfloat16"),
            once=True,
        )
        for name, one in ALL.items()
    ),
)
