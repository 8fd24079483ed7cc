"""Each declared format, by short logs in the form that its program prints."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import resources

import pytest
from log_samples import DEEPSPEED, MAXTEXT, SAMPLES, SGLANG_SERVING, VLLM_JSON, VLLM_SERVING
from training_logs import format_of, megatron_line, mllog_line, nemo_line, read, read_one

from warpfront.bench.logs import DECLARED, FORMATS
from warpfront.bench.records import Run
from warpfront.bench.settling import summary_of

# By hand: (steps, median step seconds, tokens/s per device, TFLOP/s, last loss, batch, devices).
BY_HAND: dict[str, tuple[float | None, ...]] = {
    "hf-trainer": (50, 0.5, None, None, 2.0, 64, 8),
    "hf quoted": (50, None, None, None, 2.0, 64, 8),
    "llama-factory": (120, 720.0, None, None, 2.0, None, None),
    "trainer-state": (100, None, None, None, 2.0, None, None),
    "deepspeed": (12, 2.5, None, None, None, 64, None),
    "deepspeed pipeline": (12, 1.28, None, None, 0.075, None, None),
    "maxtext": (14, 4.096, 6000.0, 134.9, 10.7, None, 4),
    "torchtune": (15, None, 401.0, None, 1.85, None, None),
    "verl": (15, 12.5, 500.0, None, 0.1 / 15, None, 8),
    "nanotron": (15, 11.5, 22_800.0, 38.3, 9.5, 512, 8),
    "olmo": (15, 5.0, 104_858.0, None, 4.5, None, 1),
    "dllogger": (14, 25.5, None, None, 6.7, None, None),
    "dllogger console": (14, None, None, None, 5.6, None, 16),
    "lightning": (40, 0.4, None, None, 0.1053, None, None),
    "nanogpt": (15, 0.24576, None, None, 2.6, None, None),
    "build-nanogpt": (14, 0.4, None, None, 3.87, None, None),
    "modded-nanogpt": (15, 0.15, None, None, 7.5, None, None),
    "llmc": (15, 0.26844, 244_140.6, None, 9.5, 512, 8),
    "llmc python": (15, 0.13107, None, None, 3.5, None, None),
}
SERVING = ("vllm", "sglang", "vllm json", "mlperf inference")


def found_in(run: Run) -> tuple[float | None, ...]:
    summary = summary_of(run)
    flop = summary.flop_per_second_per_device
    return (
        sum(step.steps for step in run.steps),
        summary.median_seconds.value if summary.median_seconds else None,
        summary.tokens_per_second_per_device,
        flop / 1e12 if flop else None,
        summary.last_loss,
        run.global_batch,
        run.devices,
    )


@pytest.mark.parametrize("name", BY_HAND)
def test_a_log_of_each_format_gives_the_figures_worked_out_by_hand(name: str) -> None:
    for found, right in zip(found_in(read_one(SAMPLES[name])), BY_HAND[name], strict=True):
        assert found == (right if right is None else pytest.approx(right, rel=0.01))


def test_every_sample_is_checked() -> None:
    assert {*BY_HAND, *SERVING} == set(SAMPLES)


@pytest.mark.parametrize("name", DECLARED)
def test_every_declared_format_names_its_sources(name: str) -> None:
    file = resources.files("warpfront").joinpath("data", "logs", f"{name}.toml")
    document = tomllib.loads(file.read_text("utf-8"))
    assert all("/" in source for source in document["sources"])
    for rule in (*document.get("step", ()), *document.get("setting", ())):
        assert rule.get("has"), "a line is first looked at by a fixed text"


def test_the_time_of_a_whole_run_gives_the_mean_of_its_steps() -> None:
    summary = summary_of(read_one(SAMPLES["trainer-state"]))
    assert (summary.median_seconds, summary.mean_seconds) == (None, 2.5)


def test_two_serving_benchmarks_in_one_log_are_two_runs() -> None:
    first, second = read(VLLM_SERVING + VLLM_SERVING.replace("15.0", "20.0"))
    assert (first.request_rate, second.request_rate) == ("15", "20")
    assert first.serving["concurrency"] == 100


def test_serving_tables_and_files_have_the_same_figures() -> None:
    table, file = read_one(VLLM_SERVING), read_one(VLLM_JSON)
    for name in ("output_throughput", "request_throughput", "ttft_mean", "tpot_mean", "itl_mean"):
        assert table.serving[name] == pytest.approx(file.serving[name])
    assert (table.model, file.request_rate) == (file.model, "inf")
    assert read_one(SGLANG_SERVING).request_rate == "inf"


def test_sglangs_lines_of_json_with_infinity_are_read() -> None:
    line = json.dumps({**json.loads(VLLM_JSON), "request_rate": float("inf")})
    run = read_one(f"max_prefill:8192\n{line}\n")
    assert (run.request_rate, run.serving["output_throughput"]) == ("inf", 512.0)


def test_a_run_that_loadgen_calls_invalid_says_so() -> None:
    text = SAMPLES["mlperf inference"]
    assert read_one(text).succeeded is True
    assert read_one(text.replace(": VALID", ": INVALID")).succeeded is False


PREFIXES = (
    "2026-01-01T00:00:00.000000000Z ",
    "[rank0]:",
    "[1,0]<stdout>:",
    "(main pid=7) ",
    "\x1b[36m[default0]:\x1b[0m",
    "node-1: ",
)
PREFIXED = [name for name in BY_HAND if name not in {"trainer-state", "olmo"}]


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        pytest.param(
            prefix,
            name,
            # Every format and every prefix, each with some of the others.
            marks=[] if (place - turn) % 3 == 0 else pytest.mark.exhaustive,
        )
        for turn, prefix in enumerate(PREFIXES)
        for place, name in enumerate(PREFIXED)
    ],
)
def test_prefixes_and_colours_of_launchers_change_no_figure(prefix: str, name: str) -> None:
    text = re.sub(r"(?m)^(?=.)", prefix, SAMPLES[name])
    if name.startswith("llmc"):
        text = text.replace(prefix + "| ", "| ")  # its table of settings begins a line
    found, right = found_in(read_one(text)), found_in(read_one(SAMPLES[name]))
    assert found[:5] == pytest.approx(right[:5])


def test_json_lines_between_a_logs_own_change_nothing() -> None:
    lines = MAXTEXT.splitlines(keepends=True)
    text = "".join(f'{line}{{"level": "info", "loss": 3}}\n' for line in lines)
    assert found_in(read_one(text)) == found_in(read_one(MAXTEXT))


def test_a_field_that_is_not_read_is_counted_and_named() -> None:
    text = MAXTEXT.replace(", loss:", ", moe tokens dropped: 5, loss:")
    messages = [finding.message for finding in read_one(text).findings]
    assert "not read: field 'moe tokens dropped', 14 times" in messages


def test_a_step_line_in_another_form_is_counted_and_named() -> None:
    text = "completed step: ten, seconds: 1.0\n" * 3 + MAXTEXT
    (message,) = [finding.message for finding in read_one(text).findings]
    assert message == "not read: lines with 'completed step:' in another form, 3 times"


# The silences of the audit, each with its right answer.


def test_the_last_field_needs_no_bar() -> None:
    run = read_one(megatron_line(1, 100.0, lm_loss="7.25").rpartition(" | number of sk")[0] + "\n")
    assert run.steps[0].grad_norm == 1.5
    line = "iteration  3/ 30 | elapsed time per iteration (ms): 87.9 | lm loss: 9.900000E+00\n"
    assert read_one(line).steps[0].loss == 9.9


def test_primus_says_its_world_and_sequence_in_other_words() -> None:
    text = (
        "[Primus:Env] rank=0, world_size=8, local_rank=0, master=localhost:1234\n"
        "  seq_length: 2048\n"
        "ThroughputAverageExtension initialized with seq_len: 2048 world_size: None\n"
    ) + "".join(
        f"iteration {n}/ 30 | elapsed time per iteration (ms): 88.2 | global batch size: 32 | "
        f"lm loss: {10 - n / 10:E}\n"
        for n in range(1, 31)
    )
    run = read_one(text)
    assert (run.devices, run.sequence) == (8, 2048)
    assert summary_of(run).tokens_per_second_per_device == pytest.approx(92_880, rel=0.001)
    assert summary_of(run).last_loss == 7.0


@pytest.mark.parametrize("name", ["lm-loss", "lm_loss", "lm loss"])
def test_a_loss_has_several_names(name: str) -> None:
    line = f" iteration 1/ 9 | elapsed time per iteration (ms): 5.0 | {name}: 1.23E+01 |\n"
    assert read_one(line).steps[0].loss == 12.3


def test_tokens_per_second_have_several_names() -> None:
    for name in ("tokens/sec/gpu", "tokens per gpu per second (tgs)", "tokens/s/GPU"):
        line = megatron_line(1, 5522.3, extra={name: "11867.5"})
        assert read_one(f"{line}\n").steps[0].tokens_per_second_per_device == 11867.5


def test_a_world_size_that_the_tokens_do_not_fit_is_said_and_not_used() -> None:
    text = (
        "using world size: 24, data-parallel-size: 24, tensor-model-parallel size: 1\n"
        + "".join(
            f"iteration {n}/ 99 | elapsed time per iteration (ms): 14258.2 | "
            "global batch size: 768 | actual seqlen: 4096 | "
            "tokens per gpu per second (tgs): 1149.089 | TFLOPs: 69.85 |\n"
            for n in range(1, 31)
        )
    )
    run = read_one(text)
    assert (run.sequence, run.devices, run.solved) == (4096, 192, ("devices",))
    assert "fit 192 devices, and it says 24" in run.findings[-1].message


def mllog(*lines: str, batch: int = 768) -> str:
    head = [
        mllog_line("submission_benchmark", "bert"),
        mllog_line("global_batch_size", batch),
        mllog_line("run_start", at=1000.0),
    ]
    stop = mllog_line("run_stop", at=1195.0, status="success")
    return "".join(f"{line}\n" for line in (*head, *lines, stop))


def speeds(place: str, every: float, rate: float, seconds: float, count: int = 15) -> list[str]:
    return [
        mllog_line(
            "tracked_stats", {"throughput": rate}, at=1000 + n * seconds, **{place: n * every}
        )
        for n in range(1, count + 1)
    ]


@pytest.mark.parametrize(
    ("place", "every", "rate", "seconds", "last"),
    [
        ("epoch_num", 150_000, 11_508.0, 13.0, 2929),  # samples, no multiple of the batch
        ("step", 7680, 768.0, 10.0, 150),  # samples
        ("step", 100, 768.0, 100.0, 1500),  # steps
        ("step_num", 100, 768.0, 100.0, 1500),
        ("epoch_num", 1, 768.0, 400.0, 15),  # epochs: lines are counted
    ],
)
def test_the_clock_tells_what_the_place_of_a_speed_counts(
    place: str, every: float, rate: float, seconds: float, last: int
) -> None:
    run = read_one(mllog(*speeds(place, every, rate, seconds)))
    assert (len(run.steps), run.steps[-1].step) == (15, last)
    assert summary_of(run).median_seconds is not None
    assert run.steps[-1].seconds == pytest.approx(768 / rate)


def test_speeds_without_a_step_are_counted_and_named() -> None:
    lines = [mllog_line("tracked_stats", {"throughput": 5.0}, at=1001.0 + n) for n in range(184)]
    (finding,) = read_one(mllog(*lines)).findings
    assert finding.message == "not read: tracked_stats of throughput without a step, 184 times"


@pytest.mark.parametrize(
    ("platform", "nodes", "devices"),
    [("2xA5000", 1, 2), ("4xRTX 4090", 1, 4), ("2xNVIDIA GB200", 2, None), ("1xB200x8", 1, 8)],
)
def test_a_workstations_cards_are_devices_of_one_node(
    platform: str, nodes: int, devices: int | None
) -> None:
    run = read_one(mllog(mllog_line("submission_platform", platform)))
    assert (run.nodes, run.devices) == (nodes, devices)


def accumulated(prefixes: list[str], parts: int = 4) -> str:
    return "".join(
        nemo_line(n * parts + part, "2.0", prefix=prefix, global_step=n) + "\n"
        for n in range(16)
        for part in range(parts)
        for prefix in prefixes
    )


@pytest.mark.parametrize("prefix", ["[default0]:", ""])
def test_several_lines_a_step_of_one_rank_are_gradient_accumulation(prefix: str) -> None:
    run = read_one(accumulated([prefix]))
    assert [step.seconds for step in run.steps] == [8.0] * 16
    messages = [finding.message for finding in run.findings]
    assert messages == ["gradient accumulation: 4 lines a step; a step's time is their sum"]


def test_rank_prefixes_have_to_differ_before_lines_are_other_ranks() -> None:
    run = read_one(accumulated(["[default0]:", "[default1]:"], parts=1).replace("2.0\n", "2.0\n"))
    assert [step.seconds for step in run.steps] == [2.0] * 16
    lines = "".join(
        nemo_line(n, 2.0 + rank / 10, prefix=f"[default{rank}]:", global_step=n) + "\n"
        for n in range(16)
        for rank in (0, 1)
    )
    run = read_one(lines)
    assert [step.seconds for step in run.steps] == [2.0] * 16
    assert "16 of 32 lines are other ranks' of a step" in run.findings[-1].message


@pytest.mark.parametrize(
    ("line", "name", "seconds", "loss"),
    [
        ("step 0: train loss 5.356185 (took 1452.12 ms)", "llmc", 1.45212, 5.356185),
        ("step    1/74: train loss 4.367631 (80.64 ms)", "llmc", 0.08064, 4.367631),
        (
            "step    1/74: train loss 4.36 (acc 4.36) (80.64 ms, 50793 tok/s)",
            "llmc",
            0.08064,
            4.36,
        ),
        (
            "1|20|Loss: 1.2345:  10%|#  | 20/200 [00:40<06:00,  2.00s/it]",
            "torchtune",
            2.0,
            1.2345,
        ),
        ("step:3 - actor/pg_loss:np.float64(0.25) - timing_s/step:12.5", "verl", 12.5, 0.25),
        (
            "step:3 - timing/gen:10.0 - timing/ref:2.5 - timing/testing:9.0 - actor/pg_loss:0.25",
            "verl",
            12.5,
            0.25,
        ),
        (
            "step:3 - train/loss:0.25 - train/lr(1e-3):0.002 - train/time(s):12.5",
            "verl",
            12.5,
            0.25,
        ),
        (
            "[INFO|DP=0|PP=0|TP=0]: iteration: 5 / 9 | time_per_iteration_ms: 1.5K | lm_loss: 4.5",
            "nanotron",
            1.5,
            4.5,
        ),
        (
            "Epoch 0:  10%|#| 10/99 [00:05<00:45,  2.00it/s, train_loss=0.5]",
            "lightning",
            0.5,
            0.5,
        ),
    ],
)
def test_older_and_newer_forms_are_read(line: str, name: str, seconds: float, loss: float) -> None:
    assert format_of(f"{line}\n") == name
    (step,) = read_one(f"{line}\n").steps
    assert step.seconds == pytest.approx(seconds)
    assert step.loss == pytest.approx(loss)


def test_a_bar_that_is_drawn_twice_a_step_counts_once_with_its_last_loss() -> None:
    text = "".join(
        f"Epoch 0:  22%|##| {n}/18 [00:{4 * n:02}<01:02,  4.50s/it, loss={loss}, v_num=193315]\n"
        for n in range(1, 15)
        for loss in (11 - n, 10 - n)
    )
    run = read_one(text)
    assert [(step.seconds, step.loss) for step in run.steps] == [
        (4.5, 10 - n) for n in range(1, 15)
    ]
    assert run.findings == ()


def test_a_librarys_lines_do_not_hide_those_of_the_trainer() -> None:
    assert format_of(DEEPSPEED * 5 + SAMPLES["hf quoted"]) == "hf-trainer"
    assert format_of(DEEPSPEED) == "deepspeed"


def test_a_format_that_no_line_fits_is_none() -> None:
    assert format_of("epoch 1: loss 3\n") is None
    assert set(DECLARED) < set(FORMATS)


def test_a_request_concurrency_counts_in_the_table_as_before_it() -> None:
    """Both are vLLM's: a line of its own before the table, and since 0.11 a row of it."""
    row = "Maximum request concurrency:             25"
    before, after = VLLM_SERVING.split("Maximum request concurrency: 100\n")
    within = before + after.replace("Benchmark duration", f"{row}\nBenchmark duration")
    assert read_one(VLLM_SERVING).serving["concurrency"] == 100
    assert read_one(within).serving["concurrency"] == 25


