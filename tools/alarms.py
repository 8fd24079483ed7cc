"""How often a correct device is refused: sessions with fresh seeds, many processes side by side.

    python tools/alarms.py DEVICE SECONDS PROCESSES SESSION[:SETTING] ...

Each process takes one session of the list, in turn, with one seed after another until the time is
over, on one of the GPUs that CUDA_VISIBLE_DEVICES names, in turn too. Seeds are drawn from the id
that is printed first. Each seed is a line of JSON when it is through: session and setting, and
every check that was not passed with its first faults. The last line is their count.

On a GPU start NVIDIA's MPS before (`nvidia-cuda-mps-control -d`): without it processes take turns,
a slice of time each, and of 15 none ends a seed of opinfo in six minutes; with it each takes one.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import json
import multiprocessing
import os
import queue
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from warpfront_checks.check_options import CheckOptions, drawn_seeds
from warpfront_checks.claims import Claims
from warpfront_checks.results import Recorder

LATE_SECONDS = 60
SHOWN = 12


def _formatted(torch: Any) -> None:
    """Whatever is sent to a device arrives as channels_last, for the rest of this process: who
    trains on pictures has that for every input and weight.
    """
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}

    class Formatted(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            found = function(*args, **(kwargs or {}))
            # What comes back without a wait is not there yet, and cannot be copied.
            sent = function is torch.Tensor.to and not found.is_cpu and found.is_floating_point()
            format_ = formats.get(found.dim()) if sent else None
            return found if format_ is None else found.contiguous(memory_format=format_)

    Formatted().__enter__()


def _all_sweeps(_: Any) -> None:
    """The sweeps of opinfo that are asked of few kinds of device yet, of this one as well."""
    sweep: Any = importlib.import_module("warpfront_checks.opinfo.sweep")
    sweep.SEEN_ON = (*sweep.SEEN_ON, "cuda", "rocm", "hpu", "xpu")


def _all_rows(_: Any) -> None:
    """The rows of tables that were seen to be right on the CPU alone, on this device as well."""
    checks: Any = importlib.import_module("warpfront_checks.cases.special.tables")
    asked = checks.rows_for
    checks.rows_for = lambda one, device: {
        row.name: row for known in ("cpu", device) for row in asked(one, known)
    }.values()


# What a user may have set, and be right.
SETTINGS: Mapping[str, Callable[[Any], None]] = {
    "plain": lambda _: None,
    "cudnn-off": lambda torch: setattr(torch.backends.cudnn, "enabled", False),
    "benchmark": lambda torch: setattr(torch.backends.cudnn, "benchmark", True),
    "deterministic": lambda torch: setattr(torch.backends.cudnn, "deterministic", True),
    "cublaslt": lambda torch: torch.backends.cuda.preferred_blas_library("cublaslt"),
    "math": lambda torch: _attention_by(torch, "math"),
    "efficient": lambda torch: _attention_by(torch, "mem_efficient"),
    "tf32": lambda torch: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "expandable": lambda _: None,
    "channels_last": _formatted,
    "all-sweeps": _all_sweeps,
    "all-rows": _all_rows,
    # Of the CPU: who shares the work, whose kernels, by which instructions.
    "threads-2": lambda torch: torch.set_num_threads(2),
    "threads-5": lambda torch: torch.set_num_threads(5),
    "threads-16": lambda torch: torch.set_num_threads(16),
    "onednn-off": lambda torch: setattr(torch.backends.mkldnn, "enabled", False),
    "avx2": lambda _: None,
    "no-vectors": lambda _: None,
}
ENVIRONMENT = {
    "expandable": ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
    "avx2": ("ATEN_CPU_CAPABILITY", "avx2"),
    "no-vectors": ("ATEN_CPU_CAPABILITY", "default"),
}
SESSIONS = {
    "numerics": "models.modes:record_numerics",
    "operators": "cases.special.session:record_operators",
    "opinfo": "opinfo.sweep:record_opinfo",
    "models": "models.modes:record_models",
}


def main(argv: Sequence[str]) -> int:
    device, seconds, processes, *asked = argv
    run, until = secrets.token_hex(4), time.monotonic() + float(seconds)
    print(json.dumps({"run": run}), flush=True)
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    workers = [
        context.Process(
            target=work, args=(device, asked[i % len(asked)], f"{run}-{i}", until, told)
        )
        for i in range(int(processes))
    ]
    for worker in workers:
        worker.start()
    counts: dict[str, int] = {}
    alarms: list[object] = []
    running = len(workers)
    # Each seed is told when it is through: one that never ends costs itself only.
    with contextlib.suppress(queue.Empty):
        while running:
            name, refused = told.get(timeout=max(1.0, until + 120 - time.monotonic()))
            if name:
                print(json.dumps([name, refused]), flush=True)
                alarms += refused
                counts[name] = counts.get(name, 0) + 1
            else:
                running -= 1
    for worker in workers:
        worker.terminate()
    print(json.dumps({"seeds": counts, "alarms in all": len(alarms)}))
    return 0


def work(device: str, asked: str, run: str, until: float, told: Any) -> None:
    """One process keeps one session and setting: some can be set only once."""
    if given := os.environ.get("CUDA_VISIBLE_DEVICES"):
        gpus = given.split(",")
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[int(run.rpartition("-")[2]) % len(gpus)]
    setting = asked.partition(":")[2] or "plain"
    if setting in ENVIRONMENT:
        os.environ[ENVIRONMENT[setting][0]] = ENVIRONMENT[setting][1]
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    SETTINGS[setting](torch)
    for number in itertools.count():
        if time.monotonic() > until:
            break
        seed = drawn_seeds(run, number + 1)[-1]
        found = [[asked, seed, *one] for one in _refused(asked, device, seed)]
        if time.monotonic() < until + LATE_SECONDS:
            told.put((asked, found))
    told.put(("", []))


def _refused(name: str, device: str, seed: int) -> Iterator[tuple[str, list[str]]]:
    module, _, function = SESSIONS[name.partition(":")[0]].partition(":")
    record = getattr(importlib.import_module(f"warpfront_checks.{module}"), function)
    claims = Claims(cell="here", target=device, vendor=device, device=device, image=False)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        recorder = Recorder(session=name, target=device, folder=Path(folder))
        importlib.import_module("warpfront_checks.precision").record_full_precision(recorder)
        record(claims, recorder, CheckOptions(seeds=(seed,)))
        recorder.finish()
        document = json.loads(recorder.path.read_text())
    for check in document["checks"]:
        if check["outcome"] not in {"passed", "skipped"}:
            faults = check.get("details", {}).get("faults") or [check["reason"]]
            yield check["name"], [str(fault)[:240] for fault in faults[:SHOWN]]


def _attention_by(torch: Any, kept: str) -> None:
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        switch = getattr(torch.backends.cuda, f"enable_{name}_sdp", None)
        if switch is not None:
            # Without the plain one there is none for what the kept one refuses.
            switch(name in {kept, "math"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
