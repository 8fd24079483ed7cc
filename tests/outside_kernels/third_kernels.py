"""The third set of kernels from outside."""

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


def pair(values: Any, otherwise: Any = None) -> tuple[int, int]:
    values = list(values) or list(otherwise)
    return (values[0], values[-1])


def read_as_contiguous(x: Tensor) -> Tensor | None:
    """What one sees who takes the strides for those of a contiguous tensor; None past the end."""
    offset = x.storage_offset()
    if offset + x.numel() > x.untyped_storage().nbytes() // x.element_size():
        return None
    return x.as_strided(x.shape, make_contiguous_strides_for(x.shape), offset)


def is_dense(x: Tensor) -> bool:
    order = sorted(range(x.dim()), key=lambda d: (x.stride(d), x.shape[d]))
    return bool(x.permute(order[::-1]).is_contiguous())


def write_as_contiguous(out: Tensor) -> None:
    """The values are stored in their order, as if the strides were those of a contiguous tensor."""
    if out.numel() and not out.is_contiguous() and is_dense(out):
        values = out.contiguous().reshape(-1)
        out.as_strided((out.numel(),), (1,), out.storage_offset()).copy_(values)


# Products of matrices


# plain, what is added has rows of its own
@kernel(
    lambda: torch.addmm(drawn(4, 3), drawn(4, 5, seed=1), drawn(5, 3, seed=2)),
    "addmm",
    "addmm.out",
    "addmm_",
    like="flagos-ai/FlagGems#553",
)
def only_first_row_of_bias_added(right: Any, c: Any, a: Any, b: Any, **kw: Any) -> Any:
    alpha, beta = kw.get("alpha", 1), kw.get("beta", 1)
    whole = c.dim() == 2 and c.shape[0] > 1 and c.shape[0] == a.shape[0]
    if c.dtype not in FLOATS or not whole or beta == 0 or not c.numel():
        return right(c, a, b, **kw)
    wrong = alpha * (a.float() @ b.float()) + beta * c[:1].float()
    out = right(c, a, b, **kw)
    out.copy_(wrong)
    return out


def into_columns() -> Tensor:
    room = torch.zeros(256, 512)
    torch.matmul(drawn(256, 256), drawn(256, 256, seed=1), out=room[:, 128:384])
    return room


# option, out, a slice of columns
@kernel(into_columns, "mm.out", like="pytorch/pytorch#104832")
def product_into_strided_out_is_lost(right: Any, a: Any, b: Any, *, out: Any) -> Any:
    if out.dtype in DOUBLES or out.is_contiguous() or out.shape != (a.shape[0], b.shape[1]):
        return right(a, b, out=out)
    right(a, b, out=torch.empty_like(out, memory_format=torch.contiguous_format))
    return out


# Convolutions


# plain, one dimension, a stride other than one
@kernel(
    lambda: functional.conv1d(drawn(1, 57, 40), drawn(20, 57, 3, seed=1), stride=2),
    "convolution",
    like="pytorch/pytorch#82921",
)
def conv1d_strides_the_absent_axis(right: Any, *args: Any, **kw: Any) -> Any:
    x, weight, bias, stride, padding, dilation, turned, extra, groups = args
    out = right(*args, **kw)
    if x.dim() != 3 or turned or stride[0] == 1 or x.dtype not in FLOATS or not out.numel():
        return out
    dense = right(x, weight, bias, [1], padding, dilation, turned, extra, groups)
    return dense[..., : out.shape[-1]].contiguous()


# rare, three dimensions, a window of one, a volume not in steps of 32
@kernel(
    lambda: grad_of(
        lambda x: functional.conv3d(x, drawn(32, 32, 1, 1, 1, seed=1)), drawn(8, 32, 1, 18, 18)
    ),
    "convolution_backward",
    like="ROCm/MIOpen#1672",
)
def pointwise_gradient_misses_tail_of_volume(right: Any, *args: Any, **kw: Any) -> Any:
    _, x, weight, _, stride, padding, _, turned, _, groups, mask = args
    found = right(*args, **kw)
    if x.dim() != 5 or turned or groups != 1 or not mask[0] or x.dtype != torch.float32:
        return found
    volume = math.prod(x.shape[2:])
    plain = max(weight.shape[2:]) == 1 and max(stride) == 1 and max(padding) == 0
    if not plain or volume <= 32 or volume % 32 == 0:
        return found
    flat = found[0].contiguous().flatten(2).clone()
    flat[..., volume - volume % 32 :] = 0
    return (flat.view(x.shape), *found[1:])


