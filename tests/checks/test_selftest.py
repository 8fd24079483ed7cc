"""The selftest, a part of each suite: faults are caught, and a judge that looks away fails it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from claimed import CPU  # noqa: E402
from kernels.seeding import cases as case_faults  # noqa: E402
from kernels.seeding import collectives  # noqa: E402
from kernels.seeding import networks as layer_faults  # noqa: E402
from kernels.seeding import session as selftest  # noqa: E402
from kernels.seeding.mutations import (  # noqa: E402
    ON_TENSORS,
    SLIGHT,
    WIDER,
    MutationTally,
    Seeded,
    exemption_of,
    exemptions,
    tf32,
)
from rank_threads import exchange_in_threads  # noqa: E402

from warpfront_checks.cases.bounds import Verdict  # noqa: E402
from warpfront_checks.cases.catalogue import CATALOGUE, TOPICS  # noqa: E402
from warpfront_checks.cases.measured import Measured  # noqa: E402
from warpfront_checks.check_options import CheckOptions  # noqa: E402
from warpfront_checks.devices.device_session import Told  # noqa: E402
from warpfront_checks.models.families import NETWORKS  # noqa: E402
from warpfront_checks.models.judging import first_over  # noqa: E402
from warpfront_checks.opinfo.adapter import DatabaseMoved, Entry, load_database  # noqa: E402
from warpfront_checks.precision import require_full_precision  # noqa: E402
from warpfront_checks.results import Recorder  # noqa: E402

QUICK = CheckOptions(quick=True)


def recorded(folder: Path, record: Any, **options: Any) -> dict[str, dict[str, Any]]:
    recorder = Recorder(session="selftest", target="cpu", folder=folder)
    record(CPU, recorder, **options)
    recorder.finish()
    document = json.loads((folder / "selftest.json").read_text())
    return {check["name"]: check for check in document["checks"]}


@pytest.fixture
def a_few_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "NETWORKS", NETWORKS[:1])
    monkeypatch.setattr(selftest, "TOPICS", {"matrices": TOPICS["matrices"][:3]})
    monkeypatch.setattr(selftest, "tested_dtypes", lambda _: ("float32",))
    monkeypatch.setattr(selftest, "seed_property_faults", lambda *_: None)


@pytest.mark.usefixtures("a_few_of_each")
def test_every_fault_in_networks_and_cases_is_caught(tmp_path: Path) -> None:
    checks = recorded(tmp_path, selftest.record_selftest, effort=QUICK)
    assert list(checks) == ["mlp float32", "cases of matrices", "properties"]
    assert checks["properties"]["reason"] == "no fault could be seeded"
    del checks["properties"]
    assert {n: c["reason"] for n, c in checks.items() if c["outcome"] != "passed"} == {}
    seeded = checks["cases of matrices"]["details"]["mutations"]
    assert seeded["3 percent too large"]["caught"] == 10
    assert seeded["wider dtype than asked"]["caught"] == 10


@pytest.mark.usefixtures("a_few_of_each")
def test_a_judge_that_sees_nothing_fails_the_selftest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_faults, "first_over", lambda _: None)
    monkeypatch.setattr("kernels.seeding.mutations.compared", lambda *_: iter(()))
    checks = recorded(tmp_path, selftest.record_selftest, effort=QUICK)
    assert checks["mlp float32"]["outcome"] == "failed"
    said = "not caught: 3 percent too large: mlp float32, output of body.0"
    assert said in checks["mlp float32"]["reason"]
    assert checks["cases of matrices"]["outcome"] == "failed"
    assert len(checks["cases of matrices"]["details"]["missed"]) > 40


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.filterwarnings("ignore")
def test_every_fault_in_the_results_of_a_topic_is_caught(topic: str) -> None:
    ledger = MutationTally()
    case_faults.seed_case_faults(TOPICS[topic], "float32", "cpu", ledger)
    assert ledger.missed == []
    assert ledger.seeded > 4 * len(TOPICS[topic])


@pytest.mark.filterwarnings("ignore")
def test_a_bound_of_units_in_the_last_place_that_lets_a_fault_pass_is_seen() -> None:
    """By what CONTRIBUTING.md runs for a new record, which test_recipe.py follows."""
    ledger = MutationTally()
    loose = replace(CATALOGUE["erf"], ulps=4e6)
    case_faults.seed_case_faults([loose], "float32", "cpu", ledger)
    assert ledger.missed


@pytest.mark.filterwarnings("ignore")
def test_a_bound_widens_the_slightest_fault_and_no_other() -> None:
    operation = next(one for one in TOPICS["norms"] if one.name == "layer_norm")
    for roundings, missed in ((50_000.0, False), (500_000.0, True)):
        ledger = MutationTally()
        wide = replace(operation, roundings=roundings)
        case_faults.seed_case_faults([wide], "float32", "cpu", ledger)
        assert WIDER in ledger.exempt[SLIGHT]
        names = {text.partition(": ")[0] for text in ledger.missed}
        assert ("3 percent too large" in names) is missed
        assert bool(names) is missed


@pytest.mark.parametrize(
    ("every", "least"), [(5, 800), pytest.param(1, 4000, marks=pytest.mark.exhaustive)]
)
def test_every_fault_in_the_database_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int, least: int
) -> None:
    """One entry in five always, chosen by its name; all of them with --exhaustive."""
    monkeypatch.setattr(selftest, "tested_dtypes", lambda _: ("float32",))
    chosen = [one for one in load_database() if crc32(one.name.encode()) % every == 0]
    monkeypatch.setattr(selftest, "load_database", lambda: chosen)
    checks = recorded(tmp_path, selftest.record_opinfo_faults, effort=QUICK)
    assert {name: one["reason"] for name, one in checks.items() if one["outcome"] != "passed"} == {}
    assert [one["details"]["seeded"] > least for one in checks.values()] == [True, True]


@pytest.mark.process
def test_faults_in_the_database_are_caught_and_a_blind_judge_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few: list[Entry] = [one for one in load_database() if one.name in {"sinc", "addbmm", "eq"}]
    monkeypatch.setattr(selftest, "load_database", lambda: few)
    checks = recorded(tmp_path, selftest.record_opinfo_faults, effort=QUICK)
    assert {check["outcome"] for check in checks.values()} == {"passed"}
    assert list(checks) == ["opinfo float32", "opinfo float32 backward", "opinfo bfloat16"]
    assert checks["opinfo float32"]["details"]["seeded"] >= 2 * (len(ON_TENSORS) - 1)
    monkeypatch.setattr(Measured, "verdict", lambda *_: Verdict())
    missed = recorded(tmp_path, selftest.record_opinfo_faults, effort=QUICK)["opinfo float32"]
    assert missed["outcome"] == "failed"


def test_without_its_database_the_selftest_of_opinfo_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved() -> list[Entry]:
        raise DatabaseMoved("torch has moved it")

    monkeypatch.setattr(selftest, "load_database", moved)
    checks = recorded(tmp_path, selftest.record_opinfo_faults, effort=QUICK)
    assert {check["outcome"] for check in checks.values()} == {"unavailable"}


def test_every_layer_of_a_model_is_named_and_a_misnamed_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_faults, "SEEDED", ("mlp",))
    check = recorded(tmp_path, layer_faults.record_model_faults, effort=None)["model mlp"]
    assert check["outcome"] == "passed"
    assert check["details"]["seeded"] == 12
    right = first_over

    def elsewhere(*arguments: Any) -> Any:
        first = right(*arguments)
        return replace(first, layer="body.layers.0") if first else None

    monkeypatch.setattr(layer_faults, "first_over", elsewhere)
    check = recorded(tmp_path, layer_faults.record_model_faults, effort=None)["model mlp"]
    assert check["outcome"] == "failed"
    assert "body.layers.0 was named" in check["reason"]


def test_faults_between_devices_are_recorded_one_check_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exchange(_: str, world: int, fault: str) -> Told:
        folder = tmp_path / fault
        folder.mkdir(exist_ok=True)
        return exchange_in_threads(folder, world, fault)

    monkeypatch.setattr(collectives, "exchange", exchange)
    checks = recorded(tmp_path, collectives.record_device_faults)
    assert list(checks) == [f"collectives: {name}" for name in collectives.FAULTS]
    assert {check["outcome"] for check in checks.values()} == {"passed"}


def test_a_ledger_tells_caught_from_declared_and_from_missed() -> None:
    ledger = MutationTally()
    row = next(one for one in exemptions() if one.suites and one.checks)
    declared = Seeded(
        mutation=row.mutation,
        suite=row.suites[0],
        check=row.checks[0],
        dtype=(row.dtypes or ("float32",))[0],
        device=(row.devices or ("cpu",))[0],
        place=(row.places or ("output",))[0],
    )
    undeclared = replace(declared, suite="none", check="none", dtype="none")
    assert exemption_of(declared) == row.reason
    ledger.enter(declared, caught=False)
    ledger.enter(undeclared, caught=False)
    ledger.enter(undeclared, caught=True)
    counts = ledger.document()[row.mutation]
    assert (counts["caught"], counts["missed"]) == (1, 1)
    assert counts["not demanded"] == {row.reason: 1}
    assert ledger.seeded == 2


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.complex64, torch.float32])
def test_a_mutation_changes_a_tensor_of_any_kind_or_leaves_it_whole(dtype: Any) -> None:
    tensor = torch.arange(1, 131).reshape(2, 65).remainder(7).to(dtype)
    for name in ("one wrong element", "one row negated", "one row missing", "all zeros"):
        assert not torch.equal(ON_TENSORS[name](tensor).to(dtype), tensor), name
    for mutate in ON_TENSORS.values():
        assert mutate(torch.empty(0, dtype=dtype)).numel() == 0
    assert torch.equal(ON_TENSORS["a NaN"](tensor), tensor) is (dtype != torch.float32)


def test_low_precision_of_the_hardware_is_on_only_while_it_is_seeded() -> None:
    require_full_precision()
    matmul: Any = torch.backends.cuda.matmul
    with tf32():
        assert matmul.fp32_precision == "tf32"
    assert matmul.fp32_precision == "ieee"
