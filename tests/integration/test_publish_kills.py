"""100 kills of a publication at random moments (`tools/publish-kills`)."""

from __future__ import annotations

import publish_kills
import pytest

KILLS = 100
SEED = 1


@pytest.mark.docker
@pytest.mark.process
@pytest.mark.exhaustive
@pytest.mark.timeout(2 * 3600)
def test_after_every_kill_nothing_unproven_is_public_and_a_rerun_ends_right() -> None:
    document = publish_kills.killed(SEED, KILLS, seconds=100 * 60)
    publish_kills.write(document)
    assert document["wrong"] == []
    assert sum(document["kills"].values()) == KILLS
    assert sum(document["reruns"].values()) >= KILLS
