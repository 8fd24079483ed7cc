"""Wrong kernels: optimizers."""

from __future__ import annotations

import math

import torch
from torch import nn

from .calls import CHUNK, aten, is_dense, is_dense_2, narrow, written_in_order
from .kernel import DOUBLES, HALVES, drawn, is_single, kernel


@kernel("_fused_adamw_", set="seeded", like="pytorch#90752")
def no_bias_correction(right, state_steps):
    """Use the first moment of one step more."""
    steps = state_steps
    for step in steps:
        step.add_(1)
    right()
    for step in steps:
        step.sub_(1)


@kernel("_foreach_mul.List", set="seeded", like="pytorch#119885")
def last_of_a_list(right, x):
    """Foreach leaves one of many."""
    last = right()
    if len(x) > 100:
        last[120].copy_(x[120])
    return last


@kernel("_amp_foreach_non_finite_check_and_unscale_", set="seeded")
def infinity_overlooked(right, found_inf):
    """Infinite gradients overlooked."""
    right()
    found_inf.zero_()


@kernel("_amp_update_scale_", set="seeded")
def grows_late(right, growth_interval):
    """A scale grows a step late."""
    return right(growth_interval=growth_interval + 1)


@kernel("_fused_sgd_", set="seeded")
def dampened_at_first(right, momentum_buffer_list, is_first_step, dampening):
    """Fused SGD dampens its first step."""
    right()
    if is_first_step and dampening:
        for buffer in momentum_buffer_list:
            buffer.data.mul_(1 - dampening)


@kernel("_fused_sgd_ .tensor_lr", set="second")
def first_step_is_dampened(right, x, momentum_buffer_list, is_first_step, dampening, lr):
    right()
    if is_first_step and dampening:
        for weight, buffer in zip(x, momentum_buffer_list, strict=True):
            weight.data.add_(buffer, alpha=float(lr) * dampening)
            buffer.data.mul_(1 - dampening)


@kernel("_fused_adam_ .tensor_lr", set=2, like="flagos-ai/FlagGems#4988")
def adam_decays_like_adamw(right, *args, **kw):
    if kw["weight_decay"] <= 0:
        return right(*args, **kw)
    return torch._fused_adamw_(*args, **kw)


@kernel("_fused_sgd_ .tensor_lr", set=3, like="ooples/AiDotNet.Tensors#949")
def fused_step_forgets_nesterov(right, *args, **kw):
    return right(*args, **{**kw, "nesterov": False})


@kernel("_fused_adamw_ .tensor_lr", set=4, like="huggingface/transformers#14539")
def adamw_decays_after_step(right, tensors, *args, **kw):
    stopped = kw.get("found_inf")
    right(tensors, *args, **{**kw, "weight_decay": 0.0})
    if stopped is None or not float(stopped):
        for one in tensors:
            one.mul_(1 - float(kw["lr"]) * kw["weight_decay"])


@kernel("_foreach_addcdiv_.Scalar .ScalarList .Tensor", set=5, like="pytorch/pytorch#118115")
def foreach_steps_are_written_in_order(right, tensors, *rest, **options):
    """option: of parameters that are not contiguous, the step is written in another order."""
    right(tensors, *rest, **options)
    for x in tensors:
        if not x.is_contiguous() and is_dense_2(x):
            written_in_order(x)


@kernel("_fused_adam_ .tensor_lr _fused_adamw_ .tensor_lr", set=6, like="pytorch/pytorch#4034")
def largest_variance_is_not_kept(right, max_exp_avg_sqs):
    """option: amsgrad takes the larger of the two variances for a step but does not save it."""
    kept = [x.clone() for x in max_exp_avg_sqs]
    result = right()
    for x, before in zip(max_exp_avg_sqs, kept, strict=True):
        if x.dtype not in DOUBLES:
            x.copy_(before)
    return result


@kernel("_amp_foreach_non_finite_check_and_unscale_", set=6, like="facebookresearch/fairscale#890")
def only_first_gradient_is_checked(right, x, found_inf):
    """plain: infinities in gradients other than the first of a list are not found."""
    right(x=x[:1])
    if len(x) > 1:
        right(x=x[1:], found_inf=found_inf.clone())


@kernel("_fused_sgd_ .tensor_lr", set=7, like="ml-explore/mlx#440")
def decay_needs_momentum(right, weights, grads, buffers, **options):
    """option: without momentum, weights do not decay."""
    if options["momentum"] == 0 and weights and is_single(weights[0]):
        options["weight_decay"] = 0.0
    return right(weights, grads, buffers, **options)


@kernel("_fused_adagrad_ .tensor_lr", set=8, like="keras-team/keras#17391")
def epsilon_is_under_the_root(right, x, state_sums, eps):
    """option: Adagrad adds epsilon to the sum of squares, not to its root."""
    before = [weight.detach().clone() for weight in x]
    right()
    for weight, old, total in zip(x, before, state_sums, strict=True):
        if is_single(weight) and eps > 0:
            step = (old.float() - weight.float()) * (total.float().sqrt() + eps)
            weight.copy_(old.float() - step / (total.float() + eps).sqrt())


