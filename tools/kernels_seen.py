"""Which wrong kernels the operators' cases, the tables of rows and opinfo see on a device.

usage: PYTHONPATH=src:tests python tools/kernels_seen.py [--device cuda] [--set NAME] OUT

Writes one JSON object: by kernel what sees it: the kind of check, its place, seed and fault. A
kernel is tried with those operations, rows and entries alone that call one of its operators. Each
job is a process, and begins again when a kernel ends it or takes too long: `undetermined`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import queue
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from kernels import KERNELS
from kernels.kernel import KEYS, WrongKernel, dispatched_kernel, operators_of, seeded
from kernels.seeding.dispatched import cases_of

from warpfront_checks.cases.catalogue import CATALOGUE, TOPICS
from warpfront_checks.cases.known_defects import preventing_thread
from warpfront_checks.cases.run import ContextEndedError, execute, has_context, names_of
from warpfront_checks.cases.session import SEEN_ON, case_dtypes, judge_operation
from warpfront_checks.cases.special.tables import TABLES, free_bytes, judge_rows, rows_for
from warpfront_checks.check_options import CheckOptions
from warpfront_checks.opinfo.adapter import load_database
from warpfront_checks.opinfo.sweep import sweep_entries, sweeps_of
from warpfront_checks.precision import require_full_precision, tested_dtypes

# Which of an operation's cases show what it calls: each so many.
STEP = 3
# The least bytes of a row that is tried alone only if its table names it.
LARGE = 2**33
SHOWING = ("float32", "float32 backward", "int64")
Place = tuple[str, ...]


def places_of(device: str, topics: set[str]) -> list[Place]:
    """Return what is tried on a device: operations, rows of tables, entries of opinfo."""
    claimed = {topic for topic, kinds in SEEN_ON.items() if device in kinds} | topics
    operations = [one for topic in TOPICS if topic in claimed for one in TOPICS[topic]]
    return [
        *(("cases", one.name) for one in operations if device not in one.unseen),
        *(("rows", name, r.name) for name in TABLES for r in rows_for(TABLES[name], device)),
        *(("opinfo", name) for name in dict.fromkeys(entry.name for entry in load_database())),
    ]


def faults_at(place: Place, device: str, seed: int, *, few: bool = False) -> Iterator[str]:
    """Yield the faults of one operation, row, or entry in each sweep, or in a few of them."""
    effort = CheckOptions(seeds=(seed,))
    kind, *names = place
    if kind == "cases":
        yield from judge_operation(CATALOGUE[names[0]], device, effort).faults
    elif kind == "rows":
        row = row_at(place, device)
        if row.needed_bytes <= free_bytes(device):
            yield from judge_rows([row], device, tested_dtypes(device), effort).faults
    else:
        entries = [entry for entry in load_database() if entry.name == names[0]]
        for sweep in sweeps_of(device, effort):
            if few and sweep.name not in SHOWING:
                continue
            yield from (f"{sweep.name}: {fault}" for fault in sweep_entries(entries, sweep).faults)


def row_at(place: Place, device: str) -> Any:
    _, table, name = place
    return next(row for row in rows_for(TABLES[table], device) if row.name == name)


def call_at(place: Place, device: str) -> None:
    """Make some of the calls of a place, for what they call."""
    kind, *names = place
    if kind == "cases":
        dtypes = case_dtypes(device, quick=False)
        space = names_of()
        operation = CATALOGUE[names[0]]
        for case in [*cases_of(operation, dtypes, device, 0)][::STEP]:
            if preventing_thread(operation.defects, device, case.axes):
                continue
            with suppress(Exception):  # a refused call calls nothing
                execute([*case.inputs(), *case.oracle(), *case.sent(), *case.call()], space)
        return
    if kind == "rows" and row_at(place, device).needed_bytes > LARGE:
        return
    with suppress(Exception):
        for _ in faults_at(place, device, 0, few=True):
            pass


def serve(pipe: Any, device: str, modules: list[str], overloads: list[str]) -> None:
    """Answer requests of the parent: what a place calls, then where a kernel is seen."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    require_full_precision()
    load_modules(modules)
    called: set[str] = set()
    library: Any = None
    while request_and_argument := received(pipe):
        request, argument = request_and_argument
        if request == "called":
            library = library or spies(called, overloads, device)
            called.clear()
            call_at(argument, device)
            pipe.send((sorted(called), has_context(device)))
            continue
        if library:
            library._destroy()  # noqa: SLF001
            library = None
        name, places, seeds = argument
        pipe.send((seen_at(KERNELS[name], places, device, seeds), has_context(device)))


def received(pipe: Any) -> Any:
    """Return the next message, or nothing: the parent has ended."""
    try:
        return pipe.recv()
    except EOFError:
        return None


