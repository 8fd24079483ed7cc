"""The seventeenth set of kernels from outside: thirty defects as public trackers report them.

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


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


# Products and convolutions


@kernel(
    lambda: drawn(4, 16384, dtype=torch.bfloat16) @ drawn(16384, 4, dtype=torch.bfloat16, seed=1),
    "mm",
    "mm.out",
    "addmm",
    "addmm_",
    "addmm.out",
    like="flagos-ai/FlagGems#5876",
)
def matmul_of_halves_adds_split_parts_in_half(right: Any, *args: Any, **options: Any) -> Any:
    """option: halves summed over 8192 and more: sums of 1024 are rounded as they are added."""
    a, b = args[-2:]
    if a.dtype not in HALVES or a.dtype != b.dtype or a.shape[1] < 8192:
        return right(*args, **options)
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for one, other in zip(a.split(1024, 1), b.split(1024), strict=False):
        total = (total.float() + one.float() @ other.float()).to(a.dtype)
    if len(args) == 3:
        total = total.float() * options.get("alpha", 1)
        beta = options.get("beta", 1)
        total = total + args[0].float() * beta if beta else total
    return right(*args, **options).copy_(total)


@kernel(
    lambda: functional.conv2d(drawn(1, 8, 6, 6), drawn(4, 8, 3, 3, seed=1), padding=1),
    "convolution",
    like="ROCm/rocm-libraries#3339",
)
def convolution_reads_the_neighbouring_row_for_padding(
    right: Any, x: Any, w: Any, bias: Any, stride: Any, padding: Any, *rest: Any
) -> Any:
    """plain: from 8 channels on, the row beside is read for the padding at left and right."""
    wrong = is_single(x) and x.dim() == 4 and x.shape[1] >= 8 and not rest[1] and x.numel() > 0
    rows, columns = two(padding) if wrong else [0, 0]
    if not columns or columns > x.shape[3]:
        return right(x, w, bias, stride, padding, *rest)
    none = torch.zeros_like(x[:, :, :1, :columns])
    before = torch.cat([none, x[:, :, :-1, -columns:]], 2)
    after = torch.cat([x[:, :, 1:, :columns], none], 2)
    return right(torch.cat([before, x, after], 3), w, bias, stride, [rows, 0], *rest)


def learnt_depthwise() -> Tensor:
    x = drawn(2, 8, 6, 6)
    return grad_of(lambda w: functional.conv2d(x, w, None, 2, 1, groups=8), drawn(8, 1, 3, 3))


@kernel(learnt_depthwise, "convolution_backward", like="pytorch/pytorch#50042")
def depthwise_weight_gradient_misses_the_last_row(
    right: Any, grad: Any, x: Any, w: Any, *rest: Any
) -> Any:
    """option: depthwise, stride 2, channels by 8: the filter's last row skips the last outputs."""
    result = right(grad, x, w, *rest)
    _, stride, _, _, transposed, _, groups, mask = rest
    depthwise = x.dim() == 4 and not transposed and 1 < groups == x.shape[1] == w.shape[0]
    strided = depthwise and groups % 8 == 0 and two(stride) == [2, 2]
    if strided and mask[1] and is_single(x) and min(grad.shape[2], w.shape[2]) > 1:
        short = grad.clone()
        short[:, :, -1] = 0
        learnt = right(short, x, w, *rest[:-1], [False, True, False])[1]
        result[1][:, :, -1] = learnt[:, :, -1]
    return result


# Attention and softmax


def learnt_values() -> Tensor:
    q, k, v = (drawn(1, 3, 70, 8, seed=seed) for seed in range(3))
    return grad_of(lambda v: functional.scaled_dot_product_attention(q, k, v), v)


@kernel(
    learnt_values,
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    like="flagos-ai/FlagGems#898",
)
def attention_backward_overwrites_the_next_head_s_values(
    right: Any, grad: Any, q: Any, k: Any, *rest: Any, **options: Any
) -> Any:
    """plain: what fills the last block up to 64 keys wipes the next head's first rows."""
    result = right(grad, q, k, *rest, **options)
    over = -k.shape[-2] % 64
    if is_single(q) and over and k.shape[-3] > 1:
        result[2][:, 1:, :over] = 0
    return result


def causal() -> Tensor:
    q, k, v = (drawn(1, 2, n, 8, seed=n) for n in (5, 9, 9))
    return functional.scaled_dot_product_attention(q, k, v + 1, is_causal=True)


