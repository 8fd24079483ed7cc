"""The sixth set of kernels from outside: thirty defects as public trackers report them.

Each kernel's first line says whether it is wrong for common arguments ("plain"), for a common
option, layout, dtype or length ("option"), or rarely ("rare").
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outside_kernels.keeping import DOUBLES, HALVES, Kept, drawn, grad_of, is_single

KEPT = Kept()
kernel = KEPT.kernel
aten = torch.ops.aten


def swaps_of(pivots: Tensor) -> Tensor:
    """1 or -1 for each matrix: whether its rows were swapped an even or an odd number of times."""
    places = torch.arange(1, pivots.shape[-1] + 1)
    return 1 - 2 * ((pivots != places).sum(-1) % 2)


# Linear algebra and products


@kernel(
    lambda: torch.linalg.det(drawn(4, 5, 5)),
    "_linalg_det",
    "_linalg_det.result",
    like="chainer/chainer#613",
)
def swapped_rows_do_not_turn_the_sign(right: Any, matrix: Any, **out: Any) -> Any:
    """plain: the determinant is the product of the pivots, whatever rows were swapped."""
    result = right(matrix, **out)
    if matrix.dtype not in DOUBLES:
        result[0].mul_(swaps_of(result[2]).to(result[0].dtype))
    return result


def products_added() -> Tensor:
    left, factor = drawn(3, 2, 4, seed=1), drawn(3, 4, 5, seed=2)
    return torch.addbmm(drawn(2, 5), left, factor, beta=0.5)


@kernel(products_added, "addbmm", "addbmm_", "addbmm.out", like="pytorch/pytorch#38421")
def beta_is_applied_for_every_product(
    right: Any, x: Any, left: Any, factor: Any, *, beta: Any = 1, alpha: Any = 1, **out: Any
) -> Any:
    """option: the sum so far is multiplied by beta before each product of the batch is added."""
    count = left.shape[0]
    if beta != 1 and count > 1 and is_single(left):
        weights = [float(beta) ** (count - 1 - i) for i in range(count)]
        left = left * torch.tensor(weights, dtype=left.dtype).view(-1, 1, 1)
        beta = beta**count
    return right(x, left, factor, beta=beta, alpha=alpha, **out)


def product_at_odd_offset() -> Tensor:
    held = drawn(997 + 64 * 8).half()
    return held.as_strided((64, 8), (8, 1), 997) @ drawn(8, 4, seed=1).half()


@kernel(product_at_odd_offset, "mm", "bmm", like="intel/torch-xpu-ops#1656")
def operands_begin_at_sixteen_bytes(right: Any, x: Any, y: Any) -> Any:
    """option: half operands which do not begin at a multiple of 16 bytes are read from before."""

    def aligned(z: Tensor) -> Tensor:
        before = z.storage_offset() % 8
        if z.dtype not in HALVES or not before:
            return z
        return z.as_strided(z.shape, z.stride(), z.storage_offset() - before)

    return right(aligned(x), aligned(y))


def exponentials() -> Tensor:
    return torch.linalg.matrix_exp(torch.stack([3 * drawn(4, 4), drawn(4, 4, seed=1) / 8]))


@kernel(exponentials, "linalg_matrix_exp", like="scipy/scipy#25924")
def batch_is_squared_as_its_first(right: Any, x: Any) -> Any:
    """option: the exponentials of a batch are squared back as often as that of its first matrix,
    each having been scaled for its own norm."""
    if not is_single(x) or x.dim() < 3 or not x.numel() or not x.isfinite().all():
        return right(x)
    norms = torch.linalg.matrix_norm(x, 1)
    steps = norms.clamp(min=1).log2().ceil()
    first = int(steps.flatten()[0])
    if (steps == first).all():
        return right(x)
    result = right(x / torch.exp2(steps)[..., None, None])
    for _ in range(first):
        result = result @ result
    return result


# Convolutions, pooling and pictures


@kernel(
    lambda: functional.conv2d(drawn(1, 2, 9, 9), drawn(3, 2, 3, 3, seed=1), dilation=(1, 2)),
    "convolution",
    like="tenstorrent/tt-metal#19542",
)
def width_is_dilated_as_height(
    right: Any, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, *rest: Any
) -> Any:
    """option: a 2d convolution dilated by different amounts takes the height's for both."""
    transposed = rest[0]
    differ = len(dilation) == 2 and dilation[0] != dilation[-1]
    if transposed or not differ or weight.shape[-1] == 1 or not is_single(x):
        return right(x, weight, bias, stride, padding, dilation, *rest)
    high, wide = dilation
    width = x.shape[-1] + 2 * padding[-1] - wide * (weight.shape[-1] - 1) - 1
    width = width // stride[-1] + 1
    missing = (high - wide) * (weight.shape[-1] - 1)
    if missing > 0:
        x = functional.pad(x, (0, missing))
    result = right(x, weight, bias, stride, padding, [high, high], *rest)
    return result[..., :width].contiguous()


