"""200 kills at random moments, with flipped bits and full disks between (`tools/fault-sweep`)."""

from __future__ import annotations

import fault_sweep
import pytest

KILLS = 200
SEED = 1


@pytest.mark.docker
@pytest.mark.exhaustive
@pytest.mark.timeout(4 * 3600)
def test_after_every_kill_the_same_step_ends_as_if_nothing_had_happened() -> None:
    before, here = fault_sweep.kept(), fault_sweep.this_commit()
    parts = fault_sweep.sweep_on(before, SEED, KILLS, seconds=3 * 3600, here=here)
    assert fault_sweep.added(parts, "wrong") == []
    assert sum(fault_sweep.added(parts, "reruns").values()) == KILLS
