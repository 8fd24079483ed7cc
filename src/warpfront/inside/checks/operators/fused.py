"""Patterns that compilers fuse: a product with bias and activation, a convolution with its
normalisation, an addition with ReLU. Judged end to end, for inside a fused kernel nothing shows.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from warpfront.inside.checks.operations import (
    C_OTHER,
    Arithmetic,
    Budgeted,
    Judgement,
    Multilinear,
    Norm,
    Operation,
    Pointwise,
)
from warpfront.inside.checks.operators.bounds import Elementwise, gradients_of, spacing
from warpfront.inside.checks.operators.cases import Case, Computed, Maker, execute_case

DRAWS = 16
SEED_OF_DRAWS = 20_040
# reduce-overhead and max-autotune capture graphs; on ROCm the first is refused outright (seed of
# the porting rules), and everywhere a wrong answer through a graph must be told from a slow one.
GRAPH_MODE, PLAIN_MODE = "reduce-overhead", "default"
NO_GRAPHS = {"triton.cudagraphs": False, "triton.cudagraph_trees": False, "memory_planning": False}


@dataclass(frozen=True, kw_only=True)
class FusedPattern:
    """Operations in a row: each takes the result of the one before and parameters of its own.

    What one operation may be off by reaches the end through the others. That is sampled: every
    intermediate value and gradient is moved by its own bound, up or down at random, in float64.
    Where ReLU's kink lies within the bound, the draws fall on both sides of it.
    """

    stages: tuple[Operation, ...]
    counts: tuple[int, ...]
    kind: str = "fused"

    def __call__(self, *inputs: Tensor) -> Tensor:
        return self.run(inputs)[-1]

    def run(
        self, inputs: Sequence[Tensor], disturb: Callable[[int, Tensor], Tensor] | None = None
    ) -> list[Tensor]:
        """The result of every stage; `disturb` stands between a stage and the next."""
        results: list[Tensor] = []
        rest = list(inputs)
        for stage, count in zip(self.stages, self.counts, strict=True):
            own, rest = rest[:count], rest[count:]
            value = stage(*results[-1:], *own)
            results.append(disturb(len(results), value) if disturb else value)
        return results

    def judge(self, inputs: Sequence[Tensor], cotangent: Tensor, how: Arithmetic) -> Judgement:
        judgements = self._stage_judgements(inputs, cotangent, how)
        exact = (self(*inputs).detach(), *gradients_of(self, inputs, cotangent))
        own = self._own_bounds(judgements)
        moved = self._moved(inputs, cotangent, judgements)
        # What moved is rounded where it went to, not where the reference is.
        rounded = 1 + C_OTHER * how.unit
        budgets = []
        for i, (reference, bound) in enumerate(zip(exact, own, strict=True)):
            apart = torch.stack([draw[i] - reference for draw in moved]).abs().amax(0)
            budgets.append(Budgeted(reference=reference, bound=bound + rounded * apart))
        return Judgement(output=budgets[0], gradients=tuple(budgets[1:]))

    def _stage_judgements(
        self, inputs: Sequence[Tensor], cotangent: Tensor, how: Arithmetic
    ) -> list[Judgement]:
        """Every stage by itself, at the exact values and gradients around it."""
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        results = self.run(leaves)
        flowing = torch.autograd.grad(results[-1], results, cotangent)
        judgements, rest = [], list(inputs)
        for i, (stage, count) in enumerate(zip(self.stages, self.counts, strict=True)):
            own, rest = rest[:count], rest[count:]
            fed = [*(r.detach() for r in results[i - 1 : i] if i), *own]
            judgement = stage.judge(fed, flowing[i], how)
            judgements.append(replace(judgement, output=_rounded(judgement.output, how)))
        return judgements

    def _own_bounds(self, judgements: Sequence[Judgement]) -> list[Tensor]:
        """What the last operation, and each parameter's own gradient, may be off by."""
        bounds = [judgements[-1].output.bound]
        for i, judgement in enumerate(judgements):
            bounds += [gradient.bound for gradient in judgement.gradients[1 if i else 0 :]]
        return bounds

    def _moved(
        self, inputs: Sequence[Tensor], cotangent: Tensor, judgements: Sequence[Judgement]
    ) -> list[tuple[Tensor, ...]]:
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

        def disturbed(*leaves: Tensor) -> Tensor:
            return self.run(leaves, disturb)[-1]

        return [_run_once(disturbed, inputs, cotangent) for _ in range(DRAWS)]