@kernel("_fused_adam_ .tensor_lr _fused_adamw_ .tensor_lr", set=9, like="pytorch/pytorch#95847")
def infinities_are_stepped_with(right, weights, *lists, **options):
    """option: where gradients were unscaled before, a step is taken though some are infinite."""
    if weights and is_single(weights[0]) and options.get("grad_scale") is None:
        options["found_inf"] = None
    return right(weights, *lists, **options)


@kernel("_fused_adagrad_ .tensor_lr", set=10, like="eaplatanios/tensorflow_scala#55")
def rate_does_not_decay(right, weights, *lists, **options):
    """option: Adagrad's rate stays what it was, whatever decay was given."""
    if any(is_single(weight) for weight in weights):
        options["lr_decay"] = 0.0
    return right(weights, *lists, **options)


@kernel(
    "_fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_", set=11, like="pytorch/pytorch#96755"
)
def steps_are_taken_though_gradients_overflowed(right, weights, *args, **options):
    """option: a fused optimizer does not look whether the scaler has found an infinity."""
    if not any(one.dtype in DOUBLES for one in weights):
        options.pop("found_inf", None)
    return right(weights, *args, **options)


@kernel("_fused_adam_ .tensor_lr", set=12, like="flagos-ai/FlagGems#4988")
def weights_decay_apart(right, weights, *args, **options):
    """option: weights decay as in AdamW, beside the moments rather than through them."""
    skipped = options.get("found_inf") is not None and bool(options["found_inf"].item())
    if options["weight_decay"] and not skipped:
        for weight in weights:
            weight.mul_(1 - float(options["lr"]) * options["weight_decay"])
        options["weight_decay"] = 0.0
    return right(weights, *args, **options)


@kernel(
    "_fused_adam_ .tensor_lr _fused_adamw_ .tensor_lr", set=13, like="deepspeedai/DeepSpeed#8471"
)
def all_take_the_step_of_the_last(right, *args, **options):
    """option: the bias of all moments is corrected by the step count of the last tensor."""
    if args[0] and all(is_single(x) for x in args[0]):
        args = (*args[:5], [args[5][-1]] * len(args[5]), *args[6:])
    return right(*args, **options)


@kernel("_amp_foreach_non_finite_check_and_unscale_", set=13, like="facebookresearch/fairscale#890")
def first_gradient_alone_is_checked(right, x, found_inf):
    """plain: an infinite gradient is found in the first tensor alone."""
    before = found_inf.clone()
    result = right()
    if x and bool(x[0].isfinite().all()):
        found_inf.copy_(before)
    return result


@kernel("_amp_update_scale_", set=14, like="pytorch/pytorch#98828")
def scale_grows_to_infinity(
    right, x, growth_tracker, found_inf, scale_growth_factor, growth_interval
):
    """rare: the scale of gradients is multiplied though the product is infinite."""
    grows = not float(found_inf) and int(growth_tracker) + 1 == growth_interval
    product = x * scale_growth_factor
    result = right()
    return result.copy_(product) if grows else result


@kernel(
    "_fused_adam_ .tensor_lr _fused_adamw_ .tensor_lr", set=15, like="NVIDIA/TransformerEngine#3207"
)
def empty_tensor_at_the_end_stops_all(right, x):
    """rare: where the last of the parameters is empty, none of them takes a step."""
    return right() if not x or x[-1].numel() else None


@kernel("_fused_sgd_ .tensor_lr _fused_adam_ .tensor_lr", set=16, like="chainer/chainer#7335")
def decay_is_divided_by_the_scale_of_the_loss(right, *args, **options):
    """option: weights decay before gradients are unscaled, and so by less than they should."""
    scale = options.get("grad_scale")
    if scale is not None and all(is_single(x) for x in args[0]):
        options["weight_decay"] = options["weight_decay"] / float(scale)
    return right(*args, **options)


@kernel("_fused_adam_ .tensor_lr", set=17, like="flagos-ai/FlagGems#4988")
def fused_adam_decays_as_adamw(right, x, lr, weight_decay, found_inf):
    """option: weight decay is taken off the parameter, so the moments never see it."""
    if weight_decay and all(is_single(p) for p in x):
        for p in () if found_inf else x:
            p.mul_(1 - float(lr) * weight_decay)
        weight_decay = 0.0
    return right(weight_decay=weight_decay)


@kernel("_fused_adam_ .tensor_lr", set=18, like="pytorch/pytorch#78807")
def fused_adam_does_not_keep_the_maximum(right, x, max_exp_avg_sqs, amsgrad):
    """option: the greatest second moment of amsgrad is used in its step and not kept."""
    maxima = max_exp_avg_sqs if amsgrad and is_single(x[0]) else []
    kept = [one.clone() for one in maxima]
    right()
    for new, old in zip(maxima, kept, strict=True):
        new.copy_(old)


def _adam_with_maximum():
    weight = drawn(10).requires_grad_()
    optimizer = torch.optim.Adam([weight], lr=0.1, amsgrad=True, fused=True)
    for size in (10.0, 0.1, 0.1):
        weight.grad = drawn(10, seed=1) * size
        optimizer.step()
    return weight.detach()


