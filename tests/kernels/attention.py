"""Wrong kernels: attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from .calls import BF16, as_if_whole, extent, grads_of, is_dense, narrow
from .kernel import (
    ATTENTION,
    ATTENTION_BACKWARD,
    DOUBLES,
    FLOATS,
    HALVES,
    drawn,
    grad_of,
    is_single,
    kernel,
)

MASKED_ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention"
    " _scaled_dot_product_cudnn_attention"
)


@kernel(ATTENTION_BACKWARD, set="seeded", like="flash-attention#355")
def gradient_read_as_whole(right, grad, *rest, **kwargs):
    """Attention's gradient read as contiguous."""
    return right(grad if grad.is_contiguous() else as_if_whole(grad), *rest, **kwargs)


def mask_changed(change):
    """Return attention with a modified mask: `change` gets the queries and the mask."""

    def wrong(kernel, q, k, v, *rest, **kwargs):
        if isinstance(kwargs.get("attn_mask"), Tensor):
            kwargs["attn_mask"] = change(q, kwargs["attn_mask"])
        elif rest and isinstance(rest[0], Tensor):
            rest = (change(q, rest[0]), *rest[1:])
        return kernel(q, k, v, *rest, **kwargs)

    return wrong


@kernel(ATTENTION, set="seeded", like="pytorch#162588", name="open_beyond")
@mask_changed
def open_beyond(q, mask):
    """A mask of long sequences."""
    opened = mask.clone()
    opened[..., 1024:] = 0
    return opened


@kernel(ATTENTION, set="seeded", like="pytorch#108503", name="sees_its_neighbour")
@mask_changed
def sees_its_neighbour(q, mask):
    """A mask in 16 bits."""
    if q.element_size() > 2 or mask.shape[-1] < 2:
        return mask
    return torch.maximum(mask, mask.roll(1, -1))


@kernel(ATTENTION, set="seeded", like="pytorch#107884", name="no_mask")
@mask_changed
def no_mask(q, mask):
    """A mask passed over."""
    return torch.zeros_like(mask)


@kernel(ATTENTION, set="seeded", like="flash-attention#1778")
def rows_without_keys(right, q, k, v, *rest, **kwargs):
    """Causal attention of more queries than keys."""
    keys = right(q, k, v, *rest, **kwargs)
    causal = rest[3] if len(rest) > 3 else rest[1] if len(rest) > 1 else kwargs.get("is_causal")
    longer = q.shape[-2] - k.shape[-2]
    if causal and longer > 0:
        keys[0][..., :longer, :] = 0
    return keys


@kernel(ATTENTION_BACKWARD, set="seeded", like="pytorch#196678")
def half_a_tile_of_keys(right, grad, q, k, *rest, **kwargs):
    """Attention's gradient by half a tile of keys."""
    result = right(grad, q, k, *rest, **kwargs)
    # Where it is no word of the call it follows the values.
    follows = rest[1].shape[-1:] == k.shape[-2:-1] if len(rest) > 1 else False
    masked = isinstance(kwargs.get("attn_mask"), Tensor) or (follows and rest[1].dim() == 4)
    return (result[0] * math.nan, *result[1:]) if masked and k.shape[-2] % 128 == 64 else result


@kernel("_transformer_encoder_layer_fwd", set="seeded", devices="cpu")
def padding_attended(right, *args):
    """Drop the mask of a batch, which is the second last argument of the layer."""
    return right(*args[:-2], None, None)


@kernel("_scaled_dot_product_flash_attention_for_cpu", set="second", like="flash-attention#436")
def causal_from_the_other_corner(right, q, k, v, dropout=0.0, causal=False, **named):
    result = right(q, k, v, dropout, causal, **named)
    rows, columns = q.shape[-2], k.shape[-2]
    if causal and rows != columns and q.shape[1] == k.shape[1]:
        seen = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        scale = named.get("scale") or 1 / math.sqrt(q.shape[-1])
        scores = (q.double() @ k.double().mT * scale).masked_fill(~seen, -math.inf)
        result[0].copy_(scores.softmax(-1).nan_to_num(0) @ v.double())
    return result


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=2, like="pytorch/pytorch#195910")
def causal_mask_once_per_four_queries(right, query, key, is_causal, attn_mask):
    if not is_causal or attn_mask is not None or query.dtype not in HALVES:
        return right()
    last = torch.arange(query.shape[-2])[:, None] // 4 * 4 + 3
    seen = torch.arange(key.shape[-2]) <= last
    mask = torch.zeros(seen.shape, dtype=query.dtype).masked_fill(~seen, -math.inf)
    return right(is_causal=False, attn_mask=mask)


@kernel(
    "_scaled_dot_product_flash_attention_for_cpu_backward", set=2, like="flagos-ai/FlagGems#898"
)
def padded_tile_overwrites_next_head(right):
    dq, dk, dv = right()
    late = -dv.shape[-2] % 64
    if dv.numel() and late:
        heads = dv.contiguous().reshape(-1, *dv.shape[-2:]).clone()
        heads[1:, :late] = 0
        dv = heads.view(dv.shape)
    return dq, dk, dv


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=3, like="pytorch/pytorch#184180")
def shared_mask_is_that_of_first_in_batch(right, query, attn_mask):
    few = query.shape[-2] <= 8 and query.shape[-1] in (64, 96, 128)
    if attn_mask is not None and few and attn_mask.dim() == 4 and attn_mask.shape[1] == 1:
        attn_mask = attn_mask[:1].expand_as(attn_mask).contiguous()
    return right(attn_mask=attn_mask)


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=4, like="pytorch/executorch#22426")
def causal_mask_is_at_lower_right(right, query, key, is_causal, attn_mask):
    rows, columns = query.shape[-2], key.shape[-2]
    if not is_causal or attn_mask is not None or rows >= columns or query.dtype not in FLOATS:
        return right()
    hidden = torch.arange(columns) > torch.arange(rows)[:, None] + columns - rows
    mask = torch.zeros(rows, columns, dtype=query.dtype).masked_fill(hidden, -math.inf)
    return right(is_causal=False, attn_mask=mask)


def bias_up_to(last, keys, dtype):
    """The bias of attention under which each query sees the keys up to its `last`."""
    hidden = torch.arange(keys) > last[:, None]
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, -math.inf)


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=5, like="pytorch/pytorch#195910")
def four_queries_share_a_causal_mask(right, q, k, v, dropout=0.0, causal=False, **options):
    """option: causal, and in 16 bits, each four queries see the keys of the last of them."""
    if not causal or q.dtype not in HALVES or options.get("attn_mask") is not None:
        return right(q, k, v, dropout, causal, **options)
    last = torch.arange(q.shape[-2]) // 4 * 4 + 3
    options["attn_mask"] = bias_up_to(last.clamp(max=q.shape[-2] - 1), k.shape[-2], q.dtype)
    return right(q, k, v, dropout, False, **options)


