"""The policy of an image's guard, and the files that install it. Pure.

The policy is one type on both sides: written here, read in
the image (`warpfront_checks.guard.policy`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from warpfront.matrix.cell import ENVIRONMENT_PYTHON, Cell
from warpfront.matrix.compat import Compat
from warpfront.matrix.compat_table import COMPANIONS
from warpfront.matrix.vendors import VENDORS
from warpfront.wheels.lock.values import WheelLock
from warpfront_checks.guard.channels import environment_channels
from warpfront_checks.guard.names import sentinels, stack_patterns, triton_shims
from warpfront_checks.guard.places import Places
from warpfront_checks.guard.policy import Policy

POLICY = "policy.json"
RELAXED = "relaxed.json"
# What an image sets so that pip and uv read the constraints; the paths are those inside images.
GUARD_ENVIRONMENT: Mapping[str, str] = environment_channels(Places(site_packages=Path()))
_SOURCES = "guard"


def guard_policy(cell: Cell, lock: WheelLock, compat: Compat) -> Policy:
    """Return the policy of `cell`'s image: the locked stack with the libraries it loads, or, if
    torch comes with the base, what the guard detects there.
    """
    vendor = VENDORS[cell.vendor]
    toolkit = vendor.toolkit or vendor.device
    patterns = (*vendor.protected, *vendor.libraries)
    protected = {
        wheel.name: wheel.version
        for wheel in lock.wheels
        if any(fnmatchcase(wheel.name, pattern) for pattern in patterns)
    }
    # Those that the image lacks, at the one version that fits its torch: pip would take the build
    # for another toolkit, which has the same public version.
    release, label = compat.release(cell.torch), protected.get("torch", "").partition("+")[2]
    if vendor.torch_from == "base":
        adopted, packages = stack_patterns(toolkit), sentinels(toolkit, ())
        return Policy(cell=cell.id, title="", adopt=adopted, sentinels=packages)
    return Policy(
        cell=cell.id,
        # The id names the image; a title in here would make every image anew with its text.
        title="",
        index=cell.index.url if cell.index else "",
        protected=protected,
        companions={
            name: release.companion(name).version + (f"+{label}" if label else "")
            for name in COMPANIONS
            if release and name not in protected
        },
        sentinels=sentinels(toolkit, protected),
        shims=triton_shims(protected),
        relaxed=relaxed_reasons(lock),
    )


def stack_location(cell: Cell) -> Path:
    """Return the site-packages of the environment that the image of `cell` makes."""
    environment = Path(ENVIRONMENT_PYTHON).parents[1]
    return environment / "lib" / f"python{cell.python}" / "site-packages"


def claimed_policy(
    cell: Cell, cells: Mapping[str, Cell], locks: Mapping[str, WheelLock], compat: Compat
) -> Policy:
    """Return the policy that the image of `cell` has in the end: that of the image at the
    bottom of its chain, with everything that was relaxed since. `cells` and `locks` by cell id.
    """
    bottom = cell
    while bottom.parent:
        bottom = cells[bottom.parent]
    policy = guard_policy(bottom, locks[bottom.id], compat)
    return replace(policy, relaxed=relaxed_reasons(locks[cell.id]))


def relaxed_reasons(lock: WheelLock) -> dict[str, str]:
    """Package -> the reason for which its demands on the stack may go unmet."""
    return {relaxed.package: relaxed.reason for relaxed in lock.relaxed}


def guard_files(policy: Policy, sources: Mapping[str, str]) -> dict[str, str]:
    """Path in the build context -> text, for an image with a guard. `sources` are its own files."""
    document = json.dumps(policy.document(), indent=1, sort_keys=True)
    return {
        POLICY: document + "\n",
        **{f"{_SOURCES}/{name}": text for name, text in sorted(sources.items())},
    }


def relaxed_files(lock: WheelLock, parent_lock: WheelLock) -> dict[str, str]:
    """The same for an image on top of a guarded one: what it relaxes beyond its parent."""
    before = relaxed_reasons(parent_lock)
    more = {name: why for name, why in relaxed_reasons(lock).items() if name not in before}
    return {RELAXED: json.dumps(more, indent=1, sort_keys=True) + "\n"} if more else {}
