"""Is the claimed device here, and would torch compute on it? Nothing ever falls back to the CPU.

Three answers: it is (`None`), it is not (`unavailable`, with the evidence), or this torch would
compute elsewhere than claimed although it need not (`failed`).
"""

from __future__ import annotations

from typing import Any

from warpfront.inside.checks.claims import Claims
from warpfront.inside.checks.hardware import Hardware
from warpfront.inside.checks.results import (
    Check,
    CheckFinding,
    Recorder,
    failed,
    passed,
    unavailable,
)
from warpfront.inside.checks.torch_devices import TorchFacts, environment_of, read_facts

# What torch has to be built for; the CPU's claims are true of every build.
BUILDS = {"nvidia": "cuda", "amd": "rocm", "gaudi": "hpu", "intel": "xpu"}


def judge_presence(claims: Claims, facts: TorchFacts, hardware: Hardware) -> CheckFinding | None:
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


def find_device(claims: Claims, recorder: Recorder, torch: Any, hardware: Hardware) -> bool:
    """Make the first check of every session that computes, `device`: is the claimed one here?

    Where it is not, this is the session's only check: nothing is planned, imported or computed.
    """
    facts = read_facts(torch)
    recorder.environment.update(environment_of(torch))
    lacking = judge_presence(claims, facts, hardware)
    first = f"{facts.devices[0].name} ({facts.devices[0].arch})" if facts.devices else ""
    said = first if BUILDS.get(claims.vendor) else "the CPU"
    found = passed(said, **facts.evidence()) if lacking is None else lacking
    recorder.run([Check(name="device", find=lambda: found)])
    return lacking is None


def _no_device(
    claims: Claims, facts: TorchFacts, hardware: Hardware, details: dict[str, object]
) -> CheckFinding:
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
