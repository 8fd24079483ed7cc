"""`relax`: the visible way out."""

from __future__ import annotations

import json
from pathlib import Path

from .channels import write_channels
from .places import Places
from .policy import GuardError, Policy, normalized, read_policy
from .sealing import write_policy


def relax(name: str, reason: str, places: Places) -> list[str]:
    """Record that `name` may change, or that its demands on the stack may go unmet; returns what to
    tell. Raises `GuardError` without a reason, or without the right to write.
    """
    name, reason = normalized(name), " ".join(reason.split())
    if not reason:
        raise GuardError("a reason is needed: warpfront-guard relax NAME --reason TEXT")
    policy = read_policy(places.policy)
    guarded = name in policy.pinned() or name in policy.forbidden()
    relaxed = policy.relax(name, reason)
    try:
        write_channels(relaxed, places)
        write_policy(relaxed, places)
    except PermissionError as error:
        raise GuardError(f"{error.filename}: {error.strerror}: run this as root") from error
    return _no_longer_guarded(name, relaxed) if guarded else _beside(name, policy, places)


def read_reasons(path: Path) -> dict[str, str]:
    """Name -> reason from a JSON file. Raises `GuardError`."""
    try:
        reasons = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GuardError(f"{path}: {error}") from error
    if not isinstance(reasons, dict) or not all(isinstance(why, str) for why in reasons.values()):
        raise GuardError(f"{path}: not names with their reasons")
    return reasons


def _no_longer_guarded(name: str, policy: Policy) -> list[str]:
    rest = ", ".join(policy.pinned()) or "nothing"
    return [
        f"{name} is no longer protected: pip and uv may bring, replace or remove it.",
        f"Still at their versions: {rest}.",
    ]


def _beside(name: str, policy: Policy, places: Places) -> list[str]:
    return [
        f"recorded: what {name} demands of {policy.holds()} may go unmet. To install it:",
        f"  uv pip install --override {places.overrides} {name}",
        "or, with pip, without what it depends on, and then what `pip check` misses:",
        f"  pip install --no-deps {name}",
    ]
