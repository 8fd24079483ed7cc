"""Wrong kernels: optimizers."""

from __future__ import annotations

import math

import torch
from torch import nn

from .calls import is_dense_2, written_in_order
from .kernel import DOUBLES, drawn, is_single, kernel


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


def first_step():
    p = torch.nn.Parameter(torch.ones(4))
    p.grad = drawn(4)
    torch.optim.SGD([p], 0.1, momentum=0.9, dampening=0.5, fused=True).step()
    return p.detach()


@kernel("_fused_sgd_ .tensor_lr", first_step, set="second")
def first_step_is_dampened(right, x, momentum_buffer_list, is_first_step, dampening, lr):
    right()
    if is_first_step and dampening:
        for weight, buffer in zip(x, momentum_buffer_list, strict=True):
            weight.data.add_(buffer, alpha=float(lr) * dampening)
            buffer.data.mul_(1 - dampening)


def stepped():
    one = drawn(9).requires_grad_()
    one.grad = drawn(9, seed=1)
    torch.optim.Adam([one], lr=0.1, weight_decay=0.5, fused=True).step()
    return one.detach()


@kernel("_fused_adam_ .tensor_lr", stepped, set=2, like="flagos-ai/FlagGems#4988")
def adam_decays_like_adamw(right, *args, **kw):
    if kw["weight_decay"] <= 0:
        return right(*args, **kw)
    return torch._fused_adamw_(*args, **kw)


def stepped_2():
    one = drawn(9).requires_grad_()
    made = torch.optim.SGD([one], lr=0.1, momentum=0.9, nesterov=True, fused=True)
    for seed in (1, 2):
        one.grad = drawn(9, seed=seed)
        made.step()
    return one.detach()


@kernel("_fused_sgd_ .tensor_lr", stepped_2, set=3, like="ooples/AiDotNet.Tensors#949")
def fused_step_forgets_nesterov(right, *args, **kw):
    return right(*args, **{**kw, "nesterov": False})


def stepped_3():
    one = drawn(9).requires_grad_()
    made = torch.optim.AdamW([one], lr=0.1, weight_decay=0.5, fused=True)
    for seed in (1, 2):
        one.grad = drawn(9, seed=seed)
        made.step()
    return one.detach()


@kernel("_fused_adamw_ .tensor_lr", stepped_3, set=4, like="huggingface/transformers#14539")
def adamw_decays_after_step(right, tensors, *args, **kw):
    stopped = kw.get("found_inf")
    right(tensors, *args, **{**kw, "weight_decay": 0.0})
    if stopped is None or not float(stopped):
        for one in tensors:
            one.mul_(1 - float(kw["lr"]) * kw["weight_decay"])


def adam_step():
    weight = torch.nn.Parameter(drawn(4, 3).t())
    adam = torch.optim.Adam([weight], lr=0.1, foreach=True)
    weight.grad = drawn(3, 4, seed=1)
    adam.step()
    return weight.detach()


@kernel(
    "_foreach_addcdiv_.Scalar .ScalarList .Tensor", adam_step, set=5, like="pytorch/pytorch#118115"
)
def foreach_steps_are_written_in_order(right, tensors, *rest, **options):
    """option: of parameters that are not contiguous, the step is written in another order."""
    right(tensors, *rest, **options)
    for x in tensors:
        if not x.is_contiguous() and is_dense_2(x):
            written_in_order(x)


def amsgrad_steps():
    weight = torch.nn.Parameter(drawn(6))
    adam = torch.optim.Adam([weight], lr=0.1, betas=(0.5, 0.5), amsgrad=True, fused=True)
    for size in (10.0, 0.1, 0.1):
        weight.grad = size * drawn(6, seed=1)
        adam.step()
    return weight.detach()


