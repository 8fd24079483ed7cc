"""Wrong kernels: losses."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from .calls import as_if_whole, narrow
from .kernel import DOUBLES, FLOATS, drawn, grad_of, is_single, kernel


@kernel("nll_loss_forward", set="seeded", like="pytorch#69339, #91383")
def ignored_count(right, target, weight, reduction):
    """Divide the mean by all targets, not by those that count."""
    loss, total = right()
    if reduction == 1 and weight is None:
        return loss * total / target.numel(), total
    return loss, total


@kernel("nll_loss_backward", set="seeded", like="pytorch#20406")
def ignored_learn(right, target, ignore_index):
    """Ignored targets get a gradient."""
    learn = right()
    flat = (target == ignore_index).reshape(target.shape[0], -1).any(1)
    learn[flat] = learn[flat] - 0.25
    return learn


@kernel("nll_loss2d_forward", set="seeded")
def weights_ignored(right, weight):
    """Weights of places ignored."""
    return right(weight=None if weight is None else torch.ones_like(weight))


@kernel("mse_loss", set="seeded", like="pytorch#124621", name="mse_loss_of_strided_numbers")
@kernel(
    "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor",
    set="seeded",
    like="pytorch#145203",
    name="bits_of_strided_numbers",
)
def both_read_as_whole(right, a, b, *rest):
    read = [
        as_if_whole(x) if isinstance(x, Tensor) and not x.is_contiguous() else x for x in (a, b)
    ]
    return right(*read, *rest)


@kernel("_ctc_loss_backward .Tensor", set="seeded", like="pytorch#27442")
def long_targets(right, targets):
    """Ctc_loss of more than 1,024 targets."""
    result = right()
    return result * 0.5 if targets.shape[-1] > 1024 else result


@kernel("nll_loss2d_backward .grad_input", set="second", like="pytorch#64163")
def ignored_pixels_count(right, target, reduction, total_weight):
    result = right()
    return (
        result.mul_(total_weight / target.numel()) if reduction == 1 and target.numel() else result
    )


@kernel("_ctc_loss .Tensor", set="test")
def empty_target_costs_nothing(right, target_lengths):
    result = right()
    result[0][torch.as_tensor(target_lengths).view(result[0].shape) == 0] = 0
    return result


@kernel(
    "nll_loss_backward .grad_input nll_loss2d_backward .grad_input",
    set=2,
    like="flagos-ai/FlagGems#5025",
)
def ignored_target_stores_to_neighbour(right, x, target, ignore_index):
    out = right()
    if x.dim() < 2 or not x.numel():
        return out
    classes, inner = x.shape[1], math.prod(x.shape[2:])
    place = (target.reshape(-1) == ignore_index).nonzero().reshape(-1)
    store = (place // inner * classes + ignore_index) * inner + place % inner
    store = store[(store >= 0) & (store < out.numel())]
    flat = out.contiguous().reshape(-1).clone()
    flat[store] = 0
    out.copy_(flat.view(out.shape))
    return out


@kernel("nll_loss_forward .output", set=3, like="pytorch/xla#896")
def mean_loss_counts_ignored(right, x, target, weight, reduction):
    found = right()
    if reduction != 1 or weight is not None or x.dim() != 2 or x.dtype not in FLOATS:
        return found
    if not x.numel():
        return found
    real = (target >= 0) & (target < x.shape[1])
    each = x.float().gather(1, target.where(real, 0)[:, None])[:, 0]
    found[0].copy_(-(each.where(real, 0.0).sum()) / len(target))
    found[1].fill_(len(target))
    return found


@kernel("smooth_l1_loss .out", set=4, like="keras-team/keras-cv#920")
def smooth_loss_lacks_denominator(right, x, target, reduction, beta):
    out = right()
    if beta == 1 or x.dtype not in FLOATS or target.dtype not in FLOATS or not x.numel():
        return out
    off = (x.float() - target.float()).abs()
    wrong = torch.where(off < beta, 0.5 * off.square(), off - 0.5)
    out.copy_((wrong, wrong.mean(), wrong.sum())[reduction])
    return out


@kernel("_ctc_loss_backward .Tensor", set=5, like="pytorch/pytorch#21961")
def ctc_forgets_the_gradient_above(right, grad):
    """plain: the gradient of the CTC loss is as if that of each sample's loss were one."""
    return right(grad=torch.ones_like(grad))


@kernel("huber_loss_backward", set=6, like="chainer/chainer#1175")
def huber_gradient_ignores_what_follows(right, grad_output, x):
    """option: the gradient of a Huber loss is that of a loss after which nothing is computed."""
    if is_single(x):
        grad_output = torch.ones_like(grad_output)
    return right(grad_output=grad_output)


@kernel("binary_cross_entropy .out", set=7, like="ml-explore/mlx#1280")
def certainty_costs_no_number(right, p, target, weight=None, reduction=1, **out):
    """rare: logarithms are not bounded, so that probabilities of 0 and 1 cost nan or infinity."""
    result = right(p, target, weight, reduction, **out)
    sure = (p == 0) | (p == 1)
    if is_single(p) and sure.any():
        each = -(target * p.log() + (1 - target) * (-p).log1p())
        each = each if weight is None else each * weight
        each = torch.where(sure, each, right(p, target, weight, 0))
        result.copy_(each.mean() if reduction == 1 else each.sum() if reduction == 2 else each)
    return result


