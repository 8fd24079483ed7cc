"""Model families that people run, small and with random weights, in plain torch.

Every computation is in a module without children, so that a fault can be named by layer. No ReLU
and no max pooling: at their kinks two correct devices differ by a whole gradient.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, VOCABULARY, CLASSES = 64, 4, 97, 11
BATCH, LENGTH, OTHER_LENGTH = 2, 33, 17  # no multiples of a warp, a wavefront or a tile
EXPERTS, EXPERTS_LENGTH = 4, 9


MakeInputs = Callable[[torch.Generator], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Family:
    """`build` makes the model with weights from torch's generator; `inputs` what it takes, target
    last: floating inputs in float32, token and class numbers as int64.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: MakeInputs


class Function(nn.Module):
    """A function that PyTorch has no module for, as a layer: each can be watched by itself."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        super().__init__()
        self.function, self.arguments = function, arguments

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs, *self.arguments)


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


def rotate(x: Tensor, heads: int) -> Tensor:
    """Rotary positions: pairs of each head's halves turned by an angle that grows with position."""
    split = x.unflatten(-1, (heads, -1))
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


def as_sequence(x: Tensor) -> Tensor:
    """(batch, channels, ...) to (batch, length, channels)."""
    return x.flatten(2).transpose(1, 2)


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


def gather(x: Tensor, chosen: Tensor, expert: int) -> Tensor:
    """Return the rows that one expert takes."""
    return x.index_select(0, chosen[expert])


def give_back(y: Tensor, rows: Tensor, scores: Tensor, chosen: Tensor, expert: int) -> Tensor:
    """Add rows of one expert, weighted by its sigmoid score, to their places."""
    places = chosen[expert]
    weights = torch.sigmoid(scores[:, expert].index_select(0, places))
    return y.index_add(0, places, (weights[:, None] * rows).to(y.dtype))


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross entropy of (..., classes) against class numbers, in float32 at least."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return functional.cross_entropy(wide.flatten(0, -2), target.flatten())


def weighted(logits: Tensor, numbers: Tensor) -> Tensor:
    """The mean of products with fixed numbers plus one; the numbers return as the gradient.
    Near one, so that nothing of it cancels. In float32 at least.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return 1 + (wide * numbers.to(wide.dtype)).mean()


class Model(nn.Module):
    """Logits and loss; the last input is the target."""

    def __init__(self, body: nn.Module, loss: Callable[..., Tensor] = cross_entropy) -> None:
        super().__init__()
        self.body, self.loss = body, Function(loss)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.body(*inputs[:-1])
        return logits, self.loss(logits, inputs[-1])


class ConvolutionBlock(nn.Module):
    """ResNet's basic block."""

    def __init__(self, entering: int, leaving: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(entering, leaving, 3, stride, 1, bias=False)
        self.norm1, self.active = nn.BatchNorm2d(leaving), nn.SiLU()
        self.conv2 = nn.Conv2d(leaving, leaving, 3, 1, 1, bias=False)
        self.norm2, self.add, self.last = nn.BatchNorm2d(leaving), Function(torch.add), nn.SiLU()
        self.short = nn.Conv2d(entering, leaving, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.active(self.norm1(self.conv1(x)))))
        return self.last(self.add(y, self.short(x)))


class ProjectedAttention(nn.Module):
    """Projections around `Attend`, of a sequence to itself or to a context. Keys have no bias: its
    gradient is zero but for rounding.
    """

    def __init__(
        self,
        width: int = WIDTH,
        *,
        causal: bool = False,
        rotary: bool = False,
        bias: bool = True,
        distances: int = 0,
    ) -> None:
        super().__init__()
        self.q = nn.Linear(width, width, bias=bias)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=bias)
        self.rotate_q = Function(rotate, HEADS) if rotary else nn.Identity()
        self.rotate_k = Function(rotate, HEADS) if rotary else nn.Identity()
        self.attend = Attend(HEADS, causal=causal, distances=distances)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        context = x if context is None else context
        q, k = self.rotate_q(self.q(x)), self.rotate_k(self.k(context))
        return self.out(self.attend(q, k, self.v(context)))


