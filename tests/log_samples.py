# ruff: noqa: E501, ISC004
"""Short logs in the form that each program prints, as looked up in its source and in public logs;
the sources are named in `src/warpfront/data/logs/*.toml`. The figures are made up.
"""

from __future__ import annotations

import json


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def _bar(step: int, total: int, rate: str, *, at: str = "00:12") -> str:
    return f"\r {100 * step // total:2}%|##        | {step}/{total} [{at}<20:34,  {rate}]"


HF_HEAD = _lines(
    "***** Running training *****",
    "  Num examples = 1,600",
    "  Num Epochs = 2",
    "  Instantaneous batch size per device = 4",
    "  Total train batch size (w. parallel, distributed & accumulation) = 64",
    "  Gradient Accumulation steps = 2",
    "  Total optimization steps = 50",
    "  Number of trainable parameters = 124,439,808",
)
HF_TRAINER = (
    "Map: 100%|#####| 1600/1600 [00:01<00:00, 1500.12 examples/s]\n"
    + HF_HEAD
    + "\r  0%|          | 0/50 [00:00<?, ?it/s]"
    + "".join(
        _bar(step, 50, "1.25s/it" if step < 12 else "2.00it/s")
        + (
            f"\n{{'loss': {3 - step / 50:.4f}, 'grad_norm': 1.5, 'learning_rate': 4.5e-05, "
            f"'epoch': {step / 25:.2f}}}\n"
            if step % 5 == 0
            else ""
        )
        for step in range(1, 51)
    )
    + "\n100%|####| 8/8 [00:03<00:00, 15.2it/s]\n"
    + "{'eval_loss': 1.9, 'eval_runtime': 3.1, 'epoch': 2.0}\n"
    + "{'train_runtime': 40.0, 'train_samples_per_second': 80.0, 'train_steps_per_second': 1.25, "
    + "'train_loss': 2.5, 'epoch': 2.0}\n"
)
# Newer versions quote the values; a log of stdout alone has no bar.
HF_QUOTED = HF_HEAD + _lines(
    *(
        f"{{'loss': '{3 - step / 50:.4g}', 'grad_norm': '1.5', 'epoch': '{step / 25:.4g}'}}"
        for step in range(5, 51, 5)
    )
)
LLAMA_FACTORY = _lines(
    *(
        json.dumps(
            {
                "current_steps": step,
                "total_steps": 120,
                "loss": 3 - step / 120,
                "lr": 1e-5,
                "epoch": step / 60,
                "percentage": 1.0,
                "elapsed_time": f"{step * 720 // 3600 % 24}:{step * 12 % 60:02}:00",
                "remaining_time": "1 day, 0:08:23",
            }
        ).replace(
            '"elapsed_time": "0',
            '"elapsed_time": "1 day, 0' if step > 119 else '"elapsed_time": "0',
        )
        for step in range(5, 125, 5)
    )
)
TRAINER_STATE = json.dumps(
    {
        "global_step": 100,
        "max_steps": 100,
        "train_batch_size": 8,
        "log_history": [
            *(
                {"epoch": step / 50, "loss": 3 - step / 100, "step": step}
                for step in range(10, 101, 10)
            ),
            {
                "epoch": 2.0,
                "step": 100,
                "total_flos": 1e15,
                "train_loss": 2.4,
                "train_runtime": 250.0,
            },
        ],
    },
    indent=2,
)
DEEPSPEED = _lines(
    "  train_batch_size ............. 64",
    "  gradient_accumulation_steps .. 4",
    *(
        line
        for step in range(10, 130, 10)
        for line in (
            f"[2023-11-07 01:55:23,711] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, "
            "skipped=4, lr=[5e-05], mom=[(0.9, 0.95)]",
            f"[2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step={4 * step}/"
            f"global_step={step}, RunningAvgSamplesPerSec=20.0, CurrSamplesPerSec=25.6, "
            "MemAllocated=4.32GB, MaxMemAllocated=38.5GB",
        )
    ),
)
DEEPSPEED_PIPELINE = _lines(
    *(
        f"steps: {n} loss: {9 / n:.4f} iter time (s): 1.280 samples/sec: 50.000"
        for n in range(10, 130, 10)
    )
)
MAXTEXT = _lines(
    "Config param max_target_length: 2048",
    "Config param model_name: llama2-7b",
    "System Information: Jax Version: 0.8.2",
    "Num_devices: 4, shape (1, 1, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1)",
    "number parameters: 6.738 billion",
    *(
        f"completed step: {n}, seconds: {44.9 if not n else 4.096}, TFLOP/s/device: 134.9, "
        f"Tokens/s/device: {500 if not n else 6000.0}, total_weights: 98304, loss: {12 - n / 10:.3f}"
        for n in range(14)
    ),
)
TORCHTUNE = _lines(
    "Writing logs to logs/log_1.txt",
    *(
        f"Step {n} | loss:{2 - n / 100} lr:2e-05 tokens_per_second_per_gpu:{400 + n % 3} "
        "peak_memory_active:12.5 peak_memory_alloc:12.5 peak_memory_reserved:14.0 "
        for n in range(1, 16)
    ),
)
VERL = _lines(
    "(TaskRunner pid=71) step:0 - val-core/gsm8k/acc/mean@1:0.508",
    *(
        f"(TaskRunner pid=71) step:{n} - global_seqlen/min:484245.000 - actor/pg_loss:{0.1 / n} - "
        "actor/grad_norm:0.020 - perf/max_memory_reserved_gb:91.5 - timing_s/gen:6.5 - "
        "timing_s/step:12.5 - timing_per_token_ms/gen:0.136 - perf/total_num_tokens:50000 - "
        "perf/time_per_step:12.5 - perf/throughput:500.0"
        for n in range(1, 16)
    ),
)
NANOTRON = _lines(
    *(
        f"[default{rank}]:01/17/2024 13:47:27 [INFO|DP={rank}|PP=0|TP=0|node-1]: iteration: {n} / 100"
        f" | consumed_tokens: {n * 2.1:.3g}M | elapsed_time_per_iteration_ms: {11.5}K | "
        "tokens_per_sec: 182K | tokens_per_sec_per_gpu: 22.8K | global_batch_size: 512 | "
        f"lm_loss: {11 - n / 10:.3g} | lr: 1e-05 | model_tflops_per_gpu: 38.3 | "
        "hardware_tflops_per_gpu: 39.1 | grad_norm: 1.25 | cuda_memory_allocated: 8.86G"
        for n in range(1, 16)
        for rank in (0, 1)
    ),
)
OLMO = _lines(
    *(
        line
        for n in range(10, 160, 10)
        for line in (
            f"2025-12-27 22:19:34.673\tnode-03:0\tolmo_core.train:990\tINFO\t[step={n}/1000,epoch=1,eta=1h]",
            f"    train/CE loss={6 - n / 100:.4g}",
            "    optim/total grad norm=0.7275",
            f"    throughput/total tokens={n * 524288:,}",
            "    throughput/device/TPS=104,858",
            "    throughput/device/TPS (actual avg)=99,000",
            "    throughput/device/BPS=0.2000",
            "    gpu_memory/GPU active mem (GiB)=38.5",
        )
    ),
)
DLLOGGER_CONSOLE = _lines(
    "DLL 2020-09-15 14:28:53.498443 - PARAMETER arch : resnet50  batch_size : 128  world_size : 16 ",
    *(
        f"DLL 2020-09-15 14:29:{n:02d}.473765 - Epoch: 0 Iteration: {n}  "
        f"train.loss : {7 - n / 10:.5f}  train.total_ips : {10240 if n > 1 else 267.44:.2f} img/s"
        for n in range(1, 15)
    ),
)
DLLOGGER = _lines(
    *(
        "DLLL "
        + json.dumps(
            {
                "timestamp": "1727463426.9",
                "datetime": "2024-09-27 18:57:06.984522",
                "elapsedtime": "1645.1",
                "type": "LOG",
                "step": n,
                "data": {
                    "reduced_train_loss": 8 - n / 10,
                    "global_step": n,
                    "consumed_samples": 128.0 * n,
                    "train_backward_timing in s": 4e-05,
                    "train_step_timing in s": 25.5 if n else 60.0,
                },
            }
        )
        for n in range(14)
    )
)
LIGHTNING = "".join(
    f"\rEpoch {epoch}:  {5 * n}%|##  | {n}/20 [00:10<01:15,  2.50it/s, v_num=3, train_loss={2 / n:.4g}]"
    for epoch in range(2)
    for n in range(1, 21)
)
NANOGPT = _lines(
    "tokens per iteration will be: 491,520",
    "number of parameters: 123.59M",
    "step 0: train loss 10.9, val loss 10.9",
    *(
        f"iter {n}: loss {4 - n / 100:.4f}, time {9371.81 if not n else 245.76}ms, mfu 16.68%"
        for n in range(0, 150, 10)
    ),
)
BUILD_NANOGPT = _lines(
    *(
        f"step {n:5} | loss: {4 - n / 100:.6f} | lr 8.3e-07 | norm: 15.3 | dt: 400.00ms | tok/sec: 1310720.00"
        for n in range(14)
    )
)
MODDED_NANOGPT = _lines(
    *(
        f"step:{n}/1390 train_loss:{9 - n / 10:.4f} train_time:{n * 150}ms step_avg:150.00ms"
        for n in range(1, 16)
    ),
    "step:15/1390 val_loss:7.9 train_time:2255ms step_avg:150.00ms",
)
LLMC = _lines(
    "| device                | NVIDIA H100 80GB HBM3                              |",
    "| precision             | BF16                                               |",
    "| num_parameters        | 124475904                                          |",
    "batch_size B=16 * seq_len T=1024 * num_processes=8 and total_batch_size=524288",
    *(
        f"step {n:4}/19560 | loss {11 - n / 10:.6f} (+nanz)| norm 15.1374 (+nanz)| lr 8.57e-07 | "
        f"{268.44 if n > 1 else 468.25} ms | 56.7% bf16 MFU | 1953125 tok/s"
        for n in range(1, 16)
    ),
)
LLMC_PYTHON = _lines(
    *(
        f"step {n:4}/20 | train loss {5 - n / 10:.6f} | norm 3.5 | lr 1.00e-04 | (131.07 ms | 31250 tok/s)"
        for n in range(1, 16)
    )
)
VLLM_SERVING = _lines(
    "Namespace(backend='vllm', model='meta-llama/Llama-3.1-8B', request_rate=15.0)",
    "Traffic request rate: 15.0 RPS.",
    "Maximum request concurrency: 100",
    "============ Serving Benchmark Result ============",
    "Successful requests:                     100       ",
    "Benchmark duration (s):                  25.00     ",
    "Total input tokens:                      51200     ",
    "Total generated tokens:                  12800     ",
    "Request throughput (req/s):              4.00      ",
    "Output token throughput (tok/s):         512.00    ",
    "Total Token throughput (tok/s):          2560.00   ",
    "---------------Time to First Token----------------",
    "Mean TTFT (ms):                          154.82    ",
    "Median TTFT (ms):                        136.70    ",
    "P99 TTFT (ms):                           360.23    ",
    "-----Time per Output Token (excl. 1st token)------",
    "Mean TPOT (ms):                          14.60     ",
    "---------------Inter-token Latency----------------",
    "Mean ITL (ms):                           14.50     ",
    "==================================================",
)
SGLANG_SERVING = _lines(
    "============ Serving Benchmark Result ============",
    "Backend:                                 sglang    ",
    "Traffic request rate:                    inf       ",
    "Max request concurrency:                 not set   ",
    "Successful requests:                     100       ",
    "Benchmark duration (s):                  25.00     ",
    "Total input tokens:                      51200     ",
    "Total generated tokens:                  12800     ",
    "Request throughput (req/s):              4.00      ",
    "Output token throughput (tok/s):         512.00    ",
    "Mean E2E Latency (ms):                   2653.12   ",
    "Mean TTFT (ms):                          150.00    ",
    "Mean ITL (ms):                           23.46     ",
)
VLLM_JSON = json.dumps(
    {
        "date": "20260101-000000",
        "backend": "vllm",
        "model_id": "meta-llama/Llama-3.1-8B",
        "num_prompts": 100,
        "request_rate": "inf",
        "max_concurrency": 16,
        "duration": 25.0,
        "completed": 100,
        "total_input_tokens": 51200,
        "total_output_tokens": 12800,
        "request_throughput": 4.0,
        "output_throughput": 512.0,
        "total_token_throughput": 2560.0,
        "mean_ttft_ms": 154.82,
        "mean_tpot_ms": 14.6,
        "mean_itl_ms": 14.5,
    }
)
MLPERF_INFERENCE = _lines(
    "================================================",
    "MLPerf Results Summary",
    "================================================",
    "SUT name : PySUT",
    "Scenario : Offline",
    "Mode     : PerformanceOnly",
    "Samples per second: 12.5",
    "Tokens per second: 3200.5",
    "Result is : VALID",
    "Mean latency (ns)               : 33431331185",
    "50.00 percentile latency (ns)   : 36448535095",
    "target_qps : 10",
)

SAMPLES = {
    "hf-trainer": HF_TRAINER,
    "hf quoted": HF_QUOTED,
    "llama-factory": LLAMA_FACTORY,
    "trainer-state": TRAINER_STATE,
    "deepspeed": DEEPSPEED,
    "deepspeed pipeline": DEEPSPEED_PIPELINE,
    "maxtext": MAXTEXT,
    "torchtune": TORCHTUNE,
    "verl": VERL,
    "nanotron": NANOTRON,
    "olmo": OLMO,
    "dllogger": DLLOGGER,
    "dllogger console": DLLOGGER_CONSOLE,
    "lightning": LIGHTNING,
    "nanogpt": NANOGPT,
    "build-nanogpt": BUILD_NANOGPT,
    "modded-nanogpt": MODDED_NANOGPT,
    "llmc": LLMC,
    "llmc python": LLMC_PYTHON,
    "vllm": VLLM_SERVING,
    "sglang": SGLANG_SERVING,
    "vllm json": VLLM_JSON,
    "mlperf inference": MLPERF_INFERENCE,
}
