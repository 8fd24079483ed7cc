"""The guard of an image, looked at from outside: by the mounted code, not by the image's."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import replace
from pathlib import Path

import warpfront_checks.guard
from warpfront_checks.guard.channels import given_environment
from warpfront_checks.guard.fast_path import NAME
from warpfront_checks.guard.imports import read_start
from warpfront_checks.guard.measuring import installed, needs_of
from warpfront_checks.guard.places import Places, places_of_this_python
from warpfront_checks.guard.policy import GuardError, Policy, policy_from, read_policy
from warpfront_checks.guard.verification import bytes_of, sentence, verify
from warpfront_checks.results import CheckFinding, failed, judged_by_all


def check_guard(claimed: object, places: Places | None = None) -> CheckFinding:
    """Check that the stack is as sealed, and that the guard is ours and protects `claimed`."""
    places = places or places_of_this_python()
    try:
        policy = read_policy(places.policy)
        wrong = policy_differences(policy, policy_from(claimed))
    except GuardError as error:
        return failed(f"no guard to speak of: {error}")
    distributions = installed(places.site_packages)
    if policy.needs != needs_of(distributions, policy.protected):
        wrong.append("the policy's needs are not what the sealed distributions ask for")
    ours, theirs = Path(warpfront_checks.guard.__file__).parent, places.library / NAME
    files = {path.name for path in [*ours.iterdir(), *theirs.glob("*")] if path.is_file()}
    wrong += [
        f"the guard's {name} is not the one this image was built with"
        for name in sorted(files)
        if bytes_of(ours / name) != bytes_of(theirs / name)
    ]
    start = read_start(places)
    wrong += [str(finding) for finding in verify(places, given_environment(), start=start)]
    details = {"protected": policy.pinned(), "relaxed": dict(policy.relaxed), "findings": wrong}
    summary = f"{sentence(policy, distributions)}; {len(policy.pinned())} names protected"
    return judged_by_all(wrong, summary, **details)


def policy_differences(policy: Policy, claimed: Policy) -> list[str]:
    """Return how the image's policy differs from the claimed one; adopted packages by pattern."""
    wrong = []
    if claimed.adopt:
        adopted = re.compile("|".join(map(fnmatch.translate, claimed.adopt)))
        strangers = [name for name in policy.protected if not adopted.match(name)]
        if strangers or "torch" not in policy.protected:
            wrong.append(f"the policy protects {', '.join(policy.protected) or 'nothing'}")
        lost = set(claimed.sentinels) - set(policy.sentinels) - set(policy.protected)
        wrong += [f"the policy lets {name} come" for name in sorted(lost)]
        policy = replace(policy, protected=claimed.protected, sentinels=claimed.sentinels)
        policy = replace(policy, shims=claimed.shims)
    policy = replace(policy, needs=claimed.needs)  # they are read where the stack is sealed
    ours, theirs = claimed.document(), policy.document()
    return wrong + [
        f"the policy's {name} is {theirs[name]!r}, claimed is {ours[name]!r}"
        for name in ours
        if ours[name] != theirs[name]
    ]
