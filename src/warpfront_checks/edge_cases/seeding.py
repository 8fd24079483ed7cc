"""Wrong kernels are put under torch's dispatcher, and taken out again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.check_options import CheckOptions
from warpfront_checks.edge_cases.answers import USUAL, Hazard
from warpfront_checks.edge_cases.hazard_checks import class_named, free_bytes, judge_rows
from warpfront_checks.mutations import MutationTally, Seeded

KEYS = {"cpu": "CPU", "cuda": "CUDA"}
Kernel = Callable[..., Any]
# Gets the right kernel, and the arguments of the call.
Wrong = Callable[..., Any]


@dataclass(frozen=True)
class KernelFault:
    """A wrong kernel. `operators` are overloads of aten; `like` names its model, if
    there is one.
    """

    name: str
    operators: tuple[str, ...]
    wrong: Wrong
    hazard_class: str
    rows: tuple[str, ...]
    like: str = ""
    devices: tuple[str, ...] = ("cpu", "cuda")


class WrongKernels(list[KernelFault]):
    """The wrong kernels of a module, in its order: a decorator enters and describes each."""

    def entry(
        self,
        hazard_class: str,
        rows: str | tuple[str, ...],
        name: str,
        *operators: str,
        like: str = "",
        devices: tuple[str, ...] = ("cpu", "cuda"),
    ) -> Callable[[Wrong], Wrong]:
        """Enter the decorated kernel, which this row of the class, or each of several,
        has to catch.
        """
        row_names = (rows,) if isinstance(rows, str) else rows

        def entered(wrong: Wrong) -> Wrong:
            self.append(KernelFault(name, operators, wrong, hazard_class, row_names, like, devices))
            return wrong

        return entered


@contextmanager
def seeded(fault: KernelFault, device: str, *, everywhere: bool = False) -> Iterator[None]:
    """Put a wrong kernel under the dispatcher. Calls of float64 on the CPU, the reference of
    other devices, stay correct if not `everywhere`.
    """
    key = KEYS[device]
    library = torch.library.Library("aten", "IMPL")
    try:
        for name in operators_of(fault, device):
            kernel = torch.library.get_kernel(f"aten::{name}", key)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                library.impl(
                    name,
                    _kernel(name, kernel, fault.wrong, everywhere=everywhere),
                    key,
                    with_keyset=True,
                )
        yield
    finally:
        library._destroy()


def operators_of(fault: KernelFault, device: str) -> tuple[str, ...]:
    """Return those of its operators that the device has kernels for: attention has
    others on each.
    """
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    keys = (KEYS[device], "CompositeExplicitAutograd")
    return tuple(n for n in fault.operators if any(has(f"aten::{n}", key) for key in keys))


def _kernel(name: str, kernel: Any, wrong: Wrong, *, everywhere: bool = False) -> Kernel:
    packet, _, overload = name.partition(".")
    schema = getattr(getattr(torch.ops.aten, packet), overload or "default")._schema
    tensors = [str(argument.type) == "Tensor" for argument in schema.arguments]

    def call(keys: Any, *args: Any, **kwargs: Any) -> Any:
        expected = partial(kernel.call_boxed, keys)
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
        return wrong(expected, *args, **kwargs)

    return call


def _is_reference(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(_is_reference(element) for element in x)
    return isinstance(x, Tensor) and x.dtype == torch.float64 and x.device.type == "cpu"


def rows_of(fault: KernelFault) -> list[Hazard]:
    """Return the rows that have to catch the fault."""
    return [row for row in class_named(fault.hazard_class).hazards if row.name in fault.rows]


def concerns(fault: KernelFault, device: str) -> bool:
    """Return whether a fault applies to the device, and its rows are judged there."""
    return device in fault.devices and class_named(fault.hazard_class).judges(device)


def fits(fault: KernelFault, device: str) -> bool:
    """Return whether the device has the memory that its rows take."""
    return not any(row.needed_bytes > free_bytes(device) for row in rows_of(fault))


def seed_kernel_faults(
    faults: Sequence[KernelFault], device: str, ledger: MutationTally, seed: int = 0
) -> None:
    """Seed each fault in turn: its row must pass without it, and fail with it, in one
    of its turns.
    """
    clean_faults: dict[tuple[object, ...], list[str]] = {}
    for fault in faults:
        hazard_class = class_named(fault.hazard_class)
        if not concerns(fault, device) or not fits(fault, device):
            continue
        rows = rows_of(fault)
        dtype_names = {name for row in rows for name in row.dtypes}
        dtypes = [name for name in USUAL if name in dtype_names] or list(dtype_names)
        caught = False
        for row_seed in range(seed, seed + max(row.turns for row in rows)):
            effort = CheckOptions(seeds=(row_seed,), quick=True)
            key = (fault.hazard_class, fault.rows, tuple(dtypes), row_seed)
            if key not in clean_faults:
                clean_faults[key] = judge_rows(hazard_class, rows, device, dtypes, effort).faults
            with seeded(fault, device):
                seeded_faults = judge_rows(hazard_class, rows, device, dtypes, effort).faults
            caught = bool(seeded_faults) and not clean_faults[key]
            if seeded_faults or clean_faults[key]:
                break
        entry = Seeded(
            mutation="wrong kernel",
            suite="hazards",
            check=f"{fault.hazard_class}: {fault.name}",
            dtype="float32",
            device=device,
        )
        ledger.enter(entry, caught=caught)