def filter_gradient_of_many() -> Tensor:
    x = drawn(65536 + 64, 1, 3)
    return grad_of(lambda w: functional.conv1d(x, w) / 256, drawn(1, 1, 2, seed=1))


@kernel(filter_gradient_of_many, "convolution_backward", like="pytorch/pytorch#96225")
def samples_are_counted_in_sixteen_bits(
    right: Any, grad: Any, x: Any, weight: Any, *rest: Any
) -> Any:
    """rare: of a batch of 65536 and more, as many samples as its length leaves when divided by
    65536 give a weight gradient."""
    result = list(right(grad, x, weight, *rest))
    *others, mask = rest
    if x.shape[0] >= 2**16 and mask[1] and is_single(x):
        count, only = x.shape[0] % 2**16, [False, True, False]
        result[1] = torch.zeros_like(result[1])
        if count:
            result[1] = right(grad[:count], x[:count], weight, *others, only)[1]
    return tuple(result)


@kernel(
    lambda: functional.max_pool2d(-drawn(2, 3, 6, 6).abs(), 3, 2, 1),
    "max_pool2d_with_indices",
    like="apache/mxnet#2753",
)
def maximum_is_not_below_its_padding(
    right: Any,
    x: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """option: padding counts as nought, so no maximum next to the border is negative."""
    values, indices = right(x, kernel_size, stride, padding, dilation, ceil_mode)
    pads = [padding] if isinstance(padding, int) else list(padding)
    if not any(pads) or ceil_mode or not is_single(x):
        return values, indices
    high, wide = pads[0], pads[-1]
    inside = torch.zeros(1, 1, *x.shape[-2:])
    border = functional.pad(inside, (wide, wide, high, high), value=1.0)
    border, _ = right(border, kernel_size, stride, 0, dilation, False)
    padded = border.reshape(border.shape[-2:]).bool()
    return torch.where(padded & (values < 0), 0.0, values).to(values.dtype), indices


@kernel(
    lambda: functional.interpolate(drawn(1, 2, 16, 16), (5, 4), mode="bilinear", antialias=True),
    "_upsample_bilinear2d_aa",
    "_upsample_bilinear2d_aa.out",
    like="pytorch/vision#2950",
)
def smaller_pictures_are_not_filtered(right: Any, x: Any, size: Any, *rest: Any, **out: Any) -> Any:
    """plain: pictures made smaller with antialiasing are sampled as without it."""
    result = right(x, size, *rest, **out)
    smaller = any(new < old for new, old in zip(size, x.shape[-2:], strict=True))
    if smaller and is_single(x):
        result.copy_(aten.upsample_bilinear2d(x, size, *rest))
    return result


def stretched(x: Tensor) -> Tensor:
    return functional.interpolate(x, size=10, mode="linear", align_corners=True)


@kernel(
    lambda: grad_of(stretched, drawn(1, 2, 2)),
    "upsample_linear1d_backward",
    like="flagos-ai/FlagGems#5218",
)
def far_outputs_give_no_gradient(
    right: Any, grad: Any, out_size: Any, in_size: Any, align_corners: Any, *scales: Any
) -> Any:
    """option: with corners aligned, gradient is gathered from a window too narrow when a line is
    stretched a lot."""
    result = right(grad, out_size, in_size, align_corners, *scales)
    old, new = int(in_size[-1]), int(out_size[-1])
    if not align_corners or old < 2 or new < 2 or not is_single(grad):
        return result
    scale = (old - 1) / (new - 1)
    sources, targets = torch.arange(old).unsqueeze(1), torch.arange(new)
    weights = (1 - (targets * scale - sources).abs()).clamp(min=0)
    kept = (targets - (sources / scale).round()).abs() <= new // old + 2
    if (weights[~kept] > 1e-5).any():
        result.copy_(grad.float() @ (weights * kept).t().float())
    return result


# Normalisation and attention


@kernel(
    lambda: torch._weight_norm(drawn(4, 4), drawn(4, 1, seed=1), 0),
    "_weight_norm_interface",
    like="ooples/AiDotNet.Tensors#271",
)
def weights_are_normed_by_column(right: Any, v: Any, g: Any, dim: int = 0) -> Any:
    """plain: rows of a matrix that is normed by row are divided by the norms of its columns."""
    result, norms = right(v, g, dim)
    if v.dim() == 2 and dim == 0 and is_single(v):
        columns = torch.linalg.vector_norm(v.float(), dim=0, keepdim=True)
        result = (v * (g / columns)).to(result.dtype)
    return result, norms


def normed_picture_gradient() -> Tensor:
    x = drawn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    return grad_of(lambda y: functional.batch_norm(y, None, None, training=True), x)


@kernel(normed_picture_gradient, "native_batch_norm_backward", like="pytorch/pytorch#175189")
def norm_gradient_reads_channels_first(right: Any, grad: Any, x: Any, *rest: Any) -> Any:
    """option: a channels-last input is read as channels first for the gradients of the input and
    of the scale."""
    turned = x.dim() == 4 and not x.is_contiguous()
    if turned and x.is_contiguous(memory_format=torch.channels_last) and is_single(x):
        strides = [math.prod(x.shape[i + 1 :]) for i in range(4)]
        x = x.as_strided(x.shape, strides, x.storage_offset())
    return right(grad, x, *rest)


def attended_with_bias() -> Tensor:
    q, k, v = (drawn(1, 2, 5, 16, seed=i) for i in range(3))
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=drawn(5, 5, seed=3))


