"""Bases, toolkits and Pythons that are past their time."""

from __future__ import annotations

import dataclasses

import pytest
from builders import a_cell

from warpfront.matrix import compat
from warpfront.matrix.ages import base_notes, driver_note, ended_notes, table_notes
from warpfront.matrix.cell import Cell, Toolkit, WheelIndex

COMPAT = compat.packaged()
CUDA = "nvidia"


def of_cuda(version: str, **changes: object) -> Cell:
    toolkit = Toolkit(name="cuda", version=version)
    return dataclasses.replace(a_cell(), vendor=CUDA, toolkit=toolkit, **changes)  # type: ignore[arg-type]


def test_a_toolkit_past_its_end_is_named_with_its_day_and_source() -> None:
    cell = of_cuda("12.6")
    (ended, last) = ended_notes([cell, cell], COMPAT, today="2026-11-26")
    assert ended.startswith("cuda 12.6 is past its end of support, 2026-06-30 (")
    assert "R535" in ended
    assert last == "cuda 12.6: torch 2.14.1 is the last release with wheels for it (compat table)"
    assert ended_notes([of_cuda("13.0")], COMPAT, today="2026-11-26") == ()
    (later,) = ended_notes([of_cuda("13.0", python="3.13")], COMPAT, today="2028-07-01")
    assert later.startswith("cuda 13.0 is past its end of support, 2028-06-30")


def test_a_toolkit_that_newer_releases_have_no_wheels_for_is_named_by_the_table() -> None:
    rocm = dataclasses.replace(a_cell(), vendor="amd", toolkit=Toolkit(name="rocm", version="6.4"))
    ended, note = ended_notes([rocm], COMPAT, today="2026-11-26")
    assert ended.startswith("rocm 6.4 is past its end of support, 2025-08-07 (ROCMVER: 6.4.3")
    assert note.startswith("rocm 6.4: torch 2.9.1 is the last release")
    amds = dataclasses.replace(rocm, toolkit=Toolkit(name="rocm", version="10.0"))
    assert ended_notes([amds], COMPAT, today="2026-11-26") == (), "AMD's own index was never read"
    newest = dataclasses.replace(rocm, toolkit=Toolkit(name="rocm", version="7.14"))
    assert ended_notes([newest], COMPAT, today="2026-11-26") == (), "2.15's are not known"


def of_index(name: str) -> Cell:
    index = WheelIndex(name=name, url=COMPAT.table.indexes[name].url)
    return dataclasses.replace(a_cell(), index=index)


def test_contents_of_an_index_that_are_old_are_named_with_their_day_and_age() -> None:
    read = COMPAT.read_on("pypi")
    assert read > "2026-11-01"
    cells = [of_index("pypi"), of_index("cu130"), of_index("cu130")]
    assert table_notes(cells, COMPAT, today=read) == ()
    dated = dataclasses.replace(COMPAT.table, as_of="2026-11-20")
    older = compat.Compat(dated, COMPAT.contents)
    by_rows, by_reading = table_notes(cells, older, today="2027-03-01")
    assert by_rows == (
        "index cu130 is known by rows of 2026-11-20, 101 days ago: `warpfront compat update`"
    )
    assert by_reading.startswith(f"index pypi is known by its reading of {read}, ")


def test_drivers_are_named_once_for_each_floor() -> None:
    cells = [of_cuda("12.6"), of_cuda("12.8"), of_cuda("13.0"), of_cuda("13.0")]
    assert driver_note(cells, COMPAT) == (
        "drivers at least: cuda12.6, cuda12.8: nvidia 525.60.13; "
        "cuda13.0: nvidia 580 (compat table)"
    )
    assert driver_note([a_cell()], COMPAT) == ""


def test_a_python_past_its_end_is_named() -> None:
    old = dataclasses.replace(a_cell(), python="3.10")
    (note,) = ended_notes([old], COMPAT, today="2026-11-26")
    assert note == "python 3.10 has had no fixes since 2026-10-31 (PEP 619)"
    assert ended_notes([old], COMPAT, today="2026-10-31") == ()


@pytest.mark.parametrize(
    ("created", "asked", "said"),
    [
        ("2026-11-01T00:00:00Z", True, ""),
        ("2026-05-01T10:00:00.5+02:00", False, "209 days old, more than 180: pin a newer digest"),
        ("", False, ""),
        ("", True, "its age is not determined"),
        ("1980-01-01T00:00:00Z", True, "its age is not determined"),
        ("soon", True, "its age is not determined"),
    ],
)
def test_a_base_is_named_by_the_age_of_its_image(created: str, said: str, *, asked: bool) -> None:
    base = a_cell().base
    found = base_notes(
        {base.name: (base, created)}, today="2026-11-26", max_age_days=180, is_explicit=asked
    )
    assert [said in one for one in found] == ([True] if said else [])


def test_each_end_of_the_table_has_a_day_and_a_source() -> None:
    for one in COMPAT.table.ends:
        assert one.day > "2020-01-01"
        assert one.source