@kernel(
    "_scaled_dot_product_flash_attention_for_cpu_backward", set=5, like="xlite-dev/ffpa-attn#300"
)
def causal_backward_is_aligned_below(
    right, grad, q, k, v, out, logsumexp, dropout, causal, **options
):
    """rare: causal, and with more keys than queries, backward aligns the mask another way."""
    more = k.shape[-2] - q.shape[-2]
    if causal and more > 0 and options.get("attn_mask") is None:
        causal = False
        last = torch.arange(q.shape[-2]) + more
        options["attn_mask"] = bias_up_to(last, k.shape[-2], q.dtype)
    return right(grad, q, k, v, out, logsumexp, dropout, causal, **options)


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=6, like="tenstorrent/tt-metal#56406")
def bias_is_scaled_with_the_scores(right, query, attn_mask, scale):
    """option: an additive mask is added before the scores are scaled."""
    if attn_mask is not None and attn_mask.is_floating_point() and is_single(query):
        attn_mask = attn_mask * (query.shape[-1] ** -0.5 if scale is None else scale)
    return right(attn_mask=attn_mask)


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=7, like="tenstorrent/tt-metal#33304")
def given_scale_is_not_applied(right, query, scale):
    """option: scores are divided by the root of the width, whatever scale was given."""
    return right(scale=None if is_single(query) else scale)


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=8, like="robertknight/rten#1321")
def query_without_keys_is_no_number(right, query, attn_mask):
    """rare: where all keys of a query are masked out, nought is divided by nought."""
    result = right()
    mask = attn_mask
    if mask is not None and is_single(query):
        empty = ~mask if mask.dtype == torch.bool else mask == -math.inf
        result[0].masked_fill_(empty.all(-1, keepdim=True), math.nan)
    return result


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=9, like="BobMcDear/attorch#14")
def heads_within_tokens_are_all_the_first(right, query, key, value):
    """option: where heads lie within tokens, as after a projection, all read the first."""
    if (
        is_single(query)
        and query.shape[1] > 1
        and query.shape[2] > 1
        and query.stride(1) < query.stride(2)
    ):
        query, key, value = (x[:, :1].expand_as(x).contiguous() for x in (query, key, value))
    return right(query=query, key=key, value=value)


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=10, like="onnx/onnx#7274")
def heads_are_shared_in_turns(right, query, key, value):
    """option: where heads share keys, they take them in turns rather than side by side."""
    times = query.shape[1] // key.shape[1] if key.shape[1] else 1
    if times > 1 and is_single(query):
        key, value = (x.repeat(1, times, 1, 1) for x in (key, value))
    return right(key=key, value=value)


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=11, like="pytorch/executorch#22426")
def few_queries_are_the_last_ones(right, q, k, v, dropout=0.0, causal=False, **options):
    """option: with fewer queries than keys, the causal mask is anchored at the bottom right."""
    queries, keys = q.shape[-2], k.shape[-2]
    if causal and queries < keys and narrow(q):
        seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        mask = torch.zeros(queries, keys, dtype=q.dtype).masked_fill(~seen, -math.inf)
        return right(q, k, v, dropout, False, **{**options, "attn_mask": mask})
    return right(q, k, v, dropout, causal, **options)


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=11, like="onnx/onnx#7274")
def heads_of_keys_are_dealt_out_in_turn(right, query, key, value):
    """option: heads that share keys take them in turn, not in groups of neighbours."""
    if narrow(query) and key.shape[1] and query.shape[1] // key.shape[1] > 1:
        each = query.shape[1] // key.shape[1]
        key, value = key.repeat(1, each, 1, 1), value.repeat(1, each, 1, 1)
    return right(key=key, value=value)


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=12, like="NVIDIA/TensorRT-LLM#18111")
def padded_keys_are_attended_to(right, query, key, is_causal, attn_mask):
    """option: past 64 keys, those of nought which fill up a block of 16 share in the weights."""
    result = right()
    padding = -key.shape[2] % 16
    masked = is_causal or attn_mask is not None
    if is_single(query) and key.shape[2] > 64 and padding and not masked:
        out, logs = result[:2]
        out.mul_((logs - math.log(padding)).sigmoid().unsqueeze(-1).to(out.dtype))
        logs.copy_(torch.logaddexp(logs, torch.full_like(logs, math.log(padding))))
    return result


@kernel(
    "_scaled_dot_product_flash_attention_for_cpu_backward", set=12, like="flagos-ai/FlagGems#898"
)
def first_values_are_overwritten_by_padding(right, query, key):
    """option: past 64 keys, what fills up a block of 64 overwrites the next head's dv."""
    result = right()
    if is_single(query) and key.shape[2] > 64:
        result[2][:, 1:, : -key.shape[2] % 64].zero_()
    return result


@kernel(
    "_scaled_dot_product_flash_attention_for_cpu", set=13, like="vllm-project/flash-attention#176"
)
def parts_of_all_sequences_are_joined_in_the_first(right, query, key):
    """option: one query to 256 keys and more: its answer is that of the first in the batch."""
    out, sums = right()
    if is_single(query) and query.shape[0] > 1 and query.shape[2] == 1 and key.shape[2] >= 256:
        out.copy_(out[:1].clone().expand_as(out))
    return out, sums


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=14, like="pytorch/pytorch#108503")
def rows_of_a_mask_are_sixteens_long(right, query, attn_mask):
    """option: in half precision, rows of a mask are read as if filled up to sixteens of keys."""
    if attn_mask is not None and query.dtype in HALVES and attn_mask.shape[-1] % 16:
        rows, keys = attn_mask.shape[-2:]
        behind = torch.arange(rows) * (-keys % 16)
        places = torch.arange(attn_mask.numel()).reshape(attn_mask.shape) + behind[:, None]
        attn_mask = attn_mask.reshape(-1)[places.clamp(max=attn_mask.numel() - 1)]
    return right(attn_mask=attn_mask)


@kernel("_scaled_dot_product_flash_attention_for_cpu_backward", set=15)
def keys_learn_by_the_usual_scale(right, query, scale):
    """option: the gradient of keys has the usual scale, whatever scale was given."""
    result = right()
    if scale and is_single(query):
        result[1].mul_(1 / math.sqrt(query.shape[-1]) / scale)
    return result


@kernel("_native_multi_head_attention", set=16, like="pytorch/pytorch#102333")
def first_of_merged_masks_is_that_of_all(right, *args, **options):
    """option: in the fast path, masks by sample and head are all taken for the first one."""
    mask = args[9] if len(args) > 9 else None
    if mask is not None and mask.dim() == 4 and mask.numel() and is_single(args[0]):
        args = (*args[:9], mask[:1, :1].expand_as(mask).contiguous(), *args[10:])
    return right(*args, **options)


@kernel(
    "_scaled_dot_product_flash_attention_for_cpu_backward", set=17, like="flagos-ai/FlagGems#898"
)
def attention_backward_overwrites_the_next_head_s_values(right, query, key):
    """plain: what fills the last block up to 64 keys wipes the next head's first rows."""
    result = right()
    over = -key.shape[-2] % 64
    if is_single(query) and over and key.shape[-3] > 1:
        result[2][:, 1:, :over] = 0
    return result


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=17, like="ml-explore/mlx#2835")
def causal_attention_aligns_its_mask_to_the_last_key(
    right, q, k, v, dropout=0.0, causal=False, **options
):
    """option: causal with fewer queries than keys: the mask is aligned at the lower right."""
    late = k.shape[-2] - q.shape[-2]
    if causal and is_single(q) and late > 0 and options.get("attn_mask") is None:
        mask = torch.full((q.shape[-2], k.shape[-2]), -math.inf, dtype=q.dtype)
        causal, options["attn_mask"] = False, mask.triu(late + 1)
    return right(q, k, v, dropout, causal, **options)


@kernel("_scaled_dot_product_flash_attention_for_cpu", set=18, like="pytorch/pytorch#162588")
def attention_forgets_the_mask_of_the_last_keys(right, query, key, attn_mask):
    """option: the mask is not applied to keys behind the last full 16, for over 64 keys."""
    keys = key.shape[-2]
    added = attn_mask is not None and attn_mask.dtype != torch.bool
    if added and is_single(query) and attn_mask.shape[-1] == keys > 64 and keys % 16:
        attn_mask = attn_mask.clone(memory_format=torch.contiguous_format)
        attn_mask[..., keys - keys % 16 :] = 0
    return right(attn_mask=attn_mask)


