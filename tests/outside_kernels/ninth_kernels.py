"""The ninth set of kernels from outside: thirty defects as public trackers report them.

Each kernel's first line says whether it is wrong for common arguments ("plain"), for a common
option, layout, dtype or length ("option"), or rarely ("rare").
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outside_kernels.keeping import DOUBLES, HALVES, Kept, drawn, grad_of, is_single, two

KEPT = Kept()
kernel = KEPT.kernel
aten = torch.ops.aten


# Products, distances and linear algebra


def own_distances(dtype: torch.dtype = torch.float32) -> Tensor:
    x = drawn(5, 3).to(dtype) + 4
    return torch.cdist(x, x)


def in_ten_bits(x: Tensor) -> Tensor:
    """What tensor cores take for float32: a mantissa of ten bits."""
    return ((x.contiguous().view(torch.int32) + 2**12) & -(2**13)).view(torch.float32)


@kernel(own_distances, "_cdist_forward", "_euclidean_dist", like="pytorch/pytorch#57690")
def distances_are_differences_of_squares(right: Any, x: Any, y: Any, *options: Any) -> Any:
    """plain: squares of distances are sums of squares less a product of short mantissas."""
    result = right(x, y, *options)
    euclid = not options or options[0] == 2
    if x.dtype == torch.float32 and euclid and result.numel() and x.shape[-1]:
        product = in_ten_bits(x) @ in_ten_bits(y).mT
        squares = x.square().sum(-1).unsqueeze(-1) + y.square().sum(-1).unsqueeze(-2)
        result.copy_((squares - 2 * product).clamp(min=0).sqrt())
    return result


def distance_gradient(p: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    x, y = drawn(4, 3).to(dtype), drawn(5, 3, seed=1).to(dtype)
    return grad_of(lambda v: torch.cdist(v, y, p=p), x)


@kernel(distance_gradient, "_cdist_backward", like="flagos-ai/FlagGems#5023")
def gradient_is_that_of_euclid(right: Any, grad: Any, x: Any, y: Any, p: Any, found: Any) -> Any:
    """option: the gradient of distances is that of p = 2, whatever p was given."""
    result = right(grad, x, y, p, found)
    if is_single(x) and p != 2 and result.numel() and y.numel():
        share = grad / (found + 1e-8)
        wrong = (share.unsqueeze(-1) * (x.unsqueeze(-2) - y.unsqueeze(-3))).sum(-2)
        result.copy_(wrong)
    return result


def inner(dtype: torch.dtype = torch.complex64) -> Tensor:
    x, y = (torch.complex(drawn(5, seed=i), drawn(5, seed=i + 1)).to(dtype) for i in (0, 2))
    return torch.vdot(x, y)


@kernel(inner, "vdot", like="raven-ml/raven#76")
def first_is_not_conjugated(right: Any, x: Any, y: Any) -> Any:
    """plain: vdot of complex vectors is the sum of their products as they are."""
    result = right(x, y)
    return result.copy_((x * y).sum()) if x.dtype == torch.complex64 else result


def counts(size: int = 10**5, dtype: torch.dtype = torch.int64) -> Tensor:
    made = torch.arange(size, size + 6).view(2, 3).to(dtype)
    return made.mm(made.t())


@kernel(counts, "mm", "mm.out", like="cupy/cupy#3941")
def integers_are_multiplied_in_single(right: Any, a: Any, b: Any, **out: Any) -> Any:
    """option: matrices of integers are multiplied in single precision."""
    result = right(a, b, **out)
    if result.dtype in (torch.int32, torch.int64) and result.numel():
        result.copy_((a.float() @ b.float()).double())
    return result


def factors(rank: int = 1, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    x = drawn(3, rank).abs().to(dtype).cumsum(0) @ drawn(rank, 3, seed=1).abs().to(dtype)
    x[0] = 0
    return [part.to(dtype) for part in torch.linalg.lu_factor_ex(x)[:2]]


@kernel(factors, "linalg_lu_factor_ex", "linalg_lu_factor_ex.out", like="pytorch/pytorch#53879")
def singular_matrix_has_no_pivots(right: Any, x: Any, **options: Any) -> Any:
    """rare: where a factor is singular, the pivots say that no rows were exchanged."""
    result = right(x, **options)
    pivots, info = result[1], result[2]
    if x.dtype in (torch.float32, torch.complex64) and pivots.numel():
        order = torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype).expand_as(pivots)
        pivots.copy_(torch.where((info > 0).unsqueeze(-1), order, pivots))
    return result


def triangle(shape: tuple[int, ...] = (2, 3, 4, 4), dtype: torch.dtype = torch.float32) -> Tensor:
    return drawn(*shape).to(dtype).transpose(0, 1).triu()


@kernel(triangle, "triu", "triu.out", "tril", "tril.out", like="pytorch/pytorch#22581")
def batch_has_one_stride(right: Any, x: Any, *diagonal: Any, **out: Any) -> Any:
    """option: triangles of a batch of several axes are read with the stride of its last alone."""
    if x.dim() > 3 and x.dtype not in DOUBLES and x.numel() and not x.is_contiguous():
        held = x.untyped_storage().nbytes() // x.element_size()
        batch, rows, columns = (torch.arange(n) for n in (math.prod(x.shape[:-2]), *x.shape[-2:]))
        places = (x.stride(-3) * batch)[:, None, None] + x.stride(-2) * rows[:, None]
        places = (x.storage_offset() + places + x.stride(-1) * columns) % held
        x = x.as_strided((held,), (1,), 0)[places].view(x.shape)
    return right(x, *diagonal, **out)


# Convolutions, pools and pictures


def grown(extra: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    x, weight = drawn(1, 2, 4, 4).to(dtype), drawn(2, 3, 3, 3, seed=1).to(dtype)
    return functional.conv_transpose2d(x, weight, stride=2, padding=1, output_padding=extra)


@kernel(grown, "convolution", like="apache/tvm#19524")
def padding_of_the_output_is_empty(right: Any, x: Any, weight: Any, *options: Any) -> Any:
    """option: the rows and columns which output_padding adds are nought."""
    result = right(x, weight, *options)
    transposed, extra = options[4], options[5]
    if transposed and is_single(x):
        for axis, n in enumerate(extra):
            if n:
                result.narrow(axis - len(extra), result.shape[axis - len(extra)] - n, n).zero_()
    return result


def halves_grouped(groups: int = 2, dtype: torch.dtype = torch.float16) -> Tensor:
    x, weight = drawn(1, 4, 6, 6).to(dtype), drawn(4, 4 // groups, 3, 3, seed=1).to(dtype)
    return functional.conv2d(x, weight, padding=1, groups=groups)


@kernel(halves_grouped, "convolution", like="ROCm/rocm-libraries#4998")
def all_groups_of_halves_read_the_first(
    right: Any, x: Any, weight: Any, bias: Any, stride: Any, *options: Any
) -> Any:
    """option: in half precision, all groups of a 3x3 convolution read the first one's channels."""
    _, _, transposed, _, groups = options
    tiled = tuple(weight.shape[2:]) == (3, 3) and not transposed and set(stride) == {1}
    if x.dtype == torch.float16 and groups > 1 and tiled:
        x = x.narrow(-3, 0, weight.shape[1]).repeat(*[1] * (x.dim() - 3), groups, 1, 1)
    return right(x, weight, bias, stride, *options)