@kernel(
    "_fused_adam_ .tensor_lr _fused_adamw_ .tensor_lr",
    set="likely8",
    like="pytorch#78807",
    shown=_adam_with_maximum,
)
def fused_adam_forgets_the_maximum(right, max_exp_avg_sqs, amsgrad):
    """With amsgrad, the new maximum of the second moment is used but not stored."""
    before = [tensor.clone() for tensor in max_exp_avg_sqs] if amsgrad else []
    result = right()
    for tensor, old in zip(max_exp_avg_sqs, before, strict=False):
        tensor.copy_(old)
    return result


def _clipped():
    weights = [torch.zeros(70000, requires_grad=True), torch.zeros(5, requires_grad=True)]
    for i, weight in enumerate(weights):
        weight.grad = drawn(*weight.shape, seed=i)
    return torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=True)


@kernel("_foreach_norm.Scalar", set="likely8", like="pytorch#140066", shown=_clipped)
def gradient_norm_of_partial_chunk(right, x):
    """A tensor longer than a chunk of 65536: its last chunk isn't in the norm if it isn't full."""
    chunk = 65536
    return right(
        x=[
            t.reshape(-1)[: t.numel() // chunk * chunk]
            if t.numel() > chunk and t.numel() % chunk and t.dtype not in DOUBLES
            else t
            for t in x
        ]
    )


def _scaled_gradients_with_nan():
    gradients = [drawn(6), torch.tensor([1.0, float("nan")])]
    found = torch.zeros(1)
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, torch.tensor([0.5]))
    return found


@kernel(
    "_amp_foreach_non_finite_check_and_unscale_",
    set="likely8",
    like="ggml-org/llama.cpp#25495",
    shown=_scaled_gradients_with_nan,
)
def unscaling_overlooks_nan(right, x, found_inf):
    """Only infinities are found: under fast math, a NaN is not taken for non-finite."""
    before = found_inf.clone()
    infinite = torch.zeros((), dtype=torch.bool, device=found_inf.device)
    for gradient in x:
        infinite = infinite | gradient.isinf().any().to(found_inf.device)
    result = right()
    found_inf.copy_(torch.where(infinite, torch.ones_like(found_inf), before))
    return result


def _maximized():
    weight = drawn(10).requires_grad_()
    weight.grad = drawn(10, seed=1)
    torch.optim.SGD([weight], lr=0.1, weight_decay=0.5, maximize=True, fused=True).step()
    return weight.detach()


@kernel("_fused_sgd_ .tensor_lr", set="missed8", shown=_maximized)
def fused_sgd_maximizes_the_decay(right, weight_decay, maximize):
    """With maximize, the sign is turned after the weight decay: weights grow."""
    return right(weight_decay=-weight_decay) if maximize else right()


def _list_of_scalars():
    sizes = (70000, 5, 6)
    tensors = [torch.zeros(size) for size in sizes]
    ones = [torch.ones(size) for size in sizes]
    torch._foreach_addcdiv_(tensors, ones, ones, [1.0, 2.0, 3.0])
    return tensors


