"""Each size of an operation in turn: one, odd, whole tiles, long, and beyond a grid of blocks,
while its other sizes stay small; then every two of them odd.

A kernel is chosen by sizes, and each choice is another one: every size of every tensor reaches
kernels that no row names. The expected output and gradients are float64's on the CPU, of the same
numbers. Where integers make every sum exact, only one rounding of the result is allowed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.edge_cases.answers import Answer, CaseContext, array

# One, whole tiles by which vectors are read, past the lanes of a wave, a small block's threads,
# half of a large one's, all of them, and the blocks of a grid along an axis.
LENGTHS = (1, 64, 67, 259, 777, 1031, 65_539)
QUICK_LENGTHS = (1031,)
# The size of axes that do not vary, unless a call sets another.
USUAL_SIZE = 3
# Two sizes at once.
ODD = (67, 69)
# Numbers in all tensors, and the product of all sizes, which bounds the work; less of convolutions,
# whose float64 takes the CPU long.
MOST_NUMBERS, MOST_WORK, LESS_WORK = 400_000, 800_000, 200_000

Sizes = Any
Call = Callable[..., Tensor]


@dataclass(frozen=True, kw_only=True)
class Sized:
    """A call of sizes and tensors. `shapes` has a word for the size of each axis, tensors
    between commas; a number stays fixed. `usual` are sizes other than `USUAL_SIZE` while another
    varies, `most` are upper limits of sizes that cost too much. Results are `exact` where every sum
    of integers is. Otherwise they may be off by `roundings` of the largest number and of `least`. A
    sum added one by one, of n terms of one sign, may use an eighth of its bound of n/2 roundings.
    `fit` maps numbers to arguments; with `apart`, no two numbers are equal.
    """

    call: Call
    shapes: str
    usual: Mapping[str, int]
    most: Mapping[str, int]
    exact: bool = True
    roundings: float = 64.0
    least: float = 0.0
    slack: float = 0.0
    fit: Callable[[Tensor], Tensor] = lambda x: x
    apart: bool = False
    backward: bool = True
    work: int = MOST_WORK

    def axes(self) -> list[list[str]]:
        return [shape.split() for shape in self.shapes.split(",")]

    def names(self) -> list[str]:
        every = itertools.chain.from_iterable(self.axes())
        return list(dict.fromkeys(name for name in every if not name.isdigit()))

    def shaped(self, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
        return [
            tuple(int(name) if name.isdigit() else sizes[name] for name in axes)
            for axes in self.axes()
        ]

    def tried(self, *, quick: bool) -> Iterator[dict[str, int]]:
        names = self.names()
        usual = {name: self.usual.get(name, USUAL_SIZE) for name in names}
        combinations = list(itertools.product(names, QUICK_LENGTHS if quick else LENGTHS))
        pairs = () if quick else itertools.combinations(names, 2)
        together = [[combination] for combination in combinations] + [
            list(zip(two, ODD, strict=True)) for two in pairs
        ]
        for some in together:
            sizes = usual | {name: min(size, self.most.get(name, size)) for name, size in some}
            if self._bearable(sizes):
                yield sizes

    def _bearable(self, sizes: Mapping[str, int]) -> bool:
        numbers = sum(math.prod(shape) for shape in self.shaped(sizes))
        return numbers <= MOST_NUMBERS and math.prod(sizes.values()) <= self.work


def exactly(call: Call, shapes: str, **settings: Any) -> Sized:
    """Return a call of integers. Keywords named after sizes give a size while another varies,
    or that and its upper limit.
    """
    fields = {
        name: settings.pop(name) for name in tuple(settings) if name in Sized.__dataclass_fields__
    }
    most = {name: value[1] for name, value in settings.items() if isinstance(value, tuple)}
    usual = {name: value[0] if name in most else value for name, value in settings.items()}
    return Sized(call=call, shapes=shapes, usual=usual, most=most, **fields)


def nearly(call: Call, shapes: str, **overrides: Any) -> Sized:
    """Return a call of quarters with rounded results."""
    settings = {"exact": False, "least": 1.0, "fit": lambda x: x / 4, **overrides}
    return exactly(call, shapes, **settings)


def answers_of(of: Sized, ground: CaseContext) -> Iterator[Answer]:
    for sizes in of.tried(quick=ground.quick):
        label = ", ".join(f"{name} {size}" for name, size in sizes.items())
        numbers = [of.fit(_numbers(of, ground, shape)) for shape in of.shaped(sizes)]
        expected = _called(of, sizes, numbers, ground)
        actual = _called(of, sizes, [ground.send(x) for x in numbers], ground)
        names = ["output", *(f"gradient {place}" for place in range(len(numbers)))]
        for name, mine, reference in zip(names, actual, expected, strict=False):
            slack = of.slack
            if not of.exact and reference.is_floating_point():
                most = float(reference.abs().amax()) if reference.numel() else 0.0
                roundings = of.roundings + max(sizes.values()) / 16
                slack += roundings * ground.eps * (of.least + most)
            yield Answer(f"{name}, {label}", mine, array(reference), ulps=1, slack=slack)


def _numbers(of: Sized, ground: CaseContext, shape: tuple[int, ...]) -> Tensor:
    if of.apart:
        count = math.prod(shape)
        return torch.randperm(count, generator=ground.generator).view(shape).double() - count // 2
    # Sums of many in 16 bits may be rounded on the way: so few that they stay small.
    if of.exact and ground.half:
        return ground.few(*shape)
    return ground.whole(*shape, most=2 if of.exact else 8)


def _called(
    of: Sized, sizes: Mapping[str, int], numbers: Sequence[Tensor], ground: CaseContext
) -> list[Tensor]:
    """Return the output, and the gradient of each tensor; the output's gradient is the
    same each time.
    """
    leaves = [x.detach().requires_grad_(of.backward) for x in numbers]
    output = of.call(SimpleNamespace(**sizes), *leaves)
    if not output.requires_grad:
        return [output.detach()]
    generator = torch.Generator().manual_seed(ground.seed)
    grad_output = torch.randint(-2, 3, output.shape, generator=generator)
    if ground.half:
        grad_output = grad_output * (torch.randint(0, 8, output.shape, generator=generator) == 0)
    gradients = torch.autograd.grad(
        output, leaves, grad_output.to(output.device, output.dtype), allow_unused=True
    )
    pairs = zip(gradients, numbers, strict=True)
    return [output.detach(), *(x * 0 if g is None else g for g, x in pairs)]
