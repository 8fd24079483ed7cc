"""Tensors in nests of lists, tuples and dicts, and modes in which calls run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_Result = TypeVar("_Result")


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


def on_cpu(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors on the CPU, detached, after one wait for the work of a GPU."""
    devices = {x.device for x in tensors if x.is_cuda}
    copies = [x.detach().to("cpu", non_blocking=x.is_cuda) for x in tensors]
    for device in devices:
        torch.cuda.synchronize(device)
    return copies


ACTIVITIES = {"cuda": "CUDA", "xpu": "XPU"}
# Before torch 2.6 the last has CUDA's name.
_DEVICE_TIMES = ("self_device_time_total", "self_cuda_time_total")


def synchronise(device: str) -> None:
    """Wait for all work of a device."""
    if device != "cpu":
        getattr(torch, device).synchronize()


def profiled(work: Callable[[], _Result], device: str) -> tuple[dict[str, float], _Result]:
    """Return the microseconds of each kernel of a profiled device, else of each operator of torch,
    and what the work returned.
    """
    activity, on_device = torch.profiler.ProfilerActivity, device in ACTIVITIES
    more = [getattr(activity, ACTIVITIES[device])] if on_device else []
    with torch.profiler.profile(activities=[activity.CPU, *more]) as profile:
        result = work()
        synchronise(device)
    times = _DEVICE_TIMES if on_device else ("self_cpu_time_total",)
    return {
        str(event.key): max(float(getattr(event, name, 0)) for name in times)
        for event in profile.key_averages()
        if ("CPU" not in str(getattr(event, "device_type", "CPU"))) == on_device
    }, result


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
