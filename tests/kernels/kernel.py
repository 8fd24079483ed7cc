"""A wrong kernel: its declaration, its binding to aten's schema, and its time under the dispatcher.

A kernel is a function of `right` and of those arguments that it needs, by their names in aten's
schema (`x` for `self`). `right()` calls the kernel of torch with the arguments of the call, and
`right(dim=0)` with another one. A function with `*args` gets all arguments as torch sends them.
"""

from __future__ import annotations

import inspect
import keyword
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, *HALVES)
DOUBLES = (torch.float64, torch.complex128)
ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention"
    " _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"
)
ATTENTION_BACKWARD = " ".join(f"{name}_backward" for name in ATTENTION.split())
KEYS = {"cpu": "CPU", "cuda": "CUDA"}
Wrong = Callable[..., Any]
_BEFORE_SCHEMA = {"self": "x", "right": "right_", **{word: f"{word}_" for word in keyword.kwlist}}


@dataclass(frozen=True)
class WrongKernel:
    """A wrong kernel of these overloads of aten. `set` names the set of kernels that it came with,
    `like` the public thread of a defect of this kind, `shown` a call whose result it changes.
    """

    name: str
    operators: tuple[str, ...]
    wrong: Wrong
    set: int | str = "own"
    like: str = ""
    devices: tuple[str, ...] = ("cpu", "cuda")
    shown: Callable[[], Any] | None = None

    @cached_property
    def parameters(self) -> tuple[str, ...] | None:
        """Return the arguments that the function names, or None: it gets all of them."""
        parameters = list(inspect.signature(self.wrong).parameters.values())[1:]
        kinds = {parameter.kind for parameter in parameters}
        if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            return None
        return tuple(parameter.name for parameter in parameters)

    def call(self, right: Wrong, schema: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Call the function with the arguments that it names."""
        if self.parameters is None:
            return self.wrong(right, *args, **kwargs)
        arguments = _Arguments(schema, args, kwargs)
        needed = {name: arguments.values[name] for name in self.parameters}
        return self.wrong(partial(arguments.changed, right), **needed)


class _Arguments:
    """The arguments of one call by their names, those with defaults too."""

    def __init__(self, schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        names = {argument.name for argument in schema.arguments}
        python = {n: n if n == "self" and "x" in names else _BEFORE_SCHEMA.get(n, n) for n in names}
        self.positional = [python[a.name] for a in schema.arguments if not a.kwarg_only]
        self.schema_names = {name: n for n, name in python.items()}
        self.args, self.kwargs = args, kwargs
        self.values = {python[a.name]: a.default_value for a in schema.arguments}
        self.values |= dict(zip(self.positional, args, strict=False))
        self.values |= {python[name]: value for name, value in kwargs.items()}

    def changed(self, right: Wrong, /, **changes: Any) -> Any:
        """Call the right kernel, with some arguments changed."""
        values = {**self.values, **changes}
        last = max(
            (self.positional.index(n) + 1 for n in changes if n in self.positional), default=0
        )
        args = [values[name] for name in self.positional[: max(last, len(self.args))]]
        named = {self.schema_names[n]: v for n, v in changes.items() if n not in self.positional}
        return right(*args, **{**self.kwargs, **named})


KERNELS: dict[str, WrongKernel] = {}


def kernel(
    operators: str,
    shown: Callable[[], Any] | None = None,
    *,
    set: int | str,
    like: str = "",
    name: str = "",
    devices: str = "cpu cuda",
) -> Callable[[Wrong], Wrong]:
    """Enter the decorated function as the wrong kernel of some overloads, separated by spaces; a
    word `.out` is another overload of the operator before it.
    """

    def entered(wrong: Wrong) -> Wrong:
        key = name or wrong.__name__
        if key in KERNELS:
            raise ValueError(f"two wrong kernels are called {key}")
        KERNELS[key] = WrongKernel(
            key, _overloads(operators), wrong, set, like, tuple(devices.split()), shown
        )
        return wrong

    return entered


def _overloads(operators: str) -> tuple[str, ...]:
    names: list[str] = []
    for word in operators.split():
        names.append(names[-1].partition(".")[0] + word if word.startswith(".") else word)
    return tuple(names)


@contextmanager
def seeded(fault: WrongKernel, device: str, *, everywhere: bool = False) -> Iterator[None]:
    """Put a wrong kernel under the dispatcher. Calls of float64 on the CPU, the reference of
    other devices, stay correct if not `everywhere`.
    """
    library = torch.library.Library("aten", "IMPL")
    try:
        for name in operators_of(fault, device):
            key, right = KEYS[device], torch.library.get_kernel(f"aten::{name}", KEYS[device])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dispatched = dispatched_kernel(name, right, fault.call, everywhere=everywhere)
                library.impl(name, dispatched, key, with_keyset=True)
        yield
    finally:
        library._destroy()


def operators_of(fault: WrongKernel, device: str) -> tuple[str, ...]:
    """Return those of its operators that the device has kernels for: attention has
    others on each.
    """
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    keys = (KEYS[device], "CompositeExplicitAutograd")
    return tuple(n for n in fault.operators if any(has(f"aten::{n}", key) for key in keys))


def dispatched_kernel(name: str, right: Any, wrong: Wrong, *, everywhere: bool = False) -> Wrong:
    """Return a function that the dispatcher can call: `wrong` gets the right kernel, the schema
    and the arguments.
    """
    packet, _, overload = name.partition(".")
    schema = getattr(getattr(torch.ops.aten, packet), overload or "default")._schema
    tensors = [str(argument.type) == "Tensor" for argument in schema.arguments]

    def call(keys: Any, *args: Any, **kwargs: Any) -> Any:
        expected = partial(right.call_boxed, keys)
        # A number where the kernel takes a tensor: so the dispatcher hands over `x * 2`.
        wide = torch.float64 if any(_is_reference(x) for x in args) else None
        args = tuple(
            torch.tensor(x, dtype=wide if isinstance(x, float) else None)
            if tensor and isinstance(x, (int, float, complex))
            else x
            for x, tensor in zip(args, tensors, strict=False)
        )
        if wide and not everywhere:
            return expected(*args, **kwargs)
        return wrong(expected, schema, args, kwargs)

    return call


def _is_reference(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(_is_reference(element) for element in x)
    return isinstance(x, Tensor) and x.dtype == torch.float64 and x.device.type == "cpu"


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def grad_of(call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    call(x).square().sum().backward()
    assert x.grad is not None
    return x.grad


def is_single(x: Tensor) -> bool:
    """A real floating-point dtype narrower than double."""
    return x.is_floating_point() and x.dtype not in DOUBLES


def two(numbers: Any, default: Any = 1) -> list[int]:
    """A number for each of two axes, from one number, a list of either length or an empty one."""
    if isinstance(numbers, int):
        return [numbers, numbers]
    return list(numbers) * (2 // len(numbers)) if numbers else two(default)
