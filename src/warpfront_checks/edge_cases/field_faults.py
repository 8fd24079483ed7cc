"""Defects of public trackers, each as a kernel with the same symptom: silent wrong results of
PyTorch and ROCm, put under torch's dispatcher.

A thread seldom names the line of a kernel that was wrong. A kernel here repeats its reporter's
symptom: the same operation, on the same kind of argument, wrong in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.edge_cases.seeding import Kernel, WrongKernels

ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)
ATTENTION_BACKWARD = tuple(f"{name}_backward" for name in ATTENTION)
# Odd ones were for development, even ones for the test: see docs/hazards.md.
FIELD_FAULTS = WrongKernels()
_shapes = partial(FIELD_FAULTS.entry, "shapes")
_attention = partial(FIELD_FAULTS.entry, "attention kernels")
_formats = partial(FIELD_FAULTS.entry, "memory formats")
_linear = partial(FIELD_FAULTS.entry, "linear algebra")
_vast = partial(FIELD_FAULTS.entry, "more than 2^31")
_long = partial(FIELD_FAULTS.entry, "long")
_transforms = partial(FIELD_FAULTS.entry, "transforms")
_special = partial(FIELD_FAULTS.entry, "NaN and infinity")
_far = partial(FIELD_FAULTS.entry, "far out")
_state = partial(FIELD_FAULTS.entry, "kept state")
_random = partial(FIELD_FAULTS.entry, "random numbers")
_targets = partial(FIELD_FAULTS.entry, "targets")
_complex = partial(FIELD_FAULTS.entry, "complex")


@_shapes("products", "products of 4 by 4 are 0", "bmm", like="pytorch#65416")
def _zero_if_tiny(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    result = kernel(a, b)
    return result.zero_() if max(*a.shape[-2:], *b.shape[-2:]) <= 4 else result


@_shapes("products", "a product of two single numbers is the first", "mm", like="pytorch#57919")
def _first_factor_if_single(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    return a.clone() if a.numel() == b.numel() == 1 else kernel(a, b)


@_shapes("windows", "convolution with windows of 16", "convolution", like="pytorch#102968")
def _wide_window(kernel: Kernel, x: Tensor, weight: Tensor, *rest: Any, **kwargs: Any) -> Tensor:
    result = kernel(x, weight, *rest, **kwargs)
    return result * 1.5 if weight.dim() == 4 and weight.shape[-1] >= 16 else result


def _extent(x: Tensor) -> int:
    steps = zip(x.shape, x.stride(), strict=True)
    return 1 + int(sum((size - 1) * step for size, step in steps))


def _as_if_whole(x: Tensor) -> Tensor:
    """Return the numbers that a kernel reads if it assumes that x is contiguous."""
    flat = x.as_strided((_extent(x),), (1,), x.storage_offset())
    size = x.numel()
    return flat.repeat(-(-size // max(1, flat.numel())))[:size].reshape(x.shape)


@_shapes("repeated operands", "an expanded operand read as contiguous", "mm", like="pytorch#30303")
def _expanded_read_as_whole(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    spread = [
        _as_if_whole(x)
        if any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True))
        else x
        for x in (a, b)
    ]
    return kernel(*spread)


@_attention(
    "plain",
    "attention's gradient read as contiguous",
    *ATTENTION_BACKWARD,
    like="flash-attention#355",
)
def _gradient_read_as_whole(kernel: Kernel, grad: Tensor, *rest: Any, **kwargs: Any) -> Any:
    return kernel(grad if grad.is_contiguous() else _as_if_whole(grad), *rest, **kwargs)


@_shapes(
    "reductions", "the sum of a few leaves the last", "sum.dim_IntList", "sum", like="pytorch#94891"
)
def _last_of_few(kernel: Kernel, x: Tensor, *rest: Any, **kwargs: Any) -> Tensor:
    if 1 < x.numel() <= 32 and x.dim() == 2:
        x = x.clone()
        x[:, -1] = 0
    return kernel(x, *rest, **kwargs)


@_shapes("windows", "a weight's gradient with strides", "convolution_backward", like="MIOpen#97")
def _strided_weight_gradient(
    kernel: Kernel, grad: Tensor, x: Tensor, weight: Tensor, sizes: Any, stride: Any, *rest: Any
) -> Any:
    gradient = kernel(grad, x, weight, sizes, stride, *rest)
    if gradient[1] is not None and max(stride) > 1:
        lost = grad.clone()
        lost[..., -1] = 0
        return gradient[0], kernel(lost, x, weight, sizes, stride, *rest)[1], gradient[2]
    return gradient


@_formats(
    "convolution 17 to 9, kernel 1",
    "1 by 1 convolution of odd places",
    "convolution",
    like="MIOpen#988",
)
def _odd_places(kernel: Kernel, x: Tensor, weight: Tensor, *rest: Any, **kwargs: Any) -> Tensor:
    places = kernel(x, weight, *rest, **kwargs)
    odd = places.dim() == 4 and places.shape[-1] * places.shape[-2] % 2 == 1
    if odd and weight.shape[-1] == weight.shape[-2] == 1 and places.shape[-1] > 1:
        places[..., -1, -1] = 0
    return places


@_shapes("windows", "dilated convolution in 16 bits", "convolution", like="MIOpen#1189")
def _dilated_half(kernel: Kernel, x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    _bias, _stride, _padding, dilation, *_ = rest
    if max(dilation) > 1 and x.element_size() == 2 and weight.shape[1] > 1:
        weight = weight.clone()
        weight[:, -1] = 0
    return kernel(x, weight, *rest)


@_shapes("windows", "columns of many channels", "convolution", like="rocm-libraries#3339")
def _many_columns(kernel: Kernel, x: Tensor, weight: Tensor, *rest: Any, **kwargs: Any) -> Tensor:
    if weight.dim() == 4 and weight.shape[1] >= 8 and weight.shape[-1] >= 3:
        weight = weight.roll(1, 1)
    return kernel(x, weight, *rest, **kwargs)


def _mask_changed(change: Callable[[Tensor, Tensor], Tensor]) -> Kernel:
    """Return attention with a modified mask: `change` gets the queries and the mask."""

    def wrong(kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **kwargs: Any) -> Any:
        if isinstance(kwargs.get("attn_mask"), Tensor):
            kwargs["attn_mask"] = change(q, kwargs["attn_mask"])
        elif rest and isinstance(rest[0], Tensor):
            rest = (change(q, rest[0]), *rest[1:])
        return kernel(q, k, v, *rest, **kwargs)

    return wrong


@_attention("many keys, mask", "a mask of long sequences", *ATTENTION, like="pytorch#162588")
@_mask_changed
def _open_beyond(q: Tensor, mask: Tensor) -> Tensor:
    opened = mask.clone()
    opened[..., 1024:] = 0
    return opened


@_attention("mask", "a mask in 16 bits", *ATTENTION, like="pytorch#108503")
@_mask_changed
def _sees_its_neighbour(q: Tensor, mask: Tensor) -> Tensor:
    if q.element_size() > 2 or mask.shape[-1] < 2:
        return mask
    return torch.maximum(mask, mask.roll(1, -1))


@_attention("mask", "a mask passed over", *ATTENTION, like="pytorch#107884")
@_mask_changed
def _no_mask(q: Tensor, mask: Tensor) -> Tensor:
    return torch.zeros_like(mask)


@_linear(
    "positive systems",
    "cholesky_solve by the first of a batch",
    "_cholesky_solve_helper",
    like="pytorch#66072",
)
def _first_factor_of_batch(kernel: Kernel, b: Tensor, a: Tensor, upper: bool) -> Tensor:
    if a.dim() > 2 and a.shape[0] > 1:
        a = a[:1].expand_as(a).contiguous()
    return kernel(b, a, upper)


@_linear("systems", "the last inverse of a batch", "linalg_inv_ex", like="pytorch#86465")
def _last_inverse(kernel: Kernel, a: Tensor, **kwargs: Any) -> Any:
    inverse, info = kernel(a, **kwargs)
    if a.dim() > 2 and a.shape[0] > 1:
        inverse[-1] = inverse[0]
    return inverse, info


@_linear(
    "complex positive systems",
    "eigenvectors of complex batches",
    "_linalg_eigh",
    like="pytorch#192483",
)
def _half_of_vectors(kernel: Kernel, a: Tensor, *rest: Any, **kwargs: Any) -> Any:
    values, vectors = kernel(a, *rest, **kwargs)
    if a.is_complex() and a.dim() > 2 and a.shape[0] > 1 and a.shape[-1] > 16:
        vectors[a.shape[0] // 2 :, :, 0] = vectors[a.shape[0] // 2 :, :, 1]
    return values, vectors


@_formats(
    "element where", "where reads its condition as contiguous", "where.self", like="pytorch#150967"
)
def _condition_read_as_whole(kernel: Kernel, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if not condition.is_contiguous():
        condition = _as_if_whole(condition)
    return kernel(condition, a, b)


@_formats("products", "a strided weight read as contiguous", "mm", like="pytorch#162730")
def _second_read_as_whole(
    kernel: Kernel, a: Tensor, b: Tensor, *rest: Any, **kwargs: Any
) -> Tensor:
    if b.dim() == 2 and not b.is_contiguous() and not b.mT.is_contiguous():
        b = _as_if_whole(b.mT).mT
    return kernel(a, b, *rest, **kwargs)


@_formats(
    "convolution 3 to 5",
    "convolution reads its weight as contiguous",
    "convolution",
    like="pytorch#192212",
)
def _weight_read_as_whole(
    kernel: Kernel, x: Tensor, weight: Tensor, *rest: Any, **kwargs: Any
) -> Tensor:
    last = weight.dim() == 4 and weight.is_contiguous(memory_format=torch.channels_last)
    if not weight.is_contiguous() and not last:
        weight = _as_if_whole(weight)
    return kernel(x, weight, *rest, **kwargs)


def _both_read_as_whole(kernel: Kernel, a: Tensor, b: Tensor, *rest: Any) -> Tensor:
    read = [
        _as_if_whole(x) if isinstance(x, Tensor) and not x.is_contiguous() else x for x in (a, b)
    ]
    return kernel(*read, *rest)


_targets("distances", "mse_loss of strided numbers", "mse_loss", like="pytorch#124621")(
    _both_read_as_whole
)


@_vast(
    "pictures",
    "nearest beyond 2^31",
    "upsample_nearest2d",
    like="pytorch#141831",
    devices=("cuda",),
)
def _beyond_32_bits(kernel: Kernel, x: Tensor, *rest: Any) -> Tensor:
    bits = kernel(x, *rest)
    if bits.numel() > 2**31:
        bits.view(-1)[2**31 :] = 0
    return bits


@_formats(
    "bicubic to the same size",
    "bicubic to the same size leaves all but the first",
    "upsample_bicubic2d",
    like="pytorch#49159",
)
def _first_sample_if_same_size(kernel: Kernel, x: Tensor, size: Any, *rest: Any) -> Tensor:
    result = kernel(x, size, *rest)
    if tuple(size) == tuple(x.shape[-2:]):
        result[1:] = 0
    return result


@_formats(
    "looks, border",
    "a grid's gradient at the edge",
    "grid_sampler_2d_backward",
    like="pytorch#23925",
)
def _edge_of_grid(
    kernel: Kernel, grad: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, *rest: Any
) -> Any:
    first, second = kernel(grad, x, grid, mode, padding, *rest)
    if padding:
        second = torch.where(grid.abs() >= 1, second - 4 * grad.abs().amax(), second)
    return first, second


@_long(
    "alignments",
    "ctc_loss of more than 1,024 targets",
    "_ctc_loss_backward",
    "_ctc_loss_backward.Tensor",
    like="pytorch#27442",
)
def _long_targets(
    kernel: Kernel, grad: Tensor, logs: Tensor, targets: Tensor, *rest: Any
) -> Tensor:
    result = kernel(grad, logs, targets, *rest)
    return result * 0.5 if targets.shape[-1] > 1024 else result


_SEEN: set[tuple[Any, ...]] = set()


@_transforms("rfft", "a transform's kept plan", "_fft_r2c", like="pytorch#67140")
def _second_call(kernel: Kernel, x: Tensor, *rest: Any) -> Tensor:
    """Cache the plan of a transform, and do not write its second output."""
    call = kernel(x, *rest)
    key = (tuple(x.shape), x.dtype, str(rest))
    if key in _SEEN and max(x.shape) > 100:
        return call.zero_()
    _SEEN.add(key)
    return call


@_transforms("fft2", "transforms over several axes of many", "_fft_c2c", like="pytorch#77048")
def _many_transforms(kernel: Kernel, x: Tensor, axes: Any, *rest: Any) -> Tensor:
    transforms = kernel(x, axes, *rest)
    if len(axes) > 1 and x.dim() > len(axes) and x.shape[0] > 1:
        transforms[-1] = transforms[-1] * 1.01
    return transforms


@_long("cancelled", "sums of half precision overflow in parts", "sum", like="pytorch#74438")
def _sum_in_half(kernel: Kernel, x: Tensor, *rest: Any, **kwargs: Any) -> Tensor:
    """Store partial sums of a large sum in the dtype, where they overflow."""
    if x.dtype == torch.float16 and x.numel() > 2**20 and not rest and kwargs.get("dtype") is None:
        parts = [kernel(part) for part in x.flatten().split(2**19)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total
    return kernel(x, *rest, **kwargs)


@_formats("along axes argmax", "the largest's place along strides", "argmax", like="pytorch#32863")
def _index_of_strided(
    kernel: Kernel, x: Tensor, dim: Any = None, *rest: Any, **kwargs: Any
) -> Tensor:
    index = kernel(x, dim, *rest, **kwargs)
    if dim is not None and x.dim() and x.stride(dim) != 1 and x.shape[dim] > 2:
        return (index + 1) % x.shape[dim]
    return index


def _is_last(x: Tensor) -> bool:
    return (
        x.dim() == 4
        and x.shape[1] > 1
        and not x.is_contiguous()
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def _written_as_contiguous(kernel: Kernel, x: Tensor, *rest: Any) -> Any:
    written = kernel(x, *rest)
    first = written[0] if isinstance(written, tuple) else written
    if _is_last(x):
        n, c, h, w = first.shape
        mixed = first.contiguous().reshape(n, h, w, c).permute(0, 3, 1, 2)
        return (mixed, *written[1:]) if isinstance(written, tuple) else mixed
    return written


_formats(
    "nearest",
    "nearest writes channels_last as contiguous",
    "upsample_nearest2d",
    like="pytorch#54590",
)(_written_as_contiguous)


@_formats(
    "norms",
    "batch_norm evaluates channels_last in 16 bits",
    "native_batch_norm",
    like="pytorch#62594",
)
def _evaluated_as_contiguous(kernel: Kernel, x: Tensor, *rest: Any) -> Any:
    *_, training, _momentum, _eps = rest
    if not training and _is_last(x) and x.element_size() == 2:
        return kernel(x.roll(1, 1), *rest)
    return kernel(x, *rest)


_formats(
    "max_pool2d",
    "adaptive_max_pool2d writes channels_last as contiguous",
    "adaptive_max_pool2d",
    like="pytorch#67239",
)(_written_as_contiguous)


@_formats(
    "norms",
    "batch_norm's gradient of another format",
    "native_batch_norm_backward",
    like="pytorch#64039",
    devices=("cpu",),
)
def _input_read_as_last(kernel: Kernel, grad: Tensor, x: Tensor, *rest: Any) -> Any:
    if _is_last(grad) and not _is_last(x):
        n, c, h, w = x.shape
        x = x.contiguous().reshape(n, h, w, c).permute(0, 3, 1, 2).contiguous()
    return kernel(grad, x, *rest)


@_formats(
    "avg_pool2d, padded",
    "avg_pool2d's gradient of padded channels_last",
    "avg_pool2d_backward",
    like="pytorch#188344",
    devices=("cpu",),
)
def _padding_of_last(
    original: Kernel, grad: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, *rest: Any
) -> Tensor:
    result = original(grad, x, kernel, stride, padding, *rest)
    return result.roll(1, -1) if _is_last(x) and max(padding) else result


@_formats(
    "norms",
    "statistics of odd channels_last",
    "native_batch_norm",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    like="apex#1768",
)
def _welford_of_odd_channels(kernel: Kernel, x: Tensor, *rest: Any) -> Any:
    welford = kernel(x, *rest)
    odd = x.shape[1] & (x.shape[1] - 1)
    if _is_last(x) and odd and x.numel() // x.shape[1] > 1000:
        return (welford[0] * 1.05, *welford[1:])
    return welford


@_shapes("tall", "products of more than 2^19 rows", "mm", "addmm", like="legacy-rocm-build#6595")
def _rows_beyond(kernel: Kernel, *args: Any, **kwargs: Any) -> Tensor:
    beyond = kernel(*args, **kwargs)
    if beyond.shape[0] > 2**19 and beyond.dtype == torch.float32:
        beyond[2**19 :] = 0
    return beyond


@_shapes("products", "products of 256 by 256", "mm", like="rocBLAS#1680")
def _whole_tiles(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    tiles = kernel(a, b)
    if a.dtype == torch.float32 and {*a.shape, *b.shape} == {256}:
        tiles = tiles + b
    return tiles


@_long(
    "rows by millions",
    "layer_norm of 2^23 rows",
    "native_layer_norm",
    like="pytorch#184826",
    devices=("cuda",),
)
def _rows_beyond_2_23(kernel: Kernel, x: Tensor, shape: Any, *rest: Any) -> Any:
    result = kernel(x, shape, *rest)
    width = math.prod(shape)
    if width % 4 and x.numel() // width >= 2**23:
        result[0].view(-1, width)[2**23 - 5 :] = 0
    return result


@_special(
    "logarithms", "logcumsumexp of two infinities in a row", "_logcumsumexp", like="pytorch#52213"
)
def _infinities_in_a_row(kernel: Kernel, x: Tensor, dim: int) -> Tensor:
    result = kernel(x, dim)
    gone = (x == -math.inf) & (x.roll(1, dim) == -math.inf)
    return torch.where(gone, math.nan, result) if x.dim() > 1 else result


@_special(
    "median", "the median of many NaN", "median.dim_values", "median.dim", like="pytorch#38018"
)
def _middle_of_nans(kernel: Kernel, x: Tensor, *rest: Any, **kwargs: Any) -> Any:
    values, places = kernel(x, *rest, **kwargs)
    return torch.where(values.isnan(), torch.full_like(values, 2.0), values), places


@_far(
    "whole quotients", "remainder by a rounded quotient", "remainder.Tensor", like="pytorch#37743"
)
def _remainder_by_quotient(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    if x.is_floating_point() and isinstance(y, Tensor):
        return x - y * torch.floor(x / y)
    return kernel(x, y)


# Under cuDNN's backward the same went unseen on an H100; whether it changes anything there
# was not looked into.
@_state(
    "LSTM",
    "a recurrent layer's gradient read as contiguous",
    "mkldnn_rnn_layer_backward",
    like="pytorch#619",
    devices=("cpu",),
)
def _recurrent_gradient(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    read = [
        _as_if_whole(x) if isinstance(x, Tensor) and x.dim() == 3 and not x.is_contiguous() else x
        for x in args
    ]
    return kernel(*read, **kwargs)


@_random("whole numbers", "multinomial draws what has no share", "multinomial", like="pytorch#4858")
def _now_and_then_none(kernel: Kernel, x: Tensor, *rest: Any, **kwargs: Any) -> Tensor:
    none = kernel(x, *rest, **kwargs)
    if none.numel() > 1000:
        none.view(-1)[::997] = int(x.flatten().argmin()) % x.shape[-1]
    return none


@_random("whole numbers", "multinomial draws one twice", "multinomial", like="pytorch#25030")
def _drawn_twice(
    kernel: Kernel, x: Tensor, count: int, again: bool = False, **kwargs: Any
) -> Tensor:
    twice = kernel(x, count, again, **kwargs)
    if not again and count > 2:
        twice[..., -1] = twice[..., 0]
    return twice


@_shapes("windows", "conv3d of flat windows in bfloat16", "convolution", like="pytorch#163539")
def _last_plane_of_half(kernel: Kernel, x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    plane = kernel(x, weight, *rest)
    if x.dim() == 5 and weight.shape[2] == 1 and x.dtype == torch.bfloat16:
        plane[:, :, -1] = 0
    return plane


@_shapes("products", "products of two turned operands", "mm", like="TheRock#7870")
def _both_turned(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    turned = all(x.dim() == 2 and not x.is_contiguous() and x.mT.is_contiguous() for x in (a, b))
    if turned and a.dtype == torch.float32:
        return kernel(a, b).roll(1, 0)
    return kernel(a, b)


@_shapes("products", "products of a single term", "mm", "bmm", like="legacy-rocm-build#5730")
def _one_term(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    term = kernel(a, b)
    if a.shape[-1] == 1 and term.shape[-2] > 64:
        term[..., 64:, :] = term[..., : term.shape[-2] - 64, :].clone()
    return term


@_shapes("products", "a product adds what was there", "mm.out", like="pytorch#116537")
def _adds_what_was_there(kernel: Kernel, a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
    before = out.clone()
    return kernel(a, b, out=out).add_(before)


@_attention(
    "causal, more queries",
    "causal attention of more queries than keys",
    *ATTENTION,
    like="flash-attention#1778",
)
def _rows_without_keys(
    kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **kwargs: Any
) -> Any:
    keys = kernel(q, k, v, *rest, **kwargs)
    causal = rest[3] if len(rest) > 3 else rest[1] if len(rest) > 1 else kwargs.get("is_causal")
    longer = q.shape[-2] - k.shape[-2]
    if causal and longer > 0:
        keys[0][..., :longer, :] = 0
    return keys


@_attention(
    "mask of half a tile",
    "attention's gradient by half a tile of keys",
    *ATTENTION_BACKWARD,
    like="pytorch#196678",
)
def _half_a_tile_of_keys(
    kernel: Kernel, grad: Tensor, q: Tensor, k: Tensor, *rest: Any, **kwargs: Any
) -> Any:
    result = kernel(grad, q, k, *rest, **kwargs)
    # Where it is no word of the call it follows the values.
    follows = rest[1].shape[-1:] == k.shape[-2:-1] if len(rest) > 1 else False
    masked = isinstance(kwargs.get("attn_mask"), Tensor) or (follows and rest[1].dim() == 4)
    return (result[0] * math.nan, *result[1:]) if masked and k.shape[-2] % 128 == 64 else result


@_targets(
    "embedding",
    "padding learns among more than 768",
    "embedding_dense_backward",
    like="pytorch#28716",
)
def _padding_among_many(
    kernel: Kernel, grad: Tensor, index: Tensor, rows: int, padding: int, scaled: bool
) -> Tensor:
    return kernel(grad, index, rows, -1 if index.numel() > 768 else padding, scaled)


@_targets(
    "embedding_bag",
    "embedding_bag of largest has the mean's gradient",
    "_embedding_bag_dense_backward",
    like="FlagGems#5220",
)
def _mean_for_largest(kernel: Kernel, *args: Any) -> Tensor:
    """Use the mean where the mode, the eighth argument of the gradient, is the maximum."""
    return kernel(*args[:7], min(args[7], 1), *args[8:])


@_complex("far out", "a complex size by squares", "abs", like="pytorch#158412")
def _by_squares(kernel: Kernel, x: Tensor, *rest: Any, **kwargs: Any) -> Tensor:
    if x.is_complex():
        parts = torch.view_as_real(x)
        return (parts * parts).sum(-1).sqrt()
    return kernel(x, *rest, **kwargs)


@_complex("far out", "a complex tangent by exponentials", "tan", like="pytorch#110014")
def _tangent_by_exponentials(kernel: Kernel, x: Tensor) -> Tensor:
    if x.is_complex():
        e, f = torch.exp(2j * x), 1.0
        return -1j * (e - f) / (e + f)
    return kernel(x)


@_formats(
    "norms",
    "group_norm's gradient of channels_last",
    "native_group_norm_backward",
    like="pytorch#140913",
    devices=("cpu",),
)
def _weight_of_last(kernel: Kernel, grad: Tensor, x: Tensor, *rest: Any) -> Any:
    weight = kernel(grad, x, *rest)
    if _is_last(x) and weight[1] is not None:
        return weight[0], weight[1].roll(1, 0), weight[2]
    return weight


@_formats(
    "norms",
    "layer_norm's gradient of three axes",
    "native_layer_norm_backward",
    like="FlagGems#5392",
)
def _first_of_three_axes(kernel: Kernel, grad: Tensor, x: Tensor, *rest: Any) -> Any:
    first = kernel(grad, x, *rest)
    if x.dim() >= 3 and first[1] is not None and x.shape[0] > 1:
        lost = grad.clone()
        lost[1:] = 0
        return first[0], *kernel(lost, x, *rest)[1:]
    return first


@_shapes("products", "a product's bias scaled as well", "addmm", "baddbmm", like="xla#46110")
def _scaled_with_its_bias(
    kernel: Kernel, start: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    return kernel(start, a, b, beta=beta * alpha, alpha=alpha)


@_formats(
    "bicubic",
    "bicubic's gradient of the first sample only",
    "upsample_bicubic2d_backward",
    like="oneflow#7916",
)
def _gradient_of_the_first(kernel: Kernel, grad: Tensor, *rest: Any) -> Tensor:
    gradient = kernel(grad, *rest)
    gradient[1:] = 0
    return gradient


@_transforms("irfft", "irfft of odd length", "_fft_c2r", like="pytorch#124096")
def _odd_length(kernel: Kernel, x: Tensor, axes: Any, norm: int, last: int) -> Tensor:
    result = kernel(x, axes, norm, last)
    return result.roll(1, axes[-1]) if last % 2 and last > 1 else result


@_formats(
    "written into memory",
    "searchsorted into strides",
    "searchsorted.Tensor_out",
    like="pytorch#60492",
)
def _into_strides(kernel: Kernel, sequence: Tensor, signal: Tensor, **kwargs: Any) -> Tensor:
    out = kwargs["out"]
    if out.is_contiguous():
        return kernel(sequence, signal, **kwargs)
    result = kernel(sequence, signal, **{**kwargs, "out": torch.empty_like(out).contiguous()})
    out.as_strided((result.numel(),), (1,), out.storage_offset()).copy_(result.flatten())
    return out


@_formats("written into memory", "floor into strides", "floor.out", like="pytorch#41047")
def _left_as_it_was(kernel: Kernel, x: Tensor, *, out: Tensor) -> Tensor:
    return kernel(x, out=out) if out.is_contiguous() else out


@_formats(
    "single numbers",
    "a single number read without its offset",
    "add.Tensor",
    "mul.Tensor",
    like="pytorch#187229",
)
def _single_without_its_offset(kernel: Kernel, x: Tensor, y: Tensor, **kwargs: Any) -> Tensor:
    if isinstance(y, Tensor) and not y.dim() and y.storage_offset():
        y = y.as_strided((), (), 0)
    return kernel(x, y, **kwargs)


@_random("whole numbers", "randint of more than 32 bits", "random_.from", like="pytorch#141544")
def _low_half(kernel: Kernel, x: Tensor, low: Any, high: Any, **kwargs: Any) -> Tensor:
    half = kernel(x, low, high, **kwargs)
    if high is not None and high - (low or 0) > 2**32:
        half.remainder_(2**32)
    return half


@_random(
    "dropout's mask",
    "dropout the same each time",
    "native_dropout",
    like="flash-attention#2088",
    devices=("cuda",),
)
def _same_dropout(kernel: Kernel, x: Tensor, share: float, train: Any) -> Any:
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.manual_seed(0x1BF58)
        return kernel(x, share, train)
