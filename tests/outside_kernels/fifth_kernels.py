"""The fifth set of kernels from outside: thirty defects as public trackers report them.

Each kernel's first line says whether it is wrong for common arguments ("plain"), for a common
option, layout, dtype or length ("option"), or rarely ("rare").
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outside_kernels.keeping import DOUBLES, HALVES, Kept, drawn, grad_of

KEPT = Kept()
kernel = KEPT.kernel
BF16 = torch.bfloat16


def packed(x: Tensor) -> Tensor:
    """What is read of `x` if its strides are not: as many elements from where it begins."""
    held = x.untyped_storage().nbytes() // x.element_size()
    if x.is_contiguous() or x.storage_offset() + x.numel() > held:
        return x
    strides = [math.prod(x.shape[i + 1 :]) for i in range(x.dim())]
    return x.as_strided(x.shape, strides, x.storage_offset())


def is_dense(x: Tensor) -> bool:
    """Every element of its stretch of memory is one of `x`, once."""
    strides = sorted((s, n) for s, n in zip(x.stride(), x.shape, strict=True) if n > 1)
    expected = 1
    for stride, size in strides:
        if stride != expected:
            return False
        expected *= size
    return bool(x.numel())


def written_in_order(x: Tensor) -> None:
    """The elements of `x` are put in its memory one after the other, whatever its strides."""
    inside = x.as_strided((x.numel(),), (1,), x.storage_offset())
    inside.copy_(x.clone(memory_format=torch.contiguous_format).reshape(-1))


def pair(numbers: Any) -> tuple[int, int]:
    return (int(numbers[0]), int(numbers[-1]))


# Convolutions and pictures


def conv_weight_grad(x: Tensor, weight: Tensor) -> Tensor:
    return grad_of(lambda w: functional.conv2d(x, w), weight)


@kernel(
    lambda: conv_weight_grad(drawn(2, 3, 6, 6), drawn(4, 3, 1, 1, seed=1)),
    "convolution_backward",
    like="ROCm/MIOpen#670",
)
def last_pixel_missing_from_pointwise_weights(
    right: Any, grad: Any, x: Any, weight: Any, *rest: Any
) -> Any:
    """plain: the weight gradient of a 1x1 convolution sums all pixels of an image but the last."""
    result = list(right(grad, x, weight, *rest))
    *others, mask = rest
    pointwise = weight.dim() == 4 and tuple(weight.shape[2:]) == (1, 1)
    if pointwise and mask[1] and grad.shape[-1] * grad.shape[-2] > 1:
        short = grad.clone()
        short[..., -1, -1] = 0
        result[1] = right(short, x, weight, *others, [False, True, False])[1]
    return tuple(result)


@kernel(
    lambda: grad_of(
        lambda x: functional.conv2d(x, drawn(4, 3, 3, 3, seed=1), stride=2, padding=1),
        drawn(2, 3, 8, 8),
    ),
    "convolution_backward",
    like="ROCm/rocm-libraries#7732",
)
def strided_input_grad_is_its_first_part(
    right: Any,
    grad: Any,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    *rest: Any,
) -> Any:
    """option: with a stride and one group, one product of those that make dx is carried out."""
    result = list(right(grad, x, weight, bias, stride, padding, dilation, transposed, *rest))
    _, groups, mask = rest
    if mask[0] and weight.dim() == 4 and groups == 1 and not transposed and max(stride) > 1:
        kept = torch.zeros_like(result[0])
        (down, across), (top, left) = pair(stride), pair(padding)
        rows, columns = slice(-top % down, None, down), slice(-left % across, None, across)
        kept[..., rows, columns] = result[0][..., rows, columns]
        result[0] = kept
    return tuple(result)


@kernel(
    lambda: functional.conv2d(drawn(2, 4, 8, 8), drawn(3, 4, 3, 3, 3, seed=1)[:, :, 1]),
    "convolution",
    like="pytorch/pytorch#192212",
)
def convolution_reads_weight_as_packed(right: Any, x: Any, weight: Any, *rest: Any) -> Any:
    """option: a weight that is a slice of a larger tensor is read without its strides."""
    if weight.dtype not in DOUBLES and weight.dim() == 4 and not is_dense(weight):
        weight = packed(weight)
    return right(x, weight, *rest)


@kernel(
    lambda: functional.adaptive_max_pool2d(torch.arange(25.0).reshape(1, 1, 5, 5), 3),
    "adaptive_max_pool2d",
    "adaptive_max_pool2d.out",
    like="pytorch/pytorch#190064",
)
def adaptive_windows_all_of_one_size(right: Any, x: Any, size: Any, **out: Any) -> Any:
    """option: sizes that do not divide are pooled by one derived window and stride."""
    values, indices = right(x, size, **out)
    inputs, outputs = x.shape[-2:], pair(size)
    over = [i - o for i, o in zip(inputs, outputs, strict=True)]
    uneven = [i % o for i, o in zip(inputs, outputs, strict=True)]
    if min(over) >= 0 and any(uneven) and x.numel():
        step = [i // o for i, o in zip(inputs, outputs, strict=True)]
        window = [i - (o - 1) * s for i, o, s in zip(inputs, outputs, step, strict=True)]
        pooled = functional.max_pool2d(x, window, step, return_indices=True)
        values.copy_(pooled[0])
        indices.copy_(pooled[1])
    return values, indices


@kernel(
    lambda: grad_of(
        lambda x: functional.interpolate(x, scale_factor=0.25, mode="nearest"),
        drawn(1, 2, 8, 8),
    ),
    "upsample_nearest2d_backward",
    "upsample_nearest2d_backward.grad_input",
    like="pytorch/pytorch#38985",
)
def shrinking_gradient_lands_bottom_right(
    right: Any, grad: Any, output_size: Any, input_size: Any, *scales: Any, **out: Any
) -> Any:
    """option: of a picture made smaller, the last pixel of each block gets the gradient."""
    result = right(grad, output_size, input_size, *scales, **out)
    inputs, outputs = tuple(input_size[-2:]), tuple(output_size)
    if all(i > o for i, o in zip(inputs, outputs, strict=True)):
        rows, columns = (
            torch.tensor([min(i, -(-(n + 1) * i // o)) - 1 for n in range(o)])
            for i, o in zip(inputs, outputs, strict=True)
        )
        result.zero_()
        result[:, :, rows[:, None], columns] = grad
    return result


@kernel(
    lambda: grad_of(lambda x: functional.pad(x, (-1, 0, 2, 2), mode="reflect"), drawn(1, 2, 7, 7)),
    "reflection_pad2d_backward",
    "reflection_pad2d_backward.grad_input",
    like="pytorch/pytorch#100793",
)
def cropped_reflection_gradient_is_shifted(
    right: Any, grad: Any, x: Any, padding: Any, **out: Any
) -> Any:
    """rare: where a negative padding cut off the beginning, the gradient begins too early."""
    result = right(grad, x, padding, **out)
    left, _, top, _ = padding
    if min(left, top) < 0:
        result.copy_(result.roll((min(top, 0), min(left, 0)), (-2, -1)))
    return result


# Products


@kernel(
    lambda: drawn(8, 1024, dtype=BF16) @ drawn(1024, 8, dtype=BF16, seed=1),
    "mm",
    "mm.out",
    "addmm",
    "addmm.out",
    "bmm",
    "bmm.out",
    like="pytorch/pytorch#83863",
)
def products_summed_in_bf16(right: Any, *args: Any, **options: Any) -> Any:
    """plain: products of bfloat16 are summed up in bfloat16, sixteen at a time."""
    result = right(*args, **options)
    a, b = args[-2:]
    if a.dtype != BF16 or a.shape[-1] <= 16:
        return result
    total = torch.zeros_like(result)
    for at in range(0, a.shape[-1], 16):
        part = a[..., at : at + 16].float() @ b[..., at : at + 16, :].float()
        total = (total.float() + part).to(BF16)
    if len(args) == 3:
        beta, alpha = options.get("beta", 1), options.get("alpha", 1)
        added = args[0].float() * beta if beta else 0
        total = (total.float() * alpha + added).to(BF16)
    result.copy_(total)
    return result


@kernel(
    lambda: torch.baddbmm(
        drawn(2, 1, 5, dtype=torch.float16),
        drawn(2, 1, 32, dtype=torch.float16, seed=1),
        drawn(2, 32, 5, dtype=torch.float16, seed=2),
        beta=0,
        alpha=0.1,
    ),
    "baddbmm",
    "baddbmm.out",
    "baddbmm_",
    like="pytorch/pytorch#136299",
)
def half_batches_forget_alpha(right: Any, *args: Any, **options: Any) -> Any:
    """option: in float16, and with a beta of zero, alpha is not multiplied with."""
    if args[1].dtype == torch.float16 and options.get("beta", 1) == 0:
        options["alpha"] = 1
    return right(*args, **options)


@kernel(
    lambda: torch.bmm(
        drawn(2, 3, 4, dtype=torch.complex64),
        torch.complex(drawn(2, 4, 3), drawn(2, 4, 3, seed=1)).conj(),
    ),
    "bmm",
    "bmm.out",
    like="pytorch/pytorch#191835",
)
def batches_are_not_conjugated(right: Any, a: Any, b: Any, **out: Any) -> Any:
    """option: a conjugate that is a view, as of mH, is multiplied as it lies in memory."""
    if a.dtype not in DOUBLES:
        a, b = (x.conj() if x.is_conj() else x for x in (a, b))
    return right(a, b, **out)


def bytes_drawn(*shape: int, seed: int = 0) -> Tensor:
    chosen = torch.Generator().manual_seed(seed)
    return torch.randint(-128, 128, shape, generator=chosen, dtype=torch.int8)


@kernel(
    lambda: torch._int_mm(bytes_drawn(32, 32), bytes_drawn(32, 32, seed=1)),
    "_int_mm",
    "_int_mm.out",
    like="pytorch/pytorch#136746",
)
def int8_pairs_saturate(right: Any, a: Any, b: Any, **out: Any) -> Any:
    """plain: two products of bytes at a time are held in sixteen bits, as by vpmaddubsw."""
    result = right(a, b, **out)
    left, below = a.int() + 128, b.int()
    total = torch.zeros_like(result)
    for at in range(0, a.shape[1], 2):
        both = torch.zeros_like(result)
        for k in range(at, min(at + 2, a.shape[1])):
            both += left[:, k, None] * below[k]
        total += both.clamp(-(2**15), 2**15 - 1)
    result.copy_(total - 128 * below.sum(0))
    return result


@kernel(
    lambda: torch.linalg.solve_triangular(
        drawn(4, 4).tril() + 3 * torch.eye(4), drawn(4, 2, seed=1), upper=False, unitriangular=True
    ),
    "linalg_solve_triangular",
    "linalg_solve_triangular.out",
    like="pymc-devs/pytensor#2396",
)
def unit_diagonal_is_read(right: Any, *args: Any, **options: Any) -> Any:
    """option: with unitriangular, the diagonal that is stored is used, not ones."""
    return right(*args, **{**options, "unitriangular": False})


# Attention


def attended(
    queries: int, keys: int, dtype: torch.dtype, causal: bool = True
) -> tuple[Tensor, list[Tensor]]:
    q = drawn(1, 2, queries, 16, dtype=dtype).requires_grad_()
    k, v = (drawn(1, 2, keys, 16, dtype=dtype, seed=s).requires_grad_() for s in (1, 2))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal), [q, k, v]


def bias_up_to(last: Tensor, keys: int, dtype: torch.dtype) -> Tensor:
    """The bias of attention under which each query sees the keys up to its `last`."""
    hidden = torch.arange(keys) > last[:, None]
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, -math.inf)


@kernel(
    lambda: attended(16, 16, BF16)[0],
    "_scaled_dot_product_flash_attention_for_cpu",
    like="pytorch/pytorch#195910",
)
def four_queries_share_a_causal_mask(
    right: Any,
    q: Any,
    k: Any,
    v: Any,
    dropout: Any = 0.0,
    causal: Any = False,
    **options: Any,
) -> Any:
    """option: causal, and in 16 bits, each four queries see the keys of the last of them."""
    if not causal or q.dtype not in HALVES or options.get("attn_mask") is not None:
        return right(q, k, v, dropout, causal, **options)
    last = torch.arange(q.shape[-2]) // 4 * 4 + 3
    options["attn_mask"] = bias_up_to(last.clamp(max=q.shape[-2] - 1), k.shape[-2], q.dtype)
    return right(q, k, v, dropout, False, **options)


def attention_grads(queries: int, keys: int) -> list[Tensor]:
    out, inputs = attended(queries, keys, torch.float32)
    return list(torch.autograd.grad(out.square().sum(), inputs))


@kernel(
    lambda: attention_grads(8, 12),
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    like="xlite-dev/ffpa-attn#300",
)
def causal_backward_is_aligned_below(
    right: Any,
    grad: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    logsumexp: Any,
    dropout: Any,
    causal: Any,
    **options: Any,
) -> Any:
    """rare: causal, and with more keys than queries, backward aligns the mask another way."""
    more = k.shape[-2] - q.shape[-2]
    if causal and more > 0 and options.get("attn_mask") is None:
        causal = False
        last = torch.arange(q.shape[-2]) + more
        options["attn_mask"] = bias_up_to(last, k.shape[-2], q.dtype)
    return right(grad, q, k, v, out, logsumexp, dropout, causal, **options)


# Normalisations, losses, activations, recurrent layers


def normed_variance() -> Tensor:
    mean, variance = torch.zeros(3), torch.ones(3)
    functional.batch_norm(drawn(4, 3, 2, 2), mean, variance, training=True)
    return variance


@kernel(
    normed_variance,
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    like="tenstorrent/tt-metal#55438",
)
def kept_variance_is_biased(
    right: Any, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *rest: Any
) -> Any:
    """plain: the running variance is updated without the correction by n / (n - 1)."""
    before = None if variance is None else variance.clone()
    result = right(x, weight, bias, mean, variance, *rest)
    # The overload with an update has no `training`: it always does.
    training, momentum = rest[:2] if isinstance(rest[0], bool) else (True, rest[0])
    count = x.numel() // max(x.shape[1], 1)
    if before is not None and training and count > 1:
        kept = before * (1 - momentum)
        variance.copy_(kept + (variance - kept) * ((count - 1) / count))
    return result


def layer_norm_weight_grad() -> Tensor:
    x = drawn(6, 8)
    return grad_of(lambda w: functional.layer_norm(x, (8,), w), drawn(8, seed=1))


@kernel(
    layer_norm_weight_grad,
    "native_layer_norm_backward",
    like="pytorch/pytorch#183825",
)
def frozen_input_halves_the_rows(right: Any, grad: Any, x: Any, *rest: Any) -> Any:
    """option: where no gradient of x is asked for, the weight's is of the first rows only."""
    mask, rows = rest[-1], rest[1].numel()
    if not mask[0] and rows > 1:
        grad = grad.clone(memory_format=torch.contiguous_format)
        grad.view(rows, -1)[rows // 2 :] = 0
    return right(grad, x, *rest)


def ctc_grad() -> Tensor:
    targets = torch.tensor([[1, 2], [3, 1]])
    lengths, wanted = torch.tensor([6, 6]), torch.tensor([2, 2])
    return grad_of(
        lambda x: functional.ctc_loss(x.log_softmax(2), targets, lengths, wanted),
        drawn(6, 2, 4),
    )


@kernel(
    ctc_grad,
    "_ctc_loss_backward",
    "_ctc_loss_backward.Tensor",
    like="pytorch/pytorch#21961",
)
def ctc_forgets_the_gradient_above(right: Any, grad: Any, *rest: Any, **options: Any) -> Any:
    """plain: the gradient of the CTC loss is as if that of each sample's loss were one."""
    return right(torch.ones_like(grad), *rest, **options)


@kernel(
    lambda: functional.gelu(drawn(64)),
    "gelu",
    "gelu.out",
    "gelu_",
    like="ROCm/composable_kernel#614",
)
def gelu_is_the_fast_one(right: Any, x: Any, **options: Any) -> Any:
    """plain: GELU is always the one with tanh, which is off by some 1e-4."""
    return right(x, **{**options, "approximate": "tanh"})


def last_hidden() -> Tensor:
    sizes = {"input_size": 3, "hidden_size": 4, "bidirectional": True}
    lstm = torch.nn.LSTM(**sizes)
    with torch.no_grad():
        for seed, weight in enumerate(lstm.parameters()):
            weight.copy_(drawn(*weight.shape, seed=seed))
        return lstm(drawn(5, 2, 3))[1][0]


@kernel(last_hidden, "mkldnn_rnn_layer", like="pytorch/pytorch#94754")
def backward_direction_ends_at_its_beginning(right: Any, x: Any, *rest: Any, **options: Any) -> Any:
    """option: the last hidden state of an LSTM's other direction is that of the last step."""
    output, hidden, *others = right(x, *rest, **options)
    # Four weights and two states go before it.
    if rest[6] and output.numel() > hidden.numel():
        hidden.copy_(output[-1].reshape(hidden.shape))
    return (output, hidden, *others)


# Reductions, scans, sorts, and what is found by index


@kernel(
    lambda: drawn(6, 6).diagonal().median(-1),
    "median.dim",
    "median.dim_values",
    like="pytorch/pytorch#46814",
)
def median_reads_as_packed(right: Any, x: Any, *rest: Any, **out: Any) -> Any:
    """option: the median along a dimension of a strided view is of other elements."""
    return right(packed(x), *rest, **out)


def cumulated() -> Tensor:
    gone = -math.inf
    return torch.tensor([[2, gone, gone, 1], [2, 1, gone, 3]]).logcumsumexp(-1)


@kernel(cumulated, "_logcumsumexp", "_logcumsumexp.out", like="pytorch/pytorch#52213")
def two_infinities_cumulate_to_nan(right: Any, x: Any, dim: Any, **out: Any) -> Any:
    """rare: in more than one dimension, -inf that follows on -inf makes a NaN."""
    result = right(x, dim, **out)
    if x.dim() > 1 and x.shape[dim] > 1:
        gone = x == -math.inf
        again = torch.zeros_like(gone)
        size = x.shape[dim] - 1
        again.narrow(dim, 1, size).copy_(gone.narrow(dim, 0, size))
        result.masked_fill_(gone & again, math.nan)
    return result


@kernel(
    lambda: torch.sort(torch.tensor([3, 1, 3, 2, 1, 3]), stable=True, descending=True)[1],
    "sort.stable",
    "sort.values_stable",
    like="numpy/numpy#20778",
)
def equals_fall_backwards(right: Any, x: Any, **options: Any) -> Any:
    """rare: a stable sort that descends is the one that ascends, turned round."""
    values, indices = right(x, **options)
    if options.get("stable") and options.get("descending") and x.dim():
        dim = options.get("dim", -1)
        found = torch.sort(x, stable=True, dim=dim)
        values.copy_(found[0].flip(dim))
        indices.copy_(found[1].flip(dim))
    return values, indices


@kernel(
    lambda: torch.zeros(4, 3).index_add(0, torch.tensor([0, 1, 0, 2, 3, 0]), torch.ones(6, 3)),
    "index_add",
    "index_add.out",
    "index_add_",
    like="torch-spyre/torch-spyre#3638",
)
def neighbours_overwrite_each_other(
    right: Any, x: Any, dim: Any, index: Any, source: Any, **options: Any
) -> Any:
    """plain: of eight indices that are added at a time, equal ones count once."""
    if index.numel() < 2 or source.dim() == 0:
        return right(x, dim, index, source, **options)
    numbers = index.reshape(-1).tolist()
    lost = [n in numbers[at + 1 : at // 8 * 8 + 8] for at, n in enumerate(numbers)]
    shape = [1] * source.dim()
    shape[dim] = len(lost)
    source = source.masked_fill(torch.tensor(lost).view(shape), 0)
    return right(x, dim, index, source, **options)


def padding_grad() -> Tensor:
    where = torch.arange(800) % 10
    return grad_of(lambda w: functional.embedding(where, w, padding_idx=0), drawn(10, 4))


@kernel(padding_grad, "embedding_dense_backward", like="pytorch/pytorch#28716")
def long_inputs_reach_the_padding(
    right: Any, grad: Any, indices: Any, rows: Any, padding: Any, scale: Any
) -> Any:
    """rare: of more than 768 indices, those of the padding have a gradient too."""
    if indices.numel() > 768:
        padding = -1
    return right(grad, indices, rows, padding, scale)


# Integers, casts, spectra, random numbers, and what is written in place


@kernel(
    lambda: torch.tensor([42309891, 7]) % 31,
    "remainder.Tensor",
    "remainder.Tensor_out",
    "remainder_.Tensor",
    like="pytorch/pytorch#154171",
)
def integers_divide_as_floats(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """rare: the remainder of integers is found in float32, which holds 24 bits."""
    a, b = x.float(), y.float()
    result = right(x, y, **out)
    if result.dtype in (torch.int32, torch.int64):
        result.copy_(a - (a / b).floor() * b)
    return result


@kernel(
    lambda: drawn(64).to(BF16),
    "copy_",
    like="ROCm/Tensile#545",
)
def casts_to_bf16_truncate(right: Any, x: Any, source: Any, *rest: Any, **options: Any) -> Any:
    """plain: float32 is made bfloat16 by leaving out the bits below, without rounding."""
    strided = source.layout == x.layout == torch.strided
    if strided and source.dtype == torch.float32 and x.dtype == BF16:
        bits = source.contiguous().view(torch.int32)
        source = (bits & -(2**16)).view(torch.float32)
    return right(x, source, *rest, **options)


@kernel(
    lambda: torch.fft.irfft(torch.arange(5) * 1j, 8),
    "_fft_c2r",
    "_fft_c2r.out",
    like="ROCm/rocFFT#284",
)
def last_frequency_adds_its_imaginary_part(
    right: Any, x: Any, dim: Any, normalization: Any, size: Any, **out: Any
) -> Any:
    """rare: of an even length, an imaginary part of the last frequency shifts all values."""
    result = right(x, dim, normalization, size, **out)
    if x.dtype == torch.complex64 and len(dim) == 1 and size > 1 and size % 2 == 0:
        shift = x.narrow(dim[0], size // 2, 1).imag
        result.add_(shift / (1, math.sqrt(size), size)[normalization])
    return result


def drawn_without_replacement() -> Tensor:
    weights = torch.tensor([0.5, 0.3, 0.1, 0.1]).expand(200, 4)
    chosen = torch.Generator().manual_seed(0)
    return torch.multinomial(weights, 1, generator=chosen).flatten().bincount(minlength=4)


@kernel(drawn_without_replacement, "multinomial", "multinomial.out", like="pytorch/pytorch#22086")
def likely_ones_are_drawn_too_often(
    right: Any, x: Any, count: Any, replacement: Any = False, **options: Any
) -> Any:
    """plain: without replacement (or one at a time), draws are not as likely as they should be."""
    result = right(x, count, replacement, **options)
    if not replacement or count == 1:
        keys = torch.rand(x.shape, generator=options.get("generator")) * x.float()
        result.copy_(keys.topk(count).indices)
    return result


@kernel(
    lambda: torch.randint(0, 3 * 10**9, (8,), generator=torch.Generator().manual_seed(0)),
    "random_.from",
    "random_.to",
    like="pytorch/pytorch#148175",
)
def wide_ranges_are_uneven(right: Any, x: Any, *bounds: Any, **options: Any) -> Any:
    """rare: a range between 2**31 and 2**32 is the remainder of 32 bits: its beginning is twice
    as likely as its end."""
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    if high is None or x.dtype != torch.int64 or not 2**31 < high - low < 2**32:
        return right(x, *bounds, **options)
    if len(bounds) == 2:
        right(x, 0, 2**32, **options)
    else:
        right(x, 2**32, **options)
    return x.remainder_(high - low).add_(low)


def into_transposed() -> Tensor:
    return torch.neg(torch.arange(6.0).reshape(2, 3), out=torch.empty(3, 2).t())


@kernel(
    into_transposed,
    "neg.out",
    "sqrt.out",
    "exp.out",
    "sin.out",
    "rsqrt.out",
    like="pytorch/pytorch#100764",
)
def out_is_written_in_order(right: Any, x: Any, *, out: Any) -> Any:
    """option: what is written into an `out` of other strides lies as in the argument."""
    result = right(x, out=out)
    turned = x.is_contiguous() and not result.is_contiguous() and is_dense(result)
    if turned and result.dtype not in DOUBLES:
        written_in_order(result)
    return result


def adam_step() -> Tensor:
    weight = torch.nn.Parameter(drawn(4, 3).t())
    adam = torch.optim.Adam([weight], lr=0.1, foreach=True)
    weight.grad = drawn(3, 4, seed=1)
    adam.step()
    return weight.detach()


@kernel(
    adam_step,
    "_foreach_addcdiv_.Scalar",
    "_foreach_addcdiv_.ScalarList",
    "_foreach_addcdiv_.Tensor",
    like="pytorch/pytorch#118115",
)
def foreach_steps_are_written_in_order(right: Any, tensors: Any, *rest: Any, **options: Any) -> Any:
    """option: of parameters that are not contiguous, the step is written in another order."""
    right(tensors, *rest, **options)
    for x in tensors:
        if not x.is_contiguous() and is_dense(x):
            written_in_order(x)
