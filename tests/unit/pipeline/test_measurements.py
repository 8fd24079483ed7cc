"""Files to runs and comparisons: what a name stands for, what is refused, what is written."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from series import noisy
from training_logs import (
    a_run,
    megatron_line,
    nemo_line,
    primus_line,
    primus_log,
    tensorprimat,
)

from warpfront.bench.compare import ComparisonTerms
from warpfront.bench.record_files import bench_document
from warpfront.bench.records import Bench, ComparisonOutcome, Run
from warpfront.cli.display import Display
from warpfront.commands import measurements as measuring_module
from warpfront.commands.measurements import (
    compare_layout,
    compare_sides,
    files_of,
    read_all,
    read_any,
    read_side,
    write_layout,
)
from warpfront.errors import InputError, NotComparableError


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(primus_log([60.0, *noisy(20, 1)]).encode()))
    return path


def read(path: Path, **given: object) -> list[Run]:
    return read_all(str(path), Display(io.StringIO()), given=given)


def test_a_packed_log_is_read_and_its_source_is_kept(log: Path) -> None:
    (run,) = read(log)
    assert (len(run.steps), run.source.format) == (21, "primus")
    assert run.source.size_bytes == log.stat().st_size
    assert "42 of primus's lines, line 1: [20260511 03:00:00][rank-7/8]" in run.source.evidence


def test_a_long_log_shows_how_far_it_is_read_and_a_short_one_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    watch = Display(io.StringIO())
    monkeypatch.setattr(watch, "advance", lambda _, done, total: seen.append((done, total)))
    path = tmp_path / "train.log"
    path.write_text(primus_log(noisy(20, 1)))
    read_all(str(path), watch)
    assert not seen
    monkeypatch.setattr(measuring_module, "_LINES_BETWEEN_REPORTS", 10)
    read_all(str(path), watch)
    size = path.stat().st_size
    assert [total for _, total in seen] == [size] * 5
    assert [done for done, _ in seen] == sorted({done for done, _ in seen if done <= size})
    assert seen[-1] == (size, size)


def test_a_log_that_begins_with_a_bracket_is_not_read_whole(tmp_path: Path) -> None:
    """Sixty megabytes of it would be held at once, to find that it is no JSON."""
    path = tmp_path / "train.log"
    path.write_text("[2026-11-01 03:09:43] hello\n")
    assert measuring_module._document(path) is None
    for text in ('{"kind": 1}', ' [\n {"kind": 1}]', "[]"):
        path.write_text(text)
        assert measuring_module._document(path) == text


def test_a_name_is_a_file_several_a_folder_or_a_glob(tmp_path: Path) -> None:
    for name in ("b.log", "a.log", "c.txt"):
        (tmp_path / name).write_text("")
    names = ("a.log", "b.log", "c.txt")
    both = f"{tmp_path}/a.log,{tmp_path}/c.txt"
    assert [path.name for path in files_of(str(tmp_path))] == list(names)
    assert [path.name for path in files_of(f"{tmp_path}/*.log")] == ["a.log", "b.log"]
    assert [path.name for path in files_of(both)] == ["a.log", "c.txt"]
    with pytest.raises(InputError, match="names no file"):
        files_of(f"{tmp_path}/*.none")


def test_what_is_no_log_is_refused_with_the_lines_that_look_nearly_right(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("hello\n" * 3 + "step 4 took 3 s, loss 2\n")
    with pytest.raises(InputError) as caught:
        read(path)
    assert "no line of any known format" in caught.value.message
    assert "4: step 4 took 3 s" in caught.value.hint


def test_a_format_that_is_named_is_taken_and_an_unknown_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(megatron_line(1, 5.0) + "\n" + nemo_line(2, "6.0") + "\n")
    assert read_all(str(path), Display(io.StringIO()), form="nemo")[0].steps[0].seconds == 6.0
    with pytest.raises(InputError, match="unknown"):
        read_all(str(path), Display(io.StringIO()), form="none")
    with pytest.raises(InputError, match="no step with a time in what torchtitan writes"):
        read_all(str(path), Display(io.StringIO()), form="torchtitan")


def test_in_a_folder_what_is_no_log_is_named_and_left_out(log: Path) -> None:
    (log.parent / "README").write_text("hello\n")
    said = io.StringIO()
    assert len(read_all(str(log.parent), Display(said))) == 1
    assert "README: no line of any known format" in said.getvalue()


def test_runs_that_are_mixed_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    lines = [megatron_line(n, ms) for n in range(1, 20) for ms in (1000.0, 1500.0)]
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(InputError, match="are mixed"):
        read(path)


def test_a_record_of_ours_is_read_again(log: Path, tmp_path: Path) -> None:
    from warpfront.bench.record_files import run_document
    from warpfront.bench.settling import summary_of
    from warpfront.system.store import write_json

    (run,) = read(log)
    write_json(tmp_path / "run.json", run_document(run, summary_of(run)))
    assert read(tmp_path / "run.json") == [run]
    (tmp_path / "run.json").write_text('{"kind": "Run", "schema": 99}')
    with pytest.raises(InputError, match="no record of this version"):
        read(tmp_path / "run.json")


def test_the_seeds_layout_is_written_and_read_and_compared(tmp_path: Path) -> None:
    runs = [
        a_run(noisy(30, seed, level), vendor=vendor, precision=None)
        for seed, level, vendor in ((1, 1.0, "nvidia"), (2, 1.2, "amd"), (3, 1.2, "amd"))
    ]
    written = [path.name for path in write_layout(runs, tmp_path)]
    assert written == [
        "benchmark_cuda_llama.json",
        "benchmark_rocm_llama.json",
        "benchmark_rocm_llama-2.json",
    ]
    (tmp_path / written[2]).unlink()
    document = json.loads((tmp_path / written[0]).read_text())
    assert document["performance_metrics"]["total_steps"] == 30
    assert "gpu_cores" not in document["gpu_info"]
    (back,) = read(tmp_path / written[0])
    assert [step.seconds for step in back.steps] == [step.seconds for step in runs[0].steps]
    (found,), unpaired = compare_layout(
        tmp_path, ComparisonTerms(allowed=("precision",)), Display(io.StringIO())
    )
    assert unpaired == []
    assert (found.a.name, found.b.name, found.verdict) == (
        "cuda llama",
        "rocm llama",
        ComparisonOutcome.DIFFERENCE,
    )
    (tmp_path / written[1]).unlink()
    with pytest.raises(NotComparableError, match="both CUDA and ROCm"):
        compare_layout(tmp_path, ComparisonTerms(), Display(io.StringIO()))


def test_a_bench_is_not_held_against_a_training(log: Path, tmp_path: Path) -> None:
    bench = Bench(
        cell_id="c", image_digest="", content_hash="", verified="", target="", at="", tool={},
        environment={}, settings={},
    )  # fmt: skip
    (tmp_path / "bench.json").write_text(json.dumps(bench_document(bench)))
    assert read_any(str(tmp_path / "bench.json"), Display(io.StringIO())) == [bench]
    one, other = (read_side(str(p), Display(io.StringIO())) for p in (log, tmp_path / "bench.json"))
    with pytest.raises(NotComparableError, match="measurements of two kinds"):
        compare_sides(("a", one), ("b", other), ComparisonTerms())


@pytest.mark.parametrize(
    "content",
    [
        b"\x00" * 100_000,
        b"\xff" * 100_000,
        b"{" * 100_000,
        b"[" * 100_000 + b"\n",
        b'{"step_times": ' + b"[" * 50_000,
        b'{"step_times": [1e999, NaN, -1, 0, null, "x", true]}',
        b'{"kind": "Run", "schema": 1, "steps": 3}',
        b"model,performance,metric\n" + b'"' * 50_000,
        b"model,performance,metric\n" + b"x," * 200_000,
        b"",
    ],
    ids=range(10),
)
def test_a_hostile_file_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(path)
    assert caught.value.message.isprintable()


def test_clocks_and_numbers_beyond_all_bounds_give_no_step(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    odd = ("1e999", "nan", "-3.0", "0", "inf", "")
    lines = [megatron_line(1, 5.0), *(megatron_line(n, value) for n, value in enumerate(odd, 2))]
    path.write_text("".join(f"{line}\n" for line in lines))
    (run,) = read(path)
    assert [step.step for step in run.steps] == [1]


# Its own peak (VmHWM): getrusage's is that of the process that started it, too.
CHILD = """
import json, re, sys
from warpfront.cli.display import Display
from warpfront.commands.measurements import read_all
(run,) = read_all(sys.argv[1], Display())
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())
print(json.dumps([sum(step.steps for step in run.steps), int(peak[1]) / 1024]))
"""


@pytest.mark.exhaustive
@pytest.mark.process
def test_a_log_of_a_gigabyte_is_read_in_less_than_100_mib(tmp_path: Path) -> None:
    path = tmp_path / "big.log"
    steps, written = 0, 0
    with path.open("w") as file:
        while written < 2**30:
            steps += 1
            line = primus_line(steps, 1000.0 + steps % 7)
            written += file.write(f"{line}\n" * 2 + "nothing of note\n" * 40)
    argv = [sys.executable, "-c", CHILD, str(path)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=True)
    counted, peak = json.loads(ended.stdout)
    assert counted == steps
    assert 10 < peak < 100, peak


def test_a_folder_of_tensorprimat_is_known_by_its_names(tmp_path: Path) -> None:
    (tmp_path / "benchmark_rocm_llama.json").write_text(tensorprimat([1.0] * 12))
    (run,) = read(tmp_path)
    assert run.model == "llama"
