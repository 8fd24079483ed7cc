"""Kernels of lists of tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from warpfront_checks.cases.catalogue.record import each, rounded
from warpfront_checks.cases.operation import Operation

# Many tensors of one length, or each longer than the one after it, and some without elements, as
# parts of a sharded model are.
_LIST = (
    "[x[0][:0], *(x.flatten().tensor_split([i * i for i in range(1, {n})])[::-1] if {uneven} else"
    " x.unbind(0)), x[0][:0]]"
)
_X, _Y = _LIST.replace("x", "a"), _LIST.replace("x", "b")
_listed = partial(
    rounded,
    shapes="n k | n j k",
    n=(3, 259),
    fit="{x}.abs().clamp(max=2) + 0.5",
    values=("eighths", "quarters"),
    ulps=16.0,
    roundings=16.0,
    walk=0.0,
    backward=False,
    cases=22,
    numbers=500_000,
    uneven=(False, True),
)
_UNARY = "abs neg ceil floor round trunc sign sqrt exp sigmoid tanh atan cos cosh erf erfc expm1"
_UNARY += " frac lgamma log log10 log1p log2 reciprocal rsqrt sin sinh tan"
_PAIR: Mapping[str, Any] = {"shapes": "n k, n k | n j k, n j k"}
# Calls of lists `x` and `y`, and those of one tensor of each, the one at the place `i`.
_OF_LISTS = (
    *((n, "x, y", "x, y") for n in ["add", "sub", "mul", "div", "maximum", "minimum", "pow"]),
    *((f"{n} of a number", "x, 2.0", "x, 2.0") for n in ["add", "sub", "mul", "div", "pow"]),
    *(
        (f"{n} of numbers", "x, [1 + i % 5 / 4 for i in range(len(x))]", "x, 1 + i % 5 / 4")
        for n in ["add", "sub", "mul", "div"]
    ),
    *((n, "x, y, y, value={value}", "x, y, y, value={value}") for n in ("addcmul", "addcdiv")),
    *(
        (
            f"{n} of numbers",
            "x, y, y, [1 + i % 5 / 4 for i in range(len(x))]",
            "x, y, y, value=1 + i % 5 / 4",
        )
        for n in ("addcmul", "addcdiv")
    ),
    ("lerp", "x, y, {value}", "x, y, {value}"),
)
LISTS: tuple[Operation, ...] = (
    *each(_UNARY, _listed, f"torch._foreach_$({_X})", definition=f"[torch.$(x) for x in {_X}]"),
    *(
        _listed(
            code.replace("CALL", f"_foreach_{name.split()[0]}").replace("ARGUMENTS", lists),
            name=f"_foreach_{name}{how}",
            definition=f"[torch.{name.split()[0]}({each}) for i, (x, y) in"
            f" enumerate(zip({_X}, {_Y}))]",
            **_PAIR,
            **({"value": (0.5, 2.0)} if "value" in lists else {}),
        )
        for name, lists, each in _OF_LISTS
        for how, code in (
            ("", f"(lambda x, y: torch.CALL(ARGUMENTS))({_X}, {_Y})"),
            (
                " in place",
                f"(lambda x, y: (torch.CALL_(ARGUMENTS), x)[1])([x.clone() for x in {_X}], {_Y})",
            ),
        )
    ),
    _listed(
        f"torch._foreach_norm([x for x in {_X} if {{order}} < 9 or x.numel()], {{order}})",
        # Of nothing there is no largest.
        definition="[torch.linalg.vector_norm(x, {order}) for x in"
        f" {_X} if {{order}} < 9 or x.numel()]",
        order=(1, 2, math.inf),
        walk=1 / 16,
    ),
)
