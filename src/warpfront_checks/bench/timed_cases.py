"""The table of timed cases: shapes, and the work and bytes that follow from them, in integers: a
multiplication and an addition are two operations (docs/bench.md has the sources). No torch.

A case's id is `op/shape/dtype/direction`, the same on every device, so that records
can be compared.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from warpfront_checks.documents import packaged

MI = 2**20
ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
# Suite, operation, shape, elements read and written.
Streamed = tuple[str, str, tuple[int, ...], int]
FORWARD, BOTH, COPY = "forward", "both", "copy"

# The seed's flags, in its order, and what each times: --matmul products and batches of them.
SUITES: Mapping[str, str] = {
    "matmul": "matrix products, and batches of them",
    "conv": "convolutions, forward and with gradients",
    "activations": "activations and softmax",
    "reductions": "sums, means and maxima",
    "elementwise": "two tensors to one",
    "memory": "copies to the device and back, pageable and pinned",
    "pooling": "pooling",
    "batchnorm": "batch normalisation",
    "mlp": "linear layers, forward and with gradients",
    "attention": "attention, full and causal, forward and with gradients",
    "train": "training steps of a decoder: tokens/s and MFU",
}


# What a backward pass costs, in forwards: gradients of weights and of inputs.
BACKWARD = 2


def gemm_flops(m: int, k: int, n: int, batch: int = 1) -> int:
    return 2 * batch * m * k * n


ConvolutionSizes = tuple[int, int, int, int, int, int]


def convolution_work(shape: ConvolutionSizes) -> tuple[int, int]:
    """Return the FLOPs of a forward pass, and the elements of input, weights and output, each
    passed over once. `shape` is the number of pictures, their channels, their height, which is
    their width, the output's channels, the kernel's height, and the stride.
    """
    n, cin, size, cout, kernel, stride = shape
    out = (size + 2 * (kernel // 2) - kernel) // stride + 1
    weights = cout * cin * kernel**2
    return 2 * n * out**2 * weights, n * (cin * size**2 + cout * out**2) + weights


def attention_flops(batch: int, sequence: int, hidden: int) -> int:
    """Return the FLOPs of both products of a forward pass, masked part too, without softmax."""
    return 4 * batch * sequence**2 * hidden


def mlp_flops(batch: int, widths: tuple[int, ...]) -> int:
    return sum(gemm_flops(batch, first, other) for first, other in pairwise(widths))


@dataclass(frozen=True)
class Decoder:
    """A GPT-shaped model: causal, feed-forward of four times the width, nothing shared."""

    hidden: int
    layers: int
    heads: int
    sequence: int
    batch: int
    vocabulary: int

    @property
    def multiplied_parameters(self) -> int:
        """Return the number of parameters that multiply every token: no tables, no norms."""
        return self.layers * 12 * self.hidden**2 + self.hidden * self.vocabulary

    @property
    def tokens_per_step(self) -> int:
        return self.batch * self.sequence

    @property
    def model_flops_per_token(self) -> int:
        """Forward and backward; attention as a causal mask leaves it, half of the full product."""
        attention = 6 * self.layers * self.hidden * self.sequence
        return 6 * self.multiplied_parameters + attention


@dataclass(frozen=True)
class TimedCase:
    """An operation on one shape. `work` makes it from `sizes`; `flops` is None for an
    operation that is not counted by them, `bytes` for one that memory does not bound.
    """

    suite: str
    op: str
    sizes: tuple[int, ...]
    dtype: str
    direction: str = FORWARD
    flops: int | None = None
    bytes: int | None = None
    note: str = ""

    @property
    def shape(self) -> str:
        return "x".join(map(str, self.sizes))

    @property
    def id(self) -> str:
        return f"{self.op}/{self.shape}/{self.dtype}/{self.direction}"


@dataclass(frozen=True)
class Preset:
    """The amount of timing: the shapes of each suite, and `seconds`, the budget of a case."""

    dtypes: tuple[str, ...]
    seconds: float
    products: tuple[tuple[int, int, int], ...]
    batches: tuple[tuple[int, int, int, int], ...]
    convolutions: tuple[ConvolutionSizes, ...]
    elements: tuple[int, ...]
    softmax: tuple[tuple[int, ...], ...]
    reductions: tuple[tuple[int, int], ...]
    pools: tuple[tuple[int, int, int, int], ...]
    norms: tuple[tuple[int, int, int], ...]
    copies: tuple[int, ...]
    mlps: tuple[tuple[int, ...], ...]
    attentions: tuple[tuple[int, int, int, int], ...]
    decoder: Decoder


def _presets() -> dict[str, Preset]:
    """Return the presets of presets.json; one that is `like` another has its fields."""
    document, presets = packaged("bench/presets.json"), {}
    for name, row in document.items():
        fields = {**document.get(row.get("like", ""), {}), **row}
        fields.pop("like", None)
        fields["decoder"] = Decoder(**fields["decoder"])
        presets[name] = Preset(**{key: _frozen(value) for key, value in fields.items()})
    return presets


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


PRESETS = _presets()
TINY, SEED = PRESETS["tiny"], PRESETS["seed"]


def cases_of(preset: Preset, dtypes: Iterable[str] = ()) -> tuple[TimedCase, ...]:
    """Return a preset's cases without training, each dtype in turn; copies have no dtype."""
    typed = (case for dtype in (dtypes or preset.dtypes) for case in _typed(preset, dtype))
    ways = [f"{op}_{memory}" for op in ("h2d", "d2h") for memory in ("pageable", "pinned")]
    copies = (
        TimedCase("memory", way, (mebibytes,), "uint8", COPY, bytes=mebibytes * MI)
        for mebibytes in preset.copies
        for way in ways
    )
    return (*typed, *copies)


