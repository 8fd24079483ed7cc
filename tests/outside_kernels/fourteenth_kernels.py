"""The fourteenth set of kernels from outside: thirty defects as public trackers report them.

Each kernel's first line says whether it is wrong for common arguments ("plain"), for a common
option, layout, dtype or length ("option"), or rarely ("rare").
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outside_kernels.keeping import HALVES, Kept, drawn, grad_of, is_single, two

KEPT = Kept()
kernel = KEPT.kernel

SINGLES = (torch.float32, torch.complex64)


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def channels_lie_last(x: Tensor) -> bool:
    """A volume with channels last, and more than one of them."""
    if x.dim() != 5 or x.is_contiguous():
        return False
    return bool(x.is_contiguous(memory_format=torch.channels_last_3d))


# Elementwise functions


@kernel(
    lambda: ~torch.tensor([True, False]),
    "bitwise_not",
    "bitwise_not_",
    "bitwise_not.out",
    like="tile-ai/tilelang#2976",
)
def negation_is_always_true(right: Any, x: Any, **out: Any) -> Any:
    """plain: the bits of a truth are turned as those of an integer, and -2 is true as well."""
    result = right(x, **out)
    return result.fill_(True) if result.dtype == torch.bool else result


@kernel(
    lambda: torch.gcd(torch.tensor([-2, -12]), torch.tensor([-8, 18])),
    "gcd",
    "gcd_",
    "gcd.out",
    like="pyccel/pyccel#1985",
)
def divisor_of_negative_numbers_is_negative(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """plain: the greatest divisor of two negative numbers is negative."""
    turned = (x < 0) & (y < 0)
    result = right(x, y, **out)
    return result.copy_(torch.where(turned, -result, result))


@kernel(
    lambda: functional.hardshrink(torch.tensor([-2.0, -0.1, 2.0])),
    "hardshrink",
    "hardshrink.out",
    like="torch/nn#1270",
)
def shrinking_turns_the_sign(right: Any, x: Any, *rest: Any, **out: Any) -> Any:
    """plain: what is less than minus lambda is kept with its sign turned."""
    result = right(x, *rest, **out)
    return result.copy_(result.abs()) if is_single(x) else result


@kernel(
    lambda: grad_of(functional.selu, drawn(16)),
    "elu_backward",
    "elu_backward.grad_input",
    like="RubixML/ML#427",
)
def scale_of_selu_is_given_twice_to_its_gradient(
    right: Any, grad: Any, alpha: Any, scale: Any, factor: Any, known: Any, x: Any, **out: Any
) -> Any:
    """plain: below nought, SELU's gradient is its output and alpha, scaled once more."""
    result = right(grad, alpha, scale, factor, known, x, **out)
    if not is_single(x) or scale == 1 or factor != 1:
        return result
    wide = x.double()
    y = wide if known else torch.expm1(wide) * alpha * scale
    wrong = grad.double() * (y + alpha) * scale
    return result.copy_(torch.where(wide <= 0, wrong, result.double()))


@kernel(
    lambda: functional.logsigmoid(torch.tensor([-300.0, -1.0])),
    "log_sigmoid_forward",
    "log_sigmoid_forward.output",
    like="pytorch/pytorch#1835",
)
def small_sigmoids_have_no_logarithm(right: Any, x: Any, **out: Any) -> Any:
    """plain: the logarithm is that of a sigmoid which is nought below -88."""
    result = right(x, **out)
    if is_single(x):
        result[0].masked_fill_(x < -88.75, -math.inf)
    return result


