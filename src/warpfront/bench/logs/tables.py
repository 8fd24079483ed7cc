"""Exports of TensorBoard and Weights & Biases as CSV: a row a step. Pure.

TensorBoard's file has one tag, which its name tells, and the wall clock. Weights & Biases' has a
column a run and metric (`run - train/loss`, with `__MIN` and `__MAX`), or the columns of a run's
history (`_step`, `_timestamp`, `train/loss`). Clocks give the time between two rows. The columns'
meanings are in `data/logs/tables.toml`; a row is read as a line is.
"""

from __future__ import annotations

import csv
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping

from warpfront.bench.logs.declared import DeclaredReader, LineRule, read_declaration
from warpfront.bench.logs.facts import (
    KERNEL,
    SERVING,
    Fact,
    Format,
    LoggedStep,
    NextRun,
    Setting,
)
from warpfront.bench.logs.fields import scaled

_KERNEL_HEADS = ('"Name","Calls","TotalDurationNs"', "Time (%),Total Time (ns),Instances")
_STEPS = ("step", "_step", "train/global_step", "trainer/global_step", "global_step")
_CLOCKS = ("wall time", "_timestamp", "_runtime")
_SPREAD = re.compile(r"__(?:MIN|MAX)$")
_TAG = re.compile(r"(?:^|[/-])(?:run-.{1,200}?-)?tag-(.{1,200})\.csv$")


class TableReader:
    """A reader of one file, with one or several runs in sequence."""

    def __init__(self, path: str) -> None:
        tag = _TAG.search(path)
        self._tag = tag[1].replace("_", "/", 1) if tag else path.rpartition("/")[2][:-4]

    def read(self, text: str) -> Iterable[Fact]:
        rows = _rows(text)
        names = [name for name in (rows[0] if rows else ()) if name]
        place = next((name for name in names if name.lower() in _STEPS), None)
        if place is None:
            return
        runs: dict[str, dict[str, str]] = {}
        for name in names:
            run, dash, metric = name.rpartition(" - ")
            if name.lower() not in _STEPS and not _SPREAD.search(name):
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
        reader = DeclaredReader(read_declaration("tables"))
        fields = {
            name: self._tag if metric == "Value" else metric for name, metric in columns.items()
        }
        clock = next((name for name in columns if name.lower() in _CLOCKS), None)
        if clock is not None:
            fields[clock] = "elapsed"
        fields[place] = "step"
        for line, row in enumerate(rows, 2):
            if scaled(row.get(place) or "") is None:
                continue
            named = {field: row.get(name) or "" for name, field in fields.items()}
            for fact in reader.line(LineRule(block=True), named, ""):
                if isinstance(fact, LoggedStep):
                    yield LoggedStep(dataclasses.replace(fact.step, line=line))
                else:
                    yield fact


def _rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a table by its first line; none of one that is no CSV."""
    try:
        return list(csv.DictReader(text.replace("\0", "").splitlines()))
    except csv.Error:
        return []


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
        for row in _rows(text[begin:]):
            name = (row.get("Name") or "").strip()[:200]
            count = scaled(row.get("Calls") or row.get("Instances") or "")
            spent = scaled(row.get("TotalDurationNs") or row.get("Total Time (ns)") or "")
            if name and count and spent and spent > 0:
                total += spent * 1e-9
                yield Setting(f"{SERVING}{KERNEL}{name}", spent / count * 1e-9)
        if total:
            yield Setting("run_seconds", total)


def marks_kernels(text: str) -> bool:
    return any(head in text[:4096] for head in _KERNEL_HEADS)


TABLES = Format(name="tables", marks=marks, reader=TableReader, is_document=True)
KERNELS = Format(name="kernels", marks=marks_kernels, reader=KernelReader, is_document=True)
