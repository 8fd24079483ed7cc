"""Is the claimed device here, and would torch compute on it? Nothing ever falls back to the CPU.

Three answers: it is (`None`), it is not (`unavailable`, with the evidence), or this torch would
compute elsewhere than claimed although it need not (`failed`).
"""

from __future__ import annotations

from warpfront.checks.claims import Claims
from warpfront.checks.detect import Facts
from warpfront.checks.hardware import Hardware
from warpfront.checks.results import Check, Finding, failed, passed, unavailable

# What torch has to be built for; the CPU's claims are true of every build.
BUILDS = {"nvidia": "cuda", "amd": "rocm", "gaudi": "hpu"}


def judge_presence(claims: Claims, facts: Facts, hardware: Hardware) -> Finding | None:
    """None if the claimed device can be computed on, else the finding that every check of it gets.

    `failed`: torch is built for something else, or devices that this user may open are here and
    torch sees none. `unavailable`: no such device, it may not be opened, a variable hides it, or it
    is of another arch than the target.
    """
    wanted = BUILDS.get(claims.vendor)
    if wanted is None:
        return None
    details: dict[str, object] = {"torch": facts.evidence(), "hardware": hardware.document()}
    if facts.build != wanted:
        return failed(
            f"torch is a {facts.build} build: a cell for {claims.target} needs {wanted}, and would"
            " run on the CPU",
            **details,
        )
    if not facts.devices:
        return _no_device(claims, facts, hardware, details)
    first = facts.devices[0]
    # sm_90a and sm_100f name the features of code, not other hardware.
    if first.arch not in {claims.target, claims.target.rstrip("af")}:
        arch = first.arch or "of unknown arch"
        return unavailable(
            f"the device here is {arch} ({first.name}), not {claims.target}", **details
        )
    return None


def device_check(claims: Claims, facts: Facts) -> Check:
    """The check named `device` of a session whose device is here: which one it is."""
    first = f"{facts.devices[0].name} ({facts.devices[0].arch})" if facts.devices else ""
    said = first if BUILDS.get(claims.vendor) else "the CPU"
    return Check(name="device", find=lambda: passed(said, **facts.evidence()))


def _no_device(
    claims: Claims, facts: Facts, hardware: Hardware, details: dict[str, object]
) -> Finding:
    devices = hardware.of(claims.vendor)
    said = f" (torch: {facts.obstacle})" if facts.obstacle else ""
    if not devices:
        return unavailable(f"no {claims.target} device here{said}", **details)
    listed = f"{len(devices)} {devices[0].arch or claims.vendor} devices are here"
    if not all(device.usable for device in devices):
        reason = next(iter(hardware.problems), "they may not be opened")
        return unavailable(f"{listed}, but not for this process: {reason}{said}", **details)
    seen = hardware.visibility[claims.vendor]
    if seen.visible == ():
        return unavailable(f"{listed}, hidden by {seen.winner}{said}", **details)
    return failed(f"{listed}, and torch sees none{said}: it would run on the CPU", **details)
