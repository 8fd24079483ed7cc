"""200 kills at random moments, with flipped bits and full disks between (`scripts/fault-sweep`)."""

from __future__ import annotations

import fault_sweep
import pytest

KILLS = 200
SEED = 1


@pytest.mark.docker
@pytest.mark.exhaustive
@pytest.mark.timeout(4 * 3600)
def test_after_every_kill_the_same_step_ends_as_if_nothing_had_happened() -> None:
    document = fault_sweep.swept(SEED, KILLS, seconds=3 * 3600)
    fault_sweep.write(document)
    assert document["wrong"] == []
    assert sum(document["reruns"].values()) == KILLS
