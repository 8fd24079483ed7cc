"""Hazards by class on the CPU: right kernels pass, wrong ones under the dispatcher are caught."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")


from warpfront_checks.cases.catalogue import CATALOGUE  # noqa: E402
from warpfront_checks.cases.known import KnownDefect  # noqa: E402
from warpfront_checks.cases.session import check_name  # noqa: E402
from warpfront_checks.check_options import CheckOptions  # noqa: E402
from warpfront_checks.edge_cases import hazard_checks, linear_systems  # noqa: E402
from warpfront_checks.edge_cases import stateful_ops as kept_state  # noqa: E402
from warpfront_checks.edge_cases.answers import (  # noqa: E402
    Answer,
    CaseContext,
    Hazard,
    HazardClass,
    answer_fault,
)
from warpfront_checks.edge_cases.hazard_checks import class_named, judge_rows  # noqa: E402
from warpfront_checks.edge_cases.hazard_table import HAZARDS  # noqa: E402
from warpfront_checks.edge_cases.narrow_types import _decoded  # noqa: E402
from warpfront_checks.results import Recorder  # noqa: E402

QUICK = CheckOptions(quick=True, seeds=(0,))
ON_THE_CPU = [one for one in HAZARDS if any(not row.devices for row in one.hazards)]
# Rows of seconds: only in the sweep.
SLOW = {
    "permutations",
    "ranges",
    "AdamW",
    "running statistics",
}


@pytest.mark.parametrize("one", ON_THE_CPU, ids=lambda one: one.name)
def test_right_kernels_pass_every_row_of_a_class(one: HazardClass) -> None:
    rows = [row for row in one.hazards if not row.devices and row.name not in SLOW]
    judged = judge_rows(one, rows, "cpu", ("float32",), QUICK)
    assert judged.faults == []
    # Rows without answers pass whatever they ask. A few have none here: torch lacks the kernel.
    assert judged.answers > min(20, len(rows))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("one", ON_THE_CPU, ids=lambda one: one.name)
def test_right_kernels_pass_with_other_seeds_in_every_dtype(one: HazardClass, seed: int) -> None:
    rows = [row for row in one.hazards if not row.devices]
    dtypes = ("float32", "bfloat16", "float16", "float64")
    assert judge_rows(one, rows, "cpu", dtypes, CheckOptions(seeds=(seed,))).faults == []


def test_a_quick_run_tries_both_dtypes_where_16_bits_are_other_kernels() -> None:
    for one in ON_THE_CPU:
        assert set(one.narrow) <= {row.name for row in one.hazards}
        for row in one.hazards:
            known = [name for name in row.dtypes if name in {"float32", "bfloat16"}]
            quick = one.tried(row, ("float32", "bfloat16"), quick=True)
            both = row.name in {one.hazards[0].name, *one.narrow}
            assert list(quick) == (known if both else known[:1]), row.name
            assert list(one.tried(row, ("float32", "bfloat16"), quick=False)) == known


def test_rows_are_checks_of_a_session_and_one_that_raises_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_: CaseContext) -> Any:
        raise IndexError("device lost")
        yield

    def off(ground: CaseContext) -> Any:
        yield Answer("value", ground.send(torch.ones(3)), [1.0, 1.0, 1.5])

    broken = HazardClass(
        name="broken",
        asks="",
        hazards=(
            Hazard(name="a", answers=breaks, dtypes=("float32", "bfloat16")),
            Hazard(name="b", answers=off),
        ),
    )
    elsewhere = HazardClass(
        name="elsewhere", asks="", hazards=(Hazard(name="c", answers=off, devices=("cuda",)),)
    )
    unseen = HazardClass(name="unseen", asks="", hazards=broken.hazards, seen_on=("cuda",))
    monkeypatch.setattr(hazard_checks, "HAZARDS", (broken, elsewhere, unseen, HAZARDS[-1]))
    recorder = Recorder(session="operators", target="cpu", folder=tmp_path)
    recorder.run(hazard_checks.class_checks("cpu", QUICK, recorder))
    recorder.finish()
    document = json.loads((tmp_path / "operators.json").read_text())
    first, last = document["checks"]
    assert (first["outcome"], last["outcome"]) == ("failed", "passed")
    assert first["details"]["faults"] == [
        "a, float32, seed 0: raised IndexError: device lost",
        "a, bfloat16, seed 0: raised IndexError: device lost",
        (
            "b, float32, seed 0: value: element [2] is 1.0, right is 1.5 (1 of 3 are wrong),"
            " off by 0.5 of 0 allowed"
        ),
    ]
    assert document["unclaimed"] == [
        {"name": "elsewhere", "reason": "says nothing about cpu"},
        {"name": "unseen", "reason": "was seen to be right on cuda alone, never tried on cpu"},
    ]


def test_no_drawn_logit_leaves_the_range_of_halves() -> None:
    """Refused what is right at this seed: one of 4,099 was infinite, and the right answer NaN."""
    far = class_named("far out")
    rows = [row for row in far.hazards if row.name == "logarithms of sums"]
    judged = judge_rows(far, rows, "cpu", ("float16",), CheckOptions(seeds=(37913944,)))
    assert judged.faults == []


def test_a_class_is_replaced_where_each_of_its_topics_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(session="operators", target="cpu", folder=tmp_path)
    for kinds, replaced in ((("cpu",), True), (("cuda",), False)):
        monkeypatch.setattr(hazard_checks, "SEEN_ON", {"systems": kinds})
        names = [one.name for one in hazard_checks.claimed_classes("cpu", recorder)]
        assert ("linear algebra" not in names) == replaced
        assert "transforms" in names


def test_what_was_seen_on_one_vendor_says_nothing_of_anothers_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged = [one.name for one in HAZARDS if one.seen_on]
    assert judged == ["kinds of numbers", "lists"]
    for hip, right in ((None, True), ("6.4.1", False)):
        monkeypatch.setattr(torch.version, "hip", hip)
        assert {one.judges("cuda") for one in HAZARDS if one.seen_on} == {right}
        assert all(one.judges("cpu") for one in HAZARDS)
        systems = [
            row.name
            for row in hazard_checks.rows_for(hazard_checks.class_named("linear algebra"), "cuda")
        ]
        assert ("triangles" in systems) == right


@pytest.mark.parametrize(
    ("found", "right", "said"),
    [
        ([1.0, float("nan")], [1.0, float("nan")], ""),
        ([1.0, 2.0], [1.0, float("nan")], "element [1] is 2.0, right is nan"),
        ([float("inf"), 0.0], [1.0, 0.0], "element [0] is inf, right is 1.0"),
        ([-float("inf"), 0.0], [float("inf"), 0.0], "element [0] is -inf"),
        ([1.0], [1.0, 0.0], "shape (1,), expected (2,)"),
        ([1.0000002, 0.0], [1.0, 0.0], ""),
        ([1.000001, 0.0], [1.0, 0.0], "element [0] is"),
    ],
)
def test_an_answer_is_held_to_units_in_the_last_place(
    found: list[float], right: list[float], said: str
) -> None:
    fault, share = answer_fault(Answer("x", torch.tensor(found), right, ulps=2))
    assert fault.startswith(f"x: {said}" if said else "")
    assert bool(fault) is bool(said)
    assert share <= 1 or fault


def test_what_lies_at_the_end_of_the_range_may_be_on_either_side() -> None:
    largest = 65_504.0
    for found, right, ulps, fine in (
        (largest, 65_530.0, 1, True),
        (float("inf"), 65_500.0, 1, True),
        (float("inf"), 60_000.0, 1, False),
        (largest, 1e6, 1, False),
        (-largest, 65_530.0, 1, False),
    ):
        answer = Answer("x", torch.tensor([found]).half(), [right], ulps=ulps)
        assert (answer_fault(answer)[0] == "") is fine, (found, right)


def test_a_table_of_codes_is_the_formats_own() -> None:
    codes = _decoded("float8_e4m3fn")
    assert (codes[0x7E], codes[1], codes[0x38]) == (448.0, 2.0**-9, 1.0)
    assert codes[0xB8] == -1.0


def test_what_torch_itself_gets_wrong_is_said_and_is_no_fault_of_an_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = KnownDefect(thread="torch#1", label="^gradient", device="cpu", before=(2, 14))

    def answers(ground: CaseContext) -> Iterator[Answer]:
        x = ground.send(torch.ones(3))
        yield Answer("gradient of it", x, np.zeros(3))
        yield Answer("output", x, np.zeros(3) if ground.seed else np.ones(3))

    row = Hazard(name="padded", answers=answers, known=(known,))
    own = HazardClass(name="known", asks="", hazards=(row,))
    monkeypatch.setattr(torch, "__version__", "2.13.1+cpu")
    right = judge_rows(own, [row], "cpu", ("float32",), QUICK)
    assert (right.faults, right.known) == ([], {"torch#1": 1})
    assert right.finding().reason == "2 answers; torch gets torch#1 wrong"
    # Another answer of the row, and a torch in which it was mended, are judged as ever.
    other = judge_rows(own, [row], "cpu", ("float32",), CheckOptions(seeds=(1,)))
    assert ["output" in fault for fault in other.faults] == [True]
    monkeypatch.setattr(torch, "__version__", "2.14.0")
    assert judge_rows(own, [row], "cpu", ("float32",), QUICK).faults


def test_a_class_that_the_memory_is_too_small_for_is_skipped_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others may take it between the plan and the row, or while the row computes."""

    def answers(_: CaseContext) -> Iterator[Answer]:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")

    own = hazard_checks.class_named("more than 2^31")
    monkeypatch.setattr(hazard_checks, "free_bytes", lambda _: 2**30)
    for row, said in (
        (Hazard(name="late", answers=answers), "late, float32, seed 0: the device's memory was"),
        (Hazard(name="vast", answers=answers, needed_bytes=2**34), "vast: 16 GiB are not free"),
    ):
        found = judge_rows(own, [row], "cpu", ("float32",), QUICK).finding()
        assert (found.outcome, found.reason[: len(said)]) == ("skipped", said)


