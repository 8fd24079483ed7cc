"""How a wrong kernel from outside is kept, and what several of them are made with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.edge_cases.seeding import KernelFault, Wrong

HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, *HALVES)
DOUBLES = (torch.float64, torch.complex128)


class Kept(dict[str, KernelFault]):
    """Kernels by name. `shown` gives another answer while the kernel of that name is wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[str, Callable[[], Any]] = {}

    def kernel(
        self, shown: Callable[[], Any], *operators: str, like: str = ""
    ) -> Callable[[Wrong], Wrong]:
        def keep(wrong: Wrong) -> Wrong:
            name = wrong.__name__
            self[name] = KernelFault(name, operators, wrong, "outside", (), like, ("cpu",))
            self.shown[name] = shown
            return wrong

        return keep


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def grad_of(call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    call(x).square().sum().backward()
    assert x.grad is not None
    return x.grad


def is_single(x: Tensor) -> bool:
    """A real floating-point dtype narrower than double."""
    return x.is_floating_point() and x.dtype not in DOUBLES


def two(numbers: Any, default: Any = 1) -> list[int]:
    """A number for each of two axes, from one number, a list of either length or an empty one."""
    if isinstance(numbers, int):
        return [numbers, numbers]
    return list(numbers) * (2 // len(numbers)) if numbers else two(default)
