"""Timings on the CPU: the session's own file, read as a record; work as torch counts it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from warpfront_checks.__main__ import main  # noqa: E402
from warpfront_checks.bench import session  # noqa: E402
from warpfront_checks.bench.options import BenchEffort  # noqa: E402
from warpfront_checks.bench.rounds import BLOCKS, Clock  # noqa: E402
from warpfront_checks.bench.session import EventClock, clock_of  # noqa: E402
from warpfront_checks.bench.timed_cases import (  # noqa: E402
    TINY,
    Decoder,
    TimedCase,
    cases_of,
)
from warpfront_checks.bench.work import training_step, work_of  # noqa: E402
from warpfront_checks.claims import Claims  # noqa: E402
from warpfront_checks.precision import (  # noqa: E402
    precision_settings,
    require_full_precision,
)

ON_CPU = Claims(cell="here", target="cpu", vendor="cpu", device="cpu", image=False)
COUNTED = [case for case in cases_of(TINY) if case.flops and "attention" not in case.op]
SMALL = Decoder(hidden=16, layers=2, heads=2, sequence=8, batch=2, vocabulary=32)


def timed(folder: Path, *options: str, claims: Claims = ON_CPU) -> tuple[int, Any]:
    (folder / "claims.json").write_text(json.dumps(claims.document()))
    where = ("--claims", str(folder / "claims.json"), "--results", str(folder))
    code = main(["bench", *where, *options])
    path = folder / "bench.json"
    return code, json.loads(path.read_text()) if path.exists() else None


class FixedClock(Clock):
    """Repetitions that take 10 ms."""

    def __init__(self) -> None: ...

    def first(self, work: Callable[[], object]) -> float:
        work()
        return 9.0

    def times(self, work: Callable[[], object], repetitions: int) -> list[float]:
        work()
        return [0.01] * repetitions


class FakeBench:
    """A device on which a case named in `broken` fails in the block it is given for."""

    def __init__(self, *, broken: dict[str, tuple[int, Exception]] | None = None) -> None:
        self.clock = FixedClock()
        self.made: list[str] = []
        self._broken = broken or {}

    def make(self, case: TimedCase) -> Callable[[], object]:
        block, error = self._broken.get(case.op, (-1, ValueError()))
        self.made.append(case.op)
        if self.made.count(case.op) == block + 1:
            raise error
        return lambda: None

    def peak(self, dtype: str) -> dict[str, object] | None:
        return {"dtype": dtype}

    def memory_from_here(self) -> None: ...

    def memory_peak(self) -> int:
        return 4096

    def kernel(self, work: Callable[[], object]) -> str:
        work()
        return "a_kernel"


def a_case(op: str, suite: str = "matmul") -> TimedCase:
    return TimedCase(suite, op, (8, 8), "float32", flops=1024)


def test_a_case_that_fails_ends_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """One in its first block, one in its third, one that makes no sense here."""
    broken = {
        "first": (0, RuntimeError("no kernel image\nand more")),
        "third": (2, RuntimeError("lost")),
        "nowhere": (0, LookupError("no device")),
    }
    cases = [a_case(name) for name in ("first", "third", "nowhere", "well")]
    bench: Any = FakeBench(broken=broken)
    found = {one["op"]: one for one in session.time_cases(cases, bench, BenchEffort())}
    assert {op: one["outcome"] for op, one in found.items()} == {
        "first": "error",
        "third": "error",
        "nowhere": "unavailable",
        "well": "timed",
    }
    assert found["first"]["note"] == "RuntimeError: no kernel image"
    assert found["third"]["samples_seconds"] == []
    assert [len(block) for block in found["well"]["samples_seconds"]] == [10] * BLOCKS
    assert (found["well"]["kernel"], found["well"]["memory_peak_bytes"]) == ("a_kernel", 4096)
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_copy_has_no_peak() -> None:
    """What links it to the device is in no table."""
    bench: Any = FakeBench()
    (copy,) = session.time_cases([a_case("h2d_pinned", "memory")], bench, BenchEffort())
    assert copy["peak"] is None


@pytest.mark.process
def test_a_few_cases_of_tiny_become_a_record(tmp_path: Path) -> None:
    pytest.importorskip("pydantic", reason="the host's side of it")
    from warpfront.bench.forms import bench_text
    from warpfront.bench.record_files import bench_document, bench_of, read_records
    from warpfront.bench.records import Bench

    options = ("--preset", "tiny", "--seconds", "0.02", "--cases", "[mhd][me2]*", "--reference")
    code, document = timed(tmp_path, *options)
    assert code == 0
    whose = {"cell_id": "here", "image_digest": "", "content_hash": "", "verified": "passed"}
    whose |= {"target": "cpu", "at": "2026-01-01T00:00:00+00:00"}
    bench = bench_of(document, {**whose, "tool": {}})
    written = bench_document(bench)
    was_timed = [one for one in written["results"] if one["outcome"] == "timed"]
    assert all(one["median_seconds"] > 0 for one in was_timed)
    assert all(one["torch_benchmark_seconds"] > 0 for one in was_timed)
    assert "by torch.utils.benchmark" in bench_text(bench, width=120)
    (read,) = read_records(json.dumps(written))
    assert isinstance(read, Bench)
    assert read == bench
    times = {one.op: one.samples_seconds for one in read.results}
    assert [len(block) >= 4 for block in times["mm"]] == [True] * 5
    assert {one.outcome for one in read.results if one.suite == "memory"} == {"unavailable"}
    assert read.results[0].kernel == "aten::mm"
    (training,) = read.training
    assert len(training.step_seconds) == len(training.losses) == 20
    assert training.losses[-1] < training.losses[0]
    text = bench_text(read, width=120)
    assert "tokens/s, MFU unknown" in text
    assert "unavailable" in text


@pytest.mark.process
def test_a_device_that_is_not_here_is_not_timed_as_the_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if torch.cuda.is_available():
        pytest.skip("a device is here")
    claims = dataclasses.replace(ON_CPU, target="sm_90", vendor="nvidia", device="cuda")
    assert timed(tmp_path, "--preset", "tiny", "--matmul", claims=claims) == (2, None)
    assert "error: " in capsys.readouterr().err


def test_an_option_that_cannot_be_used_ends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        timed(tmp_path, "--dtypes", "float33")
    assert "float33" in capsys.readouterr().err


@pytest.mark.parametrize("case", COUNTED, ids=lambda case: case.id)
def test_formulas_agree_with_torchs_own_counter(case: TimedCase) -> None:
    """Where it counts: of attention it counts nothing on the CPU."""
    work = work_of(case, "cpu")
    with FlopCounterMode(display=False) as counter:
        work()
    assert counter.get_total_flops() == case.flops


def test_a_decoders_formula_is_what_its_products_take() -> None:
    """Without attention, which torch's counter does not see on the CPU."""
    step = training_step(SMALL, "float32", "cpu")
    with FlopCounterMode(display=False) as counter:
        step()
    products = 6 * SMALL.multiplied_parameters * SMALL.tokens_per_step
    assert counter.get_total_flops() == pytest.approx(products, rel=0.01)