class FeedForward(nn.Module):
    """Two linear layers, or three with a gate."""

    def __init__(self, activation: nn.Module, *, gated: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.up, self.active = nn.Linear(WIDTH, 2 * WIDTH, bias=bias), activation
        self.gate = nn.Linear(WIDTH, 2 * WIDTH, bias=bias) if gated else None
        self.multiply = Function(torch.mul) if gated else None
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        y = self.active(self.up(x))
        if self.gate is not None and self.multiply is not None:
            y = self.multiply(y, self.gate(x))
        return self.down(y)


MakeNorm = Callable[[int], nn.Module]


class TransformerBlock(nn.Module):
    """A transformer's block, norms first; with `crossed`, attention to a second sequence too."""

    def __init__(
        self,
        attention: nn.Module,
        feed: nn.Module,
        norm: MakeNorm,
        crossed: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.norm1, self.attention, self.add1 = norm(WIDTH), attention, Function(torch.add)
        self.norm3 = norm(WIDTH) if crossed is not None else None
        self.crossed, self.add3 = crossed, Function(torch.add) if crossed is not None else None
        self.norm2, self.feed, self.add2 = norm(WIDTH), feed, Function(torch.add)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        x = self.add1(x, self.attention(self.norm1(x)))
        if self.crossed is not None and self.norm3 is not None and self.add3 is not None:
            x = self.add3(x, self.crossed(self.norm3(x), context))
        return self.add2(x, self.feed(self.norm2(x)))


Blocks = list[TransformerBlock]


class Translation(nn.Module):
    """Encoder and decoder: T5-shaped from tokens, Whisper-shaped from a spectrogram."""

    def __init__(
        self, front: nn.Module, make: Callable[..., TransformerBlock], norm: MakeNorm
    ) -> None:
        super().__init__()
        self.front, self.encoder, self.middle = front, make(decoder=False), norm(WIDTH)
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.decoder, self.norm = make(decoder=True), norm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, source: Tensor, tokens: Tensor) -> Tensor:
        memory = self.middle(self.encoder(self.front(source)))
        return self.head(self.norm(self.decoder(self.embed(tokens), memory)))


class Experts(nn.Module):
    """A mixture: four experts, each of which takes the tokens that it scores highest."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.pick = Pick(BATCH * EXPERTS_LENGTH // EXPERTS)
        self.gathers = nn.ModuleList(Function(gather, expert) for expert in range(EXPERTS))
        self.experts = nn.ModuleList(
            FeedForward(nn.SiLU(), gated=True, bias=False) for _ in range(EXPERTS)
        )
        self.returns = nn.ModuleList(Function(give_back, expert) for expert in range(EXPERTS))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        scores = self.router(rows)
        chosen = self.pick(scores)
        y = torch.zeros_like(rows)
        for gather, expert, back in zip(self.gathers, self.experts, self.returns, strict=True):
            y = back(y, expert(gather(rows, chosen)), scores, chosen)
        return y.unflatten(0, x.shape[:2])


def _twice(attention: Callable[[], nn.Module], feed: Callable[[], nn.Module]) -> Blocks:
    return [TransformerBlock(attention(), feed(), nn.LayerNorm) for _ in range(2)]


def _stacked(**layers: nn.Module) -> nn.Sequential:
    """Return layers that run in their order, by name."""
    return nn.Sequential(OrderedDict(layers))


def _mlp() -> nn.Module:
    wide, narrow, head = nn.Linear(WIDTH, 129), nn.Linear(129, 65), nn.Linear(65, CLASSES)
    return Model(_stacked(layers=nn.Sequential(wide, nn.GELU(), narrow, nn.SiLU(), head)))


def _resnet() -> nn.Module:
    layers = _stacked(
        stem=nn.Conv2d(3, 16, 3, 1, 1, bias=False),
        block1=ConvolutionBlock(16, 16, 1),
        block2=ConvolutionBlock(16, 32, 2),
        pool=Function(torch.mean, (2, 3)),
        head=nn.Linear(32, CLASSES),
    )
    return Model(layers)


def _vit() -> nn.Module:
    layers = _stacked(
        patches=nn.Conv2d(3, WIDTH, 5, 5),
        sequence=Function(as_sequence),
        positions=Positions(25, WIDTH),
        blocks=nn.Sequential(*_twice(ProjectedAttention, lambda: FeedForward(nn.GELU()))),
        norm=nn.LayerNorm(WIDTH),
        pool=Function(torch.mean, 1),
        head=nn.Linear(WIDTH, CLASSES),
    )
    return Model(layers)


def _language(blocks: Blocks, norm: MakeNorm, *, positions: bool) -> nn.Module:
    """Return token numbers to logits: GPT-, BERT- and Llama-shaped by what it is given."""
    layers = _stacked(
        embed=nn.Embedding(VOCABULARY, WIDTH),
        positions=Positions(LENGTH, WIDTH) if positions else nn.Identity(),
        blocks=nn.Sequential(*blocks),
        norm=norm(WIDTH),
        head=nn.Linear(WIDTH, VOCABULARY, bias=False),
    )
    return Model(layers)


def _text(attention: Callable[[], nn.Module], activation: nn.Module) -> nn.Module:
    blocks = _twice(attention, lambda: FeedForward(activation))
    return _language(blocks, nn.LayerNorm, positions=True)


def _t5() -> nn.Module:
    def block(*, decoder: bool) -> TransformerBlock:
        inner = ProjectedAttention(causal=decoder, bias=False, distances=0 if decoder else 8)
        crossed = ProjectedAttention(bias=False) if decoder else None
        feed = FeedForward(nn.GELU("tanh"), gated=True, bias=False)
        return TransformerBlock(inner, feed, RootMeanSquareNorm, crossed)

    embed = nn.Embedding(VOCABULARY, WIDTH)
    return Model(Translation(embed, block, RootMeanSquareNorm))


def _llama(make_feed: Callable[[], nn.Module], count: int) -> nn.Module:
    norm = RootMeanSquareNorm
    blocks = [
        TransformerBlock(ProjectedAttention(causal=True, rotary=True, bias=False), feed, norm)
        for feed in (make_feed() for _ in range(count))
    ]
    return _language(blocks, norm, positions=False)


def _whisper() -> nn.Module:
    def block(*, decoder: bool) -> TransformerBlock:
        crossed = ProjectedAttention() if decoder else None
        attention, feed = ProjectedAttention(causal=decoder), FeedForward(nn.GELU())
        return TransformerBlock(attention, feed, nn.LayerNorm, crossed)

    front = nn.Sequential(
        nn.Conv1d(20, WIDTH, 3, 1, 1),
        nn.GELU(),
        nn.Conv1d(WIDTH, WIDTH, 3, 2, 1),
        nn.GELU(),
        Function(as_sequence),
        Positions(LENGTH, WIDTH),
    )
    return Model(Translation(front, block, nn.LayerNorm))


def _drawn(*parts: tuple[int, ...]) -> MakeInputs:
    """Return inputs by shapes: integers below their first number, normal ones where it is 0."""
    return lambda generator: tuple(
        torch.randint(0, below, shape, generator=generator)
        if below
        else torch.randn(shape, generator=generator)
        for below, *shape in parts
    )


def _tokens(*lengths: int) -> MakeInputs:
    return _drawn(*((VOCABULARY, BATCH, length) for length in lengths))


FAMILIES = (
    Family("mlp", _mlp, _drawn((0, 67, WIDTH), (CLASSES, 67))),
    Family("resnet", _resnet, _drawn((0, 3, 3, 17, 17), (CLASSES, 3))),
    Family("vit", _vit, _drawn((0, 3, 3, 25, 25), (CLASSES, 3))),
    Family("bert", lambda: _text(ProjectedAttention, nn.GELU()), _tokens(LENGTH, LENGTH)),
    Family(
        "gpt",
        lambda: _text(partial(ProjectedAttention, causal=True), nn.GELU("tanh")),
        _tokens(LENGTH, LENGTH),
    ),
    Family(
        "llama",
        lambda: _llama(lambda: FeedForward(nn.SiLU(), gated=True, bias=False), 2),
        _tokens(LENGTH, LENGTH),
    ),
    Family("moe", lambda: _llama(Experts, 1), _tokens(EXPERTS_LENGTH, EXPERTS_LENGTH)),
    Family("t5", _t5, _tokens(LENGTH, OTHER_LENGTH, OTHER_LENGTH)),
    Family(
        "whisper",
        _whisper,
        _drawn((0, BATCH, 20, 2 * LENGTH), *[(VOCABULARY, BATCH, OTHER_LENGTH)] * 2),
    ),
)


def _network(name: str, make: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Family:
    """Return a network from the shapes of its input and its output. What is fed back is random,
    and so are all parameters: sums then walk at random, as the bounds of rounded ones suppose, and
    a norm's weights are not the ones and zeros that hide what is done with them.
    """

    def build() -> nn.Module:
        body = make()
        for kind, parameter in body.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0.0, parameter[0].numel() ** -0.5)
            else:
                nn.init.normal_(parameter, 1.0 if kind.endswith("weight") else 0.0, 0.2)
        return Model(body, weighted)

    return Family(name, build, _drawn(*((0, *shape) for shape in shapes)))


# What all else is made of, larger than above: the `numerics` session.
NETWORKS = (
    _network(
        "mlp",
        lambda: nn.Sequential(nn.Linear(256, 384), nn.GELU(), nn.Linear(384, 128)),
        (67, 256),
        (67, 128),
    ),
    _network(
        "convolution",
        lambda: nn.Sequential(
            # No bias before a batch norm: its gradient is zero but for rounding.
            nn.Conv2d(16, 48, 3, padding=1, bias=False),
            nn.BatchNorm2d(48),
            nn.SiLU(),
            nn.Conv2d(48, 40, 3, stride=2, padding=1),
        ),
        (3, 16, 17, 17),
        (3, 40, 9, 9),
    ),
    _network(
        "attention",
        lambda: _stacked(norm=nn.LayerNorm(128), attention=ProjectedAttention(128)),
        (2, 67, 128),
        (2, 67, 128),
    ),
)
