"""Attention: masks, causal ones too, lengths that are no tile, fewer heads of keys than of queries,
gradients of any stride; against its definition in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.edge_cases.answers import (
    FLOATS,
    USUAL,
    Answer,
    CaseContext,
    Hazard,
    HazardClass,
    array,
    rows,
)

Numbers = Any


@dataclass(frozen=True, kw_only=True)
class Attending:
    """Lengths of queries and keys, heads of both, and the mask: '', causal, or another."""

    queries: int
    keys: int
    size: int = 32
    heads: int = 2
    groups: int = 1
    hidden: str = ""


ASKED: dict[str, Attending] = {
    "plain": Attending(queries=65, keys=65),
    "causal": Attending(queries=129, keys=129, hidden="causal"),
    "causal, more queries": Attending(queries=70, keys=33, hidden="causal"),
    "causal, more keys": Attending(queries=33, keys=130, hidden="causal"),
    "mask": Attending(queries=67, keys=71, hidden="mask"),
    "mask of half a tile": Attending(queries=64, keys=192, size=64, hidden="mask"),
    "mask of blocks": Attending(queries=110, keys=110, size=80, hidden="blocks", heads=1),
    "mask that is added": Attending(queries=64, keys=66, hidden="added"),
    "mask of each head": Attending(queries=33, keys=65, hidden="heads"),
    "mask of each of a batch": Attending(queries=8, keys=65, size=64, hidden="batch"),
    "mask of each head, few queries": Attending(queries=5, keys=130, size=128, hidden="heads"),
    "queries that see nothing": Attending(queries=33, keys=65, hidden="nothing"),
    "many keys": Attending(queries=3, keys=4099, heads=1),
    "many keys, mask": Attending(queries=5, keys=2111, heads=1, hidden="mask"),
    "one query": Attending(queries=1, keys=513, size=128),
    "one key": Attending(queries=65, keys=1),
    "wide": Attending(queries=33, keys=40, size=256, heads=1),
    "narrow": Attending(queries=33, keys=40, size=8),
    "odd size": Attending(queries=17, keys=31, size=37),
    "groups": Attending(queries=40, keys=72, heads=6, groups=3),
    "groups, causal": Attending(queries=65, keys=65, heads=4, groups=4, hidden="causal"),
}


def _mask(attending: Attending, ground: CaseContext) -> Tensor | None:
    """Return a mask, True where a key is visible. Every query sees at least one key, unless the
    case has fully masked queries.
    """
    shape: tuple[int, ...] = (attending.queries, attending.keys)
    if attending.hidden in {"", "causal"}:
        return torch.ones(shape).tril().bool() if attending.hidden else None
    if attending.hidden == "blocks":
        place = torch.arange(max(shape)) // 50
        return place[: shape[0], None] == place[None, : shape[1]]
    shape = {"heads": (2, attending.heads), "batch": (2, 1)}.get(attending.hidden, ()) + shape
    mask = ground.index(3, *shape) > 0
    mask[..., 0] = True
    if attending.hidden == "nothing":
        mask[..., ::7, :] = False
    return mask


def _tried(name: str, ground: CaseContext) -> Iterator[Answer]:
    setup = ASKED[name]
    few = setup.heads // setup.groups
    q = ground.normal(2, setup.heads, setup.queries, setup.size)
    k, v = (ground.normal(2, few, setup.keys, setup.size) for _ in range(2))
    visible = _mask(setup, ground)
    kwargs: dict[str, Any] = {"enable_gqa": True} if setup.groups > 1 else {}
    if setup.hidden == "causal":
        kwargs["is_causal"] = True
    elif setup.hidden == "added":
        kwargs["attn_mask"] = ground.send(
            torch.zeros(1).where(_known(visible), torch.tensor(-math.inf))
        )
    elif visible is not None:
        kwargs["attn_mask"] = visible.to(ground.device)
    leaves = [ground.send(x).requires_grad_() for x in (q, k, v)]
    actual = functional.scaled_dot_product_attention(*leaves, **kwargs)
    grad_output = ground.normal(*actual.shape)
    expected, slopes, sizes = _defined(
        [array(x) for x in (q, k, v)], visible, array(grad_output), setup
    )
    yield Answer("output", actual, expected, ulps=1, slack=sizes[0] * _unit(ground, setup))
    # Gradients are often transposed views.
    on_device = ground.send(grad_output.transpose(1, 2).contiguous()).transpose(1, 2)
    gradients = torch.autograd.grad(actual, leaves, on_device)
    for label, gradient, slope, size in zip("qkv", gradients, slopes, sizes[1:], strict=True):
        slack = size * _unit(ground, setup)
        yield Answer(f"gradient of {label}", gradient, slope, ulps=1, slack=slack)


def _known(visible: Tensor | None) -> Tensor:
    assert visible is not None
    return visible


def _unit(ground: CaseContext, attending: Attending) -> float:
    """Return the rounding unit of products and of sums, whose errors walk."""
    walk = math.sqrt(max(attending.size, attending.keys, attending.queries))
    return 8 * ground.eps + 4 * walk * 1.2e-7


def _defined(
    on_device: list[Numbers], visible: Tensor | None, grad_output: Numbers, attending: Attending
) -> tuple[Numbers, list[Numbers], list[Numbers]]:
    """Return output, gradients, and the size of the terms that each of them sums."""
    q, k, v = on_device[0], *(np.repeat(x, attending.groups, 1) for x in on_device[1:])
    scale = 1 / math.sqrt(attending.size)
    scores = q @ k.swapaxes(-1, -2) * scale
    if visible is not None:
        scores = np.where(array(visible), scores, -np.inf)
    # A fully masked query returns zeros.
    p = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
    p /= np.maximum(p.sum(-1, keepdims=True), 1e-300)
    back = grad_output @ v.swapaxes(-1, -2)
    slope = p * (back - (p * back).sum(-1, keepdims=True))
    # The sum over a row is often taken from the output, which has been rounded.
    whole = np.abs(grad_output) @ np.abs(v).swapaxes(-1, -2)
    away = p * (whole + (p * whole).sum(-1, keepdims=True))
    away = away * (1 + np.abs(np.where(np.isfinite(scores), scores, 0)))
    gradients = [
        slope @ k * scale,
        _gathered(slope.swapaxes(-1, -2) @ q * scale, attending),
        _gathered(p.swapaxes(-1, -2) @ grad_output, attending),
    ]
    sizes = [
        (p * (1 + np.abs(np.where(p > 0, scores, 0)))) @ np.abs(v),
        away @ np.abs(k) * scale,
        _gathered(away.swapaxes(-1, -2) @ np.abs(q) * scale, attending),
        _gathered(
            (p * (1 + np.abs(np.where(p > 0, scores, 0)))).swapaxes(-1, -2) @ np.abs(grad_output),
            attending,
        ),
    ]
    return p @ v, gradients, sizes


def _gathered(x: Numbers, attending: Attending) -> Numbers:
    """Sum the gradients of the query heads that share a head of keys."""
    n, heads, length, size = x.shape
    return x.reshape(n, heads // attending.groups, attending.groups, length, size).sum(2)


def _drops(ground: CaseContext) -> Iterator[Answer]:
    """Check that dropout is random: different in each call, and at the requested rate."""
    torch.manual_seed(ground.seed)
    q, k = (ground.send(torch.zeros(2, 4, 128, 32)) for _ in range(2))
    v = ground.send(torch.ones(2, 4, 128, 32))
    first, second = (
        functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5) for _ in range(2)
    )
    differ = (first != second).cpu().double().mean()
    yield Answer("the next mask is another", differ.cpu(), 1.0, slack=0.7)
    # Each is 2 times the mean of 128 coins: its variance is 1/128, known to 1 in sqrt(1024).
    mean = first[..., 0].cpu().double().mean()
    yield Answer("mean", mean, 1.0, slack=6 * math.sqrt(1 / 128 / 1024) + 4 * ground.eps)


LAYERS: dict[str, dict[str, Any]] = {
    "relu": {},
    "gelu": {"activation": "gelu"},
    "norm first": {"norm_first": True},
    "without biases": {"bias": False},
}


def _inferred(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Compare layers of a transformer without gradients with float64 with gradients. Torch has
    kernels of its own for the first, and none for the second.
    """

    def make() -> torch.nn.Module:
        layer = torch.nn.TransformerEncoderLayer(32, 4, 48, batch_first=True, **LAYERS[name])
        return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()

    stack, device_module = ground.module(make)
    x = ground.normal(3, 19, 32)
    hidden = torch.arange(19) >= torch.tensor([19, 7, 12])[:, None]
    causal = torch.ones(19, 19, dtype=torch.bool).triu(1)
    for label, kwargs in (
        ("plain", {}),
        ("padded", {"src_key_padding_mask": hidden}),
        ("causal", {"mask": causal}),
    ):
        expected = stack(x, **kwargs).detach()
        masks = {key: mask.to(ground.device) for key, mask in kwargs.items()}
        with torch.no_grad():
            actual = device_module(ground.send(x), **masks)
        if label == "padded":
            # Values at masked positions are undefined.
            expected, actual = expected[~hidden], actual[~hidden.to(ground.device)]
        # Two layers of four roundings each; norms keep the numbers about 1. On an H200 GELU was as
        # far off as GELU by its tangent is, which differs by up to 5e-4 in each.
        rough = name == "gelu" and ground.device != "cpu"
        yield Answer(label, actual, array(expected), slack=2e-3 if rough else 256 * ground.eps)


