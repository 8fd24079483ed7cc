"""Wrong kernels: each is wrong where it says, and is seen by the check that `seen.json` names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from claimed import CPU  # noqa: E402
from kernels import KERNELS, seeded, topic_of  # noqa: E402
from kernels.kernel import WrongKernel, operators_of  # noqa: E402
from kernels.seeding import dispatched, session  # noqa: E402
from kernels.seeding.dispatched import checks_of, seed_kernels, seeing, seen  # noqa: E402
from kernels.seeding.mutations import MutationTally  # noqa: E402

from warpfront_checks.cases.catalogue import CATALOGUE, TOPICS  # noqa: E402
from warpfront_checks.cases.session import SEEN_ON  # noqa: E402
from warpfront_checks.cases.special.tables import TABLES  # noqa: E402
from warpfront_checks.results import Recorder  # noqa: E402
from warpfront_checks.selftest import (  # noqa: E402
    CHECKOUT,
    VARIABLE,
    FaultsMissingError,
    faults_folder,
)

TRIED = [name for name, fault in KERNELS.items() if checks_of(fault, "cpu")]


def name_of(check: list[str]) -> str:
    """The topic of a case's operation, or the table of rows."""
    kind, place, *_ = check
    if kind != "cases":
        return place if kind == "rows" else kind
    return next(topic for topic, ops in TOPICS.items() if CATALOGUE[place] in ops)


# By topic or table, a kernel that it sees, and the check itself.
FIRST = {
    name_of(check): (name, check)
    for name in reversed(TRIED)
    for check in checks_of(KERNELS[name], "cpu")
}


def _all(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _same(found: Any, other: Any) -> bool:
    pairs = zip(_all(found), _all(other), strict=True)
    return all(x.shape == y.shape and torch.allclose(x, y, 0, 0, equal_nan=True) for x, y in pairs)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_every_kernel_is_wrong_where_it_says_and_taken_out_again() -> None:
    for name, kernel in KERNELS.items():
        if kernel.shown is None or ["not tried"] in seen().get(name, []):
            continue
        right = kernel.shown()
        with seeded(kernel, "cpu"):
            wrong = kernel.shown()
        assert not _same(right, wrong), name
        assert _same(right, kernel.shown()), name


def test_each_check_that_is_named_is_there_and_no_kernel_is_in_two_sets() -> None:
    assert set(seen()) <= set(KERNELS)
    assert len(KERNELS) == 1478
    for kind, *place in (check for checks in seen().values() for check in checks):
        if kind == "cases":
            assert place[0] in CATALOGUE
        elif kind == "opinfo":
            assert len(place) in {0, 2}
        elif kind == "rows":
            assert set(place[1].split("; ")) <= {row.name for row in TABLES[place[0]]}


def on_the_cpu() -> Iterator[str]:
    for topic, devices in SEEN_ON.items():
        if "cpu" in devices:
            yield topic
    yield "opinfo"
    for name, table in TABLES.items():
        if any(not row.devices for row in table):
            yield name


@pytest.mark.parametrize("check", list(on_the_cpu()))
@pytest.mark.filterwarnings("ignore")
def test_each_check_catches_a_wrong_kernel_of_the_data_set(check: str) -> None:
    assert check in FIRST, f"{check} sees no kernel: is it needed?"
    name, place = FIRST[check]
    assert next(seeing(KERNELS[name], "cpu", place), "")


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRIED)
def test_every_kernel_is_caught_where_it_was_seen(name: str) -> None:
    caught(name)


def caught(name: str) -> None:
    ledger = MutationTally()
    seed_kernels([KERNELS[name]], "cpu", ledger)
    assert ledger.missed == []
    for operator in operators_of(KERNELS[name], "cpu"):
        assert "kernels" not in str(torch.library.get_kernel(f"aten::{operator}", "CPU"))


def test_a_kernel_gets_the_arguments_that_it_names_and_changes_one() -> None:
    def cut(right: Any, x: Any, dim: Any, keepdim: Any) -> Any:
        assert (dim, keepdim) == ([1], False)
        return right(x=x[:, :-1])

    fault = WrongKernel("cut", ("sum.dim_IntList",), cut)
    with seeded(fault, "cpu"):
        assert torch.ones(2, 4).sum(1).tolist() == [3.0, 3.0]
    assert torch.ones(2, 4).sum(1).tolist() == [4.0, 4.0]


def test_a_blind_judge_fails_the_selftest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: KERNELS[name] for name in TRIED[:1]}
    monkeypatch.setattr(session, "KERNELS", few)
    outcomes = []
    for blind in (False, True):
        if blind:
            monkeypatch.setattr(dispatched, "seeing", lambda *_: iter(()))
        recorder = Recorder(session="selftest", target="cpu", folder=tmp_path)
        session.record_kernel_faults(CPU, recorder)
        outcomes += [outcome for _, outcome in recorder.found]
    assert outcomes == ["passed", "failed"]
    assert topic_of(next(iter(few.values()))) in {path.stem for path in CHECKOUT.glob("*.py")}


def test_a_kernel_that_is_right_is_seen_by_nothing() -> None:
    name = TRIED[0]
    fault = WrongKernel(
        name, KERNELS[name].operators, lambda right, *args, **kw: right(*args, **kw)
    )
    assert list(seeing(fault, "cpu", checks_of(fault, "cpu")[0])) == []


def test_without_its_faults_the_selftest_ends_with_one_error(tmp_path: Path) -> None:
    assert faults_folder({}) == CHECKOUT
    with pytest.raises(FaultsMissingError, match=f"{VARIABLE}=.*\nhint: set {VARIABLE}"):
        faults_folder({VARIABLE: str(tmp_path)})
