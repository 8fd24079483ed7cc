"""A rank of the collectives, in a child process.

Every rank knows the data of every other, so each judges its own result: integers exactly, sums of
floating numbers by the rounding of each addition.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from warpfront_checks.cases.bounds import Bound, floor_of, judge, rounding_unit
from warpfront_checks.selftest import faults_folder, load_faults

TIMEOUT_SECONDS = 60
SIZES = (1, 33, 1025, 65537)  # no multiple of a warp, a wavefront or a transfer's unit
INTEGERS = ("int32", "int64")
FLOATS = ("float32", "bfloat16", "float16")
# Messages of backends that lack an operation.
_UNSUPPORTED = ("not supported", "not implemented", "does not support", "no support", "unsupported")


class Group:
    """The collectives of the process group, on tensors of this rank's device. Faults replace it."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world

    def all_reduce(self, x: Tensor, largest: bool) -> Tensor:  # noqa: FBT001 - sum or maximum
        y = x.clone()
        kind = distributed.ReduceOp.MAX if largest else distributed.ReduceOp.SUM
        distributed.all_reduce(y, kind)
        return y

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        y = x.clone()
        distributed.broadcast(y, source)
        return y

    def all_gather(self, x: Tensor) -> list[Tensor]:
        parts = [torch.zeros_like(x) for _ in range(self.world)]
        distributed.all_gather(parts, x)
        return parts

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        y = torch.zeros_like(parts[0])
        distributed.reduce_scatter(y, list(parts))
        return y

    def all_to_all(self, parts: Sequence[Tensor]) -> list[Tensor]:
        stacked, got = torch.stack(list(parts)), torch.zeros_like(torch.stack(list(parts)))
        distributed.all_to_all_single(got, stacked)
        return list(got.unbind())

    def pass_on(self, x: Tensor) -> Tensor:
        """Send to the next rank and receive from the one before."""
        y = torch.zeros_like(x)
        ahead, behind = (self.rank + 1) % self.world, (self.rank - 1) % self.world
        pair = [
            distributed.P2POp(distributed.isend, x, ahead),
            distributed.P2POp(distributed.irecv, y, behind),
        ]
        for request in distributed.batch_isend_irecv(pair):
            request.wait()
        return y


def part_of(rank: int, dtype: str, size: int, number: int = 0) -> Tensor:
    """Return a rank's data, the same everywhere: integers below 50, for exact sums."""
    seed = 1000 * rank + 10 * size + number
    generator = torch.Generator().manual_seed(seed)
    if dtype in INTEGERS:
        return torch.randint(-50, 50, (size,), generator=generator).to(getattr(torch, dtype))
    return torch.randn(size, generator=generator).to(getattr(torch, dtype))


def judge_operation(group: Group, name: str, dtype: str, device: str) -> str:
    """Return the fault of one operation in one dtype, or nothing.

    Goes on after a fault: a rank that stops early leaves the others waiting.
    """
    faults = []
    for size in SIZES:
        # What each rank has for all, what each has for this one, and what this one has for each.
        every, shares = (
            [part_of(rank, dtype, size, number) for rank in range(group.world)]
            for number in (0, group.rank)
        )
        mine = [part_of(group.rank, dtype, size, n).to(device) for n in range(group.world)]
        for received, parts, summed in _COLLECTIVES[name](group, mine, every, shares):
            fault = _compared(received, parts, summed=summed)
            faults += [f"{name} of {size} {dtype}: {fault}"] if fault else []
    return faults[0] if faults else ""


Tensors = list[Tensor]
# What was received, the parts that it is made of, and whether by their sum.
Received = list[tuple[Tensor, Tensors, bool]]
_COLLECTIVES: dict[str, Callable[[Group, Tensors, Tensors, Tensors], Received]] = {
    "all_reduce": lambda group, mine, every, _: [
        (group.all_reduce(mine[0], False), every, True),  # noqa: FBT003 - a sum
        (group.all_reduce(mine[0], True), [torch.stack(every).amax(0)], False),  # noqa: FBT003 - a maximum
    ],
    "broadcast": lambda group, mine, every, _: [
        (group.broadcast(mine[0], source), [part], False) for source, part in enumerate(every)
    ],
    "all_gather": lambda group, mine, every, _: [
        (received, [part], False)
        for received, part in zip(group.all_gather(mine[0]), every, strict=True)
    ],
    "reduce_scatter": lambda group, mine, _, shares: [(group.reduce_scatter(mine), shares, True)],
    "all_to_all": lambda group, mine, _, shares: [
        (received, [part], False)
        for received, part in zip(group.all_to_all(mine), shares, strict=True)
    ],
    "send and receive": lambda group, mine, every, _: [
        (group.pass_on(mine[0]), [every[group.rank - 1]], False)
    ],
}
OPERATIONS = tuple(_COLLECTIVES)


def _compared(received: Tensor, parts: list[Tensor], *, summed: bool) -> str:
    if received.dtype != parts[0].dtype or received.shape != parts[0].shape:
        return f"{received.dtype} {tuple(received.shape)}"
    exact = torch.stack([part.double() for part in parts]).sum(0)
    bound = torch.zeros_like(exact)
    if summed and received.dtype.is_floating_point:
        size = torch.stack([part.double().abs() for part in parts]).sum(0)
        # Every addition rounds once, whatever the order; and once more where it is stored.
        bound = len(parts) * rounding_unit(received.dtype) * size + floor_of(received.dtype)
    return judge(received.double(), exact, Bound(slack=bound)).fault


def exchange_all(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the result of every operation on this rank."""
    rank, world = item["rank"], item["world"]
    kind = item["device"]
    if kind == "cuda":
        torch.cuda.set_device(rank)
    if kind == "hpu":
        # Both the device and its backend are there only after that.
        importlib.import_module("habana_frameworks.torch.distributed.hccl")
        # A process that sees all of them takes its own; one with a single card, that of its
        # LOCAL_RANK, has no other number than 0 for it and refuses. `hpu` is right for both.
        with contextlib.suppress(RuntimeError):
            torch.hpu.set_device(rank)
    device = kind if kind in {"cpu", "hpu"} else f"{kind}:{rank}"
    distributed.init_process_group(
        item["backend"],
        init_method=Path(item["meeting"]).resolve().as_uri(),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=TIMEOUT_SECONDS),
    )
    group = (_seeded(item["fault"]) if item["fault"] else Group)(rank, world)
    results = {name: _result(group, name, device) for name in OPERATIONS}
    distributed.destroy_process_group()
    return results


def _seeded(fault: str) -> type[Group]:
    """Return a group of the selftest's faults by its name."""
    faults = importlib.import_module(f"{load_faults(faults_folder())}.seeding.collectives")
    group: type[Group] = faults.FAULTS[fault][0]
    return group


def _result(group: Group, name: str, device: str) -> dict[str, str]:
    """`fault` and `unsupported`: at most one of them is not empty."""
    try:
        faults = [judge_operation(group, name, dtype, device) for dtype in (*INTEGERS, *FLOATS)]
        return {"fault": next(filter(None, faults), ""), "unsupported": ""}
    except Exception as error:  # noqa: BLE001 - what one operation raises is its own result
        lines = str(error).strip().splitlines() or ["no reason given"]
        if any(words in str(error).lower() for words in _UNSUPPORTED):
            return {"fault": "", "unsupported": lines[0][:200]}
        return {"fault": f"{type(error).__name__}: {lines[0][:200]}", "unsupported": ""}
