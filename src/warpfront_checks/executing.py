"""Tensors in nests of lists, tuples and dicts, and modes in which calls run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


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


def differentiated(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], cotangent: Tensor
) -> tuple[Tensor, ...]:
    """Return a function's output and the gradient of each input for a cotangent, detached."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    output = function(*leaves)
    return (output.detach(), *torch.autograd.grad(output, leaves, cotangent))


class DispatchMode(TorchDispatchMode):  # type: ignore[misc]
    """A mode that sees each operator. Torch's own imports its compiler, which takes seconds."""

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self.computed(operator, args, kwargs or {})

    def computed(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of an operator."""
        raise NotImplementedError

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Watched(DispatchMode):
    """A mode in which a function sees each operator and its result."""

    def __init__(self, watch: Callable[[Any, Any], object]) -> None:
        super().__init__()
        self._watch = watch

    def computed(self, operator: Any, args: Any, kwargs: Any) -> Any:
        result = operator(*args, **kwargs)
        self._watch(operator, result)
        return result
