"""A library's model for the layer oracle: one answer, one loss, layers that can run again.

And a region of float64: models cast to float32 in the middle, make float32 numbers of their own,
and call kernels without float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from warpfront_checks.cases.oracle import oracle_for
from warpfront_checks.executing import DispatchMode, converted, tensors_in

# What is larger only masks something out, and its square would be no number.
_LOUDEST = 1e4
# Operations that choose by number: a tie that another device breaks is no fault.
_CHOICES = ("topk", "sort", "argsort", "argmax", "argmin", "kthvalue")
_PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device, torch.Size)


class Answering(nn.Module):
    """A module that returns all floating outputs that have a gradient, flattened in a row. The
    loss is their mean squared distance from fixed numbers, so that no gradient is the same
    everywhere and nothing cancels.
    """

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.body, self.names = model, names

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        output = self.body(**dict(zip(self.names, inputs, strict=True)))
        answers = [tensor for tensor in floating(output) if tensor.requires_grad]
        if not answers:
            raise ValueError("no output has a gradient")
        answer = torch.cat([answer.flatten() for answer in answers])
        # In float64 on the CPU, which every machine computes alike, and then moved.
        places = torch.arange(answer.numel(), dtype=torch.float64)
        target = torch.sin(places * 12.9898 + 1.0).to(answer.device, answer.dtype)
        heard = answer.nan_to_num(0.0, 0.0, 0.0).clamp(-_LOUDEST, _LOUDEST)
        wide = (heard - target).float() if answer.dtype != torch.float64 else heard - target
        return answer, wide.square().mean()


def floating(value: Any) -> Iterator[Tensor]:
    """Return the floating tensors of nested outputs, in their order."""
    return (tensor for tensor in tensors_in(value) if tensor.is_floating_point())


@dataclass
class Layers:
    """Layers that can be judged by themselves, and reasons for the others. `choosing` choose by
    number inside; `random` is true if the whole model draws numbers. `borrowed` are parameters,
    each with the layers that ran when none of its own used it.
    """

    judged: dict[str, nn.Module] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    choosing: set[str] = field(default_factory=set)
    random: bool = False
    borrowed: dict[str, list[frozenset[str]]] = field(default_factory=dict)

    def is_lent(self, layer: str, parameter: str) -> bool:
        """Return true if a layer's parameter is used outside of it too, such as a table of
        words as a head: its gradient is then more than that of the layer.
        """
        return any(layer not in inside for inside in self.borrowed.get(f"{layer}.{parameter}", ()))


def observed_layers(model: nn.Module, inputs: tuple[Tensor, ...]) -> Layers:
    """Return each module's inputs and outputs in a pass on the CPU."""
    observer = _Observer(model)
    before = torch.get_rng_state()
    try:
        with torch.no_grad(), observer:
            model.body(**dict(zip(model.names, inputs, strict=True)))
    finally:
        observer.leave()
    observer.layers.random = not torch.equal(before, torch.get_rng_state())
    return observer.layers


