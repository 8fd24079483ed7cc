"""Patterns that compilers fuse: a product with bias and activation, a convolution with its
normalisation, an addition with ReLU. Judged end to end, for inside a fused kernel nothing shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.executing import Computed
from warpfront_checks.operations import (
    BATCH_NORM,
    C_OTHER,
    LINEAR,
    Arithmetic,
    Budgeted,
    ExpectedResults,
    Instead,
    Operation,
    Pointwise,
    convolution,
)
from warpfront_checks.operators.bounds import Elementwise, Moved, spacing
from warpfront_checks.operators.cases import Case, Maker, execute_case

DRAWS = 16
LOOSE_AT_ONCE = 64
SEED_OF_DRAWS = 20_040
# reduce-overhead and max-autotune capture graphs; on ROCm the first is refused outright (seed of
# the porting rules), and on all devices a wrong answer through a graph differs from a slow one.
GRAPH_MODE, PLAIN_MODE = "reduce-overhead", "default"
NO_GRAPHS = {"triton.cudagraphs": False, "triton.cudagraph_trees": False, "memory_planning": False}


@dataclass(frozen=True, kw_only=True)
class FusedPattern:
    """Operations in a row: each takes the result of the one before and parameters of its own.

    The error of one operation reaches the end through the others. Where they are smooth it is
    sampled: every intermediate value and gradient is moved by its own bound, up or down at random,
    in float64. A kink is not sampled, for one element on its other side may be the whole error of a
    gradient. Every element that may lie on either side counts, with all of its gradient.
    """

    stages: tuple[Operation, ...]
    counts: tuple[int, ...]
    kind: str = "fused"

    def __call__(self, *inputs: Tensor) -> Tensor:
        return self.run(inputs)[-1]

    def run(
        self, inputs: Sequence[Tensor], disturb: Callable[[int, Tensor], Tensor] | None = None
    ) -> list[Tensor]:
        """Return the result of every stage; `disturb` modifies each before the next stage."""
        results: list[Tensor] = []
        rest = list(inputs)
        for stage, count in zip(self.stages, self.counts, strict=True):
            parameters, rest = rest[:count], rest[count:]
            value = stage(*results[-1:], *parameters)
            results.append(disturb(len(results), value) if disturb else value)
        return results

    def judge(
        self, inputs: Sequence[Tensor], cotangent: Tensor, arithmetic: Arithmetic
    ) -> ExpectedResults:
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        results = self.run(leaves)
        flowing = torch.autograd.grad(results[-1], results, cotangent, retain_graph=True)
        judgements = self._stage_judgements(inputs, results, flowing, arithmetic)
        exact = _Flow(
            results, torch.autograd.grad(results[-1], leaves, cotangent, retain_graph=True)
        )
        moved = self._moved(inputs, cotangent, judgements)
        hanging = self._hanging(leaves, exact, flowing, judgements, moved)
        # A moved value is rounded at its new size, not at the reference's.
        rounded = 1 + C_OTHER * arithmetic.unit
        parameter_bounds = self._own_bounds(judgements)
        bounds = [
            parameter_bounds[0]
            + rounded * _apart(exact.values[-1], [shift.values[-1] for shift in moved])
        ]
        for i, gradient in enumerate(exact.gradients):
            apart = _apart(gradient, [shift.gradients[i] for shift in moved])
            bounds.append(parameter_bounds[i + 1] + rounded * (apart + hanging[i]))
        budgets = [
            Budgeted(reference=reference.detach(), bound=bound.detach())
            for reference, bound in zip((results[-1], *exact.gradients), bounds, strict=True)
        ]
        return ExpectedResults(output=budgets[0], gradients=tuple(budgets[1:]))

    def _stage_judgements(
        self,
        inputs: Sequence[Tensor],
        results: Sequence[Tensor],
        flowing: Sequence[Tensor],
        arithmetic: Arithmetic,
    ) -> list[ExpectedResults]:
        """Judge every stage by itself, at the exact values and gradients around it."""
        judgements, rest = [], list(inputs)
        for i, (stage, count) in enumerate(zip(self.stages, self.counts, strict=True)):
            parameters, rest = rest[:count], rest[count:]
            operands = [*(r.detach() for r in results[i - 1 : i] if i), *parameters]
            judgement = stage.judge(operands, flowing[i], arithmetic)
            judgements.append(replace(judgement, output=_rounded(judgement.output, arithmetic)))
        return judgements

    def _own_bounds(self, judgements: Sequence[ExpectedResults]) -> list[Tensor]:
        """Return the bounds of the last operation, and of each parameter's own gradient."""
        bounds = [judgements[-1].output.bound]
        for i, judgement in enumerate(judgements):
            bounds += [gradient.bound for gradient in judgement.gradients[1 if i else 0 :]]
        return bounds

    def _hanging(
        self,
        leaves: Sequence[Tensor],
        exact: _Flow,
        flowing: Sequence[Tensor],
        judgements: Sequence[ExpectedResults],
        moved: Sequence[_Flow],
    ) -> list[Tensor]:
        """Return the bound of each input's gradient because of kinks. Each gradient that
        depends on a side is propagated by itself, and added up without its sign.
        """
        total = [torch.zeros_like(leaf) for leaf in leaves]
        for i, stage in enumerate(self.stages):
            undecided = getattr(stage, "undecided", None)
            if undecided is None or not i:
                continue
            x = exact.values[i - 1]
            off = judgements[i - 1].output.bound + _apart(x, [flow.values[i - 1] for flow in moved])
            loose = undecided(x.detach(), off.detach(), flowing[i])
            parts = _carried_back(x, leaves, loose)
            total = [sums + part for sums, part in zip(total, parts, strict=True)]
        return total

    def _moved(
        self, inputs: Sequence[Tensor], cotangent: Tensor, judgements: Sequence[ExpectedResults]
    ) -> list[_Flow]:
        generator = torch.Generator().manual_seed(SEED_OF_DRAWS)

        def off(bound: Tensor) -> Tensor:
            return bound * (torch.randint(0, 2, bound.shape, generator=generator) * 2 - 1)

        def disturb(stage: int, value: Tensor) -> Tensor:
            if stage == len(judgements) - 1:
                return value
            value = value + off(judgements[stage].output.bound)
            if value.requires_grad:
                bound = judgements[stage + 1].gradients[0].bound
                value.register_hook(lambda gradient: gradient + off(bound))
            return value

        def draw() -> _Flow:
            leaves = [x.detach().clone().requires_grad_() for x in inputs]
            values = self.run(leaves, disturb)
            gradients = torch.autograd.grad(values[-1], leaves, cotangent)
            return _Flow([value.detach() for value in values], gradients)

        return [draw() for _ in range(DRAWS)]


