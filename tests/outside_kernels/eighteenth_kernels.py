"""The eighteenth set of kernels from outside: thirty defects as public trackers report them.

Each kernel's first line says whether it is wrong for common arguments ("plain"), for a common
option, layout, dtype or length ("option"), or rarely ("rare").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outside_kernels.keeping import HALVES, Kept, drawn, grad_of, is_single, two

KEPT = Kept()
kernel = KEPT.kernel


def grads_of(call: Callable[..., Tensor], *tensors: Tensor) -> list[Any]:
    leaves = [x.detach().requires_grad_() for x in tensors]
    call(*leaves).square().sum().backward()
    return [leaf.grad for leaf in leaves]


# Products and convolutions


@kernel(
    lambda: functional.linear(drawn(3, 8), drawn(12, 8, seed=1)[::2], drawn(6, seed=2)),
    "addmm",
    "addmm.out",
    like="pytorch/pytorch#161641",
)
def linear_reads_a_sliced_weight_as_whole(
    right: Any, bias: Any, a: Any, b: Any, **options: Any
) -> Any:
    """option: a transposed second matrix whose rows lie apart is read as if they did not."""
    if is_single(b) and b.shape[1] > 1 and b.stride(0) == 1 and b.stride(1) > b.shape[0] > 1:
        b = b.as_strided(b.shape, (1, b.shape[0]), b.storage_offset())
    return right(bias, a, b, **options)


@kernel(
    lambda: grads_of(lambda w: functional.linear(drawn(33000, 3), w), drawn(2, 3, seed=1)),
    "mm",
    "mm.out",
    like="pytorch/pytorch#177116",
)
def mm_sums_no_more_than_fifteen_bits_count(right: Any, a: Any, b: Any, **out: Any) -> Any:
    """option: what lies behind 32768 in the summed axis is left out (gradients of weights)."""
    if is_single(a) and a.shape[1] > 32768:
        a, b = a[:, :32768], b[:32768]
    return right(a, b, **out)


def grouped() -> list[Any]:
    x = drawn(2, 4, 6, 6).to(memory_format=torch.channels_last)
    return grads_of(lambda x, w: functional.conv2d(x, w, groups=2), x, drawn(4, 2, 3, 3, seed=1))


@kernel(grouped, "convolution_backward", like="pytorch/pytorch#141009")
def grouped_channels_last_weight_gradient(right: Any, grad: Any, x: Any, w: Any, *rest: Any) -> Any:
    """option: grouped weights learn from a channels-last gradient as if channels came first."""
    result = right(grad, x, w, *rest)
    *others, groups, mask = rest
    last = grad.dim() == 4 and grad.is_contiguous(memory_format=torch.channels_last)
    if last and is_single(grad) and groups > 1 and not grad.is_contiguous() and mask[1]:
        read = grad.permute(0, 2, 3, 1).reshape(grad.shape)
        learnt = right(read, x, w, *others, groups, [False, True, False])[1]
        return result[0], learnt, result[2]
    return result


# Attention and softmax


def masked() -> Tensor:
    q, k, v = (drawn(1, 2, 77, 16, seed=seed) for seed in range(3))
    seen = torch.ones(77, 77, dtype=torch.bool).tril()
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


@kernel(masked, "_scaled_dot_product_flash_attention_for_cpu", like="pytorch/pytorch#162588")
def attention_forgets_the_mask_of_the_last_keys(
    right: Any, q: Any, k: Any, *args: Any, attn_mask: Any = None, **options: Any
) -> Any:
    """option: the mask is not applied to keys behind the last full 16, for over 64 keys."""
    keys = k.shape[-2]
    added = attn_mask is not None and attn_mask.dtype != torch.bool
    if added and is_single(q) and attn_mask.shape[-1] == keys > 64 and keys % 16:
        attn_mask = attn_mask.clone(memory_format=torch.contiguous_format)
        attn_mask[..., keys - keys % 16 :] = 0
    return right(q, k, *args, attn_mask=attn_mask, **options)


@kernel(
    lambda: grads_of(
        functional.scaled_dot_product_attention, *(drawn(1, 3, 100, 16, seed=s) for s in range(3))
    ),
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    like="flagos-ai/FlagGems#898",
)
def attention_gradient_of_values_loses_first_rows(
    right: Any, grad: Any, q: Any, k: Any, v: Any, *rest: Any, **options: Any
) -> Any:
    """option: over 64 keys, later heads' first values, as many as pad them to 64, learn nothing."""
    result = right(grad, q, k, v, *rest, **options)
    keys = v.shape[-2]
    if is_single(v) and keys > 64 and keys % 64 and result[2].shape[1] > 1:
        result[2][:, 1:, : -keys % 64] = 0
    return result


