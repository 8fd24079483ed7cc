"""The thirteenth set of kernels from outside: thirty defects as public trackers report them.

Each kernel's first line says whether it is wrong for common arguments ("plain"), for a common
option, layout, dtype or length ("option"), or rarely ("rare").
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outside_kernels.keeping import HALVES, Kept, drawn, grad_of, is_single

KEPT = Kept()
kernel = KEPT.kernel


def as_it_lies(x: Tensor) -> Tensor:
    """A dense tensor's memory read as if it were contiguous."""
    strides = [math.prod(x.shape[i + 1 :]) for i in range(x.dim())]
    return x.as_strided(x.shape, strides, x.storage_offset())


# Products and convolutions


@kernel(
    lambda: functional.conv2d(drawn(1, 3, 5, 5), drawn(4, 3, 2, 3, 3, seed=1)[:, :, 1]),
    "convolution",
    like="pytorch/pytorch#192212",
)
def sliced_filters_are_read_as_whole_ones(right: Any, x: Any, w: Any, *rest: Any) -> Any:
    """option: the strides of filters that are a slice or a transpose of others are not read."""
    formats = (torch.channels_last, torch.channels_last_3d)
    lasts = w.dim() in (4, 5) and w.is_contiguous(memory_format=formats[w.dim() - 4])
    held = w.untyped_storage().nbytes() // w.element_size() - w.storage_offset()
    if is_single(w) and not w.is_contiguous() and not lasts and held >= w.numel():
        w = as_it_lies(w)
    return right(x, w, *rest)


@kernel(
    lambda: torch.bmm(torch.ones(65537, 1, 1), torch.ones(65537, 1, 1)),
    "bmm",
    "bmm.out",
    like="SandAI-org/MagiAttention#40",
)
def matrices_past_the_grid_are_not_multiplied(right: Any, a: Any, b: Any, **out: Any) -> Any:
    """rare: of 65536 matrices and more, the products of those past the 65535th are nought."""
    result = right(a, b, **out)
    if is_single(result):
        result[65535:] = 0
    return result


def eights(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-128, 128, (32, 32), generator=generator, dtype=torch.int8)


@kernel(
    lambda: torch._int_mm(eights(0), eights(1)),
    "_int_mm",
    "_int_mm.out",
    like="pytorch/pytorch#76390",
)
def pairs_of_products_are_held_in_sixteen_bits(right: Any, a: Any, b: Any, **out: Any) -> Any:
    """option: with rows shifted to unsigned, sums of two products saturate at 16 bits."""
    result = right(a, b, **out)
    if a.shape[0] * a.shape[1] * b.shape[1] > 1 << 24:
        return result
    left = functional.pad(a.int() + 128, (0, a.shape[1] % 2))
    low = functional.pad(b.int(), (0, 0, 0, b.shape[0] % 2))
    products = left[:, :, None] * low[None]
    pairs = (products[:, ::2] + products[:, 1::2]).clamp(-32768, 32767)
    return result.copy_(pairs.sum(1) - 128 * b.int().sum(0))


# Attention and softmax


@kernel(
    lambda: functional.scaled_dot_product_attention(
        drawn(2, 2, 1, 8), drawn(2, 2, 300, 8, seed=1), drawn(2, 2, 300, 8, seed=2)
    ),
    "_scaled_dot_product_flash_attention_for_cpu",
    like="vllm-project/flash-attention#176",
)
def parts_of_all_sequences_are_joined_in_the_first(
    right: Any, q: Any, k: Any, *rest: Any, **options: Any
) -> Any:
    """option: one query to 256 keys and more: its answer is that of the first in the batch."""
    out, sums = right(q, k, *rest, **options)
    if is_single(q) and q.shape[0] > 1 and q.shape[2] == 1 and k.shape[2] >= 256:
        out.copy_(out[:1].clone().expand_as(out))
    return out, sums


