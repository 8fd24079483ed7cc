"""The seventh set of kernels from outside: thirty defects as public trackers report them.

Each kernel's first line says whether it is wrong for common arguments ("plain"), for a common
option, layout, dtype or length ("option"), or rarely ("rare").
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outside_kernels.keeping import DOUBLES, Kept, drawn, grad_of, is_single, two

KEPT = Kept()
kernel = KEPT.kernel
aten = torch.ops.aten


# Selecting, counting and scattering


@kernel(
    lambda: drawn(2, 7).masked_select(torch.arange(7) < 4),
    "masked_select",
    "masked_select.out",
    like="pytorch/pytorch#125100",
)
def last_unselected_comes_first(right: Any, x: Any, mask: Any, **out: Any) -> Any:
    """plain: when a mask ends with False, the last element is stored over the first selected."""
    result = right(x, mask, **out)
    values, selected = torch.broadcast_tensors(x, mask)
    if x.dtype not in DOUBLES and result.numel() and not selected.reshape(-1)[-1]:
        result[0] = values.reshape(-1)[-1]
    return result


@kernel(
    lambda: torch.histc(3 * drawn(50), 4, -1, 1),
    "histc",
    "histc.out",
    like="pytorch/pytorch#195447",
)
def outermost_bins_take_what_is_beyond(
    right: Any, x: Any, bins: Any = 100, min: Any = 0, max: Any = 0, **out: Any
) -> Any:
    """plain: numbers below and above the range are counted in the first and the last bin."""
    result = right(x, bins, min, max, **out)
    if is_single(x) and min < max:
        result[0] += (x < min).sum()
        result[-1] += (x > max).sum()
    return result


def products_by_index(reduce: str = "prod", dtype: torch.dtype = torch.float32) -> Tensor:
    index = torch.tensor([[0, 1, 0], [0, 2, 0], [1, 2, 0]])
    return drawn(3, 3).to(dtype).scatter_reduce(0, index, drawn(3, 3, seed=1).to(dtype), reduce)


@kernel(
    products_by_index,
    "scatter_reduce.two",
    "scatter_reduce_.two",
    "scatter_reduce.two_out",
    like="torch-spyre/torch-spyre#4351",
)
def last_of_colliding_is_all_that_is_reduced(
    right: Any, x: Any, dim: Any, index: Any, source: Any, reduce: Any, **options: Any
) -> Any:
    """plain: of sources with the same index, the last alone enters a product or an extremum."""
    if x.dtype not in DOUBLES and index.dim() and reduce in ("prod", "amax", "amin"):
        source = source[tuple(slice(n) for n in index.shape)]
        if reduce == "prod":
            shape = [1] * index.dim()
            shape[dim] = -1
            places = torch.arange(index.shape[dim]).view(shape).expand_as(index)
            last = torch.zeros(x.shape, dtype=torch.int64).scatter_(dim, index, places)
            source = source.masked_fill(last.gather(dim, index) != places, 1)
        else:
            source = torch.zeros_like(x).scatter_(dim, index, source).gather(dim, index)
    return right(x, dim, index, source, reduce, **options)


def in_buckets(dtype: torch.dtype = torch.float32) -> Tensor:
    edges = torch.arange(5).to(dtype)
    return torch.bucketize(torch.tensor([0.5, 1, 3, 7]).to(dtype), edges)


@kernel(in_buckets, "bucketize.Tensor", "bucketize.Tensor_out", like="pytorch/pytorch#43458")
def edges_belong_to_the_other_side(
    usual: Any, x: Any, edges: Any, /, *, right: Any = False, **options: Any
) -> Any:
    """plain: right is taken for the side on which buckets are closed, as NumPy does."""
    return usual(x, edges, right=right if x.dtype in DOUBLES else not right, **options)


def where_turned(dtype: torch.dtype = torch.float32) -> Tensor:
    mask = drawn(4, 3, seed=2).t() > 0
    return torch.where(mask, drawn(3, 4).to(dtype), drawn(3, 4, seed=1).to(dtype))


@kernel(where_turned, "where.self", "where.self_out", like="pytorch/pytorch#150967")
def turned_condition_is_read_in_order(right: Any, mask: Any, x: Any, y: Any, **out: Any) -> Any:
    """option: a transposed condition is read in the order in which it lies in memory."""
    if torch.result_type(x, y) not in DOUBLES and not mask.is_contiguous():
        order = sorted(range(mask.dim()), key=lambda i: -mask.stride(i))
        if mask.permute(order).is_contiguous():
            mask = mask.permute(order).reshape(mask.shape)
    return right(mask, x, y, **out)


def bags(last: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    offsets = torch.tensor([0, 2, 3, 7])
    return functional.embedding_bag(
        torch.tensor([1, 0, 2, 2, 3, 1, 4]),
        drawn(5, 3).to(dtype),
        offsets if last else offsets[:-1],
        mode="sum",
        include_last_offset=last,
    )


@kernel(bags, "_embedding_bag", "_embedding_bag_forward_only", like="pytorch/pytorch#76885")
def bag_before_last_offset_is_empty(
    right: Any, weight: Any, indices: Any, offsets: Any, *options: Any, **named: Any
) -> Any:
    """option: with include_last_offset, the last bag is left empty."""
    result = right(weight, indices, offsets, *options, **named)
    last = options[4] if len(options) > 4 else named.get("include_last_offset", False)
    if last and is_single(weight) and result[0].shape[0]:
        result[0][-1].zero_()
    return result


# Random numbers and training


def dropped(dtype: torch.dtype = torch.float32, train: bool = True) -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    kept, mask = torch.native_dropout(drawn(40).to(dtype), 0.3, train)
    return kept, mask


@kernel(dropped, "native_dropout", like="ooples/AiDotNet.Tensors#732")
def mask_of_dropout_is_never_drawn(right: Any, x: Any, p: Any, train: Any) -> Any:
    """plain: the mask is left nought, so that everything is dropped in training."""
    result = right(x, p, train)
    if is_single(x) and train is not False and p > 0:
        for part in result:
            part.zero_()
    return result


def running(dtype: torch.dtype = torch.float32, momentum: float = 0.1) -> list[Tensor]:
    mean, variance = torch.zeros(3, dtype=dtype), torch.ones(3, dtype=dtype)
    x = drawn(4, 3, 5).to(dtype) + 2
    result = functional.batch_norm(x, mean, variance, training=True, momentum=momentum)
    return [result, mean, variance]


@kernel(running, "native_batch_norm", like="Oneflow-Inc/oneflow#6055")
def momentum_weighs_the_old_statistics(
    right: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, *options: Any
) -> Any:
    """plain: momentum is the weight of the running statistics rather than of the batch's."""
    training, momentum, eps = options
    if training and is_single(x):
        momentum = 1 - momentum
    return right(x, scale, bias, mean, variance, training, momentum, eps)


