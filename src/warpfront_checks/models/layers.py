"""Layers that PyTorch has as functions only, as modules: so that each can be watched by itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Add(nn.Module):
    """A residual connection."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Multiply(nn.Module):
    """A gate."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y


class Attend(nn.Module):
    """Scaled dot-product attention of (batch, length, heads*width), split into heads inside.

    `bias` as a parameter, on request, has one number per head and distance, as in T5.
    """

    def __init__(self, heads: int, *, causal: bool = False, distances: int = 0) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.bias = nn.Parameter(torch.randn(heads, 2 * distances + 1)) if distances else None

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        split = [x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (q, k, v)]
        mask = None if self.bias is None else self._biases(q.shape[1], k.shape[1]).to(q.dtype)
        mixed = functional.scaled_dot_product_attention(
            *split, attn_mask=mask, is_causal=self.causal
        )
        return mixed.transpose(1, 2).flatten(-2)

    def _biases(self, rows: int, columns: int) -> Tensor:
        assert self.bias is not None
        reach = self.bias.shape[1] // 2
        places = torch.arange(columns, device=self.bias.device)
        apart = places - torch.arange(rows, device=self.bias.device)[:, None]
        return self.bias[:, apart.clamp(-reach, reach) + reach][None]


class RootMeanSquareNorm(nn.Module):
    """x / rms(x) * weight, computed in float32 at least, as Llama and T5 do."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.2 * torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x if x.dtype == torch.float64 else x.float()
        normal = wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        return self.weight * normal.to(x.dtype)


class Rotate(nn.Module):
    """Rotary positions: pairs of each head's halves turned by an angle that grows with position."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        split = x.unflatten(-1, (self.heads, -1))
        half = split.shape[-1] // 2
        # In float64, which every CPU has, and then moved: devices differ in how they get angles.
        speeds = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None, None] * speeds
        cosine, sine = (f(angles).to(x.device, x.dtype) for f in (torch.cos, torch.sin))
        lower, upper = split[..., :half], split[..., half:]
        turned = torch.cat([lower * cosine - upper * sine, upper * cosine + lower * sine], -1)
        return turned.flatten(-2)


class Positions(nn.Module):
    """Learned positions, added."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.5 * torch.randn(length, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight[: x.shape[1]]


class Sequence(nn.Module):
    """(batch, channels, ...) to (batch, length, channels)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)


class Mean(nn.Module):
    """The mean over a sequence, or over an image's places."""

    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(self.axes)


class Pick(nn.Module):
    """Tokens of each expert, in their order, as int64 (experts, capacity).

    Each expert chooses its tokens, so that shapes do not depend on numbers (Zhou et al.,
    "Mixture-of-Experts with Expert Choice Routing"). Not in the order of their scores: equal tokens
    have equal scores, and no rule orders them.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def forward(self, scores: Tensor) -> Tensor:
        chosen = scores.transpose(0, 1).topk(self.capacity, dim=-1).indices
        return chosen.sort(dim=-1).values


class Gather(nn.Module):
    """The rows that one expert takes."""

    def __init__(self, expert: int) -> None:
        super().__init__()
        self.expert = expert

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        return x.index_select(0, chosen[self.expert])


class Return(nn.Module):
    """Rows of one expert, weighted by its sigmoid score, added back to their places."""

    def __init__(self, expert: int) -> None:
        super().__init__()
        self.expert = expert

    def forward(self, y: Tensor, rows: Tensor, scores: Tensor, chosen: Tensor) -> Tensor:
        places = chosen[self.expert]
        weights = torch.sigmoid(scores[:, self.expert].index_select(0, places))
        return y.index_add(0, places, (weights[:, None] * rows).to(y.dtype))


class Loss(nn.Module):
    """Mean cross entropy of (..., classes) against class numbers, in float32 at least."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        wide = logits if logits.dtype == torch.float64 else logits.float()
        return functional.cross_entropy(wide.flatten(0, -2), target.flatten())


class Weighted(nn.Module):
    """The mean of products with fixed numbers plus one; the numbers return as the gradient.
    Near one, so that nothing of it cancels. In float32 at least.
    """

    def forward(self, logits: Tensor, numbers: Tensor) -> Tensor:
        wide = logits if logits.dtype == torch.float64 else logits.float()
        return 1 + (wide * numbers.to(wide.dtype)).mean()
