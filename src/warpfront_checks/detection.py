"""`python -m warpfront_checks detect`: this machine and this torch, with evidence.

Works without torch. `--record FOLDER` keeps what was read as a recording, which tests
can detect again.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from warpfront_checks.claimed_device import BUILDS, judge_device
from warpfront_checks.claims import Claims
from warpfront_checks.hardware import Hardware, Machine, read_hardware
from warpfront_checks.hardware.recording import Recorded, Recording, RecordingError
from warpfront_checks.results import PASSED
from warpfront_checks.torch_devices import TorchFacts, environment_of, read_facts

_MEMORY_SLACK = 0.1
_DEVICE_TYPES = {"cuda": "cuda", "rocm": "cuda", "hpu": "hpu", "xpu": "xpu", "cpu": "cpu"}


def detect(reader: Machine, *, with_torch: bool = True) -> dict[str, Any]:
    """Return the machine and torch's view of it, as JSON values. torch is imported in the pass, so
    that its absence is an answer.
    """
    hardware = read_hardware(reader)
    facts, reality, environment = None, "", dict[str, object](missing="not asked")
    dtypes: dict[str, str] = {}
    if with_torch:
        try:
            torch: Any = importlib.import_module("torch")
        except (ImportError, OSError) as error:
            environment = {"missing": f"{type(error).__name__}: {error}"}
        else:
            facts, environment = read_facts(torch), environment_of(torch)
            device = _DEVICE_TYPES[facts.build] if facts.devices else "cpu"
            # It imports torch at its top, which detection must do without.
            dtypes = importlib.import_module("warpfront_checks.precision").probe_dtypes(device)
    if facts and facts.devices:
        # The check `device`, for the first device that torch sees.
        vendor = next(name for name, build in BUILDS.items() if build == facts.build)
        named: dict[str, Any] = {"vendor": vendor, "device": _DEVICE_TYPES[facts.build]}
        claims = Claims(cell="here", target=facts.devices[0].arch, image=False, **named)
        finding = judge_device(claims, facts, hardware)
        reality = f"{finding.outcome}: {finding.reason}" if finding else PASSED
    differences = disagreements(hardware, facts) if facts else ()
    return {
        "schema": 1,
        "answer": _answer(hardware, facts, reality, differences),
        "hardware": hardware.document(),
        "torch": environment,
        "dtypes": dtypes,
        "disagreements": list(differences),
    }


def _answer(
    hardware: Hardware, facts: TorchFacts | None, reality: str, differences: tuple[str, ...]
) -> dict[str, object]:
    """Return the facts that a porting engineer needs first, each from its best source. `reality`
    is the outcome of the check `device` with its reason ("" where torch sees no device).
    """
    device = next(iter(hardware.accelerators), None)
    devices = facts.devices if facts else ()
    vendor = device.vendor if device else "cpu"
    visibility = hardware.visibility.get(vendor)
    first = devices[0] if devices else None
    return {
        "vendor": vendor,
        "arch": (first.arch if first else "") or (device.arch if device else "cpu"),
        "name": (device.name if device else "") or (first.name if first else ""),
        "devices": len(hardware.accelerators),
        "devices_torch_sees": len(devices) if facts else None,
        "device_check": reality or None,
        "torch_build": facts.build if facts else None,
        "memory_bytes": (device or hardware.processor).memory_bytes,
        "cores": (device.cores or (first.cores if first else None))
        if device
        else hardware.processor.threads,
        "wave": (first.wave if first else 0) or (device.wave if device else None),
        "drivers": dict(hardware.drivers),
        "toolkits": dict(hardware.toolkits),
        "visibility": visibility.winner or "nothing set" if visibility else "",
        "problems": list(hardware.problems + differences),
    }


def disagreements(hardware: Hardware, facts: TorchFacts) -> tuple[str, ...]:
    """Return the differences between torch and the machine: count, arch, memory, build."""
    vendor = next((name for name, build in BUILDS.items() if build == facts.build), "")
    devices = hardware.of(vendor)
    if not vendor:
        build = f"torch is a {facts.build} build: everything would run on the CPU"
        vendors = sorted({device.vendor for device in hardware.accelerators})
        return tuple(
            f"{len(hardware.of(name))} devices of {name} are here, and {build}" for name in vendors
        )
    lines = []
    visible = hardware.visibility[vendor].visible if devices else ()
    if visible is not None and len(visible) != len(facts.devices):
        sees = f"torch sees {len(facts.devices)}" + (f" ({facts.obstacle})" * bool(facts.obstacle))
        count = f"{len(visible)} of {len(devices)}"
        lines.append(f"{count} devices of {vendor} should be visible, {sees}")
    elif visible is not None:
        for place, device in zip(visible, facts.devices, strict=True):
            there_is = devices[place]
            if there_is.arch and device.arch and there_is.arch != device.arch:
                lines.append(f"device {place} is {there_is.arch}, torch says {device.arch}")
            size = there_is.memory_bytes or device.memory_bytes
            if device.memory_bytes and abs(size - device.memory_bytes) > _MEMORY_SLACK * size:
                lines.append(f"device {place} has {size} bytes, torch says {device.memory_bytes}")
    return tuple(lines)


def main(arguments: list[str]) -> int:
    """Print the answer; exit 0 whatever the result, 2 if the options make no sense."""
    parser = argparse.ArgumentParser(prog="python -m warpfront_checks detect", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the whole answer as JSON")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="keep what was read")
    parser.add_argument("--source", default="recorded", help="with --record: of what, and when")
    parser.add_argument("--recorded", type=Path, metavar="FOLDER", help="detect a recorded machine")
    options = parser.parse_args(arguments)
    try:
        reader = Recorded(options.recorded) if options.recorded else Machine()
    except RecordingError as error:
        sys.stderr.write(f"error: {error}\n  hint: --record FOLDER makes a recording\n")
        return 2
    recording = Recording(reader)
    document = detect(recording, with_torch=not options.recorded)
    if options.record:
        recording.save(options.record, options.source)
    if options.json:
        sys.stdout.write(json.dumps(document, indent=1, sort_keys=True) + "\n")
    else:
        rows = [(name, _shown(value)) for name, value in document["answer"].items()]
        rows += [(f"probe {name}", dtype) for name, dtype in document["dtypes"].items()]
        rows += [(each["source"], each["said"]) for each in document["hardware"]["evidence"]]
        sys.stdout.write("".join(f"{name:<24} {value}\n" for name, value in rows))
    return 0


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {text}" for key, text in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return "unknown" if value in {None, ""} else str(value)