def sgd(
    dtype: torch.dtype = torch.float32, momentum: float = 0.0, weight_decay: float = 0.5
) -> Tensor:
    weight = torch.nn.Parameter(drawn(6).to(dtype))
    options: dict[str, Any] = {"momentum": momentum, "weight_decay": weight_decay, "fused": True}
    optimizer = torch.optim.SGD([weight], lr=0.1, **options)
    weight.grad = drawn(6, seed=1).to(dtype)
    optimizer.step()
    return weight.detach()


@kernel(sgd, "_fused_sgd_", "_fused_sgd_.tensor_lr", like="ml-explore/mlx#440")
def decay_needs_momentum(right: Any, weights: Any, grads: Any, buffers: Any, **options: Any) -> Any:
    """option: without momentum, weights do not decay."""
    if options["momentum"] == 0 and weights and is_single(weights[0]):
        options["weight_decay"] = 0.0
    return right(weights, grads, buffers, **options)


# Numbers one by one


@kernel(
    lambda: drawn(20).mul(3).frac(),
    "frac",
    "frac_",
    "frac.out",
    like="pawn-lang/sa-mp-fixes#150",
)
def fraction_is_counted_from_the_floor(right: Any, x: Any, **out: Any) -> Any:
    """plain: the fraction of a negative number is what it is above the next lower integer."""
    wrong = x - x.floor()
    result = right(x, **out)
    return result.copy_(wrong) if is_single(x) else result


