"""What may be compared, and what a comparison says: never a winner, often no difference."""

from __future__ import annotations

import dataclasses
import json

import pytest
from series import noisy
from training_logs import SOURCE, a_run, amd_mllog, nvidia_mllog, read_one

from warpfront.bench import statistics
from warpfront.bench.comparability import bands_of
from warpfront.bench.compare import ComparisonTerms, compare_benches, compare_runs
from warpfront.bench.forms import (
    comparison_markdown,
    comparison_text,
    run_text,
    sentence,
)
from warpfront.bench.record_files import (
    NoRecordError,
    bench_document,
    comparison_document,
    read_records,
    run_document,
)
from warpfront.bench.records import (
    Bench,
    Comparison,
    ComparisonOutcome,
    Interval,
    Measurement,
    Metric,
    Run,
    Step,
    Training,
)
from warpfront.bench.settling import summary_of
from warpfront.system.store import as_json

TIMES = noisy(60, 1)
TRAINED = (590.0, 589.0, 667.0, 590.0, 588.0)


@pytest.fixture(autouse=True)
def _fewer_resamplings(monkeypatch: pytest.MonkeyPatch) -> None:
    """How good an interval of all of them is, test_statistics.py asks."""
    monkeypatch.setattr(statistics, "RESAMPLINGS", 300)


def compared(a: Run | list[Run], b: Run | list[Run], **terms: object) -> Comparison:
    sides = [one if isinstance(one, list) else [one] for one in (a, b)]
    return compare_runs(("a", sides[0]), ("b", sides[1]), ComparisonTerms(**terms))  # type: ignore[arg-type]


def refused(found: Comparison) -> set[str]:
    assert found.times is None
    assert found.verdict is ComparisonOutcome.NOT_COMPARABLE
    return {one.name for one in found.differences if one.refused and not one.allowed}


def test_two_runs_of_one_thing_are_no_difference() -> None:
    found = compared(a_run(noisy(60, 4)), a_run(noisy(60, 5)))
    assert found.verdict is ComparisonOutcome.NO_DIFFERENCE
    assert found.times is not None
    assert found.times.holds(1.0)


def test_a_ratio_has_an_interval_and_both_directions() -> None:
    found = compared(a_run(TIMES), a_run(noisy(60, 2, 1.36)))
    assert found.verdict is ComparisonOutcome.DIFFERENCE
    assert found.times is not None
    assert found.times.value == pytest.approx(1.36, rel=0.01)
    assert found.times.low < found.times.value < found.times.high
    assert found.times.inverse.value == pytest.approx(1 / 1.36, rel=0.01)
    assert "blocks of 10" in found.resampled


def test_within_the_declared_noise_is_no_difference() -> None:
    near = a_run(noisy(60, 2, 1.03, noise=0.001)), a_run(noisy(60, 1, noise=0.001))
    assert compared(*near).verdict is ComparisonOutcome.DIFFERENCE
    assert compared(*near, noise=0.05).verdict is ComparisonOutcome.NO_DIFFERENCE


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"sequence": 4096}, "sequence"),
        ({"sequence": None}, "sequence"),
        ({"precision": "fp8"}, "precision"),
        ({"precision": None}, "precision"),
        ({"model": "qwen"}, "model"),
        ({"parameters": 7}, "parameters"),
        ({"layers": 3}, "layers"),
    ],
)
def test_unlike_work_is_refused_unless_its_name_is_allowed(
    changes: dict[str, object], name: str
) -> None:
    one, other = (
        a_run(TIMES, parameters=8, layers=2),
        a_run(TIMES, **{"parameters": 8, "layers": 2, **changes}),
    )
    if name == "model":  # the name alone is held against the other's where nothing else is known
        one, other = a_run(TIMES), a_run(TIMES, **changes)
    found = compared(one, other)
    assert refused(found) == {name}
    assert name in sentence(found)
    allowed = compared(one, other, allowed=(name,))
    assert allowed.times is not None
    assert allowed.allowed == (name,)


def test_parameters_that_are_rounded_are_the_same_model() -> None:
    names = {"parameters": 15_820_000_000}, {"parameters": 15_706_484_224}
    found = compared(
        a_run(TIMES, model="v2_lite", **names[0]), a_run(TIMES, model="V2-Lite", **names[1])
    )
    assert found.verdict is ComparisonOutcome.NO_DIFFERENCE