@pytest.mark.parametrize("name", ["90th", "90.0th"])
def test_a_percentile_that_is_the_result_has_either_form(name: str) -> None:
    lines = ("Scenario : SingleStream", f"{name} percentile latency (ns) : 50798000")
    text = "\n".join(("MLPerf Results Summary", *lines, ""))
    assert read_one(text).serving["e2e_p90"] == pytest.approx(0.050798)


# What the first look at logs of others found.


def test_a_bar_and_a_loss_on_one_line_are_one_step() -> None:
    head = "  Num Epochs = 3\n  Total optimization steps = 40\n"
    text = head + "".join(
        f" {n}%|# | {n}/40 [00:{2 * n:02}<01:20,  2.0{n % 2}s/it]"
        f"{{'loss': {5 - n / 10}, 'grad_norm': 2.1, 'learning_rate': 4e-05, 'epoch': 0.0}}\n"
        for n in range(1, 21)
    )
    run = read_one(text)
    assert [step.step for step in run.steps] == list(range(1, 21))
    assert [step.loss for step in run.steps] == pytest.approx([5 - n / 10 for n in range(1, 21)])
    assert {step.seconds for step in run.steps} == {2.0, 2.01}
    assert run.findings == ()


def test_an_argument_of_a_trainer_never_takes_the_place_of_what_is_read() -> None:
    """MaxText prints `Config param steps: 500`; a run's own fields are no settings."""
    names = ("steps", "lines", "findings", "given", "solved", "missing", "source", "evaluations")
    text = "".join(f"Config param {name}: 500\n" for name in names) + MAXTEXT
    assert found_in(read_one(text)) == found_in(read_one(MAXTEXT))