def _rounded(budgeted: Budgeted, how: Arithmetic) -> Budgeted:
    """An exact operation's bound is zero about the rounded result; here it is about the exact."""
    half = spacing(budgeted.reference, how.dtype) / 2
    return replace(budgeted, bound=budgeted.bound + half)


def _run_once(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], cotangent: Tensor
) -> tuple[Tensor, ...]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    output = function(*leaves)
    return (output.detach(), *torch.autograd.grad(output, leaves, cotangent))


def _batch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.batch_norm(x, None, None, weight, bias, training=True)


def _same_size(x: Tensor, weight: Tensor) -> Tensor:
    return functional.conv2d(x, weight, padding=1)


LINEAR = Multilinear(kind="linear", function=functional.linear)
RELU = Elementwise(function=functional.relu, ulps_half=0.0)
PATTERNS: Mapping[str, FusedPattern] = {
    "matmul + bias + relu": FusedPattern(stages=(LINEAR, RELU), counts=(3, 0)),
    "matmul + bias + gelu": FusedPattern(
        stages=(LINEAR, Pointwise(function=functional.gelu)), counts=(3, 0)
    ),
    "conv + batch norm + relu": FusedPattern(
        stages=(
            Multilinear(kind="convolution", function=_same_size),
            Norm(kind="batch norm", function=_batch_norm, over=(0, 2, 3), along=(1,)),
            RELU,
        ),
        counts=(2, 2, 0),
    ),
    "add + relu": FusedPattern(stages=(Elementwise(function=torch.add), RELU), counts=(2, 0)),
}


def pattern_cases(name: str, maker: Maker) -> Iterator[Case]:
    """The inputs of a pattern: odd sizes, so that the last tile and wave are not full."""
    chain = PATTERNS[name]
    for label, tensors in _pattern_tensors(name, maker):
        yield Case(name=label, operation=chain, tensors=tensors, reduces=not name.startswith("add"))


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
        yield (
            "3x5x9x7",
            (
                maker.normal(3, 5, 9, 7),
                maker.normal(8, 5, 3, 3, scale=0.15),
                maker.normal(8, scale=0.2, mean=1.0),
                maker.normal(8, scale=0.5),
            ),
        )
    else:
        yield "67x129", (maker.normal(67, 129), maker.normal(67, 129))


def compile_modes(build: str) -> tuple[str, ...]:
    """The modes of torch.compile that are judged: graphs are captured on NVIDIA only."""
    return (PLAIN_MODE, GRAPH_MODE) if build == "cuda" else (PLAIN_MODE,)


def missing_compiler(device: str) -> str:
    """Why torch.compile cannot work here, or nothing: a compiler is not promised in every image."""
    wanted = [os.environ.get("CXX", ""), "g++", "c++", "clang++"]
    if device != "cpu":
        if find_spec("triton") is None:
            return "torch.compile needs triton, which is not installed"
        wanted = [os.environ.get("CC", ""), "gcc", "cc", "clang"]
    if any(name and shutil.which(name) for name in wanted):
        return ""
    return f"torch.compile needs a compiler, and none of {', '.join(filter(None, wanted))} is here"


def execute_compiled(
    case: Case, cotangent: Tensor | None, device: str, *, mode: str, build: str
) -> Computed:
    """The same case through torch.compile, as one graph without fall-back to eager."""
    torch.compiler.reset()
    compiled = _compiled(case.operation, mode, build)
    return execute_case(replace(case, operation=compiled), cotangent, device)


@dataclass(frozen=True, kw_only=True)
class _Compiled:
    """Stands where the operation stood; its judge is the operation's."""

    operation: Operation
    function: Callable[..., Tensor]

    @property
    def kind(self) -> str:
        return self.operation.kind

    def __call__(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)

    def judge(self, inputs: Sequence[Tensor], cotangent: Tensor, how: Arithmetic) -> Judgement:
        return self.operation.judge(inputs, cotangent, how)


def _compiled(operation: Operation, mode: str, build: str) -> Operation:
    def call(*inputs: Tensor) -> Tensor:
        return operation(*inputs)

    options: dict[str, Any] = {"mode": mode}
    if build == "rocm":
        options = {"options": NO_GRAPHS}
    function = torch.compile(call, fullgraph=True, dynamic=False, **options)
    return _Compiled(operation=operation, function=function)
