"""madengine's perf.csv, written: a row a result, its figure and its unit in two columns. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from importlib import resources

from warpfront.bench.records import Run, Summary
from warpfront.system.markdown import flat


def perf_csv(runs: Iterable[tuple[Run, Summary]]) -> str:
    """Return runs as a table that madengine's own programs read.

    The figure is the median of settled steps: tokens/s of a device where they are known, else
    seconds. Fields that no log has are empty.
    """
    head = resources.files("warpfront").joinpath("data", "logs", "madengine.csv").read_text("ascii")
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