def test_of_two_tables_before_the_first_step_the_later_counts() -> None:
    tables = "".join(
        f"Config param global_batch_size_to_train_on: {batch}\n"
        f"Config param max_target_length: {n}\n"
        for batch, n in ((192, 2048), (16, 1024))
    )
    later = "Config param global_batch_size_to_train_on: 8\n"
    run = read_one(MAXTEXT.replace("Config param max_target_length: 2048\n", tables) + later)
    assert (run.global_batch, run.sequence) == (16, 1024)
    assert "the global batch changes from 16 to 8" in [one.message for one in run.findings]


def test_a_format_given_by_an_option_wins_over_a_flag_of_the_log() -> None:
    line = DLLOGGER_SETTINGS + SAMPLES["dllogger"]
    assert read_one(line).precision == "fp8"
    assert read_one(line, precision="bf16").precision == "bf16"


DLLOGGER_SETTINGS = (
    'DLLL {"type": "LOG", "step": "PARAMETER", "data": {"cfg/micro_batch_size": 1, '
    '"cfg/global_batch_size": 2048, "cfg/encoder_seq_length": 4096, "cfg/num_layers": 96, '
    '"cfg/tensor_model_parallel_size": 4, "cfg/fp8": true, "cfg/fp8_e4m3": false, '
    '"cfg/precision": "bf16-mixed"}}\n'
)


