"""Wrong kernels, put under torch's dispatcher: no Python of the checks can know of them.

Each repeats a defect of a kernel in the field, or a possible one: by class, with the row that has
to catch it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.check_options import CheckOptions
from warpfront_checks.edge_cases.field_faults import FIELD_FAULTS
from warpfront_checks.edge_cases.place_faults import PLACE_FAULTS
from warpfront_checks.edge_cases.seeding import (
    KEYS,
    Kernel,
    KernelFault,
    WrongKernels,
    concerns,
    fits,
    seed_kernel_faults,
)
from warpfront_checks.mutations import MutationTally, finding_of_faults
from warpfront_checks.results import SKIPPED, Check, CheckFinding, Recorder


def record_kernel_faults(
    claims: Any, recorder: Recorder, effort: CheckOptions | None = None
) -> None:
    """Run one check for each class of hazards: it has to catch every wrong kernel of the class."""
    del effort
    if not hasattr(torch.library, "get_kernel"):
        recorder.note_unclaimed("wrong kernels", f"torch {torch.__version__} has no get_kernel")
        return
    faults = [fault for fault in KERNEL_FAULTS if concerns(fault, claims.device)]
    classes = dict.fromkeys(fault.hazard_class for fault in faults)
    if claims.device not in KEYS:
        recorder.note_unclaimed("wrong kernels", f"no kernels are seeded on {claims.device}")
        return
    recorder.run(
        [
            Check(name=f"wrong kernels, {name}", find=partial(_finding, name, claims.device))
            for name in classes
        ]
    )


def _finding(name: str, device: str) -> CheckFinding:
    faults = [
        fault for fault in KERNEL_FAULTS if fault.hazard_class == name and concerns(fault, device)
    ]
    if not any(fits(fault, device) for fault in faults):
        return CheckFinding(outcome=SKIPPED, reason="the device has less memory than its rows take")
    ledger = MutationTally()
    seed_kernel_faults(faults, device, ledger)
    return finding_of_faults(ledger)


OWN_FAULTS = WrongKernels()
_far = partial(OWN_FAULTS.entry, "far out")
_special = partial(OWN_FAULTS.entry, "NaN and infinity")
_long = partial(OWN_FAULTS.entry, "long")
_formats = partial(OWN_FAULTS.entry, "memory formats")
_state = partial(OWN_FAULTS.entry, "kept state")
_targets = partial(OWN_FAULTS.entry, "targets")
_order = partial(OWN_FAULTS.entry, "order")
_random = partial(OWN_FAULTS.entry, "random numbers")
_complex = partial(OWN_FAULTS.entry, "complex")
_bits = partial(OWN_FAULTS.entry, "eight bits")
_repeats = partial(OWN_FAULTS.entry, "determinism")


@_far("softmax", "softmax without its largest taken off", "_softmax", like="pytorch#795")
def _softmax_of_large(kernel: Kernel, x: Tensor, dim: int, half: bool) -> Tensor:
    e = torch.exp(x)
    return e / e.sum(dim, keepdim=True)


@_far(
    "logarithms of sums", "log_softmax as a logarithm", "_log_softmax", like="pytorch#725, #11752"
)
def _logarithm_of_softmax(kernel: Kernel, x: Tensor, dim: int, half: bool) -> Tensor:
    return torch.log(torch.softmax(x.float(), dim)).to(x.dtype)


@_far("tanh", "tanh by exponentials", "tanh")
def _by_exponentials(kernel: Kernel, x: Tensor) -> Tensor:
    e = torch.exp(2 * x)
    return (e - 1) / (e + 1)


_far("log1p", "log1p as a logarithm", "log1p")(lambda kernel, x: torch.log(1 + x))
_far("expm1", "expm1 as a difference", "expm1")(lambda kernel, x: torch.exp(x) - 1)


@_far("gelu", "gelu closed early", "gelu")
def _gate_closed_early(kernel: Kernel, x: Tensor, **kwargs: Any) -> Tensor:
    return torch.where(x < -2.5, 0, kernel(x, **kwargs))


_far("softplus", "softplus overflows", "softplus")(
    lambda kernel, x, *_: torch.log(1 + torch.exp(x))
)
_far("erf", "erf saturates early", "erf")(lambda kernel, x: kernel(x.clamp(-2, 2)))


@_far("sin", "sine of a rounded argument", "sin")
def _low_precision_argument(kernel: Kernel, x: Tensor) -> Any:
    return torch.where(x.abs() > 1000, kernel(x.bfloat16().to(x.dtype)), kernel(x))


_far("sigmoid", "sigmoid without its tail", "sigmoid")(lambda kernel, x: kernel(x.clamp(-10, 10)))


@_far("variance far from 0", "variance as a difference", "var.correction")
def _naive_variance(kernel: Kernel, x: Tensor, dim: Any = None, **kwargs: Any) -> Tensor:
    axes = dim if dim is not None else tuple(range(x.dim()))
    correction = kwargs.get("correction")
    count = math.prod(x.shape[axis] for axis in axes)
    wide = x.float()
    spread = (wide * wide).mean(axes) - wide.mean(axes) ** 2
    return (spread * count / (count - (1 if correction is None else correction))).to(x.dtype)


@_far("normalisation far from 0", "layer_norm's variance as a difference", "native_layer_norm")
def _naive_layer_norm(
    kernel: Kernel, x: Tensor, shape: Any, weight: Any, bias: Any, eps: float
) -> Any:
    y, mean, rstd = kernel(x, shape, weight, bias, eps)
    wide, axes = x.float(), tuple(range(x.dim() - len(shape), x.dim()))
    variance = (wide * wide).mean(axes, keepdim=True) - wide.mean(axes, keepdim=True) ** 2
    normal = (wide - wide.mean(axes, keepdim=True)) / (variance.clamp(min=0) + eps).sqrt()
    return normal.to(y.dtype) if weight is None else y, mean, rstd


@_far("whole quotients", "quotients rounded towards 0", "floor_divide")
def _rounded_towards_zero(kernel: Kernel, x: Tensor, y: Tensor) -> Any:
    return torch.div(x, y, rounding_mode="trunc")


def _without_nan(kernel: Kernel, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    return kernel(torch.nan_to_num(x, nan=-3e4, posinf=math.inf, neginf=-math.inf), *args, **kwargs)


_special("amax", "amax passes NaN over", "amax", like="pytorch#6996, tvm#19518")(_without_nan)
_special("max", "max passes NaN over", "max.dim", like="pytorch#6996, #1810")(_without_nan)
_special("largest of", "argmax passes NaN over", "argmax", like="pytorch#130295")(_without_nan)


def _zero_for_nan(kernel: Kernel, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    return kernel(torch.where(x.isnan(), torch.zeros_like(x), x), *args, **kwargs)


_special("sum", "sum takes NaN for 0", "sum.dim_IntList")(_zero_for_nan)


@_special("sum", "sum takes infinity for 0", "sum.dim_IntList")
def _zero_for_infinity(kernel: Kernel, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    return kernel(torch.where(x.isinf(), torch.zeros_like(x), x), *args, **kwargs)


_special("element clamp", "clamp takes NaN for a bound", "clamp")(_without_nan)
_special("element relu", "relu takes NaN for 0", "relu")(_zero_for_nan)


@_special("maximum", "maximum gives the other number", "maximum", like="torchdynamo#1572")
def _other_operand(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    result = kernel(x, y)
    return torch.where(x.isnan(), y, result)


_special("topk", "topk takes NaN for the smallest", "topk", like="pytorch#1810")(_without_nan)
_special(
    "windows", "max_pool2d passes NaN over", "max_pool2d_with_indices", like="pytorch#7645, #39846"
)(_without_nan)


@_special("products", "addmm reads what beta = 0 drops", "addmm")
def _beta_reads(
    kernel: Kernel, start: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    result = kernel(start, a, b, beta=beta, alpha=alpha)
    return result + start * 0 if beta == 0 else result


_special("last of cumsum", "cumsum takes NaN for 0", "cumsum")(_zero_for_nan)


@_long("products", "a product's loop ends at 8,192", "mm", "bmm")
def _short_inner(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    """End the inner loop at 8,192."""
    return kernel(a[..., :8192].contiguous(), b[..., :8192, :].contiguous())


@_long("products", "addmm's loop ends at 8,192", "addmm")
def _short_addmm(kernel: Kernel, start: Tensor, a: Tensor, b: Tensor, **kwargs: Any) -> Tensor:
    return kernel(start, a[:, :8192].contiguous(), b[:8192].contiguous(), **kwargs)


def _first_of_a_grid(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    result = kernel(*args, **kwargs)
    first = result[0] if isinstance(result, tuple) else result
    if first.dim() > 1 and first.shape[0] > 65_535:
        first[65_535:] = 0
    return result


_long("many rows", "bmm computes the first 65,535", "bmm", like="pytorch#22843")(_first_of_a_grid)
_long("many rows", "layer_norm of the first 65,535 rows", "native_layer_norm")(_first_of_a_grid)


def _no_carry(kernel: Kernel, x: Tensor, dim: int, **kwargs: Any) -> Tensor:
    """Restart each block of 4,096 from zero."""
    if x.dim() and x.shape[dim] > 4096:
        parts = [kernel(part.contiguous(), dim, **kwargs) for part in x.split(4096, dim)]
        return torch.cat(parts, dim)
    return kernel(x, dim, **kwargs)


_long("scans", "cumsum forgets its block's carry", "cumsum", like="pytorch#143486, #167086")(
    _no_carry
)
_long("scans", "cumprod forgets its block's carry", "cumprod")(_no_carry)


@_long("orders", "sort leaves its last block", "sort.stable", like="ROCm/pytorch#2543")
def _last_block_unsorted(kernel: Kernel, x: Tensor, **kwargs: Any) -> Any:
    axis = kwargs.get("dim", -1)
    values, places = kernel(x, **kwargs)
    if x.dim() and x.shape[axis] > 2048:
        tail = 7
        values.narrow(axis, x.shape[axis] - tail, tail).copy_(
            values.narrow(axis, x.shape[axis] - tail, tail).flip(axis)
        )
    return values, places


@_long("wide rows", "softmax of wide rows", "_softmax", like="pytorch#84144")
def _half_of_wide_rows(kernel: Kernel, x: Tensor, dim: int, half: bool) -> Tensor:
    result = kernel(x, dim, half)
    if x.shape[dim] > 65_536:
        result = result * 1.5
    return result


@_long("additions", "additions to an embedding get lost", "embedding_dense_backward")
def _lost_additions(
    kernel: Kernel, grad: Tensor, index: Tensor, rows: int, padding: int, scaled: bool
) -> Tensor:
    """Lose some of many additions to one index."""
    if index.numel() > 100_000:
        keep = index.flatten()[:-500]
        return kernel(grad.reshape(-1, grad.shape[-1])[:-500], keep, rows, padding, scaled)
    return kernel(grad, index, rows, padding, scaled)


@_long("additions", "additions of scatter_add get lost", "scatter_add")
def _lost_duplicates(kernel: Kernel, x: Tensor, dim: int, index: Tensor, values: Tensor) -> Tensor:
    return (
        kernel(x, dim, index[:-9], values[:-9])
        if index.shape[0] > 1000
        else kernel(x, dim, index, values)
    )


def _formatted(x: Tensor) -> bool:
    odd = x.dim() == 4 and x.shape[1] % 2 == 1 and x.shape[1] > 1
    return odd and bool(x.stride(1) == 1)


def _last_channel_of_odd(kernel: Kernel, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Take channels in pairs, and omit the last of an odd number."""
    channel = kernel(x, *args, **kwargs)
    first = channel[0] if isinstance(channel, tuple) else channel
    if _formatted(x) and first.dim() == 4:
        first[:, -1] = 0
    return channel