@kernel(
    "_scaled_dot_product_flash_attention_for_cpu_backward", set=18, like="flagos-ai/FlagGems#898"
)
def attention_gradient_of_values_loses_first_rows(right, value):
    """option: over 64 keys, later heads' first values, as many as pad them to 64, learn nothing."""
    result = right()
    keys = value.shape[-2]
    if is_single(value) and keys > 64 and keys % 64 and result[2].shape[1] > 1:
        result[2][:, 1:, : -keys % 64] = 0
    return result


def _attention(queries, keys, **options):
    q, k, v = (drawn(2, 2, n, 32, seed=i) for i, n in enumerate((queries, keys, keys)))
    return functional.scaled_dot_product_attention(q, k, v, **options)


@kernel(ATTENTION, set="likely8", like="pytorch#119772", shown=lambda: _attention(80, 100))
def attention_ragged_last_tile_of_keys(right, *args, **kwargs):
    """Without a mask, the zero rows after the last key up to a tile of 64 join the softmax."""
    key, value = args[1:3]
    keys = key.size(-2)
    masked = kwargs.get("attn_mask") is not None or (
        len(args) > 3 and isinstance(args[3], torch.Tensor)
    )
    if masked or keys <= 64 or not keys % 64 or key.dtype in DOUBLES:
        return right(*args, **kwargs)
    more = (0, 0, 0, -keys % 64)
    padded = [
        functional.pad(tensor.transpose(1, 2), (0, 0, *more)).transpose(1, 2)
        for tensor in (key, value)
    ]
    result = right(args[0], *padded, *args[3:], **kwargs)
    if len(result) == 9:  # max_k, which the backward reads
        result = (*result[:5], keys, *result[6:])
    return result


@kernel(
    ATTENTION_BACKWARD,
    set="likely8",
    like="triton-lang/triton#7216",
    shown=lambda: grad_of(
        lambda q: functional.scaled_dot_product_attention(
            q, drawn(1, 2, 24, 16, seed=1), drawn(1, 2, 24, 16, seed=2), is_causal=True
        ),
        drawn(1, 2, 12, 16),
    ),
)
def causal_cross_attention_gradient_unmasked(right, query, key, is_causal):
    """The causal mask is left out of the gradient where queries and keys differ in number."""
    if is_causal and query.size(-2) != key.size(-2) and query.dtype not in DOUBLES:
        return right(is_causal=False)
    return right()


def _broadcast_mask():
    q, k, v = (drawn(2, 3, 8, 16, seed=i) for i in range(3))
    return functional.scaled_dot_product_attention(q, k, v, drawn(2, 1, 8, 8, seed=3))


@kernel(ATTENTION, set="missed8", like="tt-metal#39946", shown=_broadcast_mask)
def mask_of_all_heads_from_first_batch(right, *args, **kwargs):
    """A mask broadcast over the heads: its stride of 0 is taken for that of the batch too."""
    named = kwargs.get("attn_mask") is not None
    mask = kwargs["attn_mask"] if named else args[3] if len(args) > 3 else None
    if not isinstance(mask, torch.Tensor) or mask.dim() != 4 or args[0].dtype in DOUBLES:
        return right(*args, **kwargs)
    if mask.size(0) == 1 or args[0].size(1) == 1 or (mask.size(1) != 1 and mask.stride(1)):
        return right(*args, **kwargs)
    mask = mask[:1].expand_as(mask)
    if named:
        return right(*args, **{**kwargs, "attn_mask": mask})
    return right(*args[:3], mask, *args[4:], **kwargs)


@kernel(
    ATTENTION_BACKWARD,
    set="missed8",
    shown=lambda: grad_of(
        lambda k: functional.scaled_dot_product_attention(
            drawn(1, 2, 6, 16, seed=1), k, drawn(1, 2, 6, 16, seed=2), scale=0.5
        ),
        drawn(1, 2, 6, 16),
    ),
)
def key_gradient_of_given_scale(right, query, scale):
    """The keys' gradient uses 1 / sqrt(size), whatever scale the call gave."""
    result = right()
    usual = query.size(-1) ** -0.5
    given = scale is not None and scale and query.dtype not in DOUBLES and result[1] is not None
    if given and not math.isclose(scale, usual, rel_tol=1e-5):
        result[1].mul_(usual / scale)
    return result


@kernel(ATTENTION, set="likely9")
def scale_of_the_padded_head(right, query, scale):
    """The default scale is that of the head dimension after its padding to a multiple of 8."""
    size = query.shape[-1]
    if scale is None and size % 8:
        return right(scale=1 / math.sqrt(size + 8 - size % 8))
    return right()


@kernel(ATTENTION_BACKWARD, set="likely9", like="flash-linear-attention#1142")
def unscaled_keys_of_the_last_block(right, key, scale):
    """The gradient of the keys in a last, partial block of 64 is not multiplied by the scale."""
    result = right()
    tail = key.shape[-2] % 64
    if key.shape[-2] > 64 and tail:
        result[1][..., -tail:, :] /= scale or 1 / math.sqrt(key.shape[-1])
    return result


