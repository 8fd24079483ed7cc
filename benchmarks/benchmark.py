"""What the bench-* scripts have in common: repeated, alternating timings and tables of them."""

from __future__ import annotations

import datetime as dt
import os
import platform
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpfront.images.engine.protocol import Engine
from warpfront.system.process import environment

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """What repeated runs of one contender took, in seconds."""

    name: str
    seconds: tuple[float, ...]

    @property
    def least(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def time_alternating(
    contenders: Mapping[str, Callable[[], None]],
    *,
    repeats: int,
    before_each: Callable[[], None] = lambda: None,
) -> tuple[Timings, ...]:
    """Each contender `repeats` times, taking turns, so that a busy moment of the machine hits all
    alike. `before_each` is not timed.
    """
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            before_each()
            began = time.perf_counter()
            contender()
            taken[name].append(time.perf_counter() - began)
    return tuple(Timings(name=name, seconds=tuple(values)) for name, values in taken.items())


def timings_table(timings: Sequence[Timings], *, against: str) -> str:
    """A Markdown table: min and median in seconds, and the median's ratio to that of `against`."""
    reference = next(timing for timing in timings if timing.name == against)
    rows = [
        (
            timing.name,
            f"{timing.least:.2f}",
            f"{timing.median:.2f}",
            f"{timing.median / reference.median:.2f}",
        )
        for timing in timings
    ]
    return table(("contender", "min s", "median s", "ratio of medians"), rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column to the left, numbers to the right."""
    rule = ("---", *("---:" for _ in head[1:]))
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def child_environment(engine: Engine, cache: Path) -> Mapping[str, str]:
    """What a program needs to work on this very engine, and to keep its own files below `cache`."""
    buildx = shutil.which(engine.buildx[0])
    search = [str(Path(buildx).parent)] if buildx else []
    return {
        **engine.build_environment,
        "DOCKER_HOST": engine.name,
        "PATH": os.pathsep.join([*search, environment()["PATH"]]),
        "XDG_CACHE_HOME": str(cache),
    }


def machine() -> str:
    """One line that says where figures come from: processors, memory, system, load, day."""
    memory = _kib("MemTotal", Path("/proc/meminfo").read_text(encoding="ascii")) * 1024 / GIB
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    processors = len(os.sched_getaffinity(0))
    load = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
    day = dt.datetime.now(dt.UTC).date()
    return (
        f"{processors} cores, {memory:.0f} GiB, {system}, Python {platform.python_version()}, "
        f"load {load} at the start, {day}"
    )


def peak_mebibytes() -> float:
    """The most memory that this process held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _kib(name: str, text: str) -> int:
    line = next(line for line in text.splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1])
