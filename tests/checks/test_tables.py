"""Tables of rows on the CPU: right kernels pass, a row that raises or has no memory is a result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from warpfront_checks.cases.bounds import Verdict  # noqa: E402
from warpfront_checks.cases.catalogue import CATALOGUE  # noqa: E402
from warpfront_checks.cases.catalogue.systems import DOMINANT, POSITIVE  # noqa: E402
from warpfront_checks.cases.known_defects import KnownDefect  # noqa: E402
from warpfront_checks.cases.session import check_name  # noqa: E402
from warpfront_checks.cases.special import tables  # noqa: E402
from warpfront_checks.cases.special.rows import CaseContext, Row, verdict_of  # noqa: E402
from warpfront_checks.cases.special.tables import TABLES, judge_rows  # noqa: E402
from warpfront_checks.check_options import CheckOptions  # noqa: E402

QUICK = CheckOptions(quick=True, seeds=(0,))
ON_THE_CPU = [name for name, table in TABLES.items() if any(not r.devices for r in table)]
# Rows of seconds: only in the sweep.
SLOW = {"permutations", "ranges"}


@pytest.mark.parametrize("name", ON_THE_CPU)
def test_right_kernels_pass_every_row_of_a_table(name: str) -> None:
    rows = [row for row in TABLES[name] if not row.devices and row.name not in SLOW]
    judged = judge_rows(rows, "cpu", ("float32",), QUICK)
    assert judged.faults == []
    # Rows without answers pass whatever they ask. A few have none here: torch lacks the kernel.
    assert judged.cases > min(10, len(rows))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ON_THE_CPU)
def test_right_kernels_pass_with_other_seeds_in_every_dtype(name: str, seed: int) -> None:
    rows = [row for row in TABLES[name] if not row.devices]
    dtypes = ("float32", "bfloat16", "float16", "float64")
    assert judge_rows(rows, "cpu", dtypes, CheckOptions(seeds=(seed,))).faults == []


def off(ground: CaseContext) -> Iterator[Verdict]:
    yield verdict_of("value", ground.send(torch.ones(3)), [1.0, 1.0, 1.5])


def test_a_row_that_raises_stops_no_other_and_a_quick_run_has_one_dtype() -> None:
    def breaks(_: CaseContext) -> Any:
        raise IndexError("device lost")
        yield

    rows = [
        Row(name="a", answers=breaks, dtypes=("float32", "bfloat16")),
        Row(name="b", answers=off),
    ]
    value = (
        "b, float32, seed 0: value: element [2] is 1.0, right is 1.5 (1 of 3 are wrong),"
        " off by 0.5 of 0 allowed"
    )
    raised = [
        f"a, {name}, seed 0: raised IndexError: device lost" for name in ("float32", "bfloat16")
    ]
    dtypes = ("float32", "bfloat16")
    assert judge_rows(rows, "cpu", dtypes, CheckOptions(seeds=(0,))).faults == [*raised, value]
    assert judge_rows(rows, "cpu", dtypes, QUICK).faults == [raised[0], value]
    assert judge_rows(rows, "cpu", (), QUICK).finding("answers").outcome == "failed"


def test_a_table_of_other_devices_is_unclaimed(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(name="c", answers=off, devices=("cuda",))
    here = (Row(name="d", answers=off),)
    monkeypatch.setattr(tables, "TABLES", {"elsewhere": (row,), "here": here})
    obstacles = tables.table_obstacles("cpu")
    assert obstacles == {"elsewhere": "says nothing about cpu", "here": ""}


def test_rows_of_one_vendor_say_nothing_of_anothers_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for hip, right in ((None, True), ("6.4.1", False)):
        monkeypatch.setattr(torch.version, "hip", hip)
        rows = tables.rows_for(TABLES["linear algebra"], "cuda")
        assert ("cholesky" in {row.name for row in rows}) == right


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
    verdict = verdict_of("x", torch.tensor(found), right, ulps=2)
    assert verdict.name == "x"
    assert verdict.fault.startswith(said)
    assert bool(verdict.fault) is bool(said)
    assert verdict.share <= 1 or verdict.fault


def test_what_lies_at_the_end_of_the_range_may_be_on_either_side() -> None:
    largest = 65_504.0
    for found, right, ulps, fine in (
        (largest, 65_530.0, 1, True),
        (float("inf"), 65_500.0, 1, True),
        (float("inf"), 60_000.0, 1, False),
        (largest, 1e6, 1, False),
        (-largest, 65_530.0, 1, False),
    ):
        verdict = verdict_of("x", torch.tensor([found]).half(), [right], ulps=ulps)
        assert (verdict.fault == "") is fine, (found, right)


def test_what_torch_itself_gets_wrong_is_said_and_is_no_fault_of_an_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = KnownDefect(thread="torch#1", label="^gradient", device="cpu", before=(2, 14))

    def answers(ground: CaseContext) -> Iterator[Verdict]:
        x = ground.send(torch.ones(3))
        yield verdict_of("gradient of it", x, np.zeros(3))
        yield verdict_of("output", x, np.zeros(3) if ground.seed else np.ones(3))

    row = Row(name="padded", answers=answers, defects=(known,))
    monkeypatch.setattr(torch, "__version__", "2.13.1+cpu")
    right = judge_rows([row], "cpu", ("float32",), QUICK)
    assert (right.faults, right.defects) == ([], {"torch#1": 1})
    assert right.finding("answers").reason == "2 answers; torch gets torch#1 wrong"
    # Another answer of the row, and a torch in which it was mended, are judged as ever.
    other = judge_rows([row], "cpu", ("float32",), CheckOptions(seeds=(1,)))
    assert ["output" in fault for fault in other.faults] == [True]
    monkeypatch.setattr(torch, "__version__", "2.14.0")
    assert judge_rows([row], "cpu", ("float32",), QUICK).faults


def test_a_table_that_the_memory_is_too_small_for_is_skipped_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others may take it between the plan and the row, or while the row computes."""

    def answers(_: CaseContext) -> Iterator[Verdict]:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")

    monkeypatch.setattr(tables, "free_bytes", lambda _: 2**30)
    for row, said in (
        (Row(name="late", answers=answers), "late, float32, seed 0: the device's memory was"),
        (Row(name="vast", answers=answers, needed_bytes=2**34), "vast: 16 GiB are not free"),
    ):
        found = judge_rows([row], "cpu", ("float32",), QUICK).finding("answers")
        assert (found.outcome, found.reason[: len(said)]) == ("skipped", said)


def test_a_table_is_called_as_no_operation_of_the_same_session() -> None:
    """Two checks of one name are an error of the whole verification."""
    names = [check_name(name) for name in CATALOGUE] + [*TABLES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("matrix", [DOMINANT, POSITIVE])
def test_a_system_is_well_conditioned_whatever_the_seed(matrix: str) -> None:
    for seed in (45732286, *range(20)):
        generator = torch.Generator().manual_seed(seed)
        for n in (2, 3, 65):
            h = torch.randn(2, 3, n, n, generator=generator, dtype=torch.float64)
            system = eval(matrix.format(n=n), {"torch": torch})(h)
            assert torch.linalg.cond(system).max() < 4