def test_adam_may_be_off_where_a_gradient_and_its_decay_cancel_and_nowhere_else() -> None:
    start = np.array([1.0, 1.0, 0.0])
    cancelling = -kept_state.DECAY * start + np.array([1e-5, 1.0, 1.0])
    found = kept_state._cancelled(start, [cancelling], 2.0**-24)
    off, worst = found["parameter"], found["exp_avg"]
    assert (worst < 1e-7).all()
    assert found["exp_avg_sq"][1] == pytest.approx(2 * worst[1], rel=1e-6)
    # 0.1 * 2 * (0.2 + what is left) units, divided by what is left.
    assert off[0] == pytest.approx(0.2 * 2.0**-24 * 0.20001 / 1.001e-5, rel=1e-3)
    assert off[1] == pytest.approx(0.2 * 2.0**-24 * 1.2, rel=1e-3)
    assert off[0] > 1000 * off[1] > 1000 * off[2]
    own = hazard_checks.class_named("kept state")
    rows = [row for row in own.hazards if row.name == "Adam"]
    # Before, one element in 70,001 was refused: of a parameter, and of a moment.
    for seed in (232678425, 250580000):
        assert judge_rows(own, rows, "cpu", ("float32",), CheckOptions(seeds=(seed,))).faults == []


def test_a_class_of_hazards_is_called_as_no_operation_of_the_same_session() -> None:
    """Two checks of one name are an error of the whole verification."""
    names = [check_name(name) for name in CATALOGUE] + [row.name for row in HAZARDS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("complex_too", [False, True])
@pytest.mark.parametrize("matrix", ["_plain", "_positive"])
def test_a_system_is_well_conditioned_whatever_the_seed(matrix: str, *, complex_too: bool) -> None:
    for seed in (45732286, *range(20)):
        ground = CaseContext(device="cpu", dtype=torch.float32, seed=seed)
        ground.generator.manual_seed(seed)
        for n in (1, 3, 65):
            system = getattr(linear_systems, matrix)(ground, (2, 3), n, complex_too=complex_too)
            assert torch.linalg.cond(system).max() < linear_systems.CONDITION * 1.001
