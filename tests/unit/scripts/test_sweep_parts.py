"""The fault sweep goes on where it was interrupted, and counts all its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fault_sweep
import pytest

from warpfront.system.tree_files import Provenance

HERE = Provenance(created="2026-11-22T10:00:00+00:00", revision="5074ad2b898e17774c0f")


def part(
    seed: int, kills: int, commit: str = HERE.revision, wrong: tuple[str, ...] = ()
) -> dict[str, Any]:
    counts = fault_sweep.Counts(wrong=list(wrong))
    counts.kills["lock"] = counts.reruns["lock"] = kills
    about = {"commit": commit, "day": "2026-11-22", "seed": seed, "seconds": {}}
    return {**about, **counts.document()}


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[int, int]]:
    """With what seed and how many kills a part was begun; it is interrupted after one."""
    begun = []

    def swept(seed: int, kills: int, keep: fault_sweep.Keep, **_: float) -> None:
        begun.append((seed, kills))
        keep(part(seed, 1))
        raise KeyboardInterrupt

    monkeypatch.setattr(fault_sweep, "RESULTS", tmp_path)
    monkeypatch.setattr(fault_sweep, "swept", swept)
    return begun


def test_a_sweep_goes_on_from_the_parts_of_its_commit(killing: list[tuple[int, int]]) -> None:
    before: list[fault_sweep.Part] = [
        part(7, 90, commit="another", wrong=("a line",)),
        part(7, 30),
        part(8, 20),
    ]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            fault_sweep.sweep_on(before, 7, 52, seconds=1, here=HERE)
        before = fault_sweep.kept()
    assert killing == [(9, 2), (10, 1)]
    assert fault_sweep.sweep_on(before, 7, 52, seconds=1, here=HERE) == before
    assert [one["seed"] for one in before] == [7, 8, 9, 10]
    assert fault_sweep.added(before, "reruns") == {"lock": 52}


def test_the_page_has_the_sums_of_all_parts() -> None:
    page = fault_sweep.page([part(7, 30, wrong=("kill 3: wrong",)), part(8, 20)])
    assert "seeds 7, 8:" in page
    assert "50 kills" in page
    assert "| lock | 50 | 0 | 50 |" in page
    assert "Not right: 1.\n* kill 3: wrong" in page
