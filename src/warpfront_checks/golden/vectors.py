"""Golden vectors: the suite, its files, the `golden` session, and its command line: `python -m
warpfront_checks golden make|check`.

A file has the results of one maker, with inputs, hashes and origin. The suite is calls of the
catalogue on small tensors, because two devices can only be compared on the same numbers: then the
difference of two correct answers is at most twice their bound. `NAME.safetensors` has the tensors,
`NAME.json` the manifest. Inputs travel as tensors: the generators of two machines differ, and so
might two versions of one. The images have no safetensors; its format is read strictly
(https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from warpfront_checks.cases.axes import build
from warpfront_checks.cases.bounds import Bound, Verdict, judge, judge_by_all
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.catalogue import CATALOGUE
from warpfront_checks.cases.measured import ByPeer
from warpfront_checks.cases.run import Bounds, NoOracleError, Reference, reference_of, results_of
from warpfront_checks.cases.special.properties import plain_assignment
from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.claimed_device import computes, judge_device
from warpfront_checks.claims import Claims
from warpfront_checks.documents import packaged
from warpfront_checks.hardware import Hardware, Machine, read_hardware
from warpfront_checks.precision import (
    DTYPES,
    REQUIRED,
    precision_settings,
    probe,
    require_full_precision,
)
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
    write_json,
)
from warpfront_checks.tolerance_profiles import counted
from warpfront_checks.torch_devices import environment_of, read_facts, telling_variables

Tensors = Mapping[str, Tensor]
T = TypeVar("T")
# A file's numbers are those of a call in their order, whatever their shape.
SUITE: Mapping[str, Mapping[str, Any]] = packaged("golden/suite.json")["suite"]


def case_of(name: str, dtype: str, device: str, seed: int = 0) -> Case:
    """Return a call of the suite, with numbers and a gradient of its output that are drawn."""
    row = SUITE[name]
    operation, lengths = CATALOGUE[row["record"]], row["sizes"]
    ranks = range(operation.ranks)
    chosen = {
        **plain_assignment(operation, dtype),
        **{f"option {option}": value for option, value in row["options"].items()},
        "rank": next(rank for rank in ranks if {*operation.sizes(rank)} == {*lengths}),
        "lengths": lengths,
        "values": "normal",
        "gradient": "all",
        "seed": seed,
    }
    return replace(build(operation, chosen, device), fed="normal")


def case_of_file(case: Case, inputs: Sequence[Tensor], cotangent: Tensor) -> Case:
    """Return a call of the suite with a file's numbers."""
    numbers = "taken[{}].to(torch.float64, copy=True)"
    arguments = [
        replace(argument, values=numbers.format(place), fit="{x}")
        for place, argument in enumerate(case.arguments)
    ]
    fed, made = "cotangent.double().view(right.shape)", {"taken": inputs, "cotangent": cotangent}
    return replace(case, arguments=tuple(arguments), fed=fed, made=made)


def expect(case: Case, reference: Reference) -> dict[str, tuple[Tensor, Bound]]:
    """Return float64 and the bound of each tensor, for `out` and `grad/N`."""
    bounds = ByPeer(case, reference)
    exact = [x.detach() for x in (*reference.expected, *reference.rights)]
    peers = [x.detach() for x in bounds.peers if x is not None]
    pairs = enumerate(zip(exact, peers, strict=True))
    return named((x, bounds.limits(place, cpu, x, cpu).bound) for place, (x, cpu) in pairs)


def named(values: Iterable[T]) -> dict[str, T]:
    """Return the output's value and those of each input's gradient by their names in files."""
    return {f"grad/{place - 1}" if place else "out": x for place, x in enumerate(values)}


def compute(case: Case, reference: Reference) -> Tensors:
    """Return `out` and `grad/N` of a device, where they are. Tests put faulty ones here."""
    results = results_of(case, reference)
    return named(x.detach() for x in (*results.actual, *results.gradients))


SCHEMA = 1
SHIPPED = Path(__file__).with_name("files")
# Not what it computes with, but where things are on the machine, or what a container asks for.
_ORIGIN = "python machine torch torch_git torch_version_cuda torch_version_hip arch_list"
_PRIVATE = re.compile(r".*(HOME|PATH|DIR|ROOT|CACHE|TOKEN|KEY|FILE|URL|HOST|REQUIRE)")