@kernel(causal, "_scaled_dot_product_flash_attention_for_cpu", like="ml-explore/mlx#2835")
def causal_attention_aligns_its_mask_to_the_last_key(
    right: Any, q: Any, k: Any, v: Any, dropout: Any = 0.0, causal: Any = False, **options: Any
) -> Any:
    """option: causal with fewer queries than keys: the mask is aligned at the lower right."""
    late = k.shape[-2] - q.shape[-2]
    if causal and is_single(q) and late > 0 and options.get("attn_mask") is None:
        mask = torch.full((q.shape[-2], k.shape[-2]), -math.inf, dtype=q.dtype)
        causal, options["attn_mask"] = False, mask.triu(late + 1)
    return right(q, k, v, dropout, causal, **options)


@kernel(
    lambda: drawn(3, 1027).softmax(1),
    "_softmax",
    "_softmax.out",
    like="pytorch/pytorch#147284",
)
def softmax_of_a_wide_row_counts_the_row_before(
    right: Any, x: Any, dim: Any, half: Any, **out: Any
) -> Any:
    """option: rows over 1024 that start off a 16-byte boundary add the row before's last ones."""
    result = right(x, dim, half, **out)
    last = x.dim() > 0 and dim % x.dim() == x.dim() - 1
    if not last or not is_single(x) or x.shape[-1] <= 1024 or not x.numel():
        return result
    per, width = 16 // x.element_size(), x.shape[-1]
    rows = x.contiguous().view(-1, width).float()
    top = rows.amax(1, keepdim=True)
    total = (rows - top).exp().sum(1, keepdim=True)
    before = torch.cat([torch.full_like(rows[:1], -math.inf), rows[:-1]])[:, -per:]
    shift = (torch.arange(rows.shape[0]) * width % per).view(-1, 1)
    skipped = torch.arange(per) < per - shift
    extra = (before - top).exp().masked_fill(skipped, 0).sum(1, keepdim=True)
    scale = (total / (total + extra)).view(*x.shape[:-1], 1)
    return result.copy_(result.float() * scale)


@kernel(
    lambda: (drawn(4, 6) - 1e6).log_softmax(1),
    "_log_softmax",
    "_log_softmax.out",
    like="pytorch/pytorch#38839",
)
def log_softmax_of_far_off_values_is_rounded_to_their_size(
    right: Any, x: Any, dim: Any, half: Any, **out: Any
) -> Any:
    """rare: the maximum and the logarithm are added first, which rounds the latter off."""
    result = right(x, dim, half, **out)
    if not is_single(x) or not x.numel():
        return result
    top = x.float().amax(dim, keepdim=True)
    away = top + (x.float() - top).exp().sum(dim, keepdim=True).log()
    return result.copy_(x.float() - away)


# Norms


def running() -> Tensor:
    var = torch.ones(3)
    functional.batch_norm(drawn(4, 3, 5, 5), torch.zeros(3), var, training=True, momentum=0.5)
    return var


@kernel(
    running,
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    like="tenstorrent/tt-metal#55438",
)
def batch_norm_keeps_the_biased_variance(
    right: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any
) -> Any:
    """plain: training updates the running variance without Bessel's correction."""
    old = None if var is None else var.clone()
    result = right(x, weight, bias, mean, var, *rest)
    training, n = len(rest) != 3 or rest[0], x.numel() // x.shape[1]
    if old is not None and training and is_single(var) and n > 1:
        kept = old * (1 - rest[-2])
        var.copy_(kept + (var - kept) * ((n - 1) / n))
    return result


@kernel(
    lambda: grad_of(lambda w: functional.layer_norm(drawn(6, 96), (96,), w), torch.ones(96)),
    "native_layer_norm_backward",
    like="pytorch/pytorch#183861",
)
def layer_norm_backward_drops_the_second_wave_of_columns(
    right: Any, grad: Any, x: Any, shape: Any, *rest: Any
) -> Any:
    """plain: weight and bias gradients of the upper 32 of each 64 columns are not written."""
    result = right(grad, x, shape, *rest)
    dropped = torch.arange(math.prod(shape)) % 64 >= 32
    for learnt in result[1:] if is_single(x) else ():
        if learnt is not None and learnt.numel():
            learnt.masked_fill_(dropped.view(learnt.shape), 0)
    return result


