"""Kernels of lists of tensors."""

from __future__ import annotations

import math
from functools import partial

from warpfront_checks.cases.catalogue.record import exact, rounded
from warpfront_checks.cases.operation import Operation

_listed = partial(exact, shapes="n k, n k", n=(3, 259), backward=False)
LISTS: tuple[Operation, ...] = (
    *(
        _listed(
            f"_foreach_{name}",
            f"torch.stack(torch._foreach_{name}(a.unbind(0), b.unbind(0){rest}))",
            definition=definition,
            **options,
        )
        for name, rest, definition, options in (
            ("add", ", alpha={alpha}", "a + {alpha} * b", {"alpha": (1, 2)}),
            ("sub", ", alpha={alpha}", "a - {alpha} * b", {"alpha": (1, 2)}),
            ("mul", "", "a * b", {}),
            ("maximum", "", "torch.maximum(a, b)", {}),
            (
                "addcmul",
                ", a.unbind(0), value={alpha}",
                "a + {alpha} * (b * a)",
                {"alpha": (1, 2), "values": ("few", "small")},
            ),
        )
    ),
    rounded(
        "_foreach_lerp",
        "torch.stack(torch._foreach_lerp(a.unbind(0), b.unbind(0), {weight}))",
        "n k, n k",
        definition="a + {weight} * (b - a)",
        weight=(0.25, 0.75),
        n=(3, 259),
        backward=False,
        half_roundings=4.0,
    ),
    rounded(
        "_foreach_norm",
        "torch.stack(torch._foreach_norm(a.unbind(0), {order}))",
        "n k",
        definition="torch.linalg.vector_norm(a, {order}, 1)",
        order=(1, 2, math.inf),
        n=(3, 259),
        half_roundings=8.0,
        backward=False,
    ),
)
