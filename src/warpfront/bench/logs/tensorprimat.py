"""TensorPrimat's file layout and madengine's perf.csv, written. Pure.

    output/benchmark_{cuda,rocm}_{model}.json

The names are those that its users' tools read, by its own definition of each (a mean without the
first step), but not rounded. Its cores and `throughput_per_gpu_core` are not written: a core is no
unit of speed across vendors.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable
from statistics import fmean
from typing import Any

from warpfront.bench.records import MemoryKind, Run, Summary
from warpfront.system.packaged import packaged_text
from warpfront.system.texts import flat

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
    counted = times[1:] or times
    mean = fmean(counted) if counted else None
    tokens = run.global_batch * run.sequence if run.global_batch and run.sequence else None
    rate = tokens / mean if tokens and mean else None
    performance = {
        "total_steps": len(times),
        "total_time_seconds": sum(times),
        "avg_step_time_seconds": mean,
        "min_step_time_seconds": min(counted, default=None),
        "max_step_time_seconds": max(counted, default=None),
        "steps_per_second": 1 / mean if mean else None,
        "tokens_per_second": rate,
        "tokens_per_second_per_gpu": rate / run.devices if rate and run.devices else None,
    }
    is_allocated = run.memory_kind is MemoryKind.ALLOCATED
    sizes = [step.memory_bytes for step in run.steps if is_allocated and step.memory_bytes]
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
        "performance_metrics": performance,
        "raw_step_times": times,
        "loss_values": [step.loss for step in run.steps if step.loss is not None],
        "memory_metrics": {
            "avg_memory_allocated_gb": fmean(sizes) / _GB if sizes else None,
            "peak_memory_allocated_gb": max(sizes) / _GB if sizes else None,
        },
        "source": f"warpfront read-log, {run.source.format}",
    }
    return json.dumps(_known(document), indent=2) + "\n"


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        entries = {key: _known(entry) for key, entry in value.items() if entry is not None}
        return {key: entry for key, entry in entries.items() if entry not in ({}, [])}
    return value


def perf_csv(runs: Iterable[tuple[Run, Summary]]) -> str:
    """Return runs as a table that madengine's own programs read.

    The figure is the median of settled steps: tokens/s of a device where they are known, else
    seconds. Fields that no log has are empty.
    """
    head = packaged_text("logs", "madengine.csv")
    stream = io.StringIO()
    stream.write(head)
    columns = head.strip().split(",")
    writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
    writer.writerows(_perf_row(run, summary) for run, summary in runs)
    return stream.getvalue()


def _perf_row(run: Run, summary: Summary) -> dict[str, object]:
    rate, seconds = summary.tokens_per_second_per_device, summary.median_seconds
    figure, metric = (rate, "tokens_per_second_per_gpu") if rate else (None, "")
    if not rate and seconds:
        figure, metric = seconds.value, "step_time_seconds"
    per_node = run.devices // run.nodes if run.devices and run.nodes else None
    row = {
        "model": run.model or run.benchmark or run.source.path.rpartition("/")[2],
        "n_gpus": run.devices,
        "nnodes": run.nodes,
        "gpus_per_node": per_node,
        "training_precision": run.precision,
        "gpu_architecture": run.device_name,
        "performance": figure,
        "metric": metric,
        "status": "SUCCESS" if figure and run.succeeded is not False else "FAILURE",
    }
    return {name: "" if value is None else csv_value(value) for name, value in row.items()}


def csv_value(value: object) -> object:
    """Return a value of a log as a cell that no spreadsheet takes for a formula: text that begins
    like one gets an apostrophe (https://owasp.org/www-community/attacks/CSV_Injection).
    """
    if not isinstance(value, str):
        return value
    text = flat(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
