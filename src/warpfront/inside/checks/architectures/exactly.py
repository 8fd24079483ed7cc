"""A library's code in float64 where it was asked for float64: models cast to float32 in the middle,
make float32 numbers of their own, and call kernels that have no float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_CASTS = (Tensor.to, Tensor.float, Tensor.type)
_GROUPED = {getattr(torch, "_grouped_mm", None)} | {
    getattr(torch.nn.functional, name, None) for name in ("grouped_mm", "scaled_grouped_mm")
}
_GROUPED -= {None}


class KeptWide(TorchFunctionMode):
    """What is float64 stays so; nothing else is touched, so that the same code in float32 is
    the library's own. What refuses float64 beside float32 gets all of it in float64.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        options = dict(kwargs or {})
        if not any(one.dtype == torch.float64 for one in _tensors((args, options))):
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
        rest = tuple(torch.float64 if one in narrow else one for one in args[1:])
        if options.get("dtype") in narrow:
            options["dtype"] = torch.float64
        return function(args[0], *rest, **options)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)


def _widened(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if type(value) in (tuple, list):
        return type(value)(map(_widened, value))
    if type(value) is dict:
        return {name: _widened(one) for name, one in value.items()}
    return value


def _grouped(rows: Tensor, weights: Tensor, *, offs: Tensor, **_: Any) -> Tensor:
    """Groups of rows, each by its own matrix: `offs` says where each group ends."""
    ends = [0, *(int(end) for end in offs)]
    parts = [rows[a:b] @ weights[n] for n, (a, b) in enumerate(itertools.pairwise(ends))]
    rest = rows.new_zeros(len(rows) - ends[-1], weights.shape[-1])
    return torch.cat([*parts, rest])
