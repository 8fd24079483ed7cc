"""Starts one process per device, waits for all of them, and puts together what they found."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from warpfront_checks.devices.worker import OPERATIONS
from warpfront_checks.results import ERROR, CheckFinding, failed, passed

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
                return CheckFinding(outcome=ERROR, reason=reason, details=details)
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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        children = [_start(device, rank, world, folder, fault) for rank in range(world)]
        endings = _wait(children)
        return Told(
            results=tuple(_read(folder / f"{rank}.json") for rank in range(world)),
            endings=tuple(endings),
        )


def _start(device: str, rank: int, world: int, folder: Path, fault: str) -> subprocess.Popen[str]:
    options = {
        "rank": rank,
        "world": world,
        "backend": BACKENDS[device],
        "device": device,
        "meeting": folder / "meeting",
        "results": folder / f"{rank}.json",
        "fault": fault,
    }
    argv = [f"--{name}={value}" for name, value in options.items()]
    # Habana's bridge reads them as it is loaded: the card of LOCAL_RANK becomes the process's own.
    ranks = {"LOCAL_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": str(world)}
    return subprocess.Popen(
        [sys.executable, "-m", "warpfront_checks.devices.worker", *argv],
        env={**os.environ, **ranks},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def _wait(children: list[subprocess.Popen[str]]) -> list[str]:
    """Return how each ended, empty for success; all are ended when the time is up."""
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    endings = []
    for child in children:
        try:
            _, stderr = child.communicate(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            _, stderr = child.communicate()
            endings.append(f"stopped after {TIME_LIMIT_SECONDS:g} s")
            continue
        last = stderr.strip().splitlines()[-1:] or ["nothing said"]
        endings.append("" if child.returncode == 0 else f"exit {child.returncode}: {last[0][:300]}")
    return endings


def _read(path: Path) -> Mapping[str, Mapping[str, str]]:
    if not path.exists():
        return {}
    results: Mapping[str, Mapping[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return {name: results[name] for name in OPERATIONS if name in results}
