"""Seeds of the verifications that tests start: always the same, and drawn anew in the sweeps."""

from __future__ import annotations

RUN = "scripts-test"
_options = ["--run", RUN]


def run_options() -> tuple[str, ...]:
    """Return the options of `verify`, of a job and of a session that choose the seeds."""
    return tuple(_options)


def draw_anew() -> None:
    """Let each verification draw seeds of its own, as it does for users."""
    _options.clear()