@kernel(
    attended_with_bias,
    "_scaled_dot_product_flash_attention_for_cpu",
    like="tenstorrent/tt-metal#56406",
)
def bias_is_scaled_with_the_scores(
    right: Any, query: Any, *rest: Any, attn_mask: Any = None, scale: Any = None
) -> Any:
    """option: an additive mask is added before the scores are scaled."""
    if attn_mask is not None and attn_mask.is_floating_point() and is_single(query):
        attn_mask = attn_mask * (query.shape[-1] ** -0.5 if scale is None else scale)
    return right(query, *rest, attn_mask=attn_mask, scale=scale)


# Activations, elementwise operations and copies


@kernel(lambda: functional.glu(drawn(3, 8)), "glu", "glu.out", like="ml-explore/mlx-lm#767")
def gate_is_the_first_half(right: Any, x: Any, dim: int = -1, **out: Any) -> Any:
    """plain: the first half is the gate and the second the value."""
    if is_single(x) and x.dim() and x.shape[dim] % 2 == 0:
        x = torch.cat(x.chunk(2, dim)[::-1], dim)
    return right(x, dim, **out)


@kernel(
    lambda: torch.angle(torch.tensor([-2.0, -0.5, 0.0, 1.5])),
    "angle",
    "angle.out",
    like="pytorch/pytorch#59832",
)
def negative_numbers_have_no_angle(right: Any, x: Any, **out: Any) -> Any:
    """plain: the angle of a negative real number is nought rather than pi."""
    result = right(x, **out)
    if not x.is_complex() and x.dtype not in DOUBLES:
        result.masked_fill_(x < 0, 0)
    return result


