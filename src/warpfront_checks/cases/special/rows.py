"""Rows of what is no call with an oracle: random numbers, streams, layers, more than 2^31 elements.

A row yields verdicts. An expected result is a closed form, numpy's, or follows from other results
of the device.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfront_checks.cases.bounds import Bound, Verdict, judge
from warpfront_checks.cases.known_defects import KnownDefect, defects_of

FLOATS = ("float32", "bfloat16", "float16")
SINGLE = ("float32",)


def verdict_of(
    label: str, actual: Tensor, expected: Any, *, ulps: float = 0.0, slack: Any = 0.0
) -> Verdict:
    """Compare a tensor. It may be off by `ulps` units in the last place of the expected value, plus
    `slack` (a number, or one per element). Integers and booleans have to be equal.
    """
    right = torch.as_tensor(expected).detach().cpu()
    verdict = judge(actual, right, Bound(ulps=ulps, slack=slack))
    return replace(verdict, name=label)


def holds(label: str, condition: Any) -> Verdict:
    """Return the verdict on a condition, which may be a tensor with one element."""
    return verdict_of(label, torch.as_tensor(condition), np.ones((), dtype=bool))


@dataclass(frozen=True, kw_only=True)
class CaseContext:
    """The context of a row: device, dtype, and random numbers of one seed, made on the CPU."""

    device: str
    dtype: torch.dtype
    seed: int
    generator: torch.Generator = field(default_factory=torch.Generator)

    def send(self, x: Tensor | np.ndarray[Any, Any]) -> Tensor:
        """Return a fresh tensor on the device."""
        tensor = torch.as_tensor(x)
        dtype = self.dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.to(self.device, dtype, copy=True)

    def whole(self, *shape: int, most: int = 4) -> Tensor:
        """Return integers from -most to most, in float64."""
        samples = torch.randint(-most, most + 1, shape, generator=self.generator)
        return samples.double()

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
    def eps(self) -> float:
        return float(torch.finfo(self.dtype).eps)

    @property
    def half(self) -> bool:
        return self.dtype in {torch.float16, torch.bfloat16}


Try = Callable[[CaseContext], Iterator[Verdict]]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row: its name, its function, its dtypes. `devices` are the kinds of device that it
    applies to (default: all); `needed_bytes` is the memory that it needs there.
    """

    name: str
    answers: Try
    dtypes: tuple[str, ...] = SINGLE
    devices: tuple[str, ...] = ()
    needed_bytes: int = 0
    defects: tuple[KnownDefect, ...] = ()


# The rows of a table: a table is one check.
Table = tuple[Row, ...]


def rows(table: Mapping[str, Try], dtypes: tuple[str, ...] = SINGLE, **options: Any) -> Table:
    """Return a row for each function of a table, all with the same options."""
    options["dtypes"] = dtypes
    return tuple(
        Row(name=name, answers=attempt, defects=defects_of(name), **options)
        for name, attempt in table.items()
    )


def array(x: Tensor) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = x.detach().cpu().numpy()
    return values
