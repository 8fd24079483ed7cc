"""Golden vectors: the suite, its files, the `golden` session, and its command line: `python -m
warpfront_checks golden make|check`.

A file has the results of one maker, with inputs, hashes and origin. The suite is single operations
on small tensors, because two devices can only be compared on the same numbers: then the difference
of two correct answers is at most twice their bound. `NAME.safetensors` has the tensors, `NAME.json`
the manifest. Inputs travel as tensors: the generators of two machines differ, and so might two
versions of one. The images have no safetensors; its format is read strictly
(https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.cases.bounds import Bound, Verdict, judge, judge_by_all
from warpfront_checks.cases.measured import Limits
from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.claimed_device import computes, judge_device
from warpfront_checks.claims import Claims
from warpfront_checks.executing import differentiated
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
from warpfront_checks.torch_devices import read_arch_list, read_facts, telling_variables

Inputs = tuple[Tensor, ...]
Tensors = Mapping[str, Tensor]
Operation = Callable[..., Tensor]
HEADS = 2


@dataclass(frozen=True)
class GoldenCase:
    """An operation, and for each input its shape, deviation and mean."""

    name: str
    operation: Operation
    inputs: tuple[tuple[tuple[int, ...], float, float], ...]

    def make(self, dtype: torch.dtype, seed: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return inputs and the gradient for the output, rounded to the dtype, on the CPU."""
        generator = torch.Generator().manual_seed(seed)
        values = [
            (torch.randn(s, generator=generator) * scale + mean) for s, scale, mean in self.inputs
        ]
        inputs = tuple(x.to(dtype) for x in values)
        output = self.operation(*(x.double() for x in inputs))
        return inputs, torch.randn(output.shape, generator=generator).to(dtype)

    def expect(self, inputs: Inputs, cotangent: Tensor) -> dict[str, tuple[Tensor, Bound]]:
        """Return float64 and the bound of each tensor, for `out` and `grad/N`."""
        exact = differentiated(self.operation, [x.double() for x in inputs], cotangent.double())
        cpu = differentiated(self.operation, inputs, cotangent)
        terms = float(cotangent.double().abs().sum())
        bounds = [
            Limits.by_cpu(x, wide, x, x.dtype, added=terms / wide.numel() * (n > 0)).bound
            for n, (x, wide) in enumerate(zip(cpu, exact, strict=True))
        ]
        return dict(zip(names_of(len(inputs)), zip(exact, bounds, strict=True), strict=True))


def names_of(inputs: int) -> tuple[str, ...]:
    """Return the names of the output and of the gradient of each input."""
    return ("out", *(f"grad/{n}" for n in range(inputs)))


def compute(operation: Operation, inputs: Inputs, cotangent: Tensor, device: str) -> Tensors:
    """Return `out` and `grad/N` of a device, where they are. Tests put faulty ones here."""
    computed = differentiated(operation, [x.to(device) for x in inputs], cotangent.to(device))
    return dict(zip(names_of(len(inputs)), computed, strict=True))


def _attention(*inputs: Tensor) -> Tensor:
    q, k, v = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in inputs)
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)


