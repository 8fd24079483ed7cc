"""Timing without a device: a clock of fakes, formulas against hand-worked numbers, peaks, noise."""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from warpfront_checks.bench import options as asking
from warpfront_checks.bench import rounds, state, timed_cases
from warpfront_checks.bench.options import BenchEffort
from warpfront_checks.bench.rounds import (
    BLOCKS,
    Clock,
    repetitions_of_a_block,
    rotated,
    warm_up,
)
from warpfront_checks.bench.timed_cases import (
    PRESETS,
    SEED,
    SUITES,
    TINY,
    Decoder,
    Preset,
    cases_of,
    chosen,
)
from warpfront_checks.check_options import add_options, parsed
from warpfront_checks.hardware.machine_reader import Machine, ProgramOutput
from warpfront_checks.hardware.nvml import read_nvml_state

FOLDER = Path(asking.__file__).parent
GIB = 2**30
H100 = ("sm_90", "NVIDIA H100 80GB HBM3", 79 * GIB)


class FakeClock(Clock):
    """Answers what it was told that repetitions take; the last answer again and again."""

    def __init__(self, *seconds: float, first: float = 9.0) -> None:
        self._seconds, self._first, self.asked = list(seconds), first, 0

    def first(self, work: Callable[[], object]) -> float:
        work()
        return self._first

    def times(self, work: Callable[[], object], repetitions: int) -> list[float]:
        work()
        self.asked += repetitions
        return [
            self._seconds.pop(0) if len(self._seconds) > 1 else self._seconds[0]
            for _ in range(repetitions)
        ]


def nothing() -> None: ...


def test_warming_up_ends_when_the_median_is_still() -> None:
    """After five slow repetitions, once both windows of five are fast by their medians."""
    clock = FakeClock(*[0.02] * 5, 0.01)
    first, times, settled = warm_up(clock, nothing, BenchEffort(seconds=100))
    assert (len(times), median(times[-5:]), settled) == (13, 0.01, True)
    assert first == 9.0


def test_warming_up_takes_a_quarter_of_the_budget_at_most_but_three_at_least() -> None:
    falling = [1.0 / (n + 1) for n in range(100)]
    _, times, settled = warm_up(FakeClock(*falling), nothing, BenchEffort(seconds=8))
    assert (len(times), settled) == (4, False)  # 1 + 1/2 + 1/3 + 1/4 > 2
    assert len(warm_up(FakeClock(50.0), nothing, BenchEffort(seconds=1))[1]) == 3


def test_a_fixed_warm_up_is_done_as_asked() -> None:
    clock = FakeClock(0.5)
    assert len(warm_up(clock, nothing, BenchEffort(warmup=20))[1]) == 20
    assert clock.asked == 20


@pytest.mark.parametrize(
    ("budget", "seconds", "count"),
    [
        (BenchEffort(seconds=0.5), 0.01, 10),  # a fifth of the budget
        (BenchEffort(seconds=0.5), 3.0, 4),  # 20 in five blocks, however long it takes
        (BenchEffort(seconds=0.5), 1e-6, 100),
        (BenchEffort(seconds=0.5), 0.0, 100),
        (BenchEffort(iterations=200), 1.0, 40),
    ],
)
def test_repetitions_fit_the_budget(budget: BenchEffort, seconds: float, count: int) -> None:
    assert repetitions_of_a_block(budget, seconds) == count


def test_every_block_begins_elsewhere_and_holds_every_case() -> None:
    orders = [list(rotated("abcdefghij", block)) for block in range(BLOCKS)]
    assert [order[0] for order in orders] == ["a", "c", "e", "g", "i"]
    assert all(sorted(order) == sorted("abcdefghij") for order in orders)


@pytest.mark.parametrize(
    ("counted", "by_hand"),
    [
        (timed_cases.gemm_flops(8192, 8192, 8192), 1_099_511_627_776),
        (timed_cases.gemm_flops(128, 128, 128, batch=64), 268_435_456),
        # 32 pictures, 64 channels of 112 x 112 out, 3 x 7 x 7 in: 2*32*64*12544*147
        (timed_cases.convolution_work((32, 3, 224, 64, 7, 2))[0], 7_552_892_928),
        # 2 pictures of 3 x 8 x 8 to 5 x 8 x 8, by 5 x 3 kernels of 3 x 3
        (timed_cases.convolution_work((2, 3, 8, 5, 3, 1))[1], 2 * (3 + 5) * 64 + 5 * 3 * 9),
        (timed_cases.attention_flops(8, 512, 512), 4_294_967_296),
        (timed_cases.mlp_flops(64, (784, 256, 10)), 2 * 64 * (784 * 256 + 256 * 10)),
    ],
)
def test_work_is_what_it_is_by_hand(counted: int, by_hand: int) -> None:
    assert counted == by_hand