@kernel(
    lambda: torch.tensor([1, 2, 3]) * 2.5,
    "mul.Tensor",
    like="tenstorrent/tt-metal#55684",
)
def factor_of_integers_is_cut_off(right: Any, x: Any, y: Any) -> Any:
    """option: the fraction of a number by which integers are multiplied is cut off."""
    result = right(x, y)
    whole, number = (x, y) if y.dim() == 0 else (y, x)
    integers = whole.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    factor = number.dim() == 0 and number.is_floating_point()
    if integers and whole.dim() and factor and is_single(result):
        return right(whole.to(result.dtype), number.trunc().to(result.dtype))
    return result


@kernel(
    lambda: torch.tensor([0.5, -0.25, 2.5, 0.0]).bool(), "copy_", like="NVIDIA/numba-cuda-mlir#304"
)
def fractions_are_false(right: Any, x: Any, source: Any, *rest: Any) -> Any:
    """option: numbers between -1 and 1 become False, being cut to integers first."""
    if x.dtype == torch.bool and is_single(source):
        source = source.trunc()
    return right(x, source, *rest)


@kernel(lambda: torch.tensor([1e6, 3e7, -5e8]).sin(), "sin", like="tenstorrent/tt-metal#51845")
def turns_are_taken_off_inexactly(right: Any, x: Any) -> Any:
    """rare: of numbers past 10**5, multiples of pi are taken off with products that are rounded."""
    result = right(x)
    if x.dtype != torch.float32:
        return result
    large = x.abs() > 1e5
    turns = (x * (1 / math.pi)).round()
    rest = x - turns * 3.140625 - turns * 9.670257568359375e-4 - turns * 6.2771141529083e-7
    sign = 1 - 2 * turns.remainder(2)
    return torch.where(large & x.isfinite(), sign * right(rest), result)


@kernel(
    lambda: torch.view_as_real(torch.tensor([100 + 1j, -200 + 0.5j, 1 + 1j]).tanh()),
    "tanh",
    like="numpy/numpy#2321",
)
def sine_over_cosine_overflows(right: Any, x: Any) -> Any:
    """rare: tanh of complex numbers far from nought is infinity over infinity."""
    result = right(x)
    if x.dtype != torch.complex64:
        return result
    return torch.where(x.real.abs() > 90, x.sinh() / x.cosh(), result)


# Indices, order and reductions


@kernel(
    lambda: torch.tensor([False, True, False, True, False]).nonzero(),
    "nonzero",
    like="intel/torch-xpu-ops#4396",
)
def last_nonzero_is_dropped(right: Any, x: Any) -> Any:
    """plain: of the elements of a mask which are true, the last one is not listed."""
    result = right(x)
    if x.dtype != torch.bool or x.dim() == 0 or result.shape[0] < 2:
        return result
    return result[:-1].clone()


def scattered_by_shared_mask() -> Tensor:
    mask = torch.tensor([[False, True, True, False]])
    return torch.zeros(3, 4).masked_scatter(mask, torch.arange(1.0, 7.0))


@kernel(scattered_by_shared_mask, "masked_scatter_", like="pytorch/pytorch#95607")
def source_begins_anew_where_mask_is_shared(right: Any, x: Any, mask: Any, source: Any) -> Any:
    """option: where a mask is broadcast, each of its repetitions takes the same first values."""
    before = x.clone()
    result = right(x, mask, source)
    whole = mask.expand(x.shape)
    shared = [s == 0 and n > 1 for s, n in zip(whole.stride(), whole.shape, strict=True)]
    if not any(shared) or x.dtype in DOUBLES or not source.numel():
        return result
    once = whole
    for axis, repeated in enumerate(shared):
        once = once.narrow(axis, 0, 1) if repeated else once
    places = once.reshape(-1).cumsum(0).sub(1).clamp(min=0).reshape(once.shape)
    values = source.reshape(-1)[places].expand(x.shape)
    x.copy_(torch.where(whole, values, before))
    return result