CASES = (
    GoldenCase(
        "linear",
        functional.linear,
        (((17, 33), 1.0, 0.0), ((9, 33), 33**-0.5, 0.0), ((9,), 0.5, 0.0)),
    ),
    GoldenCase(
        "linear of 513 terms", functional.linear, (((2, 513), 1.0, 0.0), ((3, 513), 513**-0.5, 0.0))
    ),
    GoldenCase(
        "convolution",
        partial(functional.conv2d, padding=1, stride=2),
        (((2, 3, 7, 7), 1.0, 0.0), ((5, 3, 3, 3), 27**-0.5, 0.0), ((5,), 0.5, 0.0)),
    ),
    GoldenCase("gelu", functional.gelu, (((129,), 2.0, 0.0),)),
    GoldenCase("silu", functional.silu, (((127,), 2.0, 0.0),)),
    GoldenCase(
        "layer norm",
        lambda x, weight, bias: functional.layer_norm(x, x.shape[-1:], weight, bias),
        (((7, 65), 1.0, 0.5), ((65,), 0.2, 1.0), ((65,), 0.5, 0.0)),
    ),
    GoldenCase(
        "batch norm",
        lambda x, *rest: functional.batch_norm(x, None, None, *rest, training=True),
        (((3, 5, 5, 5), 1.0, 0.5), ((5,), 0.2, 1.0), ((5,), 0.5, 0.0)),
    ),
    GoldenCase("attention", _attention, tuple(((1, 33, 32), 1.0, 0.0) for _ in range(3))),
)
BY_NAME = {case.name: case for case in CASES}


SCHEMA = 1
SHIPPED = Path(__file__).with_name("files")
# Not what it computes with, but where things are on the machine, or what a container asks for.
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

    def inputs(self, case: str, dtype: str) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return inputs and cotangent. Raise `GoldenError` where one is missing."""
        key = f"{case}/{dtype}"
        count = sum(name.startswith(f"{key}/in/") for name in self.tensors)
        try:
            inputs = tuple(self.tensors[f"{key}/in/{n}"] for n in range(count))
            return inputs, self.tensors[f"{key}/cotangent"]
        except KeyError as error:
            raise GoldenError(f"{self.name}: {error.args[0]} is missing") from None

    def part(self, case: str, dtype: str, kind: str) -> dict[str, Tensor]:
        """Return the tensors of `ref64` or `made`, by `out` and `grad/N`."""
        prefix = f"{case}/{dtype}/{kind}/"
        names = [name for name in self.tensors if name.startswith(prefix)]
        return {name.removeprefix(prefix): self.tensors[name] for name in names}


def make_golden(path: Path, claims: Claims, hardware: Hardware, dtypes: tuple[str, ...]) -> Path:
    """Compute the suite on the claimed device and write file and manifest; returns the manifest."""
    require_full_precision()
    tensors: dict[str, Tensor] = {}
    for number, case in enumerate(CASES):
        for dtype in dtypes:
            inputs, cotangent = case.make(DTYPES[dtype], seed=number)
            key = f"{case.name}/{dtype}"
            tensors.update({f"{key}/in/{n}": x for n, x in enumerate(inputs)})
            tensors[f"{key}/cotangent"] = cotangent
            expected = case.expect(inputs, cotangent)
            tensors.update({f"{key}/ref64/{n}": exact for n, (exact, _) in expected.items()})
            computed = compute(case.operation, inputs, cotangent, claims.device)
            tensors.update({f"{key}/made/{n}": x.cpu() for n, x in computed.items()})
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
    facts = read_facts(torch)
    version: Any = torch.version
    names = ("cuda", "hip", "rocm", "xpu", "git_version")
    return {
        "made_utc": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "torch": torch.__version__,
        "torch_version": {name: getattr(version, name, None) for name in names},
        "arch_list": list(read_arch_list(torch)),
        "device_names": [device.name for device in facts.devices],
        "processor": hardware.processor.name,
        "features": list(hardware.processor.features),
        "drivers": dict(hardware.drivers),
        "toolkits": dict(hardware.toolkits),
        "cudnn": torch.backends.cudnn.version() if facts.devices else None,
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
    ways: dict[str, dict[str, Verdict]] = {}
    for name, (exact, bound) in () if faults else ours.items():
        # The maker's and this device's with float64 by its bound, one with the other by twice that.
        local, maker = computed[name].detach().cpu().double(), vectors[name].double()
        ways[name] = {
            "maker": judge(maker, exact, bound),
            "here": judge_by_all(local, exact, bound, computed[name].dtype),
            "apart": judge(local, maker, replace(bound, slack=2 * bound.slack, rms=2 * bound.rms)),
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
