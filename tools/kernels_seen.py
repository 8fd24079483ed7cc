"""Which of the wrong kernels of tests/kernels the case engine sees on the CPU.

usage: PYTHONPATH=src:tests python tools/kernels_seen.py [--seeds N] [--names FILE] [--topic T] OUT

Writes one JSON object: by kernel the operation that sees it, seed and number of the case, and the
fault. Each is tried in a child process, with the operations alone that call one of its operators.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import threading
import time
import warnings
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from kernels import KERNELS
from kernels.kernel import dispatched_kernel, operators_of, seeded

from warpfront_checks.cases.axes import cases_of
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.catalogue import CATALOGUE, TOPICS
from warpfront_checks.cases.operation import Operation
from warpfront_checks.cases.run import LackingError, NoOracleError, execute, names_of, run_case
from warpfront_checks.cases.session import SEEN_ON

DTYPES = ("float32", "bfloat16", "float16", "float64")
SECONDS = 60
# Which of an operation's cases show what it calls: each so many.
STEP = 3
STARTING = threading.Lock()


def recorded(names: set[str], topics: set[str]) -> dict[str, list[str]]:
    """Return the operations of some topics that call each overload on the CPU."""
    called: set[str] = set()
    library = torch.library.Library("aten", "IMPL")

    def spy(name: str) -> Any:
        def call(right: Any, _schema: Any, args: Any, kwargs: Any) -> Any:
            called.add(name)
            return right(*args, **kwargs)

        return call

    for name in sorted(names):
        kernel = torch.library.get_kernel(f"aten::{name}", "CPU")
        library.impl(name, dispatched_kernel(name, kernel, spy(name)), "CPU", with_keyset=True)
    found: dict[str, list[str]] = defaultdict(list)
    for operation in (one for topic in sorted(topics) for one in TOPICS[topic]):
        # A process of its own: a few calls end theirs.
        mine, its = multiprocessing.Pipe(duplex=False)
        arguments = (operation, called, its)
        child = multiprocessing.get_context("fork").Process(target=send_called, args=arguments)
        child.start()
        its.close()
        try:
            names_called = mine.recv() if mine.poll(SECONDS) else None
        except EOFError:
            names_called = None
        if names_called is None:
            sys.stderr.write(f"{operation.name} ended its process, or did not end in {SECONDS} s\n")
        for name in names_called or ():
            found[name].append(operation.name)
        child.kill()
        child.join()
    library._destroy()  # noqa: SLF001
    return found


def send_called(operation: Operation, called: set[str], pipe: Any) -> None:
    """Send the overloads that an operation's calls add to `called`, by some of its cases."""
    names: set[str] = set()
    for case in [*cases_of(operation, DTYPES, "cpu", 0)][::STEP]:
        space = names_of()
        # A refused call calls nothing.
        with suppress(Exception):
            execute(case.inputs() + case.oracle() + case.sent(), space)
            called.clear()
            execute(case.call(), space)
            names |= called
    pipe.send(sorted(names))
    os._exit(0)


def wrong(case: Case) -> str:
    """Return the first fault of a case, or nothing."""
    try:
        return next((f"{j.name}: {j.fault}" for j in run_case(case) if j.fault), "")
    except (LackingError, NoOracleError):
        return ""
    except Exception as error:  # noqa: BLE001 - a case that raises is wrong
        return f"raised {type(error).__name__}: {error}"


def seen_by(fault: Any, called: dict[str, list[str]], seeds: list[int]) -> list[str]:
    """Return the operation, the number of the case and the fault, or nothing."""
    operators = operators_of(fault, "cpu")
    found = [operation for name in operators for operation in called.get(name, ())]
    # What calls most of its operators comes first, and what calls little else.
    busy = Counter(operation for each in called.values() for operation in each)
    ordered = sorted(set(found), key=lambda one: (-found.count(one), busy[one]))
    begun = time.monotonic()
    for seed in seeds:
        for operation in ordered:
            for number, case in enumerate(cases_of(CATALOGUE[operation], DTYPES, "cpu", seed)):
                with seeded(fault, "cpu"):
                    text = wrong(case)
                if text and not wrong(case):
                    return [operation, f"{seed}:{number}", text[:200]]
            if time.monotonic() - begun > SECONDS:
                return ["", "", "out of time"]
    return ["", "", f"{len(ordered)} operations call it"]


def tried(fault: Any, called: Any, seeds: list[int], pipe: Any) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    pipe.send(seen_by(fault, called, seeds))
    pipe.close()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--topic", action="append", default=[], help="a topic besides those claimed on the CPU"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--names", type=Path, help="a JSON list of kernels; without it all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    faults = {name: fault for name, fault in KERNELS.items() if "cpu" in fault.devices}
    names = json.loads(options.names.read_text()) if options.names else list(faults)
    overloads = {one for name in names for one in operators_of(faults[name], "cpu")}
    topics = {topic for topic, kinds in SEEN_ON.items() if "cpu" in kinds} | {*options.topic}
    called = recorded(overloads, topics)
    found: dict[str, list[str]] = {}

    def ask(name: str) -> None:
        mine, its = multiprocessing.Pipe(duplex=False)
        arguments = (faults[name], called, list(range(options.seeds)), its)
        child = multiprocessing.get_context("fork").Process(target=tried, args=arguments)
        with STARTING:
            child.start()
            its.close()
        try:
            found[name] = mine.recv() if mine.poll(SECONDS + 60) else ["", "", "no answer"]
        except EOFError:
            found[name] = ["ended", "", "by a signal"]
        child.kill()
        seen = sum(bool(one[0]) for one in found.values())
        line = f"{len(found)} of {len(names)}, {seen} seen: {name}: {found[name]}"
        sys.stderr.write(f"{line[:240]}\n")
        options.out.write_text(json.dumps(dict(found), indent=1) + "\n")

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(ask, names))


if __name__ == "__main__":
    main()
