"""One call on a device, of any suite: forward, and backward where a cotangent is fed back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Computed:
    """The result of one call, copied to the CPU: its outputs, and a gradient for each leaf
    (None where it is not used). `places` are the device types of these tensors.
    """

    outputs: tuple[Tensor, ...]
    gradients: tuple[Tensor | None, ...] = ()
    places: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[Tensor | None, ...]:
        return (*self.outputs, *self.gradients)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all tensors, in their order."""
        outputs = [f"output {i}" for i in range(len(self.outputs))]
        if len(outputs) == 1:
            outputs = ["output"]
        return (*outputs, *(f"gradient {i}" for i in range(len(self.gradients))))

    def but(self, name: str, tensor: Tensor | None) -> Computed:
        """Return the same with one of them changed, or missing."""
        by_name = dict(zip(self.names, self.all, strict=True))
        other, count = list({**by_name, name: tensor}.values()), len(self.outputs)
        outputs = tuple(x for x in other[:count] if x is not None)
        return replace(self, outputs=outputs, gradients=tuple(other[count:]))


def computed(
    call: Callable[[], Any], leaves: Sequence[Tensor], cotangents: Sequence[Tensor] | None
) -> Computed:
    """Make a call, and differentiate it where there are cotangents: one for each of its outputs
    that has a gradient.
    """
    outputs = [_dense(x) for x in tensors_in(call())]
    ends = [x for x in outputs if x.requires_grad]
    computed_gradients: Sequence[Tensor | None] = ()
    if cotangents is not None and leaves and ends:
        computed_gradients = torch.autograd.grad(ends, leaves, cotangents, allow_unused=True)
    gradients = [g if g is None else _dense(g) for g in computed_gradients]
    return Computed(
        outputs=tuple(x.detach().cpu() for x in outputs),
        gradients=tuple(g if g is None else g.cpu() for g in gradients),
        places=tuple(x.device.type for x in (*outputs, *gradients) if x is not None),
    )


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of a nest, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)


def converted(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a nest of lists, tuples and dicts with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        items = [converted(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: converted(item, change) for key, item in value.items()}
    return value


def _dense(x: Tensor) -> Tensor:
    return x if x.layout == torch.strided else x.to_dense()