def test_both_gives_the_gradients_of_what_needs_them() -> None:
    case = next(one for one in cases_of(TINY) if one.op == "mlp" and one.direction == "both")
    gradients = work_of(case, "cpu")()
    assert isinstance(gradients, tuple)
    assert [tuple(one.shape) for one in gradients] == [(256, 784), (10, 256)]


def test_a_core_that_was_taken_away_names_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a core does so in whatever operation it was, once."""
    seen = iter([{"mm": 5.0, "view": 900.0}, {"mm": 6.0}, {"mm": 700.0, "view": 1.0}])
    device = session.TorchBench("cpu", None, cold=False, tf32=False)
    monkeypatch.setattr(session, "profiled", lambda *_: (next(seen), None))
    assert device.kernel(lambda: None) == "mm"


def test_a_cold_clock_writes_over_the_cache_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpfront_checks.bench.session._CACHE_BYTES", 16)
    seen: list[str] = []
    clock: Any = clock_of("cpu", cold=True)
    spoil = clock._spoil
    assert spoil().numel() == 32
    clock._spoil = lambda: seen.append("written")
    clock.times(lambda: seen.append("worked"), 2)
    assert seen == ["written", "worked"] * 2


class FakeModule:
    """A device of fakes: a kernel takes as long as it is told, and what is launched late waits."""

    def __init__(self) -> None:
        self.slept: list[int] = []
        self.host, self.device = 0.0, 0.0

    def synchronize(self) -> None:
        self.host = max(self.host, self.device)

    def launch(self, seconds: float, *, launching: float) -> None:
        self.host += launching
        self.device = max(self.device, self.host) + seconds

    def _sleep(self, cycles: int) -> None:
        self.slept.append(cycles)
        self.launch(cycles / 1e9, launching=0.0)

    def Event(self, *, enable_timing: bool) -> Any:  # noqa: N802 - torch's name
        module = self

        class Event:
            at = 0.0

            def record(self) -> None:
                assert enable_timing
                module.device = self.at = max(module.device, module.host)

            def elapsed_time(self, end: Event) -> float:
                return 1000 * (end.at - self.at)

        return Event()


def test_a_kernel_shorter_than_its_launch_takes_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """5 us of work, 30 us to launch it: without a head start, the clock would tell the host's."""
    module = FakeModule()
    monkeypatch.setattr("time.perf_counter", lambda: module.host)

    def work() -> None:
        module.launch(5e-6, launching=30e-6)

    alone = EventClock(module, None, None).times(work, 20)
    ahead = EventClock(module, None, session._waiting(module)).times(work, 20)
    assert min(alone) == pytest.approx(30e-6)
    assert max(ahead) == pytest.approx(5e-6)
    assert module.slept[-1] == pytest.approx(60_000, rel=0.01)


def test_tf32_is_allowed_only_where_it_is_asked_for() -> None:
    require_full_precision()
    before = precision_settings()
    require_full_precision(products="tf32")
    try:
        assert precision_settings() != before
    finally:
        require_full_precision()
    assert precision_settings() == before
