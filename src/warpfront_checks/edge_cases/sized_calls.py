"""Calls that run with each of their sizes in turn (`sized`), by kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.edge_cases.answers import SINGLE, USUAL, Hazard, HazardClass
from warpfront_checks.edge_cases.sized import (
    LESS_WORK,
    Call,
    Sized,
    Sizes,
    answers_of,
    exactly,
    nearly,
)


def _of(module: Any, name: str, *rest: Any, **options: Any) -> Call:
    """Return a call of tensors, with fixed arguments after them."""
    return lambda _, *tensors: getattr(module, name)(*tensors, *rest, **options)


_torch, _nn, _linalg, _fft = (
    partial(_of, module) for module in (torch, functional, torch.linalg, torch.fft)
)


def _places(x: Tensor, count: int, among: int) -> Tensor:
    """Return `count` indices below `among`, in no order, some of them twice."""
    return (torch.arange(count, device=x.device) * 7 + 2) % among


def _across(x: Tensor, index: Tensor) -> Tensor:
    """Return the same indices along the second of three axes for all lines."""
    return index.view(1, -1, 1).expand(x.shape[0], -1, x.shape[2])


def _turned(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT


Maker = Callable[..., Sized]
PRODUCTS: Mapping[str, Sized] = {
    "mm": exactly(_torch("mm"), "m k, k n"),
    "mm of turned": exactly(lambda _, x, y: _turned(x) @ _turned(y), "m k, k n"),
    "linear": exactly(_nn("linear"), "m k, n k, n"),
    "linear of three axes": exactly(_nn("linear"), "b m k, n k"),
    "bmm": exactly(_torch("bmm"), "b m k, b k n", b=2, m=2),
    "bmm of turned": exactly(lambda _, x, y: x.mT @ y.mT, "b k m, b n k", b=2, m=2),
    "one for all": exactly(_torch("matmul"), "b m k, k n", b=2, m=2),
    "all by one": exactly(_torch("matmul"), "m k, b k n", b=2, m=2),
    "addmm": exactly(_torch("addmm", beta=2, alpha=-1), "m n, m k, k n"),
    "baddbmm": exactly(_torch("baddbmm", beta=2, alpha=-1), "b m n, b m k, b k n", b=2, m=2),
    "addbmm": exactly(_torch("addbmm"), "m n, b m k, b k n", b=2, m=2),
    "mv": exactly(_torch("mv"), "m k, k"),
    "addmv": exactly(_torch("addmv"), "m, m k, k"),
    "addr": exactly(_torch("addr"), "m n, m, n"),
    "dot": exactly(_torch("dot"), "k, k"),
    "outer": exactly(_torch("outer"), "m, n"),
    "einsum": exactly(lambda _, x, y: torch.einsum("bik,bjk->ijb", x, y), "b i k, b j k"),
    "tensordot": exactly(_torch("tensordot", 2), "m k l, k l n"),
    "kron": exactly(_torch("kron"), "m n, p q", n=2, q=2),
    "bilinear": exactly(_nn("bilinear"), "n i, n j, m i j, m", n=2, i=2, j=2, m=(2, 67)),
}


def _convolved(_: Sizes, x: Tensor, w: Tensor, *bias: Tensor, **kwargs: Any) -> Tensor:
    """Convolve with padding so that each tap meets each position."""
    call = (functional.conv1d, functional.conv2d, functional.conv3d)[x.dim() - 3]
    return call(x, w, *bias, padding=tuple(n - 1 for n in w.shape[2:]), **kwargs)


def _spread(_: Sizes, x: Tensor, w: Tensor, **kwargs: Any) -> Tensor:
    names = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
    call: Callable[..., Tensor] = getattr(functional, names[x.dim() - 3])
    return call(x, w, **kwargs)


def _grouped(_: Sizes, x: Tensor, w: Tensor) -> Tensor:
    return _convolved(_, x.flatten(1, 2), w.flatten(0, 1), groups=x.shape[1])


def _channels_last(call: Call) -> Call:
    return lambda sizes, *tensors: call(
        sizes,
        *(x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in tensors),
    )


_PICTURES: Mapping[str, Any] = {"b": 1, "c": 2, "o": 2, "y": 4, "x": 5}
_TAPS: Mapping[str, Any] = {"s": (3, 131), "t": (3, 131), "r": (2, 67)}
# A fault in integers is at least 1. A transform rounds by the size of all that it adds up: the
# sum of 20,000 came 0.016 off on an H200.
_windows: Maker = partial(exactly, slack=0.25, work=LESS_WORK, **_PICTURES, **_TAPS)
CONVOLUTIONS: Mapping[str, Sized] = {
    "conv1d": _windows(_convolved, "b c x, o c t, o"),
    "conv1d of steps": _windows(partial(_convolved, stride=2), "b c x, o c t"),
    "conv1d of groups": _windows(_grouped, "b g c x, g o c t"),
    "conv2d": _windows(_convolved, "b c y x, o c s t, o"),
    "conv2d of channels_last": _windows(_channels_last(_convolved), "b c y x, o c s t, o"),
    "conv2d of pixels": _windows(_convolved, "b c y x, o c 1 1, o"),
    "conv2d of steps": _windows(partial(_convolved, stride=2), "b c y x, o c s t"),
    "conv2d, depthwise": _windows(_grouped, "b g 1 y x, g 1 1 s t"),
    "conv2d of groups": _windows(_grouped, "b g c y x, g o c s t", g=2),
    "conv3d": _windows(_convolved, "b c z y x, o c r 2 2", z=3),
    "conv_transpose1d": _windows(partial(_spread, stride=2), "b c x, c o t"),
    "conv_transpose2d": _windows(partial(_spread, stride=2), "b c y x, c o s t"),
    "conv_transpose3d": _windows(_spread, "b c z y x, c o r 2 2", z=3),
    "unfold": _windows(_nn("unfold", (2, 3), padding=1), "b c y x"),
}
# Windows of which the largest are alone.
_largest: Maker = partial(exactly, **_PICTURES, z=4, apart=True)
_pooled: Maker = partial(nearly, **_PICTURES, z=4, least=0.0)
_RESIZED = (
    ("nearest", "b c y x"),
    ("linear", "b c x"),
    ("bilinear", "b c y x"),
    ("bicubic", "b c y x"),
    ("trilinear", "b c z y x"),
)
_PADDED = ("constant", "replicate", "circular")


def _looked(_: Sizes, x: Tensor, where: Tensor) -> Tensor:
    """Sample an image between its pixels."""
    return functional.grid_sample(x, where.sin() * 0.9, align_corners=False)


PICTURES: Mapping[str, Sized] = {
    "max_pool1d": _largest(_nn("max_pool1d", 3, 2, 1), "b c x"),
    "max_pool2d": _largest(_nn("max_pool2d", 3, 2, 1), "b c y x"),
    "max_pool2d of channels_last": _largest(_channels_last(_nn("max_pool2d", 3, 2, 1)), "b c y x"),
    "max_pool3d": _largest(_nn("max_pool3d", 2, 2, 1), "b c z y x"),
    "adaptive_max_pool1d": _largest(_nn("adaptive_max_pool1d", 3), "b c x"),
    "adaptive_max_pool2d": _largest(_nn("adaptive_max_pool2d", (2, 3)), "b c y x"),
    "avg_pool1d": _pooled(_nn("avg_pool1d", 3, 2, 1), "b c x"),
    "avg_pool2d": _pooled(_nn("avg_pool2d", (2, 3), (1, 2), 1), "b c y x"),
    "avg_pool3d": _pooled(
        lambda _, x: functional.avg_pool3d(functional.pad(x, (1,) * 6), 2), "b c z y x"
    ),
    "adaptive_avg_pool1d": _pooled(_nn("adaptive_avg_pool1d", 3), "b c x"),
    "adaptive_avg_pool2d": _pooled(_nn("adaptive_avg_pool2d", (2, 3)), "b c y x"),
    "adaptive_avg_pool3d": _pooled(_nn("adaptive_avg_pool3d", (2, 3, 2)), "b c z y x"),
    **{
        f"resized, {mode}": _pooled(
            _nn("interpolate", scale_factor=2, mode=mode), shape, least=1.0, roundings=128.0
        )
        for mode, shape in _RESIZED
    },
    **{f"padded, {mode}": _pooled(_nn("pad", (1, 1), mode=mode), "b c x") for mode in _PADDED},
    **{
        f"frames padded, {mode}": _pooled(_nn("pad", (1, 0, 0, 1), mode=mode), "b c y x")
        for mode in _PADDED
    },
    "reflected": _pooled(_nn("pad", (2, 1, 0, 0), mode="reflect"), "b c y 4"),
    "pixel_shuffle": _pooled(
        lambda _, x: functional.pixel_shuffle(x.flatten(1, 2), 2), "b c 4 y x"
    ),
    "looked at": _pooled(
        _looked, "b c y x, b p q 2", least=8.0, roundings=256.0, y=(4, 259), x=(5, 259)
    ),
}
# Along the middle one of three axes.
_LINES = "a k b"
_along: Maker = partial(exactly, a=2, b=2)
_along_nearly: Maker = partial(nearly, a=2, b=2)
_in_order: Maker = partial(exactly, a=2, b=2, apart=True)
REDUCTIONS: Mapping[str, Sized] = {
    "sum": _along(_torch("sum", 1), _LINES),
    "sum of the last": _along(_torch("sum", 2), _LINES),
    "sum of all": _along(_torch("sum"), _LINES),
    "mean": _along_nearly(_torch("mean", 1), _LINES, least=0.0),
    "amax": _in_order(_torch("amax", 1), _LINES),
    "amin of the last": _in_order(_torch("amin", 2), _LINES),
    "argmax": _in_order(_torch("argmax", 1), _LINES, backward=False),
    "argmin of the last": _in_order(_torch("argmin", 2), _LINES, backward=False),
    "all": _along(lambda _, x: (x > -2).all(1), _LINES, backward=False),
    "any": _along(lambda _, x: (x > 1).any(1), _LINES, backward=False),
    "count_nonzero": _along(_torch("count_nonzero", 1), _LINES, backward=False),
    "prod": _along_nearly(lambda _, x: (1 + x / 2**20).prod(1), _LINES),
    "var": _along_nearly(_torch("var", 1, correction=0), _LINES),
    "std of the last": _along_nearly(_torch("std", 2, correction=0), _LINES, backward=False),
    "norm": _along_nearly(lambda _, x: torch.linalg.vector_norm(x + 9, dim=1), _LINES),
    "logsumexp": _along_nearly(_torch("logsumexp", 1), _LINES, least=0.0),
    "softmax": _along_nearly(_torch("softmax", 1), _LINES, least=0.05),
    "softmax of the last": _along_nearly(_torch("softmax", 2), _LINES, least=0.05),
    "log_softmax": _along_nearly(_torch("log_softmax", 1), _LINES),
    "cumsum": _along(_torch("cumsum", 1), _LINES),
    "cumsum of the last": _along(_torch("cumsum", 2), _LINES),
    "cumprod": _along_nearly(lambda _, x: (1 + x / 2**20).cumprod(1), _LINES, backward=False),
    "cummax": _in_order(lambda _, x: x.cummax(1).values, _LINES),
    "cummin of the last": _in_order(lambda _, x: x.cummin(2).values, _LINES),
    "logcumsumexp": _along_nearly(_torch("logcumsumexp", 1), _LINES, backward=False),
    "sort": _in_order(lambda _, x: x.sort(1).values, _LINES),
    "argsort": _in_order(_torch("argsort", 1), _LINES, backward=False),
    "argsort of the last": _in_order(_torch("argsort", 2), _LINES, backward=False),
    "median": _in_order(lambda _, x: x.median(1).values, _LINES),
    "kthvalue": _in_order(lambda s, x: x.kthvalue((s.k + 1) // 2, 1).values, _LINES),
    "topk": _in_order(lambda s, x: x.topk((s.k + 1) // 2, 1).values, _LINES),
    "nonzero": _along(lambda _, x: (x > 1).nonzero(), _LINES, backward=False),
    "unique": _along(lambda _, x: x.long().unique(return_counts=True)[1], _LINES, backward=False),
    "distinct rows": _along(lambda _, x: x.unique(dim=0), "n k", backward=False, n=(3, 1031)),
    "searchsorted": _in_order(
        lambda _, x, y: torch.searchsorted(x.sort(1).values, y), "a k, a n", backward=False
    ),
    "bincount": _along(lambda s, x, _: _places(x, s.n, s.k).bincount(), "n, k", backward=False),
    "histc": _along(lambda s, x, _: x.histc(s.k, -2.5, 2.5), "n, k", backward=False, k=(5, 259)),
    "quantile": _in_order(_torch("quantile", 0.5, 1), _LINES, backward=False),
}
MOVED: Mapping[str, Sized] = {
    "gather": _along(lambda s, x, _: x.gather(1, _across(x, _places(x, s.n, s.k))), "a k b, n"),
    "take_along_dim": _along(
        lambda s, x, _: torch.take_along_dim(x, _places(x, s.n, s.k).view(1, -1, 1), 1), "a k b, n"
    ),
    "index_select": _along(lambda s, x, _: x.index_select(1, _places(x, s.n, s.k)), "a k b, n"),
    "indexing": _along(lambda s, x, _: x[:, _places(x, s.n, s.k)], "a k b, n"),
    "index_add": _along(lambda s, x, y: x.index_add(1, _places(x, s.n, s.k), y), "a k b, a n b"),
    "index_put": _along(
        lambda s, x, y: x.index_put((_places(x, s.n, s.k),), y, accumulate=True), "k b, n b"
    ),
    "scatter_add": _along(
        lambda s, x, y: x.scatter_add(1, _across(x, _places(x, s.n, s.k)), y), "a k b, a n b"
    ),
    "scatter_reduce": _in_order(
        lambda s, x, y: x.scatter_reduce(1, _across(x, _places(x, s.n, s.k)), y, "amax"),
        "a k b, a n b",
        backward=False,
    ),
    "index_copy": _along(
        lambda s, x, y: x.index_copy(1, torch.arange(s.k, device=x.device).flip(0), y),
        "a k b, a k b",
    ),
    "embedding": _along(lambda s, w, _: functional.embedding(_places(w, s.n, s.k), w), "k b, n"),
    **{
        f"embedding_bag, {mode}": (_along if mode == "sum" else _along_nearly)(
            lambda s, w, _, mode=mode: functional.embedding_bag(
                _places(w, 2 * s.n, s.k).view(-1, 2), w, mode=mode
            ),
            "k b, n",
        )
        for mode in ("sum", "mean", "max")
    },
    "one_hot": _along(
        lambda s, x, _: functional.one_hot(_places(x, s.n, s.k), s.k), "n, k", backward=False
    ),
    "masked_select": _along(lambda _, x: x[x > 0], _LINES),
    "masked_fill": _along(lambda _, x, y: x.masked_fill(y > 0, 7.0), "a k b, k b"),
    "where": _along(lambda _, x, y: torch.where(x > y, x, y * 2), "a k b, a 1 b"),
    "joined": _along(lambda _, x, y: torch.cat([x, y], 1), "a k b, a n b"),
    "joined of many": _along(lambda _, x: torch.cat(x.unbind(0), 1), "n a b", n=(3, 1031)),
    "stacked": _along(lambda _, x: torch.stack(x.unbind(1), 2), "a n b", n=(3, 1031)),
    "cut": _along(
        lambda _, x: torch.cat([y * 2 for y in x.split(2, 1)][::-1], 1), _LINES, k=(3, 1031)
    ),
    "flip": _along(_torch("flip", (1,)), _LINES),
    "roll": _along(_torch("roll", 1, 1), _LINES),
    "diff": _along(_torch("diff", dim=1), _LINES),
    "repeated": _along(_torch("repeat_interleave", 2, 1), _LINES),
    "tiled": _along(_torch("tile", (2, 1, 2)), _LINES),
    "turned": _along(lambda _, x: x.permute(2, 0, 1).contiguous() * 2, _LINES),
    "tril": _along(_torch("tril"), "b m n"),
    "triu": _along(_torch("triu", -1), "b m n"),
    "diagonal": _along(lambda _, x: x.diagonal(0, 1, 2) * 2, "b m n"),
    "diag_embed": _along(_torch("diag_embed"), "b n", n=(3, 1031)),
    "copied with gaps": _along(lambda _, x: x[:, ::2].clone() * 2, _LINES),
    "converted": _along(lambda _, x: x.to(torch.int32).to(x.dtype), _LINES, backward=False),
    "added across": _along(lambda _, x, y, z: x + y - 2 * z, "a k b, k 1, a 1 b"),
    "multiplied across": _along(lambda _, x, y: x * y, "a k b, a 1 b"),
}
# Where all numbers are alike, the rounding error of them is divided by the root of it.
EPS = 0.125
NORMS: Mapping[str, Sized] = {
    "layer_norm": nearly(
        lambda s, x, w, b: functional.layer_norm(x, (s.k,), w, b, EPS), "n k, k, k"
    ),
    "layer_norm of two axes": nearly(
        lambda s, x, w, b: functional.layer_norm(x, (s.j, s.k), w, b, EPS), "n j k, j k, j k"
    ),
    "rms_norm": nearly(lambda s, x, w: functional.rms_norm(x, (s.k,), w, EPS), "n k, k"),
    "group_norm": nearly(
        lambda s, x, w, b: functional.group_norm(
            x.flatten(1, 2), s.g, w.flatten(), b.flatten(), EPS
        ),
        "n g c x, g c, g c",
    ),
    "batch_norm": nearly(
        lambda _, x, w, b: functional.batch_norm(x, None, None, w, b, training=True, eps=EPS),
        "n c 2, c, c",
    ),
    "batch_norm of places": nearly(
        lambda _, x, w, b: functional.batch_norm(x, None, None, w, b, training=True, eps=EPS),
        "2 c y x, c, c",
    ),
    "batch_norm, inferred": nearly(
        lambda _, x, w, b: functional.batch_norm(
            x, w.detach(), b.detach().abs() + 1, w, b, training=False
        ),
        "n c x, c, c",
    ),
    "instance_norm": nearly(
        lambda _, x, w, b: functional.instance_norm(x, weight=w, bias=b, eps=EPS), "n c x 2, c, c"
    ),
    "normalize": nearly(lambda _, x: functional.normalize(x + 5, dim=1), _LINES),
    "prelu": nearly(_nn("prelu"), "n c x, c"),
    "glu": nearly(lambda _, x: functional.glu(x.flatten(1, 2), 1), "n 2 c x"),
    "weight_norm": nearly(
        lambda _, v, g: torch._weight_norm(v + 5, g, 0), "m n, m 1", fit=lambda x: x / 4
    ),
    "cosine_similarity": nearly(_nn("cosine_similarity"), "a k b, a k b", fit=lambda x: x / 4 + 3),
    "pairwise_distance": nearly(
        lambda _, x, y: functional.pairwise_distance(x, y + 40), "n k, n k", roundings=128.0
    ),
    "cdist": nearly(
        lambda _, x, y: torch.cdist(x, y + 40, compute_mode="donot_use_mm_for_euclid_dist"),
        "b m k, b n k",
        roundings=128.0,
    ),
}


def _classes(x: Tensor, count: int, *shape: int) -> Tensor:
    return _places(x, math.prod(shape), count).view(shape)


LOSSES: Mapping[str, Sized] = {
    "cross_entropy": nearly(
        lambda s, x: functional.cross_entropy(x, _classes(x, s.c, s.n)), "n c", least=0.0
    ),
    "cross_entropy of places": nearly(
        lambda s, x, w: functional.cross_entropy(
            x, _classes(x, s.c, s.n, s.x), w.detach().abs() + 1, label_smoothing=0.25
        ),
        "n c x, c",
    ),
    "cross_entropy of shares": nearly(
        lambda _, x, y: functional.cross_entropy(x, y.detach().softmax(1)), "n c, n c", least=0.0
    ),
    "nll_loss": nearly(
        lambda s, x: functional.nll_loss(x, _classes(x, s.c, s.n), reduction="sum"), "n c"
    ),
    "mse_loss": nearly(_nn("mse_loss"), "n k, n k", least=0.0),
    "smooth_l1_loss": nearly(_nn("smooth_l1_loss", beta=0.6), "n k, n k", least=0.0),
    "with logits": nearly(
        lambda _, x, y: functional.binary_cross_entropy_with_logits(x, y.detach().sigmoid()),
        "n k, n k",
        least=0.0,
    ),
    "kl_div": nearly(
        lambda _, x, y: functional.kl_div(
            x, y.detach().log_softmax(1), reduction="batchmean", log_target=True
        ),
        "n k, n k",
    ),
    "ctc_loss": nearly(
        lambda s, x: functional.ctc_loss(
            functional.pad(x, (1, 0)).log_softmax(2),
            _classes(x, s.c, s.b, 1) + 1,
            torch.full((s.b,), s.t),
            torch.ones(s.b, dtype=torch.long),
            reduction="none",
        ),
        "t b c",
        t=(4, 259),
        c=(4, 1031),
        roundings=4096.0,
    ),
}


def _attended(s: Sizes, q: Tensor, k: Tensor, v: Tensor, *mask: Tensor, **kwargs: Any) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, *mask, **kwargs)


_heads: Maker = partial(nearly, b=1, h=2, q=4, k=5, d=(8, 259), e=(8, 259), roundings=64.0)
_QKV = "b h q d, b h k d, b h k d"
ATTENTION: Mapping[str, Sized] = {
    "attention": _heads(_attended, _QKV),
    "causal attention": _heads(partial(_attended, is_causal=True), "b h q d, b h q d, b h q d"),
    "masked attention": _heads(_attended, f"{_QKV}, q k"),
    "attention masked by head": _heads(_attended, f"{_QKV}, b h q k"),
    "grouped attention": _heads(
        lambda _, q, k, v: functional.scaled_dot_product_attention(
            q.flatten(1, 2), k, v, enable_gqa=True
        ),
        "b h g q d, b h k d, b h k d",
        g=2,
    ),
}


def _recurrent(name: str, gates: int) -> Sized:
    """Run steps, sequences, inputs and states, forward and backward, with both biases."""

    def call(_: Sizes, x: Tensor, start: Tensor, *weights: Tensor) -> Tensor:
        flat = [w.flatten(0, 1) for w in weights]
        state: Any = (start[None], start[None]) if name == "lstm" else start[None]
        run: Callable[..., tuple[Tensor, ...]] = getattr(torch, name)
        output: Tensor = run(x, state, flat, True, 1, 0.0, True, False, False)[0]
        return output

    shapes = f"t b i, b h, {gates} h i, {gates} h h, {gates} h, {gates} h"
    return nearly(call, shapes, t=(3, 259), h=(3, 1031), fit=lambda x: x / 64, roundings=256.0)


RECURRENT: Mapping[str, Sized] = {
    "lstm": _recurrent("lstm", 4),
    "gru": _recurrent("gru", 3),
    "rnn_tanh": _recurrent("rnn_tanh", 1),
}


def _heavy(x: Tensor) -> Tensor:
    """Return a matrix whose diagonal outweighs the rest, in an order that requires pivoting."""
    n = x.shape[-1]
    return (x / (32 * n) + 2 * torch.eye(n, dtype=x.dtype, device=x.device)).roll(1, -1)


def _positive(x: Tensor) -> Tensor:
    n = x.shape[-1]
    return x @ x.mT / (16 * n) + torch.eye(n, dtype=x.dtype, device=x.device)


_solved: Maker = partial(nearly, fit=lambda x: x, n=(3, 259), b=2, roundings=256.0)
SOLVED: Mapping[str, Sized] = {
    # One by one: of batches of large ones torch's own factors are wrong on the CPU where several
    # threads factor at once, the reference's too (pytorch#142815, #181570).
    "solve": _solved(lambda _, x, y: torch.linalg.solve(_heavy(x), y), "b n n, b n m", b=1),
    "solve, one for all": _solved(lambda _, x, y: torch.linalg.solve(_heavy(x), y), "n n, b n m"),
    "inverse": _solved(lambda _, x: torch.linalg.inv(_heavy(x)), "b n n", b=1),
    "determinant": _solved(
        lambda _, x: torch.linalg.slogdet(_heavy(x)).logabsdet, "b n n", backward=False, b=1
    ),
    "triangles": _solved(
        lambda _, x, y: torch.linalg.solve_triangular(_positive(x).tril(), y, upper=False),
        "b n n, b n m",
        # More right sides than a launch takes are solved in parts (pytorch#187717).
        m=(3, 4099),
    ),
    "cholesky": _solved(lambda _, x: torch.linalg.cholesky(_positive(x)), "b n n"),
    "cholesky_solve": _solved(
        lambda _, x, y: torch.cholesky_solve(y, torch.linalg.cholesky(_positive(x))), "b n n, b n m"
    ),
    "qr, multiplied": _solved(
        lambda _, x: torch.matmul(*torch.linalg.qr(_heavy(x))), "b n n", backward=False
    ),
    "eigenvalues": _solved(
        # Jacobi's, by which NVIDIA finds them, are off by some roundings a row (2e-4 of 2.8, H200).
        lambda _, x: torch.linalg.eigvalsh(_positive(x)),
        "b n n",
        backward=False,
        roundings=1024.0,
    ),
    "singular values": _solved(
        lambda _, x: torch.linalg.svdvals(_heavy(x)), "b n n", backward=False, n=(3, 67)
    ),
    "matrix_exp": _solved(lambda _, x: torch.matrix_exp(x / 32), "b n n", n=(3, 64)),
}


def _parts(x: Tensor) -> Tensor:
    return torch.view_as_real(x).movedim(-1, 0)


_waves: Maker = partial(nearly, a=2, b=2, least=0.0, roundings=256.0)
TRANSFORMED: Mapping[str, Sized] = {
    "rfft": _waves(lambda _, x: _parts(torch.fft.rfft(x, dim=1)), _LINES),
    "rfft of the last": _waves(lambda _, x: _parts(torch.fft.rfft(x)), _LINES),
    "fft": _waves(lambda _, x: _parts(torch.fft.fft(x, dim=1)), _LINES),
    # The ends' imaginary parts do not count.
    "irfft": _waves(lambda s, x: torch.fft.irfft(torch.complex(*x), s.k, 1), "2 a k b"),
    "fft2": _waves(lambda _, x: _parts(torch.fft.fft2(x)), _LINES),
}


def _stepped(make: Callable[..., torch.optim.Optimizer], **kwargs: Any) -> Call:
    """Run two steps with the same gradients on a list of parameters."""

    def call(_: Sizes, x: Tensor, slopes: Tensor) -> Tensor:
        leaves = [row.clone() for row in x.unbind(0)]
        for leaf, slope in zip(leaves, slopes.unbind(0), strict=True):
            leaf.grad = slope.clone()
        optimizer = make(leaves, **kwargs)
        for _step in range(2):
            optimizer.step()
        return torch.stack(leaves)

    return call


_listed: Maker = partial(exactly, n=(3, 259), backward=False)
_lists: Maker = partial(nearly, n=(3, 259), backward=False)
LISTS: Mapping[str, Sized] = {
    "foreach add": _listed(
        lambda _, x, y: torch.stack(torch._foreach_add(x.unbind(0), y.unbind(0), alpha=2)),
        "n k, n k",
    ),
    "foreach addcmul": _listed(
        lambda _, x, y: torch.stack(
            torch._foreach_addcmul(x.unbind(0), y.unbind(0), x.unbind(0), value=2)
        ),
        "n k, n k",
    ),
    "foreach norm": _lists(lambda _, x: torch.stack(torch._foreach_norm(x.unbind(0))), "n k"),
    "foreach lerp": _lists(
        lambda _, x, y: torch.stack(torch._foreach_lerp(x.unbind(0), y.unbind(0), 0.25)), "n k, n k"
    ),
    **{
        f"{make.__name__}, {implementation}": _lists(
            _stepped(make, lr=0.25, **{implementation: True}), "n k, n k"
        )
        for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
        for implementation in ("foreach", "fused")
    },
}
# As in every table: calls with exact results in float32 run in 16 bits too.
EACH: Mapping[str, Mapping[str, Sized]] = {
    "products": PRODUCTS,
    "convolutions": CONVOLUTIONS,
    "pictures": PICTURES,
    "reductions": REDUCTIONS,
    "moved": MOVED,
    "norms": NORMS,
    "losses": LOSSES,
    "attention": ATTENTION,
    "recurrent": RECURRENT,
    "solved": SOLVED,
    "transformed": TRANSFORMED,
    "lists": LISTS,
}
# The case engine crosses these with sizes on the CPU (`cases.session.SEEN_ON`).
CROSSED = ("products",)
SIZES = HazardClass(
    name="sizes",
    asks="is an operation right whichever of its sizes is one, odd, whole tiles or long",
    seen_on=("cpu", "cuda"),
    hazards=tuple(
        Hazard(
            name=f"sizes of {name}",
            answers=partial(answers_of, sized_call),
            dtypes=USUAL if sized_call in PRODUCTS.values() else SINGLE,
            devices=("cuda", "rocm") if topic in CROSSED else (),
        )
        for topic, table in EACH.items()
        for name, sized_call in table.items()
    ),
)