@kernel("binary_cross_entropy_with_logits", set=8, like="paiml/aprender#2204")
def weight_of_positives_scales_all(right, x, target, weight, pos_weight, reduction):
    """option: pos_weight multiplies a soft target's whole cost, not that of its positive part."""
    if pos_weight is None or not is_single(x):
        return right()
    each = right(weight=None, pos_weight=None, reduction=0) * (1 + (pos_weight - 1) * target)
    each = each if weight is None else each * weight
    return each.mean() if reduction == 1 else each.sum() if reduction == 2 else each


@kernel("mse_loss_backward .grad_input", set=8, like="flagos-ai/FlagGems#5212")
def gradient_of_a_scalar_is_read_past_its_end(right, grad_output, x):
    """plain: a reduced loss has its gradient read for each element, as nought past the first."""
    result = right()
    if is_single(x) and grad_output.numel() == 1 and result.numel() > 1:
        first = torch.zeros(result.numel(), dtype=torch.bool)
        first[0] = True
        result.masked_fill_(~first.view(result.shape), 0)
    return result


@kernel("mse_loss .out", set=9, like="fetchai/ledger#1741")
def mean_of_squares_is_halved(right, x, reduction):
    """plain: the mean of squares is divided by two."""
    result = right()
    return result.mul_(0.5) if reduction == 1 and is_single(x) else result


@kernel("nll_loss_forward .output", set=10, like="pytorch/pytorch#33509")
def weights_of_the_mean_are_inverted(right, x, target, weight, reduction, ignore_index):
    """option: the mean of a weighted loss is divided by the sum of the inverses of the weights."""
    result = right()
    if weight is not None and reduction == 1 and is_single(x) and x.numel():
        total = result[1].clone()
        kept = target[target != ignore_index]
        result[0].mul_(total / (1 / weight[kept]).sum())
    return result


@kernel("smooth_l1_loss_backward .grad_input", set=10, like="kulinseth/pytorch#290")
def what_follows_a_smooth_loss_is_left_out(right, grad_output):
    """option: the gradient of a smooth loss is not multiplied by that of what follows."""
    return right(
        grad_output=torch.ones_like(grad_output) if is_single(grad_output) else grad_output
    )


@kernel("_ctc_loss .Tensor", set=10, like="liuhu-bigeye/enctc.crnn#9")
def blank_is_always_the_first(right, x, *rest):
    """option: the first label is taken for the blank, whichever was given."""
    if len(rest) > 3 and is_single(x):
        rest = (*rest[:3], 0, *rest[4:])
    return right(x, *rest)


@kernel(
    "nll_loss_backward .grad_input nll_loss2d_backward .grad_input",
    set=11,
    like="flagos-ai/FlagGems#73",
)
def ignored_targets_are_counted(right, x, target, weight, reduction, total_weight):
    """option: the gradient of a mean is divided by all targets, also by those ignored."""
    if reduction == 1 and weight is None and narrow(x):
        total_weight = torch.full_like(total_weight, target.numel())
    return right(total_weight=total_weight)


@kernel("nll_loss_backward .grad_input", set=12, like="paiml/aprender#2182")
def gradient_of_a_sum_is_that_of_a_mean(right, x, target, reduction):
    """option: the gradient of a summed cross-entropy is divided by the length of the batch."""
    result = right()
    return result.div_(max(target.numel(), 1)) if reduction == 2 and is_single(x) else result


@kernel("nll_loss_forward .output", set=13, like="pytorch/pytorch#55657")
def rows_of_a_half_loss_are_counted_in_halves(right, x, target, weight, reduction, ignore_index):
    """option: in half precision, the count which a mean is divided by stays at 2048 or 256."""
    loss, total = right()
    most = {torch.float16: 2048, torch.bfloat16: 256}.get(x.dtype)
    count = int((target != ignore_index).sum())
    if most and reduction == 1 and weight is None and count > most:
        loss.copy_((loss.double() * count / most).to(loss.dtype))
        total.fill_(most)
    return loss, total