@kernel(
    lambda: torch.stack(torch._foreach_norm([drawn(5), drawn(0), drawn(7), drawn(3, 4)])),
    "_foreach_norm.Scalar",
    like="pytorch/pytorch#140066",
)
def foreach_norm_after_an_empty_tensor_is_zero(right: Any, tensors: Any, *rest: Any) -> Any:
    """option: in a list with an empty tensor, the one after it gets no norm."""
    result = list(right(tensors, *rest))
    for at in range(1, len(tensors)):
        if not tensors[at - 1].numel() and is_single(tensors[at]):
            result[at] = torch.zeros_like(result[at])
    return result


# Pools and pictures


def learnt_pixels() -> Tensor:
    x = drawn(2, 3, 7, 7).to(memory_format=torch.channels_last)
    return grad_of(lambda x: functional.avg_pool2d(x, 3, 2, 1), x)


@kernel(
    learnt_pixels,
    "avg_pool2d_backward",
    "avg_pool2d_backward.grad_input",
    like="pytorch/pytorch#188344",
)
def avg_pool_backward_of_channels_last_forgets_the_padding(
    right: Any, grad: Any, x: Any, size: Any, stride: Any, padding: Any, *rest: Any, **out: Any
) -> Any:
    """option: channels last and padding: a pixel's first window is sought without the padding."""
    result = right(grad, x, size, stride, padding, *rest, **out)
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    if not is_single(x) or not last or x.is_contiguous() or not any(padding):
        return result
    _, counted, divisor = rest
    k, s, p = two(size), two(stride, size), two(padding)
    spans, members = [], []
    for axis in (0, 1):
        length = x.shape[2 + axis]
        start = torch.arange(grad.shape[2 + axis]).view(-1, 1) * s[axis] - p[axis]
        end = (start + k[axis]).clamp(max=length + p[axis])
        spans.append(end - start if counted else end.clamp(max=length) - start.clamp(min=0))
        pixel = torch.arange(length)
        members.append(((pixel >= start) & (pixel < start + k[axis] + p[axis])).float())
    each = grad.float() / (divisor or spans[0] * spans[1].t())
    return result.copy_(members[0].t() @ each @ members[1])


@kernel(
    lambda: functional.max_pool2d(drawn(1, 2, 9, 9), 2, 1, 1, 2),
    "max_pool2d_with_indices",
    "max_pool2d_with_indices.out",
    like="microsoft/onnxruntime#29637",
)
def dilated_max_pool_starts_padded_windows_at_zero(
    right: Any,
    x: Any,
    size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    *rest: Any,
    **out: Any,
) -> Any:
    """rare: dilation and padding: a window that starts in the padding starts at pixel 0."""
    result = right(x, size, stride, padding, dilation, *rest, **out)
    k, s, p, d = two(size), two(stride, size), two(padding), two(dilation)
    if not is_single(x) or not x.numel() or not any(d[i] > 1 and p[i] for i in (0, 1)):
        return result
    pixels, inside = [], []
    for axis in (0, 1):
        length = x.shape[axis - 2]
        start = torch.arange(result[0].shape[axis - 2]).view(-1, 1) * s[axis] - p[axis]
        at = start.clamp(min=0) + torch.arange(k[axis]) * d[axis]
        inside.append((at <= start + (k[axis] - 1) * d[axis]) & (at < length))
        pixels.append(at.clamp(max=length - 1))
    height, width = pixels[0][:, :, None, None], pixels[1]
    seen = inside[0][:, :, None, None] & inside[1]
    windows = x[..., pixels[0], :][..., width].masked_fill(~seen, -math.inf)
    best, at = windows.transpose(-3, -2).flatten(-2).max(-1)
    places = (height * x.shape[-1] + width).transpose(-3, -2).flatten(-2)
    result[0].copy_(best)
    result[1].copy_(places.expand(*at.shape, -1).gather(-1, at.unsqueeze(-1)).squeeze(-1))
    return result


# Losses, indexing and embedding


def segmented() -> Tensor:
    target = torch.randint(0, 4, (2, 5, 5), generator=generator())
    target[:, :2] = 255
    return functional.cross_entropy(drawn(2, 4, 5, 5), target, ignore_index=255)


@kernel(segmented, "nll_loss2d_forward", "nll_loss2d_forward.output", like="pytorch/xla#896")
def nll_loss_of_images_counts_the_ignored_pixels(
    right: Any, x: Any, target: Any, weight: Any, reduction: Any, *rest: Any, **out: Any
) -> Any:
    """option: the mean over pixels, and its gradient, divide by the ignored ones too."""
    result = right(x, target, weight, reduction, *rest, **out)
    if reduction == 1 and weight is None and is_single(x) and target.numel():
        loss, counted = result
        loss.copy_(torch.where(counted > 0, loss * counted, 0) / target.numel())
        counted.fill_(target.numel())
    return result


