"""Seeded faults in networks: devices that compute wrong on purpose, to prove that the numerics
session is not vacuous. Every one must be caught, and the clean run must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from warpfront.inside.checks.blocks import Block, Inputs, Node, Trace, execute, make_inputs
from warpfront.inside.checks.judge import judge, make_baseline
from warpfront.inside.checks.mutations import (
    ON_TENSORS,
    Mutate,
    MutationTally,
    Narrowed,
    Seeded,
    tf32,
)
from warpfront.inside.checks.operations import EVERY, PARTIAL, SUMS_ROUNDED

# 0.1 % is below what bfloat16 (0.4 %) and, after a few roundings, float16 can tell from right.
TOO_FINE = "16 bits, after a few roundings, cannot tell it from right"
SUMS_ROUND = "sums round here (SUMS_ROUNDED): a correct device is further off"
FLOAT32_ONLY = frozenset({"0.1 percent too large"})
# Where sums round (operations.SUMS_ROUNDED) the error of a correct device is larger than these
# faults.
_SMALL = frozenset({"3 percent too large", "one wrong element"})
DROWNED = {
    (EVERY, torch.bfloat16): _SMALL,
    (EVERY, torch.float16): _SMALL,
    (PARTIAL, torch.bfloat16): frozenset({"3 percent too large"}),
}


@dataclass(frozen=True, kw_only=True)
class BlockFault:
    """One seeded fault on one block in one dtype; `run` is the faulty device."""

    name: str
    block: Block
    dtype: torch.dtype
    run: Callable[[Block, Inputs, str], Trace]


def cases(
    block: Block, dtype: torch.dtype, device: str, ledger: MutationTally | None = None
) -> Iterator[BlockFault]:
    """Every fault that must be caught: on the output, on each gradient in turn, and in the whole
    device. What is not demanded goes into the ledger.
    """
    ledger = ledger or MutationTally()
    places = [block.nodes[-1].name, *(f"grad:{name}" for name in block.leaves)]
    for place in places:
        for name, mutate in ON_TENSORS.items():
            if name in FLOAT32_ONLY and dtype != torch.float32:
                ledger.excuse(name, TOO_FINE)
                continue
            if name in _drowned(block, place, dtype, device):
                ledger.excuse(name, SUMS_ROUND)
                continue
            yield BlockFault(
                name=f"{name}: {place}", block=block, dtype=dtype, run=_mutating(place, mutate)
            )
    for place in places[1:]:
        yield BlockFault(
            name=f"dropped gradient: {place}", block=block, dtype=dtype, run=_dropping(place)
        )
    yield BlockFault(name="answers of the run before", block=block, dtype=dtype, run=_stale)
    if device != "cpu":
        yield BlockFault(
            name="computed on the CPU instead", block=block, dtype=dtype, run=_on_the_cpu
        )
    if dtype == torch.float32:
        yield BlockFault(name="low precision inside", block=block, dtype=dtype, run=_in_bfloat16)
    if dtype == torch.float32 and device == "cuda":
        yield BlockFault(name="TF32 inside", block=block, dtype=dtype, run=_in_tf32)


def seed_block_faults(
    block: Block, dtype: torch.dtype, device: str, seed: int, ledger: MutationTally
) -> None:
    """Every fault on one block. A clean run that is refused is missed, too: as `clean`."""
    inputs = make_inputs(block, dtype, seed)
    baseline = make_baseline(block, inputs)
    clean = judge(block, inputs, execute(block, inputs, device), baseline, device)
    ledger.missed += [f"clean: {block.name} {dtype}: {fault}" for fault in clean.faults]
    for case in cases(block, dtype, device, ledger):
        found = judge(block, inputs, case.run(block, inputs, device), baseline, device)
        mutation, _, place = case.name.partition(": ")
        seeded = Seeded(
            mutation=mutation,
            suite="numerics",
            check=block.name,
            dtype=str(dtype).removeprefix("torch."),
            device=device,
            place=place or "all",
        )
        ledger.enter(seeded, caught=bool(found.faults), said=found.tallies)


def _drowned(block: Block, place: str, dtype: torch.dtype, device: str) -> frozenset[str]:
    """The faults that cannot be told from correct rounding in a gradient, by the operation
    that makes it.
    """
    leaf = place.removeprefix("grad:")
    kinds = [node.operation.kind for node in block.nodes if leaf in node.inputs]
    rounded = [SUMS_ROUNDED.get((device, kind, dtype), "") for kind in kinds]
    return frozenset().union(*(DROWNED.get((how, dtype), frozenset()) for how in rounded))


def _mutating(place: str, mutate: Mutate) -> Callable[[Block, Inputs, str], Trace]:
    def run(block: Block, inputs: Inputs, device: str) -> Trace:
        trace = execute(block, inputs, device)
        name = place.removeprefix("grad:")
        if place.startswith("grad:"):
            return replace(
                trace, gradients={**trace.gradients, name: mutate(trace.gradients[name])}
            )
        return replace(trace, values={**trace.values, name: mutate(trace.values[name])})

    return run


def _dropping(place: str) -> Callable[[Block, Inputs, str], Trace]:
    def run(block: Block, inputs: Inputs, device: str) -> Trace:
        trace = execute(block, inputs, device)
        name = place.removeprefix("grad:")
        return replace(trace, gradients={k: v for k, v in trace.gradients.items() if k != name})

    return run


def _stale(block: Block, inputs: Inputs, device: str) -> Trace:
    """Computes nothing new: right leaves, but everything else from other inputs."""
    other = make_inputs(block, inputs.cotangent.dtype, 999)
    trace = execute(block, other, device)
    return replace(trace, values={**trace.values, **inputs.leaves})


def _on_the_cpu(block: Block, inputs: Inputs, _device: str) -> Trace:
    return execute(block, inputs, "cpu")


def _in_bfloat16(block: Block, inputs: Inputs, device: str) -> Trace:
    """Every operation computes in bfloat16 and hands out float32."""
    types = {"inside": torch.bfloat16, "outside": torch.float32}
    nodes = tuple(
        Node(n.name, Narrowed(operation=n.operation, **types), n.inputs) for n in block.nodes
    )
    return execute(replace(block, nodes=nodes), inputs, device)


def _in_tf32(block: Block, inputs: Inputs, device: str) -> Trace:
    """The hardware's own shortcut: products of 10-bit mantissas."""
    with tf32():
        return execute(block, inputs, device)
