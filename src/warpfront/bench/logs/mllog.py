"""MLPerf's MLLOG lines: one JSON object a line, one key with several meanings. Pure.

`tracked_stats` is the submitter's: `throughput` in samples/s of all devices together,
`train_step_time` in seconds, or a loss, whose times are the clock's. Its place (`samples_count`,
`step`, `step_num`, `epoch_num`) counts samples, steps or epochs: the clock between two lines shows
which. Here a step is an optimizer step: samples over the global batch. No key names the precision.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from warpfront.bench.logs.facts import Fact, Format, LoggedStep, Setting, Unused
from warpfront.bench.logs.fields import amount, json_object, vendor_of
from warpfront.bench.records import Evaluation, Remark, Step
from warpfront.system.strict_values import object_in

_MARK = ":::MLLOG"
_NODES = re.compile(r"(\d{1,5})x(?=\S)(.+)")
# Names of accelerators. Servers, which name a platform as often, may have any name.
_DEVICES = re.compile(
    r"(?:x(?P<before>\d{1,3})|(?<![a-z0-9])(?P<after>\d{1,3})x|(?<![a-z0-9]))"
    r"(?P<name>(?:NVIDIA |AMD )?(?:Instinct )?"
    r"(?:MI[2-4]\d{2}[AXP]?|GB?[23]00|GH200|[ABHLV](?:[2-4]0|[1238]00)S?|RTX ?Pro ?\d{4}"
    r"|Gaudi ?[23]|TPU ?v\d\w?)(?!(?!x\d)[a-z0-9])"
    r"(?:[-_ ](?:SXM\d?|OAM|PCIe|HBM\w*|\d{2,3}GB))*)(?:x(?P<behind>\d{1,3})(?![a-z0-9]))?",
    re.IGNORECASE,
)
# Cards that no maker sells as a node: RTX and A4000 to A6000, GeForce, Radeon Pro.
_CARDS = re.compile(
    r"(\d{1,2})x((?:NVIDIA )?(?:RTX ?)?A[2456]\d00"
    r"|(?:NVIDIA )?(?:GeForce )?RTX ?\d{4}(?: ?Ti| ?Super)?|(?:AMD )?Radeon[\w ]{1,30})",
    re.IGNORECASE,
)
_PLACES = ("samples_count", "step", "step_num", "epoch_num")
_FITS = 4.0
"""The largest distance of the clock from the steps that a line's place counts."""
_VALUES = {"global_batch_size": "global_batch", "max_sequence_length": "sequence"}