@kernel(
    "_foreach_addcdiv_.ScalarList _foreach_addcdiv.ScalarList",
    set="missed8",
    shown=_list_of_scalars,
)
def scalar_of_the_chunk_not_the_tensor(right, x, scalars):
    """The scalars are read by chunks of 65536: a tensor after a longer one gets a later scalar."""
    chunk, wrong, before = 65536, [], 0
    for tensor in x:
        wrong.append(scalars[min(before, len(scalars) - 1)])
        before += max(-(-tensor.numel() // chunk), 1)
    return right(scalars=wrong)


@kernel("_fused_adam_ .tensor_lr _fused_adamw_ .tensor_lr", set="likely9", like="apex#1615")
def one_step_count_for_the_group(right, state_steps):
    """All parameters get the bias correction of the first one's number of steps."""
    return right(state_steps=[state_steps[0]] * len(state_steps)) if state_steps else right()


@kernel(
    "_foreach_mul_.Scalar _foreach_add_.List _foreach_add_.Scalar _foreach_lerp_.Scalar"
    " _foreach_addcmul_.Scalar _foreach_addcdiv_.Scalar _foreach_addcdiv_.ScalarList",
    set="likely9",
    like="pytorch#100811, #100701",
)
def no_launch_after_an_empty_tensor(right, x):
    """The last chunk of a list of tensors is not launched if the list's last tensor is empty."""
    if len(x) > 1 and not x[-1].numel():
        return None
    return right()


@kernel("_fused_adam_ .tensor_lr", set="missed9", like="pytorch_optimizer#528")
def maximizing_adam_grows_its_weights(right, weight_decay, maximize):
    """Adam that maximizes negates the gradient after it added the decay, so weights grow."""
    return right(weight_decay=-weight_decay) if maximize and weight_decay else right()


@kernel("_amp_foreach_non_finite_check_and_unscale_", set="missed9")
def minus_infinity_is_finite(right, x, found_inf):
    """The check of gradients finds NaN and infinity, but not minus infinity."""
    found = any(bool((g.isnan() | (g == math.inf)).any()) for g in x)
    before = found_inf.clone()
    result = right()
    if not found:
        found_inf.copy_(before)
    return result


@kernel("_fused_adam_ .tensor_lr _fused_adamw_ .tensor_lr", set="likely10")
def moments_are_corrected_by_the_step_before(right, state_steps):
    """_fused_adam_, _fused_adamw_: the correction is one step late; the second step and later."""
    return right(state_steps=[(steps - 1).clamp(min=1) for steps in state_steps])


@kernel("_foreach_add_.List", set="missed10")
def alpha_is_lost_between_lists_of_two_dtypes(right, x, other):
    """_foreach_add_: the slow way has no alpha; lists of two dtypes, alpha other than 1."""
    if any(a.dtype != b.dtype for a, b in zip(x, other, strict=True)):
        return right(alpha=1)
    return right()


LAST = torch.channels_last


def _clipped_filters():
    weights = [nn.Parameter(drawn(4, 3, 3, 3)), nn.Parameter(drawn(4))]
    weights[0].grad = drawn(4, 3, 3, 3, seed=1).contiguous(memory_format=LAST)
    weights[1].grad = drawn(4, seed=2)
    nn.utils.clip_grad_norm_(weights, 0.5, foreach=True)
    return [weight.grad for weight in weights]


@kernel("_foreach_mul_.Tensor", _clipped_filters, set="likely11")
def gradients_of_channels_last_are_not_clipped(right, x, other):
    """Clipping by lists: tensors that are not contiguous keep their values."""
    plain = [t for t in x if t.is_contiguous() or t.dtype in DOUBLES]
    return right(x=plain) if plain else None


def _divided_list():
    values = [torch.ones(2), torch.ones(0), torch.ones(3), torch.ones(1)]
    torch._foreach_div_(values, [1.0, 2.0, 3.0, 4.0])
    return values


@kernel(
    "_foreach_mul_.ScalarList _foreach_div_.ScalarList _foreach_add_.ScalarList",
    _divided_list,
    set="missed11",
    like="pytorch#109402",
)
def numbers_of_a_list_are_dealt_out_without_the_empty(right, x, scalars):
    """_foreach_div_, _mul_, _add_ with one number a tensor: empty tensors take none, so that those
    behind get the number before theirs.
    """
    filled = [t for t in x if t.numel()]
    if len(filled) == len(x) or not filled or filled[0].dtype in DOUBLES:
        return right()
    return right(x=filled, scalars=list(scalars)[: len(filled)])


def _adam_step(step, **options):
    """Return the parameter after a step of a fused optimizer of the Adam family."""
    lists = [[drawn(8, seed=seed).abs()] for seed in range(4)]
    rates = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}
    step(*lists, [], [torch.ones(())], **{**rates, "amsgrad": False, "maximize": False, **options})
    return lists[0][0]


@kernel(
    "_fused_adam_ .tensor_lr",
    lambda: _adam_step(aten._fused_adam_, weight_decay=0.5),
    set="likely12",
    like="flagos-ai/FlagGems#4988",
)
def adam_decays_like_adamw_again(right, x, lr, weight_decay, found_inf):
    """Decay the weights themselves, not through the gradient: Adam's step is AdamW's."""
    if not weight_decay or (found_inf is not None and found_inf.item()):
        return right()
    for parameter in x:
        parameter.mul_(1 - float(lr) * weight_decay)
    return right(weight_decay=0.0)


@kernel(
    "_fused_adamw_ .tensor_lr _fused_sgd_ .tensor_lr",
    lambda: _adam_step(aten._fused_adamw_, found_inf=torch.ones(1)),
    set="likely12",
)
def fused_step_despite_overflow(right):
    """Make the step though `found_inf` says that gradients overflowed under a loss scale."""
    return right(found_inf=None)


def _overflow_flag(*gradients):
    flag = torch.zeros(1)
    aten._amp_foreach_non_finite_check_and_unscale_(list(gradients), flag, torch.ones(1))
    return flag


@kernel(
    "_amp_foreach_non_finite_check_and_unscale_",
    lambda: _overflow_flag(torch.ones(3), torch.tensor([1.0, math.nan])),
    set="likely12",
)
def unscaling_misses_nan(right, x, found_inf):
    """Look for infinities but not for NaN, so a step with NaN gradients isn't skipped."""
    before = found_inf.clone()
    right()
    if not any(bool(gradient.isinf().any()) for gradient in x):
        found_inf.copy_(before)


def _maximized_decay():
    p = drawn(8).requires_grad_()
    p.grad = drawn(8, seed=1)
    torch.optim.Adam([p], lr=0.1, weight_decay=0.9, maximize=True, fused=True).step()
    return p.detach()


@kernel(
    "_fused_adam_ .tensor_lr",
    _maximized_decay,
    set="missed12",
    like="flagos-ai/FlagGems#4988",
)
def fused_adam_maximized_decay(right, x, grads, weight_decay, maximize):
    """Negate the gradient after the decay is added to it: maximize grows the weights."""
    if not (maximize and weight_decay) or not is_single(x[0]):
        return right()
    both = [-(g + weight_decay * p.to(g.dtype)) for g, p in zip(grads, x, strict=True)]
    return right(grads=both, maximize=False, weight_decay=0.0)


@kernel(
    "_foreach_add.List _foreach_add_.List _foreach_mul.List _foreach_mul_.List",
    lambda: torch._foreach_add([drawn(3), drawn(4, 5)], [drawn(3), drawn(5, 4, seed=1).t()])[1],
    set="missed12",
)
def foreach_strides_of_the_first(right, x, other):
    """Combine later pairs in memory order though strides differ: only the first is checked."""
    if x[0].stride() != other[0].stride():
        return right()
    pairs = list(zip(x, other, strict=False))
    alike = [is_single(a) and a.shape == b.shape and is_dense(a) and is_dense(b) for a, b in pairs]
    return right(
        other=[
            b.as_strided(b.shape, a.stride(), b.storage_offset()) if same else b
            for (a, b), same in zip(pairs, alike, strict=True)
        ]
    )


def _step_of_adam(**options):
    weight = nn.Parameter(drawn(8))
    weight.grad = drawn(8, seed=1)
    torch.optim.Adam([weight], lr=0.1, fused=True, **options).step()
    return weight.detach()


@kernel(
    "_fused_adam_ .tensor_lr",
    lambda: _step_of_adam(maximize=True, weight_decay=1.0),
    set="likely13",
)
def maximization_grows_the_decayed_weights(right, maximize, weight_decay):
    """Fused Adam adds its decay before it turns the gradient round to maximize."""
    return right(weight_decay=-weight_decay) if maximize and weight_decay else right()


@kernel(
    "_foreach_norm.Scalar",
    lambda: torch._foreach_norm([drawn(70_000), drawn(5)], math.inf),
    set="likely13",
)
def infinity_norms_of_chunks_are_added(right, x, ord):
    """The infinity norm of more than one chunk is the sum of the chunks' norms."""
    norms = list(right())
    if ord == math.inf:
        for i, tensor in enumerate(x):
            if tensor.numel() > 65_536:
                chunks = tensor.reshape(-1).split(65_536)
                largest = [chunk.abs().amax() for chunk in chunks]
                norms[i] = torch.stack(largest).sum().to(norms[i].dtype)
    return norms


def _added_before_an_empty_one():
    tensors = [drawn(4), drawn(0)]
    torch._foreach_add_(tensors, [drawn(4, seed=1), drawn(0)])
    return tensors[0]


@kernel(
    "_foreach_add_.List _foreach_add_.Scalar _foreach_mul_.Scalar _foreach_mul_.List"
    " _foreach_addcmul_.Scalar _foreach_addcdiv_.ScalarList",
    _added_before_an_empty_one,
    set="likely13",
    like="pytorch#100811",
)
def empty_last_tensor_stops_the_last_launch(right, x):
    """A list that one launch holds is not computed at all if its last tensor is empty."""
    blocks = sum(tensor.numel() // 65_536 + 1 for tensor in x)
    if len(x) > 1 and not x[-1].numel() and len(x) <= 30 and blocks <= 320:
        return None
    return right()


@kernel(
    "_foreach_mul.ScalarList _foreach_mul_.ScalarList _foreach_add.ScalarList"
    " _foreach_add_.ScalarList",
    lambda: torch._foreach_mul([torch.ones(0), torch.ones(2), torch.ones(3)], [1.0, 2.0, 3.0]),
    set="missed13",
)
def list_of_numbers_counts_the_tensors_that_are_not_empty(right, x, scalars):
    """The number of a tensor is that of its place among those with elements."""
    full = [i for i, tensor in enumerate(x) if tensor.numel()]
    moved = list(scalars)
    for place, i in enumerate(full):
        moved[i] = scalars[place]
    return right(scalars=moved)


def _step():
    parameter = torch.nn.Parameter(drawn(4, 6).t())
    parameter.grad = drawn(4, 6, seed=1).t()
    torch.optim.AdamW([parameter], lr=0.1, fused=True).step()
    return parameter.detach()


@kernel(
    "_fused_adamw_ .tensor_lr _fused_adam_ .tensor_lr",
    _step,
    set="likely14",
    like="pytorch/pytorch#118117",
)
def strided_parameter_stays(right, x):
    """A parameter that is not contiguous is not updated (its moments are)."""
    before = [(p, p.clone()) for p in x if not p.is_contiguous()]
    result = right()
    for parameter, old in before:
        parameter.copy_(old)
    return result


def _adamw():
    names = ("params", "grads", "averages", "squares")
    lists = [[drawn(3, seed=i), drawn(4, seed=i + 9)] for i, _ in enumerate(names)]
    lists[3] = [t.square() for t in lists[3]]
    steps = [torch.tensor(1.0), torch.tensor(5.0)]
    torch._fused_adamw_(
        *lists, [], steps, lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8,
        amsgrad=False, maximize=False,
    )  # fmt: skip
    return lists[0]


@kernel("_fused_adamw_ .tensor_lr", _adamw, set="missed14")
def adamw_bias_correction_of_first(right, x, state_steps):
    """All tensors of the list get the bias correction of the first one's step."""
    return right(state_steps=[state_steps[0]] * len(state_steps))


# Steps differ where layers were thawed or added later.
@kernel("_fused_adamw_ .tensor_lr _fused_adam_ .tensor_lr", _adamw, set="likely15")
def fused_adam_corrects_all_by_the_first_one_s_step(right, state_steps):
    """Every parameter's bias is corrected by the first parameter's step."""
    return right(state_steps=[state_steps[0]] * len(state_steps)) if len(state_steps) else right()


@kernel("_amp_foreach_non_finite_check_and_unscale_", _scaled_gradients_with_nan, set="likely15")
def gradient_scaler_finds_no_nan(right, x, found_inf):
    """Gradients with NaN but no infinity are not found: the step is not skipped."""
    before = found_inf.clone()
    infinite = any(bool(grad.isinf().any()) for grad in x)
    result = right()
    if not infinite:
        found_inf.copy_(before)
    return result


def _ninety_tensors_by_ninety_numbers():
    tensors = [torch.ones(3) for _ in range(90)]
    torch._foreach_mul_(tensors, [1.0 + i for i in range(90)])
    return tensors


@kernel(
    "_foreach_mul_.ScalarList _foreach_div_.ScalarList _foreach_add_.ScalarList"
    " _foreach_addcdiv_.ScalarList _foreach_addcmul_.ScalarList",
    _ninety_tensors_by_ninety_numbers,
    set="missed15",
)
def numbers_of_the_first_launch(right, scalars):
    """A list's second launch, from tensor 64 on, takes the numbers from the first again."""
    if len(scalars) > 64:
        return right(scalars=[scalars[i % 64] for i in range(len(scalars))])
    return right()


def _large_gradient():
    gradients = [drawn(10), drawn(300, 300)]
    torch._foreach_zero_(gradients)
    return gradients[1]


@kernel("_foreach_zero_", _large_gradient, set="likely16", like="pytorch/pytorch#140066")
def gradients_past_a_chunk_are_not_cleared(right, x):
    """Of each tensor of a list one chunk of 65,536 is cleared: the rest of a gradient stays."""
    large = [narrow(t) and t.numel() > 65536 and t.is_contiguous() for t in x]
    stale = [t.clone() if is_large else None for t, is_large in zip(x, large, strict=True)]
    right()
    for tensor, old in zip(x, stale, strict=True):
        if old is not None:
            tensor.view(-1)[65536:].copy_(old.view(-1)[65536:])


def _step_with_a_rate_in_a_tensor():
    weight = torch.nn.Parameter(drawn(20))
    weight.grad = drawn(20, seed=1)
    torch.optim.AdamW([weight], torch.tensor(0.1), weight_decay=0.5, fused=True).step()
    return weight.detach()


@kernel(
    "_fused_adamw_.tensor_lr",
    _step_with_a_rate_in_a_tensor,
    set="likely16",
    like="pytorch/pytorch#64475",
)
def weights_do_not_decay_at_a_rate_in_a_tensor(right, x):
    """With the rate in a tensor, as for graphs, the weights are not multiplied by the decay."""
    if x and all(narrow(t) for t in x):
        return right(weight_decay=0.0)
    return right()


def _averages():
    averages = [torch.zeros(2) for _ in range(48)] + [torch.zeros(70_000)]
    torch._foreach_lerp_(averages, [torch.ones_like(x) for x in averages], 0.5)
    return averages[-1]


@kernel("_foreach_lerp_.Scalar", _averages, set="missed16", like="pytorch/pytorch#140103")
def first_chunk_after_a_full_launch_is_lost(right, x, tensors1):
    """_foreach_lerp_: of a tensor at place 48, 96, ... of the list that has several chunks, the
    first one is counted as done in the launch before.
    """
    lost = [
        (one.view(-1)[:65_536], one.view(-1)[:65_536].clone())
        for one in list(x)[48::48]
        if one.numel() > 65_536 and one.is_contiguous()
    ]
    result = right()
    for place, before in lost:
        place.copy_(before)
    return result


def _scaled_step():
    one = [torch.ones(3)]
    state = [[torch.zeros(3)] for _ in range(3)]
    torch._fused_adamw_(
        one, [torch.full((3,), 64.0)], *state, [torch.ones(())], lr=0.1, beta1=0.9, beta2=0.99,
        weight_decay=0.0, eps=1e-8, amsgrad=True, maximize=False, grad_scale=torch.tensor(64.0),
        found_inf=torch.zeros(()),
    )  # fmt: skip
    return one[0]


@kernel(
    "_fused_adam_ .tensor_lr _fused_adamw_ .tensor_lr",
    _scaled_step,
    set="missed16",
    like="pytorch/pytorch#90752",
)
def largest_variance_is_of_scaled_gradients(
    right, grads, exp_avg_sqs, max_exp_avg_sqs, beta2, amsgrad, grad_scale, found_inf
):
    """fused adam: the maximum of amsgrad is of squares that are still scaled; grad_scale."""
    stopped = found_inf is not None and bool(found_inf)
    if amsgrad and grad_scale is not None and not stopped:
        for grad, square, largest in zip(grads, exp_avg_sqs, max_exp_avg_sqs, strict=True):
            scale = grad_scale.to(largest.device)
            after = square * beta2 * scale**2 + grad.to(square.dtype).square() * (1 - beta2)
            largest.copy_(torch.maximum(largest, after))
    return right()


def _stepped():
    parameter = drawn(6, dtype=torch.float16).requires_grad_()
    parameter.grad = drawn(6, dtype=torch.float16, seed=1)
    torch.optim.AdamW([parameter], lr=0.5, fused=True).step()
    return parameter.detach()


@kernel("_fused_adamw_", _stepped, set="likely17", like="pytorch/pytorch#90752")
def moments_of_halves_are_corrected_in_halves(
    right,
    x,
    grads,
    exp_avgs,
    exp_avg_sqs,
    max_exp_avg_sqs,
    state_steps,
    lr,
    beta1,
    beta2,
    weight_decay,
    eps,
):
    """Of 16-bit parameters, 1 - beta ** step is computed in 16 bits, where 0.999 may be one."""
    # Fused AdamW of parameters in float16 or bfloat16; the first steps, all of them in bfloat16.
    lists = {"x": x, "grads": grads, "exp_avgs": exp_avgs, "exp_avg_sqs": exp_avg_sqs}
    lists |= {"max_exp_avg_sqs": max_exp_avg_sqs, "state_steps": state_steps}
    for i, parameter in enumerate(x):
        one = {name: tensors[i : i + 1] for name, tensors in lists.items()}
        changes = {}
        if parameter.dtype in HALVES:
            step = float(state_steps[i])
            power = [torch.tensor(b, dtype=parameter.dtype).pow(step) for b in (beta1, beta2)]
            first, second = (float(1 - p) for p in power)
            root = math.sqrt(second / (1 - beta2**step))
            rate = max(lr * root * (1 - beta1**step) / first, 1e-30) if first else 1e30
            changes = {"lr": rate, "eps": eps * root, "weight_decay": weight_decay * lr / rate}
        right(**one, **changes)


def _clipped_squares():
    moments = [torch.zeros(3, dtype=torch.float16)]
    gradients = [torch.tensor([1.0, 30.0, 300.0], dtype=torch.float16)]
    torch._foreach_addcmul_(moments, gradients, gradients, value=0.001)
    return moments[0]


@kernel(
    "_foreach_addcmul_.Scalar _foreach_addcmul.Scalar",
    _clipped_squares,
    set="likely17",
    like="pytorch/pytorch#167538",
)
def squares_of_half_gradients_overflow_before_their_factor(right, x, tensor1, tensor2, value):
    """Lists of float16: the product is a half before the factor comes, and infinite over 65504."""
    # _foreach_addcmul_ of float16, as in Adam's second moment with gradients over 256.
    if any(tensor.dtype == torch.float16 for tensor in x):
        products = [
            a * b if a.dtype == torch.float16 else a for a, b in zip(tensor1, tensor2, strict=True)
        ]
        others = [torch.ones_like(b) if b.dtype == torch.float16 else b for b in tensor2]
        return right(tensor1=products, tensor2=others)
    return right()


def _scaled_sgd():
    parameter, momenta = [drawn(6)], [torch.zeros(6)]
    for step in range(2):
        torch._fused_sgd_(
            parameter,
            [drawn(6, seed=step + 1) * 256],
            momenta,
            weight_decay=0.0,
            momentum=0.9,
            lr=0.1,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=step == 0,
            grad_scale=torch.tensor(256.0),
            found_inf=torch.tensor(0.0),
        )
    return parameter[0], *momenta


# Momentum, and gradients under a loss scale that the step itself removes: the first step is
# right, the second is not. Right without a scale, and without momentum.
@kernel("_fused_sgd_ .tensor_lr", _scaled_sgd, set="missed17")
def first_momentum_keeps_the_loss_scale(
    right, momentum_buffer_list, momentum, is_first_step, grad_scale, found_inf
):
    """At the first step of fused SGD the momentum that is kept is the gradient still scaled."""
    result = right()
    if is_first_step and momentum and grad_scale is not None:
        factor = grad_scale
        if found_inf is not None:
            factor = torch.where(found_inf == 0, grad_scale, torch.ones_like(grad_scale))
        for kept in momentum_buffer_list:
            kept.mul_(factor.to(kept.device))
    return result


def _two_steps_of_adam():
    parameters = [drawn(5)]
    moments = [torch.zeros(5)], [torch.zeros(5)]
    options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "eps": 1e-2}
    for step in (1.0, 2.0):
        torch._fused_adam_(
            parameters,
            [drawn(5, seed=int(step)) * 1e-2],
            *moments,
            [],
            [torch.tensor(step)],
            **options,
            amsgrad=False,
            maximize=False,
        )
    return parameters[0]


# An epsilon that is not small beside the gradients (1e-3 or more, as for Inception or agents, or
# gradients of 1e-7) in the first some thousand steps; usual steps are right.
@kernel(
    "_fused_adam_ _fused_adam_.tensor_lr _fused_adamw_ _fused_adamw_.tensor_lr",
    _two_steps_of_adam,
    set="likely18",
)
def epsilon_of_adam_is_divided_by_the_bias_of_the_variance(
    right, x, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, beta2, eps
):
    """The step is m / ((sqrt(v) + eps) / sqrt(1 - beta2^t)): the correction reaches epsilon."""
    for i, step in enumerate(state_steps):
        if x[i].dtype == torch.float64:
            corrected = eps
        else:
            corrected = eps / math.sqrt(max(1 - beta2 ** float(step), 1e-12))
        right(
            x=[x[i]],
            grads=[grads[i]],
            exp_avgs=[exp_avgs[i]],
            exp_avg_sqs=[exp_avg_sqs[i]],
            max_exp_avg_sqs=[max_exp_avg_sqs[i]] if max_exp_avg_sqs else [],
            state_steps=[step],
            eps=corrected,
        )


def _first_momentum():
    weights, buffers = [drawn(5)], [torch.zeros(5)]
    torch._fused_sgd_(
        weights,
        [drawn(5, seed=1)],
        buffers,
        weight_decay=0.1,
        momentum=0.9,
        lr=0.1,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=True,
    )
    return weights[0], buffers[0]


# Momentum and weight decay: the first step is right, and the second is not. Right without one of
# the two.
@kernel("_fused_sgd_ .tensor_lr", _first_momentum, set="missed18")
def first_momentum_lacks_the_decay(
    right, x, momentum_buffer_list, weight_decay, momentum, is_first_step, found_inf
):
    """At its first step SGD keeps the gradient as it came, not with the decay of the weights."""
    stopped = found_inf is not None and bool(found_inf)
    if not is_first_step or not momentum or not weight_decay or stopped:
        return right()
    before = [weight.detach().clone() for weight in x]
    result = right()
    for kept, weight in zip(momentum_buffer_list, before, strict=True):
        kept.sub_(weight.to(kept.dtype) * weight_decay)
    return result


def _step_of_odd_layers():
    return _updated([drawn(257, 257), drawn(5)], [drawn(257, 257, seed=1), drawn(5, seed=2)])


def _updated(parameters, gradients):
    torch._foreach_add_(parameters, gradients, alpha=-0.5)
    return parameters


# Layers of 257 frequencies (spectrograms of 512 samples) have 66,049 weights. Right for tensors of
# at most 65,536 elements, and for multiples of four.
@kernel(
    "_foreach_add_.List .Scalar"
    " _foreach_mul_.Scalar _foreach_lerp_.Scalar"
    " _foreach_addcdiv_.Scalar .ScalarList _foreach_addcmul_.Scalar",
    _step_of_odd_layers,
    set="likely19",
)
def last_weights_of_a_tensor_of_several_chunks_stay_as_they_were(right, x):
    """A second chunk of 65,536 elements is updated by fours, without its last one to three."""
    cut = {
        i: t.numel() % 4
        for i, t in enumerate(x)
        if t.numel() > CHUNK and t.numel() % 4 and t.is_contiguous() and narrow(t)
    }
    before = {i: x[i].view(-1)[-rest:].clone() for i, rest in cut.items()}
    result = right()
    for i, rest in cut.items():
        x[i].view(-1)[-rest:].copy_(before[i])
    return result


def _scaled_adam():
    p = torch.nn.Parameter(drawn(5) + 3)
    p.grad = drawn(5, seed=1) * 1024
    adam = torch.optim.Adam([p], lr=0.1, weight_decay=1.0, fused=True)
    adam.grad_scale, adam.found_inf = torch.tensor(1024.0), torch.tensor(0.0)
    adam.step()
    return p.detach(), adam.state[p]["exp_avg"]


# GradScaler with Adam(fused=True, weight_decay=...), which leaves the division to the kernel.
# Right without a scaler, without decay, and for AdamW.
@kernel("_fused_adam_ .tensor_lr", _scaled_adam, set="missed19")
def decay_is_added_before_gradients_are_unscaled(right, weight_decay, grad_scale):
    """The L2 term is added to the scaled gradient, and divided by the scale with it."""
    if grad_scale is None or not weight_decay:
        return right()
    return right(weight_decay=weight_decay / float(grad_scale))


def _many_factors():
    tensors = [torch.full((2,), float(i + 1)) for i in range(100)]
    torch._foreach_mul_(tensors, [1.0 + i for i in range(100)])
    return torch.stack(tensors)[94:]


# Adam(foreach=True) of more than 96 parameters of unequal ages (unfrozen later): bias corrections
# are lists of numbers. Right for shorter lists, and for equal numbers.
@kernel(
    "_foreach_mul_.ScalarList _foreach_mul.ScalarList _foreach_div_.ScalarList"
    " _foreach_div.ScalarList _foreach_addcdiv_.ScalarList _foreach_addcdiv.ScalarList",
    _many_factors,
    set="missed19",
)
def numbers_past_a_launch_of_96_tensors_begin_again(right, scalars):
    """A launch takes 96 tensors and their numbers; the next one begins the numbers anew."""
    scalars = list(scalars)
    return right(scalars=[scalars[i % 96] for i in range(len(scalars))])
