"""Exports of TensorBoard and Weights & Biases as CSV: a row a step. Pure.

TensorBoard's file has one tag, which its name tells, and the wall clock. Weights & Biases' has a
column a run and metric (`run - train/loss`, with `__MIN` and `__MAX`), or the columns of a run's
history (`_step`, `_timestamp`, `train/loss`). Clocks give the time between two rows.
Sources: tensorflow/tensorboard tensorboard/plugins/scalar (CSV download), wandb/wandb public API.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping

from warpfront.bench.logs.facts import (
    KERNEL,
    SERVING,
    Fact,
    Format,
    LoggedStep,
    NextRun,
    Setting,
    Unused,
)
from warpfront.bench.logs.fields import scaled
from warpfront.bench.records import Step

_KERNEL_HEADS = ('"Name","Calls","TotalDurationNs"', "Time (%),Total Time (ns),Instances")
_STEPS = ("step", "_step", "train/global_step", "trainer/global_step", "global_step")
_CLOCKS = {"wall time": 1.0, "_timestamp": 1.0, "_runtime": 1.0}
_SPREAD = re.compile(r"__(?:MIN|MAX)$")
_TAG = re.compile(r"(?:^|[/-])(?:run-.{1,200}?-)?tag-(.{1,200})\.csv$")
_EVALUATED = re.compile(r"val|eval|test", re.IGNORECASE)
_METRICS = (
    ("loss", 1.0, re.compile(r"(?:^|[/_. -])loss(?:_step)?$", re.IGNORECASE)),
    ("seconds", 1e-3, re.compile(r"(?:step|iteration).?tim\w*.{0,3}\(?ms\)?$", re.IGNORECASE)),
    (
        "seconds",
        1.0,
        re.compile(r"(?:step|iteration).?tim(?:e|ing)(?: in s|.s|)$|time_per_step$", re.IGNORECASE),
    ),
    (
        "tokens_per_second_per_device",
        1.0,
        re.compile(
            r"(?:tokens|tok).?(?:/|per).?s\w*.?(?:/|per).?(?:gpu|device)|device/(?:tps|tokens_per_s)"
            r"|^tps$|/tps$",
            re.IGNORECASE,
        ),
    ),
    ("tokens_per_second", 1.0, re.compile(r"tok\w*.?(?:/|per).?s\w*$", re.IGNORECASE)),
    ("samples_per_second", 1.0, re.compile(r"samples.?(?:/|per).?s\w*$", re.IGNORECASE)),
    ("grad_norm", 1.0, re.compile(r"grad.?norm$", re.IGNORECASE)),
)


class TableReader:
    """A reader of one file, with one or several runs in sequence."""

    def __init__(self, path: str) -> None:
        tag = _TAG.search(path)
        self._tag = tag[1].replace("_", "/", 1) if tag else path.rpartition("/")[2][:-4]

    def read(self, text: str) -> Iterable[Fact]:
        try:
            rows = list(csv.DictReader(text.replace("\0", "").splitlines()))
        except csv.Error:
            return
        names = [name for name in (rows[0] if rows else ()) if isinstance(name, str)]
        place = next((name for name in names if name.lower() in _STEPS), None)
        if place is None:
            return
        runs: dict[str, dict[str, str]] = {}
        for name in names:
            run, dash, metric = name.rpartition(" - ")
            if name != place and not _SPREAD.search(name):
                runs.setdefault(run if dash else "", {})[name] = metric
        shared = runs.pop("", {}) if len(runs) > 1 else {}
        for run, columns in runs.items():
            yield NextRun()
            yield Setting("framework", "tensorboard" if "Value" in columns else "wandb")
            if run:
                yield Setting("model", run)
            yield from self._run(rows, place, {**shared, **columns})

    def _run(
        self, rows: list[dict[str, str]], place: str, columns: Mapping[str, str]
    ) -> Iterator[Fact]:
        clock = next((name for name in columns if name.lower() in _CLOCKS), None)
        fields = {
            name: field_of(self._tag if metric == "Value" else metric)
            for name, metric in columns.items()
            if name != clock
        }
        unread = [columns[name] for name, field in fields.items() if field is None]
        before: tuple[int, float] | None = None
        for line, row in enumerate(rows, 2):
            step, time = scaled(row.get(place) or ""), scaled(row.get(clock or "") or "")
            if step is None or step < 0:
                continue
            values = {
                field[0]: value * field[1]
                for name, field in fields.items()
                if field and (value := scaled(row.get(name) or "")) is not None
            }
            steps = 1
            if time is not None and before and step > before[0]:
                steps = int(step) - before[0]
                if time > before[1]:
                    values.setdefault("seconds", (time - before[1]) / steps)
            before = (int(step), time) if time is not None else before
            printed = {k: v for k, v in values.items() if v > 0 or k in {"loss", "grad_norm"}}
            if printed:
                yield LoggedStep(Step(step=int(step), steps=steps, line=line, **printed))  # type: ignore[arg-type]
            yield from (Unused(f"column {name!r}") for name in unread)


def field_of(name: str) -> tuple[str, float] | None:
    """Return the field of a metric and its scale; None for evaluations and unknown ones."""
    if _EVALUATED.search(name):
        return None
    return next((metric[:2] for metric in _METRICS if metric[2].search(name)), None)


def marks(text: str) -> bool:
    header = [name.strip().strip('"').lower() for name in text.split("\n", 1)[0].split(",")]
    return len(header) > 1 and any(name in _STEPS for name in header)


class KernelReader:
    """A profiler's summary of kernels: rocprof's `*_stats.csv`, or `nsys stats --format csv`. The
    columns are of ROCm's and NVIDIA's own tools (rocprofv3 and Nsight Systems 2022 to 2025).
    """

    def __init__(self, _path: str) -> None:
        pass

    def read(self, text: str) -> Iterable[Fact]:
        begin = next((offset for offset in map(text.find, _KERNEL_HEADS) if offset >= 0), 0)
        total = 0.0
        try:
            for row in csv.DictReader(text[begin:].replace("\0", "").splitlines()):
                name = (row.get("Name") or "").strip()[:200]
                count = scaled(row.get("Calls") or row.get("Instances") or "")
                spent = scaled(row.get("TotalDurationNs") or row.get("Total Time (ns)") or "")
                if name and count and spent and spent > 0:
                    total += spent * 1e-9
                    yield Setting(f"{SERVING}{KERNEL}{name}", spent / count * 1e-9)
        except csv.Error:
            pass
        if total:
            yield Setting("run_seconds", total)


def marks_kernels(text: str) -> bool:
    return any(head in text[:4096] for head in _KERNEL_HEADS)


TABLES = Format(name="tables", marks=marks, reader=TableReader, is_document=True)
KERNELS = Format(name="kernels", marks=marks_kernels, reader=KernelReader, is_document=True)