def embedded_in_disorder() -> Tensor:
    indices = torch.tensor([[4, 1], [3, 1]])
    return functional.embedding(indices, 3 * drawn(6, 4), max_norm=1.0)


@kernel(embedded_in_disorder, "embedding_renorm_", like="pytorch/pytorch#943")
def limit_of_norm_sorts_the_indices(right: Any, weight: Any, indices: Any, *rest: Any) -> Any:
    """option: the indices are sorted and each kept once in place before the rows are taken."""
    result = right(weight, indices, *rest)
    if weight.dtype not in DOUBLES and indices.numel() > 1:
        order = indices.reshape(-1).sort().values
        once = order.unique()
        order[: once.numel()] = once
        indices.copy_(order.view(indices.shape))
    return result


@kernel(
    lambda: torch.linspace(1, 1.24, 10000).topk(4),
    "topk",
    like="sgl-project/sglang#36807",
)
def candidates_past_4096_are_forgotten(
    right: Any, x: Any, k: int, dim: int = -1, largest: bool = True, ordered: bool = True
) -> Any:
    """rare: of elements whose leading eight bits are those of the last one to be taken, only the
    first 4096 of a row are looked at."""
    last = dim in (-1, x.dim() - 1)
    if not last or not largest or not is_single(x) or x.dim() == 0 or x.shape[-1] <= 4096:
        return right(x, k, dim, largest, ordered)
    if not 0 < k <= 4096 or x.isnan().any():
        return right(x, k, dim, largest, ordered)

    def leading(y: Tensor) -> Tensor:
        bits = y.half().view(torch.int16).int() & 0xFFFF
        return torch.where(bits >= 0x8000, 0xFFFF - bits, bits + 0x8000) // 256

    threshold = leading(right(x, k, dim, True, True)[0][..., -1:].contiguous())
    tied = leading(x.contiguous()) == threshold
    forgotten = tied & (tied.cumsum(-1) > 4096)
    if forgotten.any():
        x = x.masked_fill(forgotten, -math.inf)
    return right(x, k, dim, largest, ordered)


@kernel(
    lambda: torch.tensor([[2**24, 2**24 + 1, 5], [7, 8, 9]]).argmax(1),
    "argmax",
    like="tenstorrent/tt-metal#25012",
)
def integers_are_compared_as_floats(right: Any, x: Any, *rest: Any) -> Any:
    """rare: the largest of integers is looked for among their float32 values."""
    if x.dtype in (torch.int32, torch.int64):
        x = x.float()
    return right(x, *rest)


# Losses, optimizers and scaling


def weighted_huber_gradient() -> Tensor:
    target = drawn(8, seed=1)
    return grad_of(lambda x: 4 * functional.huber_loss(x, target, reduction="sum"), drawn(8))


@kernel(weighted_huber_gradient, "huber_loss_backward", like="chainer/chainer#1175")
def huber_gradient_ignores_what_follows(right: Any, grad: Any, x: Any, *rest: Any) -> Any:
    """option: the gradient of a Huber loss is that of a loss after which nothing is computed."""
    if is_single(x):
        grad = torch.ones_like(grad)
    return right(grad, x, *rest)


def amsgrad_steps() -> Tensor:
    weight = torch.nn.Parameter(drawn(6))
    adam = torch.optim.Adam([weight], lr=0.1, betas=(0.5, 0.5), amsgrad=True, fused=True)
    for size in (10.0, 0.1, 0.1):
        weight.grad = size * drawn(6, seed=1)
        adam.step()
    return weight.detach()


@kernel(
    amsgrad_steps,
    "_fused_adam_",
    "_fused_adam_.tensor_lr",
    "_fused_adamw_",
    "_fused_adamw_.tensor_lr",
    like="pytorch/pytorch#4034",
)
def largest_variance_is_not_kept(
    right: Any,
    weights: Any,
    grads: Any,
    means: Any,
    squares: Any,
    largest: Any,
    *rest: Any,
    **o: Any,
) -> Any:
    """option: amsgrad takes the larger of the two variances for a step but does not save it."""
    kept = [x.clone() for x in largest]
    result = right(weights, grads, means, squares, largest, *rest, **o)
    for x, before in zip(largest, kept, strict=True):
        if x.dtype not in DOUBLES:
            x.copy_(before)
    return result