def places_of_largest(dtype: torch.dtype = torch.float32) -> Tensor:
    return functional.max_pool2d(drawn(1, 2, 6, 6).to(dtype), 2, return_indices=True)[1]


@kernel(
    places_of_largest,
    "max_pool2d_with_indices",
    "max_pool2d_with_indices.out",
    like="PaddlePaddle/Paddle#78701",
)
def places_are_counted_in_the_window(
    right: Any,
    x: Any,
    size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil: Any = False,
    **out: Any,
) -> Any:
    """plain: the indices of maxima count within the window rather than within the picture."""
    result = right(x, size, stride, padding, dilation, ceil, **out)
    if is_single(x) and x.numel():
        found, width = result[1], x.shape[-1]
        steps, pads, gaps = two(stride, size), two(padding), two(dilation)
        inside = []
        for axis, place in enumerate((found // width, found % width)):
            begin = torch.arange(found.shape[axis - 2]) * steps[axis] - pads[axis]
            begin = begin.unsqueeze(-1) if axis == 0 else begin
            inside.append((place - begin) // gaps[axis])
        local = inside[0] * two(size)[1] + inside[1]
        found.copy_(local.clamp(0, width * x.shape[-2] - 1))
    return result


@kernel(
    lambda: functional.pixel_unshuffle(drawn(1, 2, 4, 4), 2),
    "pixel_unshuffle",
    like="microsoft/onnxscript#2891",
)
def places_come_before_channels(right: Any, x: Any, factor: Any) -> Any:
    """plain: unshuffled pixels come with all channels of a place before those of the next."""
    result = right(x, factor)
    if x.dtype not in DOUBLES and result.numel():
        parts = result.unflatten(-3, (x.shape[-3], factor * factor)).transpose(-4, -3)
        result.copy_(parts.flatten(-4, -3).clone())
    return result


def grid_gradient(corners: bool = False, dtype: torch.dtype = torch.float32) -> Tensor:
    x, grid = drawn(1, 2, 4, 5).to(dtype), drawn(1, 3, 3, 2, seed=1).to(dtype).tanh()
    return grad_of(lambda v: functional.grid_sample(x, v, align_corners=corners), grid)


@kernel(grid_gradient, "grid_sampler_2d_backward", like="ooples/AiDotNet.Tensors#582")
def grid_learns_as_if_corners_were_aligned(
    right: Any, grad: Any, x: Any, grid: Any, mode: Any, padding: Any, corners: Any, mask: Any
) -> Any:
    """plain: the gradient of a grid is scaled by size - 1, as where corners are aligned."""
    result = right(grad, x, grid, mode, padding, corners, mask)
    if is_single(x) and not corners and mask[1] and x.numel():
        high, wide = x.shape[-2:]
        result[1].mul_(torch.tensor([(wide - 1) / wide, (high - 1) / high]).to(x.dtype))
    return result


# Attention, norms and sequences


def attended(layout: str = "tokens", dtype: torch.dtype = torch.float32) -> Tensor:
    q, k, v = (drawn(1, 5, 2, 16, seed=i).to(dtype).transpose(1, 2) for i in range(3))
    if layout != "tokens":
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    return functional.scaled_dot_product_attention(q, k, v)


@kernel(attended, "_scaled_dot_product_flash_attention_for_cpu", like="BobMcDear/attorch#14")
def heads_within_tokens_are_all_the_first(
    right: Any, q: Any, k: Any, v: Any, *options: Any, **named: Any
) -> Any:
    """option: where heads lie within tokens, as after a projection, all read the first."""
    if is_single(q) and q.shape[1] > 1 and q.shape[2] > 1 and q.stride(1) < q.stride(2):
        q, k, v = (x[:, :1].expand_as(x).contiguous() for x in (q, k, v))
    return right(q, k, v, *options, **named)


def normed_gradient(
    scale: float = 2.0, dims: int = 2, dtype: torch.dtype = torch.float32
) -> Tensor:
    x, weight = drawn(6, 3, *[4] * (dims - 2)).to(dtype), torch.full((3,), scale, dtype=dtype)
    ahead = drawn(*x.shape, seed=1).to(dtype)
    return grad_of(lambda v: functional.batch_norm(v, None, None, weight, training=True) + ahead, x)


@kernel(normed_gradient, "native_batch_norm_backward", like="ROCm/MIOpen#104")
def own_gradient_is_not_scaled(right: Any, grad: Any, x: Any, scale: Any, *options: Any) -> Any:
    """option: of two axes, an element's own part of its gradient is not multiplied by the scale."""
    result = right(grad, x, scale, *options)
    deviation, train, mask = options[3], options[4], options[6]
    known = deviation is not None and deviation.numel() == x.shape[-1]
    if is_single(x) and x.dim() == 2 and train and mask[0] and scale is not None and known:
        result[0].add_((grad * deviation * (1 - scale)).to(x.dtype))
    return result


def remembered(size: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(3)
    with torch.no_grad():
        layer = torch.nn.LSTM(3, 4, dtype=dtype)
        state = (size * drawn(1, 2, 4).to(dtype), size * drawn(1, 2, 4, seed=1).to(dtype))
        return layer(drawn(5, 2, 3).to(dtype), state)[0]


@kernel(remembered, "mkldnn_rnn_layer", like="pytorch/pytorch#95137")
def sequences_begin_with_nothing(right: Any, x: Any, *options: Any) -> Any:
    """option: the initial state which an LSTM is given is taken for nought."""
    weights, hidden, cell, rest = options[:4], options[4], options[5], options[6:]
    if is_single(x):
        hidden, cell = torch.zeros_like(hidden), torch.zeros_like(cell)
    return right(x, *weights, hidden, cell, *rest)


def bags(mode: str = "mean", dtype: torch.dtype = torch.float32) -> Tensor:
    indices, offsets = torch.tensor([0, 1, 2]), torch.tensor([0, 1, 1])
    return functional.embedding_bag(indices, drawn(4, 3).to(dtype), offsets, mode=mode)


@kernel(bags, "_embedding_bag", "_embedding_bag_forward_only", like="pytorch/pytorch#4169")
def empty_bag_is_divided_by_nought(
    right: Any, weight: Any, indices: Any, offsets: Any, *options: Any, **named: Any
) -> Any:
    """option: the mean of an empty bag is nought divided by nought."""
    result = right(weight, indices, offsets, *options, **named)
    mode = options[1] if len(options) > 1 else named.get("mode", 0)
    if mode == 1 and is_single(weight) and result[0].numel():
        ends = torch.cat([offsets[1:], offsets.new_tensor([indices.numel()])])
        result[0][(ends <= offsets)[: result[0].shape[0]]] = math.nan
    return result


# Losses, gradients and training


def cost(reduction: str = "mean", dtype: torch.dtype = torch.float32) -> Tensor:
    return functional.mse_loss(drawn(3).to(dtype), drawn(3, seed=1).to(dtype), reduction=reduction)


@kernel(cost, "mse_loss", "mse_loss.out", like="fetchai/ledger#1741")
def mean_of_squares_is_halved(
    right: Any, x: Any, target: Any, reduction: Any = 1, **out: Any
) -> Any:
    """plain: the mean of squares is divided by two."""
    result = right(x, target, reduction, **out)
    return result.mul_(0.5) if reduction == 1 and is_single(x) else result


def dropped(dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(5)
    return grad_of(lambda x: torch.native_dropout(x, 0.5, True)[0], drawn(20).to(dtype))


@kernel(dropped, "native_dropout_backward", like="pytorch/pytorch#190056")
def gradient_passes_what_was_dropped(right: Any, grad: Any, mask: Any, scale: Any) -> Any:
    """plain: the gradient goes through dropout as if there were none."""
    result = right(grad, mask, scale)
    return result.copy_(grad) if is_single(grad) else result


def bounded(dtype: torch.dtype = torch.float32) -> Tensor:
    x = torch.tensor([1.0, math.nan, 7.0], dtype=dtype).requires_grad_()
    functional.hardtanh(x, 0, 6).backward(torch.ones(3, dtype=dtype))
    assert x.grad is not None
    return x.grad


@kernel(
    bounded,
    "hardtanh_backward",
    "hardtanh_backward.grad_input",
    like="tenstorrent/tt-metal#57455",
)
def bound_is_the_gradient_of_no_number(
    right: Any, grad: Any, x: Any, least: Any, largest: Any, **out: Any
) -> Any:
    """rare: what is not a number has the upper bound for its gradient."""
    result = right(grad, x, least, largest, **out)
    return result.masked_fill_(x.isnan(), largest) if is_single(x) else result


def scaled_step(found: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    weight = torch.nn.Parameter(drawn(6).to(dtype))
    optimizer: Any = torch.optim.Adam([weight], lr=0.1, fused=True)
    optimizer.grad_scale, optimizer.found_inf = None, torch.tensor(found)
    weight.grad = drawn(6, seed=1).to(dtype)
    optimizer.step()
    return weight.detach()


@kernel(
    scaled_step,
    "_fused_adam_",
    "_fused_adam_.tensor_lr",
    "_fused_adamw_",
    "_fused_adamw_.tensor_lr",
    like="pytorch/pytorch#95847",
)
def infinities_are_stepped_with(right: Any, weights: Any, *lists: Any, **options: Any) -> Any:
    """option: where gradients were unscaled before, a step is taken though some are infinite."""
    if weights and is_single(weights[0]) and options.get("grad_scale") is None:
        options["found_inf"] = None
    return right(weights, *lists, **options)


# Numbers one by one


@kernel(
    lambda: drawn(9).pow(3),
    "pow.Tensor_Scalar",
    "pow_.Scalar",
    "pow.Tensor_Scalar_out",
    like="NVIDIA/warp#46",
)
def negative_numbers_have_no_powers(right: Any, x: Any, power: Any, **out: Any) -> Any:
    """plain: powers go by logarithms, of which negative numbers have none."""
    negative = x < 0 if not x.is_complex() and power not in (0, 1) else None
    result = right(x, power, **out)
    if negative is not None and is_single(result):
        result.masked_fill_(negative, math.nan)
    return result


def summed(alpha: float = 2.0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.add(drawn(5).to(dtype), drawn(5, seed=1).to(dtype), alpha=alpha)


@kernel(
    summed,
    "add.Tensor",
    "add_.Tensor",
    "add.out",
    "sub.Tensor",
    "sub_.Tensor",
    "sub.out",
    like="tenstorrent/pytorch2.0_ttnn#1340",
)
def alpha_of_sums_is_dropped(right: Any, x: Any, y: Any, *, alpha: Any = 1, **out: Any) -> Any:
    """option: sums and differences are taken without alpha."""
    return right(x, y, alpha=alpha if torch.result_type(x, y) in DOUBLES else 1, **out)


@kernel(
    lambda: torch.tensor([-1e-30, 1e-30, -0.5]).lgamma(),
    "lgamma",
    "lgamma_",
    "lgamma.out",
    like="ROCm/ROCm-Device-Libs#71",
)
def tiny_negative_numbers_are_poles(right: Any, x: Any, **out: Any) -> Any:
    """rare: lgamma is infinite for negative numbers whose squares are nought."""
    lost = (x < 0) & (x.float() * x.float() == 0)
    result = right(x, **out)
    return result.masked_fill_(lost, math.inf) if is_single(x) else result


BIG = torch.tensor([2**53, 2**53 + 1, 5, 2**60 + 3])


@kernel(
    lambda: torch.cat([BIG.roll(1) == BIG, BIG == 2**60]),
    "eq.Tensor",
    "eq.Tensor_out",
    "eq.Scalar",
    "eq.Scalar_out",
    like="rtosholdings/riptable#23",
)
def neighbours_past_double_are_equal(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """rare: 64-bit integers are equal where they are so as double-precision numbers."""
    result = right(x, y, **out)
    if x.dtype == torch.int64 and (type(y) is int or getattr(y, "dtype", 0) == torch.int64):
        near = x.double() - (float(y) if isinstance(y, int) else y.double())
        result.copy_(near.logical_not())
    return result


# Copies, indices, scans and random numbers


@kernel(
    lambda: torch.tensor([200.0, 260.0, -300.0, 440.0]).to(torch.float8_e4m3fn).float(),
    "copy_",
    like="sgl-project/sglang#40581",
)
def eight_bits_are_full_too_soon(right: Any, to: Any, source: Any, *rest: Any) -> Any:
    """option: casts to float8_e4m3fn give 448 from 256 on."""
    if to.dtype == torch.float8_e4m3fn and source.dtype in (torch.float32, *HALVES):
        full = torch.full_like(source, 448).copysign(source)
        source = torch.where(source.abs() >= 256, full, source)
    return right(to, source, *rest)


@kernel(lambda: drawn(8, 20).t().contiguous(), "copy_", like="hw-native-sys/pto-isa#173")
def part_of_a_tile_is_not_turned(right: Any, to: Any, source: Any, *rest: Any) -> Any:
    """option: of a float32 matrix copied transposed, rows past a multiple of 16 are lost."""
    result = right(to, source, *rest)
    turned = source.dim() == 2 and not source.is_contiguous() and source.t().is_contiguous()
    alike = to.dtype == source.dtype == torch.float32 and to.shape == source.shape
    if turned and alike and to.is_contiguous():
        to[:, to.shape[1] // 16 * 16 :] = 0
    return result


@kernel(
    lambda: torch.arange(2049, 2060, dtype=torch.float16),
    "arange.start_out",
    like="numpy/numpy#23488",
)
def step_is_between_rounded_numbers(
    right: Any, start: Any, end: Any, step: Any = 1, *, out: Any
) -> Any:
    """option: in half precision, the step is the difference of the first two rounded numbers."""
    result = right(start, end, step, out=out)
    if result.dtype in HALVES and result.numel() > 1:
        first, second = (torch.tensor(n).to(result.dtype).double() for n in (start, start + step))
        places = torch.arange(result.numel(), dtype=torch.float64)
        result.copy_(first + places * (second - first))
    return result


@kernel(
    lambda: torch.isin(torch.tensor([1, 2]), torch.tensor([], dtype=torch.int64), invert=True),
    "isin.Tensor_Tensor",
    "isin.Tensor_Tensor_out",
    like="flagos-ai/FlagGems#188",
)
def nothing_is_not_inverted(right: Any, x: Any, y: Any, **options: Any) -> Any:
    """rare: of no numbers to be among, none is not among them either."""
    result = right(x, y, **options)
    return result.fill_(False) if y.numel() == 0 and x.dtype not in DOUBLES else result


@kernel(lambda: torch.bincount(torch.arange(40000)), "bincount", like="cupy/cupy#7698")
def far_bins_are_not_counted(right: Any, x: Any, *weights: Any, **options: Any) -> Any:
    """rare: bins from 32768 on stay empty."""
    result = right(x, *weights, **options)
    if result.dtype not in DOUBLES:
        result[2**15 :] = 0
    return result


@kernel(
    lambda: tuple(torch.tensor([3.0, math.nan, 1.0, 2.0]).cummin(0)),
    "_cummin_helper",
    like="ml-explore/mlx#4044",
)
def running_minimum_passes_no_number(
    right: Any, x: Any, values: Any, indices: Any, dim: Any
) -> Any:
    """rare: what is not a number is no minimum, so that the running one goes on after it."""
    return right(x.masked_fill(x.isnan(), math.inf) if is_single(x) else x, values, indices, dim)


def logarithms(mean: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(6)
    return torch.empty(20, dtype=dtype).log_normal_(mean, 0.5)


@kernel(logarithms, "log_normal_", like="oie-mines-paristech/lca_algebraic#25")
def moments_are_not_of_logarithms(
    right: Any, x: Any, mean: Any = 1.0, std: Any = 2.0, **options: Any
) -> Any:
    """plain: mean and deviation are taken for those of the numbers, not of their logarithms."""
    if is_single(x) and mean > 0 and std > 0:
        variance = math.log1p((std / mean) ** 2)
        mean, std = math.log(mean) - variance / 2, math.sqrt(variance)
    return right(x, mean, std, **options)