def test_steps_of_another_batch_are_held_by_their_tokens() -> None:
    small = a_run(TIMES, global_batch=64)
    steps = tuple(dataclasses.replace(s, tokens_per_second_per_device=9000.0) for s in small.steps)
    one, other = (dataclasses.replace(small, steps=steps, global_batch=n) for n in (64, 128))
    found = compared(one, other)
    assert found.metric == Metric.TOKENS_PER_SECOND
    assert [(d.name, d.refused) for d in found.differences] == [("global_batch", False)]
    assert refused(compared(one, other, metric=Metric.STEP_SECONDS)) == {"global_batch"}


def test_a_few_steps_are_too_short_and_give_no_ratio() -> None:
    found = compared(a_run(TIMES[:8]), a_run(TIMES))
    assert (found.verdict, found.times) == (ComparisonOutcome.TOO_SHORT, None)
    assert "A has 8 settled steps" in sentence(found)


def test_a_gate_decides_on_the_interval_and_not_on_the_point() -> None:
    noisy_pair = a_run(noisy(60, 1, noise=0.1)), a_run(noisy(60, 2, 1.11, noise=0.1))
    steady_pair = a_run(noisy(60, 1)), a_run(noisy(60, 2, 1.06))
    vague, plain = (compared(*pair, max_slower=0.05) for pair in (noisy_pair, steady_pair))
    assert vague.times is not None
    assert vague.times.value > 1.05
    assert not vague.slower
    assert "may be" in comparison_text(vague)
    assert plain.slower
    assert not compared(*reversed(steady_pair), max_slower=0.05).slower
    assert not compared(*steady_pair).slower


def trained(text: str, times: tuple[float, ...] = TRAINED, **changes: object) -> list[Run]:
    run = dataclasses.replace(read_one(text), **changes)  # type: ignore[arg-type]
    return [dataclasses.replace(run, run_seconds=seconds) for seconds in times]


def test_times_to_train_are_resampled_by_runs_and_spread_hides_a_winner() -> None:
    amd = trained(amd_mllog(600.0))
    nvidia = trained(nvidia_mllog(500.0), (515.0, 640.0, 498.0, 635.0, 507.0))
    found = compared(amd, nvidia)
    assert (found.metric, found.verdict) == (Metric.TIME_TO_TRAIN, ComparisonOutcome.NO_DIFFERENCE)
    assert found.resampled == "5 runs against 5 runs"
    assert "MLPerf's own scoring, A 9.83 and B 9.21 minutes" in comparison_text(found)
    shown = {one.name: one for one in found.differences}
    assert not shown["precision"].refused  # left open by the benchmark's rules, and said


def test_another_batch_is_another_benchmark_and_its_unknown_precision_is_said() -> None:
    amd = trained(amd_mllog(600.0, batch=32))
    nvidia = trained(nvidia_mllog(500.0, batch=16))
    found = compared(amd, nvidia)
    assert refused(found) == {"global_batch", "precision", "sequence"}
    assert "global_batch: 32 against 16" in sentence(found)
    assert "precision: unknown" in sentence(found)
    names = ("global_batch", "precision", "sequence")
    assert compared(amd, nvidia, allowed=names).times is not None


def test_two_runs_are_too_few_for_a_time_to_train() -> None:
    two = trained(amd_mllog(600.0), (600.0, 610.0))
    found = compared(two, two, metric=Metric.TIME_TO_TRAIN)
    assert found.verdict is ComparisonOutcome.TOO_SHORT


def test_losses_are_held_at_equal_tokens() -> None:
    one = a_run(TIMES)
    wrong = dataclasses.replace(
        one, steps=tuple(dataclasses.replace(s, loss=(s.loss or 0) / 100) for s in one.steps)
    )
    found = compared(one, wrong)
    assert found.losses[-1][0] == 60 * 64 * 2048
    assert any("not the same training: a loss" in one.message for one in found.findings)
    assert not any("training" in one.message for one in compared(one, one).findings)


@pytest.mark.parametrize(
    ("without", "reason"),
    [
        ((False, True), "B has none at a known number of samples"),
        ((True, False), "A has none at a known number of samples"),
        ((True, True), "neither has any"),
    ],
)
def test_losses_that_are_missing_are_not_compared_and_that_is_a_remark(
    without: tuple[bool, bool], reason: str
) -> None:
    one = a_run(TIMES)
    bare = dataclasses.replace(
        one, steps=tuple(dataclasses.replace(step, loss=None) for step in one.steps)
    )
    found = compared(*(bare if lacking else one for lacking in without))
    assert f"losses not compared: {reason}" in comparison_text(found)


