"""Attention that is no call with an oracle: dropout, and layers without gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from warpfront_checks.cases.bounds import Verdict
from warpfront_checks.cases.special.rows import FLOATS, CaseContext, Table, rows, verdict_of


def _drops(ground: CaseContext) -> Iterator[Verdict]:
    """Check that dropout is random: different in each call, and at the requested rate."""
    torch.manual_seed(ground.seed)
    q, k = (ground.send(torch.zeros(2, 4, 128, 32)) for _ in range(2))
    v = ground.send(torch.ones(2, 4, 128, 32))
    first, second = (
        functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5) for _ in range(2)
    )
    differ = (first != second).cpu().double().mean()
    yield verdict_of("the next mask is another", differ.cpu(), 1.0, slack=0.7)
    # Each is 2 times the mean of 128 coins: its variance is 1/128, known to 1 in sqrt(1024).
    mean = first[..., 0].cpu().double().mean()
    yield verdict_of("mean", mean, 1.0, slack=6 * math.sqrt(1 / 128 / 1024) + 4 * ground.eps)


LAYERS: dict[str, dict[str, Any]] = {
    f"{activation}{', norm first' * first}{', without biases' * (not bias)}": {
        "activation": activation,
        "norm_first": first,
        "bias": bias,
    }
    for activation in ("relu", "gelu")
    for first in (False, True)
    for bias in (True, False)
}


def _inferred(name: str, ground: CaseContext) -> Iterator[Verdict]:
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
        rough = name.startswith("gelu") and ground.device != "cpu"
        yield verdict_of(label, actual, expected, slack=2e-3 if rough else 256 * ground.eps)


def _masks_by_head(ground: CaseContext) -> Iterator[Verdict]:
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
    yield verdict_of("output", actual, expected, slack=64 * ground.eps)


ATTENTION: Table = (
    *rows({"dropped": _drops}, FLOATS),
    *rows({f"inferred, {name}": partial(_inferred, name) for name in LAYERS}),
    *rows({"masks by head": _masks_by_head}, devices=("cpu",)),
)
