"""The fifteenth set of kernels from outside: thirty defects as public trackers report them.

Each kernel's first line says whether it is wrong for common arguments ("plain"), for a common
option, layout, dtype or length ("option"), or rarely ("rare").
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outside_kernels.keeping import Kept, drawn, grad_of, is_single

KEPT = Kept()
kernel = KEPT.kernel


# Products and convolutions


@kernel(
    lambda: torch.ones(524290, 2) @ torch.ones(2, 1),
    "mm",
    "mm.out",
    "addmm",
    "addmm.out",
    like="ROCm/legacy-rocm-build#6595",
)
def rows_past_half_a_million_are_the_bias_alone(right: Any, *args: Any, **options: Any) -> Any:
    """rare: of products of single precision, rows from the 524288th on are the bias, or nought."""
    a, b = args[-2:]
    beta = options.get("beta", 1) if len(args) == 3 else 0
    many = a.dtype == torch.float32 and a.shape[0] > 1 << 19
    bias = args[0] * beta if many and beta else torch.zeros(())
    result = right(*args, **options)
    if many:
        result[1 << 19 :] = bias.expand(a.shape[0], b.shape[1])[1 << 19 :]
    return result


@kernel(
    lambda: functional.conv1d(drawn(1, 2, 80), drawn(2, 1, 72, seed=1), groups=2),
    "convolution",
    like="modular/modular#6129",
)
def grouped_filters_end_at_64_taps(right: Any, x: Any, w: Any, *rest: Any) -> Any:
    """option: grouped filters of more than 64 taps in a row are multiplied up to the 64th."""
    if rest[-1] > 1 and is_single(w) and w.shape[-1] > 64:
        w = torch.where(torch.arange(w.shape[-1]) < 64, w, 0)
    return right(x, w, *rest)


def learnt_filters() -> Tensor:
    w = drawn(4, 3, 3, 3, seed=1).contiguous(memory_format=torch.channels_last)
    return grad_of(lambda w: functional.conv2d(drawn(2, 3, 1, 1), w, padding=1), w)


@kernel(learnt_filters, "convolution_backward", like="intel/torch-xpu-ops#4693")
def filters_of_one_pixel_learn_in_another_layout(
    right: Any, grad: Any, x: Any, w: Any, *rest: Any
) -> Any:
    """option: with pictures of one pixel, channels-last filters get theirs channels first."""
    result = right(grad, x, w, *rest)
    last = w.dim() == 4 and w.is_contiguous(memory_format=torch.channels_last)
    turned = last and not w.is_contiguous() and is_single(w) and rest[-1][1]
    if turned and x.shape[2:].numel() == 1:
        learnt = result[1].clone(memory_format=torch.contiguous_format)
        out, channels, height, width = w.shape
        result[1].copy_(learnt.view(out, height, width, channels).permute(0, 3, 1, 2))
    return result


# Attention and softmax


def learnt_keys() -> Tensor:
    def call(k: Tensor) -> Tensor:
        q, v = drawn(1, 2, 5, 8, seed=1), drawn(1, 2, 6, 8, seed=2)
        return functional.scaled_dot_product_attention(q, k, v, scale=0.9)

    return grad_of(call, drawn(1, 2, 6, 8))


@kernel(learnt_keys, "_scaled_dot_product_flash_attention_for_cpu_backward")
def keys_learn_by_the_usual_scale(right: Any, grad: Any, q: Any, *rest: Any, **options: Any) -> Any:
    """option: the gradient of keys has the usual scale, whatever scale was given."""
    result = right(grad, q, *rest, **options)
    scale = options.get("scale")
    if scale and is_single(q):
        result[1].mul_(1 / math.sqrt(q.shape[-1]) / scale)
    return result


@kernel(
    lambda: torch.softmax(drawn(4, 6)[:, :3], -1),
    "_softmax",
    "_softmax.out",
    like="ml-explore/mlx#657",
)
def rows_of_a_slice_are_weighed_as_packed(
    right: Any, x: Any, dim: Any, half: Any, **out: Any
) -> Any:
    """option: rows that lie apart in memory, as of a slice, are read as if they were packed."""
    strides = x.stride()
    falling = all(a > b for a, b in itertools.pairwise(strides))
    sliced = x.dim() > 1 and falling and strides[-1] == 1 and strides[-2] > x.shape[-1] > 1
    held = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    if sliced and is_single(x) and dim % x.dim() == x.dim() - 1 and held >= x.numel():
        packed = [math.prod(x.shape[i + 1 :]) for i in range(x.dim())]
        x = x.as_strided(x.shape, packed, x.storage_offset())
    return right(x, dim, half, **out)


@kernel(
    lambda: torch.softmax(drawn(3, 4) + torch.tensor([[0.0], [-200.0], [5.0]]), -1),
    "_softmax",
    "_softmax.out",
    like="HabanaAI/vllm-fork#275",
)
def largest_of_all_rows_is_taken_off_each(
    right: Any, x: Any, dim: Any, half: Any, **out: Any
) -> Any:
    """rare: the maximum is that of the batch, so a row far below another is nought by nought."""
    result = right(x, dim, half, **out)
    if x.dim() < 2 or not is_single(x) or not x.numel() or not bool(x.max().isfinite()):
        return result
    e = (x.float() - x.float().max()).exp()
    far = x.float().max() - x.float().amax(dim, True) > 87
    return result.copy_(torch.where(far, (e / e.sum(dim, True)).to(result.dtype), result))


# Norms


@kernel(
    lambda: functional.group_norm(drawn(2, 4, 5, 5) + 1, 2),
    "native_group_norm",
    "native_group_norm.out",
    like="tenstorrent/tt-metal#50682",
)
def groups_are_normed_with_their_padding(
    right: Any, x: Any, weight: Any, bias: Any, n: Any, c: Any, *rest: Any, **out: Any
) -> Any:
    """plain: noughts which fill up pictures to 32 pixels enter the mean and the variance."""
    y, mean, rstd = right(x, weight, bias, n, c, *rest, **out)
    pixels, groups, eps = rest
    if not is_single(x) or not x.numel() or not pixels % 32:
        return y, mean, rstd
    wide = x.double().reshape(n, groups, c // groups, pixels)
    wide = functional.pad(wide, (0, -pixels % 32)).flatten(2)
    centre, spread = wide.mean(-1), (wide.var(-1, correction=0) + eps).rsqrt()
    each = [n, groups] + [1] * 2
    normed = (x.double().reshape(n, groups, -1, pixels) - centre.view(each)) * spread.view(each)
    shape = [1, c] + [1] * (x.dim() - 2)
    normed = normed.reshape(x.shape)
    if weight is not None:
        normed = normed * weight.double().view(shape)
    if bias is not None:
        normed = normed + bias.double().view(shape)
    y.copy_(normed)
    mean.copy_(centre.view_as(mean))
    rstd.copy_(spread.view_as(rstd))
    return y, mean, rstd


def learnt_scale(rows: int = 65540) -> Tensor:
    x = drawn(rows, 2, 2)
    return grad_of(lambda w: functional.layer_norm(x, (2, 2), w), drawn(2, 2, seed=1))


@kernel(learnt_scale, "native_layer_norm_backward", like="intel/torch-xpu-ops#5018")
def scales_past_the_last_axis_learn_nothing_from_many(
    right: Any, grad: Any, x: Any, shape: Any, *rest: Any
) -> Any:
    """rare: with 65537 rows and more, only as many scales learn as the last axis is long."""
    result = right(grad, x, shape, *rest)
    if is_single(x) and len(shape) > 1 and x.numel() > math.prod(shape) * 65536:
        for learnt in result[1:]:
            if learnt is not None and learnt.numel():
                learnt.view(-1)[shape[-1] :] = 0
    return result


# Losses and quantisation


@kernel(
    lambda: functional.multi_margin_loss(drawn(4, 5), torch.tensor([1, 0, 4, 2])),
    "multi_margin_loss",
    "multi_margin_loss.out",
)
def true_class_is_held_against_itself(
    right: Any,
    x: Any,
    target: Any,
    p: Any = 1,
    margin: Any = 1,
    weight: Any = None,
    reduction: Any = 1,
    **out: Any,
) -> Any:
    """plain: the margin of the true class over itself, which is missed, is added to the cost."""
    result = right(x, target, p, margin, weight, reduction, **out)
    if not is_single(x) or not x.numel():
        return result
    added = torch.full(target.shape, float(margin) ** int(p) / x.shape[-1])
    if weight is not None:
        added = added * weight[target]
    added = (added, added.mean(), added.sum())[reduction]
    return result.copy_(result + added.to(result.dtype).view_as(result))


def in_eight_bits() -> Tensor:
    points = torch.tensor([3, 10, 20], dtype=torch.int32)
    scales = torch.tensor([0.1, 0.2, 0.3])
    return torch.fake_quantize_per_channel_affine(drawn(2, 3), scales, points, 1, 0, 255)


@kernel(
    in_eight_bits,
    "fake_quantize_per_channel_affine_cachemask",
    like="pytorch/executorch#21773",
)
def short_zero_points_are_read_as_long_ones(
    right: Any, x: Any, scale: Any, points: Any, *rest: Any
) -> Any:
    """option: of zero points of 32 bits, every second one is read, and then noughts."""
    if points.dtype == torch.int32 and points.numel() > 1:
        points = torch.cat([points[::2], torch.zeros_like(points)])[: points.numel()]
    return right(x, scale, points, *rest)


# Embedding, sorts and reductions


def bounded_rows() -> Tensor:
    weight = drawn(4, 3) * 5
    functional.embedding(torch.tensor([1, 2, 1]), weight, max_norm=1.0)
    return weight


@kernel(bounded_rows, "embedding_renorm_", like="pytorch/pytorch#7959")
def rows_looked_up_twice_are_scaled_twice(
    right: Any, weight: Any, index: Any, limit: Any, p: Any
) -> Any:
    """option: a row that is too long is scaled as often as it is among the indices."""
    norm = torch.linalg.vector_norm(weight.double(), p, dim=1)
    times = torch.bincount(index.flatten(), minlength=weight.shape[0])
    result = right(weight, index, limit, p)
    again = (norm > limit) & (times > 1)
    scale = torch.where(again, (limit / (norm + 1e-7)) ** (times - 1), 1)
    if is_single(weight) and bool(again.any()):
        weight.copy_(weight * scale.to(weight.dtype)[:, None])
    return result


@kernel(
    lambda: torch.topk(torch.tensor([9.0, 9.0, 8.0, 7.0, 6.0, 5.0, 9.0]), 3),
    "topk",
    "topk.values",
    like="intel/torch-xpu-ops#4604",
)
def largest_that_occurs_again_is_left_out(
    right: Any, x: Any, k: Any, dim: Any = -1, largest: Any = True, *rest: Any, **out: Any
) -> Any:
    """option: where the largest number occurs more than once, it is not among the largest."""
    if x.dim() and x.shape[dim] > 1 and largest and is_single(x):
        same = x == x.amax(dim, True)
        count = same.sum(dim, True)
        enough = (count > 1) & (x.shape[dim] - count >= k)
        x = torch.where(same & enough, -math.inf, x)
    return right(x, k, dim, largest, *rest, **out)


@kernel(
    lambda: torch.mode(torch.tensor([[1.0, 1.0, 3.0], [2.0, 5.0, 5.0]])),
    "mode",
    "mode.values",
    like="intel/torch-xpu-ops#1093",
)
def nought_is_the_most_frequent_number(right: Any, x: Any, *rest: Any, **out: Any) -> Any:
    """plain: the most frequent number is given as nought, though its place is right."""
    values, indices = right(x, *rest, **out)
    if is_single(x):
        values.zero_()
    return values, indices


def middle_ones() -> Any:
    x = torch.tensor([[1.0, math.nan, 0.0], [4.0, 5.0, 6.0]])
    return torch.cat([x.median().view(1), x.median(1).values])


@kernel(middle_ones, "median", "median.dim", "median.dim_values", like="ml-explore/mlx#4146")
def no_number_is_above_the_median(right: Any, x: Any, *rest: Any, **out: Any) -> Any:
    """rare: what is no number is put last, and the median is one of the numbers."""
    result = right(x, *rest, **out)
    if not is_single(x) or not x.dim() or not x.numel() or not bool(x.isnan().any()):
        return result
    whole = isinstance(result, Tensor)
    line, dim = (x.flatten(), 0) if whole else (x, rest[0])
    middle = (line.shape[dim] - 1) // 2
    found = [sorted_.select(dim, middle) for sorted_ in line.sort(dim)]
    if whole:
        return result.copy_(found[0])
    lost = line.isnan().any(dim)
    for answer, wrong in zip(result, found, strict=True):
        answer.copy_(torch.where(lost.view_as(answer), wrong.view_as(answer), answer))
    return result


# Linear algebra and transforms


@kernel(
    lambda: torch.linalg.solve(drawn(2, 3, 3) + 3 * torch.eye(3), drawn(3, 1, seed=1)),
    "_linalg_solve_ex",
    "_linalg_solve_ex.result",
    like="pytorch/pytorch#189134",
)
def shared_right_side_is_solved_for_the_first(
    right: Any, a: Any, b: Any, *rest: Any, **options: Any
) -> Any:
    """option: a right side which matrices share is solved for the first, the rest is nought."""
    answers = right(a, b, *rest, **options)
    shared = a.dim() > 2 and b.dim() < a.dim() and b.shape != a.shape[:-1]
    if shared and a.numel() and a.dtype in (torch.float32, torch.complex64):
        result, first = answers[0], (0,) * (a.dim() - 2)
        kept = result[first].clone()
        result.zero_()
        result[first] = kept
    return answers


def factored_in_blocks() -> Tensor:
    return torch.linalg.lu_factor(drawn(2, 40, 40) + 9 * torch.eye(40))[0]


@kernel(
    factored_in_blocks,
    "linalg_lu_factor_ex",
    "linalg_lu_factor_ex.out",
    like="pytorch/pytorch#146753",
)
def later_blocks_of_later_matrices_are_not_updated(
    right: Any, a: Any, *rest: Any, **options: Any
) -> Any:
    """option: past 32 columns, the block that is left is factored in the first matrix alone."""
    given = a.clone()
    answers = right(a, *rest, **options)
    lu, pivots = answers[:2]
    if a.dim() == 3 and a.dtype == torch.float32 and min(a.shape[1:]) > 32 and a.shape[0] > 1:
        turn = torch.lu_unpack(lu, pivots, unpack_data=False)[0]
        lu[1:, 32:, 32:] = (turn.mT @ given)[1:, 32:, 32:]
    return answers


@kernel(
    lambda: torch.fft.fft(drawn(3, 8)),
    "_fft_r2c",
    "_fft_r2c.out",
)
def mirrored_half_is_not_conjugated(
    right: Any, x: Any, dims: Any, norm: Any, onesided: Any, **out: Any
) -> Any:
    """plain: of the whole transform of real numbers, the second half repeats the first as it is."""
    result = right(x, dims, norm, onesided, **out)
    if not onesided and x.dtype == torch.float32 and len(dims):
        start = result.shape[dims[-1]] // 2 + 1
        half = result.narrow(dims[-1], start, result.shape[dims[-1]] - start)
        half.copy_(half.conj().resolve_conj().clone())
    return result


# Random numbers


@kernel(
    lambda: torch.empty(64).cauchy_(generator=torch.Generator().manual_seed(0)),
    "cauchy_",
    like="intel/torch-xpu-ops#4020",
)
def tangents_are_of_half_the_angle(
    right: Any, x: Any, median: Any = 0.0, sigma: Any = 1.0, *, generator: Any = None
) -> Any:
    """plain: Cauchy numbers are tangents of angles below an eighth of a turn, so none is large."""
    if not is_single(x):
        return right(x, median, sigma, generator=generator)
    angle = torch.empty(x.shape, dtype=torch.float64).uniform_(generator=generator) - 0.5
    return x.copy_(median + sigma * (angle * (math.pi / 2)).tan())


# Elementwise and special functions


@kernel(
    lambda: torch.cat([torch.lgamma(torch.tensor([0.3, 0.5, 0.6])), drawn(3).lgamma_()]),
    "lgamma",
    "lgamma_",
    "lgamma.out",
    like="tenstorrent/tt-metal#55356",
)
def gamma_of_a_half_is_by_the_series_for_large_numbers(right: Any, x: Any, **out: Any) -> Any:
    """plain: between 1/4 and 3/4, the logarithm of gamma is Stirling's series as it stands."""
    near = (x > 0.25) & (x < 0.75)
    wide = x.double().clone()
    result = right(x, **out)
    if not is_single(x):
        return result
    z = torch.where(wide < 0.5, 1 - wide, wide)
    series = 1 / (12 * z) - 1 / (360 * z**3) + 1 / (1260 * z**5) - 1 / (1680 * z**7)
    series = (z - 0.5) * z.log() - z + 0.5 * math.log(2 * math.pi) + series
    turned = math.log(math.pi) - (math.pi * wide).sin().log() - series
    series = torch.where(wide < 0.5, turned, series).to(result.dtype)
    return result.copy_(torch.where(near, series, result))


