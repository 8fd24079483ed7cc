"""Lists of tensors at once, and every option of optimizers, by every implementation: lengths of no
whole chunk, against float64 on the CPU one tensor after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.edge_cases.answers import Answer, CaseContext, HazardClass, array, rows
from warpfront_checks.edge_cases.options import Options, combined

# Chunks are 65,536 long, and few hundred tensors go to one launch.
SIZES = (1, 33, 65_537, 70_001, 0, 7, 0)
UNARY = (
    "abs",
    "neg",
    "ceil",
    "floor",
    "round",
    "trunc",
    "sign",
    "sqrt",
    "exp",
    "sigmoid",
    "tanh",
    "atan",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "expm1",
    "frac",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "reciprocal",
    "rsqrt",
    "sin",
    "sinh",
    "tan",
)
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "pow", "clamp_min", "clamp_max"]


def _lists(ground: CaseContext) -> tuple[list[Tensor], list[Tensor]]:
    return tuple(  # type: ignore[return-value]
        [ground.index(16, size).double() / 8 + 0.5 for size in SIZES] for _ in range(2)
    )


def _close(label: str, actual: Sequence[Tensor], expected: Sequence[Tensor]) -> Iterator[Answer]:
    """Compare elementwise: fewer than 16 units in the last place, as any library documents."""
    for place, (mine, reference) in enumerate(zip(actual, expected, strict=True)):
        yield Answer(f"{label}, tensor {place}", mine, array(reference), ulps=16, slack=1e-6)


def _foreach(ground: CaseContext) -> Iterator[Answer]:
    first, other = _lists(ground)
    x, y = ([ground.send(t) for t in some] for some in (first, other))
    for name in () if ground.quick else UNARY:
        call = getattr(torch, f"_foreach_{name}")
        yield from _close(name, call(x), [getattr(torch, name)(t) for t in first])
    for name in BINARY[:2] if ground.quick else BINARY:
        call, plain = getattr(torch, f"_foreach_{name}"), getattr(torch, name)
        expected = [plain(a, b) for a, b in zip(first, other, strict=True)]
        yield from _close(name, call(x, y), expected)
        yield from _close(
            f"{name} of a number", call(x, 2.0), [plain(a, 2.0 + 0 * a) for a in first]
        )
        targets = [t.clone() for t in x]
        getattr(torch, f"_foreach_{name}_")(targets, y)
        yield from _close(f"{name} in place", targets, expected)
    copies = [t.clone() for t in x]
    torch._foreach_copy_(copies, y)
    yield from _close("copied", copies, other)
    torch._foreach_zero_(copies)
    yield from _close("noughts", copies, [0 * t for t in first])
    # Of nothing there is no largest.
    some = [t for t in first if t.numel()]
    yield from _close(
        "largest", torch._foreach_max([ground.send(t) for t in some]), [t.max() for t in some]
    )
    mixed = torch._foreach_lerp(x, y, 0.25)
    yield from _close("lerp", mixed, [a.lerp(b, 0.25) for a, b in zip(first, other, strict=True)])
    added = torch._foreach_addcdiv(x, y, x, value=0.5)
    expected = [a.addcdiv(b, a, value=0.5) for a, b in zip(first, other, strict=True)]
    yield from _close("addcdiv", added, expected)


Called = Callable[[Any, Any, Any], Any]
TERNARY: Mapping[str, Called] = {
    "addcmul": lambda call, x, y: call(x, y, y, value=0.5),
    "addcdiv": lambda call, x, y: call(x, y, y, value=0.5),
    "lerp": lambda call, x, y: call(x, y, 0.25),
}


def _foreach_layouts(ground: CaseContext) -> Iterator[Answer]:
    """Check lists of tables that are transposed, strided and contiguous, with operands
    in other layouts.
    """
    tables = [ground.index(16, 12, 18).double() / 8 + 0.5 for _ in range(2)]
    binary: Called = lambda call, x, y: call(x, y)  # noqa: E731
    calls = {**dict.fromkeys(BINARY, binary), **TERNARY}
    for name, function in calls.items():
        first, other = ([table.mT, table[:, ::2], table, table.mT] for table in tables)
        x, y = ([ground.send(table) for table in tables] for _ in range(2))
        x = [x[0].mT, x[0][:, ::2], x[0].clone(), x[0].clone().mT]
        y = [y[1].mT.contiguous(), y[1][:, ::2].clone(), y[1].mT.contiguous().mT, y[1].mT]
        plain = getattr(torch, name)
        expected = [function(plain, a, b) for a, b in zip(first, other, strict=True)]
        yield from _close(name, function(getattr(torch, f"_foreach_{name}"), x, y), expected)
        targets = [t.clone() for t in x]
        function(getattr(torch, f"_foreach_{name}_"), targets, y)
        yield from _close(f"{name} in place", targets, expected)


def _norms(ground: CaseContext) -> Iterator[Answer]:
    """Check sums of n terms by sqrt(n) roundings of float32, which a root halves."""
    first, _ = _lists(ground)
    first = [first[-1], *first]
    for order in (1, 2, float("inf")):
        # Of nothing there is no largest.
        tensors = [t for t in first if t.numel() or order < float("inf")]
        actual = torch._foreach_norm([ground.send(t) for t in tensors], order)
        for mine, t in zip(actual, tensors, strict=True):
            expected = torch.linalg.vector_norm(t, order)
            slack = 2 * t.numel() ** 0.5 * 2.0**-23 * float(expected) + ground.eps * float(expected)
            yield Answer(f"norm {order} of {t.numel()}", mine, array(expected), slack=slack)


BOTH = (False, True)
OPTIMIZERS: Mapping[str, Options] = {
    "SGD": {
        "momentum": (0.0, 0.75),
        "dampening": (0.0, 0.5),
        "nesterov": (True, False),
        "weight_decay": (0.0, 0.125),
        "maximize": BOTH,
    },
    "Adam": {"amsgrad": BOTH, "weight_decay": (0.0, 0.125), "maximize": BOTH, "eps": (1e-8, 0.5)},
    "AdamW": {"amsgrad": BOTH, "weight_decay": (0.0, 0.125), "maximize": BOTH, "eps": (1e-8, 0.5)},
    "Adagrad": {"lr_decay": (0.0, 0.25), "weight_decay": (0.0, 0.125), "maximize": BOTH},
    "RMSprop": {"momentum": (0.0, 0.75), "centered": BOTH, "weight_decay": (0.0, 0.125)},
    "Adadelta": {"rho": (0.5, 0.9), "weight_decay": (0.0, 0.125), "maximize": BOTH},
    "Adamax": {"weight_decay": (0.0, 0.125), "maximize": BOTH},
    "NAdam": {"momentum_decay": (0.004, 0.25), "decoupled_weight_decay": BOTH},
    "RAdam": {"weight_decay": (0.0, 0.125), "decoupled_weight_decay": BOTH},
}
# Adagrad is fused on the CPU alone.
FUSED = {"SGD": True, "Adam": True, "AdamW": True, "Adagrad": False}


def _stepped(
    name: str, numbers: list[Tensor], steps: Sequence[Sequence[Tensor | None]], **kwargs: Any
) -> list[Tensor]:
    weights = [torch.nn.Parameter(x.clone()) for x in numbers]
    optimizer = getattr(torch.optim, name)(weights, lr=0.125, **kwargs)
    for gradients in steps:
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = None if gradient is None else gradient.clone()
        optimizer.step()
    return [weight.detach() for weight in weights]


def _roundings(ground: CaseContext, expected: Tensor) -> float:
    """Return the bound for roots and quotients of three steps: 64 roundings of
    the largest number.
    """
    return 64 * ground.eps * (1 + float(expected.abs().max()) if expected.numel() else 1)


def _optimizer(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Run three steps of each implementation, with gradients that change sign and size."""
    starts, _ = _lists(ground)
    numbers = [x for x in starts if 0 < x.numel() < 100]
    # Nothing comes last, as for a part of a sharded model that got no rows.
    numbers += [starts[1].view(3, 11).mT, starts[-1].view(3, 0)]
    steps = [[x.flip(0) * way - 0.25 for x in numbers] for way in (1.0, -2.0, 0.5)]
    on_device = [ground.send(x) for x in numbers]
    gradients = [[ground.send(x) for x in some] for some in steps]
    fused = FUSED.get(name, False) or (name in FUSED and ground.device == "cpu")
    kinds = [{"foreach": False}, {"foreach": True}, *[{"fused": True}] * fused]
    for kwargs in combined(OPTIMIZERS[name], quick=ground.quick):
        if kwargs.get("nesterov") and (kwargs["dampening"] or not kwargs["momentum"]):
            continue
        expected = _stepped(name, numbers, steps, foreach=False, **kwargs)
        for kind in kinds[-1:] if ground.quick else kinds:
            actual = _stepped(name, on_device, gradients, **kind, **kwargs)
            for place, (mine, reference) in enumerate(zip(actual, expected, strict=True)):
                slack = _roundings(ground, reference)
                label = f"{next(iter(kind))} {next(iter(kind.values()))}, {kwargs}, tensor {place}"
                yield Answer(label, mine, array(reference), slack=slack)


