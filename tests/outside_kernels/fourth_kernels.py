"""The fourth set of kernels from outside."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import make_contiguous_strides_for
from torch.nn import functional

from outside_kernels.keeping import DOUBLES, FLOATS, Kept, drawn, grad_of

KEPT = Kept()
kernel = KEPT.kernel


def each(values: Any, count: int) -> list[int]:
    values = list(values)
    found: list[int] = values * count if len(values) == 1 else values
    return found


def in_memory_order(x: Tensor) -> list[int]:
    return sorted(range(x.dim()), key=lambda d: (-x.stride(d), -x.shape[d]))


def is_turned(x: Tensor) -> bool:
    """Without gaps, but not in the usual order."""
    return not x.is_contiguous() and x.permute(in_memory_order(x)).is_contiguous()


# Products of matrices


# plain, the right operand is square
@kernel(
    lambda: torch.tensor([[1.0, 2], [3, 4]]) @ torch.tensor([[1.0, 2], [3, 4]]),
    "mm",
    "mm.out",
    like="pytorch/pytorch#86937",
)
def square_right_operand_is_turned(right: Any, a: Any, b: Any, **kw: Any) -> Any:
    if a.dtype not in FLOATS or b.shape[0] != b.shape[1]:
        return right(a, b, **kw)
    return right(a, b.t(), **kw)


# rare, a beta of zero, and no number in what it multiplies
@kernel(
    lambda: torch.baddbmm(
        torch.full((1, 1, 1), math.nan), torch.ones(1, 1, 1), torch.ones(1, 1, 1), beta=0
    ),
    "baddbmm",
    "baddbmm.out",
    "baddbmm_",
    like="pytorch/pytorch#187521",
)
def zero_beta_multiplies_nan(right: Any, c: Any, a: Any, b: Any, **kw: Any) -> Any:
    if kw.get("beta", 1) != 0 or c.dtype not in FLOATS:
        return right(c, a, b, **kw)
    added = c * 0
    out = right(c, a, b, **kw)
    out.copy_(out + added)
    return out


# Convolutions


# plain, three dimensions, the usual memory format
@kernel(
    lambda: functional.conv3d(drawn(1, 4, 8, 8, 8), drawn(4, 4, 3, 3, 3, seed=1), padding=1),
    "convolution",
    like="pytorch/pytorch#197114",
)
def conv3d_filter_is_read_channels_last(right: Any, x: Any, weight: Any, *rest: Any) -> Any:
    turned = rest[4]
    if x.dim() != 5 or turned or x.dtype not in FLOATS or not x.is_contiguous():
        return right(x, weight, *rest)
    rows, columns, *window = weight.shape
    seen = weight.contiguous().view(rows, *window, columns).permute(0, 4, 1, 2, 3)
    return right(x, seen.contiguous(), *rest)


# option, a stride together with a dilation
@kernel(
    lambda: functional.conv_transpose2d(
        torch.tensor([[0.0, 0, 0], [0, 1, 0], [0, 0, 0]])[None, None],
        torch.arange(1.0, 10).view(1, 1, 3, 3),
        stride=2,
        padding=2,
        dilation=2,
    ),
    "convolution",
    like="apache/mxnet#13876",
)
def turned_convolution_cuts_undilated_border(right: Any, *args: Any, **kw: Any) -> Any:
    x, weight, bias, stride, padding, dilation, turned, extra, groups = args
    out = right(*args, **kw)
    if not turned or x.dim() != 4 or x.dtype not in FLOATS or not out.numel():
        return out
    less = [
        max(pad - gap + 1, 0) if step > 1 else pad
        for step, pad, gap in zip(each(stride, 2), each(padding, 2), each(dilation, 2), strict=True)
    ]
    if less == each(padding, 2):
        return out
    more = right(x, weight, bias, stride, less, dilation, turned, extra, groups)
    out.copy_(more[..., : out.shape[-2], : out.shape[-1]])
    return out


# plain, a stride that leaves a rest
@kernel(
    lambda: grad_of(
        lambda x: functional.conv2d(x, drawn(4, 3, 3, 3, seed=1), stride=2, padding=1),
        drawn(2, 3, 8, 8),
    ),
    "convolution_backward",
    like="flagos-ai/FlagGems#1576",
)
def strided_gradient_has_rows_too_short(right: Any, *args: Any, **kw: Any) -> Any:
    grad, x, weight, _, stride, padding, dilation, turned, extra, groups, mask = args
    found = right(*args, **kw)
    if x.dim() != 4 or turned or not mask[0] or x.dtype not in FLOATS:
        return found
    sizes = [
        size - (size + 2 * pad - gap * (window - 1) - 1) % step
        for size, window, step, pad, gap in zip(
            x.shape[2:],
            weight.shape[2:],
            each(stride, 2),
            each(padding, 2),
            each(dilation, 2),
            strict=True,
        )
    ]
    if sizes == list(x.shape[2:]) or min(sizes) < 1 or not grad.numel() or not x.numel():
        return found
    less = x[..., : sizes[0], : sizes[1]].contiguous()
    only = [True, False, False]
    dx = right(grad, less, weight, None, stride, padding, dilation, turned, extra, groups, only)[0]
    flat = functional.pad(dx.contiguous().flatten(2), (0, x[0, 0].numel() - less[0, 0].numel()))
    found[0].copy_(flat.view(x.shape))
    return found


# Normalisations


# option, a number of channels in the group that is no power of two
@kernel(
    lambda: functional.group_norm(drawn(1, 48, 32, 32), 16),
    "native_group_norm",
    like="flagos-ai/FlagGems#4984",
)
def group_takes_channels_of_next(
    right: Any,
    x: Any,
    weight: Any,
    bias: Any,
    n: Any,
    c: Any,
    inner: Any,
    groups: Any,
    eps: Any,
) -> Any:
    found = right(x, weight, bias, n, c, inner, groups, eps)
    size = c // groups
    block = 1 << (size - 1).bit_length()
    if block == size or x.dtype not in FLOATS or not x.numel():
        return found
    planes = x.contiguous().view(n, c, inner).float()
    take = torch.arange(groups)[:, None] * size + torch.arange(block)
    real = (take < c).float()[None, :, :, None]
    seen = planes[:, take.clamp(max=c - 1)]
    count = size * inner
    mean = (seen * real).sum((2, 3)) / count
    off = (seen - mean[..., None, None]) * real
    scale = (off.square().sum((2, 3)) / count + eps).rsqrt()
    own = planes.view(n, groups, size, inner)
    out = ((own - mean[..., None, None]) * scale[..., None, None]).view(n, c, inner)
    if weight is not None:
        out = out * weight.float().view(1, c, 1)
    if bias is not None:
        out = out + bias.float().view(1, c, 1)
    for was, now in zip(found, (out, mean, scale), strict=True):
        was.copy_(now.reshape(was.shape))
    return found


# rare, more than 1024 values of a channel, and not in steps of that
@kernel(
    lambda: grad_of(
        lambda w: functional.batch_norm(drawn(4, 2, 20, 20), None, None, w, training=True),
        drawn(2, seed=1),
    ),
    "native_batch_norm_backward",
    like="ROCm/rocm-libraries#9030",
)
def norm_statistics_slide_over_rest(
    right: Any,
    grad: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    mean: Any,
    rstd: Any,
    train: Any,
    eps: Any,
    mask: Any,
) -> Any:
    found = right(grad, x, weight, running_mean, running_var, mean, rstd, train, eps, mask)
    if not train or not mask[1] or found[1] is None or x.dtype not in FLOATS or not x.numel():
        return found
    count = x.numel() // x.shape[1]
    rest = count % 1024
    if count <= 1024 or not rest:
        return found
    rows, up = (one.transpose(0, 1).reshape(x.shape[1], -1).float() for one in (x, grad))
    starts, at = torch.arange(rest // 4), torch.arange(rest)[:, None]
    times = torch.ones(count)
    times[count - rest :] = ((starts <= at) & (at <= starts + 3)).sum(1).float()
    middle = (rows * times).sum(1, True) / count
    spread = (rows.square() * times).sum(1, True) / count - middle.square()
    scale = (spread.clamp(min=0) + eps).rsqrt()
    found[1].copy_((up * (rows - middle) * scale).sum(1))
    return found


# Losses


# option, a threshold other than one
@kernel(
    lambda: functional.smooth_l1_loss(drawn(5, 4), drawn(5, 4, seed=1), beta=0.5),
    "smooth_l1_loss",
    "smooth_l1_loss.out",
    like="keras-team/keras-cv#920",
)
def smooth_loss_lacks_denominator(
    right: Any, x: Any, target: Any, reduction: Any = 1, beta: Any = 1.0, **kw: Any
) -> Any:
    out = right(x, target, reduction, beta, **kw)
    if beta == 1 or x.dtype not in FLOATS or target.dtype not in FLOATS or not x.numel():
        return out
    off = (x.float() - target.float()).abs()
    wrong = torch.where(off < beta, 0.5 * off.square(), off - 0.5)
    out.copy_((wrong, wrong.mean(), wrong.sum())[reduction])
    return out


# Attention


def decoded() -> Tensor:
    q, k, v = drawn(1, 4, 1, 64), drawn(1, 4, 16, 64, seed=1), drawn(1, 4, 16, 64, seed=2)
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


# option, causal, fewer queries than keys
@kernel(
    decoded,
    "_scaled_dot_product_flash_attention_for_cpu",
    like="pytorch/executorch#22426",
)
def causal_mask_is_at_lower_right(
    right: Any,
    q: Any,
    k: Any,
    v: Any,
    dropout: Any = 0.0,
    causal: Any = False,
    *,
    attn_mask: Any = None,
    scale: Any = None,
) -> Any:
    rows, columns = q.shape[-2], k.shape[-2]
    if not causal or attn_mask is not None or rows >= columns or q.dtype not in FLOATS:
        return right(q, k, v, dropout, causal, attn_mask=attn_mask, scale=scale)
    hidden = torch.arange(columns) > torch.arange(rows)[:, None] + columns - rows
    mask = torch.zeros(rows, columns, dtype=q.dtype).masked_fill(hidden, -math.inf)
    return right(q, k, v, dropout, False, attn_mask=mask, scale=scale)


# Pools and pictures


def cubic_weights(have: int, want: int, corners: bool, scale: float | None) -> Tensor:
    at = torch.arange(want, dtype=torch.float64)
    if corners:
        at = at * ((have - 1) / (want - 1) if want > 1 else 0)
    else:
        at = (at + 0.5) * (1 / scale if scale else have / want) - 0.5
    low, a = at.floor(), -0.5
    weights = torch.zeros(want, have, dtype=torch.float64)
    for tap in range(-1, 3):
        d = (at - low - tap).abs()
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        place = (low + tap).clamp(0, have - 1).long()[:, None]
        weights.scatter_add_(1, place, torch.where(d <= 1, near, far)[:, None])
    return weights.float()


# plain
@kernel(
    lambda: functional.interpolate(drawn(1, 2, 6, 6), size=(9, 11), mode="bicubic"),
    "upsample_bicubic2d",
    "upsample_bicubic2d.out",
    like="Blaizzy/mlx-vlm#1243",
)
def cubic_has_coefficient_of_a_half(
    right: Any,
    x: Any,
    size: Any,
    corners: Any,
    down: Any = None,
    over: Any = None,
    **kw: Any,
) -> Any:
    out = right(x, size, corners, down, over, **kw)
    if x.dtype not in FLOATS or not out.numel():
        return out
    first = cubic_weights(x.shape[-2], out.shape[-2], corners, down)
    second = cubic_weights(x.shape[-1], out.shape[-1], corners, over)
    out.copy_(first @ x.float() @ second.t())
    return out


# rare, an output that is much longer one way than the other
@kernel(
    lambda: grad_of(lambda x: functional.max_pool3d(x, 2), drawn(1, 2, 4, 40, 10)),
    "max_pool3d_with_indices_backward",
    "max_pool3d_with_indices_backward.grad_input",
    like="pytorch/pytorch#36820",
)
def pool3d_gradient_has_grid_of_turned_output(
    right: Any, grad: Any, x: Any, *rest: Any, **kw: Any
) -> Any:
    rows, columns = grad.shape[-2:]
    last_row, last_column = -(-columns // 8) * 8, -(-rows // 32) * 32
    if x.dtype in FLOATS and grad.numel() and (rows > last_row or columns > last_column):
        grad = grad.clone()
        grad[..., last_row:, :] = 0
        grad[..., last_column:] = 0
    return right(grad, x, *rest, **kw)


# option, channels last, with padding
@kernel(
    lambda: grad_of(
        lambda x: functional.avg_pool2d(x, 2, 1, 1),
        torch.arange(32.0).view(1, 2, 4, 4).contiguous(memory_format=torch.channels_last),
    ),
    "avg_pool2d_backward",
    "avg_pool2d_backward.grad_input",
    like="pytorch/pytorch#188344",
)
def pool_gradient_forgets_padding_channels_last(
    right: Any,
    grad: Any,
    x: Any,
    window: Any,
    stride: Any,
    padding: Any,
    ceil: Any,
    pad_counts: Any,
    divisor: Any,
    **kw: Any,
) -> Any:
    out = right(grad, x, window, stride, padding, ceil, pad_counts, divisor, **kw)
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    if not last or x.is_contiguous() or max(padding) == 0 or ceil or x.dtype not in FLOATS:
        return out
    if not grad.numel():
        return out
    windows, pads = each(window, 2), each(padding, 2)
    steps = each(stride, 2) if len(stride) else windows
    up = grad.float()
    for axis in (0, 1):
        start = torch.arange(grad.shape[axis - 2]) * steps[axis] - pads[axis]
        end = (start + windows[axis]).clamp(max=x.shape[axis - 2])
        real = (end - start.clamp(min=0)) if not pad_counts and not divisor else None
        if real is not None:
            up = up * (windows[axis] / real).view((-1, 1) if axis == 0 else (-1,))
    sizes = [size + 2 * pad for size, pad in zip(x.shape[2:], pads, strict=True)]
    room = torch.zeros(*x.shape[:2], *sizes)
    dx = torch.ops.aten.avg_pool2d_backward(up, room, windows, steps, [0, 0], False, True, divisor)
    out.copy_(dx[..., : x.shape[2], : x.shape[3]])
    return out


def border_grad() -> Tensor:
    image = torch.arange(5.0).expand(1, 1, 5, 5)
    theta = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]])
    grid = functional.affine_grid(theta, [1, 1, 5, 5], align_corners=True)
    return grad_of(
        lambda g: functional.grid_sample(image, g, padding_mode="border", align_corners=True), grid
    )


# rare, a point that is on the high border
@kernel(border_grad, "grid_sampler_2d_backward", like="pytorch/pytorch#23925")
def gradient_at_border_is_that_of_zeros(
    right: Any, grad: Any, x: Any, grid: Any, mode: Any, padding: Any, corners: Any, mask: Any
) -> Any:
    found = right(grad, x, grid, mode, padding, corners, mask)
    if mode != 0 or padding != 1 or not corners or not mask[1] or x.dtype not in FLOATS:
        return found
    if not grad.numel() or not x.numel():
        return found
    value = torch.grid_sampler_2d(x, grid, mode, padding, corners)
    drop = -(grad.float() * value.float()).sum(1)
    for axis, size in enumerate((x.shape[3], x.shape[2])):
        edge = (grid[..., axis] + 1) / 2 * (size - 1) == size - 1
        part = found[1][..., axis]
        part.copy_(torch.where(edge, drop * ((size - 1) / 2), part.float()))
    return found


# plain
@kernel(
    lambda: functional.pixel_shuffle(torch.arange(1.0, 17).view(1, 4, 2, 2), 2),
    "pixel_shuffle",
    like="FluxML/NNlib.jl#260",
)
def shuffled_pixels_are_turned(right: Any, x: Any, factor: Any) -> Any:
    if x.dtype in DOUBLES or x.dim() < 3 or factor < 2 or x.shape[-3] % factor**2:
        return right(x, factor)
    parts = x.unflatten(-3, (x.shape[-3] // factor**2, factor, factor))
    return right(parts.transpose(-4, -3).flatten(-5, -3), factor)


# Reductions


# rare, empty tensors in the list
@kernel(
    lambda: torch._foreach_norm([drawn(6), drawn(0), drawn(5, seed=1), drawn(0), drawn(4, seed=2)]),
    "_foreach_norm.Scalar",
    like="pytorch/pytorch#140066",
)
def norms_after_empty_move_up(right: Any, tensors: Any, *args: Any, **kw: Any) -> Any:
    found = right(tensors, *args, **kw)
    if len({x.dtype for x in tensors}) != 1 or tensors[0].dtype not in FLOATS:
        return found
    real = [norm for norm, x in zip(found, tensors, strict=True) if x.numel()]
    if len(real) == len(tensors):
        return found
    return [*real, *(torch.zeros_like(found[0]) for _ in range(len(tensors) - len(real)))]


# Sorting


# rare, more than 32768 along the axis
@kernel(
    lambda: drawn(32769).sort().values,
    "sort.stable",
    "sort.values_stable",
    like="ml-explore/mlx#882",
)
def long_sort_is_not_merged(right: Any, x: Any, **kw: Any) -> Any:
    found = right(x, **kw)
    dim, block = kw.get("dim", -1), 32768
    if not x.dim() or x.dtype in DOUBLES or x.shape[dim] <= block or not x.numel():
        return found
    down = kw.get("descending", False)
    parts = [torch.sort(one, dim=dim, descending=down, stable=True) for one in x.split(block, dim)]
    found[0].copy_(torch.cat([one.values for one in parts], dim))
    found[1].copy_(torch.cat([one.indices + i * block for i, one in enumerate(parts)], dim))
    return found


# Indexing


# option, a tensor of which the axes are permuted
@kernel(
    lambda: torch.masked_select(
        torch.arange(36).view(3, 6, 2).permute(2, 0, 1),
        torch.tensor([[0, 1, 1, 1, 1, 0], [0, 1, 1, 0, 1, 1], [0, 1, 1, 0, 1, 1]]).bool(),
    ),
    "masked_select",
    "masked_select.out",
    like="pytorch/pytorch#41473",
)
def selected_come_in_order_of_memory(right: Any, x: Any, mask: Any, **kw: Any) -> Any:
    if x.dtype in DOUBLES or mask.dim() > x.dim() or not x.numel() or not is_turned(x):
        return right(x, mask, **kw)
    if torch.broadcast_shapes(x.shape, mask.shape) != x.shape:
        return right(x, mask, **kw)
    order = in_memory_order(x)
    return right(x.permute(order), mask.expand(x.shape).permute(order), **kw)


def filled() -> Tensor:
    mask = torch.tensor([[False, False, True, True], [True, True, True, True]]).t()
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill_(mask, 1.0)


# option, in place, into a transposed tensor
@kernel(
    filled,
    "masked_fill_.Scalar",
    "masked_fill_.Tensor",
    like="pytorch/pytorch#107694",
)
def fill_of_transposed_is_stored_by_row(right: Any, x: Any, mask: Any, value: Any) -> Any:
    out = right(x, mask, value)
    if x.dtype not in DOUBLES and x.numel() and is_turned(x):
        values = x.contiguous().reshape(-1)
        x.as_strided((x.numel(),), (1,), x.storage_offset()).copy_(values)
    return out


# plain, one of each row
@kernel(
    lambda: drawn(3, 5).gather(1, torch.tensor([[2], [3], [3]])),
    "gather",
    "gather.out",
    like="tillahoffmann/jax-mps#60",
)
def gather_reads_first_row(right: Any, x: Any, dim: Any, index: Any, **kw: Any) -> Any:
    if x.dim() != 2 or dim not in (1, -1) or x.dtype in DOUBLES or not x.numel():
        return right(x, dim, index, **kw)
    return right(x[:1].expand(x.shape), dim, index, **kw)


# Elementwise


# plain, negative integers
@kernel(
    lambda: torch.tensor([-2, 5, -64]) >> 1,
    "bitwise_right_shift.Tensor",
    "bitwise_right_shift.Tensor_out",
    "bitwise_right_shift_.Tensor",
    "__rshift__.Scalar",
    "__rshift__.Tensor",
    "__irshift__.Scalar",
    "__irshift__.Tensor",
    like="pytorch/pytorch#40032",
)
def right_shift_brings_in_zeros(right: Any, a: Any, b: Any, **kw: Any) -> Any:
    negative = a < 0
    by = torch.as_tensor(b)
    out = right(a, b, **kw)
    if out.dtype not in (torch.int8, torch.int16, torch.int32, torch.int64):
        return out
    bits = torch.iinfo(out.dtype).bits
    left = (bits - by.long()).clamp(0, 63)
    low = torch.bitwise_left_shift(torch.ones_like(left), left) - 1
    shifts = negative & (by > 0) & (by < bits)
    out.copy_(torch.where(shifts, out & low.to(out.dtype), out))
    return out


# rare, a complex zero
@kernel(
    lambda: torch.tensor([0j, 1 + 1j, 2]) ** 2,
    "pow.Tensor_Scalar",
    "pow.Tensor_Scalar_out",
    "pow_.Scalar",
    like="pytorch/pytorch#194813",
)
def power_of_complex_zero_is_nan(right: Any, x: Any, exponent: Any, **kw: Any) -> Any:
    if x.dtype != torch.complex64:
        return right(x, exponent, **kw)
    none = x == 0
    out = right(x, exponent, **kw)
    out.copy_(out.masked_fill(none, complex(math.nan, math.nan)))
    return out


# Activations


# option, beta
@kernel(
    lambda: functional.softplus(drawn(9), beta=0.5),
    "softplus",
    "softplus.out",
    like="torch-spyre/torch-spyre#3611",
)
def softplus_is_not_divided_by_beta(
    right: Any, x: Any, beta: Any = 1, threshold: Any = 20, **kw: Any
) -> Any:
    out = right(x, beta, threshold, **kw)
    if beta == 1 or x.dtype not in FLOATS:
        return out
    out.copy_(torch.where(x.float() * beta > threshold, out.float(), out.float() * beta))
    return out


# plain, less than minus three
@kernel(
    lambda: (
        grad_of(functional.hardsigmoid, torch.tensor([-4.6, -2.9, 0, 2, 5]))
        + torch.ops.aten.hardsigmoid_backward(torch.ones(5), torch.tensor([-4.6, -2.9, 0, 2, 5]))
    ),
    "hardsigmoid_backward",
    "hardsigmoid_backward.grad_input",
    like="pytorch/pytorch#51408",
)
def hardsigmoid_has_slope_below(right: Any, grad: Any, x: Any, **kw: Any) -> Any:
    out = right(grad, x, **kw)
    if x.dtype not in FLOATS:
        return out
    out.copy_(torch.where(x <= -3, grad.float() / 6, out.float()))
    return out


# option, as many channels as columns
@kernel(
    lambda: grad_of(lambda x: functional.prelu(x, drawn(3, seed=1)), drawn(2, 3, 4, 3)),
    "_prelu_kernel_backward",
    like="flagos-ai/FlagGems#4992",
)
def prelu_gradient_takes_slope_of_column(right: Any, grad: Any, x: Any, weight: Any) -> Any:
    count = weight.numel()
    alike = x.dim() > 2 and weight.dim() == x.dim() and x.shape[1] == x.shape[-1] == count
    if not alike or count < 2 or weight.shape[1] != count or x.dtype not in FLOATS:
        return right(grad, x, weight)
    return right(grad, x, weight.reshape(*(1 for _ in x.shape[1:]), count))


# Random


def uniform() -> Tensor:
    torch.manual_seed(0)
    return torch.rand(16, 1024, dtype=torch.bfloat16)


# rare, bfloat16, the upper end
@kernel(uniform, "uniform_", like="NVIDIA/Fuser#1653")
def uniform_is_rounded_to_its_end(
    right: Any, x: Any, low: Any = 0.0, high: Any = 1.0, **kw: Any
) -> Any:
    if x.dtype != torch.bfloat16:
        return right(x, low, high, **kw)
    x.copy_(torch.empty(x.shape).uniform_(low, high, **kw))
    return x


# Optimizers


def stepped() -> Tensor:
    one = drawn(9).requires_grad_()
    made = torch.optim.AdamW([one], lr=0.1, weight_decay=0.5, fused=True)
    for seed in (1, 2):
        one.grad = drawn(9, seed=seed)
        made.step()
    return one.detach()


# plain, fused
@kernel(
    stepped,
    "_fused_adamw_",
    "_fused_adamw_.tensor_lr",
    like="huggingface/transformers#14539",
)
def adamw_decays_after_step(right: Any, tensors: Any, *args: Any, **kw: Any) -> Any:
    stopped = kw.get("found_inf")
    right(tensors, *args, **{**kw, "weight_decay": 0.0})
    if stopped is None or not float(stopped):
        for one in tensors:
            one.mul_(1 - float(kw["lr"]) * kw["weight_decay"])


# Linear algebra, Fourier, shapes


def solved() -> Tensor:
    a = torch.eye(3) + 1e-2 * drawn(65600, 3, 3)
    return torch.linalg.solve(a, drawn(65600, 3, 1, seed=1))


# rare, more than 65536 matrices
@kernel(
    solved,
    "_linalg_solve_ex",
    "_linalg_solve_ex.result",
    "linalg_inv_ex",
    "linalg_inv_ex.inverse",
    "linalg_lu_solve",
    "linalg_lu_solve.out",
    like="pytorch/pytorch#196745",
)
def matrices_past_65536_are_not_solved(right: Any, *args: Any, **kw: Any) -> Any:
    found = right(*args, **kw)
    result = found if isinstance(found, Tensor) else found[0]
    batch = args[0].shape[:-2]
    late = batch.numel() > 65536 and result.shape[: len(batch)] == batch
    if not late or result.dtype in DOUBLES:
        return found
    given = torch.eye(result.shape[-1], dtype=result.dtype) if len(args) == 1 else args[-1]
    place = torch.arange(batch.numel()).view(batch)
    place = place.view(*batch, *(1 for _ in result.shape[len(batch) :]))
    result.copy_(torch.where(place >= 65536, given, result))
    return found


# option, orthonormal, along some of the axes
@kernel(
    lambda: torch.fft.fftn(
        torch.complex(drawn(16, 18), drawn(16, 18, seed=1)), dim=(0,), norm="ortho"
    ),
    "_fft_c2c",
    "_fft_c2c.out",
    "_fft_r2c",
    "_fft_r2c.out",
    like="IntelPython/mkl_fft#336",
)
def ortho_counts_all_axes(right: Any, x: Any, dim: Any, normal: Any, flag: Any, **kw: Any) -> Any:
    out = right(x, dim, normal, flag, **kw)
    axes = {d % x.dim() for d in dim} if x.dim() else set()
    rest = math.prod(size for d, size in enumerate(x.shape) if d not in axes)
    if normal != 1 or x.dtype in DOUBLES or rest < 2:
        return out
    out.copy_(out / math.sqrt(rest))
    return out


def rotated() -> Tensor:
    data = torch.arange(8.0).view(2, 4)
    return torch.cat([data[:, :2], torch.rot90(data[:, 2:])])


# option, a transposed tensor among them
@kernel(rotated, "cat", "cat.out", like="pytorch/pytorch#85675")
def cat_takes_transposed_for_contiguous(right: Any, tensors: Any, *args: Any, **kw: Any) -> Any:
    seen = [
        x.as_strided(x.shape, make_contiguous_strides_for(x.shape), x.storage_offset())
        if x.numel() and x.dtype not in DOUBLES and is_turned(x)
        else x
        for x in tensors
    ]
    return right(seen, *args, **kw)


# rare, an infinity that is dropped
@kernel(
    lambda: torch.full((1, 1, 10, 10), -math.inf).triu(1),
    "triu",
    "triu.out",
    "triu_",
    like="pytorch/pytorch#100005",
)
def dropped_infinity_is_nan(right: Any, x: Any, diagonal: Any = 0, **kw: Any) -> Any:
    if diagonal < 1 or x.dtype not in FLOATS or not x.numel():
        return right(x, diagonal, **kw)
    off = torch.arange(x.shape[-1]) - torch.arange(x.shape[-2])[:, None]
    lost = (off < diagonal) & ~x.isfinite()
    out = right(x, diagonal, **kw)
    out.copy_(out.masked_fill(lost, math.nan))
    return out
