"""Autocast: the operations in 16 bits and in float32, and the time when a cached cast is stale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.edge_cases.answers import (
    FLOATS,
    Answer,
    CaseContext,
    HazardClass,
    array,
    rows,
)

# By docs/source/amp.rst of torch: the operations that all its device types have in common.
LOWER: dict[str, Callable[[Tensor], Tensor]] = {
    "matmul": lambda x: x @ x,
    "mm": lambda x: torch.mm(x, x),
    "bmm": lambda x: torch.bmm(x[None], x[None]),
    "addmm": lambda x: torch.addmm(x, x, x),
    "linear": lambda x: functional.linear(x, x),
    "conv1d": lambda x: functional.conv1d(x[None], x[:, :, None]),
    "conv2d": lambda x: functional.conv2d(x[None, None], x[None, None, :3, :3]),
    "baddbmm": lambda x: torch.baddbmm(x[None], x[None], x[None]),
    "attention": lambda x: functional.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None]
    ),
}
FULL: dict[str, Callable[[Tensor], Tensor]] = {
    "mse_loss": lambda x: functional.mse_loss(x, x + 1),
    "l1_loss": lambda x: functional.l1_loss(x, x + 1),
    "cross_entropy": lambda x: functional.cross_entropy(x, torch.arange(8, device=x.device)),
    "smooth_l1_loss": lambda x: functional.smooth_l1_loss(x, x + 1),
    "kl_div": lambda x: functional.kl_div(x, x.abs(), reduction="sum"),
}
# CUDA's (and ROCm's) list is longer than the CPU's.
FULL_ON_CUDA: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "log": lambda x: torch.log(x.abs() + 1),
    "pow": lambda x: torch.pow(x, 2),
    "softmax": lambda x: functional.softmax(x, 1),
    "log_softmax": lambda x: functional.log_softmax(x, 1),
    "sum": torch.sum,
    "cumsum": lambda x: x.cumsum(1),
    "prod": torch.prod,
    "norm": torch.norm,
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "group_norm": lambda x: functional.group_norm(x, 2),
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 1),
    "softplus": functional.softplus,
    "cosh": torch.cosh,
}
ORDER = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _is(label: str, actual: Any, expected_dtype: torch.dtype) -> Answer:
    return Answer(
        f"{label}: {actual}, expected {expected_dtype}",
        torch.tensor(ORDER.index(actual)),
        ORDER.index(expected_dtype),
    )


def _table(ground: CaseContext) -> Iterator[Answer]:
    x = ground.whole(8, 8, most=1)
    for low in (torch.bfloat16, torch.float16):
        lists = [(LOWER, low), (FULL, torch.float32)]
        lists += [(FULL_ON_CUDA, torch.float32)] if ground.device == "cuda" else []
        with torch.autocast(ground.device, dtype=low):
            for table, expected_dtype in lists:
                for name, call in table.items():
                    on_device = ground.send(x).to(
                        low if expected_dtype == torch.float32 else torch.float32
                    )
                    yield _is(f"{name} in {low}", call(on_device).dtype, expected_dtype)
            wide = ground.send(x).to(low) + ground.send(x)
            yield _is(f"widest of two in {low}", wide.dtype, torch.float32)
            with torch.autocast(ground.device, enabled=False):
                yield _is(
                    f"switched off in {low}", (ground.send(x) @ ground.send(x)).dtype, torch.float32
                )
            yield _is(f"on again in {low}", (ground.send(x) @ ground.send(x)).dtype, low)
        yield _is(f"after {low}", (ground.send(x) @ ground.send(x)).dtype, torch.float32)


def _values(ground: CaseContext) -> Iterator[Answer]:
    """Check integers under autocast, forward and backward as exact as without. A changed weight
    is cast again.
    """
    x, w = ground.whole(9, 8, most=2), ground.whole(5, 8, most=2)
    weight = ground.send(w).requires_grad_()
    for step in range(3):
        weight.grad = None
        with torch.autocast(ground.device, dtype=torch.bfloat16):
            actual = functional.linear(ground.send(x), weight)
            twice = functional.linear(ground.send(x), weight)
        expected = array(x @ (w + step).mT)
        yield Answer(f"step {step}", actual, expected, ulps=1)
        yield Answer(f"again, step {step}", twice, expected, ulps=1)
        actual.sum().backward()
        yield _is("gradient", weight.grad.dtype, torch.float32)
        yield Answer(
            f"gradient, step {step}",
            weight.grad,
            array(x.sum(0).expand(5, 8)),
            ulps=1,
        )
        with torch.no_grad():
            weight += 1


def _numbers_beside(ground: CaseContext) -> Iterator[Answer]:
    """Check halves with a single number of float32: it is not rounded to a half before."""
    factor = 1 + 3 * ground.eps / 8
    number = torch.tensor(factor, device=ground.device)
    x = ground.whole(4, 33, most=127)
    for label, call in MULTIPLIED.items():
        yield Answer(label, call(ground.send(x), number, factor), array(x * factor))


MULTIPLIED: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "mul": lambda x, number, _: x * number,
    "mul_": lambda x, number, _: x.mul_(number),
    "mul of a number": lambda x, _, factor: x * factor,
    "foreach_mul": lambda x, _, factor: torch.stack(torch._foreach_mul(list(x), factor)),
}


# Operations of two tensors that tell which is which.
OF_TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in (
            "add",
            "sub",
            "mul",
            "maximum",
            "minimum",
            "fmax",
            "fmin",
            "copysign",
            "atan2",
            "hypot",
            "fmod",
            "remainder",
            "floor_divide",
            "eq",
            "lt",
        )
    },
    "where": lambda x, y: torch.where(x > 0, x, y),
    "cat": lambda x, y: torch.cat([x, y]),
}


def _two_widths(ground: CaseContext) -> Iterator[Answer]:
    """Check tensors of float32 with halves, as either operand: both are widened before."""
    x, y = ground.whole(5, 33), ground.whole(5, 33) + 0.5
    for name, call in OF_TWO.items():
        expected = call(x, y)
        for label, mine, other in (
            ("left", ground.send(x), ground.send(y, torch.float32)),
            ("right", ground.send(x, torch.float32), ground.send(y)),
        ):
            yield Answer(f"{name}, halves {label}", call(mine, other), array(expected), ulps=4)


MIXED_PRECISION = HazardClass(
    name="autocast",
    asks="is what autocast computes in 16 bits and in float32 what torch documents, and right",
    hazards=(
        *rows({"table": _table, "values": _values}),
        *rows(
            {"numbers beside halves": _numbers_beside, "two widths": _two_widths},
            FLOATS[1:],
            devices=("cpu",),
        ),
    ),
)
