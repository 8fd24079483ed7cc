"""Exports of TensorBoard and Weights & Biases, and TensorBoard's own files."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_logs import SOURCE, read, read_one

from warpfront.bench.compare import ComparisonTerms, compare_runs
from warpfront.bench.forms import run_text
from warpfront.bench.logs import FORMATS
from warpfront.bench.logs.assembling import Reading
from warpfront.bench.logs.declared import read_declaration
from warpfront.bench.records import ComparisonOutcome
from warpfront.bench.settling import summary_of
from warpfront.cli.display import Display
from warpfront.commands import measurements
from warpfront.errors import InputError

BOARD = "Wall time,Step,Value\n" + "".join(
    f"{1.7e9 + 20 * n},{10 * n},{5 - n / 10}\n" for n in range(1, 16)
)
WANDB = '"Step","one - train/loss","one - train/loss__MIN","two - train/loss"\n' + "".join(
    f'"{10 * n}","{5 - n / 10}","0","{6 - n / 10}"\n' for n in range(1, 16)
)
HISTORY = "_step,_runtime,train/loss,eval/loss,perf/tokens_per_sec_per_gpu\n" + "".join(
    f"{n},{3 * n},{5 - n / 10},9,1500\n" for n in range(1, 16)
)


def test_tensorboards_export_has_the_tag_in_its_name_and_the_wall_clock() -> None:
    run = read_one(BOARD, path="run-exp_1-tag-train_loss.csv")
    summary = summary_of(run)
    assert summary.median_seconds is not None
    assert (summary.median_seconds.value, summary.last_loss) == (2.0, 3.5)
    assert (run.framework, sum(step.steps for step in run.steps)) == ("tensorboard", 150)


def test_every_run_of_an_export_of_wandb_is_a_run_and_the_spread_is_left() -> None:
    one, two = read(WANDB)
    assert [run.model for run in (one, two)] == ["one", "two"]
    assert [run.steps[-1].loss for run in (one, two)] == [3.5, 4.5]


def test_a_history_of_wandb_has_a_clock_and_names_what_is_not_read() -> None:
    run = read_one(HISTORY)
    summary = summary_of(run)
    assert summary.median_seconds is not None
    assert (summary.median_seconds.value, summary.tokens_per_second_per_device) == (3.0, 1500.0)
    assert "not read: field 'eval/loss', 15 times" in [one.message for one in run.findings]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("train/loss", "loss"),
        ("reduced_train_loss", "loss"),
        ("val/loss", None),
        ("train_step_timing in s", "seconds"),
        ("iteration-time", "seconds"),
        ("throughput/device/TPS", "tokens_per_second_per_device"),
        ("perf/tokens_per_second", "tokens_per_second"),
        ("learning_rate", None),
    ],
)
def test_a_metric_is_known_by_its_name(name: str, field: str | None) -> None:
    found = read_declaration("tables").target(name)
    assert (found.field if found else None) == field


@given(text=st.text(max_size=300))
def test_no_table_raises(text: str) -> None:
    for head in ("", "Wall time,Step,Value\n", "_step,a - loss\n"):
        reading = Reading(FORMATS["tables"], "run-a-tag-loss.csv")
        reading.feed(1, head + text)
        for run in reading.runs(SOURCE, {}):
            summary_of(run)


def test_event_files_are_read_by_tensorboards_own_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(b"\x18\x00")
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(InputError, match="need its reader"):
        measurements.read_all(str(path), Display())

    class EventAccumulator:
        def __init__(self, _path: str, size_guidance: dict[str, int]) -> None:
            assert size_guidance == {"scalars": 0}

        def Reload(self) -> None:  # noqa: N802 - TensorBoard's name
            pass

        def Tags(self) -> dict[str, list[str]]:  # noqa: N802 - TensorBoard's name
            return {"scalars": ["train/loss"]}

        def Scalars(self, _tag: str) -> list[SimpleNamespace]:  # noqa: N802 - TensorBoard's name
            return [SimpleNamespace(step=n, wall_time=2.0 * n, value=5.0 / n) for n in range(1, 16)]

    name = "tensorboard.backend.event_processing.event_accumulator"
    module = ModuleType(name)
    module.EventAccumulator = EventAccumulator  # type: ignore[attr-defined]
    parts = name.split(".")
    for at in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:at]), ModuleType(parts[at - 1]))
    monkeypatch.setitem(sys.modules, name, module)
    (run,) = measurements.read_all(str(path), Display())
    assert [step.seconds for step in run.steps][1:] == [2.0] * 14


ROCPROF = (
    '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
    '"Cijk_Ailk_Bljk",100,5000000,50000.0,83.3,1,2,3\n'
    '"void elementwise<4, float>",50,1000000,20000.0,16.7,1,2,3\n'
)
NSYS = (
    "Processing [a.sqlite]...\n"
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    '83.3,4000000,100,40000.0,1,1,2,3,"Cijk_Ailk_Bljk"\n'
)


@pytest.mark.parametrize(("text", "first"), [(ROCPROF, 5e-5), (NSYS, 4e-5)])
def test_a_profilers_summary_is_a_table_of_kernels(tmp_path: Path, text: str, first: float) -> None:
    path = tmp_path / "kernel_stats.csv"
    path.write_text(text)
    (run,) = measurements.read_all(str(path), Display())
    assert run.source.format == "kernels"
    assert run.serving["kernel Cijk_Ailk_Bljk"] == pytest.approx(first)
    assert "kernel Cijk_Ailk_Bljk" in run_text(run, summary_of(run))


def test_kernels_that_both_profiles_have_are_compared_and_one_run_determines_nothing() -> None:
    one, other = read_one(ROCPROF), read_one(NSYS)
    found = compare_runs(("a", [one]), ("b", [other]), ComparisonTerms())
    (case,) = found.cases
    assert case.id == "kernel Cijk_Ailk_Bljk"
    assert case.ratio.value == pytest.approx(0.8)
    assert found.verdict is ComparisonOutcome.UNDETERMINED


STATS = '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n'


def test_a_kernels_name_without_quotes_may_have_commas() -> None:
    """rocprof of ROCm 4 and 5 wrote names as they are."""
    rows = "void fill<int, 4>(int*, float),2,160960,80480,9.7\nUnknown command type,4,0,0,0.0\n"
    run = read_one(STATS + rows)
    assert run.serving == {"kernel void fill<int, 4>(int*, float)": pytest.approx(80_480e-9)}
    assert [one.message for one in run.findings] == [
        "not read: rows of kernels without a time, 1 time"
    ]


def test_kernels_with_one_long_beginning_stay_apart_and_rows_of_one_kernel_are_one() -> None:
    long = "k" * 300
    rows = f'"{long}a",1,1000,1000,1\n"{long}b",1,3000,3000,1\n"c",1,5000,5000,1\n"c",3,3000,1,1\n'
    run = read_one(STATS + rows)
    assert sorted(run.serving.values()) == pytest.approx([1e-6, 2e-6, 3e-6])
    assert run.run_seconds == pytest.approx(12e-6)


def test_rows_that_differ_in_their_figures_alone_are_one_run() -> None:
    head = "model,benchmark,tp,num_prompts,max_concurrency,performance,metric,unit\n"
    rows = "".join(
        f"kimi,serving,8,10,{users},{value},{name},{unit}\n"
        for users in (1, 2)
        for name, value, unit in (
            ("throughput_gen", 8.5, "tok/sec"),
            ("median_ttft", 528.9, "ms"),
            ("gsm8k", 0.9, "percent"),
        )
    )
    one, two = read(head + rows)
    assert (one.serving["output_throughput"], one.concurrency, two.concurrency) == (8.5, 1, 2)
    assert one.serving["ttft_median"] == pytest.approx(0.5289)
    assert (one.model, one.parallel.tensor) == ("kimi", 8)
    assert "no figure that is known: '0.9' 'gsm8k percent'" in [f.message for f in one.findings]


@pytest.mark.parametrize(
    ("metric", "field"),
    [
        ("tokens/s/gpu", "tokens_per_second_per_device"),
        ("tokens_per_second_per_gpu", "tokens_per_second_per_device"),
        ("tps", "tokens_per_second_per_device"),
        ("tokens/sec", "tokens_per_second"),
        ("samples_per_sec", "samples_per_second"),
        ("step_time_ms", "seconds"),
        ("bytes", None),
    ],
)
def test_the_unit_of_a_result_is_known_by_its_name(metric: str, field: str | None) -> None:
    target = read_declaration("madengine").target(metric)
    assert (target.field if target else None) == field