def _own_steps(ground: CaseContext) -> Iterator[Answer]:
    """Check weights whose first gradient comes in the second or third step: their step counts
    lag by that many.
    """
    numbers = [ground.index(16, size).double() / 8 + 0.5 for size in (33, 7, 1)]
    steps = [[x - 1 if n <= step else None for n, x in enumerate(numbers)] for step in range(3)]
    on_device = [ground.send(x) for x in numbers]
    gradients = [[None if x is None else ground.send(x) for x in some] for some in steps]
    for name in ("Adam", "AdamW", "NAdam", "RAdam"):
        expected = _stepped(name, numbers, steps, foreach=False)
        for kind in ({"foreach": False}, {"foreach": True}, *[{"fused": True}] * (name in FUSED)):
            actual = _stepped(name, on_device, gradients, **kind)
            for place, (mine, reference) in enumerate(zip(actual, expected, strict=True)):
                label = f"{name}, {next(iter(kind))} {next(iter(kind.values()))}, tensor {place}"
                slack = _roundings(ground, reference)
                yield Answer(label, mine, array(reference), slack=slack)


LISTS = HazardClass(
    name="lists",
    asks="are lists of tensors and optimizers right by every implementation and option",
    seen_on=("cpu", "cuda"),
    hazards=(
        *rows(
            {
                "foreach": _foreach,
                "foreach of layouts": _foreach_layouts,
                "foreach norms": _norms,
                **{f"every {name}": partial(_optimizer, name) for name in OPTIMIZERS},
            }
        ),
        *rows({"steps of their own": _own_steps}),
    ),
)
