"""Seeded faults: devices that compute wrong on purpose, to prove that the numerics session is not
vacuous.

`python -m warpfront.checks selftest` runs them on the claimed device: every one must be caught, and
the clean run must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from warpfront.checks.blocks import BLOCKS, Block, Inputs, Node, Trace, execute, make_inputs
from warpfront.checks.claims import Claims
from warpfront.checks.detect import environment_of, read_facts
from warpfront.checks.judge import judge, make_baseline
from warpfront.checks.numerics import DTYPES, missing_device, probe, require_full_precision
from warpfront.checks.operations import EVERY, PARTIAL, SUMS_ROUNDED, Operation
from warpfront.checks.results import Check, Finding, Recorder, failed, passed

Mutate = Callable[[Tensor], Tensor]


def _wave64(tensor: Tensor) -> Tensor:
    """Lanes 32 to 63 of every 64 repeat the first 32: what a kernel written for warps of 32 does on
    64.
    """
    flat = tensor.flatten().clone()
    lanes = torch.arange(flat.numel())
    return flat[torch.where(lanes % 64 >= 32, lanes - 32, lanes)].reshape(tensor.shape)


def _one_element(tensor: Tensor) -> Tensor:
    """One element off by a fifth of the tensor's root mean square."""
    wrong = tensor.clone().flatten()
    wrong[wrong.numel() // 2] += 0.2 * tensor.double().square().mean().sqrt().to(tensor.dtype)
    return wrong.reshape(tensor.shape)


def _one_row_negated(tensor: Tensor) -> Tensor:
    """The row with the largest numbers changes its sign."""
    wrong = tensor.clone()
    row = int(tensor.double().abs().reshape(len(tensor), -1).sum(1).argmax())
    wrong[row] = -wrong[row]
    return wrong


def _not_a_number(tensor: Tensor) -> Tensor:
    wrong = tensor.clone().flatten()
    wrong[0] = float("nan")
    return wrong.reshape(tensor.shape)


ON_TENSORS: Mapping[str, Mutate] = {
    "3 percent too large": lambda tensor: tensor * 1.03,
    "0.1 percent too large": lambda tensor: tensor * 1.001,
    "all zeros": torch.zeros_like,
    "one wrong element": _one_element,
    "one row negated": _one_row_negated,
    "upper half of every wavefront stale": _wave64,
    "a NaN": _not_a_number,
    "wider dtype than asked": lambda tensor: tensor.double(),
}
# 0.1 % is below what bfloat16 (0.4 %) and, after a few roundings, float16 can tell from right.
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
class Case:
    """One seeded fault on one block in one dtype; `run` is the faulty device."""

    name: str
    block: Block
    dtype: torch.dtype
    run: Callable[[Block, Inputs, str], Trace]


def cases(block: Block, dtype: torch.dtype, device: str) -> Iterator[Case]:
    """Every fault that must be caught: on the output, on each gradient in turn, and in the whole
    device.
    """
    places = [block.nodes[-1].name, *(f"grad:{name}" for name in block.leaves)]
    for place in places:
        for name, mutate in ON_TENSORS.items():
            if name in FLOAT32_ONLY and dtype != torch.float32:
                continue
            if name in _drowned(block, place, dtype, device):
                continue
            yield Case(
                name=f"{name}: {place}", block=block, dtype=dtype, run=_mutating(place, mutate)
            )
    for place in places[1:]:
        yield Case(name=f"dropped: {place}", block=block, dtype=dtype, run=_dropping(place))
    yield Case(name="answers of the run before", block=block, dtype=dtype, run=_stale)
    if device != "cpu":
        yield Case(name="computed on the CPU instead", block=block, dtype=dtype, run=_on_the_cpu)
    if dtype == torch.float32:
        yield Case(name="bfloat16 inside", block=block, dtype=dtype, run=_in_bfloat16)
    if dtype == torch.float32 and device == "cuda":
        yield Case(name="TF32 inside", block=block, dtype=dtype, run=_in_tf32)


def missed_faults(
    block: Block, dtype: torch.dtype, device: str, seed: int
) -> tuple[int, list[str]]:
    """How many faults were seeded, and which were not caught (`a fault of the clean run` if that
    one fails).
    """
    inputs = make_inputs(block, dtype, seed)
    baseline = make_baseline(block, inputs)
    clean = judge(block, inputs, execute(block, inputs, device), baseline, device)
    missed = [f"the clean run is refused: {fault}" for fault in clean.faults]
    seeded = list(cases(block, dtype, device))
    missed += [
        f"seed {seed}: {case.name}"
        for case in seeded
        if not judge(block, inputs, case.run(block, inputs, device), baseline, device).faults
    ]
    return len(seeded), missed


def record_selftest(claims: Claims, recorder: Recorder, *, seeds: tuple[int, ...] = (0,)) -> None:
    """The `selftest` session: one check per block and dtype, passed when every seeded fault was
    caught.
    """
    recorder.plan(["device"])
    require_full_precision()
    facts = read_facts(torch)
    recorder.environment.update(environment_of(torch))
    lacking = missing_device(claims, facts)
    if lacking is not None:
        recorder.run([Check(name="device", find=lambda: lacking)])
        return
    checks = [Check(name="device", find=lambda: passed(claims.device))]
    for name, dtype in DTYPES.items():
        if not probe(dtype, claims.device):
            checks += [_selftest(block, name, claims.device, seeds) for block in BLOCKS]
    recorder.run(checks)


def _selftest(block: Block, dtype: str, device: str, seeds: tuple[int, ...]) -> Check:
    def find() -> Finding:
        tallies = [missed_faults(block, DTYPES[dtype], device, seed) for seed in seeds]
        count, missed = (
            sum(tally[0] for tally in tallies),
            [name for tally in tallies for name in tally[1]],
        )
        if missed:
            return failed(
                f"{len(missed)} of {count} not caught: {missed[0]}", missed=missed, seeded=count
            )
        return passed(f"{count} seeded faults caught", seeded=count)

    return Check(name=f"{block.name} {dtype}", find=find)


def _drowned(block: Block, place: str, dtype: torch.dtype, device: str) -> frozenset[str]:
    """The faults that cannot be told from correct rounding in a gradient, by the operation that
    makes it.
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
    nodes = tuple(Node(n.name, _Narrow(operation=n.operation), n.inputs) for n in block.nodes)
    return execute(replace(block, nodes=nodes), inputs, device)


def _in_tf32(block: Block, inputs: Inputs, device: str) -> Trace:
    """The hardware's own shortcut: products of 10-bit mantissas."""
    backends: Any = torch.backends
    parts = [backends.cuda.matmul, backends.cudnn.conv]
    for part in parts:
        part.fp32_precision = "tf32"
    try:
        return execute(block, inputs, device)
    finally:
        for part in parts:
            part.fp32_precision = "ieee"


@dataclass(frozen=True, kw_only=True)
class _Narrow:
    operation: Operation

    @property
    def kind(self) -> str:
        return self.operation.kind

    def __call__(self, *inputs: Tensor) -> Tensor:
        return self.operation(*(x.bfloat16() for x in inputs)).float()

    def judge(self, inputs: Any, cotangent: Tensor, how: Any) -> Any:
        return self.operation.judge(inputs, cotangent, how)
