"""MLPerf's MLLOG lines: one JSON object a line, one key with two meanings. Pure.

`tracked_stats` is the submitter's own: AMD gives `throughput` in samples/s of all devices together,
and its `step` counts samples; NVIDIA gives `train_step_time` in seconds and `samples_count`, or a
loss every ten steps, whose times are the clock's. Here a step is an optimizer step: samples over
the global batch. The number format stands in no key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from warpfront.bench.logs.facts import Fact, Format, LoggedStep, Setting
from warpfront.bench.logs.fields import amount, json_object, vendor_of
from warpfront.bench.records import Evaluation, Remark, Step

_MARK = ":::MLLOG"
_NODES = re.compile(r"(\d{1,5})x(?=\S)(.+)")
# What accelerators are called. Servers, which name a platform as often, are called anything.
_DEVICES = re.compile(
    r"(?:x(?P<before>\d{1,3})|(?<![a-z0-9])(?P<after>\d{1,3})x|(?<![a-z0-9]))"
    r"(?P<name>(?:NVIDIA |AMD )?(?:Instinct )?"
    r"(?:MI[2-4]\d{2}[AXP]?|GB?[23]00|GH200|[ABHLV](?:[2-4]0|[1238]00)S?|RTX ?Pro ?\d{4}"
    r"|Gaudi ?[23]|TPU ?v\d\w?)(?![a-z0-9])"
    r"(?:[-_ ](?:SXM\d?|OAM|PCIe|HBM\w*|\d{2,3}GB))*)",
    re.IGNORECASE,
)
_VALUES = {
    "global_batch_size": "global_batch",
    "max_sequence_length": "sequence",
}


class MllogReader:
    """From run_start to run_stop. Remembers where the clock and the samples were."""

    def __init__(self, _path: str) -> None:
        self._batch = 0
        self._began: float | None = None
        self._stopped = False
        self._at: tuple[float, int] | None = None
        self._samples = 0

    def read(self, text: str) -> Iterable[Fact]:
        entry = _entry(text)
        key = entry.get("key")
        metadata = entry.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        seconds = amount(entry.get("time_ms"))
        seconds = seconds / 1000 if seconds is not None else None
        value = entry.get("value")
        match key:
            case "run_start" if not self._stopped:
                self._began = seconds if self._began is None else self._began
            case "run_stop":
                yield from self._stop(seconds, metadata)
            case "block_start" if seconds is not None:
                self._at = (seconds, self._begun(metadata))
            case "eval_accuracy" | "eval_start" | "eval_stop":
                # What an evaluation takes is none of the steps' time.
                self._at = None
                yield from _evaluation(value, metadata)
            case "tracked_stats" if isinstance(value, dict):
                yield from self._tracked(value, metadata, seconds)
            case str():
                yield from self._setting(key, value)
            case _:
                pass

    def _stop(self, seconds: float | None, metadata: Mapping[str, Any]) -> Iterator[Fact]:
        if self._stopped:
            return
        self._stopped = True
        succeeded = metadata.get("status") == "success"
        yield Setting("succeeded", succeeded)
        if not succeeded:
            yield Remark(level="warning", message="the run did not reach its target")
        if self._began is not None and seconds is not None and seconds > self._began:
            yield Setting("run_seconds", round(seconds - self._began, 6))
        elif self._began is not None:
            yield Remark(level="warning", message="the clock goes back between start and stop")

    def _setting(self, key: str, value: object) -> Iterator[Fact]:
        count = _whole(value)
        if key in _VALUES and count:
            yield Setting(_VALUES[key], count)
            self._batch = count if key == "global_batch_size" else self._batch
        elif key == "submission_benchmark" and isinstance(value, str):
            yield Setting("benchmark", value)
            yield Setting("model", value)
        elif key == "submission_platform" and isinstance(value, str):
            yield from _platform(value)
        elif key == "submission_org" and isinstance(value, str) and (org := vendor_of(value)):
            yield Setting("organisation", org)
        elif key == "target_accuracy" and (quality := amount(value)) is not None:
            yield Setting("target_quality", quality)

    def _tracked(
        self, value: Mapping[str, Any], metadata: Mapping[str, Any], at: float | None
    ) -> Iterator[Fact]:
        rate = amount(value.get("throughput"))
        counted = metadata.get("samples_count", metadata.get("step") if rate else None)
        samples = _whole(counted)
        took = amount(value.get("train_step_time"))
        loss = amount(value.get("reduced_train_loss", value.get("train_loss")))
        # Without a step, NVIDIA's line sums up the block, and its samples are the block's.
        if "step" not in metadata or not self._batch or not samples or samples < self._batch:
            return
        steps = max((samples - self._samples) // self._batch, 1)
        if rate:
            took = self._batch / rate
        elif not took and loss is not None and at is not None:
            took = self._by_the_clock(at, samples)
            if took is not None and took <= 0:
                yield Remark(level="warning", message="the clock goes back between two lines")
                took = None
            self._at = (at, samples)
        if took:
            self._samples = samples
            yield LoggedStep(
                Step(
                    step=samples // self._batch,
                    steps=steps,
                    seconds=took,
                    samples_per_second=self._batch / took,
                    loss=loss,
                    samples=samples,
                )
            )

    def _begun(self, metadata: Mapping[str, Any]) -> int:
        """The samples before a block: its `step` where it has one, for then `samples_count` is
        the block's length.
        """
        step = _whole(metadata.get("step"))
        if step is not None:
            return step * self._batch
        return _whole(metadata.get("samples_count")) or self._samples

    def _by_the_clock(self, at: float, samples: int) -> float | None:
        """Seconds of a step, from the line before, or the block's start. A block may begin
        between two lines.
        """
        if self._at is None or samples <= self._at[1]:
            return None
        return (at - self._at[0]) * self._batch / (samples - self._at[1])


def _evaluation(value: object, metadata: Mapping[str, Any]) -> Iterator[Fact]:
    quality, samples = amount(value), _whole(metadata.get("samples_count"))
    if quality is not None and samples:
        yield Evaluation(samples=samples, value=quality)


def _platform(text: str) -> Iterator[Fact]:
    """`2xNVIDIA GB200` is two nodes, of as many devices as their maker puts into one. Of a server's
    name, or of none, nobody says which device it is.
    """
    found = _NODES.fullmatch(text)
    name = found[2] if found else text
    nodes = int(found[1]) if found else None
    if nodes:
        yield Setting("nodes", nodes)
    if inner := _DEVICES.search(name):
        if count := inner["before"] or inner["after"]:
            yield Setting("devices", int(count) * (nodes or 1))
        yield Setting("device_name", inner["name"][:60])
    if vendor := vendor_of(name):
        yield Setting("vendor", vendor)


def _entry(text: str) -> Mapping[str, Any]:
    _, mark, rest = text.partition(_MARK)
    return json_object(rest.strip()) if mark else {}


def _whole(value: object) -> int | None:
    found = amount(value)
    return int(found) if found is not None and found == int(found) else None


def marks(line: str) -> bool:
    return _MARK in line and "key" in _entry(line)


MLLOG = Format(name="mllog", marks=marks, reader=MllogReader, closes=True)