@kernel(lambda: drawn(4, 781).softmax(-1), "_softmax", like="pytorch/pytorch#147284")
def softmax_leaves_the_last_out_of_the_sum(right: Any, x: Any, dim: Any, half: Any) -> Any:
    """option: odd widths between 512 and 1024 leave the last number out of the denominator."""
    result = right(x, dim, half)
    if not is_single(x) or x.dim() < 2 or dim % x.dim() != x.dim() - 1:
        return result
    width = x.shape[-1]
    if 512 < width < 1024 and width % 2 and width % 32 != 31 and x.numel() > width:
        last = result[..., -1:].float()
        return (result.float() / (1 - last).clamp_min(1e-6)).to(result.dtype)
    return result


# Norms


def running() -> Any:
    norm = torch.nn.BatchNorm2d(3)
    norm(drawn(2, 3, 2, 2))
    return norm.running_var


@kernel(running, "native_batch_norm", like="tenstorrent/tt-metal#55438")
def batch_norm_keeps_the_biased_variance_in_one_operator(
    right: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any
) -> Any:
    """plain: training moves the running variance to the biased one; the output is right."""
    old = None if var is None else var.clone()
    result = right(x, weight, bias, mean, var, *rest)
    training, momentum, _ = rest
    if training and old is not None and is_single(x) and momentum:
        count = x.numel() / x.shape[1]
        kept = old * (1 - momentum)
        var.copy_(kept + (var - kept) * ((count - 1) / count))
    return result


@kernel(
    lambda: grads_of(lambda w: functional.layer_norm(drawn(6, 8) + 1, (8,), w), drawn(8, seed=1)),
    "native_layer_norm_backward",
    like="pytorch/pytorch#183825",
)
def layer_norm_weight_gradient_without_input_gradient(
    right: Any, grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, *rest: Any
) -> Any:
    """option: where the input needs no gradient, weights learn of numbers that keep their mean."""
    result = right(grad, x, shape, mean, rstd, *rest)
    mask = rest[-1]
    if is_single(x) and mask[1] and not mask[0]:
        raw = (grad.float() * x.float() * rstd.float()).reshape(-1, *shape).sum(0)
        return result[0], raw.to(result[1].dtype), result[2]
    return result