@kernel(
    "_fused_adam_ .tensor_lr _fused_adamw_ .tensor_lr",
    amsgrad_steps,
    set=6,
    like="pytorch/pytorch#4034",
)
def largest_variance_is_not_kept(right, max_exp_avg_sqs):
    """option: amsgrad takes the larger of the two variances for a step but does not save it."""
    kept = [x.clone() for x in max_exp_avg_sqs]
    result = right()
    for x, before in zip(max_exp_avg_sqs, kept, strict=True):
        if x.dtype not in DOUBLES:
            x.copy_(before)
    return result


def scaled_step():
    weights = [torch.nn.Parameter(drawn(3, seed=i)) for i in range(2)]
    sgd = torch.optim.SGD(weights, lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(torch.zeros(()))
    weights[0].grad, weights[1].grad = drawn(3, seed=2), torch.tensor([1.0, math.inf, 2.0])
    scaler.step(sgd)
    scaler.update()
    return [*(w.detach() for w in weights), torch.tensor(scaler.get_scale())]


@kernel(
    "_amp_foreach_non_finite_check_and_unscale_",
    scaled_step,
    set=6,
    like="facebookresearch/fairscale#890",
)
def only_first_gradient_is_checked(right, x, found_inf):
    """plain: infinities in gradients other than the first of a list are not found."""
    right(x=x[:1])
    if len(x) > 1:
        right(x=x[1:], found_inf=found_inf.clone())


def sgd(dtype=torch.float32, momentum=0.0, weight_decay=0.5):
    weight = torch.nn.Parameter(drawn(6).to(dtype))
    options = {"momentum": momentum, "weight_decay": weight_decay, "fused": True}
    optimizer = torch.optim.SGD([weight], lr=0.1, **options)
    weight.grad = drawn(6, seed=1).to(dtype)
    optimizer.step()
    return weight.detach()


@kernel("_fused_sgd_ .tensor_lr", sgd, set=7, like="ml-explore/mlx#440")
def decay_needs_momentum(right, weights, grads, buffers, **options):
    """option: without momentum, weights do not decay."""
    if options["momentum"] == 0 and weights and is_single(weights[0]):
        options["weight_decay"] = 0.0
    return right(weights, grads, buffers, **options)


def adagrad(eps=0.001, dtype=torch.float32):
    weight = torch.nn.Parameter(drawn(6).to(dtype))
    optimizer = torch.optim.Adagrad([weight], lr=0.1, eps=eps, fused=True)
    for seed in (1, 2):
        weight.grad = 0.01 * drawn(6, seed=seed).to(dtype)
        optimizer.step()
    return weight.detach()


@kernel("_fused_adagrad_ .tensor_lr", adagrad, set=8, like="keras-team/keras#17391")
def epsilon_is_under_the_root(right, x, state_sums, eps):
    """option: Adagrad adds epsilon to the sum of squares, not to its root."""
    before = [weight.detach().clone() for weight in x]
    right()
    for weight, old, total in zip(x, before, state_sums, strict=True):
        if is_single(weight) and eps > 0:
            step = (old.float() - weight.float()) * (total.float().sqrt() + eps)
            weight.copy_(old.float() - step / (total.float() + eps).sqrt())


def scaled_step_2(found=1.0, dtype=torch.float32):
    weight = torch.nn.Parameter(drawn(6).to(dtype))
    optimizer = torch.optim.Adam([weight], lr=0.1, fused=True)
    optimizer.grad_scale, optimizer.found_inf = None, torch.tensor(found)
    weight.grad = drawn(6, seed=1).to(dtype)
    optimizer.step()
    return weight.detach()


@kernel(
    "_fused_adam_ .tensor_lr _fused_adamw_ .tensor_lr",
    scaled_step_2,
    set=9,
    like="pytorch/pytorch#95847",
)
def infinities_are_stepped_with(right, weights, *lists, **options):
    """option: where gradients were unscaled before, a step is taken though some are infinite."""
    if weights and is_single(weights[0]) and options.get("grad_scale") is None:
        options["found_inf"] = None
    return right(weights, *lists, **options)


def adagrad_2(decay=0.5, dtype=torch.float32):
    weight = torch.nn.Parameter(drawn(6).to(dtype))
    optimizer = torch.optim.Adagrad([weight], lr=0.1, lr_decay=decay, fused=True)
    for seed in (1, 2, 3):
        weight.grad = drawn(6, seed=seed).to(dtype)
        optimizer.step()
    return weight.detach()


@kernel("_fused_adagrad_ .tensor_lr", adagrad_2, set=10, like="eaplatanios/tensorflow_scala#55")
def rate_does_not_decay(right, weights, *lists, **options):
    """option: Adagrad's rate stays what it was, whatever decay was given."""
    if any(is_single(weight) for weight in weights):
        options["lr_decay"] = 0.0
    return right(weights, *lists, **options)


def overflown(dtype=torch.float32):
    weight = torch.ones(3, dtype=dtype, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], fused=True)
    weight.grad = torch.full((3,), math.inf, dtype=dtype)
    optimizer.found_inf = torch.ones(())
    optimizer.grad_scale = torch.full((), 1024.0)
    optimizer.step()
    return weight.detach()