def test_a_decoder_counts_six_for_each_parameter_and_its_causal_attention() -> None:
    shape = Decoder(hidden=8, layers=2, heads=2, sequence=16, batch=4, vocabulary=32)
    assert shape.multiplied_parameters == 2 * 12 * 64 + 8 * 32 == 1792
    assert shape.model_flops_per_token == 6 * 1792 + 6 * 2 * 8 * 16
    assert shape.tokens_per_step == 64


def test_the_seeds_shapes_are_all_there() -> None:
    counts = dict.fromkeys(SUITES, 0)
    for case in cases_of(SEED, ("float32",)):
        counts[case.suite] += 1
    assert counts == {
        "matmul": 7 + 5,
        "conv": 2 * 8,
        "activations": 3 * 5 + 4,
        "reductions": 8,
        "elementwise": 3,
        "memory": 4 * 6,
        "pooling": 4,
        "batchnorm": 5,
        "mlp": 2 * 3,
        "attention": 4 * 4,
        "train": 0,
    }


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_ids_name_one_case_each(preset: Preset) -> None:
    ids = [case.id for case in cases_of(preset)]
    assert len(set(ids)) == len(ids)


def test_cases_are_chosen_by_suite_and_by_glob() -> None:
    cases = cases_of(TINY, ("float32", "bfloat16"))
    assert {case.suite for case in chosen(cases, ("conv", "mlp"), "")} == {"conv", "mlp"}
    assert {case.dtype for case in chosen(cases, (), "*/bfloat16/*")} == {"bfloat16"}
    assert chosen(cases, ("conv",), "mm/*") == ()


def test_options_come_back_from_a_command_line_as_they_were() -> None:
    defaults = {one.name: one.default for one in asking.BENCH_OPTIONS}
    said = {
        "preset": "seed",
        "dtypes": "float32,bfloat16",
        "iterations": "200",
        "warmup": "20",
        "conv": True,
        "cold": True,
    }
    effort = asking.read_bench_effort(**{**defaults, **said})
    assert (effort.suites, effort.iterations) == (("conv",), 200)
    parser = argparse.ArgumentParser()
    add_options(parser, asking.BENCH_OPTIONS)
    assert (
        parsed(
            parser.parse_args(effort.arguments()), asking.BENCH_OPTIONS, asking.read_bench_effort
        )
        == effort
    )
    assert asking.read_bench_effort(**{**defaults, "all": True, "conv": True}).suites == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("preset", "huge"),
        ("dtypes", "float33"),
        ("seconds", "soon"),
        ("seconds", "nan"),
        ("iterations", "-3"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(name: str, text: str) -> None:
    defaults = {one.name: one.default for one in asking.BENCH_OPTIONS}
    with pytest.raises(ValueError, match=name):
        asking.read_bench_effort(**{**defaults, name: text})


@pytest.mark.parametrize(
    ("arch", "name", "memory", "flops"),
    [
        (*H100, 989.4e12),
        ("sm_90", "NVIDIA H200", 140 * GIB, 989.4e12),
        ("gfx942", "AMD Instinct MI300X", 191.98 * GIB, 1307.4e12),
        ("gfx90a", "AMD Instinct MI250X", 64 * GIB, 191.5e12),
    ],
)
def test_a_known_device_has_its_dense_peak(
    arch: str, name: str, memory: float, flops: float
) -> None:
    peak = rounds.peak_of(arch, name, int(memory), "bfloat16")
    assert peak is not None
    assert (peak["flop_per_second"], peak["dense"]) == (flops, True)


@pytest.mark.parametrize(
    ("arch", "name", "memory"),
    [
        ("sm_90", "NVIDIA H100", 79 * GIB),  # part of a name
        ("sm_90", "NVIDIA GH200 480GB", 95 * GIB),
        ("sm_80", "NVIDIA H100 80GB HBM3", 79 * GIB),
        ("sm_90", "NVIDIA H100 80GB HBM3", 20 * GIB),  # a slice of one
        ("gfx942", "AMD Instinct MI300X", 256 * GIB),
        ("gfx942", "", 192 * GIB),
    ],
)
def test_an_unknown_device_has_no_peak(arch: str, name: str, memory: int) -> None:
    assert rounds.peak_of(arch, name, memory, "bfloat16") is None


def test_a_peak_is_of_one_dtype() -> None:
    assert rounds.peak_of(*H100, "tf32") != rounds.peak_of(*H100, "float32")
    eighth = rounds.peak_of(*H100, "float8_e4m3fn")
    assert eighth is not None
    assert eighth["flop_per_second"] is None


def test_every_row_of_the_peaks_names_its_source() -> None:
    rows = rounds.peak_table()["rows"]
    assert all(row["source"] and row["names"] for row in rows)
    seen = [(row["arch"], name, *row["memory_gib"]) for row in rows for name in row["names"]]
    assert len(set(seen)) == len(seen)
    for row in rows:
        known = [row["flop_per_second"][one] for one in ("float32", "tf32", "bfloat16")]
        assert all(a <= b for a, b in pairwise(one for one in known if one)), row["names"]


class FakeMachine(Machine):
    """Files and one program's answer."""

    def __init__(self, files: dict[str, str] | None = None, said: str = "") -> None:
        self._files, self._said = files or {}, said
        self.environment = {}

    def text(self, path: str) -> str | None:
        return self._files.get(path)

    def names(self, path: str) -> tuple[str, ...]:
        below = (one[len(path) + 1 :] for one in self._files if one.startswith(f"{path}/"))
        return tuple(sorted({one.partition("/")[0] for one in below}))

    def access(self, path: str) -> bool | None:
        return path in self._files or None

    def run(self, argv: tuple[str, ...]) -> ProgramOutput:
        return ProgramOutput(status=0 if argv else None, output=self._said)


def test_an_amd_devices_state_is_read_from_sysfs() -> None:
    folder = "/sys/bus/pci/devices/0000:c1:00.0"
    machine = FakeMachine(
        {
            f"{folder}/gpu_busy_percent": "97\n",
            f"{folder}/hwmon/hwmon3/power1_average": "412000000\n",
            f"{folder}/hwmon/hwmon3/freq1_input": "2100000000\n",
            f"{folder}/hwmon/hwmon3/temp1_input": "48000\n",
        }
    )
    found = state.read_state(machine, "cuda", "0000:c1:00.0", "")
    assert found["power_watts"] == pytest.approx(412)
    assert found["clock_hertz"] == 2.1e9
    assert found["temperature_celsius"] == 48
    assert "power_limit_watts" not in found
    calm = {"load": 0.0, "cores": 2}
    assert state.noisy({**found, **calm}, calm) == ["the device was 97 % busy before it began"]


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        ({}, {}, 0),
        ({"load": 20.0}, {}, 1),
        ({}, {"load": 20.0}, 0),  # that was us
        ({"processes": 1}, {"processes": 1}, 0),
        ({"processes": 2}, {}, 1),
        ({}, {"clocks_event_reasons": 0x04}, 0),  # the power cap is as it is
        ({}, {"clocks_event_reasons": 0x01 | 0x40}, 1),
    ],
)
def test_a_busy_or_throttled_device_is_noisy(
    before: dict[str, Any], after: dict[str, Any], reasons: int
) -> None:
    calm = {"load": 0.5, "cores": 2}
    assert len(state.noisy({**calm, **before}, {**calm, **after})) == reasons