def test_dlloggers_parameters_are_read() -> None:
    run = read_one(DLLOGGER_SETTINGS + SAMPLES["dllogger"])
    assert (run.global_batch, run.micro_batch, run.sequence, run.layers) == (2048, 1, 4096, 96)
    assert run.parallel.tensor == 4


def test_dlloggers_console_prints_the_samples_of_all_devices() -> None:
    run = read_one(SAMPLES["dllogger console"])
    assert (run.framework, run.model, run.micro_batch) == ("dllogger", "resnet50", 128)
    assert summary_of(run).samples_per_second == pytest.approx(10_240)
    run = read_one(
        "DLL 2020-12-07 20:04:34.092791 - Iteration: 16  throughput_train : 140.5 seq/s "
        "mlm_loss : 10.0  nsp_loss : 0.5  total_loss : 10.5  learning_rate : 5.25e-06\n"
    )
    (step,) = run.steps
    assert (step.step, step.samples_per_second, step.loss) == (16, 140.5, 10.5)


def test_torchtunes_configuration_is_read() -> None:
    text = (
        "INFO:torchtune:Running LoRAFinetuneRecipeSingleDevice with resolved config:\n"
        "\nbatch_size: 6\ndtype: bf16\ngradient_accumulation_steps: 2\nmodel:\n"
        "  _component_: torchtune.models.llama3_2.lora_llama3_2_1b\n"
    ) + SAMPLES["torchtune"]
    run = read_one(text)
    assert (run.micro_batch, run.accumulation, run.devices) == (6, 2, 1)
    assert (run.precision, run.model) == ("bfloat16", "lora_llama3_2_1b")