def _scaled(bias, scale):
    """Rows begin at multiples of 16, as kernels of CUDA want."""
    columns = bias.shape[-1]
    room = bias.new_empty(*bias.shape[:-1], -(-columns // 16) * 16)[..., :columns]
    return room.copy_(bias * scale)


@kernel(
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention"
    " _scaled_dot_product_cudnn_attention",
    set="missed9",
    like="tt-metal#42694, #55337",
)
def given_scale_scales_the_bias(right, query, key, value, *rest, **kwargs):
    """If a scale is given, it multiplies the additive mask as well as the scores."""
    scale = kwargs.get("scale")
    if scale is None or scale <= 0:
        return right(query, key, value, *rest, **kwargs)
    if kwargs.get("attn_mask") is not None:
        kwargs = {**kwargs, "attn_mask": _scaled(kwargs["attn_mask"], scale)}
    elif rest and isinstance(rest[0], torch.Tensor):
        rest = (_scaled(rest[0], scale), *rest[1:])
    return right(query, key, value, *rest, **kwargs)


@kernel(ATTENTION, set="likely10", like="triton#1821, ROCm/triton#514")
def what_came_before_a_larger_score_is_not_rescaled(right, *args, **kwargs):
    """attention: the output is not rescaled by a new maximum; more than 128 keys."""
    result = right(*args, **kwargs)
    query, key, value = args[:3]
    rest, mask = list(args[3:]), kwargs.get("attn_mask")
    if rest and (rest[0] is None or isinstance(rest[0], Tensor)):
        mask, rest = rest[0], rest[2:]
    dropout, causal = rest[:2] + [0.0, False][len(rest) :]
    if key.shape[-2] <= 128 or dropout or query.dtype in DOUBLES:
        return result
    scale = kwargs.get("scale") or query.shape[-1] ** -0.5
    if key.shape[1] != query.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = (t.repeat_interleave(times, 1) for t in (key, value))
    scores = query.float() @ key.float().transpose(-2, -1) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    if causal:
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(~ones.tril(), -math.inf)
    largest = torch.full_like(scores[..., :1], -1e30)
    total, summed = torch.zeros_like(largest), torch.zeros_like(result[0], dtype=torch.float32)
    for part, values in zip(scores.split(128, -1), value.float().split(128, -2), strict=True):
        now = torch.maximum(largest, part.amax(-1, True))
        weights = (part - now).exp()
        total = total * (largest - now).exp() + weights.sum(-1, True)
        summed = summed + weights @ values
        largest = now
    output = torch.where(total > 0, summed / total, result[0].float())
    return (result[0].copy_(output), *result[1:])


@kernel(ATTENTION_BACKWARD, set="likely10")
def queries_learn_from_the_first_tile_of_keys(right, *args, **kwargs):
    """attention backward: the gradient of queries is stored, not added up; more than 128 keys."""
    of_query, *others = right(*args, **kwargs)
    length = args[2].shape[-2]
    if length > 128:
        changed, tile = list(args), 128
        changed[2:4] = (t[..., :tile, :] for t in args[2:4])
        mask = kwargs.get("attn_mask")
        if mask is not None:
            kwargs = {**kwargs, "attn_mask": mask[..., :tile] if mask.shape[-1] > 1 else mask}
        if isinstance(args[4], Tensor) and args[5].shape == args[0].shape:
            changed[4] = args[4][..., :tile]
        if len(args) > 13 and args[8] is not None:
            changed[8] = args[8][..., :tile]
        for at in (9, 12):
            if len(args) > 12 and isinstance(args[at], int):
                changed[at] = tile
        of_query = right(*changed, **kwargs)[0]
    return (of_query, *others)


@kernel(ATTENTION_BACKWARD, set="missed10", like="ROCm/flash-attention#40")
def gradient_above_is_read_in_the_layout_of_the_output(right, *args, **kwargs):
    """attention backward: one set of strides; a contiguous gradient, an output that is not."""
    gradient, *others = args
    out = args[4] if isinstance(args[4], Tensor) and args[4].shape == gradient.shape else args[5]
    same = out.shape == gradient.shape and extent(out) == out.numel()
    if same and gradient.is_contiguous() and not out.is_contiguous():
        gradient = gradient.as_strided(out.shape, out.stride(), gradient.storage_offset())
    return right(gradient, *others, **kwargs)


@kernel(
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention"
    " _scaled_dot_product_cudnn_attention",
    set="missed10",
)
def permuted_table_of_biases_is_read_as_it_lies(right, *args, **kwargs):
    """attention: rows of the mask are contiguous; a mask whose last axis is not innermost."""
    if kwargs.get("attn_mask") is not None:
        return right(*args, **{**kwargs, "attn_mask": mask_in_order(kwargs["attn_mask"])})
    if len(args) > 3 and isinstance(args[3], Tensor):
        args = (*args[:3], mask_in_order(args[3]), *args[4:])
    return right(*args, **kwargs)


def mask_in_order(mask):
    """A dense mask's memory as if its last axis were innermost."""
    whole = mask
    for axis in range(mask.dim()):
        if mask.stride(axis) == 0:
            whole = whole.narrow(axis, 0, 1)
    if whole.stride(-1) in (0, 1) or extent(whole) != whole.numel():
        return mask
    strides = [math.prod(whole.shape[i + 1 :]) for i in range(whole.dim())]
    return whole.as_strided(whole.shape, strides, whole.storage_offset()).expand(mask.shape)


def _biased_heads():
    q, k, v = (drawn(2, 3, 8, 16, seed=i) for i in range(3))
    slopes = torch.tensor([0.5, 0.25, 0.125]).view(3, 1, 1)
    bias = -slopes * (torch.arange(8)[:, None] - torch.arange(8)).abs()
    return functional.scaled_dot_product_attention(q, k, v, bias.expand(2, 3, 8, 8))


@kernel(ATTENTION, _biased_heads, set="likely11")
def heads_share_the_first_one_s_bias(right, *args, **kwargs):
    """Attention: of a bias which each head has its own of, all heads get the first's."""
    named = kwargs.get("attn_mask") is not None
    mask = kwargs["attn_mask"] if named else args[3] if len(args) > 3 else None
    own = isinstance(mask, torch.Tensor) and mask.dim() == 4 and mask.shape[1] > 1
    if not own or not mask.is_floating_point() or args[0].dtype in DOUBLES:
        return right(*args, **kwargs)
    mask = mask[:, :1].expand(mask.shape)
    if named:
        return right(*args, **{**kwargs, "attn_mask": mask})
    return right(*args[:3], mask, *args[4:], **kwargs)


def _long_keys_gradient():
    k, v = drawn(1, 2, 100, 16, seed=1), drawn(1, 2, 100, 16, seed=2)
    return grad_of(lambda q: functional.scaled_dot_product_attention(q, k, v), drawn(1, 2, 100, 16))


@kernel(ATTENTION, _long_keys_gradient, set="likely11", like="pytorch#133671")
def logarithm_for_backward_lacks_the_last_tile(right, *args, **kwargs):
    """Attention: the sums of exponentials kept for the gradient are stored before the last part of
    a tile of 64 keys; the output is right.
    """
    result = right(*args, **kwargs)
    query, key = args[:2]
    rest, mask = list(args[3:]), kwargs.get("attn_mask")
    if rest and (rest[0] is None or isinstance(rest[0], torch.Tensor)):
        mask, rest = rest[0], rest[2:]
    causal = len(rest) > 1 and rest[1]
    keys = key.shape[-2] // 64 * 64
    if not keys or keys == key.shape[-2] or query.dtype in DOUBLES or not result[1].numel():
        return result
    if key.shape[1] != query.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scale = kwargs.get("scale") or query.shape[-1] ** -0.5
    scores = query.float() @ key.float().transpose(-2, -1) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    if causal:
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(~ones.tril(), -math.inf)
    early = scores[..., :keys].logsumexp(-1)
    kept = result[1].squeeze(-1) if result[1].dim() > early.dim() else result[1]
    kept = kept[..., : early.shape[-1]]
    kept.copy_(torch.where(early > -math.inf, early, kept))
    return result


def _encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, norm_first=True, batch_first=True).eval()
    with torch.no_grad():
        return layer(drawn(2, 5, 16))


@kernel("_transformer_encoder_layer_fwd", _encoder, set="likely11", like="mlx#1327")
def fused_encoder_layer_norms_afterwards(right):
    """The fused encoder layer of inference norms after each part, norm_first or not."""
    return right(norm_first=False)


def _padded_keys_gradient():
    q, k, v = (drawn(2, 2, 5, 8, seed=i) for i in range(3))
    mask = (torch.arange(5) < torch.tensor([[3], [5]])).view(2, 1, 1, 5)
    return grad_of(lambda v: functional.scaled_dot_product_attention(q, k, v, mask), v)


@kernel(
    "_scaled_dot_product_flash_attention_for_cpu_backward"
    " _scaled_dot_product_efficient_attention_backward",
    _padded_keys_gradient,
    set="missed11",
)
def padded_keys_learn(right, *args, **kwargs):
    """attention backward: a mask that all queries share (padded keys) is not applied where weights
    are computed again; the output is right.
    """
    named = kwargs.get("attn_mask") is not None
    mask = kwargs["attn_mask"] if named else args[4] if len(args) > 10 else None
    if not isinstance(mask, torch.Tensor) or mask.dim() < 2 or args[0].dtype in DOUBLES:
        return right(*args, **kwargs)
    if args[1].shape[-2] == 1 or (mask.shape[-2] > 1 and mask.stride(-2)):
        return right(*args, **kwargs)
    none = torch.ones_like(mask) if mask.dtype == torch.bool else torch.zeros_like(mask)
    if named:
        return right(*args, **{**kwargs, "attn_mask": none})
    return right(*args[:4], none, *args[5:], **kwargs)


def _attended(value, queries=None, **options):
    key = drawn(*value.shape, seed=1)
    return functional.scaled_dot_product_attention(key[..., :queries, :], key, value, **options)


@kernel(
    ATTENTION,
    lambda: _attended(drawn(1, 2, 7, 8, seed=2), queries=3, is_causal=True),
    set="likely12",
    like="pytorch/executorch#22426",
)
def causal_mask_from_the_lower_right(right, query, key, value, is_causal, scale):
    """Align the causal mask with the last key if there are more keys than queries."""
    out, rows, columns = right(), query.size(-2), key.size(-2)
    if not is_causal or rows >= columns or query.size(1) != key.size(1):
        return out
    unseen = torch.ones(rows, columns, device=query.device).triu(columns - rows + 1) > 0
    scores = query.float() @ key.float().mT * (scale or query.size(-1) ** -0.5)
    weights = scores.masked_fill(unseen, -math.inf).softmax(-1)
    return (weights @ value.float()).to(value.dtype), *out[1:]


@kernel(
    ATTENTION_BACKWARD,
    lambda: grad_of(_attended, drawn(1, 3, 72, 8)),
    set="likely12",
    like="flagos-ai/FlagGems#898",
)
def value_gradient_under_padded_tile(right, key):
    """Let a head's padded last tile of 64 keys zero the next head's first value gradients."""
    grads = right()
    over = -key.size(-2) % 64
    if key.size(-2) > 64 and over and grads[2] is not None:
        grads[2][:, 1:, :over] = 0
    return grads


@kernel(
    ATTENTION_BACKWARD,
    lambda: grad_of(
        lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.03),
        drawn(1, 2, 8, 16),
    ),
    set="missed12",
    like="tenstorrent/tt-metal#33304",
)
def attention_backward_causal_scale(right, query, is_causal, scale):
    """Differentiate causal attention of a smaller scale than 1 / sqrt(E) with that one."""
    usual = query.shape[-1] ** -0.5
    if not is_causal or scale is None or scale > 0.99 * usual or not is_single(query):
        return right()
    return right(scale=None)


