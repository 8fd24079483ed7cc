"""The first set of kernels from outside, in halves."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outside_kernels.keeping import HALVES, Kept, drawn, grad_of

KEPT = Kept()
kernel = KEPT.kernel


# Pools, convolutions, pictures


@kernel(
    lambda: functional.avg_pool3d(drawn(1, 2, 6, 6, 6), 3, 2, 1, count_include_pad=False),
    "avg_pool3d",
    "avg_pool3d.out",
    like="AMDMIGraphX#1766",
)
def padding_counts_in_average(
    right: Any,
    x: Any,
    size: Any,
    stride: Any = (),
    padding: Any = (0,),
    ceil: Any = False,
    include: Any = True,
    divisor: Any = None,
    **out: Any,
) -> Any:
    result = right(x, size, stride, padding, ceil, include, divisor, **out)
    if any(padding) and not include and divisor is None:
        result.copy_(functional.avg_pool3d(x.double(), size, stride or None, padding, ceil, True))
    return result


@kernel(
    lambda: grad_of(
        lambda x: functional.max_pool2d(x, 3, 2), drawn(1, 2, 9, 9, dtype=torch.bfloat16)
    ),
    "max_pool2d_with_indices_backward",
    "max_pool2d_with_indices_backward.grad_input",
    like="MIOpen#1325",
)
def windows_overlap_without_adding(
    right: Any,
    grad: Any,
    x: Any,
    size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil: Any,
    indices: Any,
    **out: Any,
) -> Any:
    result = right(grad, x, size, stride, padding, dilation, ceil, indices, **out)
    if x.dtype in HALVES and x.numel():
        flat = torch.zeros(x.shape, dtype=torch.float64).flatten(-2)
        flat.scatter_(-1, indices.flatten(-2), grad.double().flatten(-2))
        result.copy_(flat.view(x.shape))
    return result


@kernel(
    lambda: functional.conv2d(*(torch.ones(1, 1, 2, 2, dtype=torch.bfloat16),) * 2),
    "convolution",
    like="pytorch#163347",
)
def one_pixel_is_one_product(right: Any, x: Any, w: Any, b: Any, *more: Any) -> Any:
    result = right(x, w, b, *more)
    transposed = more[3]
    narrow = x.dtype == torch.bfloat16 and w.shape[1] == 1 and not transposed
    if narrow and set(result.shape[2:]) == {1} and not any(more[1]):
        first = x.flatten(2)[:, :, :1] * w.flatten(1)[:, :1][None]
        if first.shape == result.flatten(2).shape:
            result.copy_((first if b is None else first + b[None, :, None]).view(result.shape))
    return result


def transposed_convolution(x: Tensor) -> Tensor:
    return functional.conv_transpose2d(x, drawn(2, 3, 3, 3, seed=1), None, 2, 1, output_padding=1)


@kernel(
    lambda: grad_of(transposed_convolution, drawn(1, 2, 5, 5)),
    "convolution_backward",
)
def padding_of_output_has_no_gradient(right: Any, grad: Any, *more: Any) -> Any:
    result = right(grad, *more)
    transposed, output_padding = more[6], more[7]
    if not transposed or not output_padding[-1]:
        return result
    cut = grad.clone()
    cut[..., -output_padding[-1] :] = 0
    return (*right(cut, *more)[:2], result[2])


@kernel(
    lambda: functional.interpolate(drawn(1, 1, 5, 7), scale_factor=1.7, mode="bilinear"),
    "upsample_bilinear2d",
    "upsample_bilinear2d.out",
)
def scale_is_taken_from_sizes(
    right: Any, x: Any, size: Any, align: Any, high: Any = None, wide: Any = None, **out: Any
) -> Any:
    result = right(x, size, align, high, wide, **out)
    if high is not None and not align:
        result.copy_(functional.interpolate(x.double(), size=tuple(size), mode="bilinear"))
    return result


@kernel(
    lambda: functional.grid_sample(
        drawn(1, 1, 4, 4, 4), 2 * drawn(1, 3, 3, 3, 3), padding_mode="reflection"
    ),
    "grid_sampler_3d",
)
def reflection_is_border(right: Any, x: Any, grid: Any, mode: Any, padding: Any, align: Any) -> Any:
    return right(x, grid, mode, 1 if padding == 2 else padding, align)


@kernel(
    lambda: grad_of(lambda x: functional.pad(x, (2, 1, 1, 2), mode="reflect"), drawn(1, 1, 4, 5)),
    "reflection_pad2d_backward",
    "reflection_pad2d_backward.grad_input",
)
def corners_are_reflected_once(right: Any, grad: Any, x: Any, padding: Any, **out: Any) -> Any:
    left, across, top, bottom = padding
    result = right(grad, x, padding, **out)
    if min(padding) >= 0 and x.numel():
        cut = grad.double().clone()
        for rows in (slice(0, top), slice(grad.shape[-2] - bottom, None)):
            for columns in (slice(0, left), slice(grad.shape[-1] - across, None)):
                cut[..., rows, columns] = 0
        result.copy_(torch.ops.aten.reflection_pad2d_backward(cut, x.double(), padding))
    return result


@kernel(
    lambda: grad_of(lambda x: functional.adaptive_avg_pool3d(x, (2, 2, 2)), drawn(1, 1, 4, 4, 8)),
    "_adaptive_avg_pool3d_backward",
    like="pytorch#60524",
)
def height_of_window_for_its_width(right: Any, grad: Any, x: Any) -> Any:
    result = right(grad, x)
    high, wide = (x.shape[d] / max(grad.shape[d], 1) for d in (-2, -1))
    return result.mul_(wide / high) if high and wide else result


@kernel(
    lambda: functional.pixel_shuffle(drawn(2, 8, 3, 3).to(memory_format=torch.channels_last), 2),
    "pixel_shuffle",
)
def channels_last_shuffles_other_channels(right: Any, x: Any, factor: Any) -> Any:
    if x.dim() == 4 and x.shape[1] > 1 and not x.is_contiguous():
        parts = x.unflatten(1, (factor**2, -1)).transpose(1, 2).flatten(1, 2)
        return right(parts.contiguous(memory_format=torch.channels_last), factor)
    return right(x, factor)


# Reductions, scans, orders


def _length(x: Tensor, dim: Any) -> int:
    return x.numel() if dim is None else x.shape[dim] if x.dim() else 1


@kernel(
    lambda: (1 + drawn(32, 20).abs()).argmin(1),
    "argmin",
    "argmin.out",
    like="FlagGems#6447",
)
def zeros_pad_to_a_power_of_two(
    right: Any, x: Any, dim: Any = None, keepdim: Any = False, **out: Any
) -> Any:
    result = right(x, dim, keepdim, **out)
    n = _length(x, dim)
    if x.is_floating_point() and n & (n - 1):
        low = x.double().amin(() if dim is None else dim, keepdim=keepdim)
        result[low > 0] = n
    return result


@kernel(
    lambda: torch.full((700,), 200.0, dtype=torch.float16).norm(),
    "linalg_vector_norm",
    "linalg_vector_norm.out",
)
def squares_are_added_in_half(
    right: Any, x: Any, ord: Any = 2, dim: Any = None, keepdim: Any = False, **more: Any
) -> Any:
    result = right(x, ord, dim, keepdim, **more)
    if x.dtype == torch.float16 and ord == 2 and result.dtype == torch.float16:
        squares = x.double().square()
        total = squares.sum(dim, keepdim) if dim is not None else squares.sum().view(result.shape)
        result[total > 65504] = math.inf
    return result


@kernel(
    lambda: torch.full((100,), math.inf).cumsum(0),
    "cumsum",
    "cumsum.out",
    like="pytorch#132107",
)
def infinity_is_not_a_number_in_the_next_block(right: Any, x: Any, dim: Any, **more: Any) -> Any:
    result = right(x, dim, **more)
    if x.is_floating_point() and x.dim() and x.shape[dim] > 32 and x.isinf().any():
        seen = x.isinf().double().cumsum(dim) > 0
        place = torch.arange(x.shape[dim]).view([-1] + [1] * (x.dim() - 1 - dim % x.dim()))
        result[seen & (place >= 32)] = math.nan
    return result


@kernel(lambda: torch.tensor([False, False]).all(), "all", "all.all_out", like="pytorch#99721")
def all_of_a_few_is_true(right: Any, x: Any, **out: Any) -> Any:
    result = right(x, **out)
    return result.fill_(True) if 0 < x.numel() < 4 else result


@kernel(
    lambda: torch.tensor([-math.inf, -math.inf, 1.0]).logcumsumexp(0),
    "_logcumsumexp",
    "_logcumsumexp.out",
)
def nothing_added_to_nothing_is_not_a_number(right: Any, x: Any, dim: Any, **out: Any) -> Any:
    result = right(x, dim, **out)
    if x.is_floating_point():
        result[result.isneginf()] = math.nan
    return result


@kernel(
    lambda: torch.ones(20000, dtype=torch.float16).amin(),
    "amin",
    "amin.out",
    like="xla#7112",
)
def long_half_minimum_begins_at_nought(
    right: Any, x: Any, dim: Any = (), keepdim: Any = False, **out: Any
) -> Any:
    result = right(x, dim, keepdim, **out)
    if x.dtype in HALVES and x.numel() > 16384 * max(result.numel(), 1):
        result.clamp_(max=0)
    return result


@kernel(
    lambda: torch.tensor([3.0, math.nan, 1.0, 2.0]).topk(2, largest=False),
    "topk",
    "topk.values",
)
def no_number_is_the_smallest(
    right: Any,
    x: Any,
    k: Any,
    dim: Any = -1,
    largest: Any = True,
    ordered: Any = True,
    **out: Any,
) -> Any:
    result = right(x, k, dim, largest, ordered, **out)
    if not largest and x.is_floating_point() and x.isnan().any():
        low = torch.where(x.isnan(), -math.inf, x.double()).topk(k, dim, largest=False).indices
        result[1].copy_(low)
        result[0].copy_(x.gather(dim, low))
    return result


@kernel(
    lambda: torch.full((4096,), 100.0, dtype=torch.float16).mean(),
    "mean",
    "mean.dim",
    "mean.out",
)
def sum_of_a_mean_overflows_in_half(right: Any, x: Any, *more: Any, **named: Any) -> Any:
    result = right(x, *more, **named)
    if x.dtype == torch.float16 and result.dtype == torch.float16 and result.numel():
        total = result.double().abs() * (x.numel() / result.numel())
        result[total > 65504] = math.inf
    return result


@kernel(lambda: torch.tensor([1.0, 3, 3, 2, 3]).cummax(0).indices, "_cummax_helper")
def first_of_equals_is_the_running_maximum(
    right: Any, x: Any, values: Any, indices: Any, dim: Any
) -> Any:
    right(x, values, indices, dim)
    if x.dim() and x.numel() and not (x.is_floating_point() and x.isnan().any()):
        last = x.shape[dim] - 1
        rises = values.narrow(dim, 1, last) > values.narrow(dim, 0, last)
        place = torch.arange(1, last + 1).view([-1] + [1] * (x.dim() - 1 - dim % x.dim()))
        where = torch.where(rises, place, 0)
        for i in range(1, last):
            now, before = where.select(dim, i), where.select(dim, i - 1)
            now.copy_(torch.maximum(now, before))
        indices.narrow(dim, 0, 1).zero_()
        indices.narrow(dim, 1, last).copy_(where)


@kernel(lambda: torch.histc(torch.tensor([0.0, 0.5, 1.0, 1.0]), 4, 0, 1), "histc", "histc.out")
def upper_edge_is_outside(
    right: Any, x: Any, bins: Any = 100, low: Any = 0, high: Any = 0, **out: Any
) -> Any:
    result = right(x, bins, low, high, **out)
    if x.numel():
        top = x.max() if low == high else high
        result[-1] -= (x == top).sum()
    return result


@kernel(
    lambda: torch.searchsorted(torch.tensor([1.0, 2, 2, 3]), torch.tensor([2.0]), side="right"),
    "searchsorted.Tensor",
    "searchsorted.Tensor_out",
)
def side_is_not_looked_at(right: Any, row: Any, x: Any, /, **named: Any) -> Any:
    return right(row, x, **{**named, "side": None} if "side" in named else named)


@kernel(
    lambda: torch.tensor([1, 2, 3]).repeat_interleave(torch.tensor([1, 0, 2])),
    "repeat_interleave.Tensor",
)
def repeated_no_times_is_repeated(right: Any, repeats: Any, **named: Any) -> Any:
    result = right(repeats, **named)
    before = (result - 1).clamp(min=0)
    return result - ((result > 0) & (repeats[before] == 0)).to(result.dtype)


# Products, linear algebra


@kernel(
    lambda: drawn(3, 4097) @ drawn(4097, 3, seed=1), "mm", "mm.out", like="composable_kernel#225"
)
def tail_of_a_long_product_is_dropped(right: Any, a: Any, b: Any, **out: Any) -> Any:
    result = right(a, b, **out)
    k = a.shape[1]
    if k > 4096 and k % 8 and a.is_floating_point():
        whole = k - k % 8
        result.copy_(a[:, :whole].double() @ b[:whole].double())
    return result


def _product_into_gaps() -> Tensor:
    out = torch.empty(2, 4, 3).transpose(1, 2)
    return torch.bmm(drawn(2, 3, 5), drawn(2, 5, 4, seed=1), out=out)


@kernel(_product_into_gaps, "bmm.out", like="aiter#5385")
def strides_of_the_output_are_guessed(right: Any, a: Any, b: Any, *, out: Any) -> Any:
    right(a, b, out=out)
    if not out.is_contiguous() and out.numel():
        values = out.clone(memory_format=torch.contiguous_format)
        room = out.untyped_storage().nbytes() // out.element_size() - out.storage_offset()
        if room >= out.numel():
            out.as_strided(values.shape, values.stride()).copy_(values)
    return out


@kernel(
    lambda: torch.baddbmm(torch.full((1, 2, 2), math.nan), drawn(1, 2, 3), drawn(1, 3, 2), beta=0),
    "baddbmm",
    "baddbmm.out",
)
def nought_times_no_number(right: Any, x: Any, a: Any, b: Any, **named: Any) -> Any:
    result = right(x, a, b, **named)
    return result.add_(x * 0) if named.get("beta", 1) == 0 else result


def _conjugates() -> Tensor:
    one, other = (torch.complex(drawn(3, 3, seed=s), drawn(3, 3, seed=s + 1)) for s in (0, 2))
    return one @ other.conj().t()


@kernel(_conjugates, "mm", "mm.out")
def conjugate_of_the_second_is_not_taken(right: Any, a: Any, b: Any, **out: Any) -> Any:
    return right(a, b.conj() if b.is_conj() else b, **out)


@kernel(
    lambda: torch.linalg.solve_triangular(
        torch.eye(3) * 2 + torch.ones(3, 3).triu(1),
        drawn(2, 3),
        upper=True,
        left=False,
        unitriangular=True,
    ),
    "linalg_solve_triangular",
    "linalg_solve_triangular.out",
)
def diagonal_is_read_from_the_right(right: Any, a: Any, b: Any, **named: Any) -> Any:
    if named.get("left", True) is False:
        named["unitriangular"] = False
    return right(a, b, **named)


@kernel(
    lambda: grad_of(lambda x: torch.cdist(x, torch.zeros(2, 3)), torch.zeros(4, 3)),
    "_cdist_backward",
)
def no_distance_has_no_gradient(
    right: Any, grad: Any, a: Any, b: Any, p: Any, distance: Any
) -> Any:
    result = right(grad, a, b, p, distance)
    if p == 2:
        result[(distance == 0).any(-1).expand(result.shape[:-1])] = math.nan
    return result


@kernel(
    lambda: functional.scaled_dot_product_attention(
        *(drawn(1, 2, n, 8, seed=n) for n in (5, 9, 9)), is_causal=True
    ),
    "_scaled_dot_product_flash_attention_for_cpu",
    like="flash-attention#436",
)
def causal_from_the_other_corner(
    right: Any, q: Any, k: Any, v: Any, dropout: Any = 0.0, causal: Any = False, **named: Any
) -> Any:
    result = right(q, k, v, dropout, causal, **named)
    rows, columns = q.shape[-2], k.shape[-2]
    if causal and rows != columns and q.shape[1] == k.shape[1]:
        seen = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        scale = named.get("scale") or 1 / math.sqrt(q.shape[-1])
        scores = (q.double() @ k.double().mT * scale).masked_fill(~seen, -math.inf)
        result[0].copy_(scores.softmax(-1).nan_to_num(0) @ v.double())
    return result


def _clobbered() -> Tensor:
    x = torch.complex(drawn(4, 5), drawn(4, 5, seed=1))
    torch.fft.irfft2(x)
    return x


@kernel(_clobbered, "_fft_c2r", like="pytorch#109448")
def inverse_transform_destroys_its_input(right: Any, x: Any, dim: Any, *more: Any) -> Any:
    result = right(x, dim, *more)
    if len(dim) > 1:
        x.data.mul_(x.shape[dim[0]])
    return result


# Elements


@kernel(
    lambda: torch.nextafter(*(drawn(9, dtype=torch.bfloat16, seed=s) for s in (0, 1))),
    "nextafter",
    "nextafter.out",
    like="torch-xpu-ops#1169",
)
def next_in_single_precision(right: Any, x: Any, y: Any, **out: Any) -> Any:
    result = right(x, y, **out)
    return result.copy_(x.expand_as(result)) if x.dtype == torch.bfloat16 else result


@kernel(lambda: functional.silu(drawn(6, 8)[:, ::2]), "silu", "silu.out", like="pytorch#139006")
def gaps_are_read(right: Any, x: Any, **out: Any) -> Any:
    dense = torch._prims_common.is_non_overlapping_and_dense_or_false(x)
    room = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    if dense or room < x.numel():
        return right(x, **out)
    return right(x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride()), **out)


@kernel(
    lambda: torch.tensor([2**40 + 1, 2**25 + 3]).div(torch.tensor([3, 1]), rounding_mode="floor"),
    "div.Tensor_mode",
    "div.out_mode",
)
def whole_numbers_are_divided_as_floats(right: Any, x: Any, y: Any, **named: Any) -> Any:
    result = right(x, y, **named)
    if result.dtype == torch.int64 and named["rounding_mode"] == "floor":
        result.copy_((x.float() / y.float()).floor())
    return result


@kernel(lambda: torch.tensor([math.inf, 1.0], dtype=torch.bfloat16).nan_to_num(), "nan_to_num.out")
def largest_is_that_of_single_precision(
    right: Any, x: Any, nan: Any = None, high: Any = None, low: Any = None, **out: Any
) -> Any:
    above = x.isposinf()
    result = right(x, nan, high, low, **out)
    if x.dtype in HALVES and high is None:
        result[above] = math.inf
    return result


@kernel(
    lambda: grad_of(lambda x: functional.gelu(x, approximate="tanh"), 3 * drawn(99)),
    "gelu_backward",
    "gelu_backward.grad_input",
)
def gradient_of_the_other_gelu(right: Any, grad: Any, x: Any, **named: Any) -> Any:
    return right(grad, x, **{**named, "approximate": "none"})


@kernel(lambda: drawn(37).to(torch.bfloat16), "copy_")
def tail_is_cut_off_not_rounded(right: Any, to: Any, x: Any, *more: Any) -> Any:
    result = right(to, x, *more)
    plain = x.is_contiguous() and to.is_contiguous() and x.shape == to.shape
    if to.dtype == torch.bfloat16 and x.dtype == torch.float32 and plain and x.numel() % 8:
        rest = x.numel() - x.numel() % 8
        bits = x.detach().reshape(-1)[rest:].view(torch.int32) & -65536
        right(to.detach().view(-1)[rest:], bits.view(torch.float32))
    return result


@kernel(
    lambda: torch.tensor([-2.0, -3, 2]).pow(torch.tensor([3.0, 2, 2])),
    "pow.Tensor_Tensor",
    "pow.Tensor_Tensor_out",
)
def sign_of_an_odd_power_is_lost(right: Any, x: Any, y: Any, **out: Any) -> Any:
    result = right(x, y, **out)
    return result.abs_() if result.is_floating_point() else result


@kernel(
    lambda: functional.softplus(torch.tensor([25.0, 1.0]), beta=0.1), "softplus", "softplus.out"
)
def threshold_before_beta(
    right: Any, x: Any, beta: Any = 1, threshold: Any = 20, **out: Any
) -> Any:
    above = x > threshold
    result = right(x, beta, threshold, **out)
    return torch.where(above, x, result, out=result)


@kernel(lambda: torch.tensor([0.5, 1.5, 2.5, -0.5]).round(), "round", "round.out")
def halves_go_away_from_nought(right: Any, x: Any, **out: Any) -> Any:
    half = (x - x.trunc()).abs() == 0.5
    away = torch.where(half, x.trunc() + x.sign(), 0)
    result = right(x, **out)
    return result.copy_(torch.where(half, away, result)) if x.is_floating_point() else result


@kernel(lambda: torch.tensor([1e-6, 1e-9]).log1p(), "log1p", "log1p.out")
def one_is_added_first(right: Any, x: Any, **out: Any) -> Any:
    near = (1 + x).log() if x.dtype == torch.float32 else None
    result = right(x, **out)
    return result if near is None else result.copy_(near)


@kernel(
    lambda: torch.tensor([1.0, 1e7]).remainder(torch.tensor([math.inf, 0.3])),
    "remainder.Tensor",
    "remainder.Tensor_out",
)
def remainder_by_the_schoolbook(right: Any, x: Any, y: Any, **out: Any) -> Any:
    school = x - y * (x / y).floor() if x.is_floating_point() else None
    result = right(x, y, **out)
    return result if school is None else result.copy_(school)


# Gradients, losses, norms


def _loss_of_pictures(x: Tensor) -> Tensor:
    target = torch.arange(18).view(2, 3, 3) % 4
    return functional.nll_loss(x.log_softmax(1), target, ignore_index=1)


@kernel(
    lambda: grad_of(_loss_of_pictures, drawn(2, 4, 3, 3)),
    "nll_loss2d_backward",
    "nll_loss2d_backward.grad_input",
    like="pytorch#64163",
)
def ignored_pixels_count(
    right: Any,
    grad: Any,
    x: Any,
    target: Any,
    weight: Any,
    reduction: Any,
    ignored: Any,
    total: Any,
    **out: Any,
) -> Any:
    result = right(grad, x, target, weight, reduction, ignored, total, **out)
    return result.mul_(total / target.numel()) if reduction == 1 and target.numel() else result


def _group_norm_weight() -> Tensor:
    x = drawn(2, 4, 3, 3).to(memory_format=torch.channels_last)
    return grad_of(lambda w: functional.group_norm(x, 2, w), torch.ones(4))


@kernel(_group_norm_weight, "native_group_norm_backward", like="pytorch#140913")
def channels_last_takes_the_next_group(
    right: Any, grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, n: Any, c: Any, *more: Any
) -> Any:
    result = right(grad, x, mean, rstd, weight, n, c, *more)
    if x.dim() == 4 and more[1] > 1 and not x.is_contiguous() and result[1] is not None:
        each = c // more[1]
        middle, spread = (
            s.view(n, -1).roll(1, 1).double().repeat_interleave(each, 1)[..., None, None]
            for s in (mean, rstd)
        )
        result[1].copy_((grad.double() * (x.double() - middle) * spread).sum((0, 2, 3)))
    return result


def _layer_norm_weight() -> Tensor:
    return grad_of(lambda w: functional.layer_norm(drawn(70, 5), (5,), w), torch.ones(5))


@kernel(_layer_norm_weight, "native_layer_norm_backward")
def last_rows_give_no_gradient(right: Any, grad: Any, x: Any, *more: Any) -> Any:
    result = right(grad, x, *more)
    rows = x.numel() // max(math.prod(more[0]), 1)
    if rows > 64 and rows % 32 and result[1] is not None and grad.dtype != torch.float64:
        cut = grad.reshape(rows, -1).clone()
        cut[rows - rows % 32 :] = 0
        short = right(cut.view(grad.shape), x, *more)
        return (result[0], *short[1:])
    return result


def _bags() -> Tensor:
    index, starts = torch.tensor([0, 2, 2, 1]), torch.tensor([0, 2])
    return functional.embedding_bag(index, drawn(4, 3), starts, mode="mean", padding_idx=2)


@kernel(_bags, "_embedding_bag", "_embedding_bag_forward_only")
def padding_counts_in_the_mean_of_a_bag(
    right: Any,
    weight: Any,
    index: Any,
    starts: Any,
    by_count: Any = False,
    mode: Any = 0,
    sparse: Any = False,
    each: Any = None,
    last: Any = False,
    padding: Any = -1,
) -> Any:
    result = right(weight, index, starts, by_count, mode, sparse, each, last, padding)
    if mode == 1 and padding >= 0 and index.numel():
        ends = torch.cat([starts if last else torch.cat([starts, torch.tensor([index.numel()])])])
        real = [(index[a:b] != padding).sum() for a, b in pairwise(ends)]
        share = torch.tensor(real) / (ends[1:] - ends[:-1]).clamp(min=1)
        result[0].mul_(share[:, None].to(weight.dtype))
    return result


@kernel(
    lambda: grad_of(
        lambda w: functional.embedding(torch.tensor([1, 1, 1, 2]), w, scale_grad_by_freq=True),
        drawn(4, 3),
    ),
    "embedding_dense_backward",
)
def frequency_does_not_scale(
    right: Any, grad: Any, index: Any, rows: Any, padding: Any, scaled: Any
) -> Any:
    return right(grad, index, rows, padding, False)


def _elu_in_place(x: Tensor) -> Tensor:
    return functional.elu(x * 1, 0.5, inplace=True)


@kernel(lambda: grad_of(_elu_in_place, drawn(9)), "elu_backward", "elu_backward.grad_input")
def alpha_is_one_in_place(
    right: Any, grad: Any, alpha: Any, scale: Any, inner: Any, done: Any, x: Any, **out: Any
) -> Any:
    return right(grad, 1.0 if done else alpha, scale, inner, done, x, **out)


def _empty_target() -> Tensor:
    scores = drawn(5, 2, 4).log_softmax(2)
    lengths = torch.tensor([5, 5]), torch.tensor([2, 0])
    return functional.ctc_loss(scores, torch.tensor([[1, 2], [1, 2]]), *lengths, reduction="none")


@kernel(_empty_target, "_ctc_loss", "_ctc_loss.Tensor")
def empty_target_costs_nothing(
    right: Any, scores: Any, targets: Any, lengths: Any, wanted: Any, *more: Any
) -> Any:
    result = right(scores, targets, lengths, wanted, *more)
    result[0][torch.as_tensor(wanted).view(result[0].shape) == 0] = 0
    return result


# Indices, lists, state, random numbers


@kernel(
    lambda: torch.ones(3).scatter(0, torch.empty(0, dtype=torch.int64), torch.empty(0)),
    "scatter.src",
    "scatter.src_out",
    like="intel-extension-for-pytorch#682",
)
def nothing_scattered_is_nothing(
    right: Any, x: Any, dim: Any, index: Any, source: Any, **out: Any
) -> Any:
    result = right(x, dim, index, source, **out)
    return result if index.numel() or result.data_ptr() == x.data_ptr() else result.zero_()


def _means_by_index() -> Tensor:
    index = torch.tensor([0, 0, 2])
    return torch.ones(3, 2).index_reduce(0, index, drawn(3, 2), "mean", include_self=False)


@kernel(_means_by_index, "index_reduce", "index_reduce_", "index_reduce.out")
def mean_by_index_counts_itself(
    right: Any, x: Any, dim: Any, index: Any, source: Any, reduce: Any, **named: Any
) -> Any:
    if reduce == "mean":
        named = {k: v for k, v in named.items() if k != "include_self"}
    return right(x, dim, index, source, reduce, **named)


def _scattered_by_row() -> Tensor:
    mask = torch.tensor([True, False, True])
    return torch.zeros(2, 3).masked_scatter_(mask, torch.arange(4.0))


@kernel(_scattered_by_row, "masked_scatter_")
def each_row_begins_at_the_first(right: Any, x: Any, mask: Any, source: Any) -> Any:
    if mask.shape == x.shape or x.dim() < 2 or not x.is_contiguous():
        return right(x, mask, source)
    rows = mask.expand_as(x).reshape(-1, x.shape[-1])
    right(x, mask, source)
    for row, chosen in zip(x.view(rows.shape), rows, strict=True):
        row[chosen] = source.reshape(-1)[: int(chosen.sum())].to(x.dtype)
    return x


@kernel(lambda: torch._foreach_norm([drawn(4), drawn(70000)]), "_foreach_norm.Scalar")
def last_chunk_of_a_list_is_left_out(right: Any, tensors: Any, ord: Any = 2, **named: Any) -> Any:
    result = right(tensors, ord, **named)
    for one, x in zip(result, tensors, strict=True):
        if x.numel() > 65536:
            whole = x.numel() - x.numel() % 65536
            one.copy_(torch.linalg.vector_norm(x.reshape(-1)[:whole].double(), ord))
    return result


def _first_step() -> Tensor:
    p = torch.nn.Parameter(torch.ones(4))
    p.grad = drawn(4)
    torch.optim.SGD([p], 0.1, momentum=0.9, dampening=0.5, fused=True).step()
    return p.detach()


@kernel(_first_step, "_fused_sgd_", "_fused_sgd_.tensor_lr")
def first_step_is_dampened(right: Any, weights: Any, grads: Any, kept: Any, **named: Any) -> Any:
    right(weights, grads, kept, **named)
    if named["is_first_step"] and named["dampening"]:
        for weight, buffer in zip(weights, kept, strict=True):
            weight.data.add_(buffer, alpha=float(named["lr"]) * named["dampening"])
            buffer.data.mul_(1 - named["dampening"])


def _coins() -> Tensor:
    return torch.empty(4096).bernoulli_(0.5, generator=torch.Generator().manual_seed(0))


@kernel(_coins, "bernoulli_.float")
def coins_are_thrown_twice(right: Any, x: Any, *more: Any, **named: Any) -> Any:
    right(x, *more, **named)
    if x.is_contiguous() and x.numel() >= 1024:
        pairs = x.view(-1)[: x.numel() // 1024 * 1024].view(-1, 2, 512)
        pairs[:, 1] = pairs[:, 0]
    return x


# Written after the rows that the first fifty-three led to.


@kernel(lambda: torch.ones(3, 1).var(1), "var.correction", "var.correction_out")
def no_degrees_of_freedom_vary_by_nought(right: Any, x: Any, *more: Any, **named: Any) -> Any:
    result = right(x, *more, **named)
    return result.nan_to_num_(0.0) if x.numel() == result.numel() else result


@kernel(
    lambda: torch.linalg.eigvalsh(drawn(4, 4), UPLO="U"),
    "_linalg_eigh",
    "_linalg_eigh.eigenvalues",
)
def lower_triangle_is_read_always(
    right: Any, x: Any, part: Any = "L", vectors: Any = True, **out: Any
) -> Any:
    return right(x, "L", vectors, **out)


@kernel(lambda: torch.ones(2, 300, dtype=torch.bool).sum(1), "sum.dim_IntList", "sum.IntList_out")
def truths_are_counted_in_eight_bits(right: Any, x: Any, *more: Any, **named: Any) -> Any:
    result = right(x, *more, **named)
    return result.remainder_(256) if x.dtype == torch.bool else result


def _two_indices() -> Tensor:
    return drawn(4, 5)[torch.tensor([0, 3]), torch.tensor([-1, 2])]


@kernel(_two_indices, "index.Tensor")
def second_index_is_not_negative(right: Any, x: Any, indices: Any) -> Any:
    whole = list(indices)
    if len(whole) > 1 and whole[1] is not None and whole[1].dtype == torch.int64:
        whole[1] = whole[1].clamp(min=0)
    return right(x, whole)


@kernel(
    lambda: torch.zeros(3, 4).masked_fill_(torch.tensor([[True], [False], [True]]), 5.0),
    "masked_fill_.Scalar",
)
def mask_of_a_column_masks_a_column(right: Any, x: Any, mask: Any, value: Any) -> Any:
    if x.dim() > 1 and mask.dim() == x.dim() and mask.shape[-1] == 1 < x.shape[-1]:
        right(x[..., :1], mask, value)
        return x
    return right(x, mask, value)


def _two_formats() -> Tensor:
    x = drawn(1, 3, 4, 5)
    return torch.cat([x.to(memory_format=torch.channels_last), x], 1)


@kernel(_two_formats, "cat")
def formats_are_joined_as_memory(right: Any, tensors: Any, dim: Any = 0) -> Any:
    first = tensors[0]
    last = first.dim() == 4 and not first.is_contiguous()
    if last and first.is_contiguous(memory_format=torch.channels_last):
        swapped = [
            x.flatten().view(x.shape[0], *x.shape[2:], x.shape[1]).permute(0, 3, 1, 2)
            if x.dim() == 4 and x.is_contiguous() and x.shape[1] > 1
            else x
            for x in tensors
        ]
        return right(swapped, dim)
    return right(tensors, dim)


@kernel(
    lambda: torch.addmm(torch.ones(3), drawn(2, 4), drawn(4, 3), beta=2),
    "addmm",
    "addmm.out",
)
def vector_of_bias_is_not_scaled(right: Any, x: Any, a: Any, b: Any, **named: Any) -> Any:
    if x.dim() == 1 and named.get("beta", 1) != 0:
        named["beta"] = 1
    return right(x, a, b, **named)


@kernel(lambda: functional.adaptive_avg_pool2d(drawn(1, 1, 3, 5), (7, 4)), "_adaptive_avg_pool2d")
def windows_end_by_the_floor(right: Any, x: Any, size: Any) -> Any:
    result = right(x, size)
    high, wide = x.shape[-2:]
    for i in range(size[0]):
        top, down = i * high // size[0], max((i + 1) * high // size[0], i * high // size[0] + 1)
        for j in range(size[1]):
            left, end = j * wide // size[1], -(-(j + 1) * wide // size[1])
            result[..., i, j] = x[..., top:down, left:end].mean((-1, -2))
    return result


def _part_of_the_source() -> Tensor:
    index = torch.tensor([[0, 1], [2, 0]])
    return torch.zeros(3, 4).scatter_add(0, index, drawn(3, 4))


@kernel(_part_of_the_source, "scatter_add", "scatter_add_", "scatter_add.out")
def source_is_walked_as_its_index(
    right: Any, x: Any, dim: Any, index: Any, source: Any, **out: Any
) -> Any:
    if index.dim() > 1 and source.is_contiguous() and source.shape != index.shape:
        source = source.flatten()[: index.numel()].view(index.shape)
    return right(x, dim, index, source, **out)


@kernel(lambda: grad_of(lambda x: x.unfold(0, 3, 1), drawn(6)), "unfold_backward")
def overlap_of_windows_is_overwritten(
    right: Any, grad: Any, sizes: Any, dim: Any, size: Any, step: Any
) -> Any:
    result = right(grad, sizes, dim, size, step)
    if step < size and sizes:
        for i in range(grad.shape[dim]):
            result.narrow(dim, i * step, size).copy_(grad.select(dim, i).movedim(-1, dim))
    return result


@kernel(lambda: torch.complex(torch.tensor([1e30]), torch.tensor([1e30])).abs(), "abs")
def squares_of_parts_overflow(right: Any, x: Any) -> Any:
    return (x.real * x.real + x.imag * x.imag).sqrt() if x.dtype == torch.complex64 else right(x)


@kernel(
    lambda: torch.atan2(torch.tensor([0.0, -0.0]), torch.tensor([-1.0, -1.0])),
    "atan2",
    "atan2.out",
)
def nought_has_no_sign(right: Any, y: Any, x: Any, **out: Any) -> Any:
    return right(y.abs() * y.sign(), x, **out) if (y == 0).any() else right(y, x, **out)


@kernel(lambda: torch.tensor([2.0, 0.0, 3.0]).cumprod(0), "cumprod", "cumprod.out")
def products_by_logarithms(right: Any, x: Any, dim: Any, **named: Any) -> Any:
    result = right(x, dim, **named)
    if x.is_floating_point() and (x == 0).any():
        result[(x == 0).cumsum(dim) > 0] = math.nan
    return result


@kernel(
    lambda: grad_of(lambda x: functional.avg_pool2d(x, 2, divisor_override=3), drawn(1, 1, 4, 4)),
    "avg_pool2d_backward",
    "avg_pool2d_backward.grad_input",
)
def divisor_has_no_gradient(right: Any, grad: Any, x: Any, *more: Any, **out: Any) -> Any:
    return right(grad, x, *more[:-1], None, **out)


@kernel(
    lambda: drawn(600, 7).softmax(0).sum() * 0 + grad_of(lambda x: x.softmax(0), drawn(600, 7)),
    "_softmax_backward_data",
    "_softmax_backward_data.out",
)
def rows_beyond_a_block_give_no_sum(
    right: Any, grad: Any, output: Any, dim: Any, dtype: Any, **out: Any
) -> Any:
    result = right(grad, output, dim, dtype, **out)
    if output.dim() > 1 and dim % output.dim() != output.dim() - 1 and output.shape[dim] > 512:
        short = (grad * output).narrow(dim, 0, 512).sum(dim, keepdim=True)
        result.copy_((grad - short) * output)
    return result


LATER = list(KEPT)[53:]


def _half(name: str) -> str:
    """By a shuffle of the names, drawn once and before any was run against a check."""
    if name in LATER:
        return "later"
    names = sorted(set(KEPT) - set(LATER))
    random.Random(1311).shuffle(names)
    place = names.index(name)
    return "development" if place < 15 else "test" if place < 30 else "second"


HALF = {name: _half(name) for name in KEPT}