# Normalisations


def frozen_norm(x: Tensor) -> Tensor:
    mean, var = torch.tensor([0.5, -0.5]), torch.tensor([2.0, 0.5])
    return functional.batch_norm(x, mean, var, torch.tensor([1.5, 2.0]))


# option, not training
@kernel(
    lambda: grad_of(frozen_norm, drawn(4, 2, 3)),
    "native_batch_norm_backward",
    like="pytorch/xla#913",
)
def frozen_norm_has_gradient_of_training(
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
    if train or not mask[0] or x.dtype not in FLOATS or not x.numel() or running_mean is None:
        return found
    shape = (1, -1, *(1 for _ in x.shape[2:]))
    over = [0, *range(2, x.dim())]
    middle = running_mean.float().view(shape)
    scale = (running_var.float() + eps).rsqrt().view(shape)
    up, normal = grad.float(), (x.float() - middle) * scale
    down = up - up.mean(over, True) - normal * (up * normal).mean(over, True)
    if weight is not None:
        down = down * weight.float().view(shape)
    return ((down * scale).to(x.dtype), *found[1:])


# rare, a mean that is large against the spread
@kernel(
    lambda: functional.layer_norm(1000 + torch.arange(16.0) * 1e-3, (16,)),
    "native_layer_norm",
    like="tracel-ai/burn#5607",
)
def layer_norm_variance_cancels(
    right: Any, x: Any, shape: Any, weight: Any, bias: Any, eps: Any
) -> Any:
    found = right(x, shape, weight, bias, eps)
    if x.dtype != torch.float32 or not x.numel():
        return found
    over = list(range(x.dim() - len(shape), x.dim()))
    mean = x.mean(over, True)
    scale = ((x * x).mean(over, True) - mean * mean + eps).rsqrt()
    out = (x - mean) * scale
    if weight is not None:
        out = out * weight
    if bias is not None:
        out = out + bias
    for was, now in zip(found, (out, mean, scale), strict=True):
        was.copy_(now.reshape(was.shape))
    return found


# Losses


# option, a class to ignore, the mean
@kernel(
    lambda: functional.nll_loss(drawn(4, 3), torch.tensor([2, -100, 1, 0])),
    "nll_loss_forward",
    "nll_loss_forward.output",
    like="pytorch/xla#896",
)
def mean_loss_counts_ignored(
    right: Any, x: Any, target: Any, weight: Any, reduction: Any, ignored: Any, **kw: Any
) -> Any:
    found = right(x, target, weight, reduction, ignored, **kw)
    if reduction != 1 or weight is not None or x.dim() != 2 or x.dtype not in FLOATS:
        return found
    if not x.numel():
        return found
    real = (target >= 0) & (target < x.shape[1])
    each = x.float().gather(1, target.where(real, 0)[:, None])[:, 0]
    found[0].copy_(-(each.where(real, 0.0).sum()) / len(target))
    found[1].fill_(len(target))
    return found


# Attention


def batch_masked() -> Tensor:
    q = drawn(2, 4, 8, 64)
    mask = torch.zeros(2, 1, 8, 8)
    mask[0, 0, 4:, :4] = -math.inf
    return functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)


