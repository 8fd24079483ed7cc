"""Cases as functions to be called, and training steps of a decoder: inputs are made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from warpfront_checks.bench.timed_cases import BOTH, MI, Decoder, TimedCase

Work = Callable[[], object]
_SEED = 0
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in ("relu", "sigmoid", "tanh", "sum", "mean", "amax")},
    **{name: getattr(functional, name) for name in ("gelu", "silu")},
    "sum_rows": lambda x: torch.sum(x, dim=1),
    "softmax": lambda x: torch.softmax(x, dim=-1),
}
_PAIRS: dict[str, Callable[..., Any]] = {"add": torch.add, "mul": torch.mul, "div": torch.div}


class NoSuchWorkError(LookupError):
    """A case that means nothing on this device."""


def work_of(case: TimedCase, device: str) -> Work:
    """Raises `NoSuchWorkError`, and whatever torch raises for inputs it cannot make."""
    inputs = _Inputs(device, case.dtype, needs_gradient=case.direction == BOTH)
    if case.suite == "memory":
        if device == "cpu":
            raise NoSuchWorkError("there is no device to copy to")
        way, _, memory = case.op.partition("_")
        count = case.sizes[0] * MI
        host = torch.ones(count, dtype=torch.uint8, pin_memory=memory == "pinned")
        device_bytes = torch.zeros(count, dtype=torch.uint8, device=device)
        target, source = (device_bytes, host) if way == "h2d" else (host, device_bytes)
        return lambda: target.copy_(source, non_blocking=memory == "pinned")
    if case.op in _ELEMENTWISE:
        (x,) = inputs.normal(case.sizes)
        function = _ELEMENTWISE[case.op]
        return lambda: function(x)
    if case.op in _PAIRS:
        first, other = inputs.normal(case.sizes, case.sizes)
        paired = _PAIRS[case.op]
        return lambda: paired(first, other)
    forward, needing = _LAYERS[case.op](case.sizes, inputs)
    without: Work = torch.no_grad()(forward)
    return _both(forward, needing) if case.direction == BOTH else without


class _Inputs:
    """Tensors of one case, scaled so that nothing overflows in any dtype."""

    def __init__(self, device: str, dtype: str, *, needs_gradient: bool) -> None:
        self._device, self._dtype = device, getattr(torch, dtype)
        self._needs_gradient = needs_gradient
        self._generator = torch.Generator(device).manual_seed(_SEED)

    def normal(self, *shapes: tuple[int, ...], needs_gradient: bool = True) -> list[Any]:
        return [self._one(shape, needs_gradient=needs_gradient) for shape in shapes]

    def _one(self, shape: tuple[int, ...], *, needs_gradient: bool) -> Any:
        options = {"generator": self._generator, "device": self._device, "dtype": self._dtype}
        tensor = torch.randn(shape, **options).div_(8)
        return tensor.requires_grad_(self._needs_gradient and needs_gradient)


def _both(forward: Callable[[], Any], needing: list[Any]) -> Work:
    """Forward, and the gradients of `needing`, thrown away: none is added to an older one."""
    gradient = torch.ones_like(forward())

    def run() -> object:
        return torch.autograd.grad(forward(), needing, gradient)

    return run


Made = tuple[Callable[[], Any], list[Any]]


def _mm(sizes: tuple[int, ...], inputs: _Inputs) -> Made:
    m, k, n = sizes
    a, b = inputs.normal((m, k), (k, n))
    return lambda: torch.mm(a, b), [a, b]


def _bmm(sizes: tuple[int, ...], inputs: _Inputs) -> Made:
    batch, m, k, n = sizes
    a, b = inputs.normal((batch, m, k), (batch, k, n))
    return lambda: torch.bmm(a, b), [a, b]


def _conv2d(sizes: tuple[int, ...], inputs: _Inputs) -> Made:
    n, cin, size, cout, kernel, stride = sizes
    x, weight = inputs.normal((n, cin, size, size), (cout, cin, kernel, kernel))
    padding = kernel // 2
    return lambda: functional.conv2d(x, weight, stride=stride, padding=padding), [x, weight]


def _max_pool2d(sizes: tuple[int, ...], inputs: _Inputs) -> Made:
    n, channels, size, window = sizes
    (x,) = inputs.normal((n, channels, size, size))
    return lambda: functional.max_pool2d(x, window), [x]


def _batch_norm(sizes: tuple[int, ...], inputs: _Inputs) -> Made:
    """Return a batch norm with running statistics, as inference has it: one pass."""
    n, channels, size = sizes
    x, weight, bias, mean = inputs.normal((n, channels, size, size), *[(channels,)] * 3)
    variance = torch.ones_like(mean)
    return lambda: functional.batch_norm(x, mean, variance, weight, bias), [x]


def _mlp(sizes: tuple[int, ...], inputs: _Inputs) -> Made:
    batch, *widths = sizes
    (x,) = inputs.normal((batch, widths[0]), needs_gradient=False)
    weights = inputs.normal(*zip(widths[1:], widths))  # noqa: B905 - pairs

    def forward() -> Any:
        hidden = x
        for weight in weights[:-1]:
            hidden = functional.relu(functional.linear(hidden, weight))
        return functional.linear(hidden, weights[-1])

    return forward, weights


def _attention(sizes: tuple[int, ...], inputs: _Inputs, *, causal: bool = False) -> Made:
    batch, sequence, hidden, heads = sizes
    q, k, v = inputs.normal(*[(batch, heads, sequence, hidden // heads)] * 3)
    attend = functional.scaled_dot_product_attention
    return lambda: attend(q, k, v, is_causal=causal), [q, k, v]


_LAYERS: dict[str, Callable[[tuple[int, ...], _Inputs], Made]] = {
    "mm": _mm,
    "bmm": _bmm,
    "conv2d": _conv2d,
    "max_pool2d": _max_pool2d,
    "batch_norm": _batch_norm,
    "mlp": _mlp,
    "attention": _attention,
    "causal_attention": lambda sizes, inputs: _attention(sizes, inputs, causal=True),
}


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
