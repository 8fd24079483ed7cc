"""Kernels that are wrong about places (results in memory with gaps, formats of one, two and three
axes), about whole numbers that no float has, about options, and about numbers of certain kinds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpfront.inside.checks.hazards.seeding import Kernel, KernelFault

DESTINATIONS, AXES, WHOLE = "destinations", "axes", "whole numbers"
KINDS, OPTIONS, LISTS = "kinds of numbers", "options", "lists"


def _strides_guessed(right: Kernel, *args: Any, out: Tensor, **how: Any) -> Tensor:
    """What is right lies as if the memory had neither gaps nor another order."""
    right(*args, out=out, **how)
    if out.numel() and not out.is_contiguous():
        values = out.clone(memory_format=torch.contiguous_format)
        there = out.as_strided((out.numel(),), (1,))
        there.copy_(values.flatten()) if _room(out) >= out.numel() else out.zero_()
    return out


def _room(x: Tensor) -> int:
    return int(x.untyped_storage().nbytes() // x.element_size() - x.storage_offset())


def _last_unwritten(right: Kernel, x: Tensor, *more: Any, **how: Any) -> Tensor:
    if x.dim() < 2 or x.is_contiguous():
        return right(x, *more, **how)
    before = x[..., -1].clone()
    right(x, *more, **how)
    x[..., -1] = before
    return x


def _cut_off(right: Kernel, x: Tensor, y: Tensor, *, rounding_mode: str | None) -> Tensor:
    return right(x, y, rounding_mode=rounding_mode and "trunc")


def _one_further(right: Kernel, x: Tensor, k: int, *more: Any, **how: Any) -> Any:
    return right(x, min(k + 1, x.shape[-1]), *more, **how)


def _channels_by_factor(right: Kernel, x: Tensor, factor: int) -> Tensor:
    if x.dim() == 4 and not x.is_contiguous():
        x = x.unflatten(1, (factor**2, -1)).transpose(1, 2).flatten(1, 2)
    return right(x, factor)


def _next_axis_for_one(right: Kernel, x: Tensor, axes: list[int]) -> Tensor:
    return right(x, sorted({(a + 1) % x.dim() if x.shape[a] == 1 else a % x.dim() for a in axes}))


def _other_triangle(right: Kernel, x: Tensor, upper: bool = False) -> Tensor:
    return right(x.mH, upper) if upper and x.dim() > 2 else right(x, upper)


def _gaps_undrawn(right: Kernel, x: Tensor, *more: Any, **how: Any) -> Tensor:
    drawn = right(x if x.is_contiguous() else x.clone(), *more, **how)
    return x if drawn is not x else drawn


def _alpha_of_tile(right: Kernel, c: Tensor, a: Tensor, b: Tensor, **how: Any) -> Tensor:
    found = right(c, a, b, **how)
    if a.stride(0) == 1 and a.shape[0] > 64 and how.get("alpha", 1) != 1:
        found[64:] = right(c, a, b, **{**how, "alpha": 1})[64:]
    return found


def _depth_for_height(right: Kernel, x: Tensor, size: Any, *more: Any, **how: Any) -> Tensor:
    found = right(x, size, *more, **how)
    found[:, :, 1] = found[:, :, 0]
    return found


def _overlaps_lost(right: Kernel, grad: Tensor, x: Tensor, *more: Any, **how: Any) -> Tensor:
    found = right(grad, x, *more, **how)
    places = more[-1].flatten(2)
    alone = torch.zeros_like(x, memory_format=torch.contiguous_format).flatten(2)
    alone.scatter_(2, places, grad.flatten(2))
    return found.copy_(alone.view(x.shape))


def _corner_lost(right: Kernel, grad: Tensor, x: Tensor, padding: Any, **how: Any) -> Tensor:
    cut = grad.clone()
    cut[..., 0, 0, 0] = 0
    return right(cut, x, padding, **how)


def _last_group_lost(right: Kernel, grad: Tensor, x: Tensor, weight: Tensor, *more: Any) -> Any:
    found = right(grad, x, weight, *more)
    groups = more[6]
    if x.dim() == 3 and groups > 1 and found[1] is not None:
        found[1][-(weight.shape[0] // groups) :] = 0
    return found


def _through_float(right: Kernel, x: Tensor, y: Tensor, *, rounding_mode: str | None) -> Tensor:
    found = right(x, y, rounding_mode=rounding_mode)
    if found.is_floating_point() or rounding_mode != "floor":
        return found
    return found.copy_((x.float() / y.float()).floor())


def _added_in_double(right: Kernel, x: Tensor, y: Tensor, **how: Any) -> Tensor:
    found = right(x, y, **how)
    if found.dtype != torch.int64 or x.dim() < 2:
        return found
    return found.copy_(torch.where(found.abs() > 2**53, found & -1024, found))


def _padded_by_nought(right: Kernel, x: Tensor, dim: Any = None, *more: Any, **how: Any) -> Tensor:
    """The place of the smallest, if a block of a power of two is filled with nought."""
    found = right(x, dim, *more, **how)
    n = x.shape[dim] if dim is not None and x.dim() else x.numel()
    if n & (n - 1) and x.is_floating_point():
        low = x.double().amin(() if dim is None else dim, *more)
        found[low > 0] = 0
    return found


def _beta_times(right: Kernel, x: Tensor, *more: Any, **how: Any) -> Tensor:
    found = right(x, *more, **how)
    return found.add_(x * 0) if how.get("beta", 1) == 0 else found


def _in_single(right: Kernel, x: Tensor, y: Tensor, **how: Any) -> Tensor:
    found = right(x, y, **how)
    return found if x.dtype == torch.float32 else found.copy_(x.expand_as(found))


def _half_again(right: Kernel, x: Tensor, *more: Any, **how: Any) -> Tensor:
    found = right(x, *more, **how)
    if x.is_contiguous() and x.numel() >= 1024:
        pairs = x.view(-1)[: x.numel() // 1024 * 1024].view(-1, 2, 512)
        pairs[:, 1] = pairs[:, 0]
    return found


def _spoiled_input(right: Kernel, x: Tensor, dim: Any, *more: Any) -> Tensor:
    found: Tensor = right(x, dim, *more)
    if len(dim) > 1:
        # Its own count of versions: autograd is not told either.
        x.data.mul_(3)
    return found


def _padding_counts(right: Kernel, weight: Tensor, index: Tensor, *more: Any) -> Any:
    found = right(weight, index, *more)
    if len(more) > 2 and more[2] == 1 and more[-1] >= 0:
        found[0].mul_(0.5)
    return found


def _unscaled_alpha(right: Kernel, grad: Tensor, *more: Any, **how: Any) -> Tensor:
    _, scale, inner, done, x = more
    return right(grad, 1.0 if done else more[0], scale, inner, done, x, **how)


def _last_chunk(right: Kernel, tensors: Any, order: Any = 2, **how: Any) -> Any:
    found = right(tensors, order, **how)
    for one, x in zip(found, tensors, strict=True):
        if x.numel() > 65_536:
            whole = x.flatten()[: x.numel() // 65_536 * 65_536]
            one.copy_(torch.linalg.vector_norm(whole.double(), order))
    return found


def _dampened_at_first(right: Kernel, weights: Any, grads: Any, kept: Any, **how: Any) -> None:
    right(weights, grads, kept, **how)
    if how["is_first_step"] and how["dampening"]:
        for buffer in kept:
            buffer.data.mul_(1 - how["dampening"])


def _ends_early(right: Kernel, first: Any, last: Any, count: int, **how: Any) -> Tensor:
    found: Tensor = right(first, last, count, **how)
    return found.copy_(right(first, last, count + 1)[:-1]) if count > 1 else found


def _grows_late(
    right: Kernel, scale: Tensor, since: Tensor, bad: Tensor, factor: float, less: float, count: int
) -> Tensor:
    found: Tensor = right(scale, since, bad, factor, less, count + 1)
    return found


def _padding_attended(right: Kernel, *given: Any) -> Tensor:
    """The mask of a batch is the second last of what the layer takes."""
    found: Tensor = right(*given[:-2], None, None)
    return found


def _two_percent_more(right: Kernel, *given: Any, **how: Any) -> Tensor:
    found: Tensor = right(*given, **how)
    return found.mul_(1.02)


def _last_not_listed(right: Kernel, x: Tensor, **how: Any) -> Tensor:
    last = x.nonzero()[-1]
    kept = x.clone()
    kept[tuple(last)] = 0
    found: Tensor = right(kept, **how)
    return found


def _unfiltered(right: Kernel, x: Tensor, size: Any, aligned: bool, *more: Any, **how: Any) -> Any:
    found = right(x, size, aligned, *more, **how)
    return found.copy_(torch.ops.aten.upsample_bicubic2d(x, size, aligned))


def _squares_forgotten(right: Kernel, x: Tensor, y: Tensor) -> Tensor:
    found: Tensor = right(x, y)
    return found.square().add_(1).sqrt_()


def _without_sign(right: Kernel, x: Tensor, *more: Any, **how: Any) -> Tensor:
    result = right(x, *more, **how)
    return result.copy_(torch.where(result == 0, result.abs(), result))


def _about_its_median(right: Kernel, x: Tensor, median: float, sigma: float, **how: Any) -> Tensor:
    del sigma
    return right(x, median, 1.0, **how)


def _alpha_dropped(right: Kernel, x: Tensor, other: Any, alpha: Any = 1, **how: Any) -> Tensor:
    return right(x, other, alpha=1 if x.is_floating_point() else alpha, **how)


def _in_no_order(right: Kernel, x: Tensor, k: int, *more: Any, **how: Any) -> Any:
    values, places = right(x, k, *more, **how)
    *_, in_order = more if len(more) > 2 else (True,)
    if not in_order:
        values.copy_(values.amax().expand_as(values))
    return values, places


def _exact_approximation(right: Kernel, x: Tensor, **how: Any) -> Tensor:
    del how
    return right(x, approximate="none")


def _state_forgotten(right: Kernel, x: Tensor, *more: Any) -> Any:
    weights, hidden, cell, rest = more[:4], more[4], more[5], more[6:]
    return right(x, *weights, hidden * 0, cell * 0, *rest)


def _by_sizes(right: Kernel, x: Tensor, size: Any, *scales: Any, **how: Any) -> Tensor:
    del scales
    return right(x, size, None, None, **how)


def _norm_exceeded(right: Kernel, x: Tensor, p: Any, dim: int, maxnorm: Any) -> Tensor:
    return right(x, p, dim, maxnorm * 2)


def _unlimited(right: Kernel, x: Tensor, eps: Any = None) -> Tensor:
    del eps
    return right(x, None)


PLACE_FAULTS: tuple[KernelFault, ...] = (
    KernelFault(
        "steps end before their end",
        ("linspace.out",),
        _ends_early,
        "transforms",
        ("windows",),
    ),
    KernelFault(
        "a scale grows a step late",
        ("_amp_update_scale_",),
        _grows_late,
        "kept state",
        ("scale",),
    ),
    KernelFault(
        "a layer attends to what is padding",
        ("_transformer_encoder_layer_fwd",),
        _padding_attended,
        "attention kernels",
        ("inferred, relu",),
        devices=("cpu",),
    ),
    KernelFault(
        "gammas are a little large",
        ("_standard_gamma",),
        _two_percent_more,
        "random numbers",
        ("gamma",),
    ),
    KernelFault(
        "the last number of a sparse table is not listed",
        ("_to_sparse",),
        _last_not_listed,
        "sparse",
        ("from coordinates",),
    ),
    KernelFault(
        "smaller pictures are not filtered",
        ("_upsample_bicubic2d_aa",),
        _unfiltered,
        "options",
        ("options of resized, bicubic, smooth",),
    ),
    KernelFault(
        "distances by products are off by one",
        ("_euclidean_dist",),
        _squares_forgotten,
        "options",
        ("options of cdist of many",),
    ),
    KernelFault(
        "an axis of one turns the next",
        ("flip",),
        _next_axis_for_one,
        "shapes",
        ("flip, axes of one",),
        like="pytorch#98266",
    ),
    KernelFault(
        "an upper factor of the other triangle",
        ("cholesky",),
        _other_triangle,
        "linear algebra",
        ("triangles",),
        like="pytorch#57032",
        devices=("cpu",),
    ),
    KernelFault(
        "drawn beside a view",
        ("normal_", "uniform_", "bernoulli_.float"),
        _gaps_undrawn,
        "random numbers",
        ("into views",),
        like="pytorch#165267",
    ),
    KernelFault(
        "a factor that the first tile has",
        ("addmm", "addmm.out"),
        _alpha_of_tile,
        "shapes",
        ("products",),
        like="rocm-libraries#12226",
    ),
    KernelFault(
        "bmm guesses the strides of its output",
        ("bmm.out",),
        _strides_guessed,
        DESTINATIONS,
        ("bmm into memory",),
        like="aiter#5385",
    ),
    KernelFault(
        "cat guesses the strides of its output",
        ("cat.out",),
        _strides_guessed,
        DESTINATIONS,
        ("cat into memory",),
        like="aiter#5385",
    ),
    KernelFault(
        "silu in place leaves a column",
        ("silu_",),
        _last_unwritten,
        DESTINATIONS,
        ("silu in place",),
    ),
    KernelFault(
        "a quotient in place is cut off, not rounded down",
        ("div_.Tensor_mode",),
        _cut_off,
        DESTINATIONS,
        ("floor of a quotient in place",),
    ),
    KernelFault(
        "kthvalue is the next one",
        ("kthvalue.values",),
        _one_further,
        DESTINATIONS,
        ("kthvalue into memory",),
    ),
    KernelFault(
        "pixel_shuffle takes other channels from channels_last",
        ("pixel_shuffle",),
        _channels_by_factor,
        AXES,
        ("pixel_shuffle, two axes",),
        # Elsewhere it is made of other operations.
        devices=("cpu",),
    ),
    KernelFault(
        "trilinear repeats the first depth",
        ("upsample_trilinear3d",),
        _depth_for_height,
        AXES,
        ("trilinear, three axes",),
    ),
    KernelFault(
        "max_pool3d's gradient where windows overlap is one of them",
        ("max_pool3d_with_indices_backward",),
        _overlaps_lost,
        AXES,
        ("max_pool3d, overlapping",),
        like="MIOpen#1325",
    ),
    KernelFault(
        "a replicated corner gives no gradient",
        ("replication_pad3d_backward",),
        _corner_lost,
        AXES,
        ("replicated, three axes",),
    ),
    KernelFault(
        "the last group of conv1d gives no gradient",
        ("convolution_backward",),
        _last_group_lost,
        AXES,
        ("conv1d of groups",),
    ),
    KernelFault(
        "whole numbers are divided as floats",
        ("div.Tensor_mode",),
        _through_float,
        WHOLE,
        ("floor",),
    ),
    KernelFault(
        "whole numbers are added in float64",
        ("add.Tensor",),
        _added_in_double,
        WHOLE,
        ("add a large number",),
    ),
    KernelFault(
        "argmin of a block filled with nought",
        ("argmin", "argmin.out"),
        _padded_by_nought,
        KINDS,
        ("argmin",),
        like="FlagGems#6447",
    ),
    KernelFault(
        "beta of 0 times NaN",
        ("baddbmm", "baddbmm.out"),
        _beta_times,
        KINDS,
        ("beta of 0, baddbmm",),
    ),
    KernelFault(
        "nextafter in float32",
        ("nextafter",),
        _in_single,
        KINDS,
        ("bits of nextafter",),
        like="torch-xpu-ops#1169",
    ),
    KernelFault(
        "bernoulli_ throws each coin for two",
        ("bernoulli_.float",),
        _half_again,
        KINDS,
        ("bernoulli_ apart",),
    ),
    KernelFault(
        "an inverse transform works in its input",
        ("_fft_c2r",),
        _spoiled_input,
        KINDS,
        ("inputs afterwards",),
        like="pytorch#109448",
    ),
    KernelFault(
        "padding counts in the mean of a bag",
        ("_embedding_bag", "_embedding_bag_forward_only"),
        _padding_counts,
        OPTIONS,
        ("options of embedding_bag",),
    ),
    KernelFault(
        "elu in place has the gradient of alpha 1",
        ("elu_backward",),
        _unscaled_alpha,
        OPTIONS,
        ("options of elu",),
    ),
    KernelFault(
        "the last chunk of a list is not normed",
        ("_foreach_norm.Scalar",),
        _last_chunk,
        LISTS,
        ("foreach norms",),
    ),
    KernelFault(
        "fused SGD dampens its first step",
        ("_fused_sgd_",),
        _dampened_at_first,
        LISTS,
        ("every SGD",),
    ),
    KernelFault(
        "round gives nought without its sign",
        ("round", "round.out"),
        _without_sign,
        "NaN and infinity",
        ("signs of nought",),
    ),
    KernelFault(
        "sin gives nought without its sign",
        ("sin", "sin.out"),
        _without_sign,
        "NaN and infinity",
        ("signs of curves",),
    ),
    KernelFault(
        "cauchy_ has a width of 1",
        ("cauchy_",),
        _about_its_median,
        "random numbers",
        ("quartiles",),
    ),
    KernelFault(
        "numbers are added once",
        ("add.Tensor", "add_.Tensor", "add.out"),
        _alpha_dropped,
        OPTIONS,
        ("options of add of a number", "options of add_ of a number"),
    ),
    KernelFault(
        "topk in whatever order gives the first again and again",
        ("topk", "topk.values"),
        _in_no_order,
        OPTIONS,
        ("options of topk, in whatever order",),
    ),
    KernelFault(
        "gelu in place heeds no approximation",
        ("gelu_",),
        _exact_approximation,
        OPTIONS,
        ("options of gelu_",),
    ),
    KernelFault(
        "an LSTM forgets the state that it is given",
        ("mkldnn_rnn_layer",),
        _state_forgotten,
        "kept state",
        ("LSTM of one direction",),
        devices=("cpu",),
    ),
    KernelFault(
        "exactly nearest goes by sizes, whatever the factor",
        ("_upsample_nearest_exact2d", "_upsample_nearest_exact2d.out"),
        _by_sizes,
        OPTIONS,
        ("options of nearest-exact by 1.7",),
    ),
    KernelFault(
        "renorm in place leaves twice the norm",
        ("renorm_",),
        _norm_exceeded,
        OPTIONS,
        ("options of renorm_",),
    ),
    KernelFault(
        "logit in place clamps nothing",
        ("logit_",),
        _unlimited,
        OPTIONS,
        ("options of logit_",),
    ),
)