def chosen(
    cases: Iterable[TimedCase], suites: Iterable[str], pattern: str
) -> tuple[TimedCase, ...]:
    names = set(suites) or set(SUITES)
    matches = partial(fnmatch.fnmatchcase, pat=pattern or "*")
    return tuple(case for case in cases if case.suite in names and matches(case.id))


def _typed(preset: Preset, dtype: str) -> Iterator[TimedCase]:
    item = ITEM_BYTES[dtype]
    for m, k, n in preset.products:
        moved = (m * k + k * n + m * n) * item
        yield TimedCase("matmul", "mm", (m, k, n), dtype, flops=gemm_flops(m, k, n), bytes=moved)
    for batch, m, k, n in preset.batches:
        flops, moved = gemm_flops(m, k, n, batch), batch * (m * k + k * n + m * n) * item
        yield TimedCase("matmul", "bmm", (batch, m, k, n), dtype, flops=flops, bytes=moved)
    for shape in preset.convolutions:
        flops, elements = convolution_work(shape)
        yield TimedCase("conv", "conv2d", shape, dtype, flops=flops, bytes=elements * item)
        both = (1 + BACKWARD) * flops
        yield TimedCase("conv", "conv2d", shape, dtype, BOTH, flops=both)
    # What memory bounds, with the bytes that are read and written.
    for suite, op, sizes, elements in _moved(preset):
        yield TimedCase(suite, op, sizes, dtype, bytes=elements * item)
    for batch, *widths in preset.mlps:
        flops = mlp_flops(batch, tuple(widths))
        # The first layer's input needs no gradient: one product less.
        saved = gemm_flops(batch, widths[0], widths[1])
        sizes = (batch, *widths)
        yield TimedCase("mlp", "mlp", sizes, dtype, flops=flops)
        both = (1 + BACKWARD) * flops - saved
        yield TimedCase("mlp", "mlp", sizes, dtype, BOTH, flops=both)
    for batch, sequence, hidden, heads in preset.attentions:
        flops, sizes = attention_flops(batch, sequence, hidden), (batch, sequence, hidden, heads)
        for op, note in (("attention", "counted full"), ("causal_attention", "counted causal")):
            counted = flops // 2 if op == "causal_attention" else flops
            yield TimedCase("attention", op, sizes, dtype, flops=counted, note=note)
            both = (1 + BACKWARD) * counted
            yield TimedCase("attention", op, sizes, dtype, BOTH, flops=both, note=note)


def _moved(preset: Preset) -> Iterator[Streamed]:
    for size in preset.elements:
        for op in ("relu", "sigmoid", "tanh", "gelu", "silu"):
            yield "activations", op, (size,), 2 * size
    for sizes in preset.softmax:
        yield "activations", "softmax", sizes, 2 * math.prod(sizes)
    for op in ("add", "mul", "div"):
        yield "elementwise", op, (preset.elements[-1],), 3 * preset.elements[-1]
    for rows, columns in preset.reductions:
        for op, written in (("sum", 1), ("mean", 1), ("amax", 1), ("sum_rows", rows)):
            yield "reductions", op, (rows, columns), rows * columns + written
    for n, channels, size, window in preset.pools:
        pixels = n * channels * (size**2 + (size // window) ** 2)
        yield "pooling", "max_pool2d", (n, channels, size, window), pixels
    for n, channels, size in preset.norms:
        yield "batchnorm", "batch_norm", (n, channels, size), 2 * n * channels * size**2