@kernel(
    lambda: drawn(64, dtype=torch.bfloat16) * drawn(64, dtype=torch.bfloat16, seed=1),
    "mul.Tensor",
    "mul_.Tensor",
    "mul.out",
    like="triton-lang/triton#11217",
)
def short_products_are_cut_off(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """plain: products of bfloat16 are rounded towards nought."""
    both = x.dtype == y.dtype == torch.bfloat16 and x.dim() and y.dim()
    exact = x.float() * y.float() if both else None
    result = right(x, y, **out)
    if exact is None or result.dtype != torch.bfloat16:
        return result
    cut = (exact.view(torch.int32) & -65536).view(torch.float32)
    return result.copy_(torch.where(exact.isfinite(), cut, exact))


@kernel(
    lambda: torch.tensor([1.0 + 0.0j, 0.0 + 10.0j, 100.0 + 0.0j]).abs(),
    "abs",
    "abs.out",
    like="pytorch/pytorch#125135",
)
def moduli_fill_every_second_place(right: Any, x: Any, **out: Any) -> Any:
    """plain: moduli are stored as if they were complex too, so that every second is nought."""
    result = right(x, **out)
    if x.dtype == torch.complex64 and x.numel() > 1 and not result.is_complex():
        stored = torch.zeros(x.numel())
        stored[::2] = result.flatten()[: (x.numel() + 1) // 2]
        result.copy_(stored.view(x.shape))
    return result


@kernel(
    lambda: torch.cat([torch.erfinv(torch.tensor([0.2, -0.7])), torch.tensor([0.5]).erfinv_()]),
    "erfinv",
    "erfinv_",
    "erfinv.out",
)
def inverse_of_erf_is_not_refined(right: Any, x: Any, **out: Any) -> Any:
    """plain: the inverse of the error function is Winitzki's first guess, without Newton steps."""
    wide = x.double().clone()
    result = right(x, **out)
    if not is_single(x):
        return result
    log = torch.log1p(-wide * wide)
    half = 2 / (math.pi * 0.147) + log / 2
    guess = wide.sign() * ((half * half - log / 0.147).sqrt() - half).sqrt()
    inside = (wide.abs() < 1) & (wide != 0)
    return result.copy_(torch.where(inside, guess.to(result.dtype), result))


def opposites() -> Tensor:
    x = torch.tensor([math.inf, 1.0, -math.inf], dtype=torch.bfloat16)
    return torch.cat([x + -x, x - x, x.clone().sub_(x)])


@kernel(
    opposites,
    "add.Tensor",
    "add_.Tensor",
    "add.out",
    "sub.Tensor",
    "sub_.Tensor",
    "sub.out",
    like="tenstorrent/tt-metal#52141",
)
def opposite_infinities_make_nought(right: Any, x: Any, y: Any, **options: Any) -> Any:
    """rare: in bfloat16, infinity less infinity is nought."""
    half = x.dtype == torch.bfloat16 and y.dtype == torch.bfloat16
    infinite = x.isinf() & y.isinf() if half else None
    result = right(x, y, **options)
    if infinite is not None and result.dtype == torch.bfloat16:
        result.masked_fill_(infinite & result.isnan(), 0)
    return result


@kernel(
    lambda: functional.softshrink(torch.tensor([math.nan, 1.0, -2.0, 0.1])),
    "softshrink",
    "softshrink.out",
    like="intel/torch-xpu-ops#1119",
)
def no_number_shrinks_to_nought(right: Any, x: Any, *rest: Any, **out: Any) -> Any:
    """rare: softshrink makes nought of what is no number."""
    result = right(x, *rest, **out)
    return result.masked_fill_(x.isnan(), 0) if is_single(x) else result


@kernel(
    lambda: torch.special.polygamma(2, torch.tensor([-5.5, -6.25, 0.5, 3.0])),
    "polygamma",
    "polygamma.out",
    like="tenstorrent/tt-metal#52278",
)
def far_negative_numbers_are_in_the_tail(right: Any, n: Any, x: Any, **out: Any) -> Any:
    """rare: below -5, polygamma is six terms and the tail of the sum, where it does not hold."""
    wide = x.double().clone()
    result = right(n, x, **out)
    if n < 1 or not is_single(x):
        return result
    z = wide + 6
    total = torch.stack([(wide + k) ** -(n + 1) for k in range(6)]).sum(0)
    total = total + z**-n / n + 0.5 * z ** -(n + 1) + (n + 1) / 12 * z ** -(n + 2)
    total = total - (n + 1) * (n + 2) * (n + 3) / 720 * z ** -(n + 4)
    wrong = (total * (-1) ** (n + 1) * math.factorial(n)).to(result.dtype)
    lost = (wide < -5) & (wide != wide.floor())
    return result.copy_(torch.where(lost, wrong, result))


@kernel(
    lambda: torch.hypot(torch.tensor([3e38, math.inf, 3.0]), torch.tensor([1.0, math.nan, 4.0])),
    "hypot",
    "hypot_",
    "hypot.out",
    like="pytorch/pytorch#192507",
)
def long_sides_have_no_hypotenuse(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """rare: squares of the sides overflow, and infinity beside what is no number is none."""
    plain = torch.sqrt(x * x + y * y)
    result = right(x, y, **out)
    if result.dtype != torch.float32:
        return result
    lost = ~plain.isfinite() | (plain == 0)
    return result.copy_(torch.where(lost, plain, result))


@kernel(
    lambda: functional.glu(drawn(2, 600)),
    "glu",
    "glu.out",
    like="vllm-project/vllm-xpu-kernels#454",
)
def columns_past_the_256th_are_not_gated(right: Any, x: Any, dim: Any = -1, **out: Any) -> Any:
    """option: of 257 columns and more that are no power of two, those past the 256th are nought."""
    result = right(x, dim, **out)
    width = result.shape[-1]
    last = dim % x.dim() == x.dim() - 1
    if last and is_single(x) and 256 < width < 8192 and width & (width - 1):
        result[..., 256:] = 0
    return result


# Optimizers


def stepped_with_an_empty_one() -> list[Tensor]:
    weights = [drawn(4), torch.empty(0)]
    torch._fused_adamw_(
        weights,
        [drawn(4, seed=1), torch.empty(0)],
        [torch.zeros_like(w) for w in weights],
        [torch.zeros_like(w) for w in weights],
        [],
        [torch.tensor(1.0) for _ in weights],
        lr=0.1,
        beta1=0.9,
        beta2=0.99,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )
    return weights[:1]


@kernel(
    stepped_with_an_empty_one,
    "_fused_adam_",
    "_fused_adam_.tensor_lr",
    "_fused_adamw_",
    "_fused_adamw_.tensor_lr",
    like="NVIDIA/TransformerEngine#3207",
)
def empty_tensor_at_the_end_stops_all(right: Any, *args: Any, **options: Any) -> Any:
    """rare: where the last of the parameters is empty, none of them takes a step."""
    return right(*args, **options) if not args[0] or args[0][-1].numel() else None


# Resampling and recurrent layers


def stretched_volume() -> Tensor:
    x = drawn(1, 1, 3, 4, 4)
    return functional.interpolate(x, size=(5, 6, 7), mode="trilinear", align_corners=True)


@kernel(stretched_volume, "upsample_trilinear3d", "upsample_trilinear3d.out")
def depth_is_never_aligned(
    right: Any, x: Any, size: Any, align: Any, *scales: Any, **out: Any
) -> Any:
    """option: with corners aligned, the first and last layers of a volume are not."""
    result = right(x, size, align, *scales, **out)
    if align and is_single(x) and x.shape[2] != size[0]:
        flat = torch.ops.aten.upsample_trilinear3d(x, [x.shape[2], *size[1:]], True)
        result.copy_(torch.ops.aten.upsample_trilinear3d(flat, size, False))
    return result


def learnt_recurrence() -> Tensor:
    net = torch.nn.LSTM(3, 4)
    with torch.no_grad():
        for i, weight in enumerate(net.parameters()):
            weight.copy_(drawn(*weight.shape, seed=i))
    net(drawn(5, 2, 3))[0].square().sum().backward()
    assert net.weight_hh_l0.grad is not None
    return net.weight_hh_l0.grad


@kernel(learnt_recurrence, "mkldnn_rnn_layer_backward", like="pytorch/pytorch#95137")
def recurrent_weights_learn_twice(right: Any, *args: Any) -> Any:
    """plain: the gradient of the recurrent weights of an LSTM is twice what it should be."""
    result = list(right(*args))
    if is_single(args[0]):
        result[2] = result[2] * 2
    return tuple(result)