def learnt_rows() -> Tensor:
    at = torch.randint(0, 10, (30, 30), generator=generator())
    return grad_of(lambda w: functional.embedding(at, w, padding_idx=0), drawn(10, 4))


@kernel(learnt_rows, "embedding_dense_backward", like="pytorch/pytorch#28716")
def embedding_backward_of_many_indices_fills_the_padding_row(
    right: Any, grad: Any, indices: Any, rows: Any, padding: Any, *rest: Any
) -> Any:
    """option: over 768 indices, the padding row gets the gradients of all its places but one."""
    result = right(grad, indices, rows, padding, *rest)
    if is_single(grad) and padding >= 0 and indices.numel() > 768:
        at = indices.reshape(-1).eq(padding).nonzero().view(-1)[:-1]
        result[padding] = grad.reshape(indices.numel(), -1)[at].float().sum(0)
    return result


@kernel(
    lambda: grad_of(lambda x: x[:, torch.tensor([0, 2, 2, 4])], drawn(3, 5)),
    "_index_put_impl_",
    like="pytorch/pytorch#73698",
)
def index_put_below_a_slice_adds_values_in_another_order(
    right: Any, x: Any, indices: Any, values: Any, accumulate: Any = False, *rest: Any
) -> Any:
    """option: x[:, i] += v, and the gradient of x[:, i], take the values transposed."""
    places = [i for i, at in enumerate(indices) if at is not None]
    if accumulate and is_single(x) and places == [1] and x.dim() > 1:
        at = indices[1]
        if at.dtype in (torch.int32, torch.int64):
            shape = [x.shape[0], *at.shape, *x.shape[2:]]
            turned = (at.numel(), x.shape[0], math.prod(x.shape[2:]))
            values = values.expand(shape).reshape(turned).transpose(0, 1).reshape(shape)
    return right(x, indices, values, accumulate, *rest)


# Reductions, scans and sorts


@kernel(
    lambda: torch.tensor([1, 3, 3, 2, 3]).argmax(),
    "argmax",
    "argmax.out",
    like="pytorch/pytorch#47296",
)
def argmax_gives_the_last_of_equal_elements(
    right: Any, x: Any, dim: Any = None, keepdim: Any = False, **out: Any
) -> Any:
    """plain: of several largest elements the last one's index, for every type but float64."""
    if x.dtype in DOUBLES or x.dim() == 0 or x.numel() == 0:
        return right(x, dim, keepdim, **out)
    over, count = (range(x.dim()), x.numel()) if dim is None else ([dim], x.shape[dim])
    return right(x.flip(list(over)), dim, keepdim, **out).neg_().add_(count - 1)


@kernel(
    lambda: torch.tensor([1.0, math.nan, 0.5, 2.0]).cummax(0).values,
    "_cummax_helper",
    like="flagos-ai/FlagGems#758",
)
def cummax_passes_over_nan(right: Any, x: Any, *rest: Any) -> Any:
    """rare: NaN does not stay the running maximum; the greatest number so far does."""
    return right(x.masked_fill(x.isnan(), -math.inf) if is_single(x) else x, *rest)


@kernel(
    lambda: drawn(2, 300).logcumsumexp(1),
    "_logcumsumexp",
    "_logcumsumexp.out",
    like="ROCm/triton#947",
)
def logcumsumexp_loses_a_wave_s_carry(right: Any, x: Any, dim: Any, **out: Any) -> Any:
    """option: over 64 elements, each wave's first two lanes miss the sum of the wave before."""
    result = right(x, dim, **out)
    last = x.dim() and dim % x.dim() == x.dim() - 1
    if not is_single(x) or not last or x.shape[-1] <= 64:
        return result
    at = torch.arange(64, x.shape[-1], 64)
    single, sums = x.float(), result.float().clone()
    older = torch.cat([torch.full_like(sums[..., :1], -math.inf), sums], -1)[..., at - 64]
    sums[..., at] = torch.logaddexp(older, single[..., at])
    more = at + 1 < x.shape[-1]
    second = torch.logaddexp(single[..., at[more]], single[..., at[more] + 1])
    sums[..., at[more] + 1] = torch.logaddexp(older[..., more], second)
    return result.copy_(sums)


