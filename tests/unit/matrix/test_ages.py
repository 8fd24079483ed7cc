"""Bases, toolkits and Pythons that are past their time."""

from __future__ import annotations

import dataclasses

import pytest
from builders import a_cell

from warpfront.matrix import compat
from warpfront.matrix.ages import base_notes, ended_notes
from warpfront.model import Cell, Toolkit

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
    (note,) = ended_notes([rocm], COMPAT, today="2026-11-26")
    assert note.startswith("rocm 6.4: torch 2.9.1 is the last release")
    newest = dataclasses.replace(rocm, toolkit=Toolkit(name="rocm", version="7.14"))
    assert ended_notes([newest], COMPAT, today="2026-11-26") == (), "2.15's are not known"


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
