"""Work in floating-point operations and bytes, from shapes alone; docs/bench.md has the sources.

A multiplication and an addition are two operations. Integers, nothing rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

# What a backward pass costs, in forwards: gradients of weights and of inputs.
BACKWARD = 2


def gemm_flops(m: int, k: int, n: int, batch: int = 1) -> int:
    return 2 * batch * m * k * n


@dataclass(frozen=True)
class Convolution:
    """`n` pictures of `cin` channels and `size` x `size` pixels, kernels of `kernel` x `kernel`."""

    n: int
    cin: int
    size: int
    cout: int
    kernel: int
    stride: int = 1
    groups: int = 1

    @property
    def padding(self) -> int:
        return self.kernel // 2

    @property
    def out(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def flops(self) -> int:
        per_output = (self.cin // self.groups) * self.kernel**2
        return 2 * self.n * self.cout * self.out**2 * per_output

    @property
    def elements(self) -> int:
        """Input, weights and output, each passed over once."""
        weights = self.cout * (self.cin // self.groups) * self.kernel**2
        pictures = self.cin * self.size**2 + self.cout * self.out**2
        return self.n * pictures + weights


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