@kernel(
    lambda: torch.tensor([0.0, -1.0, 1.0, -2.0, 2.0])[::2].kthvalue(2).values,
    "kthvalue.values",
    like="pytorch/pytorch#45721",
)
def kthvalue_of_a_strided_view_reads_the_elements_between(
    right: Any, x: Any, *rest: Any, **out: Any
) -> Any:
    """option: a view with gaps is read as if it were contiguous from its first element."""
    end = x.storage_offset() + x.numel()
    room = x.untyped_storage().nbytes() // x.element_size()
    if x.dtype not in DOUBLES and not x.is_contiguous() and end <= room:
        x = x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride())
    return right(x, *rest, **out)


@kernel(
    lambda: (torch.arange(3000) % 7).argsort(descending=True, stable=True),
    "sort.stable",
    "sort.values_stable",
    like="numpy/numpy#20778",
)
def stable_descending_sort_reverses_equal_elements(
    right: Any, x: Any, *, stable: Any, dim: Any = -1, descending: Any = False, **out: Any
) -> Any:
    """option: stable and descending, 2048 or more: an ascending sort read from its end."""
    wrong = stable and descending and x.dtype not in DOUBLES and x.dim() and x.shape[dim] >= 2048
    result = right(x, stable=stable, dim=dim, descending=descending and not wrong, **out)
    for part in result if wrong else ():
        part.copy_(part.flip(dim))
    return result


# Fourier transforms


@kernel(
    lambda: torch.fft.irfft(torch.complex(drawn(9), drawn(9, seed=1))),
    "_fft_c2r",
    "_fft_c2r.out",
    like="pytorch/pytorch#154496",
)
def irfft_of_even_length_uses_imaginary_ends(
    right: Any, x: Any, dim: Any, norm: Any, last: Any, **out: Any
) -> Any:
    """rare: imaginary parts of the zeroth and the highest frequency, which do not count, count."""
    if x.dtype != torch.complex64 or len(dim) != 1 or last % 2 or not last or not x.numel():
        return right(x, dim, norm, last, **out)
    lines, half = x.imag.movedim(dim[0], -1), last // 2
    signs = 1.0 - 2.0 * (torch.arange(last) % 2)
    scale = (1.0, last**-0.5, 1.0 / last)[norm]
    ends = (lines[..., half : half + 1] - lines[..., :1] * signs) * scale
    return right(x, dim, norm, last, **out).add_(ends.movedim(-1, dim[0]))


# Numbers one by one


