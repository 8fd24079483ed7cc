"""Checks golden files here: each side against its own float64 first, then one against the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from warpfront_checks.cases.bounds import Bound, Verdict, judge
from warpfront_checks.golden.files import Golden, GoldenError
from warpfront_checks.golden.suite import BY_NAME, Compute, Tensors, compute
from warpfront_checks.operations import Budgeted
from warpfront_checks.results import CheckFinding, failed, passed
from warpfront_checks.tolerance_profiles import document, opinions, tally, total

# Two machines' float64 references: sums of some hundred terms in another order.
_REFERENCE_SLACK = 1e-11


def check_case(
    golden: Golden, case_name: str, dtype: str, device: str, run: Compute = compute
) -> CheckFinding:
    """Judge one golden case here. Raise `GoldenError` for an unknown case or missing tensor."""
    case = BY_NAME.get(case_name)
    if case is None:
        raise GoldenError(f"{golden.name}: this suite has no case {case_name!r}")
    inputs, cotangent = golden.inputs(case_name, dtype)
    ours = case.expect(inputs, cotangent, device)
    theirs = case.expect(inputs, cotangent, golden.device)
    vectors, stored = (golden.part(case_name, dtype, kind) for kind in ("made", "ref64"))
    _require_same_tensors(golden.name, ours, vectors, stored)
    computed = run(case.operation, inputs, cotangent, device)
    faults = list(_reference_faults(ours, stored))
    faults += _placement_faults(computed, vectors, device)
    pairs = {} if faults else {n: (computed[n], vectors[n]) for n in ours}
    ways = {name: _ways(ours[name], theirs[name], *pair) for name, pair in pairs.items()}
    faults += [fault for name, three in ways.items() for fault in _faults_of(name, three, golden)]
    shares = {
        n: {w: float(f"{v.share:.4g}") for w, v in three.items()} for n, three in ways.items()
    }
    details: dict[str, object] = {
        "maker": f"{golden.vendor} {golden.arch}",
        "three_ways": shares,
        "profiles": document(total(tally(three["here"].profiles) for three in ways.values())),
        "faults": faults,
    }
    if faults:
        return failed(f"{case_name} in {dtype}: {faults[0]}", **details)
    largest, apart = (max(each[way] for each in shares.values()) for way in ("here", "apart"))
    return passed(f"here {largest:.2f} of the budget, apart {apart:.2f} of both", **details)


def table(golden: Golden, findings: Sequence[tuple[str, CheckFinding]]) -> str:
    """Return shares of budgets: the maker's and ours against float64, and one against the other."""
    maker = f"{golden.vendor} {golden.arch}"
    lines = [f"{'':<36}{maker + ' : ref':>20}{'here : ref':>14}{'here : ' + maker:>22}"]
    for name, finding in findings:
        ways = finding.details.get("three_ways")
        for tensor, shares in (ways if isinstance(ways, dict) else {}).items():
            numbers = (shares["maker"], shares["here"], shares["apart"])
            cells = [f"{number:.3f}" for number in numbers]
            lines.append(f"{name + ' ' + tensor:<36}{cells[0]:>20}{cells[1]:>14}{cells[2]:>22}")
    return "\n".join(lines) + "\n"


def _require_same_tensors(name: str, ours: dict[str, Budgeted], *parts: dict[str, Tensor]) -> None:
    for part in parts:
        missing = sorted(set(ours) ^ set(part))
        if missing:
            raise GoldenError(f"{name}: {missing[0]} is missing or not known")


def _reference_faults(ours: dict[str, Budgeted], stored: dict[str, Tensor]) -> Iterator[str]:
    """This CPU's float64 and the maker's are the same but for the order of sums."""
    for name, budgeted in ours.items():
        slack = _REFERENCE_SLACK * (float(budgeted.reference.abs().max()) + 1)
        if fault := judge(stored[name], budgeted.reference, Bound(slack=slack)).fault:
            differ = "the float64 references differ: this CPU or the maker's computes wrong"
            yield f"{name}: {differ}: {fault}"


def _placement_faults(computed: Tensors, vectors: Tensors, device: str) -> Iterator[str]:
    for name, expected in vectors.items():
        value = computed.get(name)
        if value is None:
            yield f"{name}: missing"
        elif value.device.type != device:
            yield f"{name}: computed on {value.device.type}, not on {device}"
        elif value.dtype != expected.dtype or value.shape != expected.shape:
            found, wanted = (f"{x.dtype} {tuple(x.shape)}" for x in (value, expected))
            yield f"{name}: {found}, expected {wanted}"


def _ways(ours: Budgeted, theirs: Budgeted, computed: Tensor, vector: Tensor) -> dict[str, Verdict]:
    """Compare one tensor three ways: the maker's and this device's with float64, each by its own
    budget, and one with the other by both together.
    """
    local, maker = computed.detach().cpu().double(), vector.double()
    reference = ours.reference.expand_as(local)
    here = judge(local, reference, Bound(slack=ours.bound))
    profiles = opinions(local, reference, computed.dtype, strict=not here.fault)
    return {
        "maker": judge(maker, reference, Bound(slack=theirs.bound)),
        "here": replace(here, profiles=profiles),
        "apart": judge(local, maker, Bound(slack=ours.bound + theirs.bound)),
    }


def _faults_of(name: str, three: Mapping[str, Verdict], golden: Golden) -> Iterator[str]:
    """The two against float64 decide. Apart by more than both budgets while each is within its own
    cannot be: the sum is the triangle's.
    """
    if three["here"].fault:
        yield f"{name}: this device is off by {three['here'].share:.3g} times its budget"
    if three["maker"].fault:
        maker, share = f"{golden.vendor} {golden.arch}", three["maker"].share
        yield f"{name}: the maker ({maker}) is off by {share:.3g} times its budget"