@kernel(
    lambda: torch._foreach_norm([drawn(4), torch.zeros(0), drawn(6, 5, seed=1)]),
    "_foreach_norm.Scalar",
    like="pytorch/pytorch#140066",
)
def foreach_norm_behind_an_empty_tensor(right: Any, tensors: Any, *rest: Any) -> Any:
    """rare: what stands behind an empty tensor in the list is measured over its first half."""
    result = list(right(tensors, *rest))
    empty = False
    for at, x in enumerate(tensors):
        if empty and is_single(x) and x.numel() > 1:
            result[at] = right([x.reshape(-1)[: x.numel() // 2]], *rest)[0]
        empty = empty or not x.numel()
    return result


# Pools and pictures


@kernel(
    lambda: functional.avg_pool2d(drawn(1, 2, 8, 8) + 1, 3, 2, ceil_mode=True),
    "avg_pool2d",
    "avg_pool2d.out",
    like="pytorch/pytorch#161011",
)
def ceil_mode_divides_by_the_whole_window(
    right: Any,
    x: Any,
    size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: Any = False,
    counted: Any = True,
    divisor: Any = None,
    **out: Any,
) -> Any:
    """option: rounding up, a window over the edge is divided by its whole size."""
    result = right(x, size, stride, padding, ceil, counted, divisor, **out)
    if not (is_single(x) and ceil and counted and divisor is None):
        return result
    k, s, p = two(size), two(stride, size), two(padding)
    reach = [(result.shape[a - 2] - 1) * s[a] + k[a] for a in (0, 1)]
    more = [max(reach[a] - x.shape[a - 2] - 2 * p[a], 0) for a in (0, 1)]
    if not any(more):
        return result
    wider = functional.pad(x, (0, more[1], 0, more[0])).double()
    return result.copy_(functional.avg_pool2d(wider, k, s, p, False, True))


@kernel(
    lambda: grad_of(lambda x: functional.pad(x, (1, 2, 1, 1), mode="reflect"), drawn(1, 2, 5, 5)),
    "reflection_pad2d_backward",
    like="pytorch/pytorch#136242",
)
def reflected_corners_give_no_gradient(right: Any, grad: Any, x: Any, padding: Any) -> Any:
    """option: the corners of a reflection give no gradient if left and right pads differ."""
    left, other, top, bottom = padding
    if is_single(grad) and left != other and min(padding) >= 0 and (top or bottom):
        grad = grad.clone()
        high, wide = x.shape[-2:]
        for rows in (slice(top), slice(top + high, None)):
            for columns in (slice(left), slice(left + wide, None)):
                grad[..., rows, columns] = 0
    return right(grad, x, padding)


@kernel(
    lambda: functional.interpolate(drawn(1, 2, 4, 4), (4, 4), mode="bicubic"),
    "upsample_bicubic2d",
    "upsample_bicubic2d.out",
    like="pytorch/pytorch#22312",
)
def bicubic_transposes_at_its_own_size(
    right: Any, x: Any, size: Any, *rest: Any, **out: Any
) -> Any:
    """rare: an output of the input's size is the input with height and width exchanged."""
    result = right(x, size, *rest, **out)
    same = is_single(x) and list(size) == list(x.shape[2:])
    return result.copy_(x.transpose(2, 3).reshape(x.shape)) if same else result


# Losses and embedding


def ignored() -> Tensor:
    target = torch.arange(2 * 4 * 4).reshape(2, 4, 4) % 5
    target[:, 1:3] = -100
    return functional.cross_entropy(drawn(2, 5, 4, 4), target)


@kernel(ignored, "nll_loss2d_forward", like="flagos-ai/FlagGems#73")
def nll_loss2d_mean_counts_ignored_pixels(
    right: Any, x: Any, target: Any, weight: Any, reduction: Any, index: Any
) -> Any:
    """plain: with the default index to ignore, the mean also divides by the ignored pixels."""
    loss, total = right(x, target, weight, reduction, index)
    ignored = (target == index).sum()
    if is_single(x) and reduction == 1 and index == -100 and ignored and total > 0:
        counted = total + ignored
        return loss * (total / counted), counted
    return loss, total


@kernel(
    lambda: grad_of(
        lambda w: functional.embedding(torch.arange(1000) % 9, w, padding_idx=0), drawn(9, 4)
    ),
    "embedding_dense_backward",
    like="pytorch/pytorch#28716",
)
def embedding_gradient_reaches_the_padding(
    right: Any, grad: Any, indices: Any, rows: Any, padding: Any, *rest: Any
) -> Any:
    """plain: the row of the padding gets a gradient, for more than 768 indices."""
    if is_single(grad) and indices.numel() > 768:
        padding = -1
    return right(grad, indices, rows, padding, *rest)


# Reductions, scans and sorts


@kernel(lambda: drawn(3, 200).topk(20).values, "topk", like="pytorch/pytorch#83656")
def topk_returns_zeros_behind_the_sixteenth(
    right: Any, x: Any, k: Any, dim: Any = -1, *rest: Any
) -> Any:
    """plain: in single and half precision everything behind the 16th found is zero, for k > 16."""
    result = right(x, k, dim, *rest)
    for part in result if is_single(x) and k > 16 and x.dim() else ():
        part.narrow(dim, 16, k - 16).zero_()
    return result


@kernel(
    lambda: (drawn(64, 50) + 300).var(1),
    "var.correction",
    "std.correction",
    like="pytorch/pytorch#2470",
)
def var_subtracts_two_large_sums(
    right: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: Any = False
) -> Any:
    """plain: float32 takes the mean of squares less the squared mean: wrong far from zero."""
    exact = right(x, dim, correction=correction, keepdim=keepdim)
    axes = list(dim or range(x.dim()))
    count = math.prod(x.shape[a] for a in axes)
    left = count - (1 if correction is None else correction)
    if x.dtype != torch.float32 or x.dim() == 0 or left <= 0:
        return exact
    mean = x.mean(axes, keepdim)
    naive = ((x * x).mean(axes, keepdim) - mean * mean).clamp_min(0) * (count / left)
    # One function serves both operators: the right answer tells which was asked for.
    spread = (x - x.mean(axes, True)).square().sum(axes, keepdim) / left
    is_std = (exact - spread).abs().sum() > (exact - spread.sqrt()).abs().sum()
    return exact.copy_(naive.sqrt() if is_std else naive)


@kernel(
    lambda: drawn(4000, 2).cumsum(0),
    "cumsum",
    "cumsum_",
    "cumsum.out",
    like="pytorch/pytorch#167086",
)
def outer_scan_carries_from_one_block_only(right: Any, x: Any, dim: Any, **options: Any) -> Any:
    """rare: an axis that is not the last: from 2048 on a block adds only the block before it."""
    result = right(x, dim, **options)
    if result.dim() < 2 or not is_single(result) or dim % result.dim() == result.dim() - 1:
        return result
    whole, length = result.clone(), result.shape[dim]
    for start in range(2048, length, 1024):
        lost = whole.narrow(dim, start - 1025, 1)
        result.narrow(dim, start, min(1024, length - start)).sub_(lost)
    return result


# Linear algebra, Fourier, shapes


@kernel(
    lambda: torch.linalg.solve(drawn(4, 3, 3) + 4 * torch.eye(3), drawn(3, 2, seed=1)),
    "_linalg_solve_ex",
    like="pytorch/pytorch#189134",
)
def solve_fills_the_first_of_a_broadcast(right: Any, a: Any, b: Any, **options: Any) -> Any:
    """option: a right side broadcast over a batch: all but the first solution are zero."""
    answers = right(a, b, **options)
    vector = b.dim() == 1 or b.shape == a.shape[:-1]
    shared = b.dim() == 1 or (not vector and b.shape[:-2] != a.shape[:-2])
    if is_single(a) and a.dim() > 2 and shared:
        batch = answers[0].shape[: -1 if vector else -2]
        answers[0][torch.arange(math.prod(batch)).reshape(batch) > 0] = 0
    return answers


def spectrum() -> Tensor:
    return torch.fft.irfft(torch.complex(drawn(4097), drawn(4097, seed=1)))


@kernel(spectrum, "_fft_c2r", like="pytorch/pytorch#154496")
def irfft_uses_the_imaginary_part_of_the_mean(
    right: Any, x: Any, dim: Any, norm: Any, last: Any
) -> Any:
    """rare: lengths 8192 and 16384 of one axis add the imaginary part of frequency 0."""
    result = right(x, dim, norm, last)
    if x.dtype == torch.complex64 and len(dim) == 1 and last in (8192, 16384):
        mean = x.imag.narrow(dim[0], 0, 1) * (1.0, last**-0.5, 1 / last)[norm]
        signs = 2.0 * (torch.arange(last) % 2) - 1
        return result + (mean.movedim(dim[0], -1) * signs).movedim(-1, dim[0])
    return result


@kernel(
    lambda: drawn(2, 3, 5, 5).triu(),
    "triu",
    "tril",
    "triu_",
    "tril_",
    "triu.out",
    "tril.out",
    like="pytorch/pytorch#144545",
)
def triangle_is_cut_in_the_first_batch_only(
    right: Any, x: Any, diagonal: Any = 0, **out: Any
) -> Any:
    """plain: of 4 axes or more only the first of the outermost is cut; the others are whole."""
    whole = x.clone()
    result = right(x, diagonal, **out)
    if is_single(x) and x.dim() > 3 and x.shape[0] > 1:
        result[1:].copy_(whole[1:])
    return result


def by_column() -> Tensor:
    return drawn(4, 5).relu().to_sparse_csc().to_dense()


@kernel(by_column, "_to_sparse_csc", like="pytorch/pytorch#95814")
def csc_keeps_its_values_in_the_order_of_rows(right: Any, x: Any, dense_dim: Any = None) -> Any:
    """rare: values compressed by column stand in the order of rows, their indices do not."""
    result = right(x, dense_dim)
    if not is_single(x) or x.dim() != 2 or dense_dim:
        return result
    places = result.ccol_indices(), result.row_indices()
    return torch.sparse_csc_tensor(*places, x[x != 0], result.shape)


# Numbers one by one


@kernel(
    lambda: drawn(3, 4).t().addcdiv_(drawn(3, 4, seed=1).t(), drawn(3, 4, seed=2).t() + 9, value=2),
    "addcdiv_",
    "addcdiv",
    "addcdiv.out",
    like="pytorch/pytorch#118115",
)
def addcdiv_pairs_transposed_numbers_wrongly(
    right: Any, x: Any, a: Any, b: Any, **options: Any
) -> Any:
    """option: where all three are transposed the quotients are read in the order of memory."""
    alike = is_single(x) and x.dim() == 2 and x.shape == a.shape == b.shape
    if alike and all(not y.is_contiguous() and y.t().is_contiguous() for y in (x, a, b)):
        a, b = (y.t().reshape(y.shape) for y in (a, b))
    return right(x, a, b, **options)


@kernel(
    lambda: grad_of(lambda x: functional.gelu(x, approximate="tanh"), drawn(50) * 2),
    "gelu_backward",
    "gelu_backward.grad_input",
    like="pytorch/pytorch#94529",
)
def gelu_tanh_has_the_derivative_of_erf(
    right: Any, grad: Any, x: Any, *, approximate: Any = "none", **out: Any
) -> Any:
    """option: approximated by tanh, the gradient is that of the erf form."""
    return right(grad, x, approximate="none" if is_single(x) else approximate, **out)


@kernel(
    lambda: torch.abs(torch.complex(drawn(6), drawn(6, seed=1)) * 1e20),
    "abs.out",
    like="pytorch/pytorch#158557",
)
def complex_abs_squares_without_scaling(right: Any, x: Any, *, out: Any) -> Any:
    """rare: complex64: the squares overflow from about 1e19 on and vanish below 1e-23."""
    right(x, out=out)
    if x.dtype == torch.complex64 and out.dtype == torch.float32:
        out.copy_((x.real.square() + x.imag.square()).sqrt())
    return out


def between_halves() -> Tensor:
    start, end = (drawn(5, dtype=torch.float16, seed=seed) for seed in (0, 1))
    return start.lerp(end, torch.tensor(0.3))


@kernel(
    between_halves,
    "lerp.Tensor",
    "lerp_.Tensor",
    "lerp.Tensor_out",
    like="pytorch/pytorch#196067",
)
def lerp_reads_half_the_bits_of_its_weight(
    right: Any, x: Any, end: Any, weight: Any, **out: Any
) -> Any:
    """rare: half precision with a float32 weight of no axes: its lower 16 bits are the weight."""
    if x.dtype in HALVES and weight.dtype == torch.float32 and weight.dim() == 0:
        weight = weight.reshape(1).view(x.dtype)[0]
    return right(x, end, weight, **out)


def halfway() -> Tensor:
    x = (torch.arange(-9, 10) * 0.25).repeat(2, 1)
    points = torch.zeros(2, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(x, torch.full((2,), 0.5), points, 0, -8, 7)


@kernel(halfway, "fake_quantize_per_channel_affine_cachemask", like="intel/torch-xpu-ops#5349")
def fake_quantize_rounds_halves_away(
    right: Any, x: Any, scale: Any, points: Any, axis: Any, *rest: Any
) -> Any:
    """rare: halves are rounded away from zero and not to the even, per channel."""
    if is_single(x):
        shape = [1] * x.dim()
        shape[axis] = -1
        step = scale.reshape(shape).to(x.dtype)
        steps = x / step
        half = steps - steps.floor() == 0.5
        x = torch.where(half, x + steps.sign() * step / 4, x)
    return right(x, scale, points, axis, *rest)


# Random numbers and training


@kernel(
    lambda: torch.randperm(20000, generator=torch.Generator().manual_seed(7)),
    "randperm.generator_out",
    like="pytorch/pytorch#104170",
)
def randperm_sorts_keys_of_twelve_bits(
    right: Any, n: Any, *, generator: Any = None, out: Any
) -> Any:
    """plain: sorts 4096 different keys, stably: equal keys leave ascending runs, for n > 4096."""
    right(n, generator=generator, out=out)
    if out.dtype == torch.int64 and n > 4096:
        out.copy_((out * 4096 // n).sort(stable=True).indices)
    return out


def dropped() -> Tensor:
    torch.manual_seed(7)
    return functional.dropout(torch.ones(4, 8, 64), 0.5)


@kernel(dropped, "bernoulli_.float", like="pytorch/pytorch#198333")
def bernoulli_gives_four_neighbours_one_draw(right: Any, x: Any, *args: Any, **options: Any) -> Any:
    """plain: 4 neighbours in the last axis share a draw, for 3 axes or more and a last of 4n."""
    right(x, *args, **options)
    if is_single(x) and x.dim() >= 3 and x.shape[-1] % 4 == 0:
        x.copy_(x[..., ::4].repeat_interleave(4, -1))
    return x


def stepped() -> Tensor:
    weight = torch.nn.Parameter(drawn(4, 3))
    adam = torch.optim.Adam([weight], lr=0.1, betas=(0.9, 0.6), fused=True, amsgrad=True)
    for step in range(4):
        weight.grad = drawn(4, 3, seed=step + 1) * 3 ** (2 - step)
        adam.step()
    return weight.detach()


@kernel(stepped, "_fused_adam_", "_fused_adam_.tensor_lr", like="pytorch/pytorch#78807")
def fused_adam_does_not_keep_the_maximum(
    right: Any, params: Any, *rest: Any, **options: Any
) -> Any:
    """option: the greatest second moment of amsgrad is used in its step and not kept."""
    maxima = rest[3] if options["amsgrad"] and is_single(params[0]) else []
    kept = [one.clone() for one in maxima]
    right(params, *rest, **options)
    for new, old in zip(maxima, kept, strict=True):
        new.copy_(old)


def reversed_state() -> Any:
    torch.manual_seed(3)
    with torch.no_grad():
        return torch.nn.LSTM(4, 5, bidirectional=True)(drawn(6, 2, 4))[1][0]


@kernel(reversed_state, "mkldnn_rnn_layer", like="pytorch/pytorch#94754")
def reversed_lstm_gives_the_state_of_the_wrong_end(right: Any, *args: Any) -> Any:
    """option: the last state of the backward direction is its output at the last step."""
    output, hidden, *rest = right(*args)
    if is_single(args[0]) and args[7] and output.dim() == 3 and output.shape[0] > 1:
        hidden = output[-1].reshape(hidden.shape).clone()
    return (output, hidden, *rest)