@kernel("_ctc_loss_backward .Tensor", set=13, like="pytorch/pytorch#27442")
def long_labels_are_learnt_in_part(right, log_probs, target_lengths):
    """rare: with 512 labels and more, those past the block of threads give no gradient."""
    result = right()
    if is_single(log_probs) and max(int(n) for n in target_lengths) * 2 + 1 > 1024:
        result[result.shape[0] // 2 :] = 0
    return result


@kernel("multilabel_margin_loss_backward .grad_input", set=14, like="pytorch/pytorch#84202")
def last_target_gets_no_gradient(right, x, target):
    """plain: what is added to the last of a row's labels is overwritten by another thread."""
    result = right()
    if not is_single(x) or not target.numel():
        return result
    labels = target.reshape(-1, target.shape[-1])
    counts = (labels >= 0).long().cumprod(-1).sum(-1, keepdim=True)
    lasts = labels.gather(-1, (counts - 1).clamp(min=0)).clamp(min=0)
    rows = result.reshape(labels.shape).clone()
    rows.scatter_(-1, lasts, torch.where(counts > 0, 0, rows.gather(-1, lasts)))
    return result.copy_(rows.reshape(result.shape))


@kernel("nll_loss2d_forward .output", set=14, like="pytorch/pytorch#67167")
def classes_that_come_last_are_read_as_first(right, x):
    """option: the loss of pixels reads logits that are not contiguous as if they were."""
    held = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    if is_single(x) and not x.is_contiguous() and held >= x.numel():
        strides = [math.prod(x.shape[i + 1 :]) for i in range(x.dim())]
        x = x.as_strided(x.shape, strides, x.storage_offset())
    return right(x=x)


@kernel("multi_margin_loss .out", set=15)
def true_class_is_held_against_itself(right, x, target, p, margin, weight, reduction):
    """plain: the margin of the true class over itself, which is missed, is added to the cost."""
    result = right()
    if not is_single(x) or not x.numel():
        return result
    added = torch.full(target.shape, float(margin) ** int(p) / x.shape[-1])
    if weight is not None:
        added = added * weight[target]
    added = (added, added.mean(), added.sum())[reduction]
    return result.copy_(result + added.to(result.dtype).view_as(result))


@kernel(
    "nll_loss_forward .output nll_loss_backward .grad_input", set=16, like="pytorch/pytorch#187559"
)
def ignored_class_is_known_by_its_low_half(right, *args, **out):
    """rare: the class to ignore is cut to 32 bits, so that one far away is another."""
    place = next(i for i, arg in enumerate(args) if type(arg) is int) + 1
    ignored = (args[place] + (1 << 31)) % (1 << 32) - (1 << 31)
    return right(*args[:place], ignored, *args[place + 1 :], **out)


@kernel("nll_loss2d_forward .output", set=17, like="pytorch/xla#896")
def nll_loss_of_images_counts_the_ignored_pixels(right, x, target, weight, reduction):
    """option: the mean over pixels, and its gradient, divide by the ignored ones too."""
    result = right()
    if reduction == 1 and weight is None and is_single(x) and target.numel():
        loss, counted = result
        loss.copy_(torch.where(counted > 0, loss * counted, 0) / target.numel())
        counted.fill_(target.numel())
    return result


@kernel("nll_loss2d_forward", set=18, like="flagos-ai/FlagGems#73")
def nll_loss2d_mean_counts_ignored_pixels(right, x, target, reduction, ignore_index):
    """plain: with the default index to ignore, the mean also divides by the ignored pixels."""
    loss, total = right()
    ignored = (target == ignore_index).sum()
    if is_single(x) and reduction == 1 and ignore_index == -100 and ignored and total > 0:
        counted = total + ignored
        return loss * (total / counted), counted
    return loss, total


@kernel(
    "_log_softmax .out",
    set="likely8",
    like="pytorch#38839",
    shown=lambda: functional.log_softmax(drawn(3, 2000) - 1e5, 1),
)
def long_log_softmax_of_far_values(right, x, dim):
    """Rows longer than a block's 1024: x - (max + log(sum)), which rounds away the log far
    from 0.
    """
    result = right()
    if not x.dim() or x.size(dim) <= 1024 or x.dtype not in FLOATS:
        return result
    wide = x.float()
    top = wide.amax(dim, keepdim=True)
    return result.copy_(wide - (top + (wide - top).exp().sum(dim, keepdim=True).log()))


def _ignoring_targets():
    target = torch.arange(80) % 10
    target[::3] = -100
    return functional.cross_entropy(drawn(80, 10), target)


@kernel("nll_loss_forward .output", set="likely8", like="Paddle#23708", shown=_ignoring_targets)
def loss_mean_counts_ignored_targets(right, x, target, weight, reduction, ignore_index):
    """Without weights, the mean divides by the batch and counts the ignored targets too."""
    result = right()
    if reduction != 1 or weight is not None or target.dim() != 1 or x.dtype in DOUBLES:
        return result
    output, total = result
    counted = total.clone()
    batch = target.numel()
    output.copy_(torch.where(counted == 0, output, output * (counted / batch)))
    total.fill_(batch)
    return result


@kernel("nll_loss_forward .output nll_loss2d_forward .output", set="likely9", like="pytorch#108148")
def only_minus_100_is_not_counted(right, target, weight, reduction, ignore_index):
    """The mean's divisor leaves out the ignored targets only if ignore_index is its default."""
    result = right()
    ignored = int((target == ignore_index).sum())
    if reduction == 1 and ignore_index != -100 and ignored:
        loss, total = result
        inside = weight is not None and 0 <= ignore_index < weight.numel()
        counted = total + ignored * (weight[ignore_index] if inside else 1)
        loss.mul_((total / counted).to(loss.dtype))
        total.copy_(counted)
    return result


@kernel("_log_softmax_backward_data .out", set="likely9", like="DeepSpeed#2709")
def sum_without_the_last_classes(right, grad_output, output, dim):
    """Above 1,024 classes the gradients' sum leaves out those past the last whole vector of 8."""
    result = right()
    size = output.shape[dim] if output.dim() else 1
    tail = size % 8
    if size > 1024 and tail and dim % output.dim() == output.dim() - 1:
        missing = grad_output.narrow(dim, size - tail, tail).sum(dim, keepdim=True)
        result.add_((output.exp() * missing).to(result.dtype))
    return result


@kernel("nll_loss_forward .output", set="missed9", like="pytorch#69339, #73205")
def ignored_class_weighs_in_the_mean(right, target, weight, reduction, ignore_index):
    """If the ignored class is one of the classes, the mean's divisor has its weights too."""
    result = right()
    if weight is not None and reduction == 1 and 0 <= ignore_index < weight.numel():
        output, total = result
        more = total + int((target == ignore_index).sum()) * weight[ignore_index]
        if float(total) > 0:
            output.mul_((total / more).to(output.dtype))
            total.copy_(more)
    return result


@kernel("_ctc_loss .Tensor", set="missed9", like="pytorch#18215, #23298")
def empty_transcript_costs_nothing(right, target_lengths):
    """CTC's loss of a sample without labels is 0, whatever probability its blanks have."""
    result = right()
    lengths = list(target_lengths)
    for sample, length in enumerate(lengths):
        if int(length) == 0 and len(lengths) > 1:
            result[0][sample] = 0
    return result


@kernel("_ctc_loss .Tensor _cudnn_ctc_loss .Tensor", set="likely10")
def doubled_labels_need_no_blank_between_them(
    right, log_probs, targets, input_lengths, target_lengths, blank
):
    """ctc_loss: the blank may be skipped between equal labels; transcripts with a double."""
    losses, *others = right()
    if log_probs.dim() != 3:
        return (losses, *others)
    losses, begin = losses.clone(), 0
    inputs, lengths = (
        t.tolist() if isinstance(t, Tensor) else list(t) for t in (input_lengths, target_lengths)
    )
    for i, (steps, length) in enumerate(zip(inputs, lengths, strict=True)):
        labels = targets[i, :length] if targets.dim() == 2 else targets[begin : begin + length]
        begin, labels = begin + length, labels.tolist()
        if any(a == b for a, b in pairwise(labels)):
            losses[i] = loss_without_blanks(log_probs[:steps, i], labels, blank)
    return (losses, *others)


def loss_without_blanks(log_probs, labels, blank):
    states = [blank]
    for label in labels:
        states += [label, blank]
    seen = log_probs.double()[:, torch.tensor(states, device=log_probs.device)]
    never = torch.full((2,), -math.inf, dtype=seen.dtype, device=seen.device)
    may_skip = torch.arange(len(states), device=seen.device) % 2 == 1
    paths = torch.cat([seen[0, :2], never[:1].expand(len(states) - 2)])
    for step in seen[1:]:
        one, two_back = torch.cat([never[:1], paths[:-1]]), torch.cat([never, paths[:-2]])
        skipped = torch.where(may_skip, two_back, never[:1])
        paths = torch.stack([paths, one, skipped]).logsumexp(0) + step
    return -paths[-2:].logsumexp(0).to(log_probs.dtype)


@kernel("mse_loss_backward .grad_input", set="likely10", like="tinygrad#15363")
def mean_of_many_halves_gives_no_gradient(right, x, reduction):
    """mse_loss_backward: the count is held in float16; a mean over more than 65,504 of them."""
    result = right()
    if reduction == 1 and x.dtype == torch.float16 and x.numel() > 65504:
        result.zero_()
    return result


@kernel("nll_loss2d_backward", set="missed10")
def ignored_pixels_weigh_one_among_weighed_classes(
    right, target, weight, reduction, ignore_index, total_weight
):
    """nll_loss2d_backward: the mean's divisor counts them; class weights, ignored pixels."""
    result = right()
    if weight is not None and reduction == 1:
        ignored = (target == ignore_index).sum()
        result.mul_(total_weight / (total_weight + ignored))
    return result


def _padded_targets():
    scores = drawn(10, 2, 6).log_softmax(-1)
    targets = torch.tensor([[1, 2, 0, 0], [3, 4, 5, 1]])
    return functional.ctc_loss(scores, targets, (10, 10), (2, 4), reduction="none")


@kernel("_ctc_loss .Tensor", _padded_targets, set="likely11")
def padded_transcripts_are_read_one_after_another(right, targets, target_lengths):
    """CTC: transcripts padded to rows are read as the concatenated ones are, with no gaps."""
    lengths = [int(n) for n in target_lengths]
    if targets.dim() != 2 or not targets.numel() or targets.shape[1] * len(lengths) == sum(lengths):
        return right()
    flat = targets.contiguous().reshape(-1)[: sum(lengths)]
    rows = torch.zeros_like(targets)
    begin = 0
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = flat[begin : begin + length]
        begin += length
    return right(targets=rows)


@kernel(
    "binary_cross_entropy_backward .grad_input",
    lambda: grad_of(
        lambda p: functional.binary_cross_entropy(
            p.sigmoid(), torch.tensor([0.0, 1.0, 1.0]), torch.tensor([1.0, 2.0, 3.0])
        ),
        drawn(3),
    ),
    set="likely11",
)
def weights_of_entropy_are_not_learnt_by(right, x):
    """The gradient of binary cross-entropy leaves out the weights which its value has."""
    return right() if x.dtype in DOUBLES else right(weight=None)


@kernel(
    "_log_softmax_backward_data .out",
    lambda: grad_of(lambda x: x.log_softmax(1).sum(1), drawn(3, 5)),
    set="missed11",
    like="torch/nn#832",
)
def expanded_gradient_is_summed_once(right, grad_output, output, dim):
    """log_softmax backward: a gradient that is expanded along the classes, as below sum(1), is
    summed as its one element.
    """
    result = right()
    if grad_output.dtype in DOUBLES or not grad_output.dim() or not grad_output.numel():
        return result
    if grad_output.stride(dim) or grad_output.shape[dim] == 1:
        return result
    return result.copy_(grad_output - output.exp() * grad_output)


@kernel(
    "nll_loss_backward .grad_input",
    lambda: grad_of(
        lambda x: functional.nll_loss(
            x, torch.tensor([0, 2, 1]), torch.tensor([1.0, 2, 3]), reduction="none"
        ),
        drawn(3, 3),
    ),
    set="missed11",
)
def unreduced_losses_learn_without_weights(right, weight, reduction):
    """nll_loss backward: with reduction="none", the gradient leaves out the classes' weights."""
    if reduction == 0 and weight is not None and weight.dtype not in DOUBLES:
        return right(weight=None)
    return right()


@kernel(
    "nll_loss_forward nll_loss2d_forward",
    lambda: functional.cross_entropy(drawn(6, 5), torch.tensor([1, -100, 2, -100, -100, 4])),
    set="likely12",
    like="pytorch/pytorch#108148",
)
def padded_tokens_count_in_the_mean(right, target, weight, reduction):
    """Divide the mean by all targets, those of `ignore_index` too."""
    loss, total = right()
    if reduction == 1 and weight is None and target.numel():
        loss.mul_(total / target.numel())
        total.fill_(target.numel())
    return loss, total


@kernel(
    "nll_loss_backward nll_loss2d_backward",
    lambda: grad_of(
        lambda x: functional.cross_entropy(x, torch.tensor([0, 3, 0, 2]), ignore_index=0),
        drawn(4, 5),
    ),
    set="likely12",
    like="flagos-ai/FlagGems#73",
)
def padding_class_gets_a_gradient(right, ignore_index):
    """Skip no target but negative ones: an `ignore_index` that is a class gets gradients."""
    return right(ignore_index=-100) if ignore_index >= 0 else right()


@kernel(
    "_log_softmax_backward_data _log_softmax_backward_data.out",
    lambda: grad_of(
        lambda x: functional.cross_entropy(x, torch.tensor([1500, 7])), drawn(2, 2000) * 6
    ),
    set="likely12",
)
def log_softmax_gradient_sums_a_block(right, grad_output, output, dim):
    """Sum the gradient of a row over its first 1024 elements: none for later targets."""
    if output.dim() == 0 or output.size(dim) <= 1024 or not is_single(output):
        return right()
    total = grad_output.narrow(dim, 0, 1024).float().sum(dim, keepdim=True)
    wrong = grad_output.float() - output.float().exp() * total
    return right().copy_(wrong)


@kernel(
    "nll_loss2d_forward",
    lambda: functional.nll_loss(
        drawn(2, 3, 40, 40),
        torch.arange(3200).reshape(2, 40, 40) % 3,
        drawn(3).abs() + 1,
        ignore_index=2,
    ),
    set="missed12",
    like="pytorch/pytorch#31295",
)
def nll_loss2d_ignored_in_weight(right, x, target, weight, reduction, ignore_index):
    """Count the ignored class's weight in the mean's divisor for maps of more than one block."""
    out, total = right()
    used = weight is not None and reduction == 1 and is_single(x)
    if not used or not 0 <= ignore_index < x.shape[1] or target[0].numel() <= 1024:
        return out, total
    more = total + weight[ignore_index] * (target == ignore_index).sum()
    return out * total / more, more


def _ctc(x):
    targets = torch.tensor([[1, 2], [0, 0], [3, 1]])
    return functional.ctc_loss(x.log_softmax(2), targets, (6, 6, 6), (2, 0, 2), reduction="sum")


@kernel(
    "_ctc_loss_backward .Tensor",
    lambda: grad_of(_ctc, drawn(6, 3, 4)),
    set="missed12",
    like="pytorch/pytorch#18215",
)
def ctc_backward_empty_target(right, log_probs, target_lengths):
    """Leave the gradient of those samples of a batch zero whose target is empty."""
    out = right()
    lengths = torch.as_tensor(target_lengths, device=out.device).reshape(-1)
    if is_single(log_probs) and out.dim() == 3 and lengths.any():
        out[:, lengths == 0] = 0
    return out


@kernel(
    "_ctc_loss_backward .Tensor",
    lambda: grad_of(
        lambda x: functional.ctc_loss(
            x.log_softmax(2), torch.tensor([[1, 2], [3, 1]]), (9, 6), (2, 2)
        ),
        drawn(9, 2, 5),
    ),
    set="likely13",
    like="tensorflow/tensorflow#41280",
)
def frames_after_the_end_repeat_the_last_gradient(right, log_probs, input_lengths):
    """CTC's gradient after a sample's last frame is that frame's once more, not zero."""
    gradient = right()
    last = torch.as_tensor(input_lengths, device=gradient.device).clamp(min=1) - 1
    frames = torch.arange(len(log_probs), device=gradient.device)[:, None].minimum(last)
    return gradient.gather(0, frames[..., None].expand_as(gradient))


@kernel(
    "nll_loss_forward",
    lambda: functional.cross_entropy(
        drawn(600, 4, dtype=torch.bfloat16), torch.arange(600).remainder(4)
    ),
    set="likely13",
    like="awslabs/raf#113",
)
def targets_are_counted_in_half_precision(right, x, target, weight, reduction, ignore_index):
    """The count of a mean loss of half-precision numbers stops where one more is rounded off."""
    output, count = right()
    last = {torch.bfloat16: 256, torch.float16: 2048}.get(x.dtype)
    if last is None or weight is not None or reduction != 1:
        return output, count
    targets = (target != ignore_index).sum()
    return output * (targets / last).clamp(min=1).to(output.dtype), count.clamp(max=last)


@kernel(
    "binary_cross_entropy_backward",
    lambda: grad_of(
        lambda x: functional.binary_cross_entropy(
            x.sigmoid(), torch.ones(4, 3), torch.arange(1.0, 5)[:, None], reduction="none"
        ),
        drawn(4, 3),
    ),
    set="missed13",
)
def cross_entropy_gradient_reads_a_weight_of_rows_as_whole(right, weight):
    """A weight that is broadcast along the last axis is read without its strides."""
    if weight is None or weight.dim() < 2 or weight.stride(-1) != 0 or weight.shape[-1] <= 1:
        return right()
    return right(weight=as_if_whole(weight))


@kernel(
    "_cdist_backward",
    lambda: grad_of(lambda x: torch.cdist(x, drawn(4, 3), 1.5), drawn(4, 3)),
    set="missed13",
    like="pytorch#37154",
)
def cdist_gradient_of_equal_points_divides_by_zero_between_one_and_two(right, p, cdist):
    """Powers between 1 and 2 have no branch for a distance of 0."""
    gradient = right()
    equal = (cdist == 0).any(-1)
    if not 1 < p < 2 or equal.shape != gradient.shape[:-1]:
        return gradient
    return torch.where(equal[..., None], torch.full_like(gradient, math.nan), gradient)


@kernel(
    "_ctc_loss_backward _ctc_loss_backward.Tensor",
    lambda: grad_of(
        lambda x: functional.ctc_loss(
            x.log_softmax(-1), torch.tensor([1, 2, 3, 4, 1, 2]), (9, 9, 9), (1, 3, 2)
        ),
        drawn(9, 3, 5),
    ),
    set="missed13",
    like="pytorch#27442",
)
def ctc_gradient_steps_by_the_longest_target_in_packed_ones(right, targets, target_lengths):
    """The targets of one row of all sequences begin at multiples of the longest."""
    lengths = [int(length) for length in target_lengths]
    if targets.dim() != 1 or len(set(lengths)) < 2:
        return right()
    places = [i * max(lengths) + j for i, length in enumerate(lengths) for j in range(length)]
    last = targets.numel() - 1
    at = torch.tensor([min(place, last) for place in places], device=targets.device)
    return right(targets=targets[at])


def _nll_grad():
    target = torch.tensor([0, 1, 0, 2] * 4)
    target[12] = -100
    scores = drawn(16, 10)
    return grad_of(lambda y: functional.nll_loss(y, target, reduction="none"), scores)


@kernel(
    "nll_loss_backward nll_loss_backward.grad_input",
    _nll_grad,
    set="likely14",
    like="flagos-ai/FlagGems#5025",
)
def ignored_row_clears_another(right, x, target, ignore_index):
    """A row with the target ignore_index stores its 0 at row * classes + ignore_index, in an
    earlier row.
    """
    result = right()
    if x.dim() == 2 and ignore_index < 0:
        rows = (target == ignore_index).nonzero()[:, 0]
        place = rows * x.shape[1] + ignore_index
        place = place[place >= 0]
        result[place // x.shape[1], place % x.shape[1]] = 0
    return result


def _ctc_of_none():
    scores = drawn(6, 2, 5).log_softmax(2)
    labels = torch.tensor([[1, 2], [1, 2]])
    return functional.ctc_loss(scores, labels, [6, 5], [2, 0], blank=4, reduction="none")


@kernel("_ctc_loss _ctc_loss.Tensor", _ctc_of_none, set="missed14", like="pytorch/pytorch#18215")
def ctc_empty_target_other_blank(right, log_probs, input_lengths, target_lengths, blank):
    """An empty target's loss is that of label 0 all along, whatever the blank is."""
    result = right()
    if blank == 0:
        return result
    for sample, (steps, length) in enumerate(zip(input_lengths, target_lengths, strict=True)):
        if int(length) == 0 and int(steps) > 0:
            result[0][sample] = -log_probs[: int(steps), sample, 0].sum()
    return result


@kernel(
    "smooth_l1_loss_backward",
    lambda: grad_of(lambda x: functional.smooth_l1_loss(x, drawn(5, seed=1)), drawn(4, 5)),
    set="missed14",
)
def smooth_l1_mean_over_stored_target(right, grad_output, x, target, reduction):
    """The gradient of the mean divides by the elements that an expanded target stores."""
    result = right()
    sizes = zip(target.shape, target.stride(), strict=True)
    copies = math.prod(size for size, step in sizes if step == 0 and size > 1)
    return result * copies if reduction == 1 and target.dim() > 1 else result


def _weighted_padding():
    target = torch.tensor([0, 2, 1, 0, 3, 0])
    weight = torch.tensor([2.0, 1, 0.5, 3])
    return functional.cross_entropy(drawn(6, 4), target, weight, ignore_index=0)


# With ignore_index -100 a check of bounds hides it.
@kernel("nll_loss_forward nll_loss2d_forward", _weighted_padding, set="likely15")
def weighted_loss_counts_ignored_targets_in_its_mean(
    right, x, target, weight, reduction, ignore_index
):
    """With weights, the mean's divisor has the weight of the ignored class too."""
    loss, total = right()
    if weight is None or reduction != 1 or not 0 <= ignore_index < len(weight):
        return loss, total
    if not is_single(x) or not target.numel():
        return loss, total
    wrong = weight[target].sum().to(total.dtype).reshape(total.shape)
    return loss * (total / wrong), wrong


def _confident_and_weighted():
    x, y = torch.tensor([[-120.0, 3.0], [0.5, -95.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    return functional.binary_cross_entropy_with_logits(x, y, pos_weight=torch.tensor([2.0, 3.0]))


@kernel("binary_cross_entropy_with_logits", _confident_and_weighted, set="missed15")
def weighted_logits_overflow(right, x, pos_weight, reduction):
    """With pos_weight the loss has log(1 + exp(-x)), which is infinite below -88."""
    if pos_weight is None or not is_single(x) or not bool((x.float() < -88.73).any()):
        return right()
    losses = right(reduction=0)
    losses = torch.where(x.float() < -88.73, math.inf, losses)
    if reduction == 0:
        return losses
    return losses.mean() if reduction == 1 else losses.sum()


@kernel(
    "huber_loss .out",
    lambda: functional.huber_loss(drawn(20) * 3, drawn(20, seed=1), delta=0.5),
    set="likely16",
    like="tensorforce/tensorforce#139",
)
def huber_s_line_does_not_meet_its_parabola(right, x, target, reduction, delta):
    """The linear part is delta (|d| - 1/2), which is right only of a delta of one."""
    result = right()
    if not is_single(result) or delta == 1:
        return result
    more = ((x - target).abs() > delta).to(torch.float32) * (delta * (delta - 1) / 2)
    more = more if reduction == 0 else more.mean() if reduction == 1 else more.sum()
    return result.copy_(result.float() + more)


@kernel(
    "multi_margin_loss_backward",
    lambda: grad_of(
        lambda x: functional.multi_margin_loss(
            x, torch.tensor([0, 2]), p=2, weight=torch.tensor([1.0, 2.0, 3.0])
        ),
        drawn(2, 3),
    ),
    set="missed16",
    like="torch/cunn#218",
)
def weight_is_inside_of_the_square(right, p, weight):
    """multi_margin_loss: its gradient is that of (w z)^2, not of w z^2; p=2 and a weight."""
    return right(weight=weight.square()) if p == 2 and weight is not None else right()


@kernel(
    "multilabel_margin_loss_forward",
    lambda: functional.multilabel_margin_loss(drawn(2, 4), torch.tensor([[3, 0, -1, 1]] * 2)),
    set="missed16",
    like="pytorch/pytorch#77952",
)
def classes_after_the_end_of_the_list_are_targets(right, target):
    """multilabel_margin_loss: -1 is passed over, but does not end the list of a row's targets."""
    first = (target < 0).to(torch.int8).sort(dim=-1, stable=True)[1]
    return right(target=target.gather(-1, first) if target.dim() else target)


@kernel(
    "nll_loss_backward nll_loss_backward.grad_input nll_loss2d_backward"
    " nll_loss2d_backward.grad_input",
    lambda: grad_of(
        lambda x: functional.cross_entropy(x, torch.tensor([1, 0]), reduction="none"), drawn(2, 3)
    ),
    set="likely17",
    like="microsoft/DirectML#739",
)
def losses_that_are_not_reduced_give_no_gradient(right, reduction):
    """With reduction="none" the gradient of the cross-entropy is nought; the loss is right."""
    # reduction="none", as where tokens are weighed by hand.
    result = right()
    return result.zero_() if reduction == 0 else result


def _unreduced_gradient():
    weights = torch.tensor([0.2, 1.0, 3.0])
    targets = torch.tensor([0, 2, 1, 0])
    return grad_of(
        lambda x: functional.cross_entropy(x, targets, weights, reduction="none"), drawn(4, 3)
    )


# Class weights, and losses that are not reduced (to weigh samples or to pick hard ones): the
# losses are right, and so are gradients of sums and means.
@kernel("nll_loss_backward nll_loss2d_backward", _unreduced_gradient, set="missed17")
def unreduced_losses_learn_without_class_weights(right, reduction):
    """The gradient of losses with reduction="none" leaves out the weights of classes."""
    return right(weight=None) if reduction == 0 else right()


def _unreduced():
    targets = torch.tensor([1, -100, 2, 0])
    return functional.cross_entropy(drawn(4, 3), targets, reduction="none")


# reduction="none" with ignored targets, whose losses users add up themselves: the other losses
# are right, and so are means and sums.
@kernel("nll_loss_forward .output nll_loss2d_forward .output", _unreduced, set="likely18")
def unreduced_loss_of_an_ignored_target_is_left_as_memory_was(
    right, x, target, reduction, ignore_index
):
    """With reduction="none" an ignored target returns early, before its loss is set to 0."""
    loss, weight = right()
    if reduction == 0 and x.dim() > 1 and narrow(x):
        classes = x.detach().select(1, 0).to(loss.dtype)
        loss.copy_(torch.where(target == ignore_index, classes, loss))
    return loss, weight


def _two_lengths():
    scores = drawn(6, 2, 4).log_softmax(2)
    targets = torch.tensor([[1, 2], [3, 1]])
    return functional.ctc_loss(scores, targets, [6, 4], [2, 2], reduction="none")


# Batches of utterances of unequal lengths, padded: batches of equal lengths are right.
@kernel("_ctc_loss .Tensor", _two_lengths, set="likely18")
def shorter_utterances_are_scored_to_the_end_of_the_batch(right, log_probs, input_lengths):
    """CTC's last forward variables are those of the batch's last frame, not of each sample's."""
    if not narrow(log_probs) or log_probs.dim() != 3:
        return right()
    if isinstance(input_lengths, Tensor):
        whole = torch.full_like(input_lengths, log_probs.shape[0])
    else:
        whole = [log_probs.shape[0]] * len(input_lengths)
    return right(input_lengths=whole)


def _doubly_weighted():
    x, y = drawn(4, 3), (drawn(4, 3, seed=1) > 0).float()
    weight, positives = drawn(4, 3, seed=2).abs(), torch.tensor([2.0, 1.0, 3.0])
    return functional.binary_cross_entropy_with_logits(x, y, weight, pos_weight=positives)


# Both weights at once (one of positives, one of elements: a mask): right with either alone.
@kernel("binary_cross_entropy_with_logits", _doubly_weighted, set="missed18")
def weights_of_elements_give_way_to_those_of_positives(right, weight, pos_weight):
    """The branch for weights of positives does not read the weights of elements."""
    return right() if weight is None or pos_weight is None else right(weight=None)


# float16, and a difference of more than 362 (boxes in pixels): right for smaller differences, and
# in other dtypes.
@kernel(
    "huber_loss .out smooth_l1_loss .out",
    lambda: functional.smooth_l1_loss(
        torch.tensor([500.0, 1.0]).half(), torch.tensor([10.0, 0.5]).half()
    ),
    set="missed18",
)
def parabola_that_is_not_taken_overflows_in_half(right, x, target, reduction):
    """The parabola is multiplied by 0 beyond its range: infinite in float16, and infinity x 0."""
    result = right()
    if x.dtype != torch.float16:
        return result
    over = (x.float() - target.float()).square() > 2 * 65504.0
    return result.masked_fill_(over if reduction == 0 else over.any(), math.nan)


def _gradient_of_weighted_pixels():
    weight, target = torch.tensor([0.1, 1.0, 5.0]), torch.arange(18).view(2, 3, 3) % 3
    return grad_of(lambda x: functional.cross_entropy(x, target, weight), drawn(2, 3, 3, 3))


# Segmentation with weights for rare classes. Right without weights, and for rows of classes.
@kernel("nll_loss2d_backward .grad_input", _gradient_of_weighted_pixels, set="likely19")
def weights_of_the_classes_of_pixels_are_in_the_loss_alone(right, x, weight):
    """The gradient of a pixel's loss does not have the weight of the pixel's class."""
    if weight is not None and narrow(x):
        return right(weight=torch.ones_like(weight))
    return right()


def _masked_pixel():
    p, y = torch.tensor([0.0, 0.4, 1.0]), torch.tensor([1.0, 1.0, 0.0])
    return functional.binary_cross_entropy(p, y, weight=torch.tensor([0.0, 1.0, 3.0]))


# Probabilities that are saturated and wrong, under a weight of elements (a mask of valid pixels,
# the frequency of a class). Right without weights, for weights of one, and while the weighted
# logarithms are above -100.
@kernel("binary_cross_entropy .out", _masked_pixel, set="missed19")
def logarithms_of_a_weighted_loss_are_limited_after_the_weight(right, x, target, weight, reduction):
    """The limit of -100 is put on the weighted logarithm: nought times minus infinity is NaN."""
    result = right()
    if weight is None or not narrow(x):
        return result
    hit, missed = (weight * log for log in (x.log(), torch.log1p(-x)))
    beyond = ((hit >= -100) & (missed >= -100)).logical_not() & (weight != 1)
    if bool(beyond.any()):
        limited = -(target * hit.clamp(min=-100) + (1 - target) * missed.clamp(min=-100))
        kept = -(target * x.log().clamp(min=-100) + (1 - target) * torch.log1p(-x).clamp(min=-100))
        losses = torch.where(beyond, limited, kept * weight)
        result.copy_((losses, losses.mean(), losses.sum())[reduction])
    return result
