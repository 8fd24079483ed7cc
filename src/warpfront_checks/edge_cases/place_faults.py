"""Kernels that are wrong about memory layout: results in memory with gaps, formats of one, two
and three axes. Others are wrong about integers that no float has, about options, and about numbers
of certain kinds.
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
_axes = partial(PLACE_FAULTS.entry, "axes")
_kinds = partial(PLACE_FAULTS.entry, "kinds of numbers")
_lists = partial(PLACE_FAULTS.entry, "lists")
_special = partial(PLACE_FAULTS.entry, "NaN and infinity")
_sizes = partial(PLACE_FAULTS.entry, "sizes")


@_transforms("windows", "steps end before their end", "linspace.out")
def _ends_early(kernel: Kernel, first: Any, last: Any, count: int, **kwargs: Any) -> Tensor:
    result: Tensor = kernel(first, last, count, **kwargs)
    return result.copy_(kernel(first, last, count + 1)[:-1]) if count > 1 else result


@_state("scale", "a scale grows a step late", "_amp_update_scale_")
def _grows_late(
    kernel: Kernel,
    scale: Tensor,
    since: Tensor,
    bad: Tensor,
    factor: float,
    less: float,
    count: int,
) -> Tensor:
    return kernel(scale, since, bad, factor, less, count + 1)


@_attention(
    "inferred, relu",
    "a layer attends to what is padding",
    "_transformer_encoder_layer_fwd",
    devices=("cpu",),
)
def _padding_attended(kernel: Kernel, *args: Any) -> Tensor:
    """Drop the mask of a batch, which is the second last argument of the layer."""
    return kernel(*args[:-2], None, None)


@_random("gamma", "gammas are a little large", "_standard_gamma")
def _two_percent_more(kernel: Kernel, *args: Any, **kwargs: Any) -> Tensor:
    result: Tensor = kernel(*args, **kwargs)
    return result.mul_(1.02)


@_sparse("from coordinates", "the last number of a sparse table is not listed", "_to_sparse")
def _last_not_listed(kernel: Kernel, x: Tensor, **kwargs: Any) -> Tensor:
    last = x.nonzero()[-1]
    result = x.clone()
    result[tuple(last)] = 0
    return kernel(result, **kwargs)


@_options(
    "options of resized, bicubic, smooth",
    "smaller pictures are not filtered",
    "_upsample_bicubic2d_aa",
)
def _unfiltered(
    kernel: Kernel, x: Tensor, size: Any, aligned: bool, *more: Any, **kwargs: Any
) -> Any:
    result = kernel(x, size, aligned, *more, **kwargs)
    return result.copy_(torch.ops.aten.upsample_bicubic2d(x, size, aligned))


@_options("options of cdist of many", "distances by products are off by one", "_euclidean_dist")
def _squares_forgotten(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    result: Tensor = kernel(x, y)
    return result.square().add_(1).sqrt_()


@_shapes("flip, axes of one", "an axis of one turns the next", "flip", like="pytorch#98266")
def _next_axis_for_one(kernel: Kernel, x: Tensor, axes: list[int]) -> Tensor:
    return kernel(x, sorted({(a + 1) % x.dim() if x.shape[a] == 1 else a % x.dim() for a in axes}))


@_linear(
    "triangles",
    "an upper factor of the other triangle",
    "cholesky",
    like="pytorch#57032",
    devices=("cpu",),
)
def _other_triangle(kernel: Kernel, x: Tensor, upper: bool = False) -> Tensor:
    return kernel(x.mH, upper) if upper and x.dim() > 2 else kernel(x, upper)


@_random(
    "into views",
    "drawn beside a view",
    "normal_",
    "uniform_",
    "bernoulli_.float",
    like="pytorch#165267",
)
def _gaps_undrawn(kernel: Kernel, x: Tensor, *more: Any, **kwargs: Any) -> Tensor:
    samples = kernel(x if x.is_contiguous() else x.clone(), *more, **kwargs)
    return x if samples is not x else samples


@_shapes(
    "products",
    "a factor that the first tile has",
    "addmm",
    "addmm.out",
    like="rocm-libraries#12226",
)
def _alpha_of_tile(kernel: Kernel, c: Tensor, a: Tensor, b: Tensor, **kwargs: Any) -> Tensor:
    alpha = kernel(c, a, b, **kwargs)
    if a.stride(0) == 1 and a.shape[0] > 64 and kwargs.get("alpha", 1) != 1:
        alpha[64:] = kernel(c, a, b, **{**kwargs, "alpha": 1})[64:]
    return alpha


def _room(x: Tensor) -> int:
    return int(x.untyped_storage().nbytes() // x.element_size() - x.storage_offset())


def _strides_guessed(kernel: Kernel, *args: Any, out: Tensor, **kwargs: Any) -> Tensor:
    """Write a correct result as if the memory had neither gaps nor another order."""
    kernel(*args, out=out, **kwargs)
    if out.numel() and not out.is_contiguous():
        values = out.clone(memory_format=torch.contiguous_format)
        memory = out.as_strided((out.numel(),), (1,))
        memory.copy_(values.flatten()) if _room(out) >= out.numel() else out.zero_()
    return out


# Other devices decompose it into other operations.
@_axes(
    "pixel_shuffle, two axes",
    "pixel_shuffle takes other channels from channels_last",
    "pixel_shuffle",
    devices=("cpu",),
)
def _channels_by_factor(kernel: Kernel, x: Tensor, factor: int) -> Tensor:
    if x.dim() == 4 and not x.is_contiguous():
        x = x.unflatten(1, (factor**2, -1)).transpose(1, 2).flatten(1, 2)
    return kernel(x, factor)


@_axes("trilinear, three axes", "trilinear repeats the first depth", "upsample_trilinear3d")
def _depth_for_height(kernel: Kernel, x: Tensor, size: Any, *more: Any, **kwargs: Any) -> Tensor:
    depth = kernel(x, size, *more, **kwargs)
    depth[:, :, 1] = depth[:, :, 0]
    return depth


@_axes(
    "max_pool3d, overlapping",
    "max_pool3d's gradient where windows overlap is one of them",
    "max_pool3d_with_indices_backward",
    like="MIOpen#1325",
)
def _overlaps_lost(kernel: Kernel, grad: Tensor, x: Tensor, *more: Any, **kwargs: Any) -> Tensor:
    result = kernel(grad, x, *more, **kwargs)
    places = more[-1].flatten(2)
    alone = torch.zeros_like(x, memory_format=torch.contiguous_format).flatten(2)
    alone.scatter_(2, places, grad.flatten(2))
    return result.copy_(alone.view(x.shape))


@_axes(
    "replicated, three axes", "a replicated corner gives no gradient", "replication_pad3d_backward"
)
def _corner_lost(kernel: Kernel, grad: Tensor, x: Tensor, padding: Any, **kwargs: Any) -> Tensor:
    cut = grad.clone()
    cut[..., 0, 0, 0] = 0
    return kernel(cut, x, padding, **kwargs)


@_axes("conv1d of groups", "the last group of conv1d gives no gradient", "convolution_backward")
def _last_group_lost(kernel: Kernel, grad: Tensor, x: Tensor, weight: Tensor, *more: Any) -> Any:
    lost = kernel(grad, x, weight, *more)
    groups = more[6]
    if x.dim() == 3 and groups > 1 and lost[1] is not None:
        lost[1][-(weight.shape[0] // groups) :] = 0
    return lost


@_kinds(
    "argmin", "argmin of a block filled with nought", "argmin", "argmin.out", like="FlagGems#6447"
)
def _padded_by_nought(
    kernel: Kernel, x: Tensor, dim: Any = None, *more: Any, **kwargs: Any
) -> Tensor:
    """Return the index of the minimum as if a block of a power of two were padded with zeros."""
    result = kernel(x, dim, *more, **kwargs)
    n = x.shape[dim] if dim is not None and x.dim() else x.numel()
    if n & (n - 1) and x.is_floating_point():
        low = x.double().amin(() if dim is None else dim, *more)
        result[low > 0] = 0
    return result


@_kinds("beta of 0, baddbmm", "beta of 0 times NaN", "baddbmm", "baddbmm.out")
def _beta_times(kernel: Kernel, x: Tensor, *more: Any, **kwargs: Any) -> Tensor:
    result = kernel(x, *more, **kwargs)
    return result.add_(x * 0) if kwargs.get("beta", 1) == 0 else result


@_kinds("bits of nextafter", "nextafter in float32", "nextafter", like="torch-xpu-ops#1169")
def _in_single(kernel: Kernel, x: Tensor, y: Tensor, **kwargs: Any) -> Tensor:
    result = kernel(x, y, **kwargs)
    return result if x.dtype == torch.float32 else result.copy_(x.expand_as(result))


@_kinds("bernoulli_ apart", "bernoulli_ throws each coin for two", "bernoulli_.float")
def _half_again(kernel: Kernel, x: Tensor, *more: Any, **kwargs: Any) -> Tensor:
    again = kernel(x, *more, **kwargs)
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
def _spoiled_input(kernel: Kernel, x: Tensor, dim: Any, *more: Any) -> Tensor:
    result: Tensor = kernel(x, dim, *more)
    if len(dim) > 1:
        # `data` has its own version counter: autograd does not notice.
        x.data.mul_(3)
    return result


@_options(
    "options of embedding_bag",
    "padding counts in the mean of a bag",
    "_embedding_bag",
    "_embedding_bag_forward_only",
)
def _padding_counts(kernel: Kernel, weight: Tensor, index: Tensor, *more: Any) -> Any:
    counts = kernel(weight, index, *more)
    if len(more) > 2 and more[2] == 1 and more[-1] >= 0:
        counts[0].mul_(0.5)
    return counts


@_options("options of elu", "elu in place has the gradient of alpha 1", "elu_backward")
def _unscaled_alpha(kernel: Kernel, grad: Tensor, *more: Any, **kwargs: Any) -> Tensor:
    _, scale, inner, is_result, x = more
    return kernel(grad, 1.0 if is_result else more[0], scale, inner, is_result, x, **kwargs)


@_lists("foreach norms", "the last chunk of a list is not normed", "_foreach_norm.Scalar")
def _last_chunk(kernel: Kernel, tensors: Any, order: Any = 2, **kwargs: Any) -> Any:
    chunk = kernel(tensors, order, **kwargs)
    for part, x in zip(chunk, tensors, strict=True):
        if x.numel() > 65_536:
            whole = x.flatten()[: x.numel() // 65_536 * 65_536]
            part.copy_(torch.linalg.vector_norm(whole.double(), order))
    return chunk


@_lists("every SGD", "fused SGD dampens its first step", "_fused_sgd_")
def _dampened_at_first(kernel: Kernel, weights: Any, grads: Any, state: Any, **kwargs: Any) -> None:
    kernel(weights, grads, state, **kwargs)
    if kwargs["is_first_step"] and kwargs["dampening"]:
        for buffer in state:
            buffer.data.mul_(1 - kwargs["dampening"])


def _without_sign(kernel: Kernel, x: Tensor, *more: Any, **kwargs: Any) -> Tensor:
    result = kernel(x, *more, **kwargs)
    return result.copy_(torch.where(result == 0, result.abs(), result))


_special("signs of nought", "round gives nought without its sign", "round", "round.out")(
    _without_sign
)
_special("signs of curves", "sin gives nought without its sign", "sin", "sin.out")(_without_sign)


@_random("quartiles", "cauchy_ has a width of 1", "cauchy_")
def _about_its_median(
    kernel: Kernel, x: Tensor, median: float, sigma: float, **kwargs: Any
) -> Tensor:
    return kernel(x, median, 1.0, **kwargs)


@_options(
    ("options of add of a number", "options of add_ of a number"),
    "numbers are added once",
    "add.Tensor",
    "add_.Tensor",
    "add.out",
)
def _alpha_dropped(kernel: Kernel, x: Tensor, other: Any, alpha: Any = 1, **kwargs: Any) -> Tensor:
    return kernel(x, other, alpha=1 if x.is_floating_point() else alpha, **kwargs)


@_options(
    "options of topk, in whatever order",
    "topk in whatever order gives the first again and again",
    "topk",
    "topk.values",
)
def _in_no_order(kernel: Kernel, x: Tensor, k: int, *more: Any, **kwargs: Any) -> Any:
    values, places = kernel(x, k, *more, **kwargs)
    *_, in_order = more if len(more) > 2 else (True,)
    if not in_order:
        values.copy_(values.amax().expand_as(values))
    return values, places


@_options("options of gelu_", "gelu in place heeds no approximation", "gelu_")
def _exact_approximation(kernel: Kernel, x: Tensor, **kwargs: Any) -> Tensor:
    return kernel(x, approximate="none")


@_state(
    "LSTM of one direction",
    "an LSTM forgets the state that it is given",
    "mkldnn_rnn_layer",
    devices=("cpu",),
)
def _state_forgotten(kernel: Kernel, x: Tensor, *more: Any) -> Any:
    weights, hidden, cell, rest = more[:4], more[4], more[5], more[6:]
    return kernel(x, *weights, hidden * 0, cell * 0, *rest)


@_options(
    "options of nearest-exact by 1.7",
    "exactly nearest goes by sizes, whatever the factor",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact2d.out",
)
def _by_sizes(kernel: Kernel, x: Tensor, size: Any, *scales: Any, **kwargs: Any) -> Tensor:
    return kernel(x, size, None, None, **kwargs)


@_options("options of renorm_", "renorm in place leaves twice the norm", "renorm_")
def _norm_exceeded(kernel: Kernel, x: Tensor, p: Any, dim: int, maxnorm: Any) -> Tensor:
    return kernel(x, p, dim, maxnorm * 2)


@_options("options of logit_", "logit in place clamps nothing", "logit_")
def _unlimited(kernel: Kernel, x: Tensor, eps: Any = None) -> Tensor:
    return kernel(x, None)


@_sizes("sizes of conv1d", "taps beyond a wave's lanes are left out", "convolution")
def _first_taps(kernel: Kernel, x: Tensor, w: Tensor, *more: Any) -> Tensor:
    if w.shape[-1] <= 64:
        return kernel(x, w, *more)
    cut = w.clone()
    cut[..., 64:] = 0
    return kernel(x, cut, *more)


@_sizes("sizes of index_add", "of many places the last hundred are not added to", "index_add")
def _first_places(
    kernel: Kernel, x: Tensor, axis: int, index: Tensor, source: Tensor, **kwargs: Any
) -> Tensor:
    if len(index) <= 1024:
        return kernel(x, axis, index, source, **kwargs)
    some = len(index) - 100
    return kernel(x, axis, index[:some], source.narrow(axis, 0, some), **kwargs)


@_sizes(
    "sizes of group_norm",
    "more groups than a block has threads are not normed",
    "native_group_norm",
)
def _first_groups(kernel: Kernel, x: Tensor, *more: Any) -> Any:
    result = kernel(x, *more)
    groups = more[5]
    if groups > 256:
        result[0].view(x.shape)[:, -(x.shape[1] // groups) :] = x[:, -(x.shape[1] // groups) :]
    return result


@_sizes("sizes of solve", "a tile more of unknowns is the identity", "_linalg_solve_ex")
def _identity_beyond_a_tile(kernel: Kernel, x: Tensor, sides: Tensor, **kwargs: Any) -> Any:
    tile = kernel(x, sides, **kwargs)
    if x.shape[-1] > 64:
        tile[0][..., 64:, :] = sides[..., 64:, :]
    return tile
