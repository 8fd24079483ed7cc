"""Answers: a device's result, the expected one, and their largest difference.

An expected result never comes from the kernels under test, not on the CPU either. It is a closed
form, numpy's, or follows from other results of the device (the same call with the same seed). Most
inputs are integers so small that every partial sum is exact. No order of summation then rounds
anything, and any difference is a fault.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfront_checks.cases.bounds import Bound, judge
from warpfront_checks.cases.known import KnownDefect

FLOATS = ("float32", "bfloat16", "float16")
DOUBLE = (*FLOATS, "float64")
SINGLE = ("float32",)
USUAL = ("float32", "bfloat16")
TRUE, FALSE = np.ones((), dtype=bool), np.zeros((), dtype=bool)


@dataclass(frozen=True)
class Answer:
    """One tensor to compare. It may be off by `ulps` units in the last place of the expected
    value, plus `slack` (a number, or one per element). Integers and booleans have to be equal.
    """

    label: str
    found: Tensor
    right: Any
    ulps: float = 0.0
    slack: Any = 0.0


@dataclass(frozen=True, kw_only=True)
class CaseContext:
    """The context of a row: device, dtype, and random numbers of one seed, made on the CPU."""

    device: str
    dtype: torch.dtype
    seed: int
    generator: torch.Generator = field(default_factory=torch.Generator)
    quick: bool = False

    def send(self, x: Tensor | np.ndarray[Any, Any], dtype: torch.dtype | None = None) -> Tensor:
        """Return a fresh tensor on the device."""
        tensor = torch.as_tensor(x)
        if tensor.is_floating_point():
            tensor = tensor.to(dtype or self.dtype)
            # The CPU's vector instructions make negative NaN of NaN, and a sort by bits puts
            # that first (pytorch#117617).
            tensor = tensor.masked_fill(tensor.isnan(), math.nan)
        return tensor.to(self.device, copy=True)

    def whole(self, *shape: int, most: int = 4) -> Tensor:
        """Return integers from -most to most, in float64."""
        samples = torch.randint(-most, most + 1, shape, generator=self.generator)
        return samples.double()

    def few(self, *shape: int) -> Tensor:
        """Return -1, 0 and 1, mostly 0: sums of many thousands stay exact in every dtype."""
        samples = torch.randint(0, 16, shape, generator=self.generator)
        return (samples == 0).double() - (samples == 1).double()

    def index(self, high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=self.generator)

    def normal(self, *shape: int) -> Tensor:
        """Return normal numbers, rounded to the dtype, in float64."""
        samples = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return samples.to(self.dtype).double()

    def module(self, make: Callable[[], Any]) -> tuple[Any, Any]:
        """Return the module of `make` under the seed twice: in float64 on the CPU, and on the
        device. Its numbers are rounded to the dtype first.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            exact = make().to(self.dtype).double()
        return exact, copy.deepcopy(exact).to(self.device, self.dtype)

    @property
    def complex(self) -> torch.dtype:
        """Return the complex dtype whose parts are of the dtype."""
        return torch.complex64 if self.dtype == torch.float32 else torch.complex128

    @property
    def eps(self) -> float:
        return float(torch.finfo(self.dtype).eps)

    @property
    def half(self) -> bool:
        return self.dtype in {torch.float16, torch.bfloat16}


Try = Callable[[CaseContext], Iterator[Answer]]


@dataclass(frozen=True, kw_only=True)
class Hazard:
    """A row: its name, its function, its dtypes. `devices` are the kinds of device that it
    applies to (default: all); `needed_bytes` is the memory that it needs there. It runs
    with the first seed, or with `each_seed` under every one. Each seed then covers another
    of `turns` variants.
    """

    name: str
    answers: Try
    dtypes: tuple[str, ...] = SINGLE
    devices: tuple[str, ...] = ()
    needed_bytes: int = 0
    each_seed: bool = False
    turns: int = 1
    known: tuple[KnownDefect, ...] = ()


Hazards = tuple[Hazard, ...]


def kind_of(device: str) -> str:
    """Return the kind of a device: AMD's devices have kernels of their own under CUDA's name."""
    return "rocm" if device == "cuda" and torch.version.hip else device


@dataclass(frozen=True, kw_only=True)
class HazardClass:
    """Rows of a kind. `asks` is the question in words. `narrow` are the rows with separate
    kernels for 16 bits: a quick run tries both. `seen_on` are the devices on which correct kernels
    passed rows with bounds of judgement (default: all). `topics` of the case engine replace it on
    the devices where all of them are claimed.
    """

    name: str
    asks: str
    hazards: Hazards
    narrow: tuple[str, ...] = ()
    seen_on: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    def judges(self, device: str) -> bool:
        """Return whether the bounds apply to a device. A bound that no correct device of a kind
        has confirmed could reject correct ones.
        """
        return not self.seen_on or kind_of(device) in self.seen_on

    def tried(self, row: Hazard, dtypes: Sequence[str], *, quick: bool) -> tuple[str, ...]:
        """Return the dtypes in which a row runs. In a quick run only three kinds of rows run in
        bfloat16: the first of the class, those in `narrow`, and those without another dtype.
        """
        names = tuple(name for name in row.dtypes if name in dtypes)
        if not quick or row.name in {self.hazards[0].name, *self.narrow}:
            return names
        return tuple(name for name in names if name != "bfloat16") or names


def rows(table: Mapping[str, Try], dtypes: tuple[str, ...] = SINGLE, **options: Any) -> Hazards:
    """Return a row for each function of a table, all with the same options."""
    return tuple(
        Hazard(name=name, answers=attempt, dtypes=dtypes, **options)
        for name, attempt in table.items()
    )


def answer_fault(answer: Answer) -> tuple[str, float]:
    """Return the fault of an answer, or nothing, and the largest share of its bound."""
    expected = torch.as_tensor(answer.right)
    verdict = judge(answer.found, expected, Bound(ulps=answer.ulps, slack=answer.slack))
    return (f"{answer.label}: {verdict.fault}" if verdict.fault else ""), verdict.share


def array(x: Tensor) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = x.detach().cpu().numpy()
    return values