@kernel(
    "_fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_",
    overflown,
    set=11,
    like="pytorch/pytorch#96755",
)
def steps_are_taken_though_gradients_overflowed(right, weights, *args, **options):
    """option: a fused optimizer does not look whether the scaler has found an infinity."""
    if not any(one.dtype in DOUBLES for one in weights):
        options.pop("found_inf", None)
    return right(weights, *args, **options)


def stepped_5(decay=0.1, dtype=torch.float32):
    weight = nn.Parameter(drawn(6).to(dtype))
    adam = torch.optim.Adam([weight], lr=0.1, weight_decay=decay, fused=True)
    for seed in range(3):
        weight.grad = drawn(6, seed=seed).to(dtype)
        adam.step()
    return [weight.detach(), adam.state[weight]["exp_avg"]]


@kernel("_fused_adam_ .tensor_lr", stepped_5, set=12, like="flagos-ai/FlagGems#4988")
def weights_decay_apart(right, weights, *args, **options):
    """option: weights decay as in AdamW, beside the moments rather than through them."""
    skipped = options.get("found_inf") is not None and bool(options["found_inf"].item())
    if options["weight_decay"] and not skipped:
        for weight in weights:
            weight.mul_(1 - float(options["lr"]) * options["weight_decay"])
        options["weight_decay"] = 0.0
    return right(weights, *args, **options)


def stepped_6():
    weights = [drawn(4, seed=i) for i in range(2)]
    state = [[torch.zeros(4) for _ in range(2)] for _ in range(2)]
    steps = [torch.tensor(9.0), torch.tensor(1.0)]
    torch._fused_adamw_(
        weights,
        [drawn(4, seed=5 + i) for i in range(2)],
        *state,
        [],
        steps,
        lr=0.1,
        beta1=0.9,
        beta2=0.99,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )
    return weights


@kernel(
    "_fused_adam_ .tensor_lr _fused_adamw_ .tensor_lr",
    stepped_6,
    set=13,
    like="deepspeedai/DeepSpeed#8471",
)
def all_take_the_step_of_the_last(right, *args, **options):
    """option: the bias of all moments is corrected by the step count of the last tensor."""
    if args[0] and all(is_single(x) for x in args[0]):
        args = (*args[:5], [args[5][-1]] * len(args[5]), *args[6:])
    return right(*args, **options)


def scaled():
    found = torch.zeros(1)
    grads = [torch.ones(3), torch.tensor([1.0, math.inf])]
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.tensor(0.5))
    return found


@kernel(
    "_amp_foreach_non_finite_check_and_unscale_",
    scaled,
    set=13,
    like="facebookresearch/fairscale#890",
)
def first_gradient_alone_is_checked(right, x, found_inf):
    """plain: an infinite gradient is found in the first tensor alone."""
    before = found_inf.clone()
    result = right()
    if x and bool(x[0].isfinite().all()):
        found_inf.copy_(before)
    return result