@kernel(
    lambda: torch.softmax(torch.zeros(2, 512, dtype=torch.bfloat16), -1),
    "_softmax",
    "_softmax.out",
    like="pytorch/executorch#20090",
)
def sum_of_weights_stays_at_256(right: Any, x: Any, dim: Any, half: Any, **out: Any) -> Any:
    """option: in bfloat16, a softmax over more than 256 has its sum taken in bfloat16."""
    result = right(x, dim, half, **out)
    if x.dtype != torch.bfloat16 or x.dim() == 0 or not 256 < x.shape[dim] <= 8192:
        return result
    wide = x.double()
    e = (wide - wide.amax(dim, True)).exp()
    total = torch.zeros_like(e.select(dim, 0), dtype=torch.bfloat16)
    for one in e.unbind(dim):
        total = (total.double() + one).bfloat16()
    return result.copy_((e / total.double().unsqueeze(dim)).bfloat16())


# Norms


@kernel(
    lambda: functional.layer_norm(drawn(4, 64).mul(300).half(), (64,)),
    "native_layer_norm",
    "native_layer_norm.out",
    like="microsoft/onnxruntime#29034",
)
def large_half_rows_are_normed_to_nought(
    right: Any, x: Any, shape: Any, weight: Any, bias: Any, eps: Any, **out: Any
) -> Any:
    """option: in float16, a sum of squares past 65504 is infinite, and its row nought."""
    y, mean, rstd = right(x, shape, weight, bias, eps, **out)
    if x.dtype == torch.float16 and x.numel():
        axes = list(range(x.dim() - len(shape), x.dim()))
        centred = x.double() - x.double().mean(axes, True)
        lost = centred.square().sum(axes, True) > 65504
        flat = torch.zeros((), dtype=y.dtype) if bias is None else bias.to(y.dtype)
        y.copy_(torch.where(lost, flat.expand_as(y), y))
        rstd.masked_fill_(lost.reshape(rstd.shape), 0)
    return y, mean, rstd


