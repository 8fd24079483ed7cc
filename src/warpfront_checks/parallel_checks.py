"""Checks that are found out in several children at once, while their session does what comes before
them: on a fast device most of the time is Python's. Edge.
`python -m warpfront_checks.parallel_checks JOB`
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from warpfront_checks.check_options import CheckOptions
from warpfront_checks.children import DONE, Returned, begin_beside, serve
from warpfront_checks.results import Check, CheckFinding, errored

CHILD = "warpfront_checks.parallel_checks"
SECONDS = 300.0
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
    if not lanes:

        def find_parts(parts: Sequence[Mapping[str, object]]) -> CheckFinding:
            return joined([_function(find)(**arguments, effort=effort) for arguments in parts])

        return [Check(name=name, find=partial(find_parts, parts)) for name, parts in calls.items()]
    items = [
        {"find": find, "options": vars(effort), "arguments": dict(arguments)}
        for parts in calls.values()
        for arguments in parts
    ]
    futures = iter(begin_beside(CHILD, items, lanes=lanes, seconds=SECONDS).answers)
    answers = {name: [next(futures) for _ in parts] for name, parts in calls.items()}
    return [
        Check(name=name, find=lambda mine=mine: joined([_awaited(answer) for answer in mine]))  # type: ignore[misc]
        for name, mine in answers.items()
    ]


def _awaited(answer: Future[Returned]) -> CheckFinding:
    returned = answer.result()
    if returned.outcome != DONE:
        return errored(f"{returned.outcome}: {returned.reason}")
    return CheckFinding(**returned.document)


def _function(find: str) -> Callable[..., CheckFinding]:
    module, _, name = find.partition(":")
    function: Callable[..., CheckFinding] = getattr(
        importlib.import_module(f"warpfront_checks.{module}"), name
    )
    return function


def find_out(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Make a check in the child."""
    effort = CheckOptions(**{**item["options"], "seeds": tuple(item["options"]["seeds"])})
    return vars(_function(item["find"])(**item["arguments"], effort=effort))


def main() -> None:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    serve(find_out)


if __name__ == "__main__":
    main()
    os._exit(0)