@pytest.mark.parametrize(
    ("scenario", "rate", "concurrency"),
    [
        ("Server", "10", None),
        ("Offline", "inf", None),
        ("SingleStream", "inf", None),
        ("MultiStream", "inf", 8),
        ("Multi Stream", "inf", 8),
    ],
)
def test_loadgens_target_is_the_load_of_a_server_alone(
    scenario: str, rate: str, concurrency: float | None
) -> None:
    text = SAMPLES["mlperf inference"].replace("Offline", scenario) + "samples_per_query : 8\n"
    run = read_one(text)
    assert (run.request_rate, run.concurrency) == (rate, concurrency)
    assert run.scenario == scenario


def test_a_trainer_that_prints_no_loss_is_known_by_its_head() -> None:
    """A short training logs no loss: Trainer's default is every 500 steps."""
    text = "[INFO|trainer.py:709] >>   Total optimization steps = 40\n" + "".join(
        f" {n}%|# | {n}/40 [00:{2 * n:02}<01:20,  2.00s/it]\n" for n in range(1, 21)
    )
    assert format_of(text) == "hf-trainer"
    assert [step.seconds for step in read_one(text).steps] == [2.0] * 20


def test_a_trainers_time_so_far_is_not_the_time_of_the_run() -> None:
    """With --include_num_input_tokens_seen every line has the `train_runtime` so far, and before
    the bar of its step; of a stream the number of epochs is the largest integer.
    """
    head = "  Num Epochs = 9,223,372,036,854,775,807\n  Total optimization steps = 20\n"
    text = head + "".join(
        f"{{'loss': {5 - n / 10}, 'epoch': {n / 20}, 'train_runtime': {3.5 * n}, "
        f"'train_tokens_per_second': 7201.7}}\n {5 * n}%|# | {n}/20 [00:{2 * n}<01:00,  3.50s/it]\n"
        for n in range(1, 21)
    )
    last = "{'train_runtime': 425.4, 'train_samples_per_second': 5.6, 'train_loss': 2.4}\n"
    run = read_one(text + last)
    assert (run.run_seconds, run.findings) == (425.4, ())
    assert [(step.step, step.seconds) for step in run.steps] == [(n, 3.5) for n in range(1, 21)]
    assert [step.loss for step in run.steps] == pytest.approx([5 - n / 10 for n in range(1, 21)])