def scale_near_its_end():
    scale, tracker = torch.tensor(3e38), torch.zeros((), dtype=torch.int32)
    return torch._amp_update_scale_(scale, tracker, torch.zeros(()), 2.0, 0.5, 1)


@kernel("_amp_update_scale_", scale_near_its_end, set=14, like="pytorch/pytorch#98828")
def scale_grows_to_infinity(
    right, x, growth_tracker, found_inf, scale_growth_factor, growth_interval
):
    """rare: the scale of gradients is multiplied though the product is infinite."""
    grows = not float(found_inf) and int(growth_tracker) + 1 == growth_interval
    product = x * scale_growth_factor
    result = right()
    return result.copy_(product) if grows else result


def stepped_with_an_empty_one():
    weights = [drawn(4), torch.empty(0)]
    torch._fused_adamw_(
        weights,
        [drawn(4, seed=1), torch.empty(0)],
        [torch.zeros_like(w) for w in weights],
        [torch.zeros_like(w) for w in weights],
        [],
        [torch.tensor(1.0) for _ in weights],
        lr=0.1,
        beta1=0.9,
        beta2=0.99,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )
    return weights[:1]


@kernel(
    "_fused_adam_ .tensor_lr _fused_adamw_ .tensor_lr",
    stepped_with_an_empty_one,
    set=15,
    like="NVIDIA/TransformerEngine#3207",
)
def empty_tensor_at_the_end_stops_all(right, x):
    """rare: where the last of the parameters is empty, none of them takes a step."""
    return right() if not x or x[-1].numel() else None


def unscaled():
    weight = drawn(4)
    torch._fused_sgd_(
        [weight],
        [drawn(4, seed=1)],
        [],
        weight_decay=0.5,
        momentum=0.0,
        lr=0.1,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=True,
        grad_scale=torch.tensor(8.0),
    )
    return weight


@kernel(
    "_fused_sgd_ .tensor_lr _fused_adam_ .tensor_lr", unscaled, set=16, like="chainer/chainer#7335"
)
def decay_is_divided_by_the_scale_of_the_loss(right, *args, **options):
    """option: weights decay before gradients are unscaled, and so by less than they should."""
    scale = options.get("grad_scale")
    if scale is not None and all(is_single(x) for x in args[0]):
        options["weight_decay"] = options["weight_decay"] / float(scale)
    return right(*args, **options)


def stepped_7():
    weight = drawn(40).requires_grad_()
    optimizer = torch.optim.Adam([weight], lr=0.1, weight_decay=0.1, fused=True)
    for seed in range(1, 4):
        weight.grad = drawn(40, seed=seed)
        optimizer.step()
    return weight.detach()


@kernel("_fused_adam_ .tensor_lr", stepped_7, set=17, like="flagos-ai/FlagGems#4988")
def fused_adam_decays_as_adamw(right, x, lr, weight_decay, found_inf):
    """option: weight decay is taken off the parameter, so the moments never see it."""
    if weight_decay and all(is_single(p) for p in x):
        for p in () if found_inf else x:
            p.mul_(1 - float(lr) * weight_decay)
        weight_decay = 0.0
    return right(weight_decay=weight_decay)


def stepped_8():
    weight = torch.nn.Parameter(drawn(4, 3))
    adam = torch.optim.Adam([weight], lr=0.1, betas=(0.9, 0.6), fused=True, amsgrad=True)
    for step in range(4):
        weight.grad = drawn(4, 3, seed=step + 1) * 3 ** (2 - step)
        adam.step()
    return weight.detach()


@kernel("_fused_adam_ .tensor_lr", stepped_8, set=18, like="pytorch/pytorch#78807")
def fused_adam_does_not_keep_the_maximum(right, x, max_exp_avg_sqs, amsgrad):
    """option: the greatest second moment of amsgrad is used in its step and not kept."""
    maxima = max_exp_avg_sqs if amsgrad and is_single(x[0]) else []
    kept = [one.clone() for one in maxima]
    right()
    for new, old in zip(maxima, kept, strict=True):
        new.copy_(old)
