"""Which of the wrong kernels of tests/kernels the case engine sees on the CPU.

usage: PYTHONPATH=src:tests python tools/kernels_seen.py [--seeds N] [--names FILE] [--jobs N] OUT

Writes one JSON object: by kernel the operation that sees it, seed and number of the case, and the
fault. Each is tried in a child process, with the operations alone that call one of its operators.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import sys
import threading
import time
import warnings
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from kernels import KERNELS
from kernels.kernel import dispatched_kernel, operators_of, seeded

from warpfront_checks.cases.axes import cases_of
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.catalogue import CATALOGUE
from warpfront_checks.cases.run import LackingError, NoOracleError, execute, names_of, run_case

DTYPES = ("float32", "bfloat16", "float16", "float64")
SECONDS = 60
STARTING = threading.Lock()


def recorded(seed: int, names: set[str], first: int) -> dict[str, list[str]]:
    """Return the operations whose first cases call each overload on the CPU."""
    called: dict[str, list[str]] = defaultdict(list)
    now, refused = [""], Counter[str]()
    library = torch.library.Library("aten", "IMPL")

    def spy(name: str) -> Any:
        def call(right: Any, _schema: Any, args: Any, kwargs: Any) -> Any:
            if now[0] not in {"", *called[name][-1:]}:
                called[name].append(now[0])
            return right(*args, **kwargs)

        return call

    for name in sorted(names):
        kernel = torch.library.get_kernel(f"aten::{name}", "CPU")
        library.impl(name, dispatched_kernel(name, kernel, spy(name)), "CPU", with_keyset=True)
    for operation in CATALOGUE.values():
        for case in itertools.islice(cases_of(operation, DTYPES, "cpu", seed), first):
            space = names_of()
            try:
                execute(case.inputs() + case.oracle() + case.sent(), space)
                now[0] = operation.name
                execute(case.call(), space)
            except Exception as error:  # noqa: BLE001 - a refused call calls nothing
                refused[str(error)[:80]] += 1
            now[0] = ""
    library._destroy()  # noqa: SLF001
    sys.stderr.write(f"refused: {refused.most_common(3)}\n")
    return called


def wrong(case: Case) -> str:
    """Return the first fault of a case, or nothing."""
    try:
        return next((f"{j.name}: {j.verdict.fault}" for j in run_case(case) if j.verdict.fault), "")
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
    parser.add_argument("--first", type=int, default=6, help="cases that show what is called")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--names", type=Path, help="a JSON list of kernels; without it all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    faults = {name: fault for name, fault in KERNELS.items() if "cpu" in fault.devices}
    names = json.loads(options.names.read_text()) if options.names else list(faults)
    overloads = {one for name in names for one in operators_of(faults[name], "cpu")}
    called = recorded(0, overloads, options.first)
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
