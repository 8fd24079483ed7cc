"""Tensors in one file, in the safetensors format: written and read with the standard library.

The images have no safetensors, and nothing may be installed into them to be verified. The format is
small enough to be read strictly (https://github.com/huggingface/safetensors, "Format"): 8 bytes of
header length, a JSON header, then the numbers. Our tests compare this with the library itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16}
_DTYPES |= {"BF16": torch.bfloat16, "I64": torch.int64}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_LENGTH_BYTES = 8
# The library's own limit on headers.
_LONGEST_HEADER = 100_000_000


class TensorsError(Exception):
    """A file of another form; the message names the difference."""


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
    """Return the tensors in a file. Raise `TensorsError` for whatever the format does not
    allow: every byte behind the header belongs to exactly one tensor.
    """
    header, body = _header(data)
    places = {name: _entry(name, entry) for name, entry in header.items()}
    end = 0
    for name, (_, _, start, stop) in sorted(places.items(), key=lambda item: item[1][2:]):
        if start != end:
            raise TensorsError(f"{name}: its bytes do not follow the ones before")
        end = stop
    if end != len(body):
        raise TensorsError(f"the header speaks of {end} bytes, the file has {len(body)}")
    entries = places.items()
    return {
        name: torch.frombuffer(bytearray(body[a:b]), dtype=dtype).reshape(shape)
        if a < b
        else torch.zeros(shape, dtype=dtype)
        for name, (dtype, shape, a, b) in entries
    }


def _header(data: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    if len(data) < _LENGTH_BYTES or length > min(len(data) - _LENGTH_BYTES, _LONGEST_HEADER):
        raise TensorsError("no safetensors file: it ends within its header")
    text, body = data[_LENGTH_BYTES : _LENGTH_BYTES + length], data[_LENGTH_BYTES + length :]
    try:
        header = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise TensorsError(f"no safetensors file: its header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise TensorsError("no safetensors file: its header is no object")
    header.pop("__metadata__", None)
    return header, body


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise TensorsError("a name appears twice in the header")
    return dict(pairs)


def _entry(name: str, entry: Any) -> tuple[torch.dtype, tuple[int, ...], int, int]:
    try:
        dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
        start, stop = entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise TensorsError(f"{name}: its entry cannot be read: {error!r}") from error
    numbers = (*shape, start, stop)
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers):
        raise TensorsError(f"{name}: shape {shape} at {start} to {stop} is none")
    if stop - start != math.prod(shape) * dtype.itemsize:
        raise TensorsError(f"{name}: {stop - start} bytes for shape {shape} of {dtype}")
    return dtype, shape, start, stop