class _Observer(DispatchMode):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.layers = Layers()
        self._inside: list[tuple[str, Tensor]] = []
        self._owned: dict[int, list[tuple[str, str]]] = {}
        self._handles: list[Any] = []
        for layer, module in model.body.named_modules(prefix="body"):
            for name, parameter in module.named_parameters(recurse=False):
                self._owned.setdefault(id(parameter), []).append((layer, name))
            if layer != "body" and not isinstance(module, nn.Identity):
                self._handles += self._hooks(layer, module)

    def _hooks(self, name: str, module: nn.Module) -> list[Any]:
        refused = self.layers.refused

        def before(_: nn.Module, args: Any, options: Any) -> None:
            self._inside.append((name, torch.get_rng_state()))
            for argument in (*args, *options.values()):
                if odd := _odd(argument):
                    refused.setdefault(name, f"takes {odd}")

        def after(_: nn.Module, __: Any, output: Any) -> None:
            _, state = self._inside.pop()
            first = output[0] if type(output) is tuple and output else output
            if not isinstance(first, Tensor) or first.is_complex():
                is_other = first is output
                output_type = type(output).__name__ if is_other else "no tensor of real numbers"
                refused.setdefault(name, f"gives {output_type}")
            elif not torch.equal(state, torch.get_rng_state()):
                refused.setdefault(name, "draws random numbers")
            if name not in refused:
                self.layers.judged[name] = module
            else:
                self.layers.judged.pop(name, None)

        first = module.register_forward_pre_hook(before, with_kwargs=True)
        return [first, module.register_forward_hook(after)]

    def leave(self) -> None:
        for handle in self._handles:
            handle.remove()

    def computed(self, operator: Any, args: Any, kwargs: Any) -> Any:
        if operator.overloadpacket.__name__ in _CHOICES:
            self.layers.choosing.update(name for name, _ in self._inside)
        inside = frozenset(name for name, _ in self._inside)
        for argument in args:
            for layer, name in (
                self._owned.get(id(argument), ()) if isinstance(argument, Tensor) else ()
            ):
                if layer not in inside:
                    self.layers.borrowed.setdefault(f"{layer}.{name}", []).append(inside)
        return operator(*args, **kwargs)


def _odd(value: Any) -> str:
    """Return the name of a type that a pass cannot be repeated from, if there is one inside."""
    if isinstance(value, (Tensor, *_PLAIN)):
        return ""
    if type(value) in (tuple, list):
        return next(filter(None, map(_odd, value)), "")
    if type(value) is dict:
        return next(filter(None, map(_odd, value.values())), "")
    return type(value).__name__


_CASTS = (Tensor.to, Tensor.float, Tensor.type)
_GROUPED = {getattr(torch, "_grouped_mm", None)} | {
    getattr(torch.nn.functional, name, None) for name in ("grouped_mm", "scaled_grouped_mm")
}
_GROUPED -= {None}


@contextmanager
def float64_region() -> Iterator[None]:
    """Compute in float64 by the oracle's kernels: one wrong in each dtype would judge itself."""
    with oracle_for("cpu"), PreserveFloat64():
        yield


class PreserveFloat64(TorchFunctionMode):
    """A torch function mode that preserves float64. Nothing else changes, so that the same code in
    float32 is the library's own. Calls that refuse both together get all of it in float64.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        options = dict(kwargs or {})
        if not any(tensor.dtype == torch.float64 for tensor in tensors_in((args, options))):
            return function(*args, **options)
        if function in _CASTS and isinstance(args[0], Tensor) and args[0].dtype == torch.float64:
            if function is Tensor.float:
                return args[0]
            narrow = (torch.float32, torch.bfloat16, torch.float16)
            rest = tuple(torch.float64 if argument in narrow else argument for argument in args[1:])
            if options.get("dtype") in narrow:
                options["dtype"] = torch.float64
            return function(args[0], *rest, **options)
        if function in _GROUPED:
            return _grouped(*args, **options)
        if options.get("dtype") == torch.float32 and function not in _CASTS:
            options["dtype"] = torch.float64
        try:
            return function(*args, **options)
        except RuntimeError:
            if function in _CASTS:
                raise
            return function(*converted(args, _widened), **converted(options, _widened))


def _widened(value: Tensor) -> Tensor:
    return value.double() if value.is_floating_point() else value


def _grouped(rows: Tensor, weights: Tensor, *, offs: Tensor, **_: Any) -> Tensor:
    """Multiply groups of rows, each by its own matrix: `offs` are the ends of the groups."""
    ends = [0, *(int(end) for end in offs)]
    parts = [rows[a:b] @ weights[n] for n, (a, b) in enumerate(itertools.pairwise(ends))]
    rest = rows.new_zeros(len(rows) - ends[-1], weights.shape[-1])
    return torch.cat([*parts, rest])