def _masks_by_head(ground: CaseContext) -> Iterator[Answer]:
    """Check a layer without gradients, with a mask for each head of each sample."""

    def make() -> torch.nn.Module:
        return torch.nn.MultiheadAttention(32, 4, batch_first=True).eval()

    layer, device_module = ground.module(make)
    x, mask = ground.normal(3, 19, 32), ground.index(2, 12, 19, 19) == 0
    mask[..., 0] = False
    on_device = ground.send(x)
    with torch.no_grad():
        actual = device_module(
            on_device, on_device, on_device, attn_mask=mask.to(ground.device), need_weights=False
        )[0]
    expected = layer(x, x, x, attn_mask=mask, need_weights=False)[0].detach()
    yield Answer("output", actual, array(expected), slack=64 * ground.eps)


ATTENTION = HazardClass(
    name="attention kernels",
    narrow=("mask",),
    asks="is attention what it is defined to be, masked, causal, grouped, forward and backward",
    hazards=(
        *(
            Hazard(
                name=name,
                answers=partial(_tried, name),
                dtypes=USUAL,
                # CUDA's kernels for 16 bits give such a query means (2.11 on an H200).
                devices=("cpu",) if setup.hidden == "nothing" else (),
            )
            for name, setup in ASKED.items()
        ),
        *rows({"dropped": _drops}, FLOATS),
        *rows({f"inferred, {name}": partial(_inferred, name) for name in LAYERS}),
        *rows({"masks by head": _masks_by_head}, devices=("cpu",)),
    ),
)