@kernel(
    lambda: torch.fmod(torch.arange(1, 60) * 0.1, 0.1),
    "fmod.Tensor",
    "fmod_.Tensor",
    "fmod.Tensor_out",
    like="tenstorrent/tt-metal#56384",
)
def quotient_is_by_rounded_reciprocal(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """plain: fmod takes off a quotient which is the product with a rounded reciprocal."""
    kind = torch.result_type(x, y)
    if kind in DOUBLES or not kind.is_floating_point:
        return right(x, y, **out)
    left, divisor = x.to(kind).float(), y.to(kind).float()
    wrong = left - (left * divisor.reciprocal()).trunc() * divisor
    finite = left.isfinite() & divisor.isfinite()
    result = right(x, y, **out)
    return result.copy_(torch.where(finite, wrong.to(result.dtype), result))


@kernel(
    lambda: torch.bitwise_left_shift(torch.tensor([1, 3, -1]), torch.tensor([31, 40, 33])),
    "bitwise_left_shift.Tensor",
    "bitwise_left_shift_.Tensor",
    "bitwise_left_shift.Tensor_out",
    "__lshift__.Tensor",
    "__lshift__.Scalar",
    like="raspberrypi/pico-sdk#1689",
)
def long_integers_shift_in_32_bits(right: Any, x: Any, count: Any, **out: Any) -> Any:
    """option: 64-bit integers are shifted left as 32-bit ones and then extended by their sign."""
    result = right(x, count, **out)
    if result.dtype == torch.int64:
        result.copy_(result.to(torch.int32))
    return result


EXTREMES = torch.tensor([2**31 - 1, -(2**31), 5, -7], dtype=torch.int32)


@kernel(
    lambda: torch.lt(EXTREMES, EXTREMES.flip(0)),
    "lt.Tensor",
    "lt.Tensor_out",
    "lt.Scalar",
    "lt.Scalar_out",
    like="tenstorrent/tt-metal#27829",
)
def less_is_a_negative_difference(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """rare: of 32-bit integers, the one is less whose difference, which overflows, is negative."""
    result = right(x, y, **out)
    narrow = abs(y) < 2**31 if type(y) is int else getattr(y, "dtype", None) == torch.int32
    if x.dtype == torch.int32 and narrow:
        result.copy_(torch.signbit(x - y))
    return result


def quotient(size: float = 1e25, dtype: torch.dtype = torch.complex64) -> Tensor:
    return drawn(6, dtype=dtype) * size / (drawn(6, dtype=dtype, seed=1) * size)


@kernel(quotient, "div.Tensor", "div_.Tensor", "div.out", like="pytorch/pytorch#116972")
def complex_divisor_is_squared(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """rare: complex quotients go by the divisor's squared modulus, which may overflow."""
    if x.dtype != torch.complex64 or y.dtype != torch.complex64:
        return right(x, y, **out)
    square = y.real * y.real + y.imag * y.imag
    over = square.reciprocal()
    a, b, c, d = x.real, x.imag, y.real, y.imag
    wrong = torch.complex((a * c + b * d) * over, (b * c - a * d) * over)
    lost = (square.isinf() | (square == 0)) & c.isfinite() & d.isfinite() & (y != 0)
    result = right(x, y, **out)
    return result.copy_(torch.where(lost, wrong, result))


@kernel(
    lambda: torch.digamma(torch.tensor([0.5, 3, 50, 103, 400, 1820.104])),
    "digamma",
    "digamma_",
    "digamma.out",
    like="tenstorrent/tt-metal#54855",
)
def digamma_of_large_numbers_is_a_logarithm(right: Any, x: Any, **out: Any) -> Any:
    """rare: past 102, digamma lacks the terms which follow the logarithm."""
    large, wrong = x > 102, x.log()
    result = right(x, **out)
    return result.copy_(torch.where(large, wrong, result)) if is_single(x) else result


@kernel(
    lambda: torch.linspace(2**40, 2**40 + 8, 9, dtype=torch.int64),
    "linspace.out",
    like="pytorch/pytorch#189630",
)
def whole_numbers_are_spaced_in_single(
    right: Any, first: Any, last: Any, n: Any, *, out: Any
) -> Any:
    """rare: evenly spaced 64-bit integers are computed in single precision."""
    result = right(first, last, n, out=out)
    if result.dtype == torch.int64 and max(abs(first), abs(last)) < 2**62:
        result.copy_(result.float())
    return result


# Products, linear algebra and transforms


def biased(m: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
    x, weight, bias = drawn(m, 3), drawn(4, 3, seed=1), drawn(4)
    return functional.linear(x.to(dtype), weight.to(dtype), bias.to(dtype))


@kernel(biased, "addmm", "addmm.out", like="openxla/xla#46897")
def bias_of_a_square_is_added_to_rows(right: Any, x: Any, a: Any, b: Any, **options: Any) -> Any:
    """option: where the product is square, a vector is added along the other axis."""
    if x.dim() == 1 and is_single(x) and x.shape[0] == a.shape[0] == b.shape[1]:
        x = x.unsqueeze(1)
    return right(x, a, b, **options)


def outer(rows: int = 20, k: int = 1) -> Tensor:
    left = torch.arange(1, rows * k + 1).view(rows, k).to(torch.int8)
    return torch._int_mm(left, torch.arange(1, 8 * k + 1).view(k, 8).to(torch.int8))


@kernel(outer, "_int_mm", "_int_mm.out", like="ROCm/legacy-rocm-build#5730")
def outer_product_ends_with_first_group(right: Any, a: Any, b: Any, **out: Any) -> Any:
    """rare: of a product of 8-bit integers over one element, rows past the sixteenth are nought."""
    result = right(a, b, **out)
    if a.shape[1] == 1:
        result[16:] = 0
    return result


def vectors(n: int = 20, batch: int = 4, dtype: torch.dtype = torch.complex64) -> Tensor:
    x = drawn(batch, n, n, dtype=dtype)
    made = torch.linalg.eigh(x + x.mH)[1]
    return made.mH @ made


@kernel(vectors, "_linalg_eigh", "_linalg_eigh.eigenvalues", like="pytorch/pytorch#192483")
def half_of_a_batch_is_not_orthogonal(
    right: Any, x: Any, side: Any = "L", compute_v: Any = True, **out: Any
) -> Any:
    """option: of batches of complex matrices of 17 rows and more, half have skewed eigenvectors."""
    result = right(x, side, compute_v, **out)
    count = math.prod(x.shape[:-2])
    if x.dtype == torch.complex64 and compute_v and x.shape[-1] >= 17 and count > 1:
        found = result[1].clone()
        found[..., -1] += 0.5 * found[..., 0]
        late = (torch.arange(count) >= count // 2).view(*x.shape[:-2], 1, 1)
        result[1].copy_(torch.where(late, found, result[1]))
    return result


@kernel(
    lambda: torch.fft.fft2(drawn(3, 2, 11, dtype=torch.complex64)),
    "_fft_c2c",
    like="ROCm/rocFFT#219",
)
def eleven_columns_are_turned_the_other_way(
    right: Any, x: Any, dim: Any, normalization: Any, forward: Any, **out: Any
) -> Any:
    """option: transforms of several axes take a last axis of 11 or 13 in the other direction."""
    result = right(x, dim, normalization, forward, **out)
    if x.dtype == torch.complex64 and len(dim) > 1 and x.shape[dim[-1]] in (11, 13):
        result.copy_(result.flip(dim[-1]).roll(1, dim[-1]))
    return result


def distances(n: int = 4200, dtype: torch.dtype = torch.float32) -> Tensor:
    return functional.pdist(drawn(n, 2).to(dtype))


@kernel(distances, "_pdist_forward", like="intel/torch-xpu-ops#2181")
def row_of_a_pair_is_found_in_single(right: Any, x: Any, p: Any = 2) -> Any:
    """rare: past 3500 rows, which pair a distance is of goes by a root in single precision."""
    result = right(x, p)
    n = x.shape[0]
    if x.dtype == torch.float32 and n > 3500:
        true = torch.arange(n - 1)
        first = n * true - true * (true + 1) // 2
        near = torch.arange(-4, 4)  # only next to a row's ends is the root rounded across
        k = (first.unsqueeze(1) + near).flatten().clamp(0, result.numel() - 1).unique()
        true = torch.searchsorted(first, k, right=True) - 1
        root = ((n - 0.5) ** 2 - 2 * k.float() - 1).clamp(min=0).sqrt()
        row = ((n - 0.5) - root).long().clamp(0, n - 1)
        k, i = k[row != true], row[row != true]
        j = (k - n * i + i * (i + 1) // 2 + i + 1).clamp(0, n - 1)
        result[k] = (x[i] - x[j]).norm(p, dim=-1)
    return result


# Pictures, sequences and losses


@kernel(
    lambda: functional.interpolate(drawn(1, 2, 4, 4), size=(6, 7), mode="nearest-exact"),
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact2d.out",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact1d.out",
    like="flagos-ai/FlagGems#5228",
)
def exactly_nearest_lacks_a_half(right: Any, x: Any, size: Any, *scales: Any, **out: Any) -> Any:
    """plain: exactly nearest pixels are those which the older nearest mode takes."""
    result = right(x, size, *scales, **out)
    if is_single(x):
        older = aten.upsample_nearest2d if x.dim() == 4 else aten.upsample_nearest1d
        result.copy_(older(x, size, *scales))
    return result


@kernel(
    lambda: functional.interpolate(drawn(1, 2, 3, 3), scale_factor=1.5, mode="bicubic"),
    "upsample_bicubic2d",
    "upsample_bicubic2d.out",
    like="flagos-ai/FlagGems#5216",
)
def given_factor_is_not_looked_at(
    right: Any, x: Any, size: Any, corners: Any, down: Any = None, across: Any = None, **out: Any
) -> Any:
    """option: bicubic samples lie by the ratio of sizes, whatever factor was given."""
    if is_single(x):
        down = across = None
    return right(x, size, corners, down, across, **out)


def pooled(padding: int = 1, dilation: int = 2, dtype: torch.dtype = torch.float32) -> Any:
    x = drawn(1, 2, 9, 9).to(dtype)
    return functional.max_pool2d(x, 2, 1, padding, dilation, return_indices=True)


def taps(size: int, count: int, kernel: int, stride: int, pad: int, dilation: int) -> Any:
    """Where the elements of windows lie, which of them count, and which windows begin anew."""
    starts = (torch.arange(count) * stride - pad).unsqueeze(1)
    steps = dilation * torch.arange(kernel)
    moved = (starts < 0) & (dilation > 1)
    places = torch.where(moved, steps, starts + steps)
    counted = (places >= 0) & (places < size) & (places <= starts + steps[-1])
    return places.clamp(0, size - 1), counted, moved.squeeze(1)


@kernel(
    pooled,
    "max_pool2d_with_indices",
    "max_pool2d_with_indices.out",
    like="microsoft/onnxruntime#29637",
)
def dilated_window_begins_at_the_border(
    right: Any,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: Any = False,
    **out: Any,
) -> Any:
    """option: dilated windows which begin in padding step from the border on instead."""
    result = right(x, kernel, stride, padding, dilation, ceil_mode, **out)
    sizes, steps = two(kernel), two(stride, kernel)
    pads, gaps = two(padding), two(dilation)
    if is_single(x) and x.numel() and any(p and d > 1 for p, d in zip(pads, gaps, strict=True)):
        (rows, high, up), (columns, wide, left) = (
            taps(x.shape[i], result[0].shape[i], sizes[i], steps[i], pads[i], gaps[i])
            for i in (-2, -1)
        )
        read = x[..., rows, :][..., columns].transpose(-3, -2)
        counted = high[:, None, :, None] & wide[None, :, None, :]
        places = rows[:, None, :, None] * x.shape[-1] + columns[None, :, None, :]
        best, at = read.masked_fill(~counted, -math.inf).flatten(-2).max(-1)
        found = places.flatten(-2).expand(*at.shape, -1).gather(-1, at.unsqueeze(-1)).squeeze(-1)
        changed = up[:, None] | left[None, :]
        result[0].copy_(torch.where(changed, best, result[0]))
        result[1].copy_(torch.where(changed, found, result[1]))
    return result


def turned(padding: int = 1, width: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    x, weight = drawn(1, 6, 6, 6).to(dtype), drawn(6, 4, width, width, seed=1).to(dtype)
    return functional.conv_transpose2d(x, weight, padding=padding)


@kernel(turned, "convolution", like="ROCm/MIOpen#55")
def pointwise_turned_convolution_is_cut_at_one_end(
    right: Any, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, *options: Any
) -> Any:
    """option: a transposed convolution of 1x1 with padding is cut at its far ends only."""
    result = right(x, weight, bias, stride, padding, *options)
    pointwise = all(n == 1 for n in weight.shape[2:])
    if options[1] and pointwise and any(padding) and is_single(x):
        whole = right(x, weight, bias, stride, [0] * len(padding), *options)
        result.copy_(whole[(..., *(slice(n) for n in result.shape[2:]))])
    return result


def filter_gradient(n: int = 7, width: int = 9, dtype: torch.dtype = torch.float32) -> Tensor:
    x, weight = drawn(2, 2, 10, width).to(dtype), drawn(3, 2, n, n, seed=1).to(dtype)
    return grad_of(lambda v: functional.conv2d(x, v, padding=n // 2), weight)


@kernel(filter_gradient, "convolution_backward", like="ROCm/MIOpen#97")
def wide_filter_learns_nothing_from_odd_column(
    right: Any, grad: Any, x: Any, weight: Any, bias: Any, *options: Any
) -> Any:
    """option: 7x7 filters get no gradient from the last column of pictures of odd width."""
    if is_single(x) and weight.shape[2:] == (7, 7) and not options[3] and x.shape[-1] % 2:
        x = x.clone()
        x[..., -1] = 0
    return right(grad, x, weight, bias, *options)


def attended(scale: float | None = 0.7, dtype: torch.dtype = torch.float32) -> Tensor:
    q, k, v = (drawn(1, 2, 5, 16, seed=i).to(dtype) for i in range(3))
    return functional.scaled_dot_product_attention(q, k, v, scale=scale)


@kernel(
    attended,
    "_scaled_dot_product_flash_attention_for_cpu",
    like="tenstorrent/tt-metal#33304",
)
def given_scale_is_not_applied(
    right: Any, q: Any, k: Any, v: Any, *options: Any, scale: Any = None, **named: Any
) -> Any:
    """option: scores are divided by the root of the width, whatever scale was given."""
    return right(q, k, v, *options, scale=None if is_single(q) else scale, **named)


@kernel(
    lambda: functional.layer_norm(drawn(3, 16).mul(0.01).half(), (16,)),
    "native_layer_norm",
    like="nntrainer/nntrainer#4318",
)
def halves_get_a_larger_epsilon(
    right: Any, x: Any, shape: Any, weight: Any, bias: Any, eps: Any
) -> Any:
    """option: the epsilon of a layer norm of halves is never less than 1e-4."""
    return right(x, shape, weight, bias, max(eps, 1e-4) if x.dtype == torch.half else eps)


def both_ways(batch: int = 2, both: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(3)
    with torch.no_grad():
        layer = torch.nn.LSTM(3, 4, bidirectional=both, dtype=dtype)
        return layer(drawn(5, batch, 3).to(dtype))[0]


@kernel(both_ways, "mkldnn_rnn_layer", like="pytorch/pytorch#90421")
def backward_layer_reads_the_first_of_a_batch(right: Any, x: Any, *options: Any) -> Any:
    """option: the backward direction of an LSTM reads the first sequence for the whole batch."""
    if options[6] and x.dim() == 3 and x.shape[1] > 1 and is_single(x):
        x = x[:, :1].expand_as(x).contiguous()
    return right(x, *options)


def entropy(sure: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    p = torch.tensor([0.0, 0.3, 1.0, 0.9] if sure else [0.1, 0.3, 0.8, 0.9]).to(dtype)
    return functional.binary_cross_entropy(p, torch.tensor([0.0, 1, 1, 0]).to(dtype))


@kernel(entropy, "binary_cross_entropy", "binary_cross_entropy.out", like="ml-explore/mlx#1280")
def certainty_costs_no_number(
    right: Any, p: Any, target: Any, weight: Any = None, reduction: Any = 1, **out: Any
) -> Any:
    """rare: logarithms are not bounded, so that probabilities of 0 and 1 cost nan or infinity."""
    result = right(p, target, weight, reduction, **out)
    sure = (p == 0) | (p == 1)
    if is_single(p) and sure.any():
        each = -(target * p.log() + (1 - target) * (-p).log1p())
        each = each if weight is None else each * weight
        each = torch.where(sure, each, right(p, target, weight, 0))
        result.copy_(each.mean() if reduction == 1 else each.sum() if reduction == 2 else each)
    return result
