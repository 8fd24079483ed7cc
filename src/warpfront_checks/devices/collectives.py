"""Starts one process per device, waits for all of them, and puts together what they found."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from warpfront_checks.children import DONE, Returned, each_in_a_child
from warpfront_checks.results import CheckFinding, errored, failed, passed

CHILD = "warpfront_checks.devices.worker:exchange_all"
# NCCL answers for RCCL as well; gloo on the CPU only tests this code.
BACKENDS = {"cuda": "nccl", "hpu": "hccl", "xpu": "xccl", "cpu": "gloo"}
TIME_LIMIT_SECONDS = 150.0


@dataclass(frozen=True, kw_only=True)
class Told:
    """Results of all ranks: per rank its results, or its ending without any."""

    results: tuple[Mapping[str, Mapping[str, str]], ...]
    endings: tuple[str, ...]

    def finding(self, operation: str, backend: str) -> CheckFinding:
        """Return one operation's outcome over all ranks."""
        details: dict[str, object] = {"ranks": len(self.results), "backend": backend}
        replies = [result.get(operation) for result in self.results]
        for rank, (answer, ending) in enumerate(zip(replies, self.endings, strict=True)):
            if answer is None:
                reason = f"rank {rank} left no answer: {ending or 'it ended early'}"
                return errored(reason, **details)
        faults = [f"rank {n}: {a['fault']}" for n, a in enumerate(replies) if a and a["fault"]]
        unsupported = [a["unsupported"] for a in replies if a and a["unsupported"]]
        if faults or unsupported:
            reason = faults[0] if faults else f"{backend} has no {operation}: {unsupported[0]}"
            return failed(reason, faults=faults, unsupported=unsupported, **details)
        return passed(f"{len(replies)} ranks over {backend}", **details)

    def unsupported(self, operation: str) -> str:
        """Return the message of a backend that lacks the operation, or nothing."""
        reasons = (result.get(operation, {}).get("unsupported", "") for result in self.results)
        return next(filter(None, reasons), "")


@functools.lru_cache(maxsize=8)
def exchange(device: str, world: int, fault: str = "") -> Told:
    """Let `world` processes exchange numbers, each on its own device of a type."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(world) as pool:
        common = {"world": world, "backend": BACKENDS[device], "device": device, "fault": fault}
        item = {**common, "meeting": f"{name}/meeting"}
        return together([*pool.map(lambda rank: _returned({**item, "rank": rank}), range(world))])


def together(ranks: Sequence[Returned]) -> Told:
    """Return what the ranks returned, in their order."""
    return Told(
        results=tuple(rank.document for rank in ranks),
        endings=tuple("" if r.outcome == DONE else f"{r.outcome}: {r.reason}" for r in ranks),
    )


def _returned(item: Mapping[str, Any]) -> Returned:
    # Habana's bridge reads them as it is loaded: the card of LOCAL_RANK becomes the process's own.
    rank = str(item["rank"])
    ranks = {"LOCAL_RANK": rank, "RANK": rank, "WORLD_SIZE": str(item["world"])}
    return next(each_in_a_child(CHILD, [item], seconds=TIME_LIMIT_SECONDS, environment=ranks))
