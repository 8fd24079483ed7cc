"""TensorPrimat's file layout, written. Pure.

    output/benchmark_{cuda,rocm}_{model}.json

The names are those that its users' tools read, by its own definition of each (a mean without the
first step), but not rounded. Its cores and `throughput_per_gpu_core` are not written: a core is no
unit of speed across vendors.
"""

from __future__ import annotations

import json
import re
from statistics import fmean
from typing import Any

from warpfront.bench.records import MemoryKind, Run

_GB = 10**9
STACKS = {"nvidia": "cuda", "amd": "rocm", "gaudi": "hpu", "cpu": "cpu"}
_PLATFORMS = {"nvidia": "nvd", "amd": "amd"}
_CONFIG = {
    "global_batch_size": "global_batch",
    "micro_batch_size": "micro_batch",
    "sequence_length": "sequence",
    "num_gpus": "devices",
}


def layout_name(run: Run) -> str:
    """Return `benchmark_rocm_llama.json`, the name that its tools look for."""
    stack = STACKS.get(run.vendor or "", "unknown")
    model = re.sub(r"[^a-zA-Z0-9.-]+", "-", run.model or "unknown").strip("-")
    return f"benchmark_{stack}_{model}.json"


def layout_text(run: Run) -> str:
    """Return a run in TensorPrimat's layout, without fields that the run does not know."""
    times = [step.seconds for step in run.steps if step.seconds is not None]
    document: dict[str, Any] = {
        "platform": _PLATFORMS.get(run.vendor or "", run.vendor),
        "gpu_info": {
            "device_count": run.devices,
            "device_name": run.device_name,
            "pytorch_version": run.torch,
            "software_stack": STACKS.get(run.vendor or ""),
        },
        "training_config": {
            "max_steps": len(times),
            **{key: getattr(run, name) for key, name in _CONFIG.items()},
        },
        "performance_metrics": _performance(run, times),
        "raw_step_times": times,
        "loss_values": [step.loss for step in run.steps if step.loss is not None],
        "memory_metrics": _memory(run),
        "source": f"warpfront read-log, {run.source.format}",
    }
    return json.dumps(_known(document), indent=2) + "\n"


def _performance(run: Run, times: list[float]) -> dict[str, Any]:
    counted = times[1:] or times
    mean = fmean(counted) if counted else None
    tokens = run.global_batch * run.sequence if run.global_batch and run.sequence else None
    rate = tokens / mean if tokens and mean else None
    return {
        "total_steps": len(times),
        "total_time_seconds": sum(times),
        "avg_step_time_seconds": mean,
        "min_step_time_seconds": min(counted, default=None),
        "max_step_time_seconds": max(counted, default=None),
        "steps_per_second": 1 / mean if mean else None,
        "tokens_per_second": rate,
        "tokens_per_second_per_gpu": rate / run.devices if rate and run.devices else None,
    }


def _memory(run: Run) -> dict[str, Any]:
    sizes = [step.memory_bytes for step in run.steps if step.memory_bytes]
    if run.memory_kind is not MemoryKind.ALLOCATED or not sizes:
        return {}
    return {
        "avg_memory_allocated_gb": fmean(sizes) / _GB,
        "peak_memory_allocated_gb": max(sizes) / _GB,
    }


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        entries = {key: _known(entry) for key, entry in value.items() if entry is not None}
        return {key: entry for key, entry in entries.items() if entry not in ({}, [])}
    return value