def seen_at(fault: WrongKernel, places: list[Place], device: str, seeds: int) -> list[str]:
    """Return the first place, seed and fault that the kernel alone makes, or nothing."""
    for seed in range(seeds):
        for place in places:
            with seeded(fault, device):
                try:
                    text = next(faults_at(place, device, seed), "")
                except ContextEndedError as error:
                    # As a session has it: its check fails.
                    return [*place, str(seed), f"the context ended in {error}"[:200]]
            if text and not next(faults_at(place, device, seed), ""):
                return [*place, str(seed), text[:200]]
    return []


def spies(called: set[str], overloads: list[str], device: str) -> Any:
    """Return a library whose kernels enter their names among those that were called."""
    library = torch.library.Library("aten", "IMPL")

    def spy(name: str) -> Any:
        def call(right: Any, _schema: Any, args: Any, kwargs: Any) -> Any:
            called.add(name)
            return right(*args, **kwargs)

        return call

    for name in overloads:
        right = torch.library.get_kernel(f"aten::{name}", KEYS[device])
        entered = dispatched_kernel(name, right, spy(name), everywhere=True)
        library.impl(name, entered, KEYS[device], with_keyset=True)
    return library


def load_modules(paths: list[str]) -> None:
    """Enter the kernels of modules that are not in tests/kernels."""
    for path in paths:
        spec = importlib.util.spec_from_file_location(Path(path).stem, path)
        assert spec
        assert spec.loader
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


class Worker:
    """A child process that answers one request at a time, and is begun again when it ends."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.begin()

    def begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, its = context.Pipe()
        self.child = context.Process(target=serve, args=(its, *self.arguments), daemon=True)
        self.child.start()
        its.close()

    def ask(self, request: str, argument: Any, seconds: float) -> Any:
        """Return the answer, or a sentence about why there is none."""
        reason = "its process ended"
        with suppress(EOFError, OSError):
            self.pipe.send((request, argument))
            if self.pipe.poll(seconds):
                answer, has_context_left = self.pipe.recv()
                if not has_context_left:
                    self.begin_again()
                return answer
            reason = f"no answer in {seconds:.0f} s"
        self.begin_again()
        return reason

    def begin_again(self) -> None:
        self.child.kill()
        self.child.join()
        self.begin()


def in_parallel(workers: list[Worker], items: list[Any], work: Any) -> None:
    """Call `work(worker, item)` for each item, one at a time for each worker."""
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for item in items:
        waiting.put(item)

    def serve_one(worker: Worker) -> None:
        with suppress(queue.Empty):
            while True:
                work(worker, waiting.get_nowait())

    threads = [Thread(target=serve_one, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu", choices=tuple(KEYS))
    parser.add_argument("--module", action="append", default=[], help="a file of more kernels")
    parser.add_argument("--set", action="append", default=[], help="sets of kernels; default: all")
    parser.add_argument("--names", type=Path, help="a JSON list of kernels; default: all")
    parser.add_argument("--topic", action="append", default=[], help="a topic that is not claimed")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120, help="of one kernel's search")
    options = parser.parse_args()
    load_modules(options.module)
    names = json.loads(options.names.read_text()) if options.names else list(KERNELS)
    faults = [KERNELS[n] for n in names if options.device in KERNELS[n].devices]
    faults = [f for f in faults if not options.set or str(f.set) in options.set]
    overloads = sorted({name for fault in faults for name in operators_of(fault, options.device)})
    shared = (options.device, options.module, overloads)
    workers = [Worker(*shared) for _ in range(options.jobs)]
    began = time.monotonic()

    def tell(line: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:5.0f} s  {line}\n"[:300])

    called: dict[str, list[Place]] = defaultdict(list)

    def record(worker: Worker, place: Place) -> None:
        answer = worker.ask("called", place, options.seconds)
        if isinstance(answer, str):
            tell(f"{' '.join(place)}: {answer}")
            return
        for name in answer:
            called[name].append(place)

    places = places_of(options.device, {*options.topic})
    in_parallel(workers, places, record)
    tell(f"{len(places)} operations, rows and entries call {len(called)} of the operators")
    # What calls little else comes first.
    busy = {place: sum(place in each for each in called.values()) for place in places}
    order = {"cases": 0, "rows": 1, "opinfo": 2}
    results: dict[str, Any] = {}

    def attempt(worker: Worker, fault: WrongKernel) -> None:
        mine = {p for name in operators_of(fault, options.device) for p in called.get(name, ())}
        ordered = sorted(mine, key=lambda place: (order[place[0]], busy[place], place))
        question = (fault.name, ordered, options.seeds)
        answer = worker.ask("seen", question, options.seconds) if ordered else []
        undetermined = isinstance(answer, str)
        results[fault.name] = {
            "set": str(fault.set),
            "outcome": "undetermined" if undetermined else "seen" if answer else "missed",
            "by": answer or f"{len(ordered)} operations, rows and entries call it",
        }
        tell(f"{len(results)} of {len(faults)}: {fault.name}: {results[fault.name]}")
        options.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")

    in_parallel(workers, faults, attempt)
    tally = [each["outcome"] for each in results.values()]
    print({outcome: tally.count(outcome) for outcome in sorted({*tally})})


if __name__ == "__main__":
    main()
