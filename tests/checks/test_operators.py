"""Operations by name, torch's own database, and the faults seeded into both, on the CPU.

Needs torch, so it is skipped where that is not installed; the integration tests run it inside the
image, where torch is.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from claimed import CPU  # noqa: E402

from warpfront_checks import operations  # noqa: E402
from warpfront_checks.check_options import CheckOptions, profile_names  # noqa: E402
from warpfront_checks.executing import Computed  # noqa: E402
from warpfront_checks.judge import CaseVerdict, rms_fault  # noqa: E402
from warpfront_checks.mutations import ON_TENSORS, MutationTally, exemptions  # noqa: E402
from warpfront_checks.operations import Arithmetic  # noqa: E402
from warpfront_checks.operators import case_faults, properties, trials  # noqa: E402
from warpfront_checks.operators.bounds import Elementwise, spacing, within  # noqa: E402
from warpfront_checks.operators.cases import (  # noqa: E402
    Case,
    Execute,
    execute_case,
    make_maker,
)
from warpfront_checks.operators.fused import (  # noqa: E402
    HARDTANH,
    PATTERNS,
    RELU,
    MaxPool,
    compile_modes,
    pattern_cases,
)
from warpfront_checks.operators.products import PRODUCTS  # noqa: E402
from warpfront_checks.operators.table import Operator, operators  # noqa: E402
from warpfront_checks.operators.trials import record_operators  # noqa: E402
from warpfront_checks.operators.verdicts import expect, judge_case  # noqa: E402
from warpfront_checks.opinfo import adapter, sweep  # noqa: E402
from warpfront_checks.opinfo.adapter import Entry, load_database  # noqa: E402
from warpfront_checks.opinfo.entry_verdicts import execute_entry  # noqa: E402
from warpfront_checks.opinfo.sweep import (  # noqa: E402
    Sweep,
    Swept,
    finding_of_parts,
    record_opinfo,
    sweep_entries,
)
from warpfront_checks.parallel_checks import find_out  # noqa: E402
from warpfront_checks.results import (  # noqa: E402
    ERROR,
    Check,
    CheckFinding,
    Recorder,
    passed,
)

QUICK = CheckOptions(quick=True)
ABSOLUTE = Elementwise(function=torch.abs, kinks=((0.0, 2.0),))


@pytest.fixture(scope="module")
def database() -> dict[str, Entry]:
    return {entry.name: entry for entry in load_database()}


BY_NAME = {operator.name: operator for operator in operators()}


def test_a_mean_over_windows_counts_the_numbers_of_its_largest_window() -> None:
    """It counted a part of one, and an H200's float64 gradients were refused in 3 of 29 seeds."""
    maker = make_maker(torch.float64, 0)
    for name, operator in PRODUCTS.cases.items():
        for case in operator(maker) if name.startswith("adaptive") else ():
            size, output = (int(n) for n in case.name.split(" to "))
            ends = [(i * size // output, -(-(i + 1) * size // output)) for i in range(output)]
            width = case.tensors[0].dim() - 2
            assert isinstance(case.operation, operations.Multilinear)
            assert case.operation.length == max(end - start for start, end in ends) ** width


def test_of_a_single_number_what_a_kernel_rounds_on_the_way_counts_as_well() -> None:
    """An H200 rounds the square in `1 - y * y`, the CPU does not: 12 times as far off."""
    tanh = BY_NAME["tanh"].make_cases("float16", 166238159)
    case = next(case for case in tanh if case.name == "0-dim")
    expected = expect(case, torch.float16, "cpu", 166238159)
    clean = execute_case(case, expected.cotangent, "cpu")
    y = clean.outputs[0]
    assert y is not None
    assert expected.cotangent is not None
    for square, right in ((y * y, True), (y * y * 0.95, False)):
        found = replace(clean, gradients=(expected.cotangent.to(y.dtype) * (1 - square),))
        faults = judge_case(case, found, expected, "cpu", "strict").faults
        assert (not faults) == right, faults


def verdict(
    operator: Operator, dtype: str, outcome_of: Execute = execute_case, profile: str = "strict"
) -> CaseVerdict:
    case = next(iter(operator.make_cases(dtype, 0, quick=True)))
    expected = expect(case, getattr(torch, dtype), "cpu", 0)
    return judge_case(case, outcome_of(case, expected.cotangent, "cpu"), expected, "cpu", profile)


def test_the_table_names_each_required_operation_once() -> None:
    numbers = sorted(operator.number for operator in operators() if operator.number)
    assert numbers == list(range(1, len(numbers) + 1))
    assert 0 < len(numbers) < len(operators())


def a_few() -> list[Operator]:
    """One operation of each module, class and rule."""
    kinds = {}
    for operator in reversed(operators()):
        case = next(iter(operator.make_cases(operator.dtypes[0], 0, quick=True)))
        kinds[operator.family, operator.letter, type(case.operation)] = operator
    return list(kinds.values())


A_FEW = a_few()
THE_OTHERS = [operator for operator in operators() if operator not in A_FEW]
SWEPT = [pytest.param(operator, marks=pytest.mark.exhaustive) for operator in THE_OTHERS]


@pytest.mark.parametrize("operator", THE_OTHERS, ids=lambda operator: operator.name)
def test_a_correct_operation_passes_and_one_wrong_element_is_caught(operator: Operator) -> None:
    wrong = ON_TENSORS["one wrong element"]

    def faulty(case: Case, cotangent: Any, device: str) -> Computed:
        outcome = execute_case(case, cotangent, device)
        return replace(outcome, outputs=(wrong(outcome.outputs[0]),))

    dtype = operator.dtypes[0]
    assert verdict(operator, dtype).faults == ()
    assert verdict(operator, dtype, faulty).faults[0].startswith("output: ")


@pytest.mark.parametrize("operator", [*A_FEW, *SWEPT], ids=lambda operator: operator.name)
def test_a_correct_operation_passes_and_every_seeded_fault_is_caught(operator: Operator) -> None:
    ledger = MutationTally()
    for dtype in operator.dtypes:
        cases = lambda seed, dtype=dtype: operator.make_cases(dtype, seed, quick=True)  # noqa: E731
        subject = case_faults.Subject(check=operator.name, dtype=dtype, device="cpu", cases=cases)
        case_faults.seed_faults(subject, 0, ledger)
    assert ledger.missed == []
    assert ledger.caught.total() > len(ON_TENSORS)


@pytest.mark.parametrize("name", PATTERNS)
def test_every_fault_in_a_fused_pattern_is_caught(name: str) -> None:
    ledger = MutationTally()
    cases = lambda seed: pattern_cases(name, make_maker(torch.float32, seed))  # noqa: E731
    subject = case_faults.Subject(check=name, dtype="float32", device="cpu", cases=cases)
    case_faults.seed_faults(subject, 0, ledger)
    assert ledger.missed == []
    assert ledger.seeded > 30


def test_an_exact_operation_allows_no_rounding_and_a_rounded_one_counts_units() -> None:
    third = torch.tensor([1.0]).double() / 3
    unit = spacing(third, torch.float32)
    assert float(unit) == 2.0**-25
    assert float(within(third, 0.0, torch.float32).bound) == 0.0
    assert float(within(third, 4.0, torch.float32).bound) == 4 * 2.0**-25


def test_a_product_off_by_one_unit_is_refused() -> None:
    def nudged(case: Case, cotangent: Any, device: str) -> Computed:
        outcome = execute_case(case, cotangent, device)
        wrong = outcome.outputs[0].clone()
        wrong[0, 0] = torch.nextafter(wrong[0, 0], torch.tensor(9e9))
        return replace(outcome, outputs=(wrong,))

    assert verdict(BY_NAME["mul"], "float32").faults == ()
    (fault,) = verdict(BY_NAME["mul"], "float32", nudged).faults
    assert fault.startswith("output: worst element [0, 0]")


def test_strict_refuses_what_five_percent_accepts() -> None:
    def larger(case: Case, cotangent: Any, device: str) -> Computed:
        outcome = execute_case(case, cotangent, device)
        return replace(outcome, outputs=(outcome.outputs[0] * 1.03,))

    softmax = BY_NAME["softmax"]
    assert verdict(softmax, "float32", larger).faults
    assert verdict(softmax, "float32", larger, "five-percent").faults == ()
    tallies = verdict(softmax, "float32", larger).tallies
    assert tuple(tallies) == profile_names()
    assert (tallies["strict"].refused, tallies["five-percent"].refused) == (1, 0)
    assert verdict(softmax, "bfloat16").tallies["float32-only"].silent > 0


def test_strides_are_part_of_a_layouts_answer() -> None:
    def dense(case: Case, cotangent: Any, device: str) -> Computed:
        outcome = execute_case(case, cotangent, device)
        return replace(outcome, strides=(1, 67))

    (fault,) = verdict(BY_NAME["copy"], "float32", dense).faults
    assert fault.startswith("strides (1, 67), expected")


def test_wrong_derivatives_unsteady_answers_and_kept_memory_are_caught() -> None:
    ledger = MutationTally()
    case_faults.seed_property_faults(operators()[:12], "cpu", ledger)
    assert ledger.missed == []
    chosen = operators()[:12]
    assert properties.check_gradients(chosen, "cpu").faults == ()
    assert properties.check_repeats(chosen, "cpu").faults == ()


@pytest.mark.parametrize(
    ("readings", "grown"),
    [
        ((0, 512, 1024, 1536, 2048, 2560, 3072), 512),
        ((0, 0, 0, 34816, 34816, 34816, 34816), 0),
        ((0, 512, 512, 1024, 1024, 1536, 1536), 0),
        ((9, 9, 8, 600, 1300, 1900, 2800), 0),
        ((7, 3, 600, 1300, 2100, 2700, 3900), 597),
        ((0, 600, 1200, 2000, 500, 1100, 1900), 600),
        ((0, 600, 1200, 200, 800, 100, 900), 0),
    ],
    ids=[
        "a leak",
        "a workspace",
        "a cache that fills",
        "only of late",
        "a leak after settling",
        "a leak beside what is given back once",
        "what comes and goes",
    ],
)
def test_memory_is_kept_only_if_every_late_step_grows(
    readings: tuple[int, ...], grown: int
) -> None:
    assert properties.systematic_growth(readings, 512) == grown


def test_memory_that_malloc_gives_out_shows_where_its_pages_lay_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(properties, "_resident_bytes", lambda: 0)
    kept: list[Any] = []

    def keeps(case: Case, cotangent: Any, device: str) -> Computed:
        kept.append(torch.ones(512 * 1024))
        return execute_case(case, cotangent, device)

    chosen = [one for one in operators() if one.name == "add"]
    assert properties.check_memory(chosen, "cpu").faults == ()
    report = properties.check_memory(chosen, "cpu", run=keeps)
    assert report.grown_bytes >= 3 * 4 * 512 * 1024
    assert len(report.faults) == 1


def test_a_kink_within_its_error_carries_its_whole_gradient_back() -> None:
    """As a correct device computes it: the product is rounded, then the sum with the bias. Of these
    seeds two were refused while kinks were sampled.
    """
    for seed in (1009, 1011):
        maker = make_maker(torch.bfloat16, seed)
        case = next(c for c in pattern_cases("matmul + bias + relu", maker) if c.name[0] == "3")
        x, w, bias = (one.double() for one in case.tensors)
        expected = expect(case, torch.bfloat16, "cuda", seed)
        assert expected.cotangent is not None
        fed = expected.cotangent.double()
        z = ((x @ w.T).bfloat16().double() + bias).bfloat16().double()
        fed = fed * (z > 0)
        found = (z.relu(), fed @ w, fed.T @ x, fed.sum(0))
        output, *gradients = (one.bfloat16() for one in found)
        computed = Computed(
            outputs=(output,), gradients=tuple(gradients), places=("cuda",), strides=output.stride()
        )
        assert judge_case(case, computed, expected, "cuda").faults == ()
        wrong = replace(computed, gradients=(gradients[0] * 1.1, *gradients[1:]))
        assert judge_case(case, wrong, expected, "cuda").faults


@pytest.mark.parametrize(
    ("stage", "x", "loose"),
    [
        (RELU, [-2.0, -0.05, 0.05, 2.0], [0, 1, 1, 0]),
        (HARDTANH, [-1.02, -0.5, 0.98, 1.2], [1, 0, 1, 0]),
        (ABSOLUTE, [-0.05, 0.5, 0.0, 9.0], [2, 0, 2, 0]),
    ],
    ids=["relu", "hardtanh", "abs"],
)
def test_only_gradients_that_hang_on_a_kink_are_loose(
    stage: Any, x: list[float], loose: list[float]
) -> None:
    values = torch.tensor(x).double()
    found = stage.undecided(values, torch.full_like(values, 0.1), torch.full_like(values, -3.0))
    assert found.tolist() == [3.0 * share for share in loose]


def test_of_a_window_those_are_loose_that_may_be_its_largest() -> None:
    x = torch.tensor([[[[1.0, 1.05, 5.0], [0.0, -1.0, 5.0], [9.0, 9.0, 9.0]]]]).double()
    fed = torch.tensor([[[[2.0]]]]).double()
    found = MaxPool(kernel=2).undecided(x, torch.full_like(x, 0.1), fed)
    assert found.flatten().tolist() == [2, 2, 0, 0, 0, 0, 0, 0, 0]
    found = MaxPool(kernel=2).undecided(x, torch.full_like(x, 0.01), fed)
    assert not found.any()


def test_graphs_are_captured_on_nvidia_only() -> None:
    assert compile_modes("rocm") == ("default",)
    assert compile_modes("cpu") == ("default",)
    assert "reduce-overhead" in compile_modes("cuda")


def record(folder: Path, session: str, **options: object) -> dict[str, dict[str, object]]:
    recorder = Recorder(session=session, target="cpu", folder=folder)
    start = record_operators if session == "operators" else record_opinfo
    start(CPU, recorder, effort=QUICK, **options)  # type: ignore[arg-type]
    recorder.finish()
    document = json.loads((folder / f"{session}.json").read_text())
    assert document["planned"] == [check["name"] for check in document["checks"]]
    return {check["name"]: check for check in document["checks"]}


@pytest.fixture
def few_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "operators", lambda: tuple(A_FEW))


@pytest.mark.usefixtures("few_operators")
def test_the_quick_session_passes_and_counts_what_it_did(tmp_path: Path) -> None:
    checks = record(tmp_path, "operators")
    assert {check["outcome"] for check in checks.values()} == {"passed"}
    counts = json.loads((tmp_path / "operators.json").read_text())["environment"]["counts"]
    assert counts["operators"] == len(A_FEW)
    assert counts["profiles"]["strict"]["refused"] == 0
    assert counts["profiles"]["torch"]["refused"] > 0
    unclaimed = json.loads((tmp_path / "operators.json").read_text())["unclaimed"]
    assert unclaimed[0]["reason"] == "a quick run does not compile"


@pytest.mark.usefixtures("few_operators")
def test_a_missing_kernel_fails_where_the_dtype_is_required(tmp_path: Path) -> None:
    def lacking(case: Case, cotangent: Any, device: str) -> Computed:
        raise NotImplementedError('"add" not implemented for Float')

    checks = record(tmp_path, "operators", run=lacking)
    assert checks["add"]["outcome"] == "error"


# Importing the database starts a program: torch's test package looks for GPUs.
@pytest.mark.process
def test_the_database_is_judged_and_a_faulty_device_is_caught_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every twelfth entry; the session in the image has all of them."""
    monkeypatch.setattr(sweep, "load_database", lambda: load_database()[::12])
    checks = record(tmp_path, "opinfo")
    assert checks["float32"]["outcome"] == "passed", checks["float32"]["reason"]
    details = checks["float32"]["details"]
    assert isinstance(details, dict)
    assert details["entries"] > 40

    def larger(*arguments: Any) -> Computed:
        right = execute_entry(*arguments)
        wrong = (x * 1.03 if x.dtype == torch.float32 else x for x in right.outputs)
        return replace(right, outputs=tuple(wrong))

    faulty = record(tmp_path, "opinfo", run=larger)["float32"]
    assert faulty["outcome"] == "failed"
    assert str(faulty["reason"]).startswith("abs, sample 0, seed 0: output: ")


def test_the_samples_of_an_entry_are_the_same_every_time(database: dict[str, Entry]) -> None:
    first, again = (
        [s.input for s in database["sinc"].samples("cpu", torch.float32, limit=3, backward=False)]
        for _ in range(2)
    )
    assert len(first) == 3
    assert all(map(torch.equal, first, again))


def test_a_gradient_that_cancels_is_judged_by_what_is_fed_in(database: dict[str, Entry]) -> None:
    """One number to which a hundred cancel: right to one rounding of each, not of itself."""
    seeds = tuple(range(10))
    sweep = Sweep(dtype="float32", how="backward", device="cpu", effort=CheckOptions(seeds=seeds))
    assert sweep_entries([database["addbmm"]], sweep).faults == []

    def larger(*arguments: Any) -> Computed:
        right = execute_entry(*arguments)
        return replace(
            right, gradients=tuple(None if g is None else g * 1.03 for g in right.gradients)
        )

    wrong = sweep_entries([database["addbmm"]], replace(sweep, run=larger))
    assert len(wrong.faults) == wrong.samples


def test_what_overflows_on_the_way_may_be_infinite_and_nothing_else_may(
    database: dict[str, Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float16 the product of a column passes 65504, and its gradients come out of it. (What it
    gives on CUDA is not judged.)
    """
    monkeypatch.setattr(sweep, "excluded", lambda *_, **__: "")
    prod = database["masked.prod"]
    asked = Sweep(dtype="float16", how="backward", device="cpu", effort=CheckOptions(seeds=(3097,)))
    assert sweep_entries([prod], asked).faults == []

    def infinite(*arguments: Any) -> Computed:
        right = execute_entry(*arguments)
        spoiled = tuple(
            None if g is None else torch.full_like(g, math.inf) for g in right.gradients
        )
        return replace(right, gradients=spoiled)

    wrong = sweep_entries([prod], replace(asked, run=infinite)).faults
    assert len(wrong) >= 4
    assert all("wrongly finite" in fault for fault in wrong)


@pytest.mark.parametrize("name", ["linalg.svdvals", "norm.nuc", "linalg.cond"])
def test_what_another_way_to_compute_it_rounds_otherwise_is_no_overflow(
    database: dict[str, Entry], name: str
) -> None:
    """With an overflow looked for in each step, these give another last digit."""

    def spoiled(*arguments: Any) -> Computed:
        right = execute_entry(*arguments)
        return replace(right, outputs=tuple(torch.full_like(x, math.nan) for x in right.outputs))

    asked = Sweep(dtype="float32", device="cpu", effort=CheckOptions(), run=spoiled)
    wrong = sweep_entries([database[name]], asked)
    assert len(wrong.faults) > 3
    assert all("wrongly finite, infinite or NaN" in fault for fault in wrong.faults)


def test_noughts_without_memory_are_not_looked_into_for_an_overflow(
    database: dict[str, Entry],
) -> None:
    """sgn's gradient is such: to look into it ended the process."""

    def spoiled(*arguments: Any) -> Computed:
        right = execute_entry(*arguments)
        wrong = (None if g is None else torch.full_like(g, math.nan) for g in right.gradients)
        return replace(right, gradients=tuple(wrong))

    asked = Sweep(dtype="float32", how="backward", device="cpu", effort=CheckOptions(), run=spoiled)
    assert sweep_entries([database["sgn"]], asked).faults


def test_by_five_percent_an_entry_that_is_three_percent_off_is_right(
    database: dict[str, Entry],
) -> None:
    def larger(*arguments: Any) -> Computed:
        right = execute_entry(*arguments)
        return replace(right, outputs=tuple(x * 1.03 for x in right.outputs))

    for profile, right in (("strict", False), ("torch", False), ("five-percent", True)):
        effort = CheckOptions(profile=profile)
        sweep = Sweep(dtype="float32", device="cpu", effort=effort, run=larger)
        assert (sweep_entries([database["sinc"]], sweep).faults == []) is right


def test_seeds_repeat_the_backward_and_not_the_forward() -> None:
    seeds = CheckOptions(seeds=(0, 1, 2))
    sweep = Sweep(dtype="float32", device="cpu", effort=seeds)
    assert sweep.seeds == (0,)
    assert replace(sweep, how="backward").seeds == (0, 1, 2)


@pytest.mark.process
def test_sweeps_beside_each_other_find_what_they_find_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def begin(
        find: str, asked: Any, effort: CheckOptions, *, lanes: int, joined: Any
    ) -> list[Check]:
        begun.extend(asked)
        assert lanes == 2

        def found(parts: Any) -> CheckFinding:
            findings = []
            for arguments in parts:
                item = {"find": find, "effort": vars(effort), "arguments": arguments}
                told = json.loads(json.dumps(find_out(json.loads(json.dumps(item)))))
                findings.append(CheckFinding(**told))
            whole: CheckFinding = joined(findings)
            return whole

        return [Check(name=name, find=partial(found, parts)) for name, parts in asked.items()]

    monkeypatch.setattr(sweep, "load_database", lambda: load_database()[::90])
    monkeypatch.setattr(sweep, "begin_parts", begin)
    found = []
    for lanes in (0, 2):
        monkeypatch.setattr(sweep, "lanes_for", lambda _, n=lanes, **__: n)
        folder = tmp_path / str(lanes)
        folder.mkdir()
        recorder = Recorder(session="opinfo", target="cpu", folder=folder)
        sweep.record_beside(CPU, recorder, CheckOptions())
        assert recorder.finish()
        document = json.loads((folder / "opinfo.json").read_text())
        found.append([{**check, "seconds": 0} for check in document["checks"]])
        assert begun == ([] if not lanes else [check["name"] for check in found[0][1:]])
    assert found[0] == found[1]
    assert len(found[0]) > 4


def test_a_part_that_could_not_be_swept_is_the_sweeps_end() -> None:
    whole = passed("", swept=Swept(entries=1, samples=1, ratios=[0.5]).told())
    wrong = passed("", swept=Swept(entries=1, samples=1, faults=["abs, sample 0: off"]).told())
    lost = CheckFinding(outcome=ERROR, reason="crashed: signal SIGSEGV")
    assert finding_of_parts([whole, lost, whole]) == lost
    assert finding_of_parts([whole, whole]).reason == "2 entries, 2 samples"
    assert finding_of_parts([whole, wrong]).outcome == "failed"


def test_a_torch_without_the_database_is_unavailable_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, adapter.DATABASE, SimpleNamespace(op_db=[]))
    checks = record(tmp_path, "opinfo")
    assert checks["database"]["outcome"] == "unavailable"
    assert "without op_db" in str(checks["database"]["reason"])
    assert checks["float32"]["outcome"] == "unavailable"


