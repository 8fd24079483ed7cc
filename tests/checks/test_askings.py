"""Entries of the operator database are asked otherwise than by their samples: what right kernels
answer is right, and what is wrong in one of the ways to ask is seen.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from warpfront.inside.checks.hazards.seeding import KernelFault, seeded  # noqa: E402
from warpfront.inside.checks.opinfo.adapter import Entry, load_database  # noqa: E402
from warpfront.inside.checks.opinfo.askings import ASKINGS, ask, left_out  # noqa: E402

SEEDS = range(6)
# torch's test package looks for GPUs.
pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def database() -> dict[str, Entry]:
    return {entry.name: entry for entry in load_database()}


def faults(entry: Entry, seeds: range = SEEDS) -> list[str]:
    asked = (ask(entry, number, seed, "cpu") for seed in seeds for number in range(ASKINGS))
    return [f"{said}: {fault}" for answers in asked for said, fault in answers if fault]


def turned(right: Any, x: Any, **out: Any) -> Any:
    """Reads what is no row of memory as if it were."""
    result = right(x, **out)
    return result if x.is_contiguous() else result.mul_(2)


def long(right: Any, x: Any, **out: Any) -> Any:
    result = right(x, **out)
    return result.zero_() if x.numel() > 1000 else result


def broken(right: Any, x: Any, **out: Any) -> Any:
    return right(x, **out).masked_fill_(x.isnan(), 0)


def into(right: Any, x: Any, **named: Any) -> Any:
    """Writes between the numbers of what it is told to write."""
    result = right(x, **named)
    if named and not result.is_contiguous() and result.storage_offset() == 1:
        result.as_strided((result.numel() * 2,), (1,), 0).fill_(7)
    return result


def spoils(right: Any, x: Any, **out: Any) -> Any:
    result = right(x, **out)
    if not out:
        x.zero_()
    return result


def narrow(right: Any, x: Any, y: Any, **named: Any) -> Any:
    """Bytes are held to 100."""
    result = right(x, y, **named)
    return result.clamp_(-100, 100) if result.dtype in {torch.int8, torch.uint8} else result


WAYS: dict[str, tuple[str, tuple[str, ...], Any, str]] = {
    "turned": ("sin", ("sin", "sin.out"), turned, "memory"),
    "long": ("sin", ("sin", "sin.out"), long, " for "),
    "broken": ("erf", ("erf", "erf.out"), broken, "broken"),
    "in place": ("sin", ("sin_",), lambda right, x: right(x).mul_(2), "in place"),
    "into": ("sin", ("sin.out",), into, "memory between the results"),
    "spoils": ("sin", ("sin",), spoils, "another afterwards"),
    "narrow": ("add", ("add.Tensor", "add.out"), narrow, "int8"),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_wrong_in_one_way_to_ask_is_seen_and_nothing_without(
    way: str, database: dict[str, Entry]
) -> None:
    name, operators, wrong, said = WAYS[way]
    assert faults(database[name], SEEDS[:2]) == []
    with seeded(KernelFault(way, operators, wrong, "", ()), "cpu"):
        assert any(said in fault for fault in faults(database[name]))


def test_an_asking_is_drawn_from_its_seed_name_and_number(database: dict[str, Entry]) -> None:
    one, same, other = (list(ask(database["sum"], 0, seed, "cpu")) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_what_is_not_asked_is_of_this_database_and_has_a_reason(
    database: dict[str, Entry],
) -> None:
    rows = left_out()
    assert set(rows) <= set(database)
    assert all(reason for row in rows.values() for reason in row.values())
