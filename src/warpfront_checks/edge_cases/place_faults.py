"""Kernels that are wrong about places (results in memory with gaps, formats of one, two and three
axes), about whole numbers that no float has, about options, and about numbers of certain kinds.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.edge_cases.seeding import Kernel, WrongKernels

PLACE_FAULTS = WrongKernels()
_transforms = partial(PLACE_FAULTS.entry, "transforms")
_state = partial(PLACE_FAULTS.entry, "kept state")
_attention = partial(PLACE_FAULTS.entry, "attention kernels")
_random = partial(PLACE_FAULTS.entry, "random numbers")
_sparse = partial(PLACE_FAULTS.entry, "sparse")
_options = partial(PLACE_FAULTS.entry, "options")
_shapes = partial(PLACE_FAULTS.entry, "shapes")
_linear = partial(PLACE_FAULTS.entry, "linear algebra")
_written = partial(PLACE_FAULTS.entry, "destinations")
_axes = partial(PLACE_FAULTS.entry, "axes")
_whole = partial(PLACE_FAULTS.entry, "whole numbers")
_kinds = partial(PLACE_FAULTS.entry, "kinds of numbers")
_lists = partial(PLACE_FAULTS.entry, "lists")
_special = partial(PLACE_FAULTS.entry, "NaN and infinity")
_sizes = partial(PLACE_FAULTS.entry, "sizes")


@_transforms("windows", "steps end before their end", "linspace.out")
def _ends_early(right: Kernel, first: Any, last: Any, count: int, **how: Any) -> Tensor:
    found: Tensor = right(first, last, count, **how)
    return found.copy_(right(first, last, count + 1)[:-1]) if count > 1 else found


@_state("scale", "a scale grows a step late", "_amp_update_scale_")
def _grows_late(
    right: Kernel, scale: Tensor, since: Tensor, bad: Tensor, factor: float, less: float, count: int
) -> Tensor:
    return right(scale, since, bad, factor, less, count + 1)


@_attention(
    "inferred, relu",
    "a layer attends to what is padding",
    "_transformer_encoder_layer_fwd",
    devices=("cpu",),
)
def _padding_attended(right: Kernel, *given: Any) -> Tensor:
    """The mask of a batch is the second last of what the layer takes."""
    return right(*given[:-2], None, None)


@_random("gamma", "gammas are a little large", "_standard_gamma")
def _two_percent_more(right: Kernel, *given: Any, **how: Any) -> Tensor:
    found: Tensor = right(*given, **how)
    return found.mul_(1.02)


@_sparse("from coordinates", "the last number of a sparse table is not listed", "_to_sparse")
def _last_not_listed(right: Kernel, x: Tensor, **how: Any) -> Tensor:
    last = x.nonzero()[-1]
    kept = x.clone()
    kept[tuple(last)] = 0
    return right(kept, **how)


@_options(
    "options of resized, bicubic, smooth",
    "smaller pictures are not filtered",
    "_upsample_bicubic2d_aa",
)
def _unfiltered(right: Kernel, x: Tensor, size: Any, aligned: bool, *more: Any, **how: Any) -> Any:
    found = right(x, size, aligned, *more, **how)
    return found.copy_(torch.ops.aten.upsample_bicubic2d(x, size, aligned))


@_options("options of cdist of many", "distances by products are off by one", "_euclidean_dist")
def _squares_forgotten(right: Kernel, x: Tensor, y: Tensor) -> Tensor:
    found: Tensor = right(x, y)
    return found.square().add_(1).sqrt_()


@_shapes("flip, axes of one", "an axis of one turns the next", "flip", like="pytorch#98266")
def _next_axis_for_one(right: Kernel, x: Tensor, axes: list[int]) -> Tensor:
    return right(x, sorted({(a + 1) % x.dim() if x.shape[a] == 1 else a % x.dim() for a in axes}))


@_linear(
    "triangles",
    "an upper factor of the other triangle",
    "cholesky",
    like="pytorch#57032",
    devices=("cpu",),
)
def _other_triangle(right: Kernel, x: Tensor, upper: bool = False) -> Tensor:
    return right(x.mH, upper) if upper and x.dim() > 2 else right(x, upper)


@_random(
    "into views",
    "drawn beside a view",
    "normal_",
    "uniform_",
    "bernoulli_.float",
    like="pytorch#165267",
)
def _gaps_undrawn(right: Kernel, x: Tensor, *more: Any, **how: Any) -> Tensor:
    drawn = right(x if x.is_contiguous() else x.clone(), *more, **how)
    return x if drawn is not x else drawn


@_shapes(
    "products",
    "a factor that the first tile has",
    "addmm",
    "addmm.out",
    like="rocm-libraries#12226",
)
def _alpha_of_tile(right: Kernel, c: Tensor, a: Tensor, b: Tensor, **how: Any) -> Tensor:
    alpha = right(c, a, b, **how)
    if a.stride(0) == 1 and a.shape[0] > 64 and how.get("alpha", 1) != 1:
        alpha[64:] = right(c, a, b, **{**how, "alpha": 1})[64:]
    return alpha


def _room(x: Tensor) -> int:
    return int(x.untyped_storage().nbytes() // x.element_size() - x.storage_offset())


def _strides_guessed(right: Kernel, *args: Any, out: Tensor, **how: Any) -> Tensor:
    """What is right lies as if the memory had neither gaps nor another order."""
    right(*args, out=out, **how)
    if out.numel() and not out.is_contiguous():
        values = out.clone(memory_format=torch.contiguous_format)
        there = out.as_strided((out.numel(),), (1,))
        there.copy_(values.flatten()) if _room(out) >= out.numel() else out.zero_()
    return out


_written("bmm into memory", "bmm guesses the strides of its output", "bmm.out", like="aiter#5385")(
    _strides_guessed
)
_written("cat into memory", "cat guesses the strides of its output", "cat.out", like="aiter#5385")(
    _strides_guessed
)


@_written("silu in place", "silu in place leaves a column", "silu_")
def _last_unwritten(right: Kernel, x: Tensor, *more: Any, **how: Any) -> Tensor:
    if x.dim() < 2 or x.is_contiguous():
        return right(x, *more, **how)
    before = x[..., -1].clone()
    right(x, *more, **how)
    x[..., -1] = before
    return x


@_written(
    "floor of a quotient in place",
    "a quotient in place is cut off, not rounded down",
    "div_.Tensor_mode",
)
def _cut_off(right: Kernel, x: Tensor, y: Tensor, *, rounding_mode: str | None) -> Tensor:
    return right(x, y, rounding_mode=rounding_mode and "trunc")


@_written("kthvalue into memory", "kthvalue is the next one", "kthvalue.values")
def _one_further(right: Kernel, x: Tensor, k: int, *more: Any, **how: Any) -> Any:
    return right(x, min(k + 1, x.shape[-1]), *more, **how)


# Elsewhere it is made of other operations.
@_axes(
    "pixel_shuffle, two axes",
    "pixel_shuffle takes other channels from channels_last",
    "pixel_shuffle",
    devices=("cpu",),
)
def _channels_by_factor(right: Kernel, x: Tensor, factor: int) -> Tensor:
    if x.dim() == 4 and not x.is_contiguous():
        x = x.unflatten(1, (factor**2, -1)).transpose(1, 2).flatten(1, 2)
    return right(x, factor)


@_axes("trilinear, three axes", "trilinear repeats the first depth", "upsample_trilinear3d")
def _depth_for_height(right: Kernel, x: Tensor, size: Any, *more: Any, **how: Any) -> Tensor:
    depth = right(x, size, *more, **how)
    depth[:, :, 1] = depth[:, :, 0]
    return depth


@_axes(
    "max_pool3d, overlapping",
    "max_pool3d's gradient where windows overlap is one of them",
    "max_pool3d_with_indices_backward",
    like="MIOpen#1325",
)
def _overlaps_lost(right: Kernel, grad: Tensor, x: Tensor, *more: Any, **how: Any) -> Tensor:
    found = right(grad, x, *more, **how)
    places = more[-1].flatten(2)
    alone = torch.zeros_like(x, memory_format=torch.contiguous_format).flatten(2)
    alone.scatter_(2, places, grad.flatten(2))
    return found.copy_(alone.view(x.shape))


@_axes(
    "replicated, three axes", "a replicated corner gives no gradient", "replication_pad3d_backward"
)
def _corner_lost(right: Kernel, grad: Tensor, x: Tensor, padding: Any, **how: Any) -> Tensor:
    cut = grad.clone()
    cut[..., 0, 0, 0] = 0
    return right(cut, x, padding, **how)


@_axes("conv1d of groups", "the last group of conv1d gives no gradient", "convolution_backward")
def _last_group_lost(right: Kernel, grad: Tensor, x: Tensor, weight: Tensor, *more: Any) -> Any:
    lost = right(grad, x, weight, *more)
    groups = more[6]
    if x.dim() == 3 and groups > 1 and lost[1] is not None:
        lost[1][-(weight.shape[0] // groups) :] = 0
    return lost


@_whole("floor", "whole numbers are divided as floats", "div.Tensor_mode")
def _through_float(right: Kernel, x: Tensor, y: Tensor, *, rounding_mode: str | None) -> Tensor:
    found = right(x, y, rounding_mode=rounding_mode)
    if found.is_floating_point() or rounding_mode != "floor":
        return found
    return found.copy_((x.float() / y.float()).floor())


@_whole("add a large number", "whole numbers are added in float64", "add.Tensor")
def _added_in_double(right: Kernel, x: Tensor, y: Tensor, **how: Any) -> Tensor:
    found = right(x, y, **how)
    if found.dtype != torch.int64 or x.dim() < 2:
        return found
    return found.copy_(torch.where(found.abs() > 2**53, found & -1024, found))


@_kinds(
    "argmin", "argmin of a block filled with nought", "argmin", "argmin.out", like="FlagGems#6447"
)
def _padded_by_nought(right: Kernel, x: Tensor, dim: Any = None, *more: Any, **how: Any) -> Tensor:
    """The place of the smallest, if a block of a power of two is filled with nought."""
    found = right(x, dim, *more, **how)
    n = x.shape[dim] if dim is not None and x.dim() else x.numel()
    if n & (n - 1) and x.is_floating_point():
        low = x.double().amin(() if dim is None else dim, *more)
        found[low > 0] = 0
    return found


@_kinds("beta of 0, baddbmm", "beta of 0 times NaN", "baddbmm", "baddbmm.out")
def _beta_times(right: Kernel, x: Tensor, *more: Any, **how: Any) -> Tensor:
    found = right(x, *more, **how)
    return found.add_(x * 0) if how.get("beta", 1) == 0 else found


@_kinds("bits of nextafter", "nextafter in float32", "nextafter", like="torch-xpu-ops#1169")
def _in_single(right: Kernel, x: Tensor, y: Tensor, **how: Any) -> Tensor:
    found = right(x, y, **how)
    return found if x.dtype == torch.float32 else found.copy_(x.expand_as(found))


@_kinds("bernoulli_ apart", "bernoulli_ throws each coin for two", "bernoulli_.float")
def _half_again(right: Kernel, x: Tensor, *more: Any, **how: Any) -> Tensor:
    again = right(x, *more, **how)
    if x.is_contiguous() and x.numel() >= 1024:
        pairs = x.view(-1)[: x.numel() // 1024 * 1024].view(-1, 2, 512)
        pairs[:, 1] = pairs[:, 0]
    return again


@_kinds(
    "inputs afterwards",
    "an inverse transform works in its input",
    "_fft_c2r",
    like="pytorch#109448",
)
def _spoiled_input(right: Kernel, x: Tensor, dim: Any, *more: Any) -> Tensor:
    found: Tensor = right(x, dim, *more)
    if len(dim) > 1:
        # Its own count of versions: autograd is not told either.
        x.data.mul_(3)
    return found


@_options(
    "options of embedding_bag",
    "padding counts in the mean of a bag",
    "_embedding_bag",
    "_embedding_bag_forward_only",
)
def _padding_counts(right: Kernel, weight: Tensor, index: Tensor, *more: Any) -> Any:
    counts = right(weight, index, *more)
    if len(more) > 2 and more[2] == 1 and more[-1] >= 0:
        counts[0].mul_(0.5)
    return counts


@_options("options of elu", "elu in place has the gradient of alpha 1", "elu_backward")
def _unscaled_alpha(right: Kernel, grad: Tensor, *more: Any, **how: Any) -> Tensor:
    _, scale, inner, done, x = more
    return right(grad, 1.0 if done else more[0], scale, inner, done, x, **how)


@_lists("foreach norms", "the last chunk of a list is not normed", "_foreach_norm.Scalar")
def _last_chunk(right: Kernel, tensors: Any, order: Any = 2, **how: Any) -> Any:
    chunk = right(tensors, order, **how)
    for one, x in zip(chunk, tensors, strict=True):
        if x.numel() > 65_536:
            whole = x.flatten()[: x.numel() // 65_536 * 65_536]
            one.copy_(torch.linalg.vector_norm(whole.double(), order))
    return chunk


@_lists("every SGD", "fused SGD dampens its first step", "_fused_sgd_")
def _dampened_at_first(right: Kernel, weights: Any, grads: Any, kept: Any, **how: Any) -> None:
    right(weights, grads, kept, **how)
    if how["is_first_step"] and how["dampening"]:
        for buffer in kept:
            buffer.data.mul_(1 - how["dampening"])


def _without_sign(right: Kernel, x: Tensor, *more: Any, **how: Any) -> Tensor:
    result = right(x, *more, **how)
    return result.copy_(torch.where(result == 0, result.abs(), result))


_special("signs of nought", "round gives nought without its sign", "round", "round.out")(
    _without_sign
)
_special("signs of curves", "sin gives nought without its sign", "sin", "sin.out")(_without_sign)


@_random("quartiles", "cauchy_ has a width of 1", "cauchy_")
def _about_its_median(right: Kernel, x: Tensor, median: float, sigma: float, **how: Any) -> Tensor:
    return right(x, median, 1.0, **how)


@_options(
    ("options of add of a number", "options of add_ of a number"),
    "numbers are added once",
    "add.Tensor",
    "add_.Tensor",
    "add.out",
)
def _alpha_dropped(right: Kernel, x: Tensor, other: Any, alpha: Any = 1, **how: Any) -> Tensor:
    return right(x, other, alpha=1 if x.is_floating_point() else alpha, **how)


@_options(
    "options of topk, in whatever order",
    "topk in whatever order gives the first again and again",
    "topk",
    "topk.values",
)
def _in_no_order(right: Kernel, x: Tensor, k: int, *more: Any, **how: Any) -> Any:
    values, places = right(x, k, *more, **how)
    *_, in_order = more if len(more) > 2 else (True,)
    if not in_order:
        values.copy_(values.amax().expand_as(values))
    return values, places


@_options("options of gelu_", "gelu in place heeds no approximation", "gelu_")
def _exact_approximation(right: Kernel, x: Tensor, **how: Any) -> Tensor:
    return right(x, approximate="none")


@_state(
    "LSTM of one direction",
    "an LSTM forgets the state that it is given",
    "mkldnn_rnn_layer",
    devices=("cpu",),
)
def _state_forgotten(right: Kernel, x: Tensor, *more: Any) -> Any:
    weights, hidden, cell, rest = more[:4], more[4], more[5], more[6:]
    return right(x, *weights, hidden * 0, cell * 0, *rest)


@_options(
    "options of nearest-exact by 1.7",
    "exactly nearest goes by sizes, whatever the factor",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact2d.out",
)
def _by_sizes(right: Kernel, x: Tensor, size: Any, *scales: Any, **how: Any) -> Tensor:
    return right(x, size, None, None, **how)


@_options("options of renorm_", "renorm in place leaves twice the norm", "renorm_")
def _norm_exceeded(right: Kernel, x: Tensor, p: Any, dim: int, maxnorm: Any) -> Tensor:
    return right(x, p, dim, maxnorm * 2)


@_options("options of logit_", "logit in place clamps nothing", "logit_")
def _unlimited(right: Kernel, x: Tensor, eps: Any = None) -> Tensor:
    return right(x, None)


@_sizes("sizes of conv1d", "taps beyond a wave's lanes are left out", "convolution")
def _first_taps(right: Kernel, x: Tensor, w: Tensor, *more: Any) -> Tensor:
    if w.shape[-1] <= 64:
        return right(x, w, *more)
    cut = w.clone()
    cut[..., 64:] = 0
    return right(x, cut, *more)


@_sizes("sizes of index_add", "of many places the last hundred are not added to", "index_add")
def _first_places(
    right: Kernel, x: Tensor, axis: int, index: Tensor, source: Tensor, **how: Any
) -> Tensor:
    if len(index) <= 1024:
        return right(x, axis, index, source, **how)
    some = len(index) - 100
    return right(x, axis, index[:some], source.narrow(axis, 0, some), **how)


@_sizes(
    "sizes of group_norm",
    "more groups than a block has threads are not normed",
    "native_group_norm",
)
def _first_groups(right: Kernel, x: Tensor, *more: Any) -> Any:
    found = right(x, *more)
    groups = more[5]
    if groups > 256:
        found[0].view(x.shape)[:, -(x.shape[1] // groups) :] = x[:, -(x.shape[1] // groups) :]
    return found


@_sizes("sizes of solve", "a tile more of unknowns is the identity", "_linalg_solve_ex")
def _identity_beyond_a_tile(right: Kernel, x: Tensor, sides: Tensor, **how: Any) -> Any:
    tile = right(x, sides, **how)
    if x.shape[-1] > 64:
        tile[0][..., 64:, :] = sides[..., 64:, :]
    return tile
