"""TensorPrimat's records, its two schemas read, and its file layout written. Pure.

    output/benchmark_{cuda,rocm}_{model}.json

The older schema has `raw_step_times`, the newer `step_times` with losses; a GB is 1e9 bytes.
`software_stack` wins over `platform`. The written names are those that its users' tools read, by
its own definition of each (a mean without the first step), but not rounded. Its cores and
`throughput_per_gpu_core` are not written: a core is no unit of speed across vendors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean
from typing import Any

from warpfront.bench.logs.facts import Fact, Format, LoggedStep, Setting
from warpfront.bench.logs.fields import amount, json_object, vendor_of
from warpfront.bench.records import MemoryKind, Run, Step

_GB = 10**9
STACKS = {"nvidia": "cuda", "amd": "rocm", "gaudi": "hpu", "cpu": "cpu"}
_PLATFORMS = {"nvidia": "nvd", "amd": "amd"}
_NAME = re.compile(r"(?:benchmark|train)(?:_[a-z]+)*?_([a-zA-Z0-9.-]+)\.json$")
_PARALLEL = {
    "tensor_model_parallel_size": "tensor",
    "pipeline_model_parallel_size": "pipeline",
    "data_parallel_size": "data",
}
_CONFIG = {
    "global_batch_size": "global_batch",
    "micro_batch_size": "micro_batch",
    "sequence_length": "sequence",
    "num_gpus": "devices",
}


class TensorprimatReader:
    """A reader of one file with one run, whose model is in the file's name."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, text: str) -> Iterable[Fact]:
        document = json_object(text)
        times = document.get("step_times", document.get("raw_step_times"))
        if not isinstance(times, list):
            return
        yield from _settings(document)
        if name := _NAME.search(self._path):
            yield Setting("model", name[1])
        losses = document.get("loss_values")
        peak = _peak(_part(document, "memory_metrics"))
        if peak:
            yield Setting("memory_kind", MemoryKind.ALLOCATED)
        for index, seconds in enumerate(map(amount, times)):
            if seconds:
                loss = losses[index] if isinstance(losses, list) and index < len(losses) else None
                yield LoggedStep(
                    Step(step=index + 1, seconds=seconds, loss=amount(loss), memory_bytes=peak)
                )


def _settings(document: Mapping[str, Any]) -> Iterator[Fact]:
    device, config = _part(document, "gpu_info"), _part(document, "training_config")
    names = (device.get("software_stack"), document.get("platform"), device.get("device_name"))
    if vendor := vendor_of(*(text for text in names if isinstance(text, str))):
        yield Setting("vendor", vendor)
    for name, key in (("device_name", "device_name"), ("torch", "pytorch_version")):
        if isinstance(value := device.get(key), str) and value:
            yield Setting(name, value)
    if (devices := amount(device.get("device_count"))) and "num_gpus" not in config:
        yield Setting("devices", int(devices))
    for key, name in _CONFIG.items():
        if count := amount(config.get(key)):
            yield Setting(name, int(count))
    for key, name in _PARALLEL.items():
        if count := amount(_part(document, "parallelism_config").get(key)):
            yield Setting(f"parallel.{name}", int(count))


def _peak(memory: Mapping[str, Any]) -> int | None:
    peak = amount(memory.get("peak_memory_allocated_gb"))
    return round(peak * _GB) if peak else None


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = document.get(name)
    return part if isinstance(part, dict) else {}


def marks(text: str) -> bool:
    document = json_object(text)
    return isinstance(document.get("step_times", document.get("raw_step_times")), list)


TENSORPRIMAT = Format(name="tensorprimat", marks=marks, reader=TensorprimatReader, is_document=True)


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