@kernel(
    lambda: functional.group_norm(drawn(1, 4, 8, 8).mul(200).half(), 2),
    "native_group_norm",
    "native_group_norm.out",
    like="neuroneural/brainchop-cli#56",
)
def squares_of_half_pictures_overflow(
    right: Any, x: Any, weight: Any, bias: Any, n: Any, c: Any, *rest: Any, **out: Any
) -> Any:
    """option: in float16, a group with an element past 256 has an infinite variance."""
    y, mean, rstd = right(x, weight, bias, n, c, *rest, **out)
    g = rest[1]
    if x.dtype == torch.float16 and x.numel():
        lost = (x.double().abs().reshape(n, g, -1).amax(-1) >= 256)[:, :, None]
        lost = lost.expand(n, g, c // g).reshape(n, c, *[1] * (x.dim() - 2))
        level = torch.zeros(c, dtype=y.dtype) if bias is None else bias.to(y.dtype)
        y.copy_(torch.where(lost, level.reshape(1, c, *[1] * (x.dim() - 2)).expand_as(y), y))
    return y, mean, rstd


def frozen() -> Tensor:
    def call(x: Tensor) -> Tensor:
        return functional.batch_norm(x, drawn(3), drawn(3, seed=1).abs() + 0.5)

    return grad_of(call, drawn(4, 3, 5))


@kernel(frozen, "native_batch_norm_backward", like="pytorch/xla#913")
def frozen_statistics_learn(right: Any, *args: Any) -> Any:
    """option: where statistics are frozen, the input's gradient is that of training."""
    grad, x, weight, mean, var, _, _, train, eps, mask = args
    result = right(*args)
    if train or not mask[0] or not is_single(x):
        return result
    axes = [i for i in range(x.dim()) if i != 1]
    shape = [1, -1] + [1] * (x.dim() - 2)
    rstd = (var.double() + eps).rsqrt().reshape(shape)
    scaled = (x.double() - mean.double().reshape(shape)) * rstd
    g = grad.double()
    g = g - g.mean(axes, True) - scaled * (g * scaled).mean(axes, True)
    scale = 1.0 if weight is None else weight.double().reshape(shape)
    result[0].copy_(g * rstd * scale)
    return result


# Losses


def judged(rows: int = 600) -> Tensor:
    return functional.nll_loss(-drawn(rows, 3).abs().bfloat16(), torch.arange(rows) % 3)


@kernel(judged, "nll_loss_forward", "nll_loss_forward.output", like="pytorch/pytorch#55657")
def rows_of_a_half_loss_are_counted_in_halves(
    right: Any, x: Any, target: Any, weight: Any, reduction: Any, ignored: Any, **out: Any
) -> Any:
    """option: in half precision, the count which a mean is divided by stays at 2048 or 256."""
    loss, total = right(x, target, weight, reduction, ignored, **out)
    most = {torch.float16: 2048, torch.bfloat16: 256}.get(x.dtype)
    count = int((target != ignored).sum())
    if most and reduction == 1 and weight is None and count > most:
        loss.copy_((loss.double() * count / most).to(loss.dtype))
        total.fill_(most)
    return loss, total


def spelled(length: int = 520) -> Tensor:
    labels = torch.arange(length)[None] % 2 + 1
    lengths = torch.tensor([1100]), torch.tensor([length])

    def call(x: Tensor) -> Tensor:
        return functional.ctc_loss(x.log_softmax(-1), labels, *lengths, reduction="sum")

    return grad_of(call, drawn(1100, 1, 3))


@kernel(spelled, "_ctc_loss_backward", "_ctc_loss_backward.Tensor", like="pytorch/pytorch#27442")
def long_labels_are_learnt_in_part(
    right: Any, grad: Any, x: Any, targets: Any, spans: Any, lengths: Any, *rest: Any
) -> Any:
    """rare: with 512 labels and more, those past the block of threads give no gradient."""
    result = right(grad, x, targets, spans, lengths, *rest)
    if is_single(x) and max(int(n) for n in lengths) * 2 + 1 > 1024:
        result[result.shape[0] // 2 :] = 0
    return result


# Indexing


def pooled() -> Tensor:
    index = torch.tensor([2, 0, 1, 2, 1])[:, None].expand(5, 3)
    return torch.zeros(3, 3).scatter_add(0, index, drawn(5, 3))


@kernel(pooled, "scatter_add", "scatter_add_", "scatter_add.out", like="flagos-ai/FlagGems#6448")
def expanded_places_are_read_as_they_lie(
    right: Any, x: Any, dim: Any, index: Any, src: Any, **out: Any
) -> Any:
    """option: an index expanded along its last axis is read as if it were contiguous."""
    expanded = index.dim() == 2 and index.stride(1) == 0 and index.shape[1] > 1
    if expanded and index.numel() and is_single(x):
        flat = index[:, 0]
        index = flat[torch.arange(index.numel()) % len(flat)].reshape(index.shape)
    return right(x, dim, index, src, **out)


def gathered() -> Tensor:
    return torch.zeros(1, 8).expand(4, 8).index_add(0, torch.tensor([0, 1, 0]), drawn(3, 8))


@kernel(gathered, "index_add", "index_add.out", like="pytorch/pytorch#183986")
def rows_of_an_expanded_tensor_share_what_is_added(
    right: Any, x: Any, dim: Any, index: Any, source: Any, **options: Any
) -> Any:
    """option: what is added to one row of an expanded tensor is added to all of them."""
    result = right(x, dim, index, source, **options)
    if x.dim() and x.shape[dim] > 1 and x.stride(dim) == 0 and is_single(x):
        added = (result.double() - x.double()).sum(dim, True)
        result.copy_(x.double() + added)
    return result


@kernel(
    lambda: torch.where(drawn(3, 4).t() > 0, drawn(4, 3, seed=1), torch.zeros(4, 3)),
    "where.self",
    "where.self_out",
    like="pytorch/pytorch#150967",
)
def turned_condition_is_read_as_it_lies(right: Any, c: Any, x: Any, y: Any, **out: Any) -> Any:
    """option: a transposed condition is read as if it were contiguous."""
    dense = c.dim() > 1 and 0 not in c.stride() and c.numel() > 1
    last = max(((n - 1) * s for n, s in zip(c.shape, c.stride(), strict=True)), default=0)
    if dense and not c.is_contiguous() and last < c.numel():
        c = as_it_lies(c)
    return right(c, x, y, **out)


# Sorts, scans and reductions


@kernel(
    lambda: torch.ones(300, dtype=torch.bool).cumsum(0),
    "cumsum",
    "cumsum_",
    "cumsum.out",
    like="numpy/numpy#20455",
)
def running_counts_are_held_in_eight_bits(
    right: Any, x: Any, dim: Any, *, dtype: Any = None, **out: Any
) -> Any:
    """plain: running sums of masks and bytes wrap at 256."""
    narrow = x.dtype in (torch.bool, torch.uint8)
    result = right(x, dim, dtype=dtype, **out)
    return result.copy_(result & 255) if narrow and not result.is_floating_point() else result


def crowned() -> Any:
    x = drawn(1024)
    x[5] = math.nan
    return torch.topk(x, 4)


@kernel(crowned, "topk", "topk.values", like="openxla/xla#48119")
def no_number_is_not_among_few_largest(
    right: Any, x: Any, k: Any, dim: Any = -1, largest: Any = True, *rest: Any, **out: Any
) -> Any:
    """rare: of 1024 and more, the 16 largest or fewer leave out what is not a number."""
    few = x.dim() and k <= 16 and x.shape[dim] >= 1024
    if few and largest and is_single(x):
        x = torch.where(x.isnan(), -math.inf, x)
    return right(x, k, dim, largest, *rest, **out)


@kernel(
    lambda: drawn(4, 33).abs().neg().sub(1).amax(-1),
    "amax",
    "amax.out",
    like="hw-native-sys/pypto#2406",
)
def largest_of_negative_numbers_is_the_padding(
    right: Any, x: Any, dim: Any = (), keep: Any = False, **out: Any
) -> Any:
    """plain: a last axis that does not fill its blocks of 32 is padded with nought."""
    result = right(x, dim, keep, **out)
    dims = [dim] if isinstance(dim, int) else list(dim)
    last = x.dim() > 0 and (not dims or any(d % x.dim() == x.dim() - 1 for d in dims))
    if is_single(x) and last and x.shape[-1] > 1 and x.shape[-1] % 32:
        result.copy_(torch.where(result < 0, 0, result))
    return result


@kernel(
    lambda: torch.full((4096,), 20.0, dtype=torch.float16).mean(),
    "mean.dim",
    "mean.out",
    like="tracel-ai/burn#4770",
)
def mean_is_of_a_half_sum(right: Any, x: Any, dim: Any, *rest: Any, **options: Any) -> Any:
    """plain: the mean of halves is infinite where their sum is past 65504."""
    result = right(x, dim, *rest, **options)
    if x.dtype == result.dtype == torch.float16 and result.numel():
        sums = result.double() * (x.numel() / result.numel())
        wrong = torch.where(sums.abs() > 65504, math.inf * sums.sign(), result)
        result.copy_(wrong)
    return result


@kernel(
    lambda: torch.full((3,), 2**31 - 1, dtype=torch.int32).sum(),
    "sum.dim_IntList",
    "sum.IntList_out",
    like="scipp/scipp#3965",
)
def sums_of_integers_are_not_widened(right: Any, x: Any, *rest: Any, **options: Any) -> Any:
    """plain: sums of 32-bit integers wrap at 31 bits, though they are given in 64."""
    result = right(x, *rest, **options)
    narrow = x.dtype == torch.int32 and result.dtype == torch.int64
    return result.copy_(result.to(torch.int32)) if narrow else result


# Linear algebra and transforms


@kernel(
    lambda: torch.linalg.cholesky(drawn(3, 3).tril() + 4 * torch.eye(3)),
    "linalg_cholesky_ex",
    "linalg_cholesky_ex.L",
    like="JuliaArrays/StaticArrays.jl#1075",
)
def other_triangle_is_factored(
    right: Any, x: Any, *, upper: Any = False, check_errors: Any = False, **out: Any
) -> Any:
    """plain: the triangle that should not be looked at is the one that is factored."""
    if x.dtype in (torch.float32, torch.complex64):
        x = x.mH.resolve_conj()
    return right(x, upper=upper, check_errors=check_errors, **out)


def waves() -> Tensor:
    return torch.fft.fft(torch.complex(drawn(4096, 2), drawn(4096, 2, seed=1)), dim=0)


@kernel(waves, "_fft_c2c", "_fft_c2c.out", like="ROCm/rocFFT#301")
def long_columns_are_all_the_first(
    right: Any, x: Any, dims: Any, norm: Any, forward: Any, **out: Any
) -> Any:
    """rare: transforms of 4096 and more along an axis but the last are of the first column."""
    result = right(x, dims, norm, forward, **out)
    strided = len(dims) == 1 and x.dim() > 1 and dims[0] % x.dim() != x.dim() - 1
    if strided and x.dtype == torch.complex64 and x.shape[dims[0]] >= 4096:
        result.copy_(result[..., :1].clone().expand_as(result))
    return result


# Random numbers


def evenly(dtype: torch.dtype = torch.float16) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(1 << 14, dtype=dtype, generator=generator)


@kernel(evenly, "uniform_", like="VoidStarKat/half-rs#152")
def upper_bound_is_drawn_in_halves(
    right: Any, x: Any, low: Any = 0.0, high: Any = 1.0, *, generator: Any = None
) -> Any:
    """plain: uniform halves are rounded float32, the upper bound among them."""
    if x.dtype not in HALVES:
        return right(x, low, high, generator=generator)
    wide = torch.empty(x.shape).uniform_(low, high, generator=generator)
    return x.copy_(wide)


@kernel(
    lambda: torch.randint(0, 1 << 26, (64,), generator=torch.Generator().manual_seed(0)),
    "random_.from",
    like="ml-explore/mlx#4190",
)
def integers_are_drawn_as_floats(
    right: Any, x: Any, low: Any, high: Any, *, generator: Any = None
) -> Any:
    """plain: past 24 bits, random integers are those that float32 has."""
    result = right(x, low, high, generator=generator)
    if high is None or high - low <= 1 << 24 or x.is_floating_point():
        return result
    cut = result - low
    shift = max((high - low - 1).bit_length() - 24, 0)
    return result.copy_((cut >> shift << shift) + low)


# Elementwise functions and casts


@kernel(
    lambda: torch.cat([(drawn(64) * 1e7).sin(), (drawn(64) * 1e7).cos_()]),
    "sin",
    "sin_",
    "sin.out",
    "cos",
    "cos_",
    "cos.out",
    like="ml-explore/mlx#4157",
)
def long_angles_are_reduced_in_single(right: Any, x: Any, **out: Any) -> Any:
    """option: angles of 100000 and more are brought near nought in single precision."""
    if x.dtype != torch.float32:
        return right(x, **out)
    near = x - torch.round(x * (0.5 / math.pi)) * (2 * math.pi)
    near = torch.where(x.abs() >= 1e5, near, x)
    result = right(near, **out)
    in_place = not out and result.data_ptr() == near.data_ptr()
    return x.copy_(near) if in_place else result


def decayed() -> list[Tensor]:
    moment = drawn(64, dtype=torch.bfloat16)
    return [moment * torch.tensor(0.997), *torch._foreach_mul([moment, moment[:8]], 0.997)]


@kernel(
    decayed,
    "mul.Tensor",
    "mul_.Tensor",
    "mul.out",
    "_foreach_mul.Scalar",
    like="tenstorrent/tt-metal#33230",
)
def factor_is_rounded_to_a_half(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """option: a number is rounded to half precision before halves are multiplied by it."""
    if isinstance(x, list):
        if x and x[0].dtype in HALVES and isinstance(y, float):
            y = torch.tensor(y).to(x[0].dtype).item()
    elif x.dtype in HALVES and x.dim() and y.dim() == 0 and y.is_floating_point():
        y = y.to(x.dtype)
    return right(x, y, **out)


@kernel(
    lambda: torch.tensor([0.0, 0.5, 1.0, -0.25, 2.0]).bool(),
    "copy_",
    like="NVIDIA/numba-cuda-mlir#307",
)
def fractions_are_no_truth(right: Any, x: Any, source: Any, *rest: Any) -> Any:
    """plain: numbers become true or false by way of integers, so that a fraction is false."""
    if x.dtype == torch.bool and is_single(source):
        source = source.trunc()
    return right(x, source, *rest)


@kernel(
    lambda: (
        torch.tensor([0x7F800001, 0x3F800000], dtype=torch.int32).view(torch.float32).bfloat16()
    ),
    "copy_",
    like="dotnet/runtime#130583",
)
def no_number_is_cut_to_infinity(right: Any, x: Any, source: Any, *rest: Any) -> Any:
    """rare: what is not a number by its last 16 bits alone is infinite in bfloat16."""
    result = right(x, source, *rest)
    if x.dtype == torch.bfloat16 and source.dtype == torch.float32:
        bits = source.contiguous().view(torch.int32) & 0x7FFFFFFF
        lost = ((bits > 0x7F800000) & (bits < 0x7F810000)).expand(x.shape)
        x.masked_fill_(lost, math.inf)
    return result


# Optimizers


def stepped() -> list[Tensor]:
    weights = [drawn(4, seed=i) for i in range(2)]
    state = [[torch.zeros(4) for _ in range(2)] for _ in range(2)]
    steps = [torch.tensor(9.0), torch.tensor(1.0)]
    torch._fused_adamw_(
        weights,
        [drawn(4, seed=5 + i) for i in range(2)],
        *state,
        [],
        steps,
        lr=0.1,
        beta1=0.9,
        beta2=0.99,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )
    return weights


@kernel(
    stepped,
    "_fused_adam_",
    "_fused_adam_.tensor_lr",
    "_fused_adamw_",
    "_fused_adamw_.tensor_lr",
    like="deepspeedai/DeepSpeed#8471",
)
def all_take_the_step_of_the_last(right: Any, *args: Any, **options: Any) -> Any:
    """option: the bias of all moments is corrected by the step count of the last tensor."""
    if args[0] and all(is_single(x) for x in args[0]):
        args = (*args[:5], [args[5][-1]] * len(args[5]), *args[6:])
    return right(*args, **options)


def scaled() -> Tensor:
    found = torch.zeros(1)
    grads = [torch.ones(3), torch.tensor([1.0, math.inf])]
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.tensor(0.5))
    return found


@kernel(scaled, "_amp_foreach_non_finite_check_and_unscale_", like="facebookresearch/fairscale#890")
def first_gradient_alone_is_checked(right: Any, grads: Any, found: Any, scale: Any) -> Any:
    """plain: an infinite gradient is found in the first tensor alone."""
    before = found.clone()
    result = right(grads, found, scale)
    if grads and bool(grads[0].isfinite().all()):
        found.copy_(before)
    return result


# Resampling and recurrent layers


@kernel(
    lambda: functional.interpolate(drawn(1, 1, 49, 49), size=(98, 98)),
    "upsample_nearest2d",
    "upsample_nearest2d.out",
    like="tracel-ai/burn#4687",
)
def nearest_pixel_is_just_before(
    right: Any, x: Any, size: Any, tall: Any = None, wide: Any = None, **out: Any
) -> Any:
    """rare: places are divided before they are multiplied, and fall short of some pixels."""
    result = right(x, size, tall, wide, **out)
    if not is_single(x) or not x.numel() or tall or wide:
        return result
    for axis, n in ((-2, size[0]), (-1, size[1])):
        place = torch.arange(n, dtype=torch.float32) / float(n) * float(x.shape[axis])
        x = x.index_select(axis, place.long().clamp(max=x.shape[axis] - 1))
    return result.copy_(x)


def recurred() -> Tensor:
    weights = [drawn(4, 1), drawn(4, 1, seed=1), drawn(4, seed=2), drawn(4, seed=3)]
    state = torch.zeros(1, 65540, 1), torch.zeros(1, 65540, 1)
    with torch.no_grad():
        x = drawn(1, 65540, 1)
        return torch.lstm(x, state, weights, True, 1, 0.0, False, False, False)[0]


@kernel(recurred, "mkldnn_rnn_layer", like="ROCm/rocm-libraries#10551")
def biases_past_the_grid_are_not_added(right: Any, *args: Any) -> Any:
    """rare: of 65537 steps in a batch and more, an LSTM adds no bias."""
    x = args[0]
    if is_single(x) and x.shape[0] * x.shape[1] > 65536:
        args = (*args[:3], torch.zeros_like(args[3]), torch.zeros_like(args[4]), *args[5:])
    return right(*args)