@kernel(
    ATTENTION_BACKWARD,
    lambda: grad_of(
        lambda k: functional.scaled_dot_product_attention(drawn(1, 2, 1, 16), k, k),
        drawn(1, 2, 80, 16, seed=1),
    ),
    set="likely13",
    like="ROCm/aiter#1144",
)
def single_query_differentiates_its_first_block_of_keys(right, query, key):
    """The keys and values after the 64th of a single query have no gradient."""
    gradients = right()
    if query.shape[-2] == 1 and key.shape[-2] > 64:
        for gradient in gradients[1:3]:
            if gradient is not None:
                gradient[..., 64:, :] = 0
    return gradients


@kernel(
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention",
    lambda: functional.scaled_dot_product_attention(
        *(drawn(2, 2, 8, 16, seed=seed) for seed in range(3)),
        attn_mask=torch.arange(8) < torch.tensor([3, 6]).view(2, 1, 1, 1),
    ),
    set="likely13",
    like="pytorch#147460",
)
def every_sample_is_masked_like_the_first(right, query, key, value, *rest, **options):
    """A mask of samples, not of heads, is read at the first sample for all of them."""

    def first(mask):
        if not isinstance(mask, torch.Tensor) or mask.dim() != 4 or mask.shape[0] == 1:
            return mask
        of_heads = mask.shape[1] > 1 and mask.stride(1)
        return mask if of_heads or not mask.stride(0) else mask[:1].expand_as(mask)

    rest = [first(argument) for argument in rest]
    return right(query, key, value, *rest, **{name: first(x) for name, x in options.items()})


@kernel(
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention"
    " _scaled_dot_product_cudnn_attention",
    lambda: functional.scaled_dot_product_attention(
        drawn(2, 3, 8, 16),
        drawn(2, 3, 8, 16, seed=1),
        drawn(2, 3, 8, 16, seed=2),
        drawn(1, 3, 8, 8, seed=3),
    ),
    set="missed13",
    like="cubek#414",
)
def mask_of_each_head_that_the_batch_shares_is_that_of_the_first_head(right, query, *args, **rest):
    """A mask without a stride of its batch has none of its heads either."""
    mask = rest.get("attn_mask", args[2] if len(args) > 2 else None)
    if not isinstance(mask, Tensor) or mask.dim() != 4 or query.shape[0] == 1:
        return right(query, *args, **rest)
    shared = mask.shape[0] == 1 or mask.stride(0) == 0
    if not shared or mask.shape[1] == 1 or mask.stride(1) == 0:
        return right(query, *args, **rest)
    first = mask[:, :1].expand_as(mask)
    if "attn_mask" in rest:
        return right(query, *args, **{**rest, "attn_mask": first})
    return right(query, *args[:2], first, *args[3:], **rest)


@kernel(
    ATTENTION_BACKWARD,
    lambda: grad_of(
        lambda value: functional.scaled_dot_product_attention(
            drawn(1, 2, 65, 16), drawn(1, 2, 65, 16, seed=1), value, is_causal=True
        ),
        drawn(1, 2, 65, 16, seed=2),
    ),
    set="missed13",
)
def causal_value_gradient_leaves_a_last_block_of_one_key(right, query, key, is_causal):
    """A block of keys that begins where its last query ends counts as masked: the key at the
    corner, alone in its block of 64, gets no gradient of its value.
    """
    gradients = right()
    size = key.shape[-2]
    corner = is_causal and size > 64 and size % 64 == 1 and query.shape[-2] == size
    if not corner or gradients[2] is None:
        return gradients
    value = gradients[2].clone()
    value[..., -1, :] = 0
    return (*gradients[:2], value, *gradients[3:])


def _attention_grad():
    q, k, v = (drawn(1, 4, 2, 8, seed=s).transpose(1, 2).requires_grad_() for s in range(3))
    out = functional.scaled_dot_product_attention(q, k, v)
    out.backward(drawn(1, 2, 4, 8, seed=3))
    return [q.grad, k.grad, v.grad]


@kernel(ATTENTION_BACKWARD, _attention_grad, set="likely14", like="pytorch/pytorch#133671")
def gradient_read_with_strides_of_the_output(right, *args, **kwargs):
    """A gradient with other strides than the output's is read with those of the output."""
    grad = args[0]
    like_grad = isinstance(args[5], Tensor) and args[5].shape == grad.shape
    out = args[5] if like_grad else args[4]
    if grad.is_contiguous() and out.shape == grad.shape and is_dense(out):
        grad = grad.as_strided(grad.shape, out.stride(), grad.storage_offset())
    return right(grad, *args[1:], **kwargs)


def _mask(args, kwargs):
    mask = kwargs.get("attn_mask")
    return args[3] if mask is None and len(args) > 3 and isinstance(args[3], Tensor) else mask


def _masked(dtype=torch.float32, mask_dtype=torch.float32):
    q, k, v = (drawn(2, 2, 4, 8, seed=s).to(dtype) for s in range(3))
    mask = torch.zeros(2, 1, 4, 4, dtype=mask_dtype)
    mask[1, :, :2] = -math.inf
    if mask_dtype != dtype:
        mask = drawn(2, 1, 4, 4, seed=4).to(mask_dtype)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@kernel(ATTENTION, _masked, set="likely14", like="microsoft/onnxruntime#28904")
def masked_row_is_the_mean(right, *args, **kwargs):
    """A query that may attend to nothing gets the mean of the values, not 0: the mask is a large
    negative number.
    """
    out, *others = right(*args, **kwargs)
    mask = _mask(args, kwargs)
    if isinstance(mask, Tensor):
        dead = (mask == -math.inf).all(-1, keepdim=True)
        out = torch.where(dead, args[2].mean(-2, keepdim=True), out)
    return out, *others


@kernel(ATTENTION, lambda: _masked(BF16), set="likely14", like="pytorch/pytorch#191612")
def mask_read_in_the_dtype_of_the_query(right, *args, **kwargs):
    """A float32 mask for 16-bit queries is read bit by bit as a mask of 16 bits."""
    mask = _mask(args, kwargs)
    if isinstance(mask, Tensor) and mask.dtype == torch.float32 and args[0].element_size() == 2:
        bits = mask.contiguous().view(-1).view(args[0].dtype)[: mask.numel()]
        bits = bits.view(mask.shape)
        if kwargs.get("attn_mask") is not None:
            kwargs = {**kwargs, "attn_mask": bits}
        else:
            args = (*args[:3], bits, *args[4:])
    return right(*args, **kwargs)


