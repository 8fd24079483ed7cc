"""Which operation and seed sees each wrong kernel whose check in `seen.json` is a case.

usage: PYTHONPATH=src:tests python tools/kernels_named.py [--device cuda] [--jobs 8] [--write]

After draws have changed: tries the recorded seed, then others. `--write` records those, and leaves
out a check that sees its kernel with none. One that does not end in time stays as it is.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from multiprocessing.pool import ThreadPool
from typing import Any

import torch
from kernels import KERNELS
from kernels.seeding.dispatched import SEEN, operation_faults

from warpfront_checks.precision import require_full_precision

Check = list[str]
SEEDS = ("0", "1", "2", "3", "4", "5")
# Its forks have imported torch, and touched no driver.
SERVER = multiprocessing.get_context("forkserver")


def serve(device: str, name: str, checks: Sequence[Check], pipe: Any) -> None:
    """Send the checks that still see a kernel, with the first seed that does."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    require_full_precision()
    seeing = []
    for kind, operation, *recorded in checks:
        for seed in dict.fromkeys((*recorded, *SEEDS)):
            if next(operation_faults(KERNELS[name], device, operation, seed), ""):
                seeing.append([kind, operation, *([seed] if seed != "0" else [])])
                break
    pipe.send(seeing)


def tried(job: tuple[str, str, list[Check], float]) -> tuple[str, list[Check] | None]:
    """Return a kernel's checks as a child found them, or None where it did not end."""
    device, name, checks, seconds = job
    mine, its = SERVER.Pipe()
    child = SERVER.Process(target=serve, args=(device, name, checks, its))
    child.start()
    its.close()
    try:
        return name, mine.recv() if mine.poll(seconds) else None
    except EOFError:
        return name, None
    finally:
        child.kill()
        child.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60, help="of one kernel")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--kernel", action="append", default=[], help="its name; default: all")
    options = parser.parse_args()
    seen: dict[str, list[Check]] = json.loads(SEEN.read_text(encoding="utf-8"))
    cases = {
        name: [check for check in checks if check[0] == "cases" and len(check) > 1]
        for name, checks in seen.items()
        if options.device in KERNELS[name].devices and name in (options.kernel or seen)
    }
    SERVER.set_forkserver_preload(["kernels.seeding.dispatched"])
    jobs = [(options.device, name, mine, options.seconds) for name, mine in cases.items() if mine]
    tally: Counter[str] = Counter()
    with ThreadPool(options.jobs) as pool:
        for name, found in pool.imap_unordered(tried, jobs):
            outcome = "not ended" if found is None else "same" if found == cases[name] else "other"
            tally["lost" if found == [] else outcome] += 1
            if outcome != "same":
                sys.stderr.write(f"{name}: {cases[name]} -> {found}\n")
            if found is not None:
                rest = [check for check in seen[name] if check not in cases[name]]
                seen[name] = [*found, *rest]
    print(dict(tally))
    if options.write:
        lines = (f' "{name}": {json.dumps(seen[name])}' for name in sorted(seen))
        SEEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