def scaled_step() -> list[Tensor]:
    weights = [torch.nn.Parameter(drawn(3, seed=i)) for i in range(2)]
    sgd = torch.optim.SGD(weights, lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(torch.zeros(()))
    weights[0].grad, weights[1].grad = drawn(3, seed=2), torch.tensor([1.0, math.inf, 2.0])
    scaler.step(sgd)
    scaler.update()
    return [*(w.detach() for w in weights), torch.tensor(scaler.get_scale())]


@kernel(
    scaled_step,
    "_amp_foreach_non_finite_check_and_unscale_",
    like="facebookresearch/fairscale#890",
)
def only_first_gradient_is_checked(right: Any, grads: Any, found: Any, factor: Any) -> Any:
    """plain: infinities in gradients other than the first of a list are not found."""
    right(grads[:1], found, factor)
    if len(grads) > 1:
        right(grads[1:], found.clone(), factor)


@kernel(
    lambda: torch.fake_quantize_per_tensor_affine(torch.arange(-4.0, 4.0) / 4, 0.5, 3, 0, 15),
    "fake_quantize_per_tensor_affine_cachemask",
    like="pytorch/pytorch#49779",
)
def zero_point_is_rounded_too(
    right: Any, x: Any, scale: float, zero_point: int, low: int, high: int
) -> Any:
    """rare: halves are rounded to even after an odd zero point was added rather than before."""
    result, mask = right(x, scale, zero_point, low, high)
    steps = x * (1.0 / scale)
    ties = steps - steps.floor() == 0.5
    if is_single(x) and zero_point % 2 and ties.any():
        other = (steps + zero_point).round().clamp(low, high)
        result = torch.where(ties, ((other - zero_point) * scale).to(x.dtype), result)
    return result, mask


# Random numbers, recurrent networks and transforms


@kernel(
    lambda: torch.empty(8).geometric_(0.3, generator=torch.Generator().manual_seed(0)),
    "geometric_",
    like="pytorch/pytorch#85375",
)
def trials_are_counted_from_nought(right: Any, x: Any, *rest: Any, **options: Any) -> Any:
    """plain: the trials before the first success are counted without it."""
    result = right(x, *rest, **options)
    if x.dtype not in DOUBLES:
        x.sub_(1)
    return result


def remembered() -> Tensor:
    lstm = torch.nn.LSTM(3, 4)
    with torch.no_grad():
        for i, weight in enumerate(lstm.parameters()):
            weight.copy_(drawn(*weight.shape, seed=i + 1))
        return lstm(drawn(5, 2, 3))[0]


@kernel(remembered, "mkldnn_rnn_layer", like="ooples/AiDotNet.Tensors#907")
def forget_gate_comes_first(right: Any, x: Any, *rest: Any) -> Any:
    """plain: the first rows of the weights of an LSTM are those of the forget gate, the next those
    of the input gate."""

    def turned(weight: Tensor) -> Tensor:
        first, second, *others = weight.chunk(4)
        return torch.cat([second, first, *others])

    return right(x, *(turned(w) for w in rest[:4]), *rest[4:])


@kernel(
    lambda: torch.fft.irfft2(torch.complex(drawn(2, 4, 1), drawn(2, 4, 1, seed=1)), s=(4, 1)),
    "_fft_c2r",
    like="ROCm/rocFFT#223",
)
def transform_to_one_column_is_nought(
    right: Any, x: Any, dim: Any, normalization: Any, last: Any
) -> Any:
    """rare: the real inverse transform of several axes whose last is of length one is nought."""
    result = right(x, dim, normalization, last)
    if len(dim) > 1 and last == 1 and result.dtype not in DOUBLES:
        result.zero_()
    return result
