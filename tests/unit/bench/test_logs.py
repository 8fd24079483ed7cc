"""What others' logs say, with the traps that real ones hold: fact by fact, each in a few lines."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import pytest
from training_logs import (
    BATCH,
    PERF_CSV,
    SEQUENCE,
    SOURCE,
    TITAN_SETTINGS,
    amd_mllog,
    format_of,
    megatron_line,
    mllog_line,
    nemo_bar,
    nemo_line,
    nvidia_mllog,
    primus_line,
    primus_log,
    read,
    read_one,
    tensorprimat,
    titan_line,
)

from warpfront.bench.logs.assembling import completed, solved_fact
from warpfront.bench.logs.fields import number, positive, size_bytes, vendor_of
from warpfront.bench.logs.tensorprimat import csv_value, perf_csv
from warpfront.bench.records import MemoryKind, Parallel, Run, Step
from warpfront.bench.settling import summary_of

GIB = 2**30


def seconds_of(run: Run) -> list[float]:
    return [round(step.seconds or 0, 6) for step in run.steps]


def messages(run: Run) -> str:
    return "\n".join(finding.message for finding in run.findings)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (primus_log([1.0]), "primus"),
        (megatron_line(1, 5.0), "megatron"),
        (nemo_line(1, 5.0), "nemo"),
        (titan_line(10, "9,982"), "torchtitan"),
        (amd_mllog(600.0), "mllog"),
        (tensorprimat([1.0]), "tensorprimat"),
        (PERF_CSV, "madengine"),
        ("epoch 1: loss 3, 20 tokens, step 4\n", None),
        ("", None),
    ],
)
def test_the_format_is_told_by_lines_that_only_it_has(text: str, name: str | None) -> None:
    assert format_of(text) == name


def test_primus_prints_each_step_twice_and_it_counts_once() -> None:
    run = read_one(primus_log([32.0574] * 20))
    assert [step.step for step in run.steps] == list(range(1, 21))
    assert "20 of 40 lines repeat a step" in messages(run)
    assert run.vendor == "amd"
    assert run.devices == 8


def test_the_running_mean_behind_the_slash_is_not_read() -> None:
    (step,) = read_one(primus_log([32.0])).steps
    assert step.seconds == pytest.approx(32.0)
    assert step.flop_per_second_per_device == pytest.approx(239.5e12)


def test_a_sequence_that_no_line_says_is_solved_from_the_tokens_per_second() -> None:
    run = read_one(primus_log([32.0531] * 3))
    assert (run.sequence, run.solved) == (SEQUENCE, ("sequence",))
    said = read_one("  seq_length ............ 2048\n" + primus_log([32.0531] * 3))
    assert (said.sequence, said.solved, solved_fact(said, "sequence")) == (2048, (), SEQUENCE)
    assert "fit a sequence of 4096, and it says 2048" in messages(said)


def test_a_batch_that_no_line_says_is_solved_from_its_factors_and_a_time_from_it() -> None:
    run = Run(
        source=SOURCE,
        micro_batch=2,
        accumulation=4,
        devices=8,
        steps=(Step(step=1, samples_per_second=32.0),),
    )
    full = completed(run, {})
    assert (full.global_batch, full.solved) == (64, ("global_batch",))
    assert full.steps[0].seconds == pytest.approx(2.0)


def test_what_primus_calls_a_gb_is_a_gib() -> None:
    run = read_one(primus_log([1.0]))
    assert run.steps[0].memory_bytes == 2 * GIB
    assert run.memory_kind is MemoryKind.DEVICE


def test_primus_tables_of_settings_are_read() -> None:
    table = "".join(
        f"[20260511 02:57:53][rank-0/8][INFO]     [--module_utils.py:227] :   {name:<30}: {value}\n"
        for name, value in {
            "bf16": "True (bool)",
            "fp8": "e4m3 (str)",
            "fp16": "False (bool)",
            "micro_batch_size": "14 (int)",
            "model": "deepseek_v2_lite.yaml (str)",
            "expert_model_parallel_size": "8 (int)",
            "padded_vocab_size": "None (NoneType)",
        }.items()
    )
    total = "[20260511 02:59:23][rank-0/8][DEBUG] : Total number of parameters in billions: 15.82\n"
    run = read_one(table + total + primus_log([1.0]))
    assert (run.precision, run.micro_batch, run.model) == ("fp8", 14, "deepseek_v2_lite")
    assert (run.parallel, run.parameters) == (Parallel(expert=8), 15_820_000_000)
    assert run.vocabulary is None
    assert set(run.missing) == {"device_name", "nodes"}


def test_megatrons_arguments_and_its_optional_fields_in_the_middle_are_read() -> None:
    text = (
        "  bf16 ............................ True\n  world_size ..................... 16\n"
        + megatron_line(1, 3075.7, extra={"energy per GPU (J/iter/GPU)": 1992.5,
                                      "power per GPU (W/GPU)": 647.8, "new field: odd": "x"})
        + "\n"
    )  # fmt: skip
    run = read_one(text)
    assert (run.precision, run.devices, run.global_batch) == ("bfloat16", 16, BATCH)
    (step,) = run.steps
    assert step.seconds == pytest.approx(3.0757)
    assert step.power_watts == 647.8
    assert run.vendor is None


def test_the_newer_names_of_rates_are_read_too() -> None:
    more = {
        "compute per GPU (TFLOP/s/GPU)": "615.5 (avg 615.0)",
        "tokens/s/GPU inst/harmonic mean": "11941.8/11000.0",
    }
    (step,) = read_one(megatron_line(1, 100.0, extra=more) + "\n").steps
    assert step.flop_per_second_per_device == pytest.approx(615.5e12)
    assert step.tokens_per_second_per_device == pytest.approx(11941.8)


def test_two_ranks_text_on_one_line_are_two_lines() -> None:
    run = read_one(megatron_line(1, 100.0) + megatron_line(2, 200.0) + "\n")
    assert seconds_of(run) == [0.1, 0.2]


def test_lines_every_ten_steps_are_means_of_ten() -> None:
    text = "".join(f"{megatron_line(step, 100.0)}\n" for step in range(10, 60, 10))
    assert {step.steps for step in read_one(text).steps} == {10}


def test_a_loss_that_is_no_number_is_said_and_is_no_loss() -> None:
    (step,) = read_one(megatron_line(1, 100.0, lm_loss="nan") + "\n").steps
    assert (step.loss, step.nan) == (None, 1)


def test_nemo_counts_bytes_and_prints_four_digits() -> None:
    text = nemo_line(45, "6.08", TFLOPS_per_GPU="1.249e+03", consumed_samples=5888) + "\n"
    run = read_one(text)
    (step,) = run.steps
    assert (step.step, step.seconds, step.samples) == (45, 6.08, 5888)
    assert step.flop_per_second_per_device == pytest.approx(1249e12)
    assert (step.memory_bytes, run.memory_kind) == (127785762816, MemoryKind.RESERVED)
    assert (run.global_batch, run.sequence) == (128, None)
    assert {"sequence", "precision", "devices", "model"} <= set(run.missing)


def test_older_and_others_names_of_the_same_figures_are_read() -> None:
    deepspeed = (
        "[default7]: iteration    94768/  115311 | consumed samples:    177927088 | elapsed time "
        "per iteration (s): 215.82 | global batch size:  2048 | lm loss: 1.9E+00 | samples per "
        "second: 9.490 | TFLOPs: 145.31 |\n"
    )
    (step,) = read_one(deepspeed).steps
    assert (step.seconds, step.samples_per_second) == (215.82, 9.49)
    assert step.flop_per_second_per_device == pytest.approx(145.31e12)

    blanks = " iteration  100/ 1000 | elapsed time per iteration (ms): 430.0 | lm loss 6.5E+00 |\n"
    assert read_one(blanks).steps[0].loss == 6.5
    tokens = blanks[:-1] + " Tokens per second per GPU (Tok/s/GPU): 1,234.5 |\n"
    assert read_one(tokens).steps[0].tokens_per_second_per_device == 1234.5

    titan = "[rank0]:2024-12-13 17:29:23,398 - root - INFO - step: {}  loss:  1.7  wps: 48,655  \n"
    for count in ("30", "30/644 = 4.6584%"):
        (step,) = read_one(titan.format(count)).steps
        assert (step.step, step.tokens_per_second_per_device) == (30, 48655)


def test_nemos_bar_counts_one_ahead_and_loses_digits_of_large_steps() -> None:
    text = "".join(f"{nemo_bar(step, 3.1 + step / 100)}\n" for step in (5, 5, 6))
    first, second = read_one(text).steps
    assert (first.step, first.seconds, first.samples) == (5, 3.15, 640)
    assert (second.step, second.seconds) == (6, 3.16)

    lost = {"global_step": "1.23e+5", "consumed_samples": "1.6e+7"}
    (step,) = read_one(nemo_bar(12, "2.59", epoch=3, **lost) + "][rank: 1] Monitored\n").steps
    assert (step.step, step.samples) == (312, None)
    (step,) = read_one(nemo_bar(1, "3.37").replace("2/100", "2it") + "\n").steps
    assert step.step == 1


@pytest.mark.parametrize("prefix", ["0: ", "[default0]:", "pretraining/0 [default0]:"])
def test_prefixes_of_launchers_do_not_hide_a_line(prefix: str) -> None:
    assert seconds_of(read_one(nemo_line(3, "2.5", prefix=prefix) + "\n")) == [2.5]


def test_torchtitans_lines_are_means_since_the_line_before() -> None:
    lines = "\n".join(titan_line(step, "9,982") for step in (1, 10, 20, 30))
    run = read_one(f"{TITAN_SETTINGS}{lines}\n")
    assert [(step.step, step.steps) for step in run.steps] == [(1, 1), (10, 9), (20, 10), (30, 10)]
    assert run.steps[0].tokens_per_second_per_device == 9982
    assert run.steps[0].seconds == pytest.approx(1280 * 128 / (9982 * 8))
    assert (run.device_name, run.vendor, run.devices) == ("NVIDIA B200", "nvidia", 8)
    assert (run.model, run.parameters) == ("qwen3 14B", 14_768_307_200)
    assert (run.parallel.data, run.precision) == (8, None)
    assert run.steps[0].memory_bytes == round(168.57 * GIB)


@pytest.mark.parametrize(
    ("said", "precision"),
    [
        (
            "+ torchrun -m torchtitan.train --training.dtype=bfloat16 --training.steps=10",
            "bfloat16",
        ),
        ("[titan] - INFO - Swapped to Float8Linear layers", "fp8"),
    ],
)
def test_torchtitans_number_format_is_read_where_a_line_says_it(said: str, precision: str) -> None:
    assert read_one(f"{said}\n{titan_line(10, '9,982')}\n").precision == precision


def test_one_key_of_mllog_has_two_meanings() -> None:
    amd, nvidia = read_one(amd_mllog(600.0, rate=5.9)), read_one(nvidia_mllog(500.0))
    assert [step.step for step in amd.steps] == [48, 96, 144, 192, 240, 288]
    assert {step.steps for step in amd.steps} == {48}
    assert seconds_of(amd) == [round(8 / 5.9, 6)] * 6
    assert [step.step for step in nvidia.steps] == list(range(10, 201, 10))
    assert {round(step.seconds or 0, 3) for step in nvidia.steps} == {1.03}
    assert (amd.run_seconds, nvidia.run_seconds) == (600.0, 500.0)
    assert (amd.vendor, nvidia.vendor) == ("amd", "nvidia")


def test_a_platform_is_nodes_not_devices() -> None:
    run = read_one(nvidia_mllog(500.0))
    assert (run.nodes, run.device_name, run.devices) == (2, "NVIDIA GB200", None)
    text = amd_mllog(600.0, org="Dell").replace("1xMI355X", "1xXE9680Lx8B200-SXM-180GB")
    run = read_one(text)
    assert (run.nodes, run.devices, run.device_name) == (1, 8, "B200-SXM-180GB")
    assert run.vendor == "nvidia"


@pytest.mark.parametrize(
    ("platform", "name", "devices"),
    [
        ("1xSR680aV3-8xB200_SXM_180GB", "B200_SXM_180GB", 8),
        ("1xG893-ZX1-AAX4_MI355X", "MI355X", None),
        ("1xXE7745x8RTXPro6000-PCIe-96GB", "RTXPro6000-PCIe-96GB", 8),
        ("4xSUBMISSION_PLATFORM_PLACEHOLDER", None, None),
        ("1xAS-A126GS-TNBR", None, None),
        ("1xESC-NB8-E11", None, None),
        ("1xD74H-7U", None, None),
    ],
)
def test_a_server_is_no_device(platform: str, name: str | None, devices: int | None) -> None:
    run = read_one(amd_mllog(600.0).replace("1xMI355X", platform))
    assert (run.device_name, run.devices) == (name, devices)
    assert run.nodes == int(platform[0])
    assert ("device_name" in run.missing) == (name is None)


def test_nvidias_step_times_are_read_and_its_block_times_are_not() -> None:
    stats = {"train_step_time": 0.386, "reduced_train_loss": 8.17}
    line = mllog_line("tracked_stats", stats, at=5.0, step=31.0, samples_count=512.0)
    (step,) = read_one(f"{mllog_line('global_batch_size', 16)}\n{line}\n").steps
    assert (step.step, step.steps, step.seconds, step.loss) == (32, 32, 0.386, 8.17)


def test_a_run_that_missed_its_target_says_so() -> None:
    run = read_one(amd_mllog(600.0).replace('"success"', '"aborted"'))
    assert run.succeeded is False
    assert "did not reach its target" in messages(run)


def test_a_clock_that_goes_back_gives_no_time() -> None:
    run = read_one(amd_mllog(-5.0))
    assert run.run_seconds is None
    assert "clock goes back" in messages(run)
    text = nvidia_mllog(500.0).replace('"time_ms": 120600', '"time_ms": 100')
    assert [step.step for step in read_one(text).steps][:2] == [10, 30]


def test_tensorprimats_two_schemas_are_read() -> None:
    old = read_one(tensorprimat([9.7, 9.8]), path="output/benchmark_rocm_llama.json")
    new = read_one(tensorprimat([9.7, 9.8], [3.0, 2.0]), path="train_nvd_nemo_qwen.json")
    assert (old.model, new.model) == ("llama", "qwen")
    assert (seconds_of(old), [step.loss for step in new.steps]) == ([9.7, 9.8], [3.0, 2.0])
    assert old.steps[0].memory_bytes == 117_990_000_000
    assert (old.torch, old.devices, old.sequence) == (None, 8, 2048)
    assert old.steps[0].tokens_per_second_per_device == pytest.approx(64 * 2048 / 9.7 / 8)


@pytest.mark.parametrize(
    ("stack", "vendor"), [("rocm", "amd"), ("cuda", "nvidia"), ("nemo", "nvidia"), ("hpu", "gaudi")]
)
def test_the_software_stack_wins_over_the_platform(stack: str, vendor: str) -> None:
    assert read_one(tensorprimat([1.0], software_stack=stack)).vendor == vendor


def test_every_row_of_a_perf_csv_is_a_run_and_the_others_are_findings() -> None:
    first, second = read(PERF_CSV)
    assert [run.steps[0].tokens_per_second_per_device for run in (first, second)] == [6750, 6800]
    assert (first.vendor, first.precision, first.devices) == ("amd", "bfloat16", 8)
    assert "status FAILURE" in messages(second)
    assert "furlongs" in messages(second)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9,982", 9982.0),
        ("1.249e+03", 1249.0),
        ("32066.9/32789.1", 32066.9),
        ("615.5 (avg 615.0)", 615.5),
        ("1e999", None),
        ("nan", None),
        ("-inf", None),
        ("", None),
        (".", None),
        ("9" * 5000, 1e25),
        ("1,2", 1.2),
        ("87,9", 87.9),
        ("1,2,3", 1.0),
    ],
)
def test_a_number_is_what_a_text_begins_with(text: str, value: float | None) -> None:
    assert number(text) == (pytest.approx(value) if value is not None else None)


def test_what_is_no_time_and_no_size_is_none() -> None:
    assert [positive(text) for text in ("-5", "0", "0.0", "x")] == [None] * 4
    sizes = [size_bytes(text) for text in ("9e9", "1e999GB", "1iB", "2KiB", "2kb")]
    assert sizes == [None, None, None, 2048, 2048]


@pytest.mark.parametrize(
    ("vendor", "names"),
    [
        ("amd", ("AMD Instinct MI300X", "MI355X", "rocm", "Radeon", "mi250x")),
        ("nvidia", ("NVIDIA GB200", "H100", "A100", "nvd", "cuda", "nemo")),
        ("gaudi", ("Gaudi3", "hpu")),
        (None, ("Dell", "", "summit")),
    ],
)
def test_a_vendor_is_known_by_any_of_its_names(vendor: str | None, names: tuple[str, ...]) -> None:
    assert {vendor_of(name) for name in names} == {vendor}


def test_what_options_say_is_marked_as_given() -> None:
    run = read_one(nemo_line(45, "6.08") + "\n", sequence=8192, devices=8)
    assert (run.given, run.sequence) == (("devices", "sequence"), 8192)
    assert run.steps[0].tokens_per_second_per_device == pytest.approx(128 * 8192 / 6.08 / 8)


def test_no_terminal_is_told_what_a_log_wants_it_to_do() -> None:
    evil = json.loads(tensorprimat([1.0]))
    evil["gpu_info"]["device_name"] = "H100\x1b]0;owned\x07\x9b31m\u202e" + "x" * 5000
    run = read_one(json.dumps(evil))
    assert run.device_name is not None
    assert run.device_name.isprintable()
    assert len(run.device_name) <= 200
    assert summary_of(read_one(primus_line(1, 5.0) + "\n")).settled_steps == 0


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ('=HYPERLINK("http://example.org")', '\'=HYPERLINK("http://example.org")'),
        ("\t@SUM(A1)\r\nb", "'@SUM(A1) b"),
        ("-2+3", "'-2+3"),
        ("+1", "'+1"),
        ("meta-llama/Llama-3", "meta-llama/Llama-3"),
        (7, 7),
    ],
)
def test_a_value_of_a_log_is_no_formula(text: object, cell: object) -> None:
    assert csv_value(text) == cell


def test_a_perf_csv_holds_no_formula() -> None:
    run, *_ = read(PERF_CSV)
    evil = dataclasses.replace(run, model="=1+1", precision="@x", device_name="\r+2")
    (row,) = csv.DictReader(io.StringIO(perf_csv([(evil, summary_of(evil))])))
    assert (row["model"], row["training_precision"]) == ("'=1+1", "'@x")
    assert row["gpu_architecture"].startswith("'")