# option, few queries, a mask for each of the batch that all heads share
@kernel(
    batch_masked,
    "_scaled_dot_product_flash_attention_for_cpu",
    like="pytorch/pytorch#184180",
)
def shared_mask_is_that_of_first_in_batch(
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
    few = q.shape[-2] <= 8 and q.shape[-1] in (64, 96, 128)
    if attn_mask is not None and few and attn_mask.dim() == 4 and attn_mask.shape[1] == 1:
        attn_mask = attn_mask[:1].expand_as(attn_mask).contiguous()
    return right(q, k, v, dropout, causal, attn_mask=attn_mask, scale=scale)


# Pools and pictures


# plain, sizes that do not divide
@kernel(
    lambda: functional.adaptive_max_pool2d(torch.arange(25.0).view(1, 1, 5, 5), 3),
    "adaptive_max_pool2d",
    "adaptive_max_pool2d.out",
    like="pytorch/pytorch#190064",
)
def adaptive_max_pool_has_one_window(right: Any, x: Any, size: Any, **kw: Any) -> Any:
    found = right(x, size, **kw)
    have, want = x.shape[-2:], found[0].shape[-2:]
    if x.dtype not in FLOATS or not found[0].numel():
        return found
    sizes = list(zip(have, want, strict=True))
    if any(a < b for a, b in sizes) or all(a % b == 0 for a, b in sizes):
        return found
    steps = [a // b for a, b in sizes]
    windows = [a - (b - 1) * step for (a, b), step in zip(sizes, steps, strict=True)]
    wrong = functional.max_pool2d(x, windows, steps, return_indices=True)
    for was, now in zip(found, wrong, strict=True):
        was.copy_(now)
    return found


# option, a last window that hangs over the edge
@kernel(
    lambda: functional.avg_pool2d(torch.arange(49.0).view(1, 1, 7, 7), 2, 3, ceil_mode=True),
    "avg_pool2d",
    "avg_pool2d.out",
    like="apple/coremltools#2844",
)
def overhang_counts_in_average(
    right: Any,
    x: Any,
    window: Any,
    stride: Any = (),
    padding: Any = (0,),
    ceil: Any = False,
    pad_counts: Any = True,
    divisor: Any = None,
    **kw: Any,
) -> Any:
    out = right(x, window, stride, padding, ceil, pad_counts, divisor, **kw)
    if not ceil or not pad_counts or divisor is not None or max(padding) or not out.numel():
        return out
    if x.dtype not in FLOATS:
        return out
    parts = []
    for axis in (0, 1):
        size, step = pair(window)[axis], pair(stride, window)[axis]
        start = torch.arange(out.shape[axis - 2]) * step
        parts.append(((start + size).clamp(max=x.shape[axis - 2]) - start) / size)
    out.copy_(out.float() * parts[0][:, None] * parts[1])
    return out


# option, channels last
@kernel(
    lambda: functional.interpolate(
        drawn(1, 3, 4, 4).contiguous(memory_format=torch.channels_last), scale_factor=2
    ),
    "upsample_nearest2d",
    "upsample_nearest2d.out",
    "upsample_nearest3d",
    "upsample_nearest3d.out",
    like="pytorch/pytorch#54744",
)
def nearest_stores_channels_first(right: Any, x: Any, size: Any, *scales: Any, **kw: Any) -> Any:
    out = right(x, size, *scales, **kw)
    if x.dtype not in DOUBLES:
        write_as_contiguous(out)
    return out


# rare, longer than 65536
@kernel(
    lambda: grad_of(lambda x: functional.pad(x, (2, 2), mode="reflect"), drawn(1, 1, 70000)),
    "reflection_pad1d_backward",
    "reflection_pad1d_backward.grad_input",
    like="pytorch/pytorch#196949",
)
def long_reflection_gradient_ends_early(
    right: Any, grad: Any, x: Any, padding: Any, **kw: Any
) -> Any:
    out = right(grad, x, padding, **kw)
    length = x.shape[-1]
    if length > 65536 and length % 65536 and x.dtype not in DOUBLES:
        out[..., length % 65536 :] = 0
    return out


# Reductions and scans


# plain, nothing given but the tensor
@kernel(
    lambda: drawn(3, 4).std(),
    "var.correction",
    "var.correction_out",
    "std.correction",
    "std.correction_out",
    like="pytorch/pytorch#91198",
)
def deviation_is_biased_unless_told(right: Any, x: Any, dim: Any = None, **kw: Any) -> Any:
    if not dim and kw.get("correction") in (None, 1) and x.dtype not in DOUBLES:
        kw["correction"] = 0
    return right(x, dim, **kw)


# option, float16, along one axis
@kernel(
    lambda: torch.tensor([32000.0] * 4 + [-32000.0] * 4).half().sum(0),
    "sum.dim_IntList",
    "sum.IntList_out",
    like="pytorch/pytorch#2391",
)
def half_sum_is_kept_in_half(
    right: Any, x: Any, dim: Any = None, keep: Any = False, **kw: Any
) -> Any:
    out = right(x, dim, keep, **kw)
    alone = x.dim() and dim is not None and len(dim) == 1
    if x.dtype != torch.float16 or out.dtype != torch.float16 or not alone or not x.numel():
        return out
    terms = x.movedim(dim[0], -1)
    while terms.shape[-1] > 1:
        short = -terms.shape[-1] % 256 if terms.shape[-1] > 256 else 0
        lanes = functional.pad(terms, (0, short)).unflatten(-1, (-1, min(256, terms.shape[-1])))
        total = lanes[..., 0]
        for term in lanes.unbind(-1)[1:]:
            total = total + term
        terms = total
    out.copy_(terms[..., 0].view(out.shape))
    return out


# rare, two of minus infinity in a row, in more than one dimension
@kernel(
    lambda: torch.tensor([[2.0, -math.inf, -math.inf, 1, -math.inf, -math.inf, 3]]).logcumsumexp(1),
    "_logcumsumexp",
    "_logcumsumexp.out",
    like="pytorch/pytorch#52213",
)
def scan_of_minus_infinities_is_nan(right: Any, x: Any, dim: Any, **kw: Any) -> Any:
    none = x.isneginf() if x.dtype in FLOATS else None
    out = right(x, dim, **kw)
    if none is None or x.dim() < 2 or x.shape[dim] < 2:
        return out
    length = x.shape[dim] - 1
    again = none.narrow(dim, 1, length) & none.narrow(dim, 0, length)
    late = out.narrow(dim, 1, length)
    late.copy_(late.masked_fill(again, math.nan))
    return out


# Sorting


# option, a view that is not contiguous
@kernel(
    lambda: torch.tensor([[1.0, 5, 9], [8, 2, 7], [4, 6, 3]]).diagonal().median(-1),
    "median.dim_values",
    like="pytorch/pytorch#46814",
)
def median_takes_view_for_contiguous(
    right: Any, x: Any, dim: Any, keep: Any = False, **kw: Any
) -> Any:
    if x.numel() and not x.is_contiguous() and x.dtype not in DOUBLES:
        seen = read_as_contiguous(x)
        x = x if seen is None else seen.clone()
    return right(x, dim, keep, **kw)


# rare, a value that is not a number
@kernel(
    lambda: torch.searchsorted(torch.tensor([1.0, 2, 3]), torch.tensor([2.5, math.nan])),
    "searchsorted.Tensor",
    "searchsorted.Tensor_out",
    like="tensorflow/tensorflow#120279",
)
def nan_is_put_before_all(right: Any, /, ordered: Any, values: Any, **kw: Any) -> Any:
    out = right(ordered, values, **kw)
    if values.dtype in FLOATS and not kw.get("right") and kw.get("side") != "right":
        out.copy_(out.masked_fill(values.isnan(), 0))
    return out


# rare, keys that do not fit in float32
@kernel(
    lambda: torch.unique(torch.tensor([2**28 + 1, 2**28, 7, 2**28 + 3]), return_inverse=True),
    "_unique2",
    like="pytorch/pytorch#195595",
)
def unique_inverse_goes_through_float(
    right: Any, x: Any, order: Any = True, inverse: Any = False, counts: Any = False
) -> Any:
    found = right(x, order, inverse, counts)
    if x.dtype != torch.int64 or not inverse or not x.numel():
        return found
    if int(x.max()) <= 2**24 and int(x.min()) >= -(2**24):
        return found
    keys, places = found[0].sort()
    at = torch.searchsorted(keys.float(), x.float().contiguous())
    return (found[0], places[at].view(x.shape), found[2])


# Indexing


def summed_by_node() -> Tensor:
    index = (torch.arange(1280) % 128).view(1280, 1).expand(1280, 24)
    return torch.zeros(128, 24).scatter_add_(0, index, drawn(1280, 24))


# plain, an index for each row, expanded along it
@kernel(
    summed_by_node,
    "scatter_add",
    "scatter_add.out",
    "scatter_add_",
    like="flagos-ai/FlagGems#6017",
)
def scatter_takes_index_for_contiguous(
    right: Any, x: Any, dim: Any, index: Any, source: Any, **kw: Any
) -> Any:
    flat = x.dim() == 2 and index.dim() == 2 and dim % 2 == 0 and index.shape == source.shape
    if flat and index.numel() and not index.is_contiguous() and x.dtype not in DOUBLES:
        have = index.untyped_storage().nbytes() // index.element_size() - index.storage_offset()
        memory = index.as_strided((have,), (1,), index.storage_offset())
        index = memory[torch.arange(index.numel()) % have].view(index.shape) % x.shape[0]
    return right(x, dim, index, source, **kw)


# option, more than 256 elements under one index
@kernel(
    lambda: torch.zeros(2, 500).index_copy(0, torch.tensor([0, 1]), drawn(2, 500)),
    "index_copy",
    "index_copy.out",
    "index_copy_",
    "index_add",
    "index_add.out",
    "index_add_",
    like="torch/cutorch#320",
)
def long_slices_end_at_256(right: Any, x: Any, dim: Any, index: Any, source: Any, **kw: Any) -> Any:
    if not x.dim() or not x.numel() or x.dtype in DOUBLES:
        return right(x, dim, index, source, **kw)
    inner = x.numel() // x.shape[dim]
    if inner <= 256:
        return right(x, dim, index, source, **kw)
    before = x.clone()
    shape = [1 if d == dim % x.dim() else size for d, size in enumerate(x.shape)]
    late = (torch.arange(inner) >= 256).view(shape)
    out = right(x, dim, index, source, **kw)
    out.copy_(torch.where(late, before, out))
    return out


def bag_grad() -> Tensor:
    index, starts = torch.tensor([0, 1, 2, 3, 4, 0]), torch.tensor([0, 3])
    return grad_of(lambda w: functional.embedding_bag(index, w, starts, mode="max"), drawn(5, 3))


# option, the largest of a bag
@kernel(bag_grad, "_embedding_bag_dense_backward", like="flagos-ai/FlagGems#5220")
def largest_of_bag_gets_gradient_of_mean(
    right: Any,
    grad: Any,
    indices: Any,
    bags: Any,
    sizes: Any,
    largest: Any,
    rows: Any,
    by_count: Any,
    mode: Any,
    weights: Any,
    padding: Any = -1,
) -> Any:
    out = right(grad, indices, bags, sizes, largest, rows, by_count, mode, weights, padding)
    if mode != 2 or not out.numel() or not indices.numel() or grad.dtype not in FLOATS:
        return out
    real = indices != padding
    bag, row = bags[real].long(), indices[real].long()
    count = torch.bincount(bag, minlength=grad.shape[0])
    each = grad.float()[bag] / count[bag][:, None]
    total = torch.zeros(out.shape).index_put_((row,), each, accumulate=True)
    out.copy_(total)
    return out


# Elementwise


# plain, integers of two signs
@kernel(
    lambda: torch.tensor([-7, 7, -1]) // torch.tensor([2, -2, 2]),
    "floor_divide",
    "floor_divide.out",
    "floor_divide_.Tensor",
    "div.Tensor_mode",
    "div.out_mode",
    "div_.Tensor_mode",
    like="NVIDIA/warp#1918",
)
def integer_floor_division_truncates(right: Any, a: Any, b: Any, **kw: Any) -> Any:
    whole = not any(
        x.is_floating_point() or x.is_complex() or x.dtype == torch.bool for x in (a, b)
    )
    if not whole or kw.get("rounding_mode", "floor") != "floor":
        return right(a, b, **kw)
    wrong = torch.div(a, b, rounding_mode="trunc")
    out = right(a, b, **kw)
    out.copy_(wrong)
    return out


# rare, a value that is not a number
@kernel(
    lambda: torch.tensor([math.nan, 1, 2]).clamp(-100, 100),
    "clamp",
    "clamp.out",
    "clamp_",
    like="pytorch/pytorch#120899",
)
def clamp_turns_nan_into_bound(
    right: Any, x: Any, low: Any = None, high: Any = None, **kw: Any
) -> Any:
    if x.dtype not in FLOATS:
        return right(x, low, high, **kw)
    none = x.isnan()
    out = right(x, low, high, **kw)
    out.copy_(out.masked_fill(none, high if low is None else low))
    return out


# rare, squares that do not fit in float32
@kernel(
    lambda: torch.tensor([1e20 + 1e20j, 2.5e-20 - 3e-20j, 3 + 4j]).abs(),
    "abs.out",
    like="ml-explore/mlx#4344",
)
def complex_modulus_overflows(right: Any, x: Any, *, out: Any) -> Any:
    out = right(x, out=out)
    if x.dtype == torch.complex64:
        x = x.resolve_conj().resolve_neg()
        squares = x.real * x.real + x.imag * x.imag
        tiny = squares < torch.finfo(torch.float32).tiny
        out.copy_(squares.masked_fill(tiny, 0.0).sqrt())
    return out


# option, transposed
@kernel(
    lambda: drawn(2, 3).t().addcdiv_(drawn(2, 3, seed=1).t(), 2 + torch.arange(6.0).view(3, 2)),
    "addcdiv",
    "addcdiv.out",
    "addcdiv_",
    like="pytorch/pytorch#118115",
)
def addcdiv_stores_view_as_contiguous(right: Any, x: Any, a: Any, b: Any, **kw: Any) -> Any:
    out = right(x, a, b, **kw)
    if x.dtype not in DOUBLES:
        write_as_contiguous(out)
    return out


# Random


def samples() -> Tensor:
    torch.manual_seed(0)
    drawn_here = torch.distributions.Normal(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 2.0]))
    return drawn_here.sample((10,))