class FakeNvml:
    """As much of NVML as is asked; power is not told."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        answers = {
            "nvmlDeviceGetClockInfo": 1980,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetTemperature": 41,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x20,
        }

        def call(*arguments: Any) -> int:
            if name == "nvmlDeviceGetPowerUsage":
                return 3
            if name == "nvmlDeviceGetComputeRunningProcesses_v3":
                arguments[1]._obj.value = 2
                return 7
            if name in answers:
                arguments[-1]._obj.value = answers[name]
            return 0

        return call


def test_an_nvidia_devices_state_is_what_nvml_tells() -> None:
    told = read_nvml_state(FakeNvml(), "GPU-1")
    assert told == {
        "clock_hertz": 1.98e9,
        "memory_clock_hertz": 1.98e9,
        "power_limit_watts": 700,
        "temperature_celsius": 41,
        "clocks_event_reasons": 0x20,
        "processes": 2,
    }
    found = state.read_state(FakeMachine(said=json.dumps(told)), "cuda", "", "GPU-1")
    calm = {"load": 0.0, "cores": 2}
    assert len(state.noisy({**found, **calm}, calm)) == 2


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_what_times_inside_parses_on_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))


class LostNvml(FakeNvml):
    """It knows no such UUID, and holds so many devices."""

    def __init__(self, devices: int) -> None:
        self._devices = devices

    def __getattr__(self, name: str) -> Callable[..., int]:
        def count(answer: Any) -> int:
            answer._obj.value = self._devices
            return 0

        if name == "nvmlDeviceGetHandleByUUID":
            return lambda *_: 6
        return count if name == "nvmlDeviceGetCount_v2" else super().__getattr__(name)


def test_a_device_that_is_not_found_by_its_uuid_is_the_only_one_or_none() -> None:
    assert read_nvml_state(LostNvml(1), "GPU-1")["temperature_celsius"] == 41
    with pytest.raises(OSError, match=r"2 devices, and none is GPU-1 \(NVML's 6\)"):
        read_nvml_state(LostNvml(2), "GPU-1")


def test_a_state_that_cannot_be_read_says_so() -> None:
    assert state.read_state(FakeMachine(), "cuda", "", "")["unread"] == "NVML said nothing"
