"""The golden suite, and golden files: the results of one maker, with inputs, hashes and origin.

Single operations on small tensors, because two devices can only be compared on the same numbers:
then the difference of two correct answers is at most twice their bound. `NAME.safetensors` has the
tensors, `NAME.json` the manifest. Inputs travel as tensors: the generators of two machines differ,
and so might two versions of one. The images have no safetensors; its format is read strictly
(https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.cases.bounds import Bound
from warpfront_checks.cases.measured import Limits
from warpfront_checks.claims import Claims
from warpfront_checks.executing import differentiated
from warpfront_checks.hardware import Hardware
from warpfront_checks.precision import DTYPES, precision_settings, require_full_precision
from warpfront_checks.results import write_json
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
