"""Logs of trainings, a few lines in the form of each framework, with the figures that a test asks
for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from warpfront.bench.logs import FORMATS
from warpfront.bench.logs.assembling import Reading, choose
from warpfront.bench.records import RecordSource, Run, Step

SOURCE = RecordSource(path="a.log", sha256="0" * 64, size_bytes=1, format="?", evidence="?")
BATCH, SEQUENCE, DEVICES = 896, 4096, 8


def read(text: str, path: str = "a.log", **given: object) -> tuple[Run, ...]:
    """The runs of a text, by the lines it has. A last line without an end is not whole."""
    lines = re.split(r"[\r\n]", text)
    made = choose(text, enumerate(lines, 1))
    if isinstance(made, list):
        return ()
    reading = Reading(made[0], path)
    if made[0].is_document:
        reading.feed(1, text)
    else:
        for number, line in enumerate(lines, 1):
            if line or number < len(lines):
                reading.feed(number, line, whole=number < len(lines))
    return reading.runs(SOURCE, given)


def read_one(text: str, path: str = "a.log", **given: object) -> Run:
    (run,) = read(text, path, **given)
    return run


def format_of(text: str) -> str | None:
    made = choose(text, enumerate(re.split(r"[\r\n]", text), 1))
    return None if isinstance(made, list) else made[0].name


def megatron_line(
    step: int, ms: float | str, *, extra: Mapping[str, object] | None = None, **fields: object
) -> str:
    """With more fields, or other values of these; a keyword's `_` are blanks."""
    said = {
        "consumed samples": step * BATCH,
        "elapsed time per iteration (ms)": ms,
        "learning rate": "1.0E-05",
        "global batch size": BATCH,
        "lm loss": f"{10 / step:.6E}",
        "grad norm": "1.5",
        "number of skipped iterations": 0,
        "number of nan iterations": 0,
        **{name.replace("_", " "): value for name, value in fields.items()},
        **(extra or {}),
    }
    begun = f" [2026-05-11 03:00:{step % 60:02}.5] iteration {step:8}/      20 | "
    return begun + " | ".join(f"{name}: {value}" for name, value in said.items()) + " |"


def rate(ms: float) -> str:
    return f"{BATCH * SEQUENCE / (ms / 1000 * DEVICES):.1f}"


def primus_line(step: int, ms: float, *, place: int = 425, rank: int = 7, **more: object) -> str:
    """As on a terminal: coloured, with a rank, now and mean."""
    fields = {
        "elapsed time per iteration (ms)": f"{ms:.1f}/{ms * 1.02:.1f}",
        "throughput per GPU (TFLOP/s/GPU)": "239.5/234.9 ",
        "tokens per GPU (tokens/s/GPU)": f"{rate(ms)}/1.0",
        "hip mem usage/free/total/usage_ratio": "2.00GB/1.00GB/3.00GB/66.00% ",
        **more,
    }
    line = megatron_line(step, ms, extra=fields)
    return (
        f"[\x1b[32m20260511 03:00:00\x1b[0m][\x1b[36mrank-{rank}/{DEVICES}\x1b[0m]"
        f"[\x1b[1m[DEBUG]\x1b[0m [----utils.py:{place}] :{line} rank-1 max: 9GB/8%\x1b[0m"
    )


def primus_log(times: Sequence[float], *, twice: bool = True) -> str:
    """Seconds of the steps from 1 on; every line twice, as Primus prints them."""
    lines = (
        primus_line(step, seconds * 1000, place=place)
        for step, seconds in enumerate(times, 1)
        for place in ((425, 429) if twice else (425,))
    )
    return "".join(f"{line}\n" for line in lines)


def nemo_bar(step: int, seconds: float | str, *, epoch: int = 0, **fields: object) -> str:
    """As Lightning's bar writes it over and over, with the count one ahead of the step."""
    said = {
        "v_num": "",
        "reduced_train_loss": f"{10 / (step + 1):.4g}",
        "global_step": f"{step}.0",
        "consumed_samples": f"{128 * step}.0",
        "train_step_timing in s": seconds,
        **fields,
    }
    inside = ", ".join(f"{name}={value}" for name, value in said.items())
    return f"Epoch {epoch}: :  47%|###   | {step % 100 + 1}/100 [06:19<07:13, {inside}]"


def nemo_line(step: int, seconds: float | str, *, prefix: str = "", **fields: object) -> str:
    said = {
        "lr": "6.897e-06",
        "global_batch_size": 128,
        "global_step": step,
        "max_memory_reserved": 127785762816,
        "max_memory_allocated": 115792977920,
        "reduced_train_loss": f"{10 / (step + 1):.4g}",
        "train_step_timing in s": seconds,
        **fields,
    }
    begun = f"{prefix}Training epoch 0, iteration {step}/99 | "
    return begun + " | ".join(f"{name}: {value}" for name, value in said.items())


def titan_line(step: int, tokens: str, *, loss: str = "4.98934", rank: int = 0) -> str:
    return (
        f"[rank{rank}]:[titan] 2026-05-19 19:31:48,420 - root - INFO - step: {step:2}  "
        f"loss: {loss}  grad_norm: 19.2500  memory: 168.57GiB(94.52%)  tps: {tokens}  "
        "tflops: 841.08  mfu: 37.38%"
    )


