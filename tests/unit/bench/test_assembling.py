"""Lines to a run: duplicates, restarts, ranks, mixed runs, and logs that are damaged."""

from __future__ import annotations

import math
import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import SAMPLES
from training_logs import (
    PERF_CSV,
    SOURCE,
    TITAN_SETTINGS,
    amd_mllog,
    megatron_line,
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

from warpfront.bench.logs import FORMATS
from warpfront.bench.logs import assembling as gathering_module
from warpfront.bench.logs.assembling import Reading, RunAssembler
from warpfront.bench.logs.declared import read_declaration
from warpfront.bench.logs.facts import LoggedStep
from warpfront.bench.records import Run, Step
from warpfront.bench.settling import summary_of

WHOLE = {
    "primus": primus_log([78.0, 55.0, 32.1, 32.2]),
    "megatron": "".join(f"{megatron_line(n, 3000.0 + n)}\n" for n in range(1, 7)),
    "nemo": "".join(f"{nemo_line(n, 6.0 + n / 100)}\n" for n in range(6)),
    "nemo's bar": "".join(f"{nemo_bar(n, 6.0 + n / 100)}\n" for n in range(6)),
    "torchtitan": TITAN_SETTINGS
    + "".join(f"{titan_line(n, f'9,{900 + n}')}\n" for n in range(10, 60, 10)),
    "mllog amd": amd_mllog(600.0),
    "mllog nvidia": nvidia_mllog(500.0),
    "tensorprimat": tensorprimat([3.0, 2.5, 2.25], [9.0, 8.0, 7.0]),
    "madengine": PERF_CSV,
    **{name: text for name, text in SAMPLES.items() if len(text) < 8_000},
}
# A document is whole or nothing; rows of a table and serving benchmarks are runs of their own.
DOCUMENTS = {"tensorprimat", "madengine", "trainer-state", "vllm json"}
# Their lines take the step, or its time, from the line before.
IN_ORDER = {"hf-trainer", "hf quoted", "olmo", "llama-factory", "modded-nanogpt"}


# Per format and law: enough over all of them, ten times as many with --exhaustive.
FEW = settings(max_examples=settings.default.max_examples // 6 if settings.default else 5)


@cache
def whole(name: str) -> tuple[Run, ...]:
    """Return the runs of a log that nothing was done to."""
    return read(WHOLE[name])


def is_usable(run: Run) -> bool:
    return not any(finding.level == "error" for finding in run.findings)


def test_a_step_that_falls_is_a_restart_and_a_new_segment() -> None:
    steps = [1, 2, 3, 4, 5, 3, 4, 5, 6]
    text = "".join(f"{megatron_line(n, 1000.0 + i)}\n" for i, n in enumerate(steps))
    run = read_one(text)
    assert [(step.step, step.segment) for step in run.steps] == [
        *((n, 0) for n in (1, 2, 3, 4, 5)),
        *((n, 1) for n in (3, 4, 5, 6)),
    ]
    assert "a restart at step 3, after 5" in run.findings[0].message


def test_a_run_that_restarts_often_is_still_one_run() -> None:
    lines = [(n, 1000.0 + attempt) for attempt in range(5) for n in range(1 + attempt, 9 + attempt)]
    run = read_one("".join(f"{megatron_line(*one)}\n" for one in lines))
    assert is_usable(run)
    assert {step.segment for step in run.steps} == {0, 1, 2, 3, 4}


def test_a_line_that_is_repeated_late_is_no_restart() -> None:
    order = [1, 2, 3, 2, 4]
    run = read_one("".join(f"{megatron_line(n, 1000.0 + n)}\n" for n in order))
    assert [(step.step, step.segment) for step in run.steps] == [(n, 0) for n in (1, 2, 3, 4)]


def test_two_lines_of_one_step_that_differ_are_a_finding_and_the_first_counts() -> None:
    lines = [(1, 1000.0), (2, 1000.0), (2, 1500.0), (3, 1000.0)]
    run = read_one("".join(f"{megatron_line(*line)}\n" for line in lines))
    assert [step.seconds for step in run.steps] == [1.0, 1.0, 1.0]
    assert "two lines of one step differ" in run.findings[0].message
    assert is_usable(run)


def test_several_ranks_in_one_log_are_one_run() -> None:
    lines = [
        primus_line(step, 1000.0 + rank, rank=rank) for step in range(1, 12) for rank in range(8)
    ]
    run = read_one("".join(f"{line}\n" for line in lines))
    assert [step.seconds for step in run.steps] == [pytest.approx(1.0)] * 11
    assert is_usable(run)
    assert "77 of 88 lines are other ranks'" in run.findings[-1].message


def test_ranks_that_lag_behind_are_no_restart() -> None:
    lines = [primus_line(step, 1000.0, rank=0) for step in range(1, 9)]
    lines += [primus_line(step, 1001.0, rank=1) for step in range(1, 9)]
    run = read_one("".join(f"{line}\n" for line in lines))
    assert len(run.steps) == 8
    assert {step.segment for step in run.steps} == {0}


def test_ranks_without_a_prefix_are_known_by_one_loss_and_nearly_one_time() -> None:
    lines = [titan_line(step, f"9,98{rank}") for step in (10, 20, 30, 40) for rank in range(4)]
    lines[4:6] = reversed(lines[3:5])  # one rank is late
    run = read_one(TITAN_SETTINGS + "".join(f"{line}\n" for line in lines))
    assert is_usable(run)
    assert [(step.step, step.segment) for step in run.steps] == [(n, 0) for n in (10, 20, 30, 40)]
    assert "other ranks'" in run.findings[-1].message


@pytest.mark.parametrize("offset", [0, 100])
def test_two_runs_that_are_mixed_are_refused(offset: int) -> None:
    lines = []
    for step in range(1, 20):
        lines += [megatron_line(step, 1000.0), megatron_line(step + offset, 1500.0)]
    run = read_one("".join(f"{line}\n" for line in lines))
    assert not is_usable(run)
    assert "are mixed" in run.findings[-1].message


def test_a_batch_that_grows_is_said() -> None:
    text = f"{megatron_line(1, 5.0)}\n{megatron_line(2, 5.0, global_batch_size=1792)}\n"
    assert "global batch changes from 896 to 1792" in read_one(text).findings[0].message


def test_a_long_log_is_kept_in_bounded_memory_and_its_median_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gathering_module, "MOST_STEPS", 100)
    gathering = RunAssembler()
    for number in range(1, 501):
        gathering.add(LoggedStep(Step(step=number, seconds=1.0 + number % 7 / 100)), number)
    run = gathering.run(SOURCE, lines=number, given={})
    assert len(run.steps) < 100
    assert sum(step.steps for step in run.steps) == number
    assert "each step is the mean of 8" in run.findings[-1].message
    assert sum(s.seconds * s.steps for s in run.steps if s.seconds) / number == pytest.approx(
        1.03, abs=1e-3
    )


def known_numbers(run: Run) -> list[float]:
    values = [
        (step.seconds, step.tokens_per_second_per_device, step.loss, step.samples_per_second)
        for step in run.steps
    ]
    return [value for several in values for value in several if value is not None]


def facts(runs: tuple[Run, ...]) -> set[tuple[object, ...]]:
    """Steps and their times: of a cut line, a loss may be lost, and of a cut block all but that."""
    return {(s.step, round(s.seconds, 3)) for run in runs for s in run.steps if s.seconds}


@pytest.mark.parametrize("name", WHOLE)
@FEW
@given(data=st.data())
def test_no_cut_of_a_log_gives_a_step_that_the_log_does_not_have(
    name: str, data: st.DataObject
) -> None:
    text = WHOLE[name]
    at = data.draw(st.integers(0, len(text)))
    cut = read(text[:at])
    if name != "madengine":  # its rows are runs of their own
        assert facts(cut) <= facts(whole(name))


# Formats with a line a step, and the form of a further field in it.
FIELD = {
    "megatron": " {}: 5 |",
    "nemo": " | {}: 5",
    "torchtitan": "  {}: 5 ",
    "maxtext": ", {}: 5",
    "torchtune": " {}:5",
    "verl": " - {}:5",
    "nanotron": " | {}: 5",
}
COUNTED = re.compile(
    r"not read: (?!field).*, (\d+) times?|(\d+) of \d+ lines .* a step that is known"
)


def damaged(line: str, how: str) -> str:
    """A line of a step whose last half, or whose figures, are no numbers."""
    head, digits, rest = re.split(r"(\d+)", line, maxsplit=1)
    match how:
        case "cut":
            return (head + digits + rest)[: len(head + digits) + len(rest) // 3]
        case "words":
            return head + digits + re.sub(r"\d[\d.,e+-]*", "many", rest)
        case "place":
            return re.sub(r"(?i)((?:iteration|step)\W*)\d+", r"\1some", line, count=1)
        case _:
            return line


@pytest.mark.parametrize("name", FIELD)
@FEW
@given(data=st.data())
def test_every_line_of_a_step_is_a_step_or_is_counted_and_named(
    name: str, data: st.DataObject
) -> None:
    text = WHOLE.get(name) or SAMPLES[name]
    log_format = FORMATS[name]
    steps = read_declaration(name).step
    ways = st.sampled_from(("", "", "cut", "words", "place"))
    lines = [
        damaged(line, data.draw(ways)) if log_format.marks(line) else line
        for line in text.splitlines()
    ]
    shaped = sum(any(rule.applies(line) and not rule.quiet for rule in steps) for line in lines)
    reading = Reading(log_format, "a.log")
    for number, line in enumerate(lines, 1):
        reading.feed(number, line)
    for run in reading.runs(SOURCE, {}):
        notes = [COUNTED.fullmatch(finding.message) for finding in run.findings]
        counted = sum(int(note[1] or note[2]) for note in notes if note)
        assert len(run.steps) + counted >= shaped


@pytest.mark.parametrize("name", FIELD)
@given(field=st.sampled_from(("moe_tokens", "aux/loss_new", "io/tokens_per_sec")))
def test_a_field_that_looks_measured_and_is_not_read_is_named(name: str, field: str) -> None:
    field = field.replace("/", "_") if name == "torchtitan" else field
    text = WHOLE.get(name) or SAMPLES[name]
    lines = [
        line + FIELD[name].format(field) if FORMATS[name].marks(line) else line
        for line in text.splitlines()
    ]
    (run,) = read("".join(f"{line}\n" for line in lines))
    declaration = read_declaration(name)
    is_named = any(
        finding.message.startswith(f"not read: field {field!r}") for finding in run.findings
    )
    assert is_named == declaration.is_unused(field)
    assert is_named or declaration.ignored is not None


@pytest.mark.parametrize("name", [name for name in WHOLE if name not in DOCUMENTS | IN_ORDER])
@FEW
@given(data=st.data())
def test_no_order_of_lines_gives_a_step_that_the_log_does_not_have(
    name: str, data: st.DataObject
) -> None:
    lines = WHOLE[name].splitlines(keepends=True)
    shuffled = read("".join(data.draw(st.permutations(lines))))
    known = {step.step for run in whole(name) for step in run.steps}
    samples = samples_in(WHOLE[name])
    for run in shuffled:
        summary_of(run)
        numbers = {step.step for step in run.steps}
        assert numbers <= known or name.startswith("mllog")
        assert all(step.samples in samples for step in run.steps if step.samples)


def samples_in(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"\d+", text)}


@pytest.mark.parametrize("name", WHOLE)
@FEW
@given(data=st.data())
def test_no_byte_that_flips_raises_or_makes_a_figure_that_is_none(
    name: str, data: st.DataObject
) -> None:
    content = bytearray(WHOLE[name].encode())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    text = content.decode("utf-8", "replace")
    lines = text.count("\n") + 1
    for run in read(text):
        summary_of(run)
        assert all(map(math.isfinite, known_numbers(run)))
        assert all(step.seconds is None or step.seconds > 0 for step in run.steps)
        assert len(run.steps) <= max(lines, text.count(","))


@pytest.mark.parametrize("name", FORMATS)
@FEW
@given(text=st.text(max_size=300))
def test_no_text_whatever_raises_in_any_reader(name: str, text: str) -> None:
    reading = Reading(FORMATS[name], "a.log")
    reading.feed(1, text)
    reading.feed(2, text, whole=False)
    for run in reading.runs(SOURCE, {}):
        summary_of(run)


HOSTILE = (
    "iteration 1/ 2 | " * 400,
    "a ... " * 2500,
    "x" + " " * 16_000 + "1",
    "step: 1 " * 2000 + "tps: loss:",
    "\x1b[" * 8000,
    "\x1b]" * 8000,
    "a" * 16_000 + " : 1 (int)",
    "local batch size 1, global batch size 1" * 400,
    ":::MLLOG " + "[" * 16_000,
    ':::MLLOG {"key": "global_batch_size", "value": ' + "9" * 5000 + "}",
    "capacity: " * 1600,
    "1,111" * 3200,
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_line_keeps_a_reader_busy(text: str) -> None:
    """A quadratic pattern would take minutes over some of these."""
    for one in FORMATS.values():
        one.marks(text)
        Reading(one, "a.log").feed(1, text)
