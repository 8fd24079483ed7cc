"""Streams, events, pinned copies and captured graphs: results that are read when they are ready."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.cases.bounds import Verdict
from warpfront_checks.cases.special.rows import CaseContext, holds, rows, verdict_of

SIZE, ROUNDS = 1500, 40


def _slow(x: Tensor) -> Tensor:
    """Return the input after milliseconds of work: cyclic shifts by a permutation."""
    shift = torch.eye(SIZE, device=x.device, dtype=x.dtype).roll(1, 0)
    for _ in range(ROUNDS):
        x = shift @ x
    return x


def _right(x: Tensor) -> Tensor:
    return x.roll(ROUNDS, 0)


def _waits(ground: CaseContext) -> Iterator[Verdict]:
    x = ground.whole(SIZE, SIZE)
    on_device = ground.send(x)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        result = _slow(on_device)
        event = side.record_event()
    torch.cuda.current_stream().wait_event(event)
    yield verdict_of("event", result + 1, _right(x) + 1)
    result.record_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        again = _slow(on_device)
    torch.cuda.current_stream().wait_stream(side)
    yield verdict_of("stream", again * 2, _right(x) * 2)
    yield verdict_of("item", torch.tensor(_slow(on_device)[ROUNDS, 0].item()), float(x[0, 0]))
    default = _slow(on_device).cpu()
    yield verdict_of("copy to the CPU", default, _right(x))


def _pinned(ground: CaseContext) -> Iterator[Verdict]:
    x = ground.whole(SIZE, SIZE)
    pinned = x.float().pin_memory()
    back = torch.empty(SIZE, SIZE).pin_memory()
    on_device = pinned.to(ground.device, non_blocking=True)
    result = _slow(on_device)
    back.copy_(result, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    yield verdict_of("there and back", back, _right(x))
    # Memory freed and reused during an asynchronous copy must not change the copy.
    copies = []
    for step in range(8):
        part = (on_device + step).to("cpu", non_blocking=True)
        copies.append(part)
        del part
    torch.cuda.synchronize()
    for step, copy in enumerate(copies):
        yield verdict_of(f"copy {step}", copy, x + step)


def _reused(ground: CaseContext) -> Iterator[Verdict]:
    """Check that memory is not reused while a side stream still reads it."""
    x = ground.whole(SIZE, SIZE)
    side = torch.cuda.Stream()
    results = []
    for step in range(6):
        source = ground.send(x + step)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            results.append(_slow(source))
        source.record_stream(side)
        del source
        torch.full((SIZE, SIZE), 99.0, device=ground.device)
    torch.cuda.current_stream().wait_stream(side)
    for step, actual in enumerate(results):
        yield verdict_of(f"step {step}", actual, _right(x + step))


def _graphs(ground: CaseContext) -> Iterator[Verdict]:
    """Check that a captured graph reads its current inputs, and draws anew each time."""
    x, weight = ground.send(ground.whole(65, 33)), ground.send(ground.whole(17, 33))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            functional.linear(x, weight).relu().cumsum(0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = functional.linear(x, weight).relu().cumsum(0)
        mask = functional.dropout(torch.ones(100_000, device=x.device), 0.5)
        numbers = torch.rand(100_000, device=x.device)
    outputs, masks = [], []
    for step in range(4):
        now = ground.whole(65, 33) + step
        x.copy_(ground.send(now))
        graph.replay()
        expected = (now @ weight.cpu().double().mT).relu().cumsum(0)
        yield verdict_of(f"replay {step}", y, expected)
        outputs.append(numbers.clone())
        masks.append(mask.clone() != 0)
    for step in range(3):
        alike = (outputs[step] == outputs[step + 1]).float().mean() < 0.01
        yield holds(f"numbers of replay {step}", alike)
        shared = (masks[step] == masks[step + 1]).float().mean()
        yield verdict_of(f"masks of replay {step}", shared.cpu().double(), 0.5, slack=0.01)


STREAMS = rows(
    {"waits": _waits, "pinned copies": _pinned, "reused memory": _reused, "graphs": _graphs},
    devices=("cuda", "rocm"),
)