TITAN_SETTINGS = "".join(
    f"[rank0]:[titan] x - INFO - {said}\n"
    for said in (
        "torchtitan version: 0.2.1",
        "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1",
        "CUDA capacity: NVIDIA B200 with 178.35GiB memory",
        "Total parameter count: dense 14,768,307,200, sparse 0, active 14,768,307,200",
        "Model qwen3 14B size: 14,768,307,200 total parameters",
        "Trainer with local batch size 160, global batch size 1280, sequence length 128, ...",
    )
)


def mllog_line(key: str, value: object = None, *, at: float = 0.0, **metadata: object) -> str:
    entry = {"namespace": "", "time_ms": round(at * 1000), "key": key, "value": value}
    return f":::MLLOG {json.dumps({**entry, 'metadata': {'lineno': 1, **metadata}})}"


def amd_mllog(seconds: float, *, batch: int = 8, rate: float = 5.9, org: str = "AMD") -> str:
    """A run of so many seconds; its throughput is in samples/s, its steps are samples."""
    blocks = [batch * 48 * number for number in range(1, 7)]
    return _mllog(
        [
            mllog_line("submission_benchmark", "llama2_70b_lora"),
            mllog_line("submission_org", org),
            mllog_line("submission_platform", "1xMI355X"),
            mllog_line("global_batch_size", batch),
            mllog_line("run_start", at=100.0),
            *(mllog_line("tracked_stats", {"throughput": rate}, at=101.0, step=n) for n in blocks),
            mllog_line("eval_accuracy", 0.92, at=102.0, samples_count=blocks[-1]),
            mllog_line("run_stop", at=100.0 + seconds, status="success", samples_count=blocks[-1]),
        ]
    )


def nvidia_mllog(seconds: float, *, batch: int = 8, step_seconds: float = 1.03) -> str:
    """Steps counted as steps, losses every ten, and a time of the block without a step."""
    lines = [
        mllog_line("submission_benchmark", "llama2_70b_lora"),
        mllog_line("submission_org", "NVIDIA"),
        mllog_line("submission_platform", "2xNVIDIA GB200"),
        mllog_line("global_batch_size", batch),
        mllog_line("target_accuracy", 0.925),
        mllog_line("run_start", at=100.0),
        mllog_line("block_start", at=100.0, samples_count=192 * batch, step=0),
    ]
    for step in range(10, 200, 10):
        at, count = 100.0 + step * step_seconds, step * batch
        stats = {"train_loss": 1.3}
        lines.append(mllog_line("tracked_stats", stats, at=at, step=step, samples_count=count))
    block = {"train_step_time": 99.0}
    lines += [
        mllog_line("tracked_stats", block, at=300.0, samples_count=192 * batch),
        mllog_line("eval_accuracy", 0.92, at=310.0, samples_count=192 * batch),
        mllog_line("block_start", at=320.0, samples_count=48 * batch, step=192),
        mllog_line("tracked_stats", {"train_loss": 1.2}, at=320.0 + 8 * step_seconds, step=200,
                   samples_count=200 * batch),
        mllog_line("run_stop", at=100.0 + seconds, status="success", step=200),
    ]  # fmt: skip
    return _mllog(lines)


def _mllog(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def tensorprimat(times: Sequence[float], losses: Sequence[float] = (), **device: object) -> str:
    """The newer schema; the older has `raw_step_times` and no losses."""
    return json.dumps(
        {
            "platform": "nvd",
            "gpu_info": {"device_count": 8, "device_name": "NVIDIA H100 80GB HBM3",
                         "pytorch_version": "", "gpu_cores": 16896, **device},
            "training_config": {"global_batch_size": 64, "micro_batch_size": 1,
                                "sequence_length": 2048, "num_gpus": 8},
            "step_times" if losses else "raw_step_times": list(times),
            "loss_values": list(losses),
            "memory_metrics": {"peak_memory_allocated_gb": 117.99},
        }
    )  # fmt: skip


PERF_CSV = """\
model,n_gpus,nnodes,training_precision,gpu_architecture,performance,metric,status
llama,8,1,bf16,gfx942,54000,tokens_per_second,SUCCESS
llama,8,1,bf16,gfx942,54400,tokens_per_second,SUCCESS
llama,8,1,bf16,gfx942,,tokens_per_second,FAILURE
bert,8,1,fp16,gfx942,12,furlongs,SUCCESS
"""


def a_run(times: Iterable[float], **fields: object) -> Run:
    """A run of these seconds, of work that every other such run does, too."""
    said: dict[str, object] = {
        "model": "llama",
        "sequence": 2048,
        "precision": "bfloat16",
        "global_batch": 64,
        "devices": 8,
        **fields,
    }
    steps = tuple(
        Step(step=n, seconds=value, samples=n * 64, loss=10 / n) for n, value in enumerate(times, 1)
    )
    return Run(source=SOURCE, steps=steps, **said)  # type: ignore[arg-type]


KNOWN_FORMATS = tuple(FORMATS)
