"""torchtitan's metric lines. Pure.

    step: 10  loss:  4.98934  grad_norm: 19.2500  memory: 168.57GiB(94.52%)  tps: 9,982  tflops: ...

A line is the mean since the line before, usually of ten steps. Before 2025 `tps` was `wps`; some
print `step: 10/644 = 1.6%`. Its `mfu` is not read: for a device that torchtitan does not know, the
peak behind it is another's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from warpfront.bench.logs.facts import Fact, Format, LoggedStep, Setting
from warpfront.bench.logs.fields import (
    is_no_number,
    number,
    positive,
    precision_of,
    rank_of,
    size_bytes,
    vendor_of,
    whole,
)
from warpfront.bench.records import MemoryKind, Step

_STEP = re.compile(r"\bstep:\s*(\d{1,15})(?:/\d{1,15}(?: = [\d.]{1,9}%)?)?\s+(?=.{0,400}\b[tw]ps:)")
_FIELD = re.compile(r"(\w+):\s*(\S+)\s")
_DEVICE = re.compile(r"capacity: ([\w .()/-]{2,60}?) with [\d.]+GiB")
_TRAINER = re.compile(
    r"local batch size (\d{1,9}), global batch size (\d{1,9}).{0,200}?sequence length (\d{1,9})"
)
_MESH = re.compile(r"Building device mesh with parallelism: (.{1,300})")
_WAYS = re.compile(r"(\w+)=(\d{1,7})")
_SIZE = re.compile(r"Model (\w[\w.-]{0,60}) (\S{1,30}) size: ([\d,]{1,25}) total parameters")
_ACTIVE = re.compile(r"sparse [\d,]+, active ([\d,]{1,25})")
_DTYPE = re.compile(r"(?:training\.dtype|mixed_precision_param)[= ]'?(\w{1,20})")
_VERSION = re.compile(r"torchtitan version: (\S{1,40})")
_TELLING = re.compile(r"batch size|capacity:|mesh|param|loat8|dtype|precision|version:")
_MESH_WAYS = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
_FLOAT8 = re.compile(r"Float8 .{0,30}(?:training active|enabled)|Swapped to Float8")


class TorchtitanReader:
    """Remembers the step of the line before: a line's figures are of the steps since."""

    def __init__(self, _path: str) -> None:
        self._last: int | None = None

    def read(self, text: str) -> Iterable[Fact]:
        # A field ends with a space: half of one, at a line's end that was cut, is none.
        line = text + ("" if text[-1:].isspace() else " ")
        found = _STEP.search(line)
        if found is None:
            if _TELLING.search(line):
                yield from _settings(line)
            return
        fields = dict(_FIELD.findall(line[found.end() :]))
        tokens = positive(fields.get("tps") or fields.get("wps") or "")
        if tokens is None:
            return
        step = int(found[1])
        since = self._last if self._last is not None and self._last < step else step - 1
        self._last = step
        yield Setting("memory_kind", MemoryKind.RESERVED)
        yield LoggedStep(_step(step, step - since, tokens, fields), rank_of(line))


def _step(step: int, steps: int, tokens: float, fields: Mapping[str, str]) -> Step:
    loss = fields.get("loss", "")
    teraflop = positive(fields.get("tflops", ""))
    return Step(
        step=step,
        steps=max(steps, 1),
        tokens_per_second_per_device=tokens,
        flop_per_second_per_device=teraflop * 1e12 if teraflop else None,
        loss=number(loss),
        grad_norm=number(fields.get("grad_norm", "")),
        nan=int(is_no_number(loss)) or None,
        memory_bytes=size_bytes(fields.get("memory", "")),
    )


def _settings(line: str) -> Iterator[Fact]:
    if found := _TRAINER.search(line):
        names = ("micro_batch", "global_batch", "sequence")
        for name, text in zip(names, found.groups(), strict=True):
            yield Setting(name, int(text))
    if found := _MESH.search(line):
        yield from _mesh({name: int(ways) for name, ways in _WAYS.findall(found[1])})
    if found := _VERSION.search(line):
        yield Setting("framework", "torchtitan")
        yield Setting("framework_version", found[1])
    yield from _device(line)
    yield from _model(line)


def _device(line: str) -> Iterator[Fact]:
    if found := _DEVICE.search(line):
        yield Setting("device_name", found[1])
        if vendor := vendor_of(found[1]):
            yield Setting("vendor", vendor)


def _model(line: str) -> Iterator[Fact]:
    if found := _SIZE.search(line):
        yield Setting("model", f"{found[1]} {found[2]}")
        yield from _counted("parameters", found[3])
    if found := _ACTIVE.search(line):
        yield from _counted("active_parameters", found[1])
    if _FLOAT8.search(line):
        yield Setting("precision", "fp8")
    elif (found := _DTYPE.search(line)) and (precision := precision_of(found[1])):
        yield Setting("precision", precision)


def _counted(name: str, text: str) -> Iterator[Fact]:
    if count := whole(text):
        yield Setting(name, count)


def _mesh(ways: Mapping[str, int]) -> Iterator[Fact]:
    known = [ways[name] for name in _MESH_WAYS if ways.get(name, 0) > 0]
    if len(known) == len(_MESH_WAYS):
        yield Setting("devices", math.prod(known))
        yield Setting("parallel.data", ways["dp_replicate"] * ways["dp_shard"])
    for name, field in (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context"), ("ep", "expert")):
        if ways.get(name, 0) > 0:
            yield Setting(f"parallel.{field}", ways[name])


def marks(line: str) -> bool:
    return "ps:" in line and "loss:" in line and _STEP.search(line) is not None


TORCHTITAN = Format(name="torchtitan", marks=marks, reader=TorchtitanReader)
