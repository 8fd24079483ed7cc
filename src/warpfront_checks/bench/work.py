"""Cases as functions to be called, and training steps of a decoder: inputs are made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from warpfront_checks.bench.timed_cases import BOTH, MI, Decoder, TimedCase
from warpfront_checks.cases.catalogue import CATALOGUE

Work = Callable[[], object]
Draw = Callable[..., list[Any]]
_SEED = 0
_PAIRS = ("add", "mul", "div")
_NAMES = {"torch": torch, "F": functional}


def _call(record: str, **options: Any) -> Callable[..., Any]:
    """Return the call of a record of the catalogue; options have their first values by default."""
    first = {name: values[0] for name, values in CATALOGUE[record].options.items()}
    code = CATALOGUE[record].code.format(**{k: repr(v) for k, v in {**first, **options}.items()})
    call: Callable[..., Any] = eval(f"lambda a, b=None, c=None: {code}", _NAMES)  # noqa: S307 - ours
    return call


_STREAMS: dict[str, Callable[..., Any]] = {
    **{name: _call(name) for name in (*_PAIRS, "sigmoid", "tanh", "gelu")},
    **{name: _call(f"{name} of all") for name in ("sum", "mean")},
    # Of these a record multiplies the argument first, or names an axis.
    "relu": functional.relu,
    "silu": functional.silu,
    "amax": torch.amax,
    "sum_rows": _call("sum", dim=1),
    "softmax": _call("softmax", dim=-1),
}
# Of sizes: the shapes of tensors, and what computes with them.
_LAYERS: dict[str, Callable[..., tuple[list[tuple[int, ...]], Callable[..., Any]]]] = {
    "mm": lambda m, k, n: ([(m, k), (k, n)], _call("mm")),
    "bmm": lambda batch, m, k, n: ([(batch, m, k), (batch, k, n)], _call("bmm")),
    "conv2d": lambda n, cin, size, cout, kernel, stride: (
        [(n, cin, size, size), (cout, cin, kernel, kernel)],
        _call("conv2d", stride=stride, padding=kernel // 2),
    ),
    "max_pool2d": lambda n, channels, size, window: (
        [(n, channels, size, size)],
        _call("max_pool2d", kernel=window, stride=window),
    ),
    **{
        f"{name}attention": lambda batch, sequence, hidden, heads, name=name: (
            [(batch, heads, sequence, hidden // heads)] * 3,
            _call(f"{name}attention".replace("_", " ")),
        )
        for name in ("", "causal_")
    },
}


def work_of(case: TimedCase, device: str) -> Work:
    """Raises `LookupError` for a case that means nothing on this device, and whatever torch raises
    for inputs it cannot make.
    """
    both = case.direction == BOTH
    draw = _drawing(device, case.dtype, gradient=both)
    if case.suite == "memory":
        # Host memory that was written to before: untouched pages are copied from nowhere.
        if device == "cpu":
            raise LookupError("there is no device to copy to")
        way, _, memory = case.op.partition("_")
        pinned = memory == "pinned"
        count = case.sizes[0] * MI
        host = torch.ones(count, dtype=torch.uint8, pin_memory=pinned)
        device_bytes = torch.zeros(count, dtype=torch.uint8, device=device)
        target, source = (device_bytes, host) if way == "h2d" else (host, device_bytes)
        return lambda: target.copy_(source, non_blocking=pinned)
    if case.op in _MADE:
        forward, needing = _MADE[case.op](case.sizes, draw)
    elif case.op in _LAYERS:
        shapes, compute = _LAYERS[case.op](*case.sizes)
        needing = draw(*shapes)
        forward = partial(compute, *needing)
    else:
        tensors = draw(*[case.sizes] * (2 if case.op in _PAIRS else 1))
        return partial(_STREAMS[case.op], *tensors)
    if not both:
        without: Work = torch.no_grad()(forward)
        return without
    # The gradients are thrown away: none is added to an older one.
    gradient = torch.ones_like(forward())
    return lambda: torch.autograd.grad(forward(), needing, gradient)


def _drawing(device: str, dtype: str, *, gradient: bool) -> Draw:
    """Return the source of a case's tensors, scaled so that nothing overflows in any dtype."""
    generator = torch.Generator(device).manual_seed(_SEED)
    options = {"generator": generator, "device": device, "dtype": getattr(torch, dtype)}

    def draw(*shapes: tuple[int, ...], gradient: bool = gradient) -> list[Any]:
        return [torch.randn(shape, **options).div_(8).requires_grad_(gradient) for shape in shapes]

    return draw


Made = tuple[Callable[[], Any], list[Any]]


def _batch_norm(sizes: tuple[int, ...], draw: Draw) -> Made:
    """Return a batch norm with running statistics, as inference has it: one pass."""
    n, channels, size = sizes
    x, weight, bias, mean = draw((n, channels, size, size), *[(channels,)] * 3)
    variance = torch.ones_like(mean)
    return lambda: functional.batch_norm(x, mean, variance, weight, bias), [x]


def _mlp(sizes: tuple[int, ...], draw: Draw) -> Made:
    batch, *widths = sizes
    (x,) = draw((batch, widths[0]), gradient=False)
    weights = draw(*zip(widths[1:], widths))  # noqa: B905 - pairs

    def forward() -> Any:
        hidden = x
        for weight in weights[:-1]:
            hidden = functional.relu(functional.linear(hidden, weight))
        return functional.linear(hidden, weights[-1])

    return forward, weights


_MADE = {"mlp": _mlp, "batch_norm": _batch_norm}
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