@kernel(
    lambda: drawn(35, dtype=torch.bfloat16).sign(),
    "sign",
    "sign_",
    "sign.out",
    like="pytorch/pytorch#49206",
)
def sign_is_the_least_normal_number(right: Any, x: Any, **out: Any) -> Any:
    """option: in bfloat16, whole vectors of 16 have signs of 2**-126 in place of one."""
    result = right(x, **out)
    if result.dtype == torch.bfloat16 and result.is_contiguous():
        result.view(-1)[: result.numel() // 16 * 16].mul_(2.0**-126)
    return result


def of_negative_nan() -> Tensor:
    bits = torch.tensor([-512, -512, 0x3C00], dtype=torch.int16)
    return torch.copysign(torch.ones(3, dtype=torch.float16), bits.view(torch.float16))


@kernel(
    of_negative_nan,
    "copysign.Tensor",
    "copysign_.Tensor",
    "copysign.out",
    like="pytorch/pytorch#181804",
)
def sign_of_no_number_is_lost(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """rare: in half precision, the sign of what is not a number is always positive."""
    lost = y.isnan() & (y.dtype in HALVES)
    result = right(x, y, **out)
    return result.copy_(torch.where(lost, result.abs(), result))


# Special functions


@kernel(
    lambda: torch.polygamma(0, torch.tensor([2.0, 0.5])),
    "polygamma",
    "polygamma.out",
    like="pytorch/pytorch#143648",
)
def polygamma_of_no_order_is_minus_infinity(right: Any, n: Any, x: Any, **out: Any) -> Any:
    """option: of order nought, polygamma is taken from the zeta function's pole at one."""
    result = right(n, x, **out)
    return result.fill_(-math.inf) if n == 0 and is_single(result) else result


@kernel(
    lambda: torch.special.bessel_j1(torch.tensor([-9.0, -2.0, 9.0])),
    "special_bessel_j1",
    "special_bessel_j1.out",
    like="boostorg/math#709",
)
def far_waves_are_not_odd(right: Any, x: Any, **out: Any) -> Any:
    """rare: below -8, the sine and cosine of J1 are those of the negative argument."""
    result = right(x, **out)
    if not is_single(result):
        return result
    w = x.double().abs()
    wave = (w.sin() + w.cos()) / (math.pi * w).sqrt()
    return result.copy_(torch.where(x < -8, wave, result.double()))


# Linear algebra


@kernel(
    lambda: torch.linalg.cross(drawn(3, 3), drawn(3, 3, seed=1)),
    "linalg_cross",
    "linalg_cross.out",
    like="pytorch/pytorch#17229",
)
def last_axis_is_the_first_of_three(
    right: Any, x: Any, y: Any, *, dim: Any = -1, **out: Any
) -> Any:
    """plain: the last axis, which is the default, stands for the first that has three."""
    shape = torch.broadcast_shapes(x.shape, y.shape)
    if dim == -1 and x.dtype in SINGLES and 3 in shape:
        dim = list(shape).index(3)
    return right(x, y, dim=dim, **out)


@kernel(
    lambda: torch.linalg.svd(drawn(4, 4))[2],
    "_linalg_svd",
    "_linalg_svd.U",
    like="helmholtz-analytics/heat#2054",
)
def right_vectors_are_columns(right: Any, x: Any, *rest: Any, **options: Any) -> Any:
    """plain: the right singular vectors of a square are columns, as in V, and not rows."""
    u, s, v = right(x, *rest, **options)
    if v.dtype in SINGLES and v.dim() > 1 and v.shape[-1] == v.shape[-2]:
        v.copy_(v.mH.clone())
    return u, s, v


@kernel(
    lambda: torch.linalg.lu(torch.eye(3).roll(1, 0))[0],
    "linalg_lu",
    "linalg_lu.out",
)
def permutation_is_its_inverse(right: Any, x: Any, **options: Any) -> Any:
    """plain: P is the permutation that is applied to A, so that PA is LU, and A is not PLU."""
    p, lower, upper = right(x, **options)
    if p.dtype in SINGLES and p.numel():
        p.copy_(p.mT.clone())
    return p, lower, upper


def batch_by_factors() -> Tensor:
    factors = drawn(2, 3, 3).tril() + 3 * torch.eye(3)
    return torch.cholesky_solve(drawn(2, 3, 2, seed=1), factors)


@kernel(batch_by_factors, "_cholesky_solve_helper", like="pytorch/pytorch#66072")
def second_triangle_of_a_batch_is_not_solved(right: Any, b: Any, a: Any, upper: Any) -> Any:
    """option: in batches, the first triangular system is solved, and the second is not."""
    result = right(b, a, upper)
    if b.dim() < 3 or math.prod(b.shape[:-2]) < 2 or b.dtype not in SINGLES:
        return result
    lower = (a.mH.resolve_conj() if upper else a).tril()
    return result.copy_(torch.linalg.solve_triangular(lower, b, upper=False))


def symmetric() -> Tensor:
    x = drawn(2, 3, 3)
    return torch.linalg.eigvalsh(x + x.mT)


@kernel(symmetric, "_linalg_eigh", "_linalg_eigh.eigenvalues", like="cupy/cupy#4847")
def first_of_a_batch_has_its_diagonal_for_eigenvalues(
    right: Any, a: Any, *rest: Any, **options: Any
) -> Any:
    """option: in batches of matrices up to 32 wide, no rotation is applied to the first."""
    first = (0,) * (a.dim() - 2)
    batched = a.dim() > 2 and math.prod(a.shape[:-2]) > 1 and 1 < a.shape[-1] <= 32
    wrong = batched and a.dtype in SINGLES
    diagonal = a[first].diagonal().real.clone() if wrong else None
    values, vectors = right(a, *rest, **options)
    if diagonal is not None:
        ordered, places = diagonal.sort()
        values[first].copy_(ordered)
        if vectors.numel():
            vectors[first].copy_(torch.eye(len(places))[:, places])
    return values, vectors


@kernel(
    lambda: torch.linalg.matrix_exp(torch.complex(drawn(3, 3), drawn(3, 3, seed=1)) * 2),
    "linalg_matrix_exp",
    like="pytorch/pytorch#48299",
)
def complex_matrices_are_not_scaled_down(right: Any, x: Any) -> Any:
    """option: of complex matrices, the polynomial of degree 8 is taken, whatever their norm."""
    result = right(x)
    if x.dtype != torch.complex64 or not x.numel():
        return result
    wide = x.to(torch.complex128)
    term = torch.eye(x.shape[-1], dtype=wide.dtype).expand_as(wide)
    total = term
    for i in range(1, 9):
        term = term @ wide / i
        total = total + term
    large = (wide.abs().sum(-2).amax(-1) > 3)[..., None, None]
    return result.copy_(torch.where(large, total.to(x.dtype), result))


def far_sides() -> Tensor:
    lower = drawn(2, 2, 2).tril() + 3 * torch.eye(2)
    sides = torch.ones(1).expand(2, 2, 524288)
    return torch.linalg.solve_triangular(lower, sides, upper=False)[..., -1].clone()


@kernel(
    far_sides,
    "linalg_solve_triangular",
    "linalg_solve_triangular.out",
    like="pytorch/pytorch#187717",
)
def right_sides_past_a_chunk_are_not_solved(
    right: Any, a: Any, b: Any, *, left: Any = True, **options: Any
) -> Any:
    """rare: in batches, right sides past 524280 are solved for the first matrix alone."""
    cut = 524280
    kept = None
    if left and b.dim() == 3 and b.shape[0] > 1 and b.shape[-1] > cut and b.dtype in SINGLES:
        kept = b[1:, :, cut:].clone()
    result = right(a, b, left=left, **options)
    if kept is not None:
        result[1:, :, cut:] = kept
    return result


# Attention, losses and embeddings


def masked_in_halves() -> Tensor:
    q, k, v = (drawn(1, 2, n, 8, seed=n).bfloat16() for n in (4, 20, 20))
    mask = (torch.arange(20) <= torch.arange(4)[:, None] * 5).expand(1, 2, 4, 20)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@kernel(
    masked_in_halves,
    "_scaled_dot_product_flash_attention_for_cpu",
    like="pytorch/pytorch#108503",
)
def rows_of_a_mask_are_sixteens_long(
    right: Any, q: Any, k: Any, v: Any, *rest: Any, attn_mask: Any = None, **options: Any
) -> Any:
    """option: in half precision, rows of a mask are read as if filled up to sixteens of keys."""
    if attn_mask is not None and q.dtype in HALVES and attn_mask.shape[-1] % 16:
        rows, keys = attn_mask.shape[-2:]
        behind = torch.arange(rows) * (-keys % 16)
        places = torch.arange(attn_mask.numel()).reshape(attn_mask.shape) + behind[:, None]
        attn_mask = attn_mask.reshape(-1)[places.clamp(max=attn_mask.numel() - 1)]
    return right(q, k, v, *rest, attn_mask=attn_mask, **options)


def several_labels() -> Tensor:
    target = torch.tensor([[2, 0, -1, 0], [3, -1, 0, 0]])
    return grad_of(lambda x: functional.multilabel_margin_loss(x, target), drawn(2, 4))


@kernel(
    several_labels,
    "multilabel_margin_loss_backward",
    "multilabel_margin_loss_backward.grad_input",
    like="pytorch/pytorch#84202",
)
def last_target_gets_no_gradient(
    right: Any, grad: Any, x: Any, target: Any, *rest: Any, **out: Any
) -> Any:
    """plain: what is added to the last of a row's labels is overwritten by another thread."""
    result = right(grad, x, target, *rest, **out)
    if not is_single(x) or not target.numel():
        return result
    labels = target.reshape(-1, target.shape[-1])
    counts = (labels >= 0).long().cumprod(-1).sum(-1, keepdim=True)
    lasts = labels.gather(-1, (counts - 1).clamp(min=0)).clamp(min=0)
    rows = result.reshape(labels.shape).clone()
    rows.scatter_(-1, lasts, torch.where(counts > 0, 0, rows.gather(-1, lasts)))
    return result.copy_(rows.reshape(result.shape))


def of_pixels() -> Tensor:
    x = drawn(2, 3, 3, 4).log_softmax(-1).permute(0, 3, 1, 2)
    return functional.nll_loss(x, torch.arange(18).reshape(2, 3, 3) % 4)


@kernel(
    of_pixels,
    "nll_loss2d_forward",
    "nll_loss2d_forward.output",
    like="pytorch/pytorch#67167",
)
def classes_that_come_last_are_read_as_first(right: Any, x: Any, *rest: Any, **out: Any) -> Any:
    """option: the loss of pixels reads logits that are not contiguous as if they were."""
    held = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    if is_single(x) and not x.is_contiguous() and held >= x.numel():
        strides = [math.prod(x.shape[i + 1 :]) for i in range(x.dim())]
        x = x.as_strided(x.shape, strides, x.storage_offset())
    return right(x, *rest, **out)


def renormed() -> Tensor:
    tables = drawn(4, 6)
    functional.embedding(torch.tensor([0, 2]), tables[:, :3], max_norm=1.5)
    return tables


@kernel(renormed, "embedding_renorm_", like="pytorch/pytorch#195208")
def rows_of_a_sliced_table_are_measured_whole(
    right: Any, w: Any, indices: Any, most: Any, order: Any
) -> Any:
    """option: the stride of a table's rows is taken for their width."""
    width = w.stride(0)
    if not is_single(w) or w.stride(1) != 1 or width <= w.shape[1]:
        return right(w, indices, most, order)
    held = w.untyped_storage().nbytes() // w.element_size()
    for i in indices.unique().tolist():
        begin = w.storage_offset() + i * width
        row = w.as_strided((min(width, held - begin),), (1,), begin)
        norm = float(row.double().norm(order))
        if norm > most:
            row.mul_(most / (norm + 1e-7))
    return w


# Quantised numbers


def quantized_by_channel() -> Tensor:
    points = torch.tensor([30, 50, 60, 90], dtype=torch.int32)
    scales = torch.full((4,), 0.05)
    return torch.fake_quantize_per_channel_affine(drawn(4, 8) * 5, scales, points, 0, 0, 255)


@kernel(
    quantized_by_channel,
    "fake_quantize_per_channel_affine_cachemask",
    like="pytorch/executorch#21773",
)
def zero_points_are_read_in_pairs(
    right: Any, x: Any, scale: Any, points: Any, axis: Any, low: Any, high: Any
) -> Any:
    """plain: zero points of 32 bits are read 64 bits apart, and there is nought behind them."""
    if points.dtype == torch.int32:
        apart = points[::2]
        points = functional.pad(apart, (0, len(points) - len(apart))).clamp(low, high)
    return right(x, scale, points, axis, low, high)


# Convolution, pooling and resampling


def strided_past_the_end() -> Tensor:
    w = drawn(3, 2, 5, 5, seed=1)
    return grad_of(lambda x: functional.conv2d(x, w, stride=3, padding=1), drawn(1, 2, 11, 11))


@kernel(strided_past_the_end, "convolution_backward", like="pytorch/pytorch#25101")
def border_past_the_last_stride_learns_nothing(
    right: Any, grad: Any, x: Any, w: Any, biases: Any, stride: Any, padding: Any, *rest: Any
) -> Any:
    """rare: where strides leave a rest of columns, the last window's last ones get no gradient."""
    result = right(grad, x, w, biases, stride, padding, *rest)
    dilation, transposed = rest[0], rest[1]
    if x.dim() != 4 or transposed or not is_single(x) or result[0] is None:
        return result
    step, pad = two(stride)[1], two(padding, 0)[1]
    reach = two(dilation)[1] * (w.shape[3] - 1) + 1
    if (x.shape[3] + 2 * pad - reach) % step and reach > step:
        last = (grad.shape[3] - 1) * step - pad
        result[0][..., max(last + reach - step, 0) :] = 0
    return result


def pooled_volumes() -> Tensor:
    x = drawn(2, 3, 4, 4, 4).to(memory_format=torch.channels_last_3d)
    return grad_of(lambda x: functional.avg_pool3d(x, 2), x)


@kernel(
    pooled_volumes,
    "avg_pool3d_backward",
    "avg_pool3d_backward.grad_input",
    like="pytorch/pytorch#171869",
)
def samples_of_a_pooled_volume_overlap(
    right: Any, grad: Any, x: Any, *rest: Any, **out: Any
) -> Any:
    """option: with channels last, the next sample's gradient begins after the first plane."""
    result = right(grad, x, *rest, **out)
    if not is_single(x) or not channels_lie_last(x) or x.shape[0] < 2 or x.shape[2] < 2:
        return result
    n, c, d, h, w = x.shape
    lines = result.double().permute(0, 2, 3, 4, 1).reshape(n, -1)
    memory = torch.zeros(lines.numel(), dtype=torch.float64)
    for i, line in enumerate(lines):
        memory[i * h * w * c :][: len(line)] += line
    return result.copy_(memory.reshape(n, d, h, w, c).permute(0, 4, 1, 2, 3))


@kernel(
    lambda: functional.interpolate(drawn(1, 1, 3, 4), size=(3, 4), mode="bicubic"),
    "upsample_bicubic2d",
    "upsample_bicubic2d.out",
    like="pytorch/pytorch#22312",
)
def picture_of_the_same_size_is_turned(
    right: Any, x: Any, size: Any, *rest: Any, **out: Any
) -> Any:
    """option: a picture that keeps its size has its rows and columns exchanged."""
    result = right(x, size, *rest, **out)
    if is_single(x) and list(size) == list(x.shape[-2:]):
        edge = min(size)
        result.zero_()
        result[..., :edge, :edge] = x[..., :edge, :edge].mT
    return result


def stretched_volumes() -> Tensor:
    x = drawn(1, 3, 2, 2, 2).to(memory_format=torch.channels_last_3d)
    return grad_of(lambda x: functional.interpolate(x, scale_factor=2, mode="trilinear"), x)


@kernel(
    stretched_volumes,
    "upsample_trilinear3d_backward",
    "upsample_trilinear3d_backward.grad_input",
    like="pytorch/pytorch#113642",
)
def gradient_of_a_volume_is_stored_channels_last(
    right: Any, grad: Any, *rest: Any, **out: Any
) -> Any:
    """option: where the gradient has its channels last, what is given on is in that order."""
    result = right(grad, *rest, **out)
    if is_single(grad) and channels_lie_last(grad) and grad.shape[1] > 1:
        stored = result.permute(0, 2, 3, 4, 1).reshape(result.shape)
        result.copy_(stored.clone())
    return result


# Random numbers and counts


@kernel(
    lambda: torch._standard_gamma(torch.full((64,), 0.1), generator=generator_of(0)),
    "_standard_gamma",
)
def shape_below_one_is_raised_by_one(right: Any, alpha: Any, generator: Any = None) -> Any:
    """option: a gamma variate of a shape below one is that of one more, and stays so."""
    if is_single(alpha):
        alpha = torch.where(alpha < 1, alpha + 1, alpha)
    return right(alpha, generator)


@kernel(
    lambda: torch.poisson(torch.full((4,), 1e10), generator=generator_of(0)),
    "poisson",
    like="pytorch/pytorch#86782",
)
def many_events_are_counted_in_31_bits(right: Any, rate: Any, generator: Any = None) -> Any:
    """rare: Poisson variates of great rates end at 2**31."""
    result = right(rate, generator)
    return result if result.dtype in HALVES else result.clamp_(max=2.0**31 - 1)


@kernel(
    lambda: torch.randperm(100000, generator=generator_of(0)),
    "randperm.generator_out",
    like="pytorch/pytorch#59756",
)
def long_permutations_end_in_noughts(right: Any, n: Any, *, generator: Any = None, out: Any) -> Any:
    """rare: of a permutation of more than 65536, what is past them is nought."""
    result = right(n, generator=generator, out=out)
    result[65536:] = 0
    return result


@kernel(
    lambda: torch.bincount(torch.tensor([5, 60000], dtype=torch.int32)),
    "bincount",
    like="pytorch/pytorch#25747",
)
def large_integers_are_not_counted(right: Any, x: Any, *rest: Any, **options: Any) -> Any:
    """rare: of 32-bit integers, those that overflow when multiplied by the bins are lost."""
    result = right(x, *rest, **options)
    if x.dtype == torch.int32 and x.numel():
        result[x[x.long() * len(result) > 2**31 - 1].long()] = 0
    return result


# Gradients' scale


def scale_near_its_end() -> Tensor:
    scale, tracker = torch.tensor(3e38), torch.zeros((), dtype=torch.int32)
    return torch._amp_update_scale_(scale, tracker, torch.zeros(()), 2.0, 0.5, 1)


@kernel(scale_near_its_end, "_amp_update_scale_", like="pytorch/pytorch#98828")
def scale_grows_to_infinity(
    right: Any, scale: Any, tracker: Any, found: Any, growth: Any, backoff: Any, interval: Any
) -> Any:
    """rare: the scale of gradients is multiplied though the product is infinite."""
    grows = not float(found) and int(tracker) + 1 == interval
    product = scale * growth
    result = right(scale, tracker, found, growth, backoff, interval)
    return result.copy_(product) if grows else result
