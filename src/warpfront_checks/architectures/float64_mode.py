"""A region in which a library's code stays in float64: models cast to float32 in the middle, make
float32 numbers of their own, and call kernels without float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from warpfront_checks.cases.oracle import oracle_for
from warpfront_checks.executing import tensors_in

_CASTS = (Tensor.to, Tensor.float, Tensor.type)
_GROUPED = {getattr(torch, "_grouped_mm", None)} | {
    getattr(torch.nn.functional, name, None) for name in ("grouped_mm", "scaled_grouped_mm")
}
_GROUPED -= {None}


@contextmanager
def float64_region() -> Iterator[None]:
    """Compute in float64, by the oracle's kernels: one that is wrong in each dtype would else be
    its own judge.
    """
    with oracle_for("cpu"), PreserveFloat64():
        yield


class PreserveFloat64(TorchFunctionMode):
    """A torch function mode that preserves float64. Nothing else changes, so that the same code
    in float32 is the library's own. Calls that refuse float64 together with float32 get all
    of it in float64.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        options = dict(kwargs or {})
        if not any(tensor.dtype == torch.float64 for tensor in tensors_in((args, options))):
            return function(*args, **options)
        if function in _CASTS:
            return self._cast(function, args, options)
        if function in _GROUPED:
            return _grouped(*args, **options)
        if options.get("dtype") == torch.float32:
            options["dtype"] = torch.float64
        try:
            return function(*args, **options)
        except RuntimeError:
            wide_args, wide_options = _widened(args), _widened(options)
            return function(*wide_args, **wide_options)

    def _cast(self, function: Any, args: Any, options: dict[str, Any]) -> Any:
        if args[0].dtype != torch.float64 or not isinstance(args[0], Tensor):
            return function(*args, **options)
        if function is Tensor.float:
            return args[0]
        narrow = (torch.float32, torch.bfloat16, torch.float16)
        rest = tuple(torch.float64 if argument in narrow else argument for argument in args[1:])
        if options.get("dtype") in narrow:
            options["dtype"] = torch.float64
        return function(args[0], *rest, **options)


def _widened(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if type(value) in (tuple, list):
        return type(value)(map(_widened, value))
    if type(value) is dict:
        return {name: _widened(item) for name, item in value.items()}
    return value


def _grouped(rows: Tensor, weights: Tensor, *, offs: Tensor, **_: Any) -> Tensor:
    """Multiply groups of rows, each by its own matrix: `offs` are the ends of the groups."""
    ends = [0, *(int(end) for end in offs)]
    parts = [rows[a:b] @ weights[n] for n, (a, b) in enumerate(itertools.pairwise(ends))]
    rest = rows.new_zeros(len(rows) - ends[-1], weights.shape[-1])
    return torch.cat([*parts, rest])