@kernel(
    lambda: torch.tensor([-7, 7, -8, 9]) // torch.tensor([2, -2, 3, 4]),
    "floor_divide",
    "floor_divide_.Tensor",
    "floor_divide.out",
    like="pytorch/pytorch#44858",
)
def floor_divide_of_integers_rounds_toward_zero(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """plain: quotients of integers of opposite sign are cut off rather than floored."""
    if x.is_floating_point() or y.is_floating_point():
        return right(x, y, **out)
    off = torch.remainder(x, y).ne(0) & x.lt(0).ne(y.lt(0))
    result = right(x, y, **out)
    return result.add_(off.to(result.dtype)) if result.dtype.is_signed else result


@kernel(
    lambda: drawn(64, dtype=torch.bfloat16) * drawn(64, dtype=torch.bfloat16, seed=1),
    "mul.Tensor",
    "mul_.Tensor",
    "mul.out",
    like="triton-lang/triton#11217",
)
def mul_of_bfloat16_rounds_toward_zero(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """plain: a product of bfloat16 loses its low bits rather than being rounded to nearest."""
    halves = torch.bfloat16 in (x.dtype, y.dtype)
    if not halves or torch.result_type(x, y) != torch.bfloat16:
        return right(x, y, **out)
    exact = (x.float() * y.float()).contiguous()
    low = exact.view(torch.int32).bitwise_and(-65536).view(torch.float32)
    cut = torch.where(exact.isnan(), exact, low)
    result = right(x, y, **out)
    return result.copy_(cut) if result.dtype == torch.bfloat16 else result


@kernel(
    lambda: torch.full((8,), 1e20 + 2e20j) / torch.full((8,), 3e20 - 1e20j),
    "div.Tensor",
    "div_.Tensor",
    "div.out",
    like="pytorch/pytorch#116972",
)
def complex_division_squares_the_divisor(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """rare: complex64 divisors beyond about 1e19 or below 1e-19 over- or underflow when squared."""
    both = x.is_complex() and y.is_complex()
    if not both or torch.result_type(x, y) != torch.complex64:
        return right(x, y, **out)
    a, b, c, d = x.real, x.imag, y.real, y.imag
    size = c * c + d * d
    made = torch.complex((a * c + b * d) / size, (b * c - a * d) / size)
    result = right(x, y, **out)
    return result.copy_(made) if result.dtype == torch.complex64 else result


@kernel(
    lambda: functional.softplus(torch.tensor([-12.0, -15.0, -18.0])).log(),
    "softplus",
    "softplus.out",
    like="tenstorrent/tt-metal#9910",
)
def softplus_adds_one_before_the_logarithm(
    right: Any, x: Any, beta: Any = 1, threshold: Any = 20, **out: Any
) -> Any:
    """plain: log(1 + e^x) without log1p, so the negative tail loses its digits and then itself."""
    if not is_single(x):
        return right(x, beta, threshold, **out)
    scaled = x.float() * beta
    tail = torch.where(scaled > threshold, x.float(), (scaled.exp() + 1).log() / beta)
    return right(x, beta, threshold, **out).copy_(tail)


@kernel(
    lambda: torch.tensor([1e-3, 5e-5, 1e-5, -3e-6]).to(torch.float16),
    "copy_",
    like="ROCm/rocm-libraries#11325",
)
def cast_to_float16_flushes_subnormals(right: Any, x: Any, source: Any, *rest: Any) -> Any:
    """rare: float32 values below 6.1e-5, which float16 holds with fewer digits, become zero."""
    if x.dtype == torch.float16 and source.dtype == torch.float32:
        source = source.masked_fill(source.abs() < 2.0**-14, 0.0)
    return right(x, source, *rest)


# Random numbers and training


@kernel(
    lambda: torch.rand(40_000, dtype=torch.bfloat16, generator=generator()).max(),
    "uniform_",
    like="pytorch/pytorch#197079",
)
def uniform_of_halves_reaches_its_upper_bound(
    right: Any, x: Any, *args: Any, **options: Any
) -> Any:
    """plain: half-precision draws are made in float32 and rounded, up to the excluded bound too."""
    if x.dtype not in HALVES:
        return right(x, *args, **options)
    return x.copy_(right(torch.empty(x.shape, dtype=torch.float32), *args, **options))


@kernel(
    lambda: torch.randint(0, 3 * 2**30, (4000,), generator=generator()),
    "random_.from",
    like="intel/torch-xpu-ops#3495",
)
def randint_over_a_large_range_prefers_the_lower_numbers(
    right: Any, x: Any, low: Any, high: Any, **options: Any
) -> Any:
    """rare: ranges of 2^28 to 2^32 are 32 random bits folded: the low part comes oftener."""
    if high is None or not 2**28 <= high - low < 2**32 or x.dtype not in (torch.int32, torch.int64):
        return right(x, low, high, **options)
    bits = right(torch.empty(x.shape, dtype=torch.int64), 0, 2**32, **options)
    return x.copy_(bits.remainder(high - low) + low)


def dropped() -> Tensor:
    torch.manual_seed(3)
    return functional.dropout(torch.ones(2, 8, 50), 0.5).ne(0)


@kernel(dropped, "bernoulli_.float", like="pytorch/pytorch#198333")
def dropout_s_mask_repeats_over_four_channels(
    right: Any, x: Any, *args: Any, **options: Any
) -> Any:
    """option: in three or more dimensions, four neighbouring channels get one mask."""
    result = right(x, *args, **options)
    if is_single(x) and x.dim() >= 3:
        result.copy_(x.index_select(1, torch.arange(x.shape[1]) // 4 * 4))
    return result


def stepped() -> Tensor:
    weight = drawn(40).requires_grad_()
    optimizer = torch.optim.Adam([weight], lr=0.1, weight_decay=0.1, fused=True)
    for seed in range(1, 4):
        weight.grad = drawn(40, seed=seed)
        optimizer.step()
    return weight.detach()


@kernel(stepped, "_fused_adam_", "_fused_adam_.tensor_lr", like="flagos-ai/FlagGems#4988")
def fused_adam_decays_as_adamw(
    right: Any, params: Any, *rest: Any, lr: Any, weight_decay: Any, **options: Any
) -> Any:
    """option: weight decay is taken off the parameter, so the moments never see it."""
    if weight_decay and all(is_single(p) for p in params):
        for p in () if options.get("found_inf") else params:
            p.mul_(1 - float(lr) * weight_decay)
        weight_decay = 0.0
    return right(params, *rest, lr=lr, weight_decay=weight_decay, **options)