class MllogReader:
    """A reader of the lines from run_start to run_stop. Remembers clock and samples."""

    def __init__(self) -> None:
        self._batch = 0
        self._began: float | None = None
        self._stopped = False
        self._at: tuple[float, int] | None = None
        self._samples = 0
        self._clock: float | None = None
        self._place: float = 0.0
        self._counts = ""
        self._lines = 0

    def read(self, text: str) -> Iterable[Fact]:
        entry = _entry(text)
        key = entry.get("key")
        metadata = object_in(entry, "metadata")
        seconds = amount(entry.get("time_ms"))
        seconds = seconds / 1000 if seconds is not None else None
        value = entry.get("value")
        match key:
            case "run_start" if not self._stopped:
                self._began = seconds if self._began is None else self._began
                self._clock = seconds if self._clock is None else self._clock
            case "run_stop":
                yield from self._stop(seconds, metadata)
            case "block_start" if seconds is not None:
                # With a `step`, `samples_count` is the block's length.
                step, samples = (_whole(metadata.get(n)) for n in ("step", "samples_count"))
                consumed = samples or self._samples if step is None else step * self._batch
                self._at, self._clock = (seconds, consumed), seconds
            case "eval_accuracy" | "eval_start" | "eval_stop":
                # The time of an evaluation is no part of the steps' time.
                self._at = None
                quality, samples = amount(value), _whole(metadata.get("samples_count"))
                if quality is not None and samples:
                    yield Evaluation(samples=samples, value=quality)
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
        self, value: Mapping[str, Any], metadata: Mapping[str, Any], time: float | None
    ) -> Iterator[Fact]:
        rate, took = amount(value.get("throughput")), amount(value.get("train_step_time"))
        loss = amount(value.get("reduced_train_loss", value.get("train_loss")))
        # The place of a summary is a range, and no amount.
        name = next((name for name in _PLACES if amount(metadata.get(name)) is not None), "")
        if not self._batch or not name or not (rate or took or loss is not None):
            keys = ", ".join(sorted(map(str, value)))
            where = "" if self._batch and name else " without a step"
            yield Unused(f"tracked_stats of {keys}{where}")
            return
        if name == "samples_count" and "step" not in metadata:
            yield Unused("tracked_stats of a block without a step")  # its samples are the block's
            return
        place = float(metadata[name])
        seconds: float | None
        if rate or took:
            seconds = took or self._batch / (rate or 1)
            self._lines += 1
            step = self._step_at(name, place, seconds, time)
        else:
            seconds, step = self._by_loss(name, place, time)
        if seconds and seconds < 0:
            yield Remark(level="warning", message="the clock goes back between two lines")
        elif step < 0:
            yield Unused("tracked_stats of a block whose steps have lines")
        elif not seconds:
            yield Unused("tracked_stats of a loss without a time before it")
        else:
            steps = max(step - self._samples // self._batch, 1) if self._counts != "lines" else 1
            self._samples = step * self._batch
            memory_bytes = round((amount(value.get("max_memory_usage")) or 0) * 10**9)
            yield LoggedStep(
                Step(
                    step=step,
                    steps=steps,
                    seconds=seconds,
                    samples_per_second=self._batch / seconds,
                    loss=loss,
                    samples=None if self._counts == "lines" else self._samples,
                    memory_bytes=memory_bytes or None,
                )
            )

    def _step_at(self, name: str, place: float, seconds: float, time: float | None) -> int:
        """Return the optimizer step of a line with a speed, by the unit that its place counts;
        -1 for one that goes back.

        The unit is decided once, by the steps that fit between two lines.
        """
        passed = place - self._place
        if passed < 0 or (passed == 0 and self._lines > 1):
            return -1
        if not self._counts and passed > 0:
            self._counts = self._counted_by(name, place, passed, seconds, time)
        self._place, self._clock = place, time if time is not None else self._clock
        match self._counts:
            case "samples":
                return int(place) // self._batch
            case "steps":
                return int(place)
            case _:
                return self._lines

    def _counted_by(
        self, name: str, place: float, passed: float, seconds: float, time: float | None
    ) -> str:
        if name == "samples_count":
            return "samples"
        took = time - self._clock if time is not None and self._clock is not None else 0.0
        if took > 0:
            fitting = {"samples": passed / self._batch, "steps": passed}
            away = {kind: abs(math.log(steps * seconds / took)) for kind, steps in fitting.items()}
            nearest = min(away, key=away.__getitem__)
            if away[nearest] < math.log(_FITS):
                return nearest
        if place < self._batch:
            return "lines"
        is_samples = name == "epoch_num" or (name == "step" and not place % self._batch)
        return "samples" if is_samples else "steps"

    def _by_loss(self, name: str, place: float, time: float | None) -> tuple[float | None, int]:
        """Return seconds and step of a line with a loss alone, by the clock."""
        is_samples = name == "samples_count" or (place >= self._batch and not place % self._batch)
        samples = int(place if is_samples else place * self._batch)
        took = None
        if time is not None:
            # A block may begin between two lines.
            if self._at is not None and samples > self._at[1]:
                took = (time - self._at[0]) * self._batch / (samples - self._at[1])
            self._at = time, samples
        return took, samples // self._batch


def _platform(text: str) -> Iterator[Fact]:
    """Yield the devices that a platform's name implies.

    `2xNVIDIA GB200` is two nodes, of as many devices as their maker puts into one. `2xA5000`, a
    workstation's card, is two devices of one node. A server's name implies no device.
    """
    match = _NODES.fullmatch(text)
    if cards := _CARDS.fullmatch(text):
        yield Setting("nodes", 1)
        yield Setting("devices", int(cards[1]))
        yield Setting("device_name", cards[2])
        yield Setting("vendor", vendor_of(cards[2]) or "nvidia")
        return
    name = match[2] if match else text
    nodes = int(match[1]) if match else None
    if nodes:
        yield Setting("nodes", nodes)
    if inner := _DEVICES.search(name):
        if count := inner["before"] or inner["after"] or inner["behind"]:
            yield Setting("devices", int(count) * (nodes or 1))
        yield Setting("device_name", inner["name"][:60])
    if vendor := vendor_of(name):
        yield Setting("vendor", vendor)


def _entry(text: str) -> Mapping[str, Any]:
    _, mark, rest = text.partition(_MARK)
    return json_object(rest.strip()) if mark else {}


def _whole(value: object) -> int | None:
    number = amount(value)
    return int(number) if number is not None and number == int(number) else None


def _marks(line: str) -> bool:
    return _MARK in line and "key" in _entry(line)


MLLOG = Format(name="mllog", marks=_marks, reader=lambda _: MllogReader().read, closes=True)