def test_losses_of_steps_are_not_held_against_evaluations() -> None:
    found = compared(trained(amd_mllog(600.0)), trained(nvidia_mllog(500.0)))
    assert [one[1:] for one in found.losses] in ([], [(0.92, 0.92)])


def test_a_level_that_changes_is_shown() -> None:
    found = compared(a_run([*noisy(80, 1), *noisy(80, 2, 0.9)]), a_run(noisy(160, 3)))
    text = comparison_text(found)
    assert "A, steps 1 to 80: " in text
    assert "A: a change of level" in text


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_no_form_names_a_winner(factor: float) -> None:
    found = compared(a_run(TIMES), a_run(noisy(60, 2, factor)))
    for text in (comparison_text(found), comparison_markdown(found)):
        assert "winner" not in text.lower()
        assert "times as long as" in text


def test_foreign_text_stays_inside_its_cell() -> None:
    found = compared(a_run(TIMES, device_name="x | <b>\n| y"), a_run(TIMES))
    row = next(line for line in comparison_markdown(found).splitlines() if "device_name" in line)
    assert row.count(" | ") == 3
    assert "<b>" not in row


def a_bench(
    speed: float = 1.0, *, seed: int = 1, slow: str = "", names: str = "abc", **changes: object
) -> Bench:
    """Operations in five blocks, one of them slower."""
    results = tuple(
        Measurement(
            id=name, suite="matmul", op="mm", shape=name, dtype="float32", direction="forward",
            outcome="passed",
            samples_seconds=tuple(
                tuple(noisy(8, 10 * seed + block + 100 * n, speed * (1.05 if name == slow else 1)))
                for block in range(5)
            ),
        )
        for n, name in enumerate(names)
    )  # fmt: skip
    said: dict[str, object] = {
        "cell_id": "cell", "image_digest": "sha256:1", "content_hash": "2", "verified": "passed",
        "target": "sm_90", "at": "now", "tool": {"version": "1"}, "settings": {"cold": False},
        "environment": {"torch": "2.13.0"}, "results": results, **changes,
    }  # fmt: skip
    return Bench(**said)  # type: ignore[arg-type]


def benched(a: Bench, b: Bench, **terms: object) -> Comparison:
    return compare_benches(("a", a), ("b", b), ComparisonTerms(**terms))  # type: ignore[arg-type]


def test_equal_benches_are_no_difference() -> None:
    found = benched(a_bench(), a_bench(seed=2))
    assert found.verdict is ComparisonOutcome.NO_DIFFERENCE
    assert not any(case.changed for case in found.cases)


def test_an_operation_that_is_slower_by_five_percent_is_found() -> None:
    found = benched(a_bench(), a_bench(seed=2, slow="c"), max_slower=0.02)
    assert [case.id for case in found.cases if case.changed] == ["c"]
    assert (found.verdict, bool(found.slower)) == (ComparisonOutcome.DIFFERENCE, True)
    assert "changed" in comparison_text(found)


def test_one_slow_operation_of_a_hundred_is_found_and_of_equal_ones_none() -> None:
    """Resampling counts to one in a thousand, and Holm asks one in two thousand of a hundred."""
    names = "".join(map(chr, range(0x100, 0x164)))
    slow = names[40]
    before, after = a_bench(names=names), a_bench(names=names, seed=2, slow=slow)
    found = benched(before, after)
    assert [case.id for case in found.cases if case.changed] == [slow]


def test_benches_are_held_by_what_both_have_timed_in_one_way() -> None:
    short = a_bench(results=a_bench().results[:2])
    assert benched(a_bench(), short).only_in_a == ("c",)
    assert benched(a_bench(), a_bench(results=())).verdict is ComparisonOutcome.NOT_COMPARABLE
    cold = a_bench(settings={"cold": True})
    assert refused(benched(a_bench(), cold)) == {"cold"}
    assert benched(a_bench(), cold, allowed=("cold",)).times is not None


def test_a_decoders_steps_are_cases_too() -> None:
    training = (Training(id="block", dtype="bfloat16", tokens_per_step=9, devices=1,
                         step_seconds=tuple(TIMES)),)  # fmt: skip
    one = a_bench(results=(), training=training)
    assert [case.id for case in benched(one, one).cases] == ["block"]


