"""A process group whose ranks are threads: `torch.distributed` as the workers use it, exchanging
real tensors in one process, so that every fault of a collective is seeded in seconds.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernels.seeding.collectives import FAULTS

from warpfront_checks.children import DONE, Returned
from warpfront_checks.devices import device_session
from warpfront_checks.devices.device_session import Told


class Threads:
    """Every rank lays down what it sends, waits for the others, and takes what is its own."""

    ReduceOp = SimpleNamespace(SUM="sum", MAX="max")
    isend, irecv = "isend", "irecv"

    def __init__(self, world: int) -> None:
        self._world, self._own = world, threading.local()
        self._table: list[Any] = [None] * world
        self._barrier = threading.Barrier(world, timeout=60)

    def init_process_group(self, backend: str, *, rank: int, world_size: int, **_: Any) -> None:
        assert (backend, world_size) == ("gloo", self._world)
        self._own.rank = rank

    def destroy_process_group(self) -> None:
        self._barrier.wait()

    def all_reduce(self, x: Any, kind: str) -> None:
        sent = torch.stack(self._exchanged(x))
        x.copy_(sent.amax(0) if kind == "max" else sent.sum(0))

    def broadcast(self, x: Any, source: int) -> None:
        x.copy_(self._exchanged(x)[source])

    def all_gather(self, parts: list[Any], x: Any) -> None:
        for part, sent in zip(parts, self._exchanged(x), strict=True):
            part.copy_(sent)

    def reduce_scatter(self, x: Any, parts: list[Any]) -> None:
        x.copy_(torch.stack([sent[self._own.rank] for sent in self._exchanged(*parts)]).sum(0))

    def all_to_all_single(self, got: Any, sent: Any) -> None:
        got.copy_(torch.stack([rows[self._own.rank] for rows in self._exchanged(*sent)]))

    def P2POp(self, kind: str, x: Any, peer: int) -> tuple[str, Any, int]:  # noqa: N802 - torch's name
        return kind, x, peer

    def batch_isend_irecv(self, pair: list[tuple[str, Any, int]]) -> list[Any]:
        (_, sent, _), (_, got, behind) = pair
        got.copy_(self._exchanged(sent)[behind])
        return []

    def _exchanged(self, *tensors: Any) -> list[Any]:
        self._table[self._own.rank] = [tensor.clone() for tensor in tensors]
        self._barrier.wait()
        found = list(self._table)
        self._barrier.wait()
        return [one[0] if len(tensors) == 1 else one for one in found]


def exchange_in_threads(folder: Path, world: int = 2, fault: str = "") -> Told:
    """As `device_session.exchange`, with the workers' own function in threads."""

    def rank(number: int) -> Returned:
        item = {"rank": number, "world": world, "backend": "gloo", "device": "cpu", "fault": fault}
        results = device_session.exchange_all({**item, "meeting": str(folder / "meeting")})
        return Returned(item=item, place=0, outcome=DONE, seconds=0.0, document=results)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(world) as pool:
        patch.setattr(device_session, "distributed", Threads(world))
        patch.setattr(device_session, "_seeded", lambda fault: FAULTS[fault][0])
        return Told([*pool.map(rank, range(world))])
