"""The records of measurements: frozen values with units in their names, as they are at rest. Words.

Seconds, bytes, rates per second, nothing rounded. What a source does not say is None, and a run's
`missing` names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

SCHEMA = 1
Divisor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A time or a rate by which others are divided: in a record written by hand it may be anything."""


class MemoryKind(StrEnum):
    """The subject of a memory figure: torch's tensors, torch's pool, or the whole device."""

    ALLOCATED = "allocated"
    RESERVED = "reserved"
    DEVICE = "device"


class Metric(StrEnum):
    """The metric of a comparison, a time or a rate; `TIME_TO_TRAIN` is of a whole run."""

    STEP_SECONDS = "step_seconds"
    TOKENS_PER_SECOND = "tokens_per_second_per_device"
    SAMPLES_PER_SECOND = "samples_per_second"
    TIME_TO_TRAIN = "time_to_train"

    @property
    def is_rate(self) -> bool:
        """Return whether more of it is faster."""
        return self in {Metric.TOKENS_PER_SECOND, Metric.SAMPLES_PER_SECOND}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSource:
    """The file that a record was read from. `sha256` is of its unchanged bytes."""

    path: str
    sha256: str
    size_bytes: int
    format: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """The number of ways a model is divided, by kind of parallelism."""

    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None
    expert: int | None = None
    context: int | None = None

    def __str__(self) -> str:
        ways = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return " ".join(f"{name} {count}" for name, count in ways.items() if count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The figures of one line: the mean of `steps` optimizer steps, the last of which is `step`.

    `segment` counts restarts; `samples` and `tokens` are counts since the start of the run.
    `tokens_per_second` is the rate of all devices together.
    """

    step: int
    steps: int = 1
    segment: int = 0
    seconds: Divisor | None = None
    tokens_per_second_per_device: Divisor | None = None
    tokens_per_second: float | None = None
    samples_per_second: Divisor | None = None
    flop_per_second_per_device: Divisor | None = None
    loss: float | None = None
    grad_norm: float | None = None
    samples: int | None = None
    tokens: int | None = None
    skipped: int | None = None
    nan: int | None = None
    memory_bytes: int | None = None
    power_watts: float | None = None
    at: str | None = None
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A measure of quality, after so many samples."""

    samples: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A remark of a reader or a judge on a run. An `error` makes the run unusable."""

    level: Literal["note", "warning", "error"]
    message: str
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A training, as recorded in its log.

    `given` names the fields that options set, `solved` those that follow from other figures.
    `total_steps` is the planned number of optimizer steps; `accumulation` the micro-batches of one
    step on one device; `tokens_per_step` is of all devices. `serving` has the figures of a serving
    benchmark by name, in seconds, tokens and requests; `request_rate` is requests per second.
    """

    source: RecordSource
    framework: str | None = None
    framework_version: str | None = None
    torch: str | None = None
    vendor: str | None = None
    device_name: str | None = None
    devices: int | None = None
    nodes: int | None = None
    precision: str | None = None
    parallel: Parallel = Parallel()
    global_batch: int | None = None
    micro_batch: int | None = None
    sequence: int | None = None
    accumulation: int | None = None
    tokens_per_step: int | None = None
    total_steps: int | None = None
    model: str | None = None
    parameters: int | None = None
    active_parameters: int | None = None
    layers: int | None = None
    hidden_size: int | None = None
    vocabulary: int | None = None
    benchmark: str | None = None
    scenario: str | None = None
    request_rate: str | None = None
    target_quality: float | None = None
    steps: tuple[Step, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    serving: Mapping[str, float] = field(default_factory=dict)
    memory_kind: MemoryKind | None = None
    run_seconds: Divisor | None = None
    succeeded: bool | None = None
    lines: int = 0
    given: tuple[str, ...] = ()
    solved: tuple[str, ...] = ()
    findings: tuple[Remark, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def concurrency(self) -> float | None:
        """Return the most requests at once of a serving benchmark."""
        is_stream = (self.scenario or "").startswith("Multi")
        return self.serving.get("samples_per_query" if is_stream else "concurrency")

    @property
    def input_length(self) -> float | None:
        """Return the mean tokens of a request."""
        return self._per_request("input_tokens")

    @property
    def output_length(self) -> float | None:
        """Return the mean tokens of an answer."""
        return self._per_request("output_tokens")

    def _per_request(self, name: str) -> float | None:
        tokens, requests = self.serving.get(name), self.serving.get("requests")
        return tokens / requests if tokens and requests else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value, and the bounds of 95 in 100 resamplings."""

    value: float
    low: float
    high: float

    @property
    def inverse(self) -> Interval:
        return Interval(value=1 / self.value, low=1 / self.high, high=1 / self.low)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Neighbouring steps that take the same time, give or take noise."""

    segment: int
    first_step: int
    last_step: int
    steps: int
    median: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run in a few figures, over its settled steps. Times are of one step; `mean_seconds` is of
    the whole run, where its steps print no time.
    """

    settled_from: int | None
    settled_steps: int
    dropped_steps: int
    slow_steps: int
    median_seconds: Interval | None = None
    mean_seconds: float | None = None
    p95_seconds: float | None = None
    variation: float | None = None
    tokens_per_second_per_device: float | None = None
    samples_per_second: float | None = None
    flop_per_second_per_device: float | None = None
    peak_memory_bytes: int | None = None
    last_loss: float | None = None
    levels: tuple[Level, ...] = ()
    findings: tuple[Remark, ...] = ()


class ComparisonOutcome(StrEnum):
    """The result of a comparison. There is no winner."""

    NO_DIFFERENCE = "no difference"
    DIFFERENCE = "difference"
    NOT_COMPARABLE = "not comparable"
    TOO_SHORT = "too short"
    UNDETERMINED = "not determined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A fact in which two sides differ; `refused` where it makes them unlike work."""

    name: str
    a: str
    b: str
    refused: bool = False
    allowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A side of a comparison."""

    name: str
    sources: tuple[str, ...]
    runs: int
    samples: int
    median: float | None
    summaries: tuple[Summary, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRatio:
    """A timed operation on both sides: B's time over A's. `changed` after Holm's correction."""

    id: str
    ratio: Interval
    p_value: float
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides by one metric. `times` is B's time over A's, also where the metric is a rate:
    over 1, B is slower. `limit` is the largest ratio that was allowed, if one was given.
    """

    metric: str
    a: Side
    b: Side
    verdict: ComparisonOutcome
    reasons: tuple[str, ...] = ()
    times: Interval | None = None
    resampled: str = ""
    noise: float = 0.01
    differences: tuple[Difference, ...] = ()
    allowed: tuple[str, ...] = ()
    findings: tuple[Remark, ...] = ()
    losses: tuple[tuple[int, float, float], ...] = ()
    cases: tuple[CaseRatio, ...] = ()
    only_in_a: tuple[str, ...] = ()
    only_in_b: tuple[str, ...] = ()
    limit: float | None = None

    @property
    def slower(self) -> Mapping[str, Interval]:
        """Return what is slower than allowed, the worst first: operations that changed, and all
        together (B, where there are none), whose whole interval is above the limit.
        """
        is_open = self.verdict is ComparisonOutcome.UNDETERMINED
        if is_open or self.limit is None or self.times is None:
            return {}
        ratios = {case.id: case.ratio for case in self.cases if case.changed}
        ratios["all operations together" if self.cases else "B"] = self.times
        beyond = {name: ratio for name, ratio in ratios.items() if ratio.low > self.limit}
        return dict(sorted(beyond.items(), key=lambda item: -item[1].value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The documented peak of a device for one dtype, and its source."""

    flop_per_second: float | None
    bytes_per_second: float | None
    dense: bool
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """An operation, timed in blocks of repetitions: `samples_seconds` are theirs, block by
    block. `torch_benchmark_seconds` is the median of `torch.utils.benchmark`, on request.
    """

    id: str
    suite: str
    op: str
    shape: str
    dtype: str
    direction: Literal["forward", "backward", "both", "copy"]
    outcome: str
    samples_seconds: tuple[tuple[Divisor, ...], ...] = ()
    first_seconds: float | None = None
    flops: int | None = None
    bytes: int | None = None
    peak: Peak | None = None
    memory_peak_bytes: int | None = None
    kernel: str | None = None
    torch_benchmark_seconds: float | None = None
    note: str = ""

    @property
    def times(self) -> list[float]:
        """Return the times of all blocks."""
        return [seconds for block in self.samples_seconds for seconds in block]

    @property
    def median_seconds(self) -> float | None:
        return median(self.times) if self.times else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Steps of a decoder, timed one by one."""

    id: str
    dtype: str
    tokens_per_step: int
    devices: int
    step_seconds: tuple[Divisor, ...]
    losses: tuple[float, ...] = ()
    model_flops_per_token: int | None = None
    peak: Peak | None = None
    memory_peak_bytes: int | None = None

    @property
    def median_seconds(self) -> float | None:
        return median(self.step_seconds) if self.step_seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The timings of `bench` in one image on one device. `environment` is `detect`'s result."""

    cell_id: str
    image_digest: str
    content_hash: str
    verified: str
    target: str
    at: str
    tool: Mapping[str, str]
    environment: Mapping[str, object]
    settings: Mapping[str, object]
    results: tuple[Measurement, ...] = ()
    training: tuple[Training, ...] = ()
    findings: tuple[Remark, ...] = ()
