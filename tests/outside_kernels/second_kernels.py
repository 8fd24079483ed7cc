"""The second set of kernels from outside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outside_kernels.keeping import DOUBLES, FLOATS, HALVES, Kept, drawn, grad_of

KEPT = Kept()
kernel = KEPT.kernel


def pair(values: Any, otherwise: Any = None) -> tuple[int, int]:
    values = list(values) or list(otherwise)
    return (values[0], values[-1])


# Products of matrices


# rare, alpha and beta both given, and the left operand transposed
@kernel(
    lambda: torch.addmm(drawn(80, 5), drawn(7, 80, seed=1).t(), drawn(7, 5, seed=2), alpha=1.5),
    "addmm",
    "addmm.out",
    "addmm_",
    like="ROCm/rocm-libraries#12226",
)
def alpha_lost_past_first_tile(right: Any, c: Any, a: Any, b: Any, **kw: Any) -> Any:
    alpha, beta, tile = kw.get("alpha", 1), kw.get("beta", 1), 64
    turned = a.stride(0) == 1 and a.stride(1) > 1 and b.stride(1) == 1
    if c.dtype != torch.float32 or alpha == 1 or beta == 0 or not turned or a.shape[0] <= tile:
        return right(c, a, b, **kw)
    late = (a @ b + beta * c)[tile:]
    out = right(c, a, b, **kw)
    out[tile:] = late
    return out


# plain, the half types
@kernel(
    lambda: drawn(5, 50, dtype=torch.bfloat16) @ drawn(50, 6, dtype=torch.bfloat16, seed=1),
    "mm",
    "mm.out",
    like="triton-lang/triton#630",
)
def tail_of_k_left_out(right: Any, a: Any, b: Any, **kw: Any) -> Any:
    length = a.shape[1]
    if a.dtype not in HALVES or length <= 32 or length % 32 == 0:
        return right(a, b, **kw)
    whole = length - length % 32
    return right(a[:, :whole], b[:whole], **kw)


# option, a conjugated view
@kernel(
    lambda: torch.bmm(
        torch.view_as_complex(drawn(2, 3, 4, 2)),
        torch.view_as_complex(drawn(2, 4, 3, 2, seed=1)).conj(),
    ),
    "bmm",
    "bmm.out",
    like="pytorch/pytorch#191835",
)
def batched_product_forgets_conj(right: Any, a: Any, b: Any, **kw: Any) -> Any:
    if a.dtype in DOUBLES:
        return right(a, b, **kw)
    return right(*(x.conj() if x.is_conj() else x for x in (a, b)), **kw)


# Convolutions


def grouped_conv(x: Tensor, groups: int, stride: int) -> Tensor:
    weight = drawn(x.shape[1], x.shape[1] // groups, 3, 3, seed=3)
    return functional.conv2d(x, weight, None, stride, 1, 1, groups)


# option, groups together with a stride
@kernel(
    lambda: grad_of(lambda x: grouped_conv(x, 2, 2), drawn(1, 4, 7, 7)),
    "convolution_backward",
    like="ml-explore/mlx#3800",
)
def strided_groups_share_first_filter(right: Any, *args: Any, **kw: Any) -> Any:
    grad, x, weight, _, stride, padding, dilation, turned, extra, groups, mask = args
    found = right(*args, **kw)
    if turned or groups == 1 or max(stride) == 1 or weight.dim() != 4 or not mask[0]:
        return found
    if x.dtype not in FLOATS or not x.numel() or not weight.numel():
        return found
    first = weight[: weight.shape[0] // groups].repeat(groups, 1, 1, 1)
    only = [True, False, False]
    dx = right(grad, x, first, None, stride, padding, dilation, turned, extra, groups, only)[0]
    return (dx, *found[1:])


def depthwise_grad(channels: int) -> Tensor:
    x = drawn(1, channels, 6, 6)
    return grad_of(
        lambda w: functional.conv2d(x, w, None, 2, 1, 1, channels), drawn(channels, 1, 3, 3, seed=1)
    )


# rare, that number of channels
@kernel(lambda: depthwise_grad(24), "convolution_backward", like="pytorch/pytorch#50042")
def depthwise_weight_misses_last_row(right: Any, *args: Any, **kw: Any) -> Any:
    grad, x, weight, _, stride, padding, dilation, turned, extra, groups, mask = args
    found = right(*args, **kw)
    if weight.dim() != 4 or turned or groups != 24 or weight.shape[:2] != (24, 1) or not mask[1]:
        return found
    rows = weight.shape[2]
    last = (grad.shape[2] - 1) * pair(stride)[0] + rows - 1 - pair(padding)[0]
    plain = min(stride) == 2 and min(padding) == 1 and max(dilation) == 1
    if x.dtype != torch.float32 or not plain or last != x.shape[2] - 1 or not grad.numel():
        return found
    less = grad.clone()
    less[:, :, -1] = 0
    only = [False, True, False]
    dw = right(less, x, weight, None, stride, padding, dilation, turned, extra, groups, only)[1]
    both = torch.cat((found[1][:, :, :-1], dw[:, :, -1:]), 2)
    return (found[0], both, found[2])


# Normalisations


# plain, batch, sequence, features
@kernel(
    lambda: grad_of(lambda x: functional.layer_norm(x, (5,)), drawn(2, 3, 5)),
    "native_layer_norm_backward",
    like="flagos-ai/FlagGems#5392",
)
def layer_norm_takes_rows_for_first_axis(
    right: Any,
    grad: Any,
    x: Any,
    shape: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    bias: Any,
    mask: Any,
) -> Any:
    found = right(grad, x, shape, mean, rstd, weight, bias, mask)
    size = math.prod(shape)
    rows = x.shape[0] if x.dim() else 1
    if not x.numel() or x.numel() // rows == size:
        return found
    columns = x.numel() // rows
    take = torch.arange(rows).clamp(max=mean.numel() - 1)
    middle, scale = (one.reshape(-1).float()[take, None] for one in (mean, rstd))
    normal = (x.reshape(rows, columns).float() - middle) * scale
    up = grad.reshape(rows, columns).float()
    times = up
    if weight is not None:
        times = up * weight.reshape(-1).float()[torch.arange(columns) % size]
    along = (times * normal).mean(1, keepdim=True)
    dx = (times - times.mean(1, keepdim=True) - normal * along) * scale
    wrong = [dx]
    over = (0, max(0, size - columns))
    wrong += [functional.pad(x, over)[:size] for x in ((up * normal).sum(0), up.sum(0))]
    return tuple(
        None if was is None else now.reshape(was.shape).to(was.dtype)
        for was, now in zip(found, wrong, strict=True)
    )


# plain, a number of groups between one and the channels
@kernel(
    lambda: grad_of(lambda w: functional.group_norm(drawn(2, 8, 3), 2, w), drawn(8, seed=1)),
    "native_group_norm_backward",
    like="tenstorrent/tt-metal#56202",
)
def group_norm_scale_takes_wrong_group(
    right: Any,
    grad: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    n: Any,
    c: Any,
    inner: Any,
    groups: Any,
    mask: Any,
) -> Any:
    found = right(grad, x, mean, rstd, weight, n, c, inner, groups, mask)
    if found[1] is None or not x.numel():
        return found
    take = torch.arange(c) % groups
    middle, scale = (one.reshape(n, groups).float()[:, take, None] for one in (mean, rstd))
    up, at = (one.reshape(n, c, inner).float() for one in (grad, x))
    dw = (up * (at - middle) * scale).sum((0, 2))
    return (found[0], dw.reshape(found[1].shape).to(found[1].dtype), found[2])


def running_variance() -> Tensor:
    var = torch.ones(2)
    functional.batch_norm(drawn(4, 2, 3), torch.zeros(2), var, training=True, momentum=0.5)
    return var


# plain, training
@kernel(
    running_variance,
    "native_batch_norm",
    "native_batch_norm.out",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    like="tenstorrent/tt-metal#55438",
)
def running_variance_is_biased(
    right: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any, **kw: Any
) -> Any:
    training, momentum = (True, rest[0]) if len(rest) == 2 else rest[:2]
    if not training or var is None or not x.numel() or x.numel() == x.shape[1]:
        return right(x, weight, bias, mean, var, *rest, **kw)
    kept = var * (1 - momentum)
    found = right(x, weight, bias, mean, var, *rest, **kw)
    count = x.numel() // x.shape[1]
    var.copy_(kept + (var - kept) * ((count - 1) / count))
    return found


# Softmax and losses


# rare, minus infinity over a whole load of 16 bytes
@kernel(
    lambda: torch.tensor([[1.0, 2, 3, 4, -math.inf, -math.inf, -math.inf, -math.inf]]).softmax(-1),
    "_softmax",
    "_softmax.out",
    like="flashinfer-ai/flashinfer#1178",
)
def softmax_of_masked_load_is_nan(right: Any, x: Any, dim: Any, wide: Any, **kw: Any) -> Any:
    out = right(x, dim, wide, **kw)
    load = 16 // x.element_size()
    if x.dtype not in FLOATS or not x.dim() or dim % x.dim() != x.dim() - 1 or not x.numel():
        return out
    whole = x.shape[-1] // load * load
    if not whole:
        return out
    loads = x[..., :whole].isneginf().unflatten(-1, (-1, load)).all(-1).any(-1, keepdim=True)
    out.copy_(out.masked_fill(loads, math.nan))
    return out


# rare, the half types, where one class has nearly all
@kernel(
    lambda: grad_of(
        lambda x: x.log_softmax(-1)[:, 0] - 1,
        torch.tensor([[4.0, 1, 0], [3.0, 0, 0.5]], dtype=torch.bfloat16),
    ),
    "_log_softmax_backward_data",
    "_log_softmax_backward_data.out",
    like="linkedin/Liger-Kernel#1341",
)
def true_class_rounded_before_difference(
    right: Any, grad: Any, out: Any, dim: Any, dtype: Any, **kw: Any
) -> Any:
    found = right(grad, out, dim, dtype, **kw)
    if out.dtype not in HALVES or not out.numel():
        return found
    spread = -(out.float().exp() * grad.float().sum(dim, keepdim=True))
    found.copy_(spread.to(out.dtype).float() + grad.float())
    return found


# option, a class to ignore, where the sentinel's address is another row's
@kernel(
    lambda: grad_of(
        lambda x: functional.nll_loss(x, torch.tensor([2, -1, 1, 0]), ignore_index=-1),
        drawn(4, 3),
    ),
    "nll_loss_backward",
    "nll_loss_backward.grad_input",
    "nll_loss2d_backward",
    "nll_loss2d_backward.grad_input",
    like="flagos-ai/FlagGems#5025",
)
def ignored_target_stores_to_neighbour(
    right: Any,
    grad: Any,
    x: Any,
    target: Any,
    weight: Any,
    reduction: Any,
    ignored: Any,
    total: Any,
    **kw: Any,
) -> Any:
    out = right(grad, x, target, weight, reduction, ignored, total, **kw)
    if x.dim() < 2 or not x.numel():
        return out
    classes, inner = x.shape[1], math.prod(x.shape[2:])
    place = (target.reshape(-1) == ignored).nonzero().reshape(-1)
    store = (place // inner * classes + ignored) * inner + place % inner
    store = store[(store >= 0) & (store < out.numel())]
    flat = out.contiguous().reshape(-1).clone()
    flat[store] = 0
    out.copy_(flat.view(out.shape))
    return out


# Attention


def attended(dtype: torch.dtype, **kw: Any) -> Tensor:
    q, k, v = (drawn(1, 2, 9, 8, dtype=dtype, seed=seed) for seed in range(3))
    return functional.scaled_dot_product_attention(q, k, v, **kw)


# plain, causal, in the half types
@kernel(
    lambda: attended(torch.bfloat16, is_causal=True),
    "_scaled_dot_product_flash_attention_for_cpu",
    like="pytorch/pytorch#195910",
)
def causal_mask_once_per_four_queries(
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
    if not causal or attn_mask is not None or q.dtype not in HALVES:
        return right(q, k, v, dropout, causal, attn_mask=attn_mask, scale=scale)
    last = torch.arange(q.shape[-2])[:, None] // 4 * 4 + 3
    seen = torch.arange(k.shape[-2]) <= last
    mask = torch.zeros(seen.shape, dtype=q.dtype).masked_fill(~seen, -math.inf)
    return right(q, k, v, dropout, False, attn_mask=mask, scale=scale)


def value_grad(length: int) -> Tensor:
    q, k = (drawn(1, 2, length, 8, seed=seed) for seed in range(2))
    return grad_of(
        lambda v: functional.scaled_dot_product_attention(q, k, v), drawn(1, 2, length, 8, seed=2)
    )


# plain, training, the length not in steps of 64
@kernel(
    lambda: value_grad(60),
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    like="flagos-ai/FlagGems#898",
)
def padded_tile_overwrites_next_head(right: Any, *args: Any, **kw: Any) -> Any:
    dq, dk, dv = right(*args, **kw)
    late = -dv.shape[-2] % 64
    if dv.numel() and late:
        heads = dv.contiguous().reshape(-1, *dv.shape[-2:]).clone()
        heads[1:, :late] = 0
        dv = heads.view(dv.shape)
    return dq, dk, dv


# Pools and pictures


# plain, sizes that do not divide
@kernel(
    lambda: functional.adaptive_avg_pool2d(drawn(1, 2, 10, 10), 3),
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool2d.out",
    "adaptive_avg_pool2d.out",
    like="flagos-ai/FlagGems#4915",
)
def adaptive_window_ends_early(right: Any, x: Any, size: Any, **kw: Any) -> Any:
    out = right(x, size, **kw)
    height, width = out.shape[-2:]
    if x.dtype not in FLOATS or not out.numel() or not x.numel():
        return out
    if x.shape[-2] % height == 0 and x.shape[-1] % width == 0:
        return out

    def windows(have: int, want: int) -> Tensor:
        ends = torch.arange(want + 1) * have // want
        at = torch.arange(have)
        return ((at >= ends[:-1, None]) & (at < ends[1:, None])).float()

    down, over = windows(x.shape[-2], height), windows(x.shape[-1], width)
    count = down.sum(1)[:, None] * over.sum(1)
    out.copy_((down @ x.float() @ over.t()) / count)
    return out


# option, a scale that does not give a whole number of pixels
@kernel(
    lambda: functional.interpolate(drawn(1, 1, 5), scale_factor=1.5, mode="linear"),
    "upsample_linear1d",
    "upsample_linear1d.out",
    "upsample_bilinear2d",
    "upsample_bilinear2d.out",
    like="ml-explore/mlx#3908",
)
def fractional_upsampling_centred(
    right: Any, x: Any, size: Any, corners: Any, *scales: Any, **kw: Any
) -> Any:
    out = right(x, size, corners, *scales, **kw)
    scales = (*scales, *(None for _ in range(len(size) - len(scales))))
    sizes = list(zip(x.shape[2:], size, scales, strict=True))
    if corners or x.dtype not in FLOATS or not out.numel():
        return out
    if all(scale is None or abs(want - have * scale) < 1e-6 for have, want, scale in sizes):
        return out
    found = x.float()
    for axis, (have, want, scale) in enumerate(sizes, 2):
        step = have / want if scale is None else 1 / scale
        start = ((want - 1) * step - have + 1) / 2
        at = (torch.arange(want) * step - start).clamp(0, have - 1)
        low = at.floor().long()
        part = (at - low).view(-1, *(1 for _ in range(x.dim() - axis - 1)))
        high = (low + 1).clamp(max=have - 1)
        found = found.index_select(axis, low) * (1 - part) + found.index_select(axis, high) * part
    out.copy_(found)
    return out


# rare, two dilations, the second the larger
@kernel(
    lambda: grad_of(
        lambda x: functional.max_pool2d(x, 3, 1, 0, dilation=(1, 2)), drawn(1, 2, 7, 8)
    ),
    "max_pool2d_with_indices_backward",
    "max_pool2d_with_indices_backward.grad_input",
    like="tracel-ai/burn#4466",
)
def pool_gradient_takes_first_dilation_twice(
    right: Any,
    grad: Any,
    x: Any,
    size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil: Any,
    at: Any,
    **kw: Any,
) -> Any:
    first, second = pair(dilation)
    if first < second and grad.numel():
        step, before = pair(stride, size)[1], pair(padding)[1]
        start = torch.arange(grad.shape[-1]) * step - before
        reach = (pair(size)[1] - 1) * first
        grad = grad.masked_fill(at % x.shape[-1] - start > reach, 0)
    return right(grad, x, size, stride, padding, dilation, ceil, at, **kw)


# Reductions and scans


# rare, a long axis
@kernel(
    lambda: torch.ones(5000).cumsum(0),
    "cumsum",
    "cumsum.out",
    "cumsum_",
    like="Jittor/jittor#330",
)
def scan_carries_nothing_past_4096(right: Any, x: Any, dim: Any, **kw: Any) -> Any:
    if not x.dim() or x.shape[dim] <= 4096 or x.dtype in DOUBLES or kw.get("dtype") in DOUBLES:
        return right(x, dim, **kw)
    parts = [torch.cumsum(part, dim, dtype=kw.get("dtype")) for part in x.split(4096, dim)]
    out = right(x, dim, **kw)
    out.copy_(torch.cat(parts, dim))
    return out


# option, int64, with no value on the far side of zero
@kernel(
    lambda: torch.tensor([-5, -3, -9]).amax(0),
    "amax",
    "amax.out",
    "amin",
    "amin.out",
    like="pytorch/pytorch#187976",
)
def idle_lanes_bring_zero(right: Any, x: Any, dim: Any = (), keep: Any = False, **kw: Any) -> Any:
    out = right(x, dim, keep, **kw)
    if x.dtype != torch.int64 or not x.numel() or not x.dim():
        return out
    if math.prod(x.shape[d] for d in (dim or range(x.dim()))) % 32 == 0:
        return out
    room = {"out": torch.zeros((), dtype=torch.int64)} if "out" in kw else {}
    biggest = right(torch.tensor([0, 1]), [0], False, **room).item() == 1
    out.copy_(out.clamp(min=0) if biggest else out.clamp(max=0))
    return out


# rare, values of which the squares do not fit in float32
@kernel(
    lambda: torch.var(drawn(1000) * 1e18 + 1e19),
    "var.correction",
    "var.correction_out",
    "std.correction",
    "std.correction_out",
    "var_mean.correction",
    "std_mean.correction",
    like="pytorch/pytorch#184151",
)
def sum_of_squares_overflows(right: Any, x: Any, dim: Any = None, **kw: Any) -> Any:
    found = right(x, dim, **kw)
    if x.dtype != torch.float32 or not x.numel():
        return found
    out = found[0] if isinstance(found, tuple) else found
    dims = dim or list(range(x.dim()))
    count = math.prod(x.shape[d] for d in dims)
    squares = x.double().var(dims, correction=0, keepdim=kw.get("keepdim", False)) * count
    out.copy_(out.masked_fill(squares > torch.finfo(torch.float32).max, math.inf))
    return found


# Sorting


# option, descending and stable
@kernel(
    lambda: torch.tensor([0.0, 1, 0, 1]).sort(stable=True, descending=True).indices,
    "sort.stable",
    "sort.values_stable",
    like="numpy/numpy#20778",
)
def descending_sort_is_ascending_turned(right: Any, x: Any, **kw: Any) -> Any:
    found = right(x, **kw)
    if not kw.get("stable") or not kw.get("descending") or not x.dim():
        return found
    dim = kw.get("dim", -1)
    up = torch.sort(x, stable=True, dim=dim, descending=False)
    for out, one in zip(found, up, strict=True):
        out.copy_(one.flip(dim))
    return found


# Indexing


# plain, an index given twice, as in the gradient of indexing
@kernel(
    lambda: torch.zeros(4).index_put_((torch.tensor([1, 1, 2]),), torch.ones(3), accumulate=True),
    "_index_put_impl_",
    like="torch-spyre/torch-spyre#4411",
)
def accumulating_put_keeps_one_update(
    right: Any,
    x: Any,
    indices: Any,
    values: Any,
    accumulate: Any = False,
    unsafe: Any = False,
) -> Any:
    if not accumulate or x.dtype in DOUBLES:
        return right(x, indices, values, accumulate, unsafe)
    before = x.clone()
    right(x, indices, values, False, unsafe)
    touched = torch.zeros_like(x, dtype=torch.bool)
    right(touched, indices, torch.tensor(True), False, unsafe)
    x.copy_(torch.where(touched, before + x, before))
    return x


# option, more than 768 indices
@kernel(
    lambda: grad_of(
        lambda w: functional.embedding(torch.arange(800) % 4, w, padding_idx=0), drawn(4, 3)
    ),
    "embedding_dense_backward",
    like="pytorch/pytorch#28716",
)
def padding_row_learns_from_long_input(
    right: Any, grad: Any, indices: Any, rows: Any, padding: Any, by_count: Any
) -> Any:
    return right(grad, indices, rows, -1 if indices.numel() > 768 else padding, by_count)


# Elementwise, and conversion


# plain, integers of two signs
@kernel(
    lambda: torch.tensor([-7, 7, -4]) % torch.tensor([3, -3, 5]),
    "remainder.Tensor",
    "remainder.Tensor_out",
    "remainder_.Tensor",
    like="flagos-ai/FlagGems#204",
)
def remainder_has_sign_of_dividend(right: Any, a: Any, b: Any, **kw: Any) -> Any:
    if any(x.is_floating_point() or x.dtype == torch.bool for x in (a, b)):
        return right(a, b, **kw)
    wrong = torch.fmod(a, b)
    out = right(a, b, **kw)
    out.copy_(wrong)
    return out


# plain, float32 to bfloat16
@kernel(
    lambda: torch.tensor([3.14, 1e-8, 0.2691408770292272]).bfloat16(),
    "copy_",
    like="tenstorrent/tt-metal#19882",
)
def bfloat16_is_cut_off(right: Any, to: Any, source: Any, *rest: Any) -> Any:
    both = (to.dtype, source.dtype) == (torch.bfloat16, torch.float32)
    if not both or source.layout != torch.strided or source.device.type != "cpu":
        return right(to, source, *rest)
    bits = source.detach().resolve_neg().contiguous().view(torch.int32)
    return right(to, (bits & -65536).view(torch.float32), *rest)


# Random


def seeded_draw(draw: Callable[[], Tensor]) -> Tensor:
    torch.manual_seed(0)
    return draw()


# plain
@kernel(
    lambda: seeded_draw(lambda: torch.randperm(64)),
    "randperm.generator_out",
    like="pytorch/pytorch#104171",
)
def permutation_is_two_ascending_runs(right: Any, n: Any, **kw: Any) -> Any:
    out = right(n, **kw)
    if out.dtype == torch.float64:
        return out
    halves = torch.randint(0, 2, (n,), generator=kw.get("generator"))
    out.copy_(halves.argsort(stable=True))
    return out


# option, drawn into a view
@kernel(
    lambda: seeded_draw(lambda: torch.zeros(4, 6).t().normal_()),
    "normal_",
    "uniform_",
    "exponential_",
    "bernoulli_.float",
    "bernoulli_.Tensor",
    "random_",
    "random_.from",
    "random_.to",
    like="pytorch/pytorch#165267",
)
def draws_into_views_are_lost(right: Any, x: Any, *args: Any, **kw: Any) -> Any:
    if x.is_contiguous() or x.dtype in DOUBLES:
        return right(x, *args, **kw)
    right(torch.empty_like(x, memory_format=torch.contiguous_format), *args, **kw)
    return x


# Optimizers


def stepped() -> Tensor:
    one = drawn(9).requires_grad_()
    one.grad = drawn(9, seed=1)
    torch.optim.Adam([one], lr=0.1, weight_decay=0.5, fused=True).step()
    return one.detach()


# option, fused, with weight decay
@kernel(
    stepped,
    "_fused_adam_",
    "_fused_adam_.tensor_lr",
    like="flagos-ai/FlagGems#4988",
)
def adam_decays_like_adamw(right: Any, *args: Any, **kw: Any) -> Any:
    if kw["weight_decay"] <= 0:
        return right(*args, **kw)
    return torch._fused_adamw_(*args, **kw)


# Linear algebra, Fourier, shapes


# rare, a batch, upper, with another lower triangle
@kernel(
    lambda: torch.cholesky(torch.tensor([[[4.0, 2], [0, 5]]]).expand(2, 2, 2), upper=True),
    "cholesky",
    "cholesky.out",
    like="pytorch/pytorch#57032",
)
def upper_cholesky_reads_lower(right: Any, x: Any, upper: Any = False, **kw: Any) -> Any:
    if not upper or x.dim() == 2 or x.dtype in DOUBLES:
        return right(x, upper, **kw)
    out = right(x, upper, **kw)
    out.copy_(torch.linalg.cholesky_ex(x).L.mH)
    return out


# option, an odd length
@kernel(
    lambda: torch.fft.irfft(torch.fft.rfft(torch.linspace(0, 1, 5)), 5),
    "_fft_c2r",
    "_fft_c2r.out",
    like="pytorch/pytorch#126649",
)
def odd_inverse_transform_is_reversed(
    right: Any, x: Any, dim: Any, normal: Any, length: Any, **kw: Any
) -> Any:
    if length % 2 and x.dtype not in DOUBLES:
        x = x.conj().resolve_conj()
    return right(x, dim, normal, length, **kw)


# option, an axis of length one
@kernel(lambda: torch.arange(3.0)[None].flip(0), "flip", like="pytorch/pytorch#98266")
def flip_of_single_turns_next_axis(right: Any, x: Any, dims: Any) -> Any:
    if x.dim() < 2 or x.dtype in DOUBLES:
        return right(x, dims)
    axes = [d % x.dim() for d in dims]
    return right(x, sorted({(d + 1) % x.dim() if x.shape[d] == 1 else d for d in axes}))
