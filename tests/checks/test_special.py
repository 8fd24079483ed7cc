"""The session `operators`: its parts in their order, and properties that right kernels have."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from claimed import CPU  # noqa: E402
from kernels.seeding.cases import altered, seed_property_faults  # noqa: E402
from kernels.seeding.mutations import MutationTally  # noqa: E402

from warpfront_checks.cases.bounds import Tally  # noqa: E402
from warpfront_checks.cases.catalogue import CATALOGUE  # noqa: E402
from warpfront_checks.cases.known_defects import KnownDefect  # noqa: E402
from warpfront_checks.cases.session import FIND_CASES  # noqa: E402
from warpfront_checks.cases.special import session  # noqa: E402
from warpfront_checks.cases.special.properties import (  # noqa: E402
    check_autocast,
    check_gradients,
    check_memory,
    check_repeats,
    memory_readings,
    sampled,
    systematic_growth,
)
from warpfront_checks.cases.special.tables import FIND_TABLE, TABLES  # noqa: E402
from warpfront_checks.check_options import CheckOptions  # noqa: E402
from warpfront_checks.results import CheckFinding, Checks, Recorder, passed  # noqa: E402

QUICK = CheckOptions(quick=True, seeds=(0,))
EVERY = list(CATALOGUE.values())
PROPERTIES = {
    "derivatives": (check_gradients, EVERY, 300),
    "repeats": (check_repeats, EVERY, 400),
    "memory": (check_memory, sampled(1), 80),
}


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.filterwarnings("ignore")
def test_right_operations_have_each_property(name: str) -> None:
    check, operations, least = PROPERTIES[name]
    report: Tally = check(operations, "cpu")
    assert report.faults == []
    assert report.cases - len(report.excluded) > least


@pytest.mark.filterwarnings("ignore")
def test_an_operation_without_a_property_is_caught() -> None:
    ledger = MutationTally()
    seed_property_faults(sampled(0)[:8], "cpu", ledger)
    assert ledger.missed == []
    assert len(ledger.caught) == 3


def test_autocast_computes_what_torch_documents_and_a_wrong_dtype_or_value_is_a_fault() -> None:
    assert check_autocast("cpu") == Tally(cases=29)

    def twice(run: Any) -> Any:
        return lambda: [2 * x for x in run()]

    def wide(run: Any) -> Any:
        return lambda: [x.double() for x in run()]

    kept: list[Any] = []

    def first(run: Any) -> Any:
        kept[:] = kept or [run()]
        return lambda: kept[0]

    for alter, part in (
        (twice, "right is"),
        (wide, "expected torch.float32"),
        (wide, "expected torch.bfloat16"),
        (first, "an earlier weight's result"),
    ):
        assert any(
            part in fault for fault in altered("_run", alter, check_autocast, "cpu").faults
        ), part


def test_repeats_have_a_long_size_so_that_blocks_may_differ() -> None:
    chosen = [CATALOGUE[name] for name in ("cumsum", "index_add", "mm")]
    lengths: list[int] = []

    def watched(run: Any) -> Any:
        def longest() -> Any:
            found = run()
            lengths.append(max(n for x in found if x is not None for n in (*x.shape, 1)))
            return found

        return longest

    assert altered("_run", watched, check_repeats, chosen, "cpu").cases == 3
    assert max(lengths) > 4096


def test_a_known_defect_of_repeats_is_named_and_is_no_fault_of_the_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defect = KnownDefect(thread="a#1", device="cpu", label="runs on the same inputs")
    chosen = [replace(CATALOGUE["mm"], defects=(defect,)), CATALOGUE["cumsum"]]
    calls = itertools.count()

    def unlike(run: Any) -> Any:
        return lambda: [x if x is None else x + next(calls) for x in run()]

    monkeypatch.setitem(CATALOGUE, "mm", chosen[0])
    report = altered("_run", unlike, check_repeats, chosen, "cpu")
    assert [fault.partition(":")[0] for fault in report.faults] == ["cumsum"]
    assert report.defects == {"a#1": 1}


def test_a_known_defect_of_derivatives_is_named_and_what_is_unsafe_does_not_run() -> None:
    wrong = KnownDefect(thread="a#1", device="cpu", label="Jacobian")
    unsafe = KnownDefect(thread="a#2", device="cpu", unsafe=True)
    chosen = [
        replace(CATALOGUE["mm"], defects=(wrong,)),
        replace(CATALOGUE["exp"], defects=(unsafe,)),
        CATALOGUE["cumsum"],
    ]

    def bent(call: Any) -> Any:
        return lambda *leaves: call(*leaves) + leaves[0].detach().sum()

    report = altered("_call", bent, check_gradients, chosen, "cpu")
    assert [fault.partition(":")[0] for fault in report.faults] == ["cumsum"]
    assert report.defects == {"a#1": 1}
    assert check_repeats(chosen[1:2], "cpu").cases == 0


def test_each_seed_draws_other_operations() -> None:
    names = [[operation.name for operation in sampled(seed)] for seed in (1, 1, 2)]
    assert names[0] == names[1] != names[2]


def test_memory_that_is_kept_shows_beside_what_the_collector_gives_back() -> None:
    held = [0]

    class Left:
        """Of something before: no more than the collector knows that it can go."""

        def __init__(self) -> None:
            self.itself = self
            held[0] += 10**9

        def __del__(self) -> None:
            held[0] -= 10**9

    def keeps() -> None:
        held[0] += 10**6
        if held[0] % 10**9 == 12 * 10**6:
            gc.collect()

    Left()
    readings = memory_readings(keeps, lambda: held[0])
    assert systematic_growth(readings, 10**6) > 0


def test_where_there_are_cores_tables_begin_before_the_properties_and_end_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def begin(find: str, asked: Any, effort: CheckOptions, *, lanes: int) -> Checks:
        told.append(f"{lanes} lanes")
        assert effort is QUICK
        if find == FIND_CASES:
            assert asked["mm, cases"] == {"name": "mm", "device": "cpu"}
        else:
            assert find == FIND_TABLE
        return dict.fromkeys(asked, noting("table"))

    def noting(word: str) -> Callable[[], CheckFinding]:
        def find() -> CheckFinding:
            told.append(word)
            return passed()

        return find

    monkeypatch.setattr(session, "lanes_for", lambda _, **__: 3)
    monkeypatch.setattr(session, "begin_checks", begin)
    special = {"memory": noting("memory")}
    monkeypatch.setattr(session, "property_checks", lambda *_: special)
    recorder = Recorder(session="operators", target="cpu", folder=tmp_path)
    session.record_operators(CPU, recorder, QUICK)
    assert told[:4] == ["3 lanes", "3 lanes", "memory", "table"]
    claimed = {*TABLES} - {"more than 2^31", "streams"}
    tables = [name for name in recorder.planned if not name.endswith(", cases")]
    assert set(tables) == claimed | {"memory"}
    assert recorder.finish()
