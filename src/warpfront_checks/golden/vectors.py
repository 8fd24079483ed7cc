"""The `golden` session, and the door: `python -m warpfront_checks golden make|check`."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.claimed_device import computes, judge_device
from warpfront_checks.claims import Claims
from warpfront_checks.golden.checking import check_case, table
from warpfront_checks.golden.files import (
    Golden,
    GoldenError,
    make_golden,
    read_golden,
    shipped,
)
from warpfront_checks.golden.suite import CASES, Compute, compute
from warpfront_checks.hardware import Machine, read_hardware
from warpfront_checks.precision import (
    DTYPES,
    REQUIRED,
    precision_settings,
    probe,
    require_full_precision,
)
from warpfront_checks.results import (
    PASSED,
    Check,
    CheckFinding,
    Recorder,
    failed,
    finding_from,
    judged,
)
from warpfront_checks.torch_devices import read_facts

_VENDORS = {"sm_": ("nvidia", "cuda"), "gfx": ("amd", "cuda"), "gau": ("gaudi", "hpu")}


def record_golden(
    claims: Claims,
    recorder: Recorder,
    _effort: CheckOptions = USUAL,
    *,
    files: Sequence[Path] | None = None,
    run: Compute = compute,
) -> None:
    """Check golden files (ours by default) on the claimed device, a check a case and dtype."""
    paths = shipped() if files is None else tuple(files)
    recorder.plan([f"file {path.stem}" for path in paths] or ["golden files"])
    require_full_precision()
    recorder.environment["precision"] = precision_settings()
    if not paths:
        recorder.run([Check(name="golden files", find=lambda: failed("there are none"))])
    obstacles = {name: probe(dtype, claims.device) for name, dtype in DTYPES.items()}
    for path in paths:
        recorder.run(_checks(path, claims, recorder, obstacles, run))


def _checks(
    path: Path, claims: Claims, recorder: Recorder, obstacles: dict[str, str], run: Compute
) -> list[Check]:
    name = f"file {path.stem}"
    try:
        golden = read_golden(path)
    except GoldenError as error:
        broken = finding_from(error)
        return [Check(name=name, find=lambda: broken)]
    checks = [Check(name=name, find=functools.partial(complete, golden, claims.device))]
    for case, dtype in golden.entries():
        label = f"{path.stem}: {case} {dtype}"
        obstacle = obstacles.get(dtype, f"{dtype} is not known")
        if obstacle and dtype not in REQUIRED[claims.device]:
            recorder.note_unclaimed(label, f"{dtype} is not computed here: {obstacle}")
            continue
        find = functools.partial(check_case, golden, case, dtype, claims.device, run)
        checks.append(Check(name=label, find=find))
    return checks


def complete(golden: Golden, device: str) -> CheckFinding:
    """Check that the file has every case in every dtype that this device must compute."""
    entries = set(golden.entries())
    required = [(case.name, dtype) for case in CASES for dtype in REQUIRED[device]]
    missing = [f"{case} in {dtype}" for case, dtype in required if (case, dtype) not in entries]
    faults = [f"{golden.name} has no {missing[0]}", *missing[1:]] if missing else []
    details: dict[str, object] = {
        "maker": f"{golden.vendor} {golden.arch}",
        "provenance": dict(golden.provenance),
        "missing": missing,
    }
    torch_version = golden.provenance.get("torch")
    summary = f"{len(entries)} cases made on {details['maker']} with torch {torch_version}"
    return judged(faults, summary, **details)


def main(arguments: list[str]) -> int:
    """Make or check golden vectors. Exit 1 for what is wrong or missing, 2 for a useless file."""
    options = _parser().parse_args(arguments)
    require_full_precision()
    facts, hardware = read_facts(torch), read_hardware(Machine())
    target = options.target or (facts.devices[0].arch if facts.devices else "cpu")
    vendor, device = _VENDORS.get(target[:3], ("cpu", "cpu"))
    claims = Claims(cell="here", target=target, vendor=vendor, device=device, image=False)
    doubtful = judge_device(claims, facts, hardware)
    if doubtful is not None:
        sys.stderr.write(f"{doubtful.outcome}: {doubtful.reason}\n")
        # Vectors of an emulator would be taken for a device's.
        if options.verb == "make" or not computes(doubtful):
            return 1
    if options.verb == "make":
        dtypes = tuple(n for n, dtype in DTYPES.items() if not probe(dtype, claims.device))
        manifest = make_golden(options.file.with_suffix(".safetensors"), claims, hardware, dtypes)
        sys.stdout.write(f"wrote {manifest.with_suffix('.safetensors')} and {manifest}\n")
        return 0
    files = options.files or shipped()
    if not files:
        sys.stderr.write("error: no golden files\n  hint: make one with `golden make`\n")
    codes = [_check_file(path, claims) for path in files]
    return max([*codes, int(doubtful is not None)]) if codes else 2


def _check_file(path: Path, claims: Claims) -> int:
    try:
        golden = read_golden(path.with_suffix(".safetensors"))
        findings = [(f"file {golden.name}", complete(golden, claims.device))]
        for case, dtype in golden.entries():
            obstacle = probe(DTYPES[dtype], claims.device) if dtype in DTYPES else "unknown"
            if obstacle:
                sys.stdout.write(f"unavailable: {case} {dtype}: not computed here: {obstacle}\n")
                continue
            finding = _found(golden, case, dtype, claims.device)
            findings.append((f"{case} {dtype}", finding))
    except GoldenError as error:
        sys.stderr.write(f"error: {error}\n  hint: make it anew with `golden make`\n")
        return 2
    sys.stdout.write(table(golden, findings))
    bad = [(name, finding) for name, finding in findings if finding.outcome != PASSED]
    for name, finding in bad:
        sys.stdout.write(f"{finding.outcome}: {name}: {finding.reason}\n")
    sys.stdout.write(f"{len(findings) - len(bad)} of {len(findings)} passed on {claims.target}\n")
    return 1 if bad else 0


def _found(golden: Golden, case: str, dtype: str, device: str) -> CheckFinding:
    """Return a case's result; a device that is out of memory or breaks down is an error."""
    try:
        return check_case(golden, case, dtype, device)
    except RuntimeError as error:
        return finding_from(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m warpfront_checks golden", description=__doc__)
    parser.add_argument("--target", default="", help="sm_90, gfx942, gaudi3 or cpu: must be here")
    verbs = parser.add_subparsers(dest="verb", required=True)
    make = verbs.add_parser("make", help="compute the suite here and write it down")
    make.add_argument("file", type=Path, help="NAME.safetensors; the manifest is NAME.json")
    check = verbs.add_parser("check", help="check what others computed (default: our own files)")
    check.add_argument("files", type=Path, nargs="*")
    return parser