def test_records_come_back_as_they_went() -> None:
    run, bench = a_run(TIMES, run_seconds=3.5), a_bench()
    for record, document in (
        (run, run_document(run, summary_of(run))),
        (bench, bench_document(bench)),
    ):
        text = json.dumps(as_json(document))
        assert read_records(text) == (record,)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 99},
        {"source": 3},
        {"steps": [{"step": "x"}]},
        {"steps": [{"step": 1, "seconds": -1}]},
        {"steps": [{"step": 1, "seconds": 0}]},
        {"parameters": 10**30},
        {"steps": [{"step": 1, "seconds": 1.0, "flop_per_second_per_device": "NaN"}]},
        {"steps": [{"step": 1, "seconds": 1.0, "memory_bytes": 10**400}]},
    ],
)
def test_a_record_that_is_none_is_refused(change: dict[str, object]) -> None:
    run = a_run(TIMES)
    document = {**as_json(run_document(run, summary_of(run))), **change}
    with pytest.raises(NoRecordError):
        read_records(json.dumps(document))


def test_a_record_s_words_are_no_commands_for_a_terminal() -> None:
    run = a_run(TIMES, model="\x1b]0;mine\x07llama\N{RIGHT-TO-LEFT OVERRIDE}", framework="x")
    document = {**as_json(run_document(run, summary_of(run)))}
    (read,) = read_records(json.dumps(document))
    assert isinstance(read, Run)
    said = run_text(read, summary_of(read))
    assert "mine" in said
    assert not {"\x1b", "\x07", "\N{RIGHT-TO-LEFT OVERRIDE}"} & set(said)


@pytest.mark.parametrize(
    "text", ['{"kind": {}}', '[{"kind": []}]', "", "[", "{}", "[]", "3", '{"kind": "Run"', "NaN"]
)
def test_what_is_no_record_of_ours_is_none(text: str) -> None:
    assert read_records(text) == ()


def test_a_comparison_as_json_has_both_directions() -> None:
    document = comparison_document(compared(a_run(TIMES), a_run(noisy(60, 2, 2.0))))
    assert document["inverse"]["value"] == pytest.approx(0.5, rel=0.01)
    assert (document["schema"], document["kind"]) == (1, "Comparison")


def test_a_runs_text_says_what_is_missing_and_what_was_given() -> None:
    run = dataclasses.replace(a_run(TIMES), given=("sequence",), missing=("nodes", "vendor"))
    text = run_text(run, summary_of(run))
    assert "not said      nodes, vendor" in text
    assert "2048 (given)" in text
    short = dataclasses.replace(run, steps=(Step(step=1, tokens_per_second_per_device=9982.0),))
    assert "tokens/s      9,982.0 per device" in run_text(short, summary_of(short))
    assert Interval(value=2, low=1, high=4).inverse == Interval(value=0.5, low=0.25, high=1)


# Serving benchmarks: figures at equal load.

FIGURES = {
    "output_throughput": 512.0, "request_throughput": 4.0, "ttft_mean": 0.15, "tpot_mean": 0.0146,
    "itl_mean": 0.0145, "requests": 100.0, "input_tokens": 51_200.0, "output_tokens": 12_800.0,
    "concurrency": 16.0,
}  # fmt: skip


def served(model: str = "llama", rate: str = "inf", **figures: float) -> Run:
    return Run(source=SOURCE, model=model, request_rate=rate, serving={**FIGURES, **figures})


def test_one_serving_run_a_side_gives_ratios_and_determines_nothing() -> None:
    found = compared(served(), served(ttft_mean=0.3, output_throughput=256.0))
    assert found.verdict is ComparisonOutcome.UNDETERMINED
    ratios = {case.id: case.ratio.value for case in found.cases}
    assert (ratios["ttft_mean"], ratios["output_throughput"]) == (2.0, 2.0)
    assert (ratios["tpot_mean"], ratios["itl_mean"]) == (1.0, 1.0)
    assert "not determined: runs: 1 and 1; 3 a side" in sentence(found)
    assert not found.slower


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"rate": "8"}, "request_rate"),
        ({"model": "qwen"}, "model"),
        ({"input_tokens": 60_000.0}, "input_length"),
        ({"output_tokens": 15_000.0}, "output_length"),
        ({"concurrency": 32.0}, "concurrency"),
    ],
)
def test_serving_at_another_load_is_refused_unless_allowed(
    other: dict[str, object], name: str
) -> None:
    unlike = served(**other)  # type: ignore[arg-type]
    assert refused(compared(served(), unlike)) == {name}
    assert compared(served(), unlike, allowed=(name,)).cases