class GoldenError(Exception):
    """A golden file cannot be used; the message names it and what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Golden:
    """A golden file that agrees with its manifest. `maker` is the vendor and arch of its device."""

    name: str
    maker: str
    tensors: Mapping[str, Tensor]
    provenance: Mapping[str, Any]

    def entries(self) -> tuple[tuple[str, str], ...]:
        """Return (case, dtype) of everything in the file."""
        keys = (name.split("/")[:2] for name in self.tensors)
        return tuple(dict.fromkeys((case, dtype) for case, dtype in keys))

    def part(self, key: str, shapes: Mapping[str, Sequence[int]], of: torch.dtype) -> Tensors:
        """Return the tensors below a key in these shapes. Raise `GoldenError` for any other."""
        part = {n.removeprefix(key): x for n, x in self.tensors.items() if n.startswith(key)}
        sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        for name in sorted({*part, *sizes}):
            found, size = part.get(name), sizes.get(name)
            if found is None or (found.numel(), found.dtype) != (size, of):
                raise GoldenError(f"{self.name}: {key}{name} has to be {size or 0} numbers of {of}")
        return {name: part[name].view(*shape) for name, shape in shapes.items()}


def make_golden(path: Path, claims: Claims, hardware: Hardware, dtypes: tuple[str, ...]) -> Path:
    """Compute the suite on the claimed device and write file and manifest; returns the manifest."""
    require_full_precision()
    tensors: dict[str, Tensor] = {}
    for seed, name in enumerate(SUITE):
        for dtype in dtypes:
            case, key = case_of(name, dtype, claims.device, seed), f"{name}/{dtype}"
            reference = reference_of(case)
            drawn = [reference.drawn[argument.name] for argument in case.arguments]
            inputs = {f"in/{n}": x.to(DTYPES[dtype]) for n, x in enumerate(drawn)}
            cotangent = reference.drawn["fed"].to(DTYPES[dtype])
            exact = named((*reference.expected, *reference.rights))
            tensors |= {f"{key}/{n}": x for n, x in {**inputs, "cotangent": cotangent}.items()}
            tensors |= {f"{key}/ref64/{n}": x for n, x in exact.items()}
            computed = compute(case, reference)
            tensors |= {f"{key}/made/{n}": x.cpu() for n, x in computed.items()}
    data = to_bytes(tensors, {"format": "pt", "warpfront": f"golden {SCHEMA}"})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    document = {
        "schema": SCHEMA,
        "file": path.name,
        "sha256": hashlib.sha256(data).hexdigest(),
        "tensors": {name: _hash(tensor) for name, tensor in tensors.items()},
        "vendor": claims.vendor,
        "arch": claims.target,
        "device": claims.device,
        "provenance": _provenance(hardware),
    }
    write_json(path.with_suffix(".json"), document)
    return path.with_suffix(".json")


def read_golden(path: Path) -> Golden:
    """Return a golden file by its tensors' path. Raise `GoldenError` for a wrong hash."""
    file = path.with_suffix(".json")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GoldenError(f"{file}: the manifest cannot be read: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise GoldenError(f"{file}: the manifest is not of schema {SCHEMA}")
    texts, objects = ("sha256", "vendor", "arch", "device"), ("tensors", "provenance")
    for field, kind in {**dict.fromkeys(texts, str), **dict.fromkeys(objects, dict)}.items():
        if not isinstance(manifest.get(field), kind):
            raise GoldenError(f"{file}: {field} is missing or not of its type")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise GoldenError(f"{path}: {error.strerror}") from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != manifest["sha256"]:
        mismatch = f"sha256 is {digest}, its manifest says {manifest['sha256']}"
        raise GoldenError(f"{path}: wrong hash: {mismatch}")
    try:
        tensors = from_bytes(data)
    except GoldenError as error:
        raise GoldenError(f"{path}: {error}") from None
    listed = manifest["tensors"]
    for name in sorted({*tensors, *listed}):
        if name not in tensors or _hash(tensors[name]) != listed.get(name):
            raise GoldenError(f"{path}: wrong hash: {name} is not what its manifest lists")
    maker, provenance = f"{manifest['vendor']} {manifest['arch']}", manifest["provenance"]
    return Golden(name=path.stem, maker=maker, tensors=tensors, provenance=provenance)


def shipped() -> tuple[Path, ...]:
    """Return the golden files of this package."""
    return tuple(sorted(SHIPPED.glob("*.safetensors")))


def _hash(tensor: Tensor) -> str:
    """Return the digest of dtype, shape and numbers."""
    head = f"{tensor.dtype} {list(tensor.shape)} ".encode()
    return hashlib.sha256(head + raw(tensor)).hexdigest()


def _provenance(hardware: Hardware) -> dict[str, object]:
    """Return everything that decides about numbers, and the time. No host names, no paths."""
    environment = environment_of(torch)
    return {
        "made_utc": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **{name: environment[name] for name in _ORIGIN.split()},
        "device_names": [device.name for device in read_facts(torch).devices],
        "processor": hardware.processor.name,
        "features": list(hardware.processor.features),
        "drivers": dict(hardware.drivers),
        "toolkits": dict(hardware.toolkits),
        "cudnn": torch.backends.cudnn.version(),
        "precision": precision_settings(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "environment": {
            name: value
            for name, value in telling_variables(os.environ).items()
            if not _PRIVATE.match(name) and "/" not in value
        },
    }


_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16}
_DTYPES |= {"BF16": torch.bfloat16, "I64": torch.int64}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_LENGTH_BYTES = 8
# The library's own limit on headers.
_LONGEST_HEADER = 100_000_000


def to_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Return the file's bytes, contiguous and by name: the same tensors are the same bytes."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    parts: list[bytes] = []
    place = 0
    for name in sorted(tensors):
        part = raw(tensors[name])
        header[name] = {
            "dtype": _NAMES[tensors[name].dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [place, place + len(part)],
        }
        parts.append(part)
        place += len(part)
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text + b"".join(parts)


def raw(tensor: Tensor) -> bytes:
    """Return a tensor's numbers, little-endian (as are all machines that torch runs on)."""
    values = tensor.detach().cpu().contiguous().flatten()
    return bytes(values.view(torch.uint8).numpy().tobytes()) if values.numel() else b""


def from_bytes(data: bytes) -> dict[str, Tensor]:
    """Return the tensors in a file. Raise `GoldenError` for whatever the format does not
    allow: every byte behind the header belongs to exactly one tensor.
    """
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    if len(data) < _LENGTH_BYTES or length > min(len(data) - _LENGTH_BYTES, _LONGEST_HEADER):
        raise GoldenError("no safetensors file: it ends within its header")
    text, body = data[_LENGTH_BYTES : _LENGTH_BYTES + length], data[_LENGTH_BYTES + length :]
    try:
        header = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise GoldenError(f"no safetensors file: its header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise GoldenError("no safetensors file: its header is no object")
    header.pop("__metadata__", None)
    places = {name: _entry(name, entry) for name, entry in header.items()}
    end = 0
    for name, (_, _, start, stop) in sorted(places.items(), key=lambda item: item[1][2:]):
        if start != end:
            raise GoldenError(f"{name}: its bytes do not follow the ones before")
        end = stop
    if end != len(body):
        raise GoldenError(f"the header speaks of {end} bytes, the file has {len(body)}")
    return {
        name: torch.frombuffer(bytearray(body[a:b]), dtype=dtype).reshape(shape)
        if a < b
        else torch.zeros(shape, dtype=dtype)
        for name, (dtype, shape, a, b) in places.items()
    }


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise GoldenError("a name appears twice in the header")
    return dict(pairs)


def _entry(name: str, entry: Any) -> tuple[torch.dtype, tuple[int, ...], int, int]:
    try:
        dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
        start, stop = entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise GoldenError(f"{name}: its entry cannot be read: {error!r}") from error
    numbers = (*shape, start, stop)
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers):
        raise GoldenError(f"{name}: shape {shape} at {start} to {stop} is none")
    if stop - start != math.prod(shape) * dtype.itemsize:
        raise GoldenError(f"{name}: {stop - start} bytes for shape {shape} of {dtype}")
    return dtype, shape, start, stop


_VENDORS = {"sm_": ("nvidia", "cuda"), "gfx": ("amd", "cuda"), "gau": ("gaudi", "hpu")}


def record_golden(claims: Claims, recorder: Recorder, _effort: CheckOptions = USUAL) -> None:
    """Check our golden files on the claimed device, a check a case and dtype."""
    paths = shipped()
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
    required = [(case, dtype) for case in SUITE for dtype in REQUIRED[device]]
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


# Two machines' float64 references: sums of some hundred terms in another order.
_REFERENCE_SLACK = 1e-11


def check_case(golden: Golden, case_name: str, dtype: str, device: str) -> CheckFinding:
    """Judge one golden case here. Raise `GoldenError` for an unknown case or missing tensor."""
    if case_name not in SUITE:
        raise GoldenError(f"{golden.name}: this suite has no case {case_name!r}")
    drawn, key = case_of(case_name, dtype, device), f"{case_name}/{dtype}"
    shapes = {str(place): each.shape for place, each in enumerate(drawn.arguments)}
    inputs = golden.part(f"{key}/in/", shapes, DTYPES[dtype])
    try:
        case = case_of_file(drawn, [*inputs.values()], golden.tensors[f"{key}/cotangent"])
        reference = reference_of(case)
    except (KeyError, NoOracleError):
        raise GoldenError(f"{golden.name}: {key}/cotangent is missing, or of no result") from None
    ours = expect(case, reference)
    results = {name: exact.shape for name, (exact, _) in ours.items()}
    vectors = golden.part(f"{key}/made/", results, DTYPES[dtype])
    stored = golden.part(f"{key}/ref64/", results, torch.float64)
    computed = compute(case, reference)
    form, faults = Bounds(case, reference).fault_of_form, list[str]()
    ways: dict[str, dict[str, Verdict]] = {}
    for place, (name, (exact, bound)) in enumerate(ours.items()):
        slack = _REFERENCE_SLACK * (float(exact.abs().max()) + 1)
        if fault := judge(stored[name], exact, Bound(slack=slack)).fault:
            differ = "the float64 references differ: this CPU or the maker's computes wrong"
            faults.append(f"{name}: {differ}: {fault}")
        elif (value := computed.get(name)) is None:
            faults.append(f"{name}: missing")
        elif fault := form(place, value, exact):
            faults.append(f"{name}: {fault}")
        else:
            # The maker's and ours with float64 by its bound, one with the other by twice that.
            local, maker = value.cpu().double(), vectors[name].double()
            twice = replace(bound, slack=2 * bound.slack, rms=2 * bound.rms)
            ways[name] = {
                "maker": judge(maker, exact, bound),
                "here": judge_by_all(local, exact, bound, value.dtype),
                "apart": judge(local, maker, twice),
            }
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
