"""The `golden` session, and the door: `python -m warpfront_checks golden make|check`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from warpfront_checks.cases.bounds import Bound, Verdict, judge
from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.claimed_device import computes, judge_device
from warpfront_checks.claims import Claims
from warpfront_checks.golden.files import (
    BY_NAME,
    CASES,
    Golden,
    GoldenError,
    Tensors,
    compute,
    make_golden,
    read_golden,
    shipped,
)
from warpfront_checks.hardware import Machine, read_hardware
from warpfront_checks.precision import DTYPES, REQUIRED, probe, require_full_precision
from warpfront_checks.results import (
    PASSED,
    CheckFinding,
    Checks,
    Find,
    Recorder,
    failed,
    finding_from,
    judged,
    passed,
)
from warpfront_checks.tolerance_profiles import counted, opinions
from warpfront_checks.torch_devices import read_facts

_VENDORS = {"sm_": ("nvidia", "cuda"), "gfx": ("amd", "cuda"), "gau": ("gaudi", "hpu")}


def record_golden(
    claims: Claims,
    recorder: Recorder,
    _effort: CheckOptions = USUAL,
    *,
    files: Sequence[Path] | None = None,
) -> None:
    """Check golden files (ours by default) on the claimed device, a check a case and dtype."""
    paths = shipped() if files is None else tuple(files)
    recorder.plan([f"file {path.stem}" for path in paths] or ["golden files"])
    if not paths:
        recorder.run({"golden files": lambda: failed("there are none")})
    for path in paths:
        try:
            checks = _checks(read_golden(path), claims)
        except GoldenError as error:
            checks = {f"file {path.stem}": partial(finding_from, error)}
        recorder.run(checks)


def _checks(golden: Golden, claims: Claims) -> Checks:
    obstacles = {name: probe(dtype, claims.device) for name, dtype in DTYPES.items()}

    def check(case: str, dtype: str) -> Find | str:
        obstacle = obstacles.get(dtype, f"{dtype} is not known")
        if obstacle and dtype not in REQUIRED[claims.device]:
            return f"{dtype} is not computed here: {obstacle}"
        return partial(check_case, golden, case, dtype, claims.device)

    name = golden.name
    cases = {f"{name}: {case} {dtype}": check(case, dtype) for case, dtype in golden.entries()}
    return {f"file {name}": partial(complete, golden, claims.device), **cases}


def complete(golden: Golden, device: str) -> CheckFinding:
    """Check that the file has every case in every dtype that this device must compute."""
    entries = set(golden.entries())
    required = [(case.name, dtype) for case in CASES for dtype in REQUIRED[device]]
    missing = [f"{case} in {dtype}" for case, dtype in required if (case, dtype) not in entries]
    faults = [f"{golden.name} has no {missing[0]}", *missing[1:]] if missing else []
    details: dict[str, object] = {
        "maker": golden.maker,
        "provenance": dict(golden.provenance),
        "missing": missing,
    }
    torch_version = golden.provenance.get("torch")
    summary = f"{len(entries)} cases made on {details['maker']} with torch {torch_version}"
    return judged(faults, summary, **details)


def main(arguments: list[str]) -> int:
    """Make or check golden vectors. Exit 1 for what is wrong or missing, 2 for a useless file."""
    parser = argparse.ArgumentParser(prog="python -m warpfront_checks golden", description=__doc__)
    parser.add_argument("--target", default="", help="sm_90, gfx942, gaudi3 or cpu: must be here")
    verbs = parser.add_subparsers(dest="verb", required=True)
    make = verbs.add_parser("make", help="compute the suite here and write it down")
    make.add_argument("file", type=Path, help="NAME.safetensors; the manifest is NAME.json")
    check = verbs.add_parser("check", help="check what others computed (default: our own files)")
    check.add_argument("files", type=Path, nargs="*")
    options = parser.parse_args(arguments)
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
        findings: dict[str, CheckFinding] = {}
        for check, find in _checks(golden, claims).items():
            name = check.removeprefix(f"{golden.name}: ")
            if isinstance(find, str):
                sys.stdout.write(f"unavailable: {name}: {find}\n")
                continue
            try:
                findings[name] = find()
            except RuntimeError as error:  # out of memory, or a device that breaks down
                findings[name] = finding_from(error)
    except GoldenError as error:
        sys.stderr.write(f"error: {error}\n  hint: make it anew with `golden make`\n")
        return 2
    sys.stdout.write(table(golden, [*findings.items()]))
    bad = {name: each for name, each in findings.items() if each.outcome != PASSED}
    for name, finding in bad.items():
        sys.stdout.write(f"{finding.outcome}: {name}: {finding.reason}\n")
    sys.stdout.write(f"{len(findings) - len(bad)} of {len(findings)} passed on {claims.target}\n")
    return 1 if bad else 0


Expected = Mapping[str, tuple[Tensor, Bound]]

# Two machines' float64 references: sums of some hundred terms in another order.
_REFERENCE_SLACK = 1e-11


def check_case(golden: Golden, case_name: str, dtype: str, device: str) -> CheckFinding:
    """Judge one golden case here. Raise `GoldenError` for an unknown case or missing tensor."""
    case = BY_NAME.get(case_name)
    if case is None:
        raise GoldenError(f"{golden.name}: this suite has no case {case_name!r}")
    inputs, cotangent = golden.inputs(case_name, dtype)
    ours = case.expect(inputs, cotangent)
    vectors, stored = (golden.part(case_name, dtype, kind) for kind in ("made", "ref64"))
    for part in (vectors, stored):
        if missing := sorted({*ours} ^ {*part}):
            raise GoldenError(f"{golden.name}: {missing[0]} is missing or not known")
    computed = compute(case.operation, inputs, cotangent, device)
    faults = [*_faults_before_numbers(ours, stored, computed, vectors, device)]
    pairs = {} if faults else {n: (computed[n], vectors[n]) for n in ours}
    ways = {name: _ways(*ours[name], *pair) for name, pair in pairs.items()}
    # The two against float64 decide. Apart by more than both bounds while each is within its own
    # cannot be: the sum is the triangle's.
    faults += [
        f"{name}: {source} is off by {three[way].used:.3g} times its bound"
        for name, three in ways.items()
        for way, source in (("here", "this device"), ("maker", f"the maker ({golden.maker})"))
        if three[way].fault
    ]
    shares = {n: {w: float(f"{v.used:.4g}") for w, v in three.items()} for n, three in ways.items()}
    details: dict[str, object] = {
        "maker": golden.maker,
        "three_ways": shares,
        "profiles": counted(three["here"].profiles for three in ways.values()),
        "faults": faults,
    }
    if faults:
        return failed(f"{case_name} in {dtype}: {faults[0]}", **details)
    largest, apart = (max(each[way] for each in shares.values()) for way in ("here", "apart"))
    return passed(f"here {largest:.2f} of the bound, apart {apart:.2f} of both", **details)


def _faults_before_numbers(
    ours: Expected, stored: Tensors, computed: Tensors, vectors: Tensors, device: str
) -> Iterator[str]:
    """Yield float64 references that differ by more than the order of sums, then results that are
    missing, of another device or of another form.
    """
    for name, (exact, _) in ours.items():
        slack = _REFERENCE_SLACK * (float(exact.abs().max()) + 1)
        if fault := judge(stored[name], exact, Bound(slack=slack)).fault:
            differ = "the float64 references differ: this CPU or the maker's computes wrong"
            yield f"{name}: {differ}: {fault}"
    for name, expected in vectors.items():
        value = computed.get(name)
        if value is None:
            yield f"{name}: missing"
        elif value.device.type != device:
            yield f"{name}: computed on {value.device.type}, not on {device}"
        elif value.dtype != expected.dtype or value.shape != expected.shape:
            actual, required = (f"{x.dtype} {tuple(x.shape)}" for x in (value, expected))
            yield f"{name}: {actual}, expected {required}"


def table(golden: Golden, findings: Sequence[tuple[str, CheckFinding]]) -> str:
    """Return shares of bounds: the maker's and ours against float64, and one against the other."""
    columns = (f"{golden.maker} : ref", "here : ref", f"here : {golden.maker}")
    lines = [f"{'':<36}{columns[0]:>20}{columns[1]:>14}{columns[2]:>22}"]
    for name, finding in findings:
        ways = finding.details.get("three_ways")
        for tensor, shares in (ways if isinstance(ways, dict) else {}).items():
            numbers = (shares["maker"], shares["here"], shares["apart"])
            cells = [f"{number:.3f}" for number in numbers]
            lines.append(f"{name + ' ' + tensor:<36}{cells[0]:>20}{cells[1]:>14}{cells[2]:>22}")
    return "\n".join(lines) + "\n"


def _ways(exact: Tensor, bound: Bound, computed: Tensor, vector: Tensor) -> dict[str, Verdict]:
    """Compare one tensor three ways: the maker's and this device's with float64 by its bound, and
    one with the other by twice that.
    """
    local, maker = computed.detach().cpu().double(), vector.double()
    verdict = judge(local, exact.expand_as(local), bound)
    profiles = opinions(local, exact.expand_as(local), computed.dtype, strict=not verdict.fault)
    return {
        "maker": judge(maker, exact, bound),
        "here": replace(verdict, profiles=profiles),
        "apart": judge(local, maker, replace(bound, slack=2 * bound.slack, rms=2 * bound.rms)),
    }