class _Flow(NamedTuple):
    """The results of every stage, and the gradient of every input."""

    values: Sequence[Tensor]
    gradients: Sequence[Tensor]


def _apart(reference: Tensor, rest: Sequence[Tensor]) -> Tensor:
    return torch.stack([other - reference for other in rest]).abs().amax(0)


def _carried_back(x: Tensor, leaves: Sequence[Tensor], loose: Tensor) -> list[Tensor]:
    """Return the sum of absolute gradients of the leaves if each element of `loose` is a
    gradient of `x` alone. It takes one backward pass per element, for signs that cancel in one sum
    need not in another.
    """
    total = [torch.zeros_like(leaf) for leaf in leaves]
    hanging = loose.flatten().nonzero().flatten()
    for places in hanging.split(LOOSE_AT_ONCE) if len(hanging) else ():
        one_hot = loose.new_zeros(len(places), loose.numel())
        one_hot[torch.arange(len(places)), places] = loose.flatten()[places]
        gradients = torch.autograd.grad(
            x,
            leaves,
            one_hot.reshape(-1, *x.shape),
            allow_unused=True,
            is_grads_batched=True,
            retain_graph=True,
        )
        total = [
            sums if part is None else sums + part.detach().abs().sum(0)
            for sums, part in zip(total, gradients, strict=True)
        ]
    return total


def _rounded(budgeted: Budgeted, arithmetic: Arithmetic) -> Budgeted:
    """Return the budget about the exact result: an exact operation's bound is zero about
    the rounded one.
    """
    half = spacing(budgeted.reference, arithmetic.dtype) / 2
    return replace(budgeted, bound=budgeted.bound + half)