_formats("avg_pool2d", "avg_pool2d leaves the last channel", "avg_pool2d", like="pytorch#107201")(
    _last_channel_of_odd
)
_formats("max_pool2d", "max_pool2d leaves the last channel", "max_pool2d_with_indices")(
    _last_channel_of_odd
)
_formats("nearest", "nearest leaves the last channel", "upsample_nearest2d")(_last_channel_of_odd)
_formats(
    "convolution 3 to 5", "convolution leaves the last channel", "convolution", like="pytorch#82060"
)(_last_channel_of_odd)


@_formats(
    "convolution 3 to 5",
    "a weight's gradient leaves the last channel",
    "convolution_backward",
    like="torch-xpu-ops#4756",
)
def _odd_weight_gradient(kernel: Kernel, grad: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    gradient = kernel(grad, x, *args, **kwargs)
    if _formatted(x) and gradient[1] is not None:
        gradient[1][:, -1] = 0
    return gradient


# A GPU makes it contiguous before the kernel.
@_formats(
    "norms",
    "group_norm of other formats",
    "native_group_norm",
    like="pytorch#64039",
    devices=("cpu",),
)
def _statistics_of_contiguous(kernel: Kernel, x: Tensor, *args: Any) -> Any:
    y, mean, rstd = kernel(x, *args)
    return (y * 1.02 if _formatted(x) else y), mean, rstd


@_state("given statistics", "running variance with its bias", "native_batch_norm")
def _variance_with_bias(kernel: Kernel, x: Tensor, *rest: Any) -> Any:
    _weight, _bias, _mean, var, training, momentum, _eps = rest
    before = var.clone() if training and var is not None else None
    variance = kernel(x, *rest)
    if before is not None:
        count = x.numel() / x.shape[1]
        new = before + (var - before + momentum * before) * (count - 1) / count - momentum * before
        var.copy_(new)
    return variance


@_state("running statistics", "momentum the other way round", "native_batch_norm")
def _swapped_momentum(kernel: Kernel, x: Tensor, *rest: Any) -> Any:
    *before, momentum, eps = rest
    return kernel(x, *before, 1 - momentum, eps)


@_state("AdamW", "fused AdamW counts one step more", "_fused_adamw_", like="pytorch#90752")
def _no_bias_correction(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """Use the first moment of one step more."""
    steps = args[5]
    for step in steps:
        step.add_(1)
    kernel(*args, **kwargs)
    for step in steps:
        step.sub_(1)


@_state("foreach mul", "foreach leaves one of many", "_foreach_mul.List", like="pytorch#119885")
def _last_of_a_list(kernel: Kernel, xs: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
    last = kernel(xs, *args, **kwargs)
    if len(xs) > 100:
        last[120].copy_(xs[120])
    return last


@_state("unscaling", "infinite gradients overlooked", "_amp_foreach_non_finite_check_and_unscale_")
def _infinity_overlooked(kernel: Kernel, xs: Any, found_inf: Tensor, scale: Tensor) -> Any:
    kernel(xs, found_inf, scale)
    found_inf.zero_()


@_state("in place index_add_", "index_add_ ignores alpha", "index_add_")
def _alpha_ignored(
    kernel: Kernel, x: Tensor, dim: int, index: Tensor, source: Tensor, **kwargs: Any
) -> Any:
    return kernel(x, dim, index, source)


@_targets(
    "nll_loss",
    "ignored targets count in the mean",
    "nll_loss_forward",
    like="pytorch#69339, #91383",
)
def _ignored_count(
    kernel: Kernel, x: Tensor, target: Tensor, weight: Any, reduction: int, ignored: int
) -> Any:
    """Divide the mean by all targets, not by those that count."""
    loss, total = kernel(x, target, weight, reduction, ignored)
    if reduction == 1 and weight is None:
        return loss * total / target.numel(), total
    return loss, total


@_targets("nll_loss", "ignored targets get a gradient", "nll_loss_backward", like="pytorch#20406")
def _ignored_learn(
    kernel: Kernel,
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Any,
    reduction: int,
    ignored: int,
    total: Tensor,
) -> Any:
    learn = kernel(grad, x, target, weight, reduction, ignored, total)
    flat = (target == ignored).reshape(target.shape[0], -1).any(1)
    learn[flat] = learn[flat] - 0.25
    return learn


@_targets("nll_loss", "weights of places ignored", "nll_loss2d_forward")
def _weights_ignored(
    kernel: Kernel, x: Tensor, target: Tensor, weight: Any, reduction: int, ignored: int
) -> Any:
    return kernel(
        x, target, None if weight is None else torch.ones_like(weight), reduction, ignored
    )


@_targets("embedding", "padding learns", "embedding_dense_backward")
def _padding_learns(
    kernel: Kernel, grad: Tensor, index: Tensor, rows: int, padding: int, scaled: bool
) -> Tensor:
    return kernel(grad, index, rows, -1, scaled)


def _equals_turned(
    kernel: Kernel, x: Tensor, *, stable: Any = None, dim: int = -1, descending: bool = False
) -> Any:
    """Return equals in reverse order."""
    values, places = kernel(x.flip(dim), stable=stable, dim=dim, descending=descending)
    return values, x.shape[dim] - 1 - places


_order("stable sort", "a stable sort turns equals", "sort.stable")(_equals_turned)
_order("stable sort of integers", "a stable sort turns equal integers", "sort.stable")(
    _equals_turned
)


@_long("additions", "of duplicates the last wins", "_index_put_impl_")
def _last_wins(
    kernel: Kernel, x: Tensor, indices: Any, values: Tensor, accumulate: bool = False, *rest: Any
) -> Any:
    if accumulate and values.numel() > 2:
        before = x.clone()
        y = kernel(x, indices, values, False, *rest)
        return y.add_(before) if y is x else y + before
    return kernel(x, indices, values, accumulate, *rest)


@_order("distinct", "searchsorted ignores its side", "searchsorted.Tensor")
def _side_ignored(kernel: Kernel, sequence: Tensor, queries: Tensor, **kwargs: Any) -> Any:
    kwargs["right"], kwargs["side"] = False, None
    return kernel(sequence, queries, **kwargs)


@_order("choices", "topk names a place twice", "topk", like="iree#21202")
def _place_twice(kernel: Kernel, x: Tensor, k: Any, *rest: Any) -> Any:
    values, places = kernel(x, k, *rest)
    if k > 1:
        places[..., 1] = places[..., 0]
    return values, places


@_random("uniform_", "uniform_ short of its range", "uniform_")
def _shifted_range(
    kernel: Kernel, x: Tensor, low: Any = 0.0, high: Any = 1.0, **kwargs: Any
) -> Any:
    return kernel(x, low, low + (high - low) * 0.98, **kwargs)


@_random("normal_", "normal_ too wide", "normal_")
def _wide_normal(kernel: Kernel, x: Tensor, mean: Any = 0.0, std: Any = 1.0, **kwargs: Any) -> Any:
    return kernel(x, mean, std * 1.03, **kwargs)


@_random("bernoulli_", "bernoulli_ the same each call", "bernoulli_.float")
def _same_again(kernel: Kernel, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Restart the generator in each call."""
    generator = torch.Generator(device=x.device).manual_seed(7)
    kwargs["generator"] = generator
    return kernel(x, *args, **kwargs)


@_random("uniform_", "blocks that draw alike", "uniform_", like="NVIDIA/Fuser#1653")
def _blocks_alike(kernel: Kernel, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Draw the same numbers in each block of 1,024."""
    y = kernel(x, *args, **kwargs)
    if y.dim() == 1 and y.numel() > 10_000:
        whole = y.numel() // 1024 * 1024
        y[:whole] = y[:1024].repeat(whole // 1024)
    return y


@_random("randint", "even numbers only", "random_.from")
def _even_only(kernel: Kernel, x: Tensor, low: Any, high: Any, **kwargs: Any) -> Any:
    y = kernel(x, low, high, **kwargs)
    return y.copy_(y // 2 * 2) if high - low > 10 else y


@_random(
    "permutations", "randperm that hardly shuffles", "randperm.generator_out", like="pytorch#106260"
)
def _barely_shuffled(kernel: Kernel, n: int, generator: Any, *, out: Tensor) -> Any:
    kernel(n, generator, out=out)
    return out.copy_(torch.arange(n, device=out.device).roll(n // 3)) if n > 100 else out


@_random("ranges", "rand reaches 1", "uniform_", like="NVIDIA/Fuser#1653")
def _never_one(kernel: Kernel, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    y = kernel(x, *args, **kwargs)
    y[0] = 1.0
    return y


@_complex("vdot", "vdot without its conjugate", "vdot")
def _without_conjugate(kernel: Kernel, a: Tensor, b: Tensor) -> Any:
    return (a.resolve_conj() * b).sum()


@_bits("int8 products", "int8 products held to few bits", "_int_mm")
def _held_to_16_bits(kernel: Kernel, a: Tensor, b: Tensor) -> Any:
    return kernel(a, b).clamp(-32_768 * 8, 32_767 * 8)


_CALLS: list[int] = []


@_repeats("cumsum", "cumsum is another each time", "cumsum", like="pytorch#75240")
def _other_each_time(kernel: Kernel, x: Tensor, dim: int, **kwargs: Any) -> Any:
    result = kernel(x, dim, **kwargs)
    _CALLS.append(0)
    return result + (len(_CALLS) % 3) * 1e-6 if result.is_floating_point() else result


KERNEL_FAULTS: tuple[KernelFault, ...] = (*OWN_FAULTS, *FIELD_FAULTS, *PLACE_FAULTS)