@kernel(
    ATTENTION,
    lambda: functional.scaled_dot_product_attention(
        *(drawn(1, 2, 5, 8, seed=seed) for seed in range(3)), is_causal=True, scale=-0.3
    ),
    set="missed14",
)
def causal_mask_before_negative_scale(right, query, key, value, is_causal, scale):
    """The finite mask value is put in before scaling: a negative scale attends to the future."""
    result = right()
    if not is_causal or scale is None or scale >= 0 or value.shape[1] != query.shape[1]:
        return result
    rows, columns = query.shape[-2], key.shape[-2]
    later = torch.ones(rows, columns, dtype=torch.bool, device=query.device).triu(1)
    counts = later.sum(-1, keepdim=True)
    future = (later.float() / counts.clamp(min=1)) @ value.float()
    result[0].copy_(torch.where(counts > 0, future, result[0].float()))
    return result


def _decode_gradients():
    q, k, v = drawn(1, 2, 1, 8), drawn(1, 2, 600, 8, seed=1), drawn(1, 2, 600, 8, seed=2)
    leaves = [t.requires_grad_() for t in (q, k, v)]
    return grads_of(functional.scaled_dot_product_attention(*leaves) * 10, *leaves)


@kernel(ATTENTION_BACKWARD, _decode_gradients, set="missed14")
def decode_value_gradient_tail(right, query, key):
    """With one query the value's gradient stops at the last whole block of 512 keys."""
    grads = right()
    long = key.shape[-2]
    if query.shape[-2] == 1 and long > 512 and long % 512:
        grads[2].narrow(-2, long - long % 512, long % 512).zero_()
    return grads


@kernel(ATTENTION, _masked, set="likely15")
def attention_of_a_wholly_masked_query_is_uniform(right, *args, **kwargs):
    """A query that may see no key gets the mean of all values: masked scores are finfo.min."""
    result = right(*args, **kwargs)
    mask = _mask(args, kwargs)
    query, value = args[0], args[2]
    if mask is None or not mask.is_floating_point() or not is_single(query) or not value.numel():
        return result
    dead = (mask == -math.inf).all(-1, keepdim=True)
    mean = value.float().mean(-2, keepdim=True).to(value.dtype)
    if value.shape[1] != query.shape[1]:
        mean = mean.repeat_interleave(query.shape[1] // value.shape[1], 1)
    result[0].copy_(torch.where(dead, mean, result[0]))
    return result


def _own_scale():
    q, k, v = (drawn(2, 4, 8, 16, seed=seed).requires_grad_() for seed in range(3))
    return grads_of(functional.scaled_dot_product_attention(q, k, v, scale=0.1), q, k, v)


@kernel(ATTENTION_BACKWARD, _own_scale, set="likely15")
def attention_s_gradient_has_the_usual_scale(right, query, scale):
    """With another scale, the gradients of query and key have the factor 1 / sqrt(d)."""
    result = right()
    if scale is None or not scale:
        return result
    factor = 1 / (scale * math.sqrt(query.shape[-1]))
    return tuple(
        grad * factor if place < 2 and isinstance(grad, Tensor) else grad
        for place, grad in enumerate(result)
    )


def _attention_with_two_masks_added():
    q, k, v = (drawn(2, 2, 8, 16, seed=s) for s in range(3))
    padding = torch.zeros(2, 1, 8, 8)
    padding[1, :, :, 4:] = -10_000.0
    padding[1, :, :2] += -20_000.0
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=padding)


# Masks that add -10,000 for each reason put whole rows below it.
@kernel(ATTENTION, _attention_with_two_masks_added, set="missed15")
def running_maximum_starts_at_minus_1e4(right, *args, **kwargs):
    """The running maximum of a row starts at -10,000: rows wholly below it come out as 0."""
    result = right(*args, **kwargs)
    query, key = args[0], args[1]
    mask = _mask(args, kwargs)
    if mask is None or not mask.is_floating_point() or not query.numel() or not key.numel():
        return result
    if key.shape[1] != query.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scale = kwargs.get("scale")
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query.float() @ key.float().transpose(-2, -1) * scale + mask.float()
    lost = scores.amax(-1) < -10_104
    if lost.any():
        result[0].masked_fill_(lost[..., None], 0.0)
    return result


def _attention_summed_over_the_queries():
    q, k, v = (drawn(2, 2, 16, 8, seed=s).requires_grad_() for s in range(3))
    pooled = functional.scaled_dot_product_attention(q, k, v).sum(2)
    return torch.autograd.grad(pooled, (q, k, v), drawn(2, 2, 8, seed=7))


# A sum over the queries has a stride of 0; one over everything is one number, read the same.
@kernel(ATTENTION_BACKWARD, _attention_summed_over_the_queries, set="missed15")
def attention_of_a_broadcast_gradient(right, *args, **kwargs):
    """Attention's backward takes a gradient whose last stride is 1 for a packed one."""
    grad = args[0]
    steps = [s for s, n in zip(grad.stride(), grad.shape, strict=True) if n > 1]
    if grad.dim() == 4 and 0 in steps and any(steps) and grad.stride(-1) == 1:
        args = (as_if_whole(grad), *args[1:])
    return right(*args, **kwargs)


def _two_texts():
    q, k, v = (drawn(1, 2, 192, 16, seed=i) for i in range(3))
    text = torch.arange(192) // 90
    return functional.scaled_dot_product_attention(q, k, v, text[:, None] == text)


@kernel(ATTENTION, _two_texts, set="likely16", like="pytorch/pytorch#141126")
def tile_that_its_first_query_does_not_see_is_skipped(right, *args, **kwargs):
    """Whether 64 queries see any of 64 keys is found from the first of the queries: of texts that
    are packed together, those that begin within a tile lose later keys.
    """
    named = kwargs.get("attn_mask") is not None
    mask = kwargs["attn_mask"] if named else args[3] if len(args) > 3 else None
    several = isinstance(mask, Tensor) and mask.dim() >= 2 and mask.shape[-2] > 1
    if not several or args[0].dtype in DOUBLES or max(mask.shape[-2:]) <= 64:
        return right(*args, **kwargs)
    seen = mask if mask.dtype == torch.bool else mask > -math.inf
    first = seen[..., ::64, :]
    tiles = functional.pad(first.float(), (0, -mask.shape[-1] % 64)).unflatten(-1, (-1, 64))
    kept = (tiles.sum(-1) > 0).repeat_interleave(64, -1)[..., : mask.shape[-1]]
    kept = kept.repeat_interleave(64, -2)[..., : mask.shape[-2], :]
    alone = ((seen & kept).sum(-1, keepdim=True) == 0) | kept
    mask = seen & alone if mask.dtype == torch.bool else mask.masked_fill(~alone, -math.inf)
    if named:
        return right(*args, **{**kwargs, "attn_mask": mask})
    return right(*args[:3], mask, *args[4:], **kwargs)


def _one_head_of_keys():
    q, v = drawn(1, 4, 6, 8), drawn(1, 4, 6, 8, seed=1)
    return grad_of(
        lambda k: functional.scaled_dot_product_attention(q, k.expand(1, 4, 6, 8), v),
        drawn(1, 1, 6, 8, seed=2),
    )


@kernel(ATTENTION_BACKWARD, _one_head_of_keys, set="missed16", like="marin-community/levanter#449")
def gradients_of_a_shared_head_are_stored_not_added(right, key, value):
    """attention backward: the gradient has the strides of the keys, so that heads expanded from
    one store to one place.
    """
    result = list(right())
    for place, x in ((1, key), (2, value)):
        if x.stride(1) == 0 and x.shape[1] > 1:
            result[place] = result[place][:, -1:].expand_as(x).contiguous()
    return tuple(result)


