"""Checks that are found out in several children at once, while their session does what comes before
them: on a fast device most of the time is Python's. Edge.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from warpfront_checks.check_options import CheckOptions
from warpfront_checks.children import Returned, begin_beside
from warpfront_checks.results import Check, CheckFinding

CHILD = "warpfront_checks.parallel_checks:find_out"
SECONDS = 300.0
# A function, its arguments, and the effort.
Item = tuple[str, Mapping[str, Any], CheckOptions]
# Other sessions run too, and each lane has a context and its tensors on the device.
CORES_A_LANE, BYTES_A_LANE, MOST_LANES = 2, 4 << 30, 8


def lanes_for(device: str, *, times: float = 1.0) -> int:
    """Return the number of parallel lanes: none on few cores, or where a device may be one
    process's alone. Work that would end last gets a multiple.
    """
    if device != "cuda" or (cores := len(os.sched_getaffinity(0))) < 2 * CORES_A_LANE:
        return 0
    most = int(min(MOST_LANES, cores // CORES_A_LANE) * times)
    return min(most, max(1, memory_of_gpu() // BYTES_A_LANE))


def memory_of_gpu() -> int:
    """Return bytes of the GPU that sessions compute on."""
    torch: Any = importlib.import_module("torch")
    return int(torch.cuda.get_device_properties(0).total_memory)


def begin_checks(
    find: str, calls: Mapping[str, Mapping[str, object]], effort: CheckOptions, *, lanes: int
) -> list[Check]:
    """Begin a check for each name, in order. `find` is `module:function` below this package,
    called with the arguments of the name and the effort.
    """
    parts = {name: [arguments] for name, arguments in calls.items()}
    return begin_parts(find, parts, effort, lanes=lanes, joined=lambda findings: findings[0])


def begin_parts(
    find: str,
    calls: Mapping[str, Sequence[Mapping[str, object]]],
    effort: CheckOptions,
    *,
    lanes: int,
    joined: Callable[[Sequence[CheckFinding]], CheckFinding],
) -> list[Check]:
    """Begin a check in parts for each name; its finding is what `joined` makes of theirs. Without
    lanes each is found out by this process.
    """
    items = {name: [(find, dict(part), effort) for part in parts] for name, parts in calls.items()}
    if not lanes:

        def find_parts(parts: Sequence[Item]) -> CheckFinding:
            return joined([_found(*item) for item in parts])

        return [Check(name=name, find=partial(find_parts, parts)) for name, parts in items.items()]

    def wait_for(mine: Sequence[Future[Returned]]) -> CheckFinding:
        return joined([answer.result().finding() for answer in mine])

    every = [item for parts in items.values() for item in parts]
    answers = iter(begin_beside(CHILD, every, lanes=lanes, seconds=SECONDS).answers)
    awaited = {name: [next(answers) for _ in parts] for name, parts in items.items()}
    return [Check(name=name, find=partial(wait_for, mine)) for name, mine in awaited.items()]


def _found(find: str, arguments: Mapping[str, Any], effort: CheckOptions) -> CheckFinding:
    module, _, name = find.partition(":")
    function = getattr(importlib.import_module(f"warpfront_checks.{module}"), name)
    finding: CheckFinding = function(**arguments, effort=effort)
    return finding


def find_out(item: Item) -> Mapping[str, Any]:
    """Make a check in the child."""
    return vars(_found(*item))
