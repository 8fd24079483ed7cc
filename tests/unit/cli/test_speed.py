"""bench: what read-log, compare, watch and compare-stacks print, write and exit with."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from log_samples import VLLM_SERVING
from series import noisy
from training_logs import nemo_line, primus_log, tensorprimat

from warpfront.cli.program import run
from warpfront.errors import (
    USAGE_EXIT_CODE,
    CommandFailedError,
    InputError,
    NotComparableError,
    SlowerError,
    UndeterminedError,
)

GIVEN = tuple(
    f"--fact={fact}" for fact in ("gpus=8", "sequence=8192", "precision=bf16", "model=llama3-8b")
)


def code_of(*arguments: object) -> int:
    """Return the exit code of a command line."""
    return run(list(map(str, arguments)))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """`base`, `same` and `slow`, of one training; `other` of another."""
    said = "  bf16 ............ True\n  seq_length ............ 4096\n  num_layers ........... 27\n"
    named = "[rank-0/8][INFO] : model : llama.yaml (str)\n"
    for name, seed, level in (("base", 1, 1.0), ("same", 3, 1.0), ("slow", 2, 1.2)):
        times = noisy(30, seed, level)
        (tmp_path / f"{name}.log").write_text(said + named + primus_log(times))
    (tmp_path / "other.log").write_text(named + primus_log(noisy(30, 1)))
    return tmp_path


def test_read_log_says_what_a_log_says(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("bench", "read-log", logs / "base.log") == 0
    said = capsys.readouterr().out
    assert "base.log: primus" in said
    assert "30 in 30 lines, 0 dropped" in said
    assert "not said      device_name, nodes" in said


def test_what_a_log_leaves_out_can_be_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nemo.log"
    path.write_text("".join(f"{nemo_line(n, '6.0')}\n" for n in range(12)))
    assert code_of("bench", "read-log", path, *GIVEN, "--json", "--out", tmp_path / "run.json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((tmp_path / "run.json").read_text())
    assert (document["sequence"], document["given"]) == (
        8192,
        ["devices", "model", "precision", "sequence"],
    )
    assert document["summary"]["tokens_per_second_per_device"] == pytest.approx(
        128 * 8192 / 6.0 / 8
    )
    assert (document["schema"], document["kind"]) == (1, "Run")


def test_read_log_writes_the_seeds_files(logs: Path) -> None:
    assert code_of("bench", "read-log", logs / "base.log", "--seed-layout", logs / "output") == 0
    assert [path.name for path in (logs / "output").iterdir()] == ["benchmark_rocm_llama.json"]


def test_a_history_too_short_for_a_change_is_not_determined(tmp_path: Path) -> None:
    history = tmp_path / "nights.jsonl"
    history.write_text("")
    assert code_of("bench", "watch", history) == UndeterminedError.exit_code
    assert code_of("bench", "watch", history, "--allow-undetermined") == 0


@pytest.mark.parametrize(
    "wrong", [["--fact", "gpus=-8"], ["--fact", "gpus=0"], ["--format", "none"]]
)
def test_what_cannot_be_given_is_an_input_error(logs: Path, wrong: list[str]) -> None:
    assert code_of("bench", "read-log", logs / "base.log", *wrong) == InputError.exit_code


def test_no_log_is_an_input_error(tmp_path: Path) -> None:
    assert code_of("bench", "read-log", tmp_path / "none.log") == InputError.exit_code


def test_compare_says_no_difference_and_exits_with_zero(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = logs / "base.log", logs / "same.log"
    markdown, out = logs / "c.md", logs / "c.json"
    assert code_of("bench", "compare", a, b, "--markdown", markdown, "--out", out, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "no difference"
    assert document == json.loads(out.read_text())
    assert markdown.read_text().startswith("**no difference between A")


@pytest.mark.parametrize(
    ("a", "b", "more", "code"),
    [
        ("base", "slow", (), 0),
        ("base", "slow", ("--max-slower", "5%"), SlowerError.exit_code),
        ("base", "slow", ("--max-slower", "0.3"), 0),
        ("slow", "base", ("--max-slower", "5%"), 0),
        ("base", "other", (), NotComparableError.exit_code),
        ("base", "other", ("--allow", "precision"), 0),
        ("base", "same", ("--max-slower", "a lot"), InputError.exit_code),
        ("base", "slow", ("--max-slower", ""), InputError.exit_code),  # a variable that is not set
        ("base", "same", ("--max-slower", "-5%"), InputError.exit_code),
        ("base", "same", ("--max-slower=-5%",), InputError.exit_code),
        ("base", "same", ("--allow",), USAGE_EXIT_CODE),
        ("base", "same", ("--allow", "everything"), InputError.exit_code),
        ("base", "same", ("--metric", "beauty"), InputError.exit_code),
    ],
)
def test_each_outcome_of_compare_has_its_exit_code(
    logs: Path, a: str, b: str, more: tuple[str, ...], code: int
) -> None:
    assert code_of("bench", "compare", logs / f"{a}.log", logs / f"{b}.log", *more) == code


def test_serving_benchmarks_have_their_exit_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other, unlike = (tmp_path / f"{name}.txt" for name in ("one", "other", "unlike"))
    one.write_text(VLLM_SERVING)
    other.write_text(VLLM_SERVING.replace("512.00", "256.00").replace("154.82", "309.64"))
    unlike.write_text(VLLM_SERVING.replace("15.0", "20.0"))
    assert code_of("bench", "compare", one, other) == UndeterminedError.exit_code
    assert "ttft_mean           2.000" in capsys.readouterr().out
    assert code_of("bench", "compare", one, other, "--allow-undetermined") == 0
    assert code_of("bench", "compare", one, unlike) == NotComparableError.exit_code
    training = tmp_path / "training.log"
    training.write_text(primus_log(noisy(30, 1)))
    assert code_of("bench", "compare", one, training) == NotComparableError.exit_code


def test_losses_that_one_side_lacks_are_a_sentence_and_with_same_training_a_refusal(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = logs / "bare.log"
    bare.write_text((logs / "same.log").read_text().replace("lm loss", "other thing"))
    assert code_of("bench", "compare", logs / "base.log", bare) == 0
    assert "losses not compared: B has none" in capsys.readouterr().out
    code = code_of("bench", "compare", logs / "base.log", bare, "--same-training")
    assert code == NotComparableError.exit_code


def test_the_verdicts_exit_code_stands_without_the_extra_for_charts(
    logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    a, b, page = logs / "base.log", logs / "slow.log", logs / "page.html"
    code = code_of("bench", "compare", a, b, "--max-slower", "5%", "--page", page)
    assert code == SlowerError.exit_code
    said = capsys.readouterr()
    assert "B is slower than allowed: B takes 1." in said.err
    assert "no charts: matplotlib" in said.err
    assert "differ" in page.read_text()
    assert (
        code_of("bench", "compare", a, logs / "same.log", "--page", page)
        == CommandFailedError.exit_code
    )


def test_compare_stacks_takes_the_seeds_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for stack, level in (("cuda", 1.0), ("rocm", 1.5)):
        text = tensorprimat(noisy(30, 1, level), software_stack=stack)
        (tmp_path / f"benchmark_{stack}_llama.json").write_text(text)
    assert code_of("compare-stacks", "--folder", tmp_path) == NotComparableError.exit_code
    assert code_of("compare-stacks", "--folder", tmp_path, "--allow", "precision") == 0
    assert "cuda llama" in capsys.readouterr().out
    alone = tensorprimat(noisy(30, 1, 1.0), software_stack="cuda")
    (tmp_path / "benchmark_cuda_qwen.json").write_text(alone)
    words = ("compare-stacks", "--folder", tmp_path, "--allow", "precision")
    assert code_of(*words) == UndeterminedError.exit_code
    assert "qwen: on one of CUDA and ROCm only" in capsys.readouterr().err
    assert code_of(*words, "--allow-undetermined") == 0


def a_bench_of(folder: Path, night: int, seconds: float) -> Path:
    """A record as `bench` leaves one."""
    document = {
        "schema": 1, "kind": "Bench", "cell_id": "cell", "image_digest": f"sha256:{night}",
        "content_hash": "", "verified": "passed", "target": "sm_90", "at": f"night {night:02}",
        "tool": {}, "environment": {"device_name": "H100"}, "settings": {},
        "results": [{
            "id": "mm", "suite": "matmul", "op": "mm", "shape": "512", "dtype": "float32",
            "direction": "forward", "outcome": "passed", "samples_seconds": [[seconds]],
        }],
    }  # fmt: skip
    path = folder / f"bench-{night:02}.json"
    path.write_text(json.dumps(document))
    return path


def test_nights_name_what_became_slower_for_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history" / "nights.jsonl"
    assert code_of("bench", "watch", history) == InputError.exit_code
    times = [*noisy(8, 1), *noisy(6, 2, 1.1)]
    records = [a_bench_of(tmp_path, night, seconds) for night, seconds in enumerate(times)]
    assert code_of("bench", "watch", history, "--add", ",".join(map(str, records[:-1]))) == 0
    with history.open("a") as stream:
        stream.write('{"schema": 1, "at')  # a disk that was full
    assert code_of("bench", "watch", history, "--add", records[-1], "--max-slower", "20%") == 0
    said = capsys.readouterr()
    assert "mm: 1.1" in said.out
    assert "since night 08" in said.out
    assert "left out 1 line of no night" in said.err
    assert len(history.read_text().splitlines()) == 15
    assert code_of("bench", "watch", history, "--max-slower", "5%") == SlowerError.exit_code
    capsys.readouterr()
    assert code_of("bench", "watch", history, "--json") == 0
    (shift,) = json.loads(capsys.readouterr().out)
    assert (shift["case"], shift["at"]) == ("mm", "night 08")
    assert code_of("bench", "watch", history, "--add", tmp_path / "none") == InputError.exit_code


def test_a_run_goes_to_madengines_table_and_comes_back(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = logs / "perf.csv"
    assert code_of("bench", "read-log", logs / "base.log", "--perf-csv", table) == 0
    assert code_of("bench", "read-log", table, "--json") == 0
    run = json.loads(capsys.readouterr().out.partition("\n{")[2].join(("{", "")))
    assert run["source"]["format"] == "madengine"
    assert run["devices"] == 8
    assert run["steps"][0]["tokens_per_second_per_device"] or run["steps"][0]["seconds"]