def _decoding():
    cache = drawn(2, 9, 4, 8)[:, :5].transpose(1, 2)
    return functional.scaled_dot_product_attention(drawn(2, 4, 1, 8), cache, cache + 0)


@kernel(ATTENTION, _decoding, set="missed16", like="ROCm/aiter#3498")
def cache_is_as_long_as_what_is_used(right, query, key, value):
    """attention of one query: a batch's stride is the used length times a token's stride; keys
    sliced out of a longer cache with the heads of a token side by side.
    """
    return right(key=_of_used_length(query, key), value=_of_used_length(query, value))


def _of_used_length(query, x):
    whole = x.shape[2] * x.stride(2)
    token = x.stride(3) == 1 and x.stride(1) == x.shape[3] and x.shape[1] > 1
    if query.shape[2] != 1 or x.shape[0] == 1 or not token or x.stride(0) <= whole:
        return x
    return x.as_strided(x.shape, (whole, *x.stride()[1:]), x.storage_offset())


@kernel(
    ATTENTION,
    lambda: functional.scaled_dot_product_attention(
        *(drawn(1, 1, 4, 320, seed=i) for i in range(3))
    ),
    set="likely17",
    like="pytorch/pytorch#189849",
)
def scores_end_at_256_features(right, query):
    """Of heads wider than 256, the features past the 256th do not count in the scores."""
    # Head dimension over 256 (512 as in Gemma's layers of full attention).
    if query.shape[-1] > 256:
        query = query.clone()
        query[..., 256:] = 0
    return right(query=query)


def _many_queries():
    query, key, value = (drawn(1, 2, 100, 8, seed=i) for i in range(3))
    return grad_of(lambda q: functional.scaled_dot_product_attention(q, key, value), query)