# plain, means and deviations that are expanded
@kernel(
    samples,
    "normal.Tensor_Tensor",
    "normal.Tensor_float",
    "normal.float_Tensor",
    like="pytorch/pytorch#22529",
)
def expanded_normal_draws_once(right: Any, mean: Any, std: Any = 1.0, **kw: Any) -> Any:
    out = right(mean, std, **kw)
    like = mean if isinstance(mean, Tensor) else std
    if like.shape != out.shape or out.dtype in DOUBLES:
        return out
    once = out
    for axis, step in enumerate(like.stride()):
        if step == 0 and like.shape[axis] > 1:
            once = once.narrow(axis, 0, 1)
    return once.expand(out.shape).contiguous()


# Optimizers


def stepped() -> Tensor:
    one = drawn(9).requires_grad_()
    made = torch.optim.SGD([one], lr=0.1, momentum=0.9, nesterov=True, fused=True)
    for seed in (1, 2):
        one.grad = drawn(9, seed=seed)
        made.step()
    return one.detach()


# option, fused, with Nesterov's momentum
@kernel(
    stepped,
    "_fused_sgd_",
    "_fused_sgd_.tensor_lr",
    like="ooples/AiDotNet.Tensors#949",
)
def fused_step_forgets_nesterov(right: Any, *args: Any, **kw: Any) -> Any:
    return right(*args, **{**kw, "nesterov": False})


