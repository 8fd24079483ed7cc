"""Results files of one check, as a session writes them."""

from __future__ import annotations

from typing import Any


def results_document(
    session: str, check: str, fault: str, outcome: str = "failed", **environment: Any
) -> dict[str, Any]:
    """Return a results file of one check with one fault ("" for none)."""
    one = {
        "name": check,
        "outcome": outcome,
        "reason": fault,
        "seconds": 0.1,
        "details": {"faults": [fault] if fault else []},
    }
    return {
        "schema": 1,
        "session": session,
        "target": "cpu",
        "environment": environment,
        "planned": [check],
        "checks": [one],
        "finished": True,
    }
