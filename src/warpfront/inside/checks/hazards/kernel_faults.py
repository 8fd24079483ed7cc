"""Wrong kernels, put under torch's dispatcher: no Python of the checks can know of them.

Each does what a kernel in the field did, or might: by class, with the row that has to see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpfront.inside.checks.effort import Effort
from warpfront.inside.checks.hazards.field_faults import FIELD_FAULTS
from warpfront.inside.checks.hazards.place_faults import PLACE_FAULTS
from warpfront.inside.checks.hazards.seeding import (
    KEYS,
    Kernel,
    KernelFault,
    concerns,
    fits,
    seed_kernel_faults,
)
from warpfront.inside.checks.mutations import MutationTally, finding_of_faults
from warpfront.inside.checks.results import SKIPPED, Check, CheckFinding, Recorder


def record_kernel_faults(claims: Any, recorder: Recorder, effort: Effort | None = None) -> None:
    """One check for each class of hazards: every wrong kernel of it has to be caught."""
    del effort
    if not hasattr(torch.library, "get_kernel"):
        recorder.note_unclaimed("wrong kernels", f"torch {torch.__version__} has no get_kernel")
        return
    here = [fault for fault in KERNEL_FAULTS if concerns(fault, claims.device)]
    classes = dict.fromkeys(fault.hazard_class for fault in here)
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
    faults = [one for one in KERNEL_FAULTS if one.hazard_class == name and concerns(one, device)]
    if not any(fits(one, device) for one in faults):
        return CheckFinding(outcome=SKIPPED, reason="the device has less memory than its rows take")
    ledger = MutationTally()
    seed_kernel_faults(faults, device, ledger)
    return finding_of_faults(ledger)


def _softmax_of_large(right: Kernel, x: Tensor, dim: int, half: bool) -> Tensor:
    del right, half
    e = torch.exp(x)
    return e / e.sum(dim, keepdim=True)


def _logarithm_of_softmax(right: Kernel, x: Tensor, dim: int, half: bool) -> Tensor:
    del right, half
    return torch.log(torch.softmax(x.float(), dim)).to(x.dtype)


def _by_exponentials(right: Kernel, x: Tensor) -> Tensor:
    del right
    e = torch.exp(2 * x)
    return (e - 1) / (e + 1)


def _gate_closed_early(right: Kernel, x: Tensor, **how: Any) -> Tensor:
    return torch.where(x < -2.5, 0, right(x, **how))


def _naive_variance(right: Kernel, x: Tensor, dim: Any = None, **how: Any) -> Tensor:
    del right
    axes = dim if dim is not None else tuple(range(x.dim()))
    correction = how.get("correction")
    count = math.prod(x.shape[axis] for axis in axes)
    wide = x.float()
    spread = (wide * wide).mean(axes) - wide.mean(axes) ** 2
    return (spread * count / (count - (1 if correction is None else correction))).to(x.dtype)


def _naive_layer_norm(
    right: Kernel, x: Tensor, shape: Any, weight: Any, bias: Any, eps: float
) -> Any:
    y, mean, rstd = right(x, shape, weight, bias, eps)
    wide, axes = x.float(), tuple(range(x.dim() - len(shape), x.dim()))
    variance = (wide * wide).mean(axes, keepdim=True) - wide.mean(axes, keepdim=True) ** 2
    normal = (wide - wide.mean(axes, keepdim=True)) / (variance.clamp(min=0) + eps).sqrt()
    return normal.to(y.dtype) if weight is None else y, mean, rstd


def _without_nan(right: Kernel, x: Tensor, *args: Any, **how: Any) -> Any:
    return right(torch.nan_to_num(x, nan=-3e4, posinf=math.inf, neginf=-math.inf), *args, **how)


def _zero_for_nan(right: Kernel, x: Tensor, *args: Any, **how: Any) -> Any:
    return right(torch.where(x.isnan(), torch.zeros_like(x), x), *args, **how)


def _zero_for_infinity(right: Kernel, x: Tensor, *args: Any, **how: Any) -> Any:
    return right(torch.where(x.isinf(), torch.zeros_like(x), x), *args, **how)


def _other_operand(right: Kernel, x: Tensor, y: Tensor) -> Tensor:
    found = right(x, y)
    return torch.where(x.isnan(), y, found)


def _beta_reads(
    right: Kernel, start: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    found = right(start, a, b, beta=beta, alpha=alpha)
    return found + start * 0 if beta == 0 else found


def _short_inner(right: Kernel, a: Tensor, b: Tensor) -> Tensor:
    """A loop that ends at 8,192."""
    return right(a[..., :8192].contiguous(), b[..., :8192, :].contiguous())


def _short_addmm(right: Kernel, start: Tensor, a: Tensor, b: Tensor, **how: Any) -> Tensor:
    return right(start, a[:, :8192].contiguous(), b[:8192].contiguous(), **how)


def _first_of_a_grid(right: Kernel, *args: Any, **how: Any) -> Any:
    found = right(*args, **how)
    first = found[0] if isinstance(found, tuple) else found
    if first.dim() > 1 and first.shape[0] > 65_535:
        first[65_535:] = 0
    return found


def _no_carry(right: Kernel, x: Tensor, dim: int, **how: Any) -> Tensor:
    """Each block of 4,096 begins anew."""
    if x.dim() and x.shape[dim] > 4096:
        parts = [right(part.contiguous(), dim, **how) for part in x.split(4096, dim)]
        return torch.cat(parts, dim)
    return right(x, dim, **how)


def _last_block_unsorted(right: Kernel, x: Tensor, **how: Any) -> Any:
    axis = how.get("dim", -1)
    values, places = right(x, **how)
    if x.dim() and x.shape[axis] > 2048:
        tail = 7
        values.narrow(axis, x.shape[axis] - tail, tail).copy_(
            values.narrow(axis, x.shape[axis] - tail, tail).flip(axis)
        )
    return values, places


def _half_of_wide_rows(right: Kernel, x: Tensor, dim: int, half: bool) -> Tensor:
    found = right(x, dim, half)
    if x.shape[dim] > 65_536:
        found = found * 1.5
    return found


def _lost_additions(
    right: Kernel, grad: Tensor, index: Tensor, rows: int, padding: int, scaled: bool
) -> Tensor:
    """Of many additions to one place some get lost."""
    if index.numel() > 100_000:
        keep = index.flatten()[:-500]
        return right(grad.reshape(-1, grad.shape[-1])[:-500], keep, rows, padding, scaled)
    return right(grad, index, rows, padding, scaled)


def _padding_learns(
    right: Kernel, grad: Tensor, index: Tensor, rows: int, padding: int, scaled: bool
) -> Tensor:
    del padding
    return right(grad, index, rows, -1, scaled)


def _last_wins(
    right: Kernel, x: Tensor, indices: Any, values: Tensor, accumulate: bool = False, *rest: Any
) -> Any:
    if accumulate and values.numel() > 2:
        before = x.clone()
        y = right(x, indices, values, False, *rest)
        return y.add_(before) if y is x else y + before
    return right(x, indices, values, accumulate, *rest)


def _lost_duplicates(right: Kernel, x: Tensor, dim: int, index: Tensor, values: Tensor) -> Tensor:
    return (
        right(x, dim, index[:-9], values[:-9])
        if index.shape[0] > 1000
        else right(x, dim, index, values)
    )


def _formatted(x: Tensor) -> bool:
    odd = x.dim() == 4 and x.shape[1] % 2 == 1 and x.shape[1] > 1
    return odd and bool(x.stride(1) == 1)


def _last_channel_of_odd(right: Kernel, x: Tensor, *args: Any, **how: Any) -> Any:
    """Channels in pairs, and the last of an odd number is left out."""
    found = right(x, *args, **how)
    first = found[0] if isinstance(found, tuple) else found
    if _formatted(x) and first.dim() == 4:
        first[:, -1] = 0
    return found


def _odd_weight_gradient(right: Kernel, grad: Tensor, x: Tensor, *args: Any, **how: Any) -> Any:
    found = right(grad, x, *args, **how)
    if _formatted(x) and found[1] is not None:
        found[1][:, -1] = 0
    return found


def _statistics_of_contiguous(right: Kernel, x: Tensor, *args: Any) -> Any:
    y, mean, rstd = right(x, *args)
    return (y * 1.02 if _formatted(x) else y), mean, rstd


def _variance_with_bias(
    right: Kernel,
    x: Tensor,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    *rest: Any,
) -> Any:
    before = var.clone() if training and var is not None else None
    found = right(x, weight, bias, mean, var, training, *rest)
    if before is not None:
        count = x.numel() / x.shape[1]
        new = before + (var - before + rest[0] * before) * (count - 1) / count - rest[0] * before
        var.copy_(new)
    return found


def _swapped_momentum(
    right: Kernel,
    x: Tensor,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    *rest: Any,
) -> Any:
    return right(x, weight, bias, mean, var, training, 1 - rest[0], *rest[1:])


def _last_of_a_list(right: Kernel, xs: Sequence[Tensor], *args: Any, **how: Any) -> Any:
    found = right(xs, *args, **how)
    if len(xs) > 100:
        found[120].copy_(xs[120])
    return found


def _no_bias_correction(right: Kernel, *args: Any, **how: Any) -> Any:
    """The first moment of one step more."""
    steps = args[5]
    for step in steps:
        step.add_(1)
    right(*args, **how)
    for step in steps:
        step.sub_(1)


def _infinity_overlooked(right: Kernel, xs: Any, found: Tensor, scale: Tensor) -> Any:
    right(xs, found, scale)
    found.zero_()


def _alpha_ignored(
    right: Kernel, x: Tensor, dim: int, index: Tensor, source: Tensor, **how: Any
) -> Any:
    del how
    return right(x, dim, index, source)


def _ignored_count(
    right: Kernel, x: Tensor, target: Tensor, weight: Any, reduction: int, ignored: int
) -> Any:
    """The mean is of all targets, not of those that count."""
    loss, total = right(x, target, weight, reduction, ignored)
    if reduction == 1 and weight is None:
        return loss * total / target.numel(), total
    return loss, total


def _ignored_learn(
    right: Kernel,
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Any,
    reduction: int,
    ignored: int,
    total: Tensor,
) -> Any:
    found = right(grad, x, target, weight, reduction, ignored, total)
    flat = (target == ignored).reshape(target.shape[0], -1).any(1)
    found[flat] = found[flat] - 0.25
    return found


def _weights_ignored(
    right: Kernel, x: Tensor, target: Tensor, weight: Any, reduction: int, ignored: int
) -> Any:
    return right(x, target, None if weight is None else torch.ones_like(weight), reduction, ignored)


def _equals_turned(
    right: Kernel, x: Tensor, *, stable: Any = None, dim: int = -1, descending: bool = False
) -> Any:
    """Equals come out in the reverse of their order."""
    values, places = right(x.flip(dim), stable=stable, dim=dim, descending=descending)
    return values, x.shape[dim] - 1 - places


def _side_ignored(right: Kernel, sequence: Tensor, asked: Tensor, **how: Any) -> Any:
    how["right"], how["side"] = False, None
    return right(sequence, asked, **how)


def _place_twice(right: Kernel, x: Tensor, k: Any, *rest: Any) -> Any:
    values, places = right(x, k, *rest)
    if k > 1:
        places[..., 1] = places[..., 0]
    return values, places


def _shifted_range(right: Kernel, x: Tensor, low: Any = 0.0, high: Any = 1.0, **how: Any) -> Any:
    return right(x, low, low + (high - low) * 0.98, **how)


def _wide_normal(right: Kernel, x: Tensor, mean: Any = 0.0, std: Any = 1.0, **how: Any) -> Any:
    return right(x, mean, std * 1.03, **how)


def _same_again(right: Kernel, x: Tensor, *args: Any, **how: Any) -> Any:
    """Each call draws from where the first began."""
    own = torch.Generator(device=x.device).manual_seed(7)
    how["generator"] = own
    return right(x, *args, **how)


def _blocks_alike(right: Kernel, x: Tensor, *args: Any, **how: Any) -> Any:
    """Each block of 1,024 draws the same."""
    y = right(x, *args, **how)
    if y.dim() == 1 and y.numel() > 10_000:
        whole = y.numel() // 1024 * 1024
        y[:whole] = y[:1024].repeat(whole // 1024)
    return y


def _even_only(right: Kernel, x: Tensor, low: Any, high: Any, **how: Any) -> Any:
    y = right(x, low, high, **how)
    return y.copy_(y // 2 * 2) if high - low > 10 else y


def _barely_shuffled(right: Kernel, n: int, generator: Any, *, out: Tensor) -> Any:
    right(n, generator, out=out)
    return out.copy_(torch.arange(n, device=out.device).roll(n // 3)) if n > 100 else out


def _never_one(right: Kernel, x: Tensor, *args: Any, **how: Any) -> Any:
    y = right(x, *args, **how)
    y[0] = 1.0
    return y


def _without_conjugate(right: Kernel, a: Tensor, b: Tensor) -> Any:
    return (a.resolve_conj() * b).sum()


def _held_to_16_bits(right: Kernel, a: Tensor, b: Tensor) -> Any:
    return right(a, b).clamp(-32_768 * 8, 32_767 * 8)


def _other_each_time(right: Kernel, x: Tensor, dim: int, **how: Any) -> Any:
    found = right(x, dim, **how)
    _CALLS.append(0)
    return found + (len(_CALLS) % 3) * 1e-6 if found.is_floating_point() else found


_CALLS: list[int] = []


def _rounded_towards_zero(right: Kernel, x: Tensor, y: Tensor) -> Any:
    del right
    return torch.div(x, y, rounding_mode="trunc")


def _low_precision_argument(right: Kernel, x: Tensor) -> Any:
    return torch.where(x.abs() > 1000, right(x.bfloat16().to(x.dtype)), right(x))


FAR, SPECIAL, LONG, FORMATS = "far out", "NaN and infinity", "long", "memory formats"
STATE, TARGETS, ORDER, RANDOM = "kept state", "targets", "order", "random numbers"
SORT = ("sort.stable",)
OWN_FAULTS: tuple[KernelFault, ...] = (
    KernelFault(
        "softmax without its largest taken off",
        ("_softmax",),
        _softmax_of_large,
        FAR,
        ("softmax",),
        like="pytorch#795",
    ),
    KernelFault(
        "log_softmax as a logarithm",
        ("_log_softmax",),
        _logarithm_of_softmax,
        FAR,
        ("logarithms of sums",),
        like="pytorch#725, #11752",
    ),
    KernelFault("tanh by exponentials", ("tanh",), _by_exponentials, FAR, ("tanh",)),
    KernelFault(
        "log1p as a logarithm", ("log1p",), lambda right, x: torch.log(1 + x), FAR, ("log1p",)
    ),
    KernelFault(
        "expm1 as a difference", ("expm1",), lambda right, x: torch.exp(x) - 1, FAR, ("expm1",)
    ),
    KernelFault("gelu closed early", ("gelu",), _gate_closed_early, FAR, ("gelu",)),
    KernelFault(
        "softplus overflows",
        ("softplus",),
        lambda right, x, *_: torch.log(1 + torch.exp(x)),
        FAR,
        ("softplus",),
    ),
    KernelFault(
        "erf saturates early", ("erf",), lambda right, x: right(x.clamp(-2, 2)), FAR, ("erf",)
    ),
    KernelFault("sine of a rounded argument", ("sin",), _low_precision_argument, FAR, ("sin",)),
    KernelFault(
        "sigmoid without its tail",
        ("sigmoid",),
        lambda right, x: right(x.clamp(-10, 10)),
        FAR,
        ("sigmoid",),
    ),
    KernelFault(
        "variance as a difference",
        ("var.correction",),
        _naive_variance,
        FAR,
        ("variance far from 0",),
    ),
    KernelFault(
        "layer_norm's variance as a difference",
        ("native_layer_norm",),
        _naive_layer_norm,
        FAR,
        ("normalisation far from 0",),
    ),
    KernelFault(
        "quotients rounded towards 0",
        ("floor_divide",),
        _rounded_towards_zero,
        FAR,
        ("whole quotients",),
    ),
    KernelFault(
        "amax passes NaN over",
        ("amax",),
        _without_nan,
        SPECIAL,
        ("amax",),
        like="pytorch#6996, tvm#19518",
    ),
    KernelFault(
        "max passes NaN over",
        ("max.dim",),
        _without_nan,
        SPECIAL,
        ("max",),
        like="pytorch#6996, #1810",
    ),
    KernelFault(
        "argmax passes NaN over",
        ("argmax",),
        _without_nan,
        SPECIAL,
        ("largest of",),
        like="pytorch#130295",
    ),
    KernelFault("sum takes NaN for 0", ("sum.dim_IntList",), _zero_for_nan, SPECIAL, ("sum",)),
    KernelFault(
        "sum takes infinity for 0", ("sum.dim_IntList",), _zero_for_infinity, SPECIAL, ("sum",)
    ),
    KernelFault(
        "clamp takes NaN for a bound", ("clamp",), _without_nan, SPECIAL, ("element clamp",)
    ),
    KernelFault("relu takes NaN for 0", ("relu",), _zero_for_nan, SPECIAL, ("element relu",)),
    KernelFault(
        "maximum gives the other number",
        ("maximum",),
        _other_operand,
        SPECIAL,
        ("maximum",),
        like="torchdynamo#1572",
    ),
    KernelFault(
        "topk takes NaN for the smallest",
        ("topk",),
        _without_nan,
        SPECIAL,
        ("topk",),
        like="pytorch#1810",
    ),
    KernelFault(
        "max_pool2d passes NaN over",
        ("max_pool2d_with_indices",),
        _without_nan,
        SPECIAL,
        ("windows",),
        like="pytorch#7645, #39846",
    ),
    KernelFault("addmm reads what beta = 0 drops", ("addmm",), _beta_reads, SPECIAL, ("products",)),
    KernelFault("cumsum takes NaN for 0", ("cumsum",), _zero_for_nan, SPECIAL, ("last of cumsum",)),
    KernelFault("a product's loop ends at 8,192", ("mm", "bmm"), _short_inner, LONG, ("products",)),
    KernelFault("addmm's loop ends at 8,192", ("addmm",), _short_addmm, LONG, ("products",)),
    KernelFault(
        "bmm computes the first 65,535",
        ("bmm",),
        _first_of_a_grid,
        LONG,
        ("many rows",),
        like="pytorch#22843",
    ),
    KernelFault(
        "layer_norm of the first 65,535 rows",
        ("native_layer_norm",),
        _first_of_a_grid,
        LONG,
        ("many rows",),
    ),
    KernelFault(
        "cumsum forgets its block's carry",
        ("cumsum",),
        _no_carry,
        LONG,
        ("scans",),
        like="pytorch#143486, #167086",
    ),
    KernelFault("cumprod forgets its block's carry", ("cumprod",), _no_carry, LONG, ("scans",)),
    KernelFault(
        "sort leaves its last block",
        SORT,
        _last_block_unsorted,
        LONG,
        ("orders",),
        like="ROCm/pytorch#2543",
    ),
    KernelFault(
        "softmax of wide rows",
        ("_softmax",),
        _half_of_wide_rows,
        LONG,
        ("wide rows",),
        like="pytorch#84144",
    ),
    KernelFault(
        "additions to an embedding get lost",
        ("embedding_dense_backward",),
        _lost_additions,
        LONG,
        ("additions",),
    ),
    KernelFault(
        "additions of scatter_add get lost",
        ("scatter_add",),
        _lost_duplicates,
        LONG,
        ("additions",),
    ),
    KernelFault(
        "avg_pool2d leaves the last channel",
        ("avg_pool2d",),
        _last_channel_of_odd,
        FORMATS,
        ("avg_pool2d",),
        like="pytorch#107201",
    ),
    KernelFault(
        "max_pool2d leaves the last channel",
        ("max_pool2d_with_indices",),
        _last_channel_of_odd,
        FORMATS,
        ("max_pool2d",),
    ),
    KernelFault(
        "nearest leaves the last channel",
        ("upsample_nearest2d",),
        _last_channel_of_odd,
        FORMATS,
        ("nearest",),
    ),
    KernelFault(
        "convolution leaves the last channel",
        ("convolution",),
        _last_channel_of_odd,
        FORMATS,
        ("convolution 3 to 5",),
        like="pytorch#82060",
    ),
    KernelFault(
        "a weight's gradient leaves the last channel",
        ("convolution_backward",),
        _odd_weight_gradient,
        FORMATS,
        ("convolution 3 to 5",),
        like="torch-xpu-ops#4756",
    ),
    # A GPU makes it contiguous before the kernel.
    KernelFault(
        "group_norm of other formats",
        ("native_group_norm",),
        _statistics_of_contiguous,
        FORMATS,
        ("norms",),
        like="pytorch#64039",
        devices=("cpu",),
    ),
    KernelFault(
        "running variance with its bias",
        ("native_batch_norm",),
        _variance_with_bias,
        STATE,
        ("given statistics",),
    ),
    KernelFault(
        "momentum the other way round",
        ("native_batch_norm",),
        _swapped_momentum,
        STATE,
        ("running statistics",),
    ),
    KernelFault(
        "fused AdamW counts one step more",
        ("_fused_adamw_",),
        _no_bias_correction,
        STATE,
        ("AdamW",),
        like="pytorch#90752",
    ),
    KernelFault(
        "foreach leaves one of many",
        ("_foreach_mul.List",),
        _last_of_a_list,
        STATE,
        ("foreach mul",),
        like="pytorch#119885",
    ),
    KernelFault(
        "infinite gradients overlooked",
        ("_amp_foreach_non_finite_check_and_unscale_",),
        _infinity_overlooked,
        STATE,
        ("unscaling",),
    ),
    KernelFault(
        "index_add_ ignores alpha", ("index_add_",), _alpha_ignored, STATE, ("in place index_add_",)
    ),
    KernelFault(
        "ignored targets count in the mean",
        ("nll_loss_forward",),
        _ignored_count,
        TARGETS,
        ("nll_loss",),
        like="pytorch#69339, #91383",
    ),
    KernelFault(
        "ignored targets get a gradient",
        ("nll_loss_backward",),
        _ignored_learn,
        TARGETS,
        ("nll_loss",),
        like="pytorch#20406",
    ),
    KernelFault(
        "weights of places ignored",
        ("nll_loss2d_forward",),
        _weights_ignored,
        TARGETS,
        ("nll_loss",),
    ),
    KernelFault(
        "padding learns", ("embedding_dense_backward",), _padding_learns, TARGETS, ("embedding",)
    ),
    KernelFault("a stable sort turns equals", SORT, _equals_turned, ORDER, ("stable sort",)),
    KernelFault(
        "a stable sort turns equal integers",
        SORT,
        _equals_turned,
        ORDER,
        ("stable sort of integers",),
    ),
    KernelFault(
        "of duplicates the last wins", ("_index_put_impl_",), _last_wins, LONG, ("additions",)
    ),
    KernelFault(
        "searchsorted ignores its side",
        ("searchsorted.Tensor",),
        _side_ignored,
        ORDER,
        ("distinct",),
    ),
    KernelFault(
        "topk names a place twice", ("topk",), _place_twice, ORDER, ("choices",), like="iree#21202"
    ),
    KernelFault(
        "uniform_ short of its range", ("uniform_",), _shifted_range, RANDOM, ("uniform_",)
    ),
    KernelFault("normal_ too wide", ("normal_",), _wide_normal, RANDOM, ("normal_",)),
    KernelFault(
        "bernoulli_ the same each call", ("bernoulli_.float",), _same_again, RANDOM, ("bernoulli_",)
    ),
    KernelFault(
        "blocks that draw alike",
        ("uniform_",),
        _blocks_alike,
        RANDOM,
        ("uniform_",),
        like="NVIDIA/Fuser#1653",
    ),
    KernelFault("even numbers only", ("random_.from",), _even_only, RANDOM, ("randint",)),
    KernelFault(
        "randperm that hardly shuffles",
        ("randperm.generator_out",),
        _barely_shuffled,
        RANDOM,
        ("permutations",),
        like="pytorch#106260",
    ),
    KernelFault(
        "rand reaches 1", ("uniform_",), _never_one, RANDOM, ("ranges",), like="NVIDIA/Fuser#1653"
    ),
    KernelFault("vdot without its conjugate", ("vdot",), _without_conjugate, "complex", ("vdot",)),
    KernelFault(
        "int8 products held to few bits",
        ("_int_mm",),
        _held_to_16_bits,
        "eight bits",
        ("int8 products",),
    ),
    KernelFault(
        "cumsum is another each time",
        ("cumsum",),
        _other_each_time,
        "determinism",
        ("cumsum",),
        like="pytorch#75240",
    ),
)
KERNEL_FAULTS: tuple[KernelFault, ...] = (*OWN_FAULTS, *FIELD_FAULTS, *PLACE_FAULTS)
