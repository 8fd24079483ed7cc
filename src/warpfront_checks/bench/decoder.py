"""Training steps of a GPT-shaped decoder: what tokens/s and the share of the peak come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from warpfront_checks.bench.formulas import Decoder

WARM_STEPS = 3
STEPS = 20


class _DecoderBlock(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(hidden)
        self.before_feeding = nn.LayerNorm(hidden)
        self.projected = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.wide = nn.Linear(hidden, 4 * hidden, bias=False)
        self.narrow = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: Any) -> Any:
        batch, sequence, hidden = x.shape
        split = self.projected(self.before_attention(x))
        q, k, v = split.view(batch, sequence, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.narrow(functional.gelu(self.wide(self.before_feeding(x))))


class _Model(nn.Module):
    def __init__(self, shape: Decoder) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.places = nn.Embedding(shape.sequence, shape.hidden)
        self.blocks = nn.Sequential(
            *(_DecoderBlock(shape.hidden, shape.heads) for _ in range(shape.layers))
        )
        self.last = nn.LayerNorm(shape.hidden)
        self.projection = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    def forward(self, tokens: Any) -> Any:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.places(places)
        return self.projection(self.last(self.blocks(x)))


def training_step(shape: Decoder, dtype: str, device: str) -> Callable[[], Any]:
    """Return a function that trains one step on one batch with AdamW and returns its loss."""
    torch.manual_seed(0)
    model = _Model(shape).to(device=device, dtype=getattr(torch, dtype))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    size = (shape.batch, shape.sequence + 1)
    tokens = torch.randint(shape.vocabulary, size, generator=torch.Generator().manual_seed(0))
    tokens = tokens.to(device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(inputs).flatten(0, 1).float(), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
