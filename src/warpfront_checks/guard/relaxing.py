"""`relax`: the visible way out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from .channels import channel_files
from .places import Places
from .policy import GuardError, Policy, normalized, policy_from, read_policy
from .sealing import policy_files, write_files

# What the names of an image's own labels begin with (`warpfront.images.labels`).
LABELS = "dev.warpfront"


def relax(reasons: Mapping[str, str], places: Places) -> list[str]:
    """Record for each name why it may change, or why its demands on the stack may go unmet;
    returns what to tell. Raise `GuardError`, and has written nothing, without a reason or
    the right to write.
    """
    before = read_policy(places.policy)
    policy, told = before, []
    for name, reason in reasons.items():
        name, reason = normalized(name.strip()), " ".join(reason.split())  # noqa: PLW2901 - the same, cleaned
        if not reason:
            command = f"warpfront-guard relax {name} --reason TEXT"
            raise GuardError(f"{name}: a reason is needed: {command}")
        policy = policy_from(policy.relax(name, reason).document())
        told += _told(name, before, policy, places)
    write_files({**policy_files(policy, places), **channel_files(policy, places)})
    return told


def read_reasons(path: Path) -> dict[str, str]:
    """Return name -> reason from a JSON file. Raise `GuardError`."""
    try:
        reasons = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GuardError(f"{path}: {error}") from error
    if not isinstance(reasons, dict) or not all(isinstance(why, str) for why in reasons.values()):
        raise GuardError(f"{path}: not names with their reasons")
    return reasons


def _told(name: str, before: Policy, policy: Policy, places: Places) -> list[str]:
    if name == "torch":
        with_it = [name for name in before.pinned() if name != "torch"]
        return [
            "torch is no longer protected: pip and uv may bring, replace or remove it,",
            f"and what goes with it: {', '.join(with_it) or 'nothing'}.",
            f"The labels of an image still say {before.holds()}: a Dockerfile that does this adds",
            f"  LABEL {LABELS}.relaxed=torch {LABELS}.torch=VERSION",
        ]
    if policy.is_relaxed("torch"):
        return [f"recorded: {name}. torch is relaxed, so nothing holds it here."]
    if name in {**before.pinned(), **before.forbidden(), **before.needed()}:
        return [
            f"{name} is no longer protected: pip and uv may bring, replace or remove it.",
            f"Still at their versions: {', '.join(policy.pinned()) or 'nothing'}.",
        ]
    return [
        f"recorded: what {name} demands of {policy.holds()} may go unmet. To install it:",
        f"  uv pip install --override {places.overrides} {name}",
        "or, with pip, without what it depends on, and then what `pip check` misses:",
        f"  pip install --no-deps {name}",
    ]