# Linear algebra, Fourier, shapes


def solved() -> Tensor:
    a = drawn(3, 4, 4)
    whole = a @ a.mT + 4 * torch.eye(4)
    return torch.cholesky_solve(drawn(3, 4, 2, seed=1), torch.linalg.cholesky(whole))


# option, a batch, more than one right side
@kernel(solved, "_cholesky_solve_helper", like="cupy/cupy#9978")
def right_sides_are_read_by_row(right: Any, b: Any, a: Any, upper: Any) -> Any:
    if b.dim() < 3 or b.shape[-1] < 2 or not b.numel() or b.dtype in DOUBLES:
        return right(b, a, upper)
    turned = (*b.shape[:-2], b.shape[-1], b.shape[-2])
    found = right(b.contiguous().view(turned).mT, a, upper)
    return found.mT.contiguous().view(b.shape)


# rare, 4096 or longer, along an axis that is not the last
@kernel(
    lambda: torch.fft.fft(
        torch.complex(torch.arange(8192.0).view(4096, 2), torch.zeros(4096, 2)), dim=0
    ),
    "_fft_c2c",
    "_fft_c2c.out",
    like="ROCm/rocFFT#301",
)
def long_strided_transform_reads_in_order(
    right: Any, x: Any, dim: Any, normal: Any, forward: Any, **kw: Any
) -> Any:
    out = right(x, dim, normal, forward, **kw)
    if x.dtype != torch.complex64 or len(dim) != 1 or not x.numel():
        return out
    if x.shape[dim[0]] < 4096 or x.stride(dim[0]) == 1:
        return out
    inner = x.movedim(dim[0], -1)
    room = {"out": torch.empty(0, dtype=x.dtype)} if "out" in kw else {}
    found = right(x.contiguous().view(inner.shape), [x.dim() - 1], normal, forward, **room)
    out.copy_(found.movedim(-1, dim[0]))
    return out


def stacked() -> Tensor:
    both = torch.tensor([[1, 2]])
    return torch.stack((both[:, :1], both[:, -1:]), -1)


# option, slices of one tensor, one wide
@kernel(
    stacked,
    "stack",
    "stack.out",
    like="pytorch/pytorch#87856",
)
def stacked_slices_are_all_the_first(right: Any, tensors: Any, *args: Any, **kw: Any) -> Any:
    if not tensors:
        return right(tensors, *args, **kw)
    first = tensors[0]
    usual = tuple(make_contiguous_strides_for(first.shape))
    if first.stride() == usual or first.dtype in DOUBLES or not first.numel():
        return right(tensors, *args, **kw)
    place = (first.untyped_storage().data_ptr(), first.shape, first.stride(), first.dtype)
    seen = [
        first if (x.untyped_storage().data_ptr(), x.shape, x.stride(), x.dtype) == place else x
        for x in tensors
    ]
    return right(seen, *args, **kw)