def test_a_native_convolution_stores_what_each_sample_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    how = Arithmetic(dtype=torch.bfloat16, device="cuda")
    one = torch.ones(1).double()
    assert how.rounding_of("convolution") == ""
    monkeypatch.setattr(operations, "cudnn_enabled", lambda: False)
    assert how.rounding_of("convolution") == "samples"
    four, once = (how.sum_rounding("convolution", one * 100, one, n) for n in (4.0, 1.0))
    assert float(four) == 2 * float(once) == 2 * how.unit


def test_a_cpu_without_bfloat16_in_onednn_convolves_as_natively(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    how = Arithmetic(dtype=torch.bfloat16, device="cpu")
    for has, said in ((True, ""), (False, "samples")):
        monkeypatch.setattr(operations, "onednn_has_bfloat16", lambda has=has: has)
        assert how.rounding_of("convolution") == said
        assert replace(how, device="cuda").rounding_of("convolution") == ""


def test_sums_that_round_are_known_by_device_and_for_all() -> None:
    assert Arithmetic(dtype=torch.bfloat16, device="cuda").rounding_of("scatter") == "every"
    assert Arithmetic(dtype=torch.float32, device="cuda").rounding_of("scatter") == ""


def test_every_exemption_has_a_reason_and_a_known_mutation() -> None:
    known = {*ON_TENSORS, "wrong reduction length"}
    for exemption in exemptions():
        assert exemption.mutation in known
        assert len(exemption.reason.split()) > 5


def test_two_sums_that_the_cpu_got_right_by_luck_are_no_measure() -> None:
    exact = torch.tensor([0.9, -0.7], dtype=torch.float64)
    lucky, usual, walk = exact + 6e-6, exact + 7e-5, torch.full_like(exact, 5e-5)
    told = partial(rms_fault, "output", exact=exact, same_dtype=lucky, dtype=torch.float32)
    assert told(tensor=usual, walk=walk)[1] == ""
    assert "times what the CPU's" in told(tensor=exact * 1.01, walk=walk)[1]
    found, right, cpu, once = (x.repeat(8) for x in (usual, exact, lucky, walk))
    refused = rms_fault("output", found, right, cpu, torch.float32, walk=once)
    assert "times what the CPU's" in refused[1]


def test_one_sum_after_the_other_may_walk_where_the_cpu_was_lucky() -> None:
    """einsum to one number, as an H100 adds it: over 14 times one rounding, with two seeds of two.
    Wrong by a thousandth, it is refused as ever.
    """
    case = next(c for c in BY_NAME["einsum"].make_cases("float32", 0) if c.name == "ij,ij->")
    how = Arithmetic(dtype=torch.float32, device="cuda")
    largest = 0.0
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        x, y = (torch.randn(17, 65, generator=generator) for _ in range(2))
        budgeted = case.operation.judge([x.double(), y.double()], torch.ones(()).double(), how)
        exact = budgeted.output.reference
        walked = torch.zeros(())
        for term in (x * y).flatten():
            walked = walked + term
        told = partial(rms_fault, "output", exact=exact, same_dtype=exact, dtype=torch.float32)
        ratio, fault = told(tensor=walked.double(), walk=budgeted.output.walk)
        assert fault == ""
        largest = max(largest, ratio)
        assert told(tensor=exact + 1e-3 * exact.abs().clamp(min=10), walk=budgeted.output.walk)[1]
    assert largest < 2, "8 are allowed"


def test_an_intermediate_that_is_subnormal_may_be_rounded() -> None:
    """kl_div's gradient is a share of what is fed in, in float16 below the normal numbers, times
    what may be ten: as an H100 computes it.
    """
    case = next(c for c in BY_NAME["kl_div"].make_cases("float16", 0) if c.name == "3x1023")
    x, t = (one.double() for one in case.tensors)
    fed = torch.tensor(0.04, dtype=torch.float64)
    share = (fed / x.numel()).half().double()
    rounded = (share * (t.log() + 1 - x)).half().double()
    how = Arithmetic(dtype=torch.float16, device="cuda")
    budgeted = case.operation.judge([x, t], fed, how).gradients[1]
    assert ((rounded - budgeted.reference).abs() <= budgeted.bound).all()
    assert not ((rounded * 1.03 - budgeted.reference).abs() <= budgeted.bound).all()