def test_an_unknown_request_rate_is_refused_and_an_unknown_model_is_shown() -> None:
    unknown = dataclasses.replace(served(), request_rate=None, model=None)
    found = compared(unknown, unknown)
    assert refused(found) == {"request_rate"}
    messages = [one.message for one in found.findings]
    assert messages == ["the model of A is unknown", "the model of B is unknown"]


def test_several_serving_runs_a_side_have_intervals() -> None:
    slow = [served(ttft_mean=0.3 + n / 1000) for n in range(5)]
    fast = [served(ttft_mean=0.15 + n / 1000) for n in range(5)]
    found = compared(fast, slow, max_slower=0.05)
    assert {case.id for case in found.cases if case.changed} == {"ttft_mean"}
    assert found.verdict is ComparisonOutcome.DIFFERENCE
    assert next(iter(found.slower)) == "ttft_mean"
    assert compared(fast, fast[::-1]).verdict is ComparisonOutcome.NO_DIFFERENCE


def test_the_gate_names_the_operation_that_is_slower() -> None:
    found = benched(a_bench(), a_bench(seed=2, slow="c"), max_slower=0.02)
    assert next(iter(found.slower)) == "c"
    assert not benched(a_bench(), a_bench(seed=2), max_slower=0.02).slower


def test_same_training_refuses_a_side_without_losses_and_losses_that_differ() -> None:
    without = a_run(TIMES)
    without = dataclasses.replace(
        without, steps=tuple(dataclasses.replace(step, loss=None) for step in without.steps)
    )
    found = compared(a_run(TIMES), without, same_training=True)
    assert found.verdict is ComparisonOutcome.NOT_COMPARABLE
    assert "losses not compared: B has none" in sentence(found)
    assert compared(a_run(TIMES), without).verdict is ComparisonOutcome.NO_DIFFERENCE
    assert compared(a_run(TIMES), a_run(TIMES), same_training=True).times is not None


def test_pairs_of_runs_cancel_what_differs_between_nights() -> None:
    nights = [1.0, 1.3, 0.8, 1.1, 1.5]
    a = [a_run(noisy(30, n, level)) for n, level in enumerate(nights)]
    b = [a_run(noisy(30, 10 + n, level * 1.05)) for n, level in enumerate(nights)]
    assert compared(a, b).verdict is ComparisonOutcome.NO_DIFFERENCE
    found = compared(a, b, paired=True)
    assert (found.verdict, found.resampled) == (ComparisonOutcome.DIFFERENCE, "5 pairs")
    assert found.times is not None
    assert found.times.value == pytest.approx(1.05, abs=0.02)
    assert compared(a[:2], b[:2], paired=True).verdict is ComparisonOutcome.TOO_SHORT
    assert compared(a, b[1:], paired=True).verdict is ComparisonOutcome.TOO_SHORT


def test_losses_are_compared_at_tokens_that_lines_print() -> None:
    def run(per_step: int) -> Run:
        steps = tuple(
            Step(step=n, seconds=1.0, tokens=n * per_step, loss=10 / (n * per_step) * 100)
            for n in range(1, 41)
        )
        return dataclasses.replace(a_run(TIMES), steps=steps)

    found = compared(run(100), run(200), allowed=("global_batch",))
    assert found.losses
    tokens, one, other = found.losses[-1]
    assert tokens == 4000
    assert one == pytest.approx(other, rel=0.1)
    assert bands_of([run(100)])[0][0] == 100


@pytest.mark.process  # matplotlib asks fc-list for fonts
def test_charts_name_the_files_and_have_plain_axes() -> None:
    pytest.importorskip("matplotlib")
    from warpfront.bench.charts import charts_of

    one, other = a_run(noisy(40, 1, 135.0)), a_run(noisy(40, 2, 137.0))
    terms = ComparisonTerms()
    found = compare_runs(("runs/before.log", [one]), ("runs/after.log", [other]), terms)
    picture = charts_of(found, [[one], [other]])["steps.svg"]
    assert "A: before.log" in picture
    assert "B: after.log" in picture
    assert "10^" not in picture
    assert "mathdefault" not in picture