@dataclass(frozen=True, kw_only=True)
class MaxPool:
    """The largest of each window. Two of its numbers that are closer than they may be off have one
    gradient between them, and either may get it.
    """

    kernel: int
    kind: str = "pooling"

    def __call__(self, *inputs: Tensor) -> Tensor:
        return functional.max_pool2d(inputs[0], self.kernel)

    def judge(
        self, inputs: Sequence[Tensor], cotangent: Tensor, arithmetic: Arithmetic
    ) -> ExpectedResults:
        return Moved(function=self, kind=self.kind).judge(inputs, cotangent, arithmetic)

    def undecided(self, x: Tensor, off: Tensor, flowing: Tensor) -> Tensor:
        high, low = x + off, x - off
        surest = functional.max_pool2d(low, self.kernel)
        spread = partial(functional.interpolate, scale_factor=self.kernel, mode="nearest")
        whole = tuple(slice(0, size * self.kernel) for size in surest.shape[2:])
        inside = (..., *whole)
        may_win = (high[inside] >= spread(surest)).double()
        contested = functional.avg_pool2d(may_win, self.kernel) * self.kernel**2 > 1
        loose = torch.zeros_like(x)
        loose[inside] = may_win * spread(contested * flowing.abs())
        return loose


SAME_SIZE = convolution(padding=1)
RELU = Elementwise(function=functional.relu, ulps_half=0.0, kinks=((0.0, 1.0),))
HARDTANH = Elementwise(function=functional.hardtanh, ulps_half=0.0, kinks=((-1.0, 1.0), (1.0, 1.0)))
PATTERNS: Mapping[str, FusedPattern] = {
    "matmul + bias + relu": FusedPattern(stages=(LINEAR, RELU), counts=(3, 0)),
    "matmul + bias + gelu": FusedPattern(
        stages=(LINEAR, Pointwise(function=functional.gelu)), counts=(3, 0)
    ),
    "conv + batch norm + relu": FusedPattern(
        stages=(
            SAME_SIZE,
            BATCH_NORM,
            RELU,
        ),
        counts=(2, 2, 0),
    ),
    "add + relu": FusedPattern(stages=(Elementwise(function=torch.add), RELU), counts=(2, 0)),
    "matmul + bias + hardtanh": FusedPattern(stages=(LINEAR, HARDTANH), counts=(3, 0)),
    "conv + relu + max pool": FusedPattern(
        stages=(
            SAME_SIZE,
            RELU,
            MaxPool(kernel=2),
        ),
        counts=(2, 0, 0),
    ),
}
# Compiling is slow, and compilers fuse these.
COMPILED = tuple(PATTERNS)[:4]


def pattern_cases(name: str, maker: Maker) -> Iterator[Case]:
    """Yield the inputs of a pattern: odd sizes, so that the last tile and wave are not full."""
    chain = PATTERNS[name]
    for label, tensors in _pattern_tensors(name, maker):
        yield Case(label, chain, tensors, reduces=not name.startswith("add"))


def _pattern_tensors(name: str, maker: Maker) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    if name.startswith("matmul"):
        sizes = ((67, 129, 65),) if maker.quick else ((67, 129, 65), (33, 512, 31))
        for rows, inner, columns in sizes:
            yield (
                f"{rows}x{inner}x{columns}",
                (
                    maker.normal(rows, inner),
                    maker.normal(columns, inner, scale=inner**-0.5),
                    maker.normal(columns),
                ),
            )
    elif name.startswith("conv"):
        x, weight = maker.normal(3, 5, 9, 7), maker.normal(8, 5, 3, 3, scale=0.15)
        norm = (maker.normal(8, scale=0.2, mean=1.0), maker.normal(8, scale=0.5))
        yield "3x5x9x7", (x, weight, *(norm if "norm" in name else ()))
    else:
        yield "67x129", (maker.normal(67, 129), maker.normal(67, 129))


def compile_modes(build: str) -> tuple[str, ...]:
    """Return the modes of torch.compile that are judged: graphs are captured on NVIDIA only."""
    return (PLAIN_MODE, GRAPH_MODE) if build == "cuda" else (PLAIN_MODE,)


def execute_compiled(
    case: Case, cotangent: Tensor | None, device: str, *, mode: str, build: str
) -> Computed:
    """Run the same case through torch.compile, as one graph without fall-back to eager."""
    torch.compiler.reset()
    compiled = _compiled(case.operation, mode, build)
    return execute_case(replace(case, operation=compiled), cotangent, device)


@dataclass(frozen=True, kw_only=True)
class _Compiled(Instead):
    """A compiled operation in place of the plain one."""

    function: Callable[..., Tensor]

    def __call__(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def _compiled(operation: Operation, mode: str, build: str) -> Operation:
    def call(*inputs: Tensor) -> Tensor:
        return operation(*inputs)

    options: dict[str, Any] = {"mode": mode}
    if build == "rocm":
        options = {"options": NO_GRAPHS}
    function = torch.compile(call, fullgraph=True, dynamic=False, **options)
    return _Compiled(operation=operation, function=function)
