"""Kernels of lists of tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from warpfront_checks.cases.catalogue.record import rounded
from warpfront_checks.cases.operation import Operation

# Many tensors, a long one, and some without elements, as parts of a sharded model are.
_LIST = "[x[0][:0], *x.unbind(0), x[0][:0]]"
_X, _Y = _LIST.replace("x", "a"), _LIST.replace("x", "b")
_RIGHT = f"(lambda x: {_LIST})"
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
    cases=12,
)
_UNARY = "abs neg ceil floor round trunc sign sqrt exp sigmoid tanh atan cos cosh erf erfc expm1"
_UNARY += " frac lgamma log log10 log1p log2 reciprocal rsqrt sin sinh tan"
_PAIR: Mapping[str, Any] = {"shapes": "n k, n k | n j k, n j k"}
# A number for each tensor.
_EACH = "[1 + i % 5 / 4 for i in range(len(x))]"
_ROWS = "(1 + (torch.arange({n}) + 1) % 5 / 4).view(-1, *[1] * (a.dim() - 1))"
# Calls of lists `x` and `y`, and those of their tensors.
_OF_LISTS = (
    *((n, "x, y", "a, b") for n in ["add", "sub", "mul", "div", "maximum", "minimum", "pow"]),
    *((f"{n} of a number", "x, 2.0", "a, 2.0") for n in ["add", "sub", "mul", "div", "pow"]),
    *((f"{n} of numbers", f"x, {_EACH}", f"a, {_ROWS}") for n in ["add", "sub", "mul", "div"]),
    *((n, "x, y, y, value={value}", "a, b, b, value={value}") for n in ("addcmul", "addcdiv")),
    ("lerp", "x, y, {value}", "a, b, {value}"),
)
LISTS: tuple[Operation, ...] = (
    *(
        _listed(
            f"_foreach_{n}",
            f"torch._foreach_{n}({_X})",
            definition=f"{_RIGHT}(torch.{n}(a))",
        )
        for n in _UNARY.split()
    ),
    *(
        _listed(
            f"_foreach_{name}{how}",
            code.replace("CALL", f"_foreach_{name.split()[0]}").replace("ARGUMENTS", lists),
            definition=f"{_RIGHT}(torch.{name.split()[0]}({right}))",
            **_PAIR,
            **({"value": (0.5, 2.0)} if "value" in lists else {}),
        )
        for name, lists, right in _OF_LISTS
        for how, code in (
            ("", f"(lambda x, y: torch.CALL(ARGUMENTS))({_X}, {_Y})"),
            (
                " in place",
                f"(lambda x, y: (torch.CALL_(ARGUMENTS), x)[1])([x.clone() for x in {_X}], {_Y})",
            ),
        )
    ),
    _listed(
        "_foreach_norm",
        f"torch._foreach_norm({_X} if {{order}} < 9 else a.unbind(0), {{order}})",
        # Of nothing there is no largest.
        definition="(lambda x: [*x] if {order} > 9 else [0 * x[0], *x, 0 * x[0]])"
        "(torch.linalg.vector_norm(a.flatten(1), {order}, 1).unbind(0))",
        order=(1, 2, math.inf),
        walk=1 / 16,
    ),
)