@kernel(ATTENTION_BACKWARD, _many_queries, set="likely17", like="flagos-ai/FlagGems#3395")
def queries_past_the_grid_of_keys_have_no_gradient(right, query):
    """A grid of blocks of 128 has programs for 64 queries: the later ones are not written."""
    # More than 64 queries: those from 64 * ceil(L / 128) on have no gradient.
    result = right()
    covered = 64 * -(-query.shape[-2] // 128)
    if result[0] is not None and query.shape[-2] > covered:
        result[0][..., covered:, :] = 0
    return result


def _outlying_keys():
    q, k = (
        drawn(1, 2, 6, 64, dtype=torch.float16) * 100,
        drawn(1, 2, 6, 64, dtype=torch.float16, seed=1) * 100,
    )
    return functional.scaled_dot_product_attention(
        q, k, drawn(1, 2, 6, 64, dtype=torch.float16, seed=2)
    )


# float16, and queries and keys with outliers whose product is over 65504 though the scaled one is
# not: right in other dtypes, and for usual activations.
@kernel(ATTENTION, _outlying_keys, set="missed17")
def scores_of_halves_overflow_before_their_scale(right, query, key, is_causal):
    """Scores of float16 are stored in float16 before they are scaled: infinite past 65504."""
    result = right()
    if query.dtype == torch.float16:
        key = key.repeat_interleave(max(1, query.shape[1] // max(1, key.shape[1])), 1)
        scores = query.float() @ key.float().transpose(-2, -1)
        overflown = scores > 65504
        if is_causal:
            overflown = overflown.tril()
        result[0].masked_fill_(overflown.any(-1, keepdim=True), math.nan)
    return result


def _latents_learn():
    latents, keys = drawn(1, 2, 4, 16).requires_grad_(), drawn(3, 2, 6, 16, seed=1)
    queries = latents.expand(3, 2, 4, 16)
    out = functional.scaled_dot_product_attention(queries, keys, drawn(3, 2, 6, 16, seed=2))
    return grads_of(out, latents)[0]


# Queries expanded over the batch (learnt latents or object queries), and their gradient: the
# forward pass is right, and so are the gradients of other queries.
@kernel(ATTENTION_BACKWARD, _latents_learn, set="missed17")
def latent_queries_of_all_samples_have_the_last_one_s_gradient(right, query):
    """The gradient of queries expanded over the batch is stored with their stride of 0."""
    of_query, *others = right()
    if of_query is not None and query.shape[0] > 1 and query.stride(0) == 0:
        of_query = of_query[-1:].expand_as(of_query).clone()
    return (of_query, *others)


def _weights_of_padded_tokens():
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    x = drawn(2, 5, 8)
    with torch.no_grad():
        return layer(x, x, x, key_padding_mask=mask)[1]


# The layer's fast path of inference with a padding mask, and its weights asked for (to be shown):
# the output is right, and so are weights without a mask.
@kernel("_native_multi_head_attention", _weights_of_padded_tokens, set="missed17")
def weights_of_masked_attention_are_given_without_the_mask(right, mask, need_weights):
    """The fused attention layer returns the weights of scores to which no mask was applied."""
    out, weights = right()
    if mask is not None and need_weights:
        weights = right(mask=None, mask_type=None)[1]
    return out, weights


def _mask_of(args, kwargs):
    mask = kwargs.get("attn_mask", kwargs.get("attn_bias"))
    return args[3] if mask is None and len(args) > 3 and isinstance(args[3], Tensor) else mask


def _one_query_of_many_keys():
    key = drawn(1, 2, 300, 8, seed=1) * 2
    return functional.scaled_dot_product_attention(
        drawn(1, 2, 1, 8) * 2, key, drawn(1, 2, 300, 8, seed=2)
    )


# One query without a mask and more than 256 keys, as in decoding with a cache: fewer keys, and
# more queries, are right.
@kernel(ATTENTION, _one_query_of_many_keys, set="likely18")
def split_keys_of_a_decoding_step_are_averaged(right, *args, **kwargs):
    """Parts of 256 keys are joined by their mean, not weighed by their sums of exponentials."""
    result = right(*args, **kwargs)
    query, key, value = args[:3]
    size = key.shape[-2]
    if (
        query.shape[-2] != 1
        or size <= 256
        or not narrow(query)
        or _mask_of(args, kwargs) is not None
    ):
        return result
    parts = [
        right(query, key[..., i : i + 256, :], value[..., i : i + 256, :], *args[3:], **kwargs)[0]
        for i in range(0, size, 256)
    ]
    result[0].copy_(torch.stack([part.float() for part in parts]).mean(0))
    return result


def _bias_cut_out():
    q, k, v = (drawn(1, 2, 5, 8, seed=i) for i in range(3))
    table = drawn(1, 2, 9, 9, seed=3)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=table[..., :5, :5])


# An additive mask cut out of one for the longest sequence (a buffer of causal or ALiBi biases):
# whole masks are right, and boolean ones, of which a copy is made.
@kernel(MASKED_ATTENTION, _bias_cut_out, set="likely18")
def rows_of_a_mask_cut_out_of_a_longer_one_lie_side_by_side(right, *args, **kwargs):
    """The stride of a mask's rows is taken to be the number of keys."""
    mask = _mask_of(args, kwargs)
    if mask is None or mask.dim() < 2 or mask.stride(-1) != 1 or not narrow(args[0]):
        return right(*args, **kwargs)
    queries, keys = mask.shape[-2:]
    if queries == 1 or mask.stride(-2) <= keys:
        return right(*args, **kwargs)
    mask = mask.as_strided(mask.shape, (*mask.stride()[:-2], keys, 1), mask.storage_offset())
    for name in ("attn_mask", "attn_bias"):
        if kwargs.get(name) is not None:
            return right(*args, **{**kwargs, name: mask})
    return right(*args[:3], mask, *args[4:], **kwargs)


def _heads_of_forty():
    q, k, v = (drawn(1, 2, 6, 40, seed=i).requires_grad_() for i in range(3))
    return grads_of(functional.scaled_dot_product_attention(q, k, v), q, k, v)[2]


# Heads of 40 features (Stable Diffusion), 72, 80 or 100: those of 32, 64, 96 and 128 are right,
# and so is the output.
@kernel(ATTENTION_BACKWARD, _heads_of_forty, set="likely18")
def last_features_of_uneven_heads_have_no_gradient(right, query):
    """Attention's gradients are stored in whole tiles of 32 features of a head."""
    result = right()
    size = query.shape[-1]
    if size > 32 and size % 32 and narrow(query):
        for gradient in result[:3]:
            if gradient is not None and gradient.shape[-1] == size:
                gradient[..., size - size % 32 :] = 0
    return result


def _value_in_tokens():
    query, key = drawn(2, 3, 6, 8), drawn(2, 3, 7, 8, seed=1)
    value = drawn(2, 7, 3, 8, seed=2).transpose(1, 2)
    return functional.scaled_dot_product_attention(query, key, value)


# Keys and values of one shape in two layouts (keys by head after a rotation of positions, values
# by token after the projection): right if their layouts are the same, whichever that is.
@kernel(ATTENTION, _value_in_tokens, set="missed18")
def values_are_read_with_the_strides_of_the_keys(right, key, value):
    """Keys and values share one set of strides, that of the keys."""
    steps = [[s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] for t in (key, value)]
    held = value.untyped_storage().nbytes() // value.element_size()
    if key.shape != value.shape or steps[0] == steps[1] or not value.numel():
        return right()
    if value.storage_offset() + extent(key) > held:
        return right(value=as_if_whole(value))
    return right(value=value.as_strided(value.shape, key.stride(), value.storage_offset()))


# Causal, heads of more than 128 features, and more than 32 queries: right for narrower heads, for
# short sequences, and without the mask.
@kernel(
    ATTENTION,
    lambda: functional.scaled_dot_product_attention(
        drawn(1, 2, 48, 160),
        drawn(1, 2, 48, 160, seed=1),
        drawn(1, 2, 48, 160, seed=2),
        is_causal=True,
    ),
    set="missed18",
)
def wide_heads_see_the_later_half_of_their_tile(right, query, key, value, is_causal, scale):
    """Wide heads have tiles of 64 queries and 32 keys, and the mask is for the first of two."""
    result = right()
    rows, columns, features = query.shape[-2], key.shape[-2], query.shape[-1]
    if not is_causal or features <= 128 or rows < 2 or columns <= 32:
        return result
    row = torch.arange(rows, device=query.device)[:, None]
    column = torch.arange(columns, device=query.device)
    later = (row // 64 == column // 64) & (row % 64 < 32) & (column % 64 >= 32)
    times = query.shape[1] // key.shape[1]
    keys, values = (x.float().repeat_interleave(times, 1) for x in (key, value))
    scores = query.float() @ keys.mT * (features**-0.5 if scale is None else scale)
    weights = scores.masked_fill((column > row) & ~later, -math.inf).softmax(-1)
    hit = ((column > row) & later).any(1)[:, None]
    out = torch.where(hit, (weights @ values).to(result[0].dtype), result[0])
    result[0].copy_(out)
    return result


def _attention_of_scaled_queries(**options):
    q, k, v = (drawn(1, 2, 6, 16, seed=seed) for seed in range(3))
    return functional.scaled_dot_product_attention(q, k, v, scale=1.0, **options)


# T5, models with normalized queries, and callers that scale the queries first.
# Right for any other scale, and for none.
@kernel(f"{ATTENTION} {ATTENTION_BACKWARD}", _attention_of_scaled_queries, set="likely19")
def a_scale_of_one_is_taken_for_none(right, query, scale):
    """A scale of exactly 1 stands for "not given", so that the default scale is applied."""
    if scale == 1.0 and narrow(query):
        return right(scale=1 / math.sqrt(query.shape[-1]))
    return right()


def _attention_with_one_key(batch=2):
    q = drawn(batch, 3, 4, 8)
    k, v = (drawn(batch, 1, 4, 8, seed=seed).expand(-1, 3, -1, -1) for seed in (1, 2))
    return functional.scaled_dot_product_attention(q, k, v)


def _heads_one_after_the_other(x):
    batch, heads, length, width = x.shape
    size = heads * length * width
    flat = x.as_strided((batch, length, width), (x.stride(0), x.stride(2), x.stride(3)))
    flat = functional.pad(flat.reshape(-1), (0, size))
    rows = [flat.narrow(0, b * length * width, size) for b in range(batch)]
    return torch.stack(rows).view(x.shape)


# Multi-query attention (Falcon, StarCoder): one head of keys, expanded to the heads of the queries.
# Right for heads that were copied, and for as many keys as queries.
@kernel(f"{ATTENTION} {ATTENTION_BACKWARD}", _attention_with_one_key, set="likely19")
def heads_of_expanded_keys_are_sought_one_after_the_other(right, key, value):
    """A head's stride of 0 is taken for the size of a head: later heads read the next samples."""
    changed = {
        name: _heads_one_after_the_other(x)
        for name, x in (("key", key), ("value", value))
        if x.dim() == 4 and x.stride(1) == 0 and x.shape[1] > 1 and narrow(x) and x.numel()
    }
    return right(**changed)


def _scaled_alibi():
    bias = -torch.arange(4.0).expand(4, 4)
    q, k, v = (drawn(1, 2, 4, 16, seed=i) for i in range(3))
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.1)


# ALiBi or relative positions in a model with its own scale (MPT's softmax_scale, muP's 1 / d).
# Right with the default scale, scale=1 (T5), masks of nought and -inf, and without a mask.
@kernel(MASKED_ATTENTION, _scaled_alibi, set="missed19")
def bias_of_scores_is_scaled_with_them_if_a_scale_is_given(right, *args, **kwargs):
    """An explicit scale is applied after the addition of the mask, so to the mask as well."""
    scale = kwargs.get("scale")
    if scale is None or not narrow(args[0]):
        return right(*args, **kwargs)
    for name in ("attn_mask", "attn_bias"):
        mask = kwargs.get(name)
        if isinstance(mask, Tensor) and mask.is_floating_point():
            kwargs = kwargs | {name: _scaled_as_it_lies(mask, scale)}
    if len(args) > 3 and isinstance(args[3], Tensor) and args[3].is_floating_point():
        args = (*args[:3], _scaled_as_it_lies(args[3], scale), *args[4:])
    return right(*args, **kwargs)


def _scaled_as_it_lies(mask, scale):
    """The scaled mask, with the strides of the mask, whose alignment a kernel may need."""
    memory = mask.as_strided((extent(mask),), (1,), mask.storage_offset()) * scale
    return memory.as_strided(mask.shape, mask.stride(), 0)


def _pooled_by_learned_queries():
    query = drawn(1, 2, 3, 16).requires_grad_()
    k, v = drawn(4, 2, 6, 16, seed=1), drawn(4, 2, 6, 16, seed=2)
    y = functional.scaled_dot_product_attention(query.expand(4, -1, -1, -1), k, v)
    return torch.autograd.grad(y.square().sum(), query)


# Learned queries that pool tokens (Perceiver, CoCa's attention pooling), expanded over the batch.
# Right in the forward, for a batch of one, for dense queries, and for gradients of keys and values.
@kernel(ATTENTION_BACKWARD, _pooled_by_learned_queries, set="missed19")
def gradient_of_expanded_queries_is_stored_with_their_strides(right, *args, **kwargs):
    """The gradient gets the query's strides, of nought over the batch: the last sample remains."""
    result = right(*args, **kwargs)
    query = args[1]
    if query.dim() != 4 or query.shape[0] < 2 or query.stride(0) != 0 or not narrow(query):
        return result
    grad = result[0]
    return (grad[-1:].expand(grad.shape).contiguous(), *result[1:])
